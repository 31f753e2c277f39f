//! The tables `job_sets` and `tenant_tallies`: how many allocations stand where. A batch adds what it has changed, in the transaction
//! that writes its rows, so that a count is never of another moment than they are.

use super::look::{self, Listed};
use crate::project::{Standing, Tallies};
use chassis::warm::{Moment, WarmError, merge, unsigned};
use sqlx::{FromRow, PgConnection, PgPool};
use table::{Read, Table};
use vocab::{Millis, Token};

/// How many allocations of a job set, of those in one queue, stand where; those that are over, too.
#[derive(Table)]
#[table(name = "job_sets", key(tenant, job_set, queue))]
// Room for the next counts beside the row.
#[table(with = "fillfactor = 70")]
pub struct JobSetRecord<'a> {
    tenant: &'a Token,
    job_set: &'a Token,
    queue: &'a Token,
    #[table(merged = "{old} + {new}")]
    requested: i64,
    /// Queued or nominated.
    #[table(merged = "{old} + {new}")]
    waiting: i64,
    #[table(merged = "{old} + {new}")]
    placed: i64,
    #[table(merged = "{old} + {new}")]
    running: i64,
    #[table(merged = "{old} + {new}")]
    stopping: i64,
    #[table(merged = "{old} + {new}")]
    finished: i64,
    /// Over for any cause but `finished` and `cancelled`.
    #[table(merged = "{old} + {new}")]
    failed: i64,
    #[table(merged = "{old} + {new}")]
    cancelled: i64,
    /// By quota.
    #[table(merged = "{old} + {new}")]
    denied: i64,
    #[table(merged = "least({old}, {new})")]
    first_requested_at: Millis,
    #[table(merged = "greatest({old}, {new})")]
    last_change_at: Millis,
}

/// How many allocations of a tenant stand where, and what it holds on nodes.
#[derive(Table)]
#[table(name = "tenant_tallies", key(tenant))]
#[table(with = "fillfactor = 70")]
pub struct TenantRecord<'a> {
    tenant: &'a Token,
    #[table(merged = "{old} + {new}")]
    requested: i64,
    /// Queued or nominated.
    #[table(merged = "{old} + {new}")]
    waiting: i64,
    #[table(merged = "{old} + {new}")]
    placed: i64,
    #[table(merged = "{old} + {new}")]
    running: i64,
    #[table(merged = "{old} + {new}")]
    stopping: i64,
    #[table(merged = "{old} + {new}")]
    cpu_milli: i64,
    #[table(merged = "{old} + {new}")]
    memory_bytes: i64,
    #[table(merged = "{old} + {new}")]
    gpu_milli: i64,
}

pub async fn write(tx: &mut PgConnection, tallies: &Tallies<'_>) -> Result<(), WarmError> {
    let job_sets = tallies.job_sets.iter();
    let job_sets = job_sets.map(|(&(tenant, job_set, queue), tally)| {
        let of = |standing| tally.counts[standing as usize];
        JobSetRecord {
            tenant,
            job_set,
            queue,
            requested: of(Standing::Requested),
            waiting: of(Standing::Waiting),
            placed: of(Standing::Placed),
            running: of(Standing::Running),
            stopping: of(Standing::Stopping),
            finished: of(Standing::Finished),
            failed: of(Standing::Failed),
            cancelled: of(Standing::Cancelled),
            denied: of(Standing::Denied),
            first_requested_at: tally.first_requested,
            last_change_at: tally.last_change,
        }
    });
    merge(tx, &job_sets.collect::<Vec<_>>()).await?;
    let tenants = tallies.tenants.iter().map(|(&tenant, tally)| {
        let of = |standing| tally.counts[standing as usize];
        let [cpu_milli, memory_bytes, gpu_milli] = tally.held;
        TenantRecord {
            tenant,
            requested: of(Standing::Requested),
            waiting: of(Standing::Waiting),
            placed: of(Standing::Placed),
            running: of(Standing::Running),
            stopping: of(Standing::Stopping),
            cpu_milli,
            memory_bytes,
            gpu_milli,
        }
    });
    merge(tx, &tenants.collect::<Vec<_>>()).await
}

/// A job set, of its allocations those in one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSet {
    pub tenant: Token,
    pub job_set: Token,
    pub queue: Token,
    /// In the order of [`Standing`].
    pub counts: [u64; Standing::COUNT],
    pub first_requested: Millis,
    pub last_change: Millis,
}

#[derive(FromRow)]
struct JobSetFound {
    tenant: String,
    job_set: String,
    queue: String,
    counts: Vec<i64>,
    first_requested_at: Moment,
    last_change_at: Moment,
}

/// Which job sets are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WantedJobSets {
    pub name_prefix: String,
    pub queue: Option<Token>,
    /// One of its allocations stands so; none of them: however they stand.
    pub standings: Vec<Standing>,
    pub limit: usize,
}

impl WantedJobSets {
    fn fit(&self, one: &JobSet) -> bool {
        let stands = |standing: &Standing| one.counts[*standing as usize] > 0;
        one.job_set.as_str().starts_with(&self.name_prefix)
            && self.queue.as_ref().is_none_or(|queue| *queue == one.queue)
            && (self.standings.is_empty() || self.standings.iter().any(stands))
    }

    fn is_picky(&self) -> bool {
        let any = Self {
            limit: self.limit,
            ..Self::default()
        };
        *self != any
    }
}

