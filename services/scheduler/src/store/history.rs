//! The table `explanations` and the column `allocations.facts`: what was decided about an allocation or a line, and why.

use super::{
    detail::{Detail, detail, fact, number},
    names,
};
use crate::project::{Entry, Fact, Position, Subject};
use chassis::warm::{Moment, OutOfRange, WarmError, bigint, unsigned};
use serde::Serialize;
use sqlx::{PgConnection, PgExecutor, types::Json};
use table::Table;
use uuid::Uuid;
use vocab::{AllocationId, CellNo, LineNo, Lsn, Millis, Token};

/// What was said longer ago than this is forgotten: 30 days of the ledger's clock. What stands with an allocation stays
/// as long as that.
pub const RETENTION_MS: i64 = 30 * 24 * 3_600_000;

/// A batch forgets up to this many times what it brings, so that forgetting catches up and is never long.
const FORGOTTEN_PER_ENTRY: i64 = 2;
/// Entries that count for that.
const FORGOTTEN_MAX: usize = 5000;

/// What was decided about an allocation or a line, and why, in the order of the ledger. The same entry comes again when a
/// batch does; it says the same then.
#[derive(Table)]
#[table(name = "explanations", key(lsn, event_index), fixed)]
#[table(check(
    of_an_allocation_or_of_a_line,
    "(kind = 'line') = (allocation_id IS NULL) AND (kind = 'line') = (queue IS NOT NULL)"
))]
#[table(check(
    line_of_what_waits,
    "CASE kind WHEN 'line' THEN line IS NOT NULL WHEN 'waiting' THEN true ELSE line IS NULL END"
))]
// What waits for quota, or is denied it, has the rule that was broken, which the contract names.
#[table(check(
    reason_fits_kind,
    "coalesce(CASE kind
           WHEN 'placed' THEN reason IS NULL
           WHEN 'nominated' THEN reason IS NULL
           WHEN 'quota_reclaimed' THEN reason IS NULL
           WHEN 'reprioritised' THEN reason IS NULL
           WHEN 'quota_waiting' THEN reason IS NOT NULL
           WHEN 'quota_denied' THEN reason IS NOT NULL
           WHEN 'preempted' THEN reason IN ('priority', 'fair_share', 'gang', 'reservation', 'quota')
           WHEN 'requeued' THEN reason IN ('finished', 'failed', 'cancelled', 'node_lost', 'rejected_by_node',
                                           'preempted', 'dependency_failed')
           WHEN 'ended' THEN reason IN ('finished', 'failed', 'cancelled', 'node_lost', 'rejected_by_node',
                                        'preempted', 'dependency_failed')
           ELSE reason IN ('no_node_ready', 'no_node_of_model', 'larger_than_any_node', 'no_room_now',
                           'no_node_matches', 'fair_share', 'queue_limit', 'backoff', 'dependency',
                           'gang_incomplete', 'gang_no_room', 'over_limit', 'no_uniform_label', 'nominated',
                           'quota', 'preemption_limit') END, false)"
))]
#[table(index(
    of_allocation,
    on "allocation_id, lsn DESC, event_index DESC",
    where "allocation_id IS NOT NULL"
))]
#[table(index(
    of_line,
    on "line, lsn DESC, event_index DESC",
    where "kind = 'line'"
))]
#[table(index(
    of_queue,
    on "queue, lsn DESC, event_index DESC",
    where "kind = 'line'"
))]
pub struct Record<'a> {
    #[table(check = "lsn > 0")]
    lsn: Lsn,
    #[table(check = "event_index >= 0")]
    event_index: u32,
    at: Millis,
    #[table(
        check = "kind IN ('waiting', 'line', 'placed', 'nominated', 'preempted', 'requeued', 'ended', 'quota_waiting', 'quota_denied', 'quota_reclaimed', 'reprioritised')"
    )]
    kind: &'static str,
    allocation_id: Option<Uuid>,
    /// The line that is explained, or that the allocation waits in.
    #[table(check = "line > 0")]
    line: Option<LineNo>,
    /// The line's.
    queue: Option<&'a Token>,
    /// Why it waits, had to go, or ended.
    reason: Option<&'static str>,
    /// Numbers and names of that kind of fact.
    #[table(check = "jsonb_typeof(detail) = 'object'")]
    detail: Json<Detail>,
}

impl<'a> Record<'a> {
    pub fn of(cell: CellNo, entry: &'a Entry) -> Self {
        let (allocation_id, line, queue) = match &entry.subject {
            Subject::Allocation(no) => {
                let line = match entry.fact {
                    Fact::Waiting { line, .. } => line,
                    _ => None,
                };
                (Some(no.id(cell).0), line, None)
            }
            Subject::Line { line, queue } => (None, Some(*line), Some(queue)),
        };
        Self {
            lsn: entry.position.lsn,
            event_index: entry.position.index,
            at: entry.at,
            kind: entry.fact.name(),
            allocation_id,
            line,
            queue,
            reason: entry.fact.reason(),
            detail: Json(detail(cell, &entry.fact)),
        }
    }
}

