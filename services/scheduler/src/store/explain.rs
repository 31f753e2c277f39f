//! Why an allocation stands where it stands, now or at an earlier position of the ledger.

use super::{
    BEGIN, SchedulerTables,
    allocations::{Allocation, find, find_all},
    history,
    queue::{PlaceInQueue, place},
};
use crate::project::{Entry, Said};
use chassis::warm::{WarmError, WarmState, bigint, unsigned};
use sqlx::{PgConnection, PgPool};
use std::collections::{BTreeMap, BTreeSet};
use table::Read;
use uuid::Uuid;
use vocab::{
    AllocationId, CellNo, EndCause, Lsn, Millis, PendingGroupNo, Refusal, Token, WaitingReason,
};

/// Entries of one allocation that are read, at the most.
const HISTORY_MAX: i64 = 200;

/// What is known of an allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// As it is now, whatever moment was asked for.
    pub allocation: Allocation,
    /// What was decided about it by then, the oldest first; of a long life the last part.
    pub history: Vec<Entry>,
    /// What was last said by then of the pending group that it waited in.
    pub pending_group: Option<Entry>,
    /// Only when no moment was asked for: where it stands is not kept.
    pub place: Option<PlaceInQueue>,
    /// How far the tables follow the ledger.
    pub through: Lsn,
}

/// One of the tenant's own; another tenant's is not found. Others who had a part in it are named where they are the
/// tenant's too.
pub async fn explain(
    pool: &PgPool,
    tenant: &Token,
    id: AllocationId,
    as_of: Option<Lsn>,
    now: Millis,
) -> Result<Option<Explanation>, WarmError> {
    let mut tx = pool.begin_with(BEGIN).await?;
    let Some(allocation) = find(&mut tx, tenant, id).await? else {
        return Ok(None);
    };
    let upto = as_of.unwrap_or(Lsn(u64::MAX));
    let mut history = history::of_allocation(&mut tx, id, upto, HISTORY_MAX).await?;
    let in_line = match as_of {
        None => allocation.pending_group,
        Some(_) => history.last().and_then(|entry| match entry.said() {
            Said::AllocationWaiting(fact) => fact.pending_group,
            _ => None,
        }),
    };
    let mut pending_group = match in_line {
        Some(pending_group) => history::of_pending_group(&mut *tx, pending_group, upto).await?,
        None => None,
    };
    let place = match as_of {
        None => place(&mut tx, tenant, id, now).await?,
        Some(_) => None,
    };
    let (high, _) = id.0.as_u64_pair();
    let entries = history.iter_mut().chain(&mut pending_group);
    name_only_own(&mut tx, tenant, CellNo(high), entries).await?;
    let through = position(&mut tx).await?;
    tx.commit().await?;
    Ok(Some(Explanation {
        allocation,
        history,
        pending_group,
        place,
        through,
    }))
}

/// Returns the tenant's own allocations that this one depends on and that have a row, each with the reason why it waits. None if they
/// are not why it waits or ended.
pub async fn dependencies(
    pool: &PgPool,
    allocation: &Allocation,
    tenant: &Token,
) -> Result<Vec<(Allocation, Option<WaitingReason>)>, WarmError> {
    let quota = allocation.quota.as_ref().map(Refusal::waiting_reason);
    let waits = quota.or(allocation.waiting_reason) == Some(WaitingReason::Dependency);
    if !waits && allocation.end_cause != Some(EndCause::DependencyFailed) {
        return Ok(Vec::new());
    }
    let (cell, _) = allocation.id.0.as_u64_pair();
    let on = allocation.spec.depends_on.iter();
    let ids: Vec<AllocationId> = on.map(|on| on.allocation.id(CellNo(cell))).collect();
    let found = find_all(&mut *pool.acquire().await?, tenant, &ids).await?;
    let reasons = wait_for(pool, &found).await?;
    Ok(found.into_iter().zip(reasons).collect())
}

/// Why one waits that waits for a place: what was last said of its pending group, or else of itself.
pub async fn waits_for(
    pool: &PgPool,
    allocation: &Allocation,
) -> Result<Option<WaitingReason>, WarmError> {
    if allocation.nominated_node.is_some() {
        return Ok(Some(WaitingReason::Nominated));
    }
    let said = match allocation.pending_group {
        Some(pending_group) => {
            history::of_pending_group(pool, pending_group, Lsn(u64::MAX)).await?
        }
        None => None,
    };
    let of_pending_group = said.and_then(|entry| match entry.said() {
        Said::PendingGroupExplained(pending_group) => Some(pending_group.reason),
        _ => None,
    });
    Ok(of_pending_group.or(allocation.waiting_reason))
}

/// The same of many, in their order.
pub async fn wait_for(
    pool: &PgPool,
    allocations: &[Allocation],
) -> Result<Vec<Option<WaitingReason>>, WarmError> {
    let groups = allocations.iter().filter_map(|one| one.pending_group);
    let groups: BTreeSet<PendingGroupNo> = groups.collect();
    let numbers = groups.into_iter().map(|it| bigint("pending_group", it.0));
    let numbers = numbers.collect::<Result<Vec<i64>, _>>()?;
    let said = sqlx::query!(
        r#"SELECT wanted AS "wanted!", said.reason
           FROM unnest($1::bigint[]) AS wanted
           JOIN LATERAL (SELECT reason FROM explanations AS e WHERE e.kind = 'pending_group_explained' AND e.pending_group = wanted
                         ORDER BY lsn DESC, event_index DESC LIMIT 1) AS said ON true"#,
        &numbers,
    );
    let mut of_group = BTreeMap::new();
    for row in said.fetch_all(pool).await? {
        let group = PendingGroupNo(unsigned("pending_group", row.wanted)?);
        of_group.insert(group, Option::read(row.reason, "reason")?);
    }
    let reason = |one: &Allocation| match (&one.nominated_node, one.pending_group) {
        (Some(_), _) => Some(WaitingReason::Nominated),
        (None, Some(group)) => (of_group.get(&group).copied().flatten()).or(one.waiting_reason),
        (None, None) => one.waiting_reason,
    };
    Ok(allocations.iter().map(reason).collect())
}

/// Takes the names of other tenants' allocations out.
async fn name_only_own(
    tx: &mut PgConnection,
    tenant: &Token,
    cell: CellNo,
    entries: impl Iterator<Item = &mut Entry>,
) -> Result<(), WarmError> {
    let others = entries.filter_map(|entry| Some((entry.names()?.id(cell).0, entry)));
    let (ids, others): (Vec<Uuid>, Vec<&mut Entry>) = others.unzip();
    if others.is_empty() {
        return Ok(());
    }
    let own = sqlx::query_scalar!(
        r#"SELECT allocation_id AS "allocation_id!" FROM allocations WHERE allocation_id = ANY ($1) AND tenant = $2"#,
        &ids,
        tenant.as_str(),
    )
    .fetch_all(tx)
    .await?;
    let own: BTreeSet<Uuid> = own.into_iter().collect();
    let others = ids.iter().zip(others);
    for (_, entry) in others.filter(|(id, _)| !own.contains(id)) {
        entry.hide();
    }
    Ok(())
}

async fn position(tx: &mut PgConnection) -> Result<Lsn, WarmError> {
    let lsn = sqlx::query_scalar!(
        "SELECT lsn FROM projection_position WHERE name = $1",
        SchedulerTables::NAME
    )
    .fetch_optional(tx)
    .await?;
    Ok(Lsn(unsigned("lsn", lsn.unwrap_or(0))?))
}
