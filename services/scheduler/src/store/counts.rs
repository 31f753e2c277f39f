//! The table `queue_counts`: what each queue holds and has waiting.

use crate::project::{CountKey, CountRow, Counted};
use chassis::warm::{WarmError, bigint, merge};
use sqlx::PgConnection;
use table::Table;
use vocab::{PendingGroupNo, ResourceKind, Token};

/// How many allocations a queue holds and has waiting, and what they ask for together: what a look at all rows of
/// live_allocations and scheduling_queue would come to.
#[derive(Table)]
#[table(
    name = "queue_counts",
    key(queue, state, pending_group, waiting_reason)
)]
#[table(check(
    waits_in_a_group_for_a_reason,
    "state = 'waiting' OR (pending_group = 0 AND waiting_reason = '')"
))]
// Its rows change again and again, and none of their keys.
#[table(with = "fillfactor = 50")]
pub struct Record<'a> {
    queue: &'a Token,
    /// Held: on a node, and not being preempted. Waiting: in scheduling_queue.
    #[table(check = "state IN ('held', 'waiting')")]
    state: &'static str,
    /// 0: none.
    #[table(check = "pending_group >= 0")]
    pending_group: PendingGroupNo,
    /// As scheduling_queue has it; empty where that has none.
    waiting_reason: &'static str,
    #[table(check = "allocations > 0")]
    allocations: u64,
    cpu_milli: u128,
    memory_bytes: u128,
    /// Milli-GPUs.
    gpu_milli: u128,
}

impl<'a> Record<'a> {
    fn of(row: &'a CountRow) -> Self {
        let (state, pending_group, waiting_reason) = key(&row.key);
        let amount = |wanted| {
            let both = ResourceKind::ALL.into_iter().zip(row.count.amounts);
            let of_kind = both.filter(|(kind, _)| *kind == wanted);
            of_kind.map(|(_, amount)| amount).sum()
        };
        Self {
            queue: &row.key.queue,
            state,
            pending_group,
            waiting_reason,
            allocations: row.count.allocations,
            cpu_milli: amount(ResourceKind::Cpu),
            memory_bytes: amount(ResourceKind::Memory),
            gpu_milli: amount(ResourceKind::Gpu),
        }
    }
}

fn key(key: &CountKey) -> (&'static str, PendingGroupNo, &'static str) {
    match key.what {
        Counted::Held => ("held", PendingGroupNo(0), ""),
        Counted::Waiting {
            pending_group,
            reason,
        } => (
            "waiting",
            pending_group.unwrap_or(PendingGroupNo(0)),
            reason.map_or("", |reason| reason.name()),
        ),
    }
}

/// Each key once.
pub async fn write<'a>(
    tx: &mut PgConnection,
    rows: impl Iterator<Item = &'a CountRow>,
) -> Result<(), WarmError> {
    let (some, none): (Vec<&CountRow>, Vec<_>) = rows.partition(|row| row.count.allocations > 0);
    let some = some.into_iter().map(Record::of);
    merge(tx, &some.collect::<Vec<_>>()).await?;
    leave(tx, &none).await
}

async fn leave(tx: &mut PgConnection, rows: &[&CountRow]) -> Result<(), WarmError> {
    if rows.is_empty() {
        return Ok(());
    }
    let (mut queues, mut states) = (Vec::new(), Vec::new());
    let (mut groups, mut reasons) = (Vec::new(), Vec::new());
    for row in rows {
        let (state, pending_group, waiting_reason) = key(&row.key);
        queues.push(row.key.queue.to_string());
        states.push(state.to_owned());
        groups.push(bigint("pending_group", pending_group.0)?);
        reasons.push(waiting_reason.to_owned());
    }
    sqlx::query!(
        "DELETE FROM queue_counts AS c
         USING unnest($1::text[], $2::text[], $3::bigint[], $4::text[]) AS gone (queue, state, pending_group, waiting_reason)
         WHERE c.queue = gone.queue AND c.state = gone.state AND c.pending_group = gone.pending_group
             AND c.waiting_reason = gone.waiting_reason",
        &queues,
        &states,
        &groups,
        &reasons,
    )
    .execute(tx)
    .await?;
    Ok(())
}
