//! The table `explanations` and the columns `facts` of allocations: what was decided about an allocation or a pending group, and why.

use crate::project::{Entries, Entry, Position, Said};
use chassis::warm::{Moment, OutOfRange, WarmError, bigint, unsigned};
use sqlx::{PgConnection, PgExecutor};
use table::Table;
use uuid::Uuid;
use vocab::{AllocationId, CellNo, Event, Lsn, Millis, PendingGroupNo, Token};
use wire::Message;

/// What was said longer ago than this is forgotten: 30 days of the ledger's clock. What stands with an allocation stays
/// as long as that.
pub const RETENTION_MS: i64 = 30 * 24 * 3_600_000;

/// A batch forgets up to this many times what it brings, so that forgetting catches up and is never long.
const FORGOTTEN_PER_ENTRY: i64 = 2;
/// Entries that count for that.
const FORGOTTEN_MAX: usize = 5000;

/// What was decided about an allocation or a pending group, and why, in the order of the ledger. The same entry comes again when a
/// batch does; it says the same then.
#[derive(Table)]
#[table(name = "explanations", key(lsn, event_index), fixed)]
#[table(check(
    of_an_allocation_or_of_a_pending_group,
    "(kind = 'pending_group_explained') = (allocation_id IS NULL) AND (kind = 'pending_group_explained') = (queue IS NOT NULL)"
))]
#[table(check(
    pending_group_of_what_waits,
    "CASE kind WHEN 'pending_group_explained' THEN pending_group IS NOT NULL WHEN 'allocation_waiting' THEN true ELSE pending_group IS NULL END"
))]
// What waits for quota, or is denied it, has the rule that was broken, which the contract names.
#[table(check(
    reason_fits_kind,
    "coalesce(CASE kind
           WHEN 'allocation_placed' THEN reason IS NULL
           WHEN 'allocation_nominated' THEN reason IS NULL
           WHEN 'quota_reclaimed' THEN reason IS NULL
           WHEN 'allocation_reprioritised' THEN reason IS NULL
           WHEN 'quota_waiting' THEN reason IS NOT NULL
           WHEN 'quota_denied' THEN reason IS NOT NULL
           WHEN 'allocation_preempted' THEN reason IN ('priority', 'fair_share', 'gang', 'reservation', 'quota', 'drain', 'taint')
           WHEN 'allocation_requeued' THEN reason IN ('finished', 'failed', 'cancelled', 'node_lost', 'rejected_by_node',
                                           'preempted', 'dependency_failed', 'expired', 'time_limit', 'evicted')
           WHEN 'allocation_ended' THEN reason IN ('finished', 'failed', 'cancelled', 'node_lost', 'rejected_by_node',
                                        'preempted', 'dependency_failed', 'expired', 'time_limit', 'evicted')
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
    of_pending_group,
    on "pending_group, lsn DESC, event_index DESC",
    where "kind = 'pending_group_explained'"
))]
#[table(index(
    of_queue,
    on "queue, lsn DESC, event_index DESC",
    where "kind = 'pending_group_explained'"
))]
pub struct Record<'a> {
    #[table(check = "lsn > 0")]
    lsn: Lsn,
    #[table(check = "event_index >= 0")]
    event_index: u32,
    at: Millis,
    #[table(
        check = "kind IN ('allocation_waiting', 'pending_group_explained', 'allocation_placed', 'allocation_nominated', 'allocation_preempted', 'allocation_requeued', 'allocation_ended', 'quota_waiting', 'quota_denied', 'quota_reclaimed', 'allocation_reprioritised')"
    )]
    kind: &'static str,
    allocation_id: Option<Uuid>,
    /// The pending group that is explained, or that the allocation waits in.
    #[table(check = "pending_group > 0")]
    pending_group: Option<PendingGroupNo>,
    /// The pending group's.
    queue: Option<&'a Token>,
    /// Why it waits, had to go, or ended.
    reason: Option<&'static str>,
    /// The fact, as the ledger has it: the message `Event` of the contract.
    fact: Vec<u8>,
}

