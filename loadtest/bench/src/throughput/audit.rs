//! Every task once, everywhere: in the scheduler's read model, in quota's, and on the bill.

use super::BenchError;
use chassis::stack::Stack;
use clickhouse::Row;
use serde::{Deserialize, Serialize};
use sqlx::{Connection, PgConnection};

#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error("reading the read models: {0}")]
    Postgres(#[from] sqlx::Error),
    #[error("reading the bill: {0}")]
    Clickhouse(#[from] clickhouse::error::Error),
    #[error("{what}: {found}, and should be {expected}")]
    Differs {
        what: &'static str,
        found: u64,
        expected: u64,
    },
}

/// Counts after an audit, which are all equal.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Audited {
    pub tasks_accepted: u64,
    pub tasks_ended_in_postgres: u64,
    pub tasks_on_the_bill: u64,
}

#[derive(Row, Deserialize)]
struct Billed {
    intervals: u64,
    allocations: u64,
}

/// `job_set` has all tasks of the run; `held_cores` are held of all quotas.
pub async fn audit(
    stack: &Stack,
    job_set: &str,
    (accepted, held_cores): (u64, u64),
) -> Result<Audited, BenchError> {
    let equal = |what, found: u64, expected: u64| match found == expected {
        true => Ok(()),
        false => Err(AuditError::Differs {
            what,
            found,
            expected,
        }),
    };
    let (known, finished, held) = postgres(stack, job_set).await?;
    equal("tasks in the scheduler's read model", known, accepted)?;
    equal("tasks that finished there", finished, accepted)?;
    equal("cores that are held of quotas", held, held_cores)?;
    let billed = bill(stack, job_set).await?;
    equal("intervals on the bill", billed.intervals, accepted)?;
    equal("tasks on the bill", billed.allocations, accepted)?;
    Ok(Audited {
        tasks_accepted: accepted,
        tasks_ended_in_postgres: finished,
        tasks_on_the_bill: billed.allocations,
    })
}

async fn postgres(stack: &Stack, job_set: &str) -> Result<(u64, u64, u64), AuditError> {
    let mut postgres = PgConnection::connect(&stack.postgres.url).await?;
    let counts = "SELECT count(*), count(*) FILTER (WHERE end_cause = 'finished') \
                  FROM scheduler.allocations WHERE job_set = $1";
    let (known, finished): (i64, i64) = sqlx::query_as(counts)
        .bind(job_set)
        .fetch_one(&mut postgres)
        .await?;
    let held = held(&mut postgres).await?;
    // Counts are never negative.
    Ok((known as u64, finished as u64, held))
}

/// Cores that are held of all quotas.
pub async fn held_cores(stack: &Stack) -> Result<u64, AuditError> {
    let mut postgres = PgConnection::connect(&stack.postgres.url).await?;
    Ok(held(&mut postgres).await?)
}

async fn held(postgres: &mut PgConnection) -> Result<u64, sqlx::Error> {
    let held = "SELECT coalesce(sum(reserved::numeric + used) / 1000, 0)::bigint \
                FROM quota.resource_quotas WHERE resource = 'cpu' AND team = ''";
    let held: i64 = sqlx::query_scalar(held).fetch_one(postgres).await?;
    // A sum of amounts that are never negative.
    Ok(held as u64)
}

async fn bill(stack: &Stack, job_set: &str) -> Result<Billed, BenchError> {
    let billed = stack
        .bill()?
        .query(
            "SELECT count() AS intervals, uniqExact(allocation) AS allocations \
             FROM allocation_intervals WHERE job_set = ? AND cause = 'finished'",
        )
        .bind(job_set)
        .fetch_one::<Billed>()
        .await;
    Ok(billed.map_err(AuditError::from)?)
}

/// Ready nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadyNodes {
    pub all: u64,
    /// Ready nodes of agents that started before `since_ms`.
    pub former: u64,
}

/// `since_ms` is compared with the boots of simulated agents, which are Unix ms.
pub async fn nodes_ready(stack: &Stack, since_ms: i64) -> Result<ReadyNodes, AuditError> {
    let mut postgres = PgConnection::connect(&stack.postgres.url).await?;
    let ready = "SELECT count(*), count(*) FILTER (WHERE boot < $1) \
                 FROM node_heartbeat.nodes WHERE state = 'ready'";
    let (all, former): (i64, i64) = sqlx::query_as(ready)
        .bind(since_ms)
        .fetch_one(&mut postgres)
        .await?;
    // Counts are never negative.
    Ok(ReadyNodes {
        all: all as u64,
        former: former as u64,
    })
}