/// What the table is ordered by: tenant, job set and queue.
pub type JobSetKey = [String; 3];

/// The job sets behind `after` that are asked for, of a tenant or of all, and where to go on.
pub async fn job_sets(
    pool: &PgPool,
    tenant: Option<&Token>,
    wanted: &WantedJobSets,
    [after_tenant, after, after_queue]: &JobSetKey,
) -> Result<Listed<JobSet, JobSetKey>, WarmError> {
    // Apart, as one statement for both would not go by the key. Whose they are is never the cursor's matter.
    let (of, from) = match tenant {
        Some(tenant) => (
            "tenant = $1 AND (job_set, queue) > ($2, $3)",
            tenant.as_str(),
        ),
        None => (
            "(tenant, job_set, queue) > ($1, $2, $3)",
            after_tenant.as_str(),
        ),
    };
    let query = format!(
        "SELECT tenant, job_set, queue,
                ARRAY[requested, waiting, placed, running, stopping, finished, failed, cancelled, denied] AS counts,
                first_requested_at, last_change_at
         FROM job_sets WHERE {of} ORDER BY tenant, job_set, queue LIMIT $4"
    );
    let most = look::most(wanted.is_picky(), wanted.limit);
    let rows: Vec<JobSetFound> = sqlx::query_as(&query)
        .bind(from)
        .bind(after)
        .bind(after_queue)
        .bind(most as i64)
        .fetch_all(pool)
        .await?;
    let rows = rows.into_iter().map(|row| {
        let mut counts = [0; Standing::COUNT];
        for (count, found) in counts.iter_mut().zip(row.counts) {
            *count = unsigned("counts", found)?;
        }
        Ok(JobSet {
            tenant: Token::read(row.tenant, "tenant")?,
            job_set: Token::read(row.job_set, "job_set")?,
            queue: Token::read(row.queue, "queue")?,
            counts,
            first_requested: row.first_requested_at.into(),
            last_change: row.last_change_at.into(),
        })
    });
    let rows = rows.collect::<Result<Vec<_>, WarmError>>()?;
    let key = |row: &JobSet| [&row.tenant, &row.job_set, &row.queue].map(Token::to_string);
    let limit = (wanted.limit, most);
    Ok(look::page(rows, limit, |row| wanted.fit(row), key))
}

/// What a tenant has in the cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantUse {
    pub tenant: String,
    /// Of its settings, with the weight of its own queue; none: nobody has set any.
    pub settings: Option<(u64, u32)>,
    /// Queues that were set and that it may submit to.
    pub queues: Vec<String>,
    pub requested: u64,
    pub waiting: u64,
    pub placed: u64,
    pub running: u64,
    pub stopping: u64,
    /// On nodes, by kind.
    pub held: [u64; 3],
}

/// The first `limit` tenants behind `after`, of those with a name that begins so, and where to go on.
pub async fn tenants(
    pool: &PgPool,
    name_prefix: &str,
    after: &str,
    limit: usize,
) -> Result<Listed<TenantUse, String>, WarmError> {
    let most = look::most(false, limit);
    let records = sqlx::query!(
        r#"WITH may AS (
               SELECT tenant, array_agg(queue ORDER BY queue) AS queues
               FROM (SELECT unnest(tenants) AS tenant, queue FROM queues UNION SELECT queue, queue FROM queues) AS of_queue
               GROUP BY tenant)
           SELECT tenant AS "tenant!", s.version AS "version?", s.weight_milli AS "weight_milli?",
                  coalesce(may.queues, '{}') AS "queues!", coalesce(t.requested, 0) AS "requested!",
                  coalesce(t.waiting, 0) AS "waiting!", coalesce(t.placed, 0) AS "placed!",
                  coalesce(t.running, 0) AS "running!", coalesce(t.stopping, 0) AS "stopping!",
                  coalesce(t.cpu_milli, 0) AS "cpu_milli!", coalesce(t.memory_bytes, 0) AS "memory_bytes!",
                  coalesce(t.gpu_milli, 0) AS "gpu_milli!"
           FROM tenant_weights AS s FULL JOIN tenant_tallies AS t USING (tenant) LEFT JOIN may USING (tenant)
           WHERE tenant > $1 AND starts_with(tenant, $2) ORDER BY tenant LIMIT $3"#,
        after,
        name_prefix,
        most as i64,
    )
    .fetch_all(pool)
    .await?;
    let rows = records.into_iter().map(|record| {
        let settings = match (record.version, record.weight_milli) {
            (Some(version), Some(weight)) => Some((
                unsigned("version", version)?,
                u32::read(weight, "weight_milli")?,
            )),
            _ => None,
        };
        Ok(TenantUse {
            tenant: record.tenant,
            settings,
            queues: record.queues,
            requested: unsigned("requested", record.requested)?,
            waiting: unsigned("waiting", record.waiting)?,
            placed: unsigned("placed", record.placed)?,
            running: unsigned("running", record.running)?,
            stopping: unsigned("stopping", record.stopping)?,
            held: [
                unsigned("cpu_milli", record.cpu_milli)?,
                unsigned("memory_bytes", record.memory_bytes)?,
                unsigned("gpu_milli", record.gpu_milli)?,
            ],
        })
    });
    let rows = rows.collect::<Result<Vec<_>, WarmError>>()?;
    let key = |row: &TenantUse| row.tenant.clone();
    Ok(look::page(rows, (limit, most), |_| true, key))
}