impl<'a> Record<'a> {
    pub fn of(cell: CellNo, entry: &'a Entry) -> Self {
        let (pending_group, queue) = match entry.said() {
            Said::AllocationWaiting(fact) => (fact.pending_group, None),
            Said::PendingGroupExplained(fact) => (Some(fact.pending_group), Some(&fact.queue)),
            _ => (None, None),
        };
        Self {
            lsn: entry.position.lsn,
            event_index: entry.position.index,
            at: entry.at,
            kind: entry.kind(),
            allocation_id: entry.allocation().map(|no| no.id(cell).0),
            pending_group,
            queue,
            reason: entry.said().reason(),
            fact: entry.bytes(),
        }
    }
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
    db: &mut PgConnection,
    id: AllocationId,
    through: Lsn,
    limit: i64,
) -> Result<Vec<Entry>, WarmError> {
    let told = sqlx::query_scalar!(
        r#"SELECT facts AS "facts!" FROM live_allocations WHERE allocation_id = $1
           UNION ALL SELECT facts FROM ended_allocations WHERE allocation_id = $1"#,
        id.0
    )
    .fetch_optional(&mut *db)
    .await?;
    let told = Entries::read(&told.unwrap_or_default());
    let told = told.map_err(|error| OutOfRange::new("facts", error))?;
    let records = sqlx::query!(
        r#"SELECT lsn, event_index, at AS "at: Moment", fact FROM explanations
           WHERE allocation_id = $1 AND lsn <= $2
           ORDER BY lsn DESC, event_index DESC LIMIT $3"#,
        id.0,
        i64::try_from(through.0).unwrap_or(i64::MAX),
        limit,
    )
    .fetch_all(db)
    .await?;
    let records = records.into_iter();
    let entries = records.map(|one| entry((one.lsn, one.event_index), one.at, &one.fact));
    let mut entries: Vec<Entry> = entries.collect::<Result<_, _>>()?;
    entries.extend(
        told.into_iter()
            .filter(|entry| entry.position.lsn <= through),
    );
    entries.sort_unstable_by_key(|entry| entry.position);
    let older = entries
        .len()
        .saturating_sub(usize::try_from(limit).unwrap_or(0));
    entries.drain(..older);
    Ok(entries)
}

/// What was last said of a pending group up to a position.
pub async fn of_pending_group(
    db: impl PgExecutor<'_>,
    pending_group: PendingGroupNo,
    through: Lsn,
) -> Result<Option<Entry>, WarmError> {
    let record = sqlx::query!(
        r#"SELECT lsn, event_index, at AS "at: Moment", fact
           FROM explanations WHERE kind = 'pending_group_explained' AND pending_group = $1 AND lsn <= $2
           ORDER BY lsn DESC, event_index DESC LIMIT 1"#,
        bigint("pending_group", pending_group.0)?,
        i64::try_from(through.0).unwrap_or(i64::MAX),
    )
    .fetch_optional(db)
    .await?;
    let entry = record.map(|one| entry((one.lsn, one.event_index), one.at, &one.fact));
    Ok(entry.transpose()?)
}

pub fn entry((lsn, index): (i64, i32), at: Moment, fact: &[u8]) -> Result<Entry, OutOfRange> {
    let position = position(lsn, index)?;
    let fact = Event::decode(fact).map_err(|error| OutOfRange::new("fact", error))?;
    let kind = fact.kind().name();
    Entry::new(position, at.into(), fact).ok_or_else(|| OutOfRange::new("kind", kind))
}

pub fn position(lsn: i64, index: i32) -> Result<Position, OutOfRange> {
    Ok(Position {
        lsn: Lsn(unsigned("lsn", lsn)?),
        index: u32::try_from(index).map_err(|_| OutOfRange::new("event_index", index))?,
    })
}
