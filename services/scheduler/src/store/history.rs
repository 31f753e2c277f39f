//! The table `explanations` and the column `allocations.facts`: what was decided about an allocation or a line, and why.

use super::{
    detail::{Detail, detail, fact, number},
    names,
};
use crate::project::{Entry, Fact, Position, Subject};
use chassis::warm::{Moment, OutOfRange, WarmError, bigint, unsigned};
use serde::Serialize;
use sqlx::{PgConnection, PgExecutor, types::Json};
use vocab::{AllocationId, CellNo, LineNo, Lsn, Millis};

/// What was said longer ago than this is forgotten: 30 days of the ledger's clock. What stands with an allocation stays
/// as long as that.
pub const RETENTION_MS: i64 = 30 * 24 * 3_600_000;

/// A batch forgets up to this many times what it brings, so that forgetting catches up and is never long.
const FORGOTTEN_PER_ENTRY: i64 = 2;
/// Entries that count for that.
const FORGOTTEN_MAX: usize = 5000;

/// The same entry comes again when a batch does; it says the same then.
pub async fn insert(
    tx: &mut PgConnection,
    cell: CellNo,
    entries: &[&Entry],
) -> Result<(), WarmError> {
    let count = entries.len();
    let mut lsns = Vec::with_capacity(count);
    let mut indexes = Vec::with_capacity(count);
    let mut times = Vec::with_capacity(count);
    let mut kinds = Vec::with_capacity(count);
    let mut allocations = Vec::with_capacity(count);
    let mut lines = Vec::with_capacity(count);
    let mut queues = Vec::with_capacity(count);
    let mut reasons = Vec::with_capacity(count);
    let mut details = Vec::with_capacity(count);
    for entry in entries {
        let (allocation, line, queue) = match &entry.subject {
            Subject::Allocation(no) => {
                let line = match entry.fact {
                    Fact::Waiting { line, .. } => line,
                    _ => None,
                };
                (Some(no.id(cell).0), line, None)
            }
            Subject::Line { line, queue } => (None, Some(*line), Some(queue.as_str())),
        };
        lsns.push(bigint("lsn", entry.position.lsn.0)?);
        indexes.push(index(entry.position)?);
        times.push(Moment::try_from(entry.at)?);
        kinds.push(entry.fact.name());
        allocations.push(allocation);
        lines.push(line.map(|LineNo(no)| bigint("line", no)).transpose()?);
        queues.push(queue);
        reasons.push(entry.fact.reason());
        details.push(Json(detail(cell, &entry.fact)));
    }
    sqlx::query!(
        "INSERT INTO explanations (lsn, event_index, at, kind, allocation_id, line, queue, reason, detail)
         SELECT * FROM UNNEST($1::bigint[], $2::integer[], $3::timestamptz[], $4::text[], $5::uuid[], $6::bigint[],
                              $7::text[], $8::text[], $9::jsonb[])
         ON CONFLICT (lsn, event_index) DO NOTHING",
        &lsns,
        &indexes,
        &times as _,
        &kinds as _,
        &allocations as _,
        &lines as _,
        &queues as _,
        &reasons as _,
        &details as _,
    )
    .execute(tx)
    .await?;
    Ok(())
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

pub fn index(position: Position) -> Result<i32, OutOfRange> {
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