/// An element of `allocations.facts`. The query of [`of_allocation`] knows the names, too.
#[derive(Debug, Serialize)]
pub struct Told<'a> {
    lsn: u64,
    event_index: u32,
    at_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    detail: Detail,
}

impl<'a> Told<'a> {
    pub fn all(cell: CellNo, entries: &'a [Entry]) -> Result<Vec<Self>, OutOfRange> {
        let one = |entry: &'a Entry| {
            // Both are read back as the table's types.
            bigint("lsn", entry.position.lsn.0)?;
            index(entry.position)?;
            Ok(Self {
                lsn: entry.position.lsn.0,
                event_index: entry.position.index,
                at_ms: entry.at.0,
                reason: entry.fact.reason(),
                detail: detail(cell, &entry.fact),
            })
        };
        entries.iter().map(one).collect()
    }
}

fn index(position: Position) -> Result<i32, OutOfRange> {
    i32::try_from(position.index).map_err(|_| OutOfRange::new("event_index", position.index))
}

/// Forgets what is too old beside `entries`, of which not all need be rows. Costs one look at the oldest row as long as
/// nothing is.
pub async fn forget(tx: &mut PgConnection, entries: &[&Entry]) -> Result<(), WarmError> {
    let Some(newest) = entries.iter().map(|entry| entry.at).max() else {
        return Ok(());
    };
    let before = Millis(newest.0.saturating_sub(RETENTION_MS));
    // By the rows' places, so that nothing but the oldest rows is ever looked at.
    sqlx::query!(
        "DELETE FROM explanations
         WHERE (SELECT at FROM explanations ORDER BY lsn, event_index LIMIT 1) < $1
               AND ctid = ANY (ARRAY(SELECT ctid FROM explanations ORDER BY lsn, event_index LIMIT $2))
               AND at < $1",
        Moment::try_from(before)? as _,
        FORGOTTEN_PER_ENTRY.saturating_mul(entries.len().min(FORGOTTEN_MAX) as i64),
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// The last `limit` entries of an allocation up to a position, the oldest first.
pub async fn of_allocation(
    db: impl PgExecutor<'_>,
    id: AllocationId,
    through: Lsn,
    limit: i64,
) -> Result<Vec<Entry>, WarmError> {
    let records = sqlx::query!(
        r#"SELECT lsn AS "lsn!", event_index AS "event_index!", at AS "at: Moment", at_ms, line, reason,
                  detail AS "detail!: Json<Detail>"
           FROM (SELECT lsn, event_index, at, NULL::bigint AS at_ms, line, reason, detail FROM explanations
                 WHERE allocation_id = $1
                 UNION ALL
                 SELECT (fact -> 'lsn')::bigint, (fact -> 'event_index')::integer, NULL, (fact -> 'at_ms')::bigint,
                        NULL, fact ->> 'reason', fact -> 'detail'
                 FROM allocations, jsonb_array_elements(facts) AS fact WHERE allocation_id = $1) AS said
           WHERE lsn <= $2
           ORDER BY lsn DESC, event_index DESC LIMIT $3"#,
        id.0,
        i64::try_from(through.0).unwrap_or(i64::MAX),
        limit,
    )
    .fetch_all(db)
    .await?;
    let entries = records.into_iter().rev().map(|record| {
        let line = record.line.map(|line| unsigned("line", line)).transpose()?;
        Ok(Entry {
            position: position(record.lsn, record.event_index)?,
            // One of the two, by the query.
            at: record
                .at
                .map_or(Millis(record.at_ms.unwrap_or(0)), Millis::from),
            subject: Subject::Allocation(number(id)),
            fact: fact(record.detail.0, record.reason.as_deref(), line.map(LineNo))?,
        })
    });
    entries.collect()
}

/// What was last said of a line up to a position.
pub async fn of_line(
    db: impl PgExecutor<'_>,
    line: LineNo,
    through: Lsn,
) -> Result<Option<Entry>, WarmError> {
    let record = sqlx::query!(
        r#"SELECT lsn, event_index, at AS "at: Moment", queue AS "queue!", reason, detail AS "detail: Json<Detail>"
           FROM explanations WHERE kind = 'line' AND line = $1 AND lsn <= $2
           ORDER BY lsn DESC, event_index DESC LIMIT 1"#,
        bigint("line", line.0)?,
        i64::try_from(through.0).unwrap_or(i64::MAX),
    )
    .fetch_optional(db)
    .await?;
    let Some(record) = record else {
        return Ok(None);
    };
    let queue = names::token("queue", &record.queue)?;
    Ok(Some(Entry {
        position: position(record.lsn, record.event_index)?,
        at: record.at.into(),
        subject: Subject::Line { line, queue },
        fact: fact(record.detail.0, record.reason.as_deref(), Some(line))?,
    }))
}

pub fn position(lsn: i64, index: i32) -> Result<Position, OutOfRange> {
    Ok(Position {
        lsn: Lsn(unsigned("lsn", lsn)?),
        index: u32::try_from(index).map_err(|_| OutOfRange::new("event_index", index))?,
    })
}
