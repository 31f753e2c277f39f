//! What operators say of nodes, and what is on them.

use chassis::warm::{Moment, WarmError, unsigned};
use sqlx::{PgPool, types::Json};
use std::collections::BTreeMap;
use vocab::{AllocationId, Millis, Taint};

/// What is known of a node that an operator has said something of, or that something is on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeUse {
    pub cordoned: bool,
    pub drained: bool,
    /// So many of its allocations are on their way out at once, at the most; 0: all.
    pub at_once: u32,
    /// Of the cordon; 0: nobody has set it.
    pub cordon_version: u64,
    /// Those that an operator has given to it.
    pub taints: Vec<Taint>,
    /// Of the taints; 0: nobody has set them.
    pub taints_version: u64,
    /// Allocations on it.
    pub allocations: u64,
    /// Those of them that are on their way out.
    pub stopping: u64,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub gpu_milli: u64,
}

/// By name.
pub async fn nodes(pool: &PgPool) -> Result<BTreeMap<String, NodeUse>, WarmError> {
    let records = sqlx::query!(
        r#"WITH held AS (
               SELECT node, count(*) AS allocations, count(*) FILTER (WHERE state = 'stopping' OR preempted) AS stopping,
                      least(sum(cpu_milli), 9223372036854775807)::bigint AS cpu_milli,
                      least(sum(memory_bytes), 9223372036854775807)::bigint AS memory_bytes,
                      least(sum(gpu_count::bigint * gpu_milli), 9223372036854775807)::bigint AS gpu_milli
               FROM live_allocations WHERE node IS NOT NULL GROUP BY node),
           known AS (SELECT node FROM held UNION SELECT node FROM cordons UNION SELECT node FROM node_taints)
           SELECT known.node AS "node!", coalesce(c.cordoned, false) AS "cordoned!", coalesce(c.drain, false) AS "drain!",
                  coalesce(c.at_once, 0) AS "at_once!", coalesce(c.version, 0) AS "cordon_version!",
                  t.taints AS "taints?: Json<Vec<Taint>>", coalesce(t.version, 0) AS "taints_version!",
                  coalesce(held.allocations, 0) AS "allocations!", coalesce(held.stopping, 0) AS "stopping!",
                  coalesce(held.cpu_milli, 0) AS "cpu_milli!", coalesce(held.memory_bytes, 0) AS "memory_bytes!",
                  coalesce(held.gpu_milli, 0) AS "gpu_milli!"
           FROM known
           LEFT JOIN held ON held.node = known.node
           LEFT JOIN cordons AS c ON c.node = known.node
           LEFT JOIN node_taints AS t ON t.node = known.node"#
    )
    .fetch_all(pool)
    .await?;
    let rows = records.into_iter().map(|record| {
        let node = NodeUse {
            cordoned: record.cordoned,
            drained: record.drain,
            at_once: unsigned("at_once", record.at_once.into())?
                .try_into()
                .unwrap_or(u32::MAX),
            cordon_version: unsigned("version", record.cordon_version)?,
            taints: record.taints.map(|taints| taints.0).unwrap_or_default(),
            taints_version: unsigned("version", record.taints_version)?,
            allocations: unsigned("allocations", record.allocations)?,
            stopping: unsigned("stopping", record.stopping)?,
            cpu_milli: unsigned("cpu_milli", record.cpu_milli)?,
            memory_bytes: unsigned("memory_bytes", record.memory_bytes)?,
            gpu_milli: unsigned("gpu_milli", record.gpu_milli)?,
        };
        Ok((record.node, node))
    });
    rows.collect()
}

/// An allocation that is on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnNode {
    pub id: AllocationId,
    pub tenant: String,
    pub job_set: String,
    /// placed, running or stopping.
    pub state: String,
    pub priority: i32,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub gpu_milli: u64,
    pub placed: Millis,
}

/// What is on a node, the oldest first.
pub async fn on_node(pool: &PgPool, node: &str) -> Result<Vec<OnNode>, WarmError> {
    let records = sqlx::query!(
        r#"SELECT allocation_id, tenant, job_set, state, priority, cpu_milli, memory_bytes,
                  gpu_count::bigint * gpu_milli AS "gpu_milli!", placed_at AS "placed_at!: Moment"
           FROM live_allocations WHERE node = $1 ORDER BY placed_at, allocation_id"#,
        node
    )
    .fetch_all(pool)
    .await?;
    let rows = records.into_iter().map(|record| {
        Ok(OnNode {
            id: AllocationId(record.allocation_id),
            tenant: record.tenant,
            job_set: record.job_set,
            state: record.state,
            priority: record.priority,
            cpu_milli: unsigned("cpu_milli", record.cpu_milli)?,
            memory_bytes: unsigned("memory_bytes", record.memory_bytes)?,
            gpu_milli: unsigned("gpu_milli", record.gpu_milli)?,
            placed: record.placed_at.into(),
        })
    });
    rows.collect()
}
