//! The queues: what is set for each, what it holds, and what waits in it.

use super::{
    history,
    look::{self, Listed},
};
use crate::project::{Entry, Said};
use chassis::warm::{Moment, OutOfRange, WarmError, unsigned};
use sqlx::PgPool;
use std::collections::BTreeMap;
use table::Read;
use vocab::{Millis, QueueSettings, ResourceKind, Token, WaitingReason};

/// A queue that somebody has set, or that something is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueState {
    pub queue: String,
    pub settings: QueueSettings,
    /// Of the settings; none where nobody has set any.
    pub version: Option<u64>,
    /// On nodes, without what is being preempted; in the queue itself, not below it.
    pub held: Held,
    /// What waits in it for a place.
    pub waiting: Vec<Waits>,
    /// When the first of what waits was requested.
    pub oldest: Option<Millis>,
    /// What was last said when one of its pending groups was explained.
    pub share: Option<Share>,
}

/// So many wait for the same reason; none: they were not tried yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waits {
    pub reason: Option<WaitingReason>,
    pub allocations: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    pub allocations: u64,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub gpu_milli: u64,
}

/// A queue's part of the cell, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    pub share_ppm: u32,
    pub fair_share_ppm: u32,
    pub at: Millis,
}

/// The first `limit` queues behind `after` that a tenant may submit to, or of all, by name, and where to go on.
pub async fn queues(
    pool: &PgPool,
    tenant: Option<&Token>,
    after: &str,
    limit: usize,
) -> Result<Listed<QueueState, String>, WarmError> {
    let most = look::most(false, limit);
    let names = names(pool, tenant, after, most).await?;
    let mut waiting = waiting(pool, &names).await?;
    let records = sqlx::query!(
        r#"SELECT known.queue AS "queue!", s.parent AS "parent?", coalesce(s.weight_milli, w.weight_milli) AS "weight_milli?",
                  s.cpu_milli_limit AS "cpu_milli_limit?", s.memory_bytes_limit AS "memory_bytes_limit?",
                  s.gpu_milli_limit AS "gpu_milli_limit?", s.tenants AS "tenants?", s.queue_order AS "queue_order?",
                  s.placement AS "placement?", s.version AS "version?",
                  coalesce(held.allocations, 0) AS "allocations!",
                  least(coalesce(held.cpu_milli, 0), 9223372036854775807)::bigint AS "cpu_milli!",
                  least(coalesce(held.memory_bytes, 0), 9223372036854775807)::bigint AS "memory_bytes!",
                  least(coalesce(held.gpu_milli, 0), 9223372036854775807)::bigint AS "gpu_milli!",
                  oldest.requested_at AS "oldest?: Moment",
                  said.lsn AS "lsn?",
                  said.event_index AS "event_index?", said.at AS "at?: Moment", said.fact AS "fact?"
           FROM unnest($1::text[]) AS known (queue)
           LEFT JOIN queues AS s ON s.queue = known.queue
           LEFT JOIN tenant_weights AS w ON w.tenant = known.queue
           LEFT JOIN queue_counts AS held ON held.queue = known.queue AND held.state = 'held'
           LEFT JOIN LATERAL (SELECT requested_at FROM scheduling_queue AS q
                              WHERE q.queue = known.queue ORDER BY requested_at LIMIT 1) AS oldest ON true
           LEFT JOIN LATERAL (SELECT lsn, event_index, at, fact FROM explanations AS e
                              WHERE e.kind = 'pending_group_explained' AND e.queue = known.queue
                              ORDER BY lsn DESC, event_index DESC LIMIT 1) AS said ON true
           ORDER BY known.queue"#,
        &names,
    )
    .fetch_all(pool)
    .await?;
    let rows = records.into_iter().map(|record| {
        let limits = [
            (ResourceKind::Cpu, record.cpu_milli_limit),
            (ResourceKind::Memory, record.memory_bytes_limit),
            (ResourceKind::Gpu, record.gpu_milli_limit),
        ];
        let defaults = QueueSettings::default();
        let settings = QueueSettings {
            parent: Option::read(record.parent, "parent")?,
            weight_milli: match record.weight_milli {
                Some(weight) => weight
                    .try_into()
                    .map_err(|_| OutOfRange::new("weight_milli", weight))?,
                None => defaults.weight_milli,
            },
            limits: limits
                .into_iter()
                .filter_map(|(kind, limit)| {
                    Some(unsigned("limit", limit?).map(|limit| (kind, limit)))
                })
                .collect::<Result<_, _>>()?,
            tenants: Vec::read(record.tenants.unwrap_or_default(), "tenants")?,
            order: Option::read(record.queue_order, "queue_order")?.unwrap_or_default(),
            placement: Option::read(record.placement, "placement")?,
        };
        let said = match (record.lsn, record.event_index, record.at, record.fact) {
            (Some(lsn), Some(index), Some(at), Some(fact)) => {
                Some(history::entry((lsn, index), at, &fact)?)
            }
            _ => None,
        };
        let share = said.as_ref().and_then(share_of);
        let waits = waiting.remove(&record.queue).unwrap_or_default();
        Ok(QueueState {
            queue: record.queue,
            settings,
            version: record
                .version
                .map(|version| unsigned("version", version))
                .transpose()?,
            held: Held {
                allocations: unsigned("allocations", record.allocations)?,
                cpu_milli: unsigned("cpu_milli", record.cpu_milli)?,
                memory_bytes: unsigned("memory_bytes", record.memory_bytes)?,
                gpu_milli: unsigned("gpu_milli", record.gpu_milli)?,
            },
            waiting: waits,
            oldest: record.oldest.map(Millis::from),
            share,
        })
    });
    let rows = rows.collect::<Result<Vec<_>, WarmError>>()?;
    let key = |row: &QueueState| row.queue.clone();
    Ok(look::page(rows, (limit, most), |_| true, key))
}

/// The queues that a tenant may submit to, its own among them whether anybody has set it or not; or those that somebody has set
/// or that something is in.
async fn names(
    pool: &PgPool,
    tenant: Option<&Token>,
    after: &str,
    most: usize,
) -> Result<Vec<String>, WarmError> {
    let names = sqlx::query_scalar!(
        r#"SELECT queue AS "queue!" FROM (
               SELECT queue FROM queues WHERE $1::text IS NULL OR queue = $1 OR $1 = ANY (tenants)
               UNION SELECT queue FROM queue_counts WHERE $1::text IS NULL
               UNION SELECT $1 WHERE $1::text IS NOT NULL) AS known
           WHERE queue > $2 ORDER BY queue LIMIT $3"#,
        tenant.map(Token::as_str),
        after,
        most as i64,
    );
    Ok(names.fetch_all(pool).await?)
}

/// What waits, by queue and by what was last said of it: of its pending group, or else of itself.
async fn waiting(
    pool: &PgPool,
    names: &[String],
) -> Result<BTreeMap<String, Vec<Waits>>, WarmError> {
    let records = sqlx::query!(
        r#"SELECT w.queue AS "queue!", coalesce(said.reason, nullif(w.waiting_reason, '')) AS reason,
                  sum(w.allocations)::bigint AS "allocations!"
           FROM queue_counts AS w
           LEFT JOIN LATERAL (SELECT reason FROM explanations AS e
                              WHERE e.kind = 'pending_group_explained' AND e.pending_group = w.pending_group
                              ORDER BY lsn DESC, event_index DESC LIMIT 1) AS said ON true
           WHERE w.state = 'waiting' AND w.queue = ANY ($1)
           GROUP BY 1, 2 ORDER BY 1, 2 NULLS FIRST"#,
        names,
    )
    .fetch_all(pool)
    .await?;
    let mut waiting: BTreeMap<String, Vec<Waits>> = BTreeMap::new();
    for record in records {
        waiting.entry(record.queue).or_default().push(Waits {
            reason: Option::read(record.reason, "reason")?,
            allocations: unsigned("allocations", record.allocations)?,
        });
    }
    Ok(waiting)
}

fn share_of(entry: &Entry) -> Option<Share> {
    match entry.said() {
        Said::PendingGroupExplained(pending_group) => Some(Share {
            share_ppm: pending_group.share_ppm,
            fair_share_ppm: pending_group.fair_share_ppm,
            at: entry.at,
        }),
        _ => None,
    }
}
