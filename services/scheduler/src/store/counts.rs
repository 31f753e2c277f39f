//! The tables `queue_counts` and `node_counts`: what each queue holds and has waiting, and what is on each node.

use crate::project::{Count, CountKey, CountRow, Counted};
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

/// How many allocations are on a node, and what they ask for together: what a look at all rows of live_allocations would come
/// to.
#[derive(Table)]
#[table(name = "node_counts", key(node, stopping))]
// Its rows change again and again, and none of their keys.
#[table(with = "fillfactor = 50")]
pub struct NodeRecord<'a> {
    node: &'a Token,
    /// They were told to stop, or are being preempted.
    stopping: bool,
    #[table(check = "allocations > 0")]
    allocations: u64,
    cpu_milli: u128,
    memory_bytes: u128,
    /// Milli-GPUs.
    gpu_milli: u128,
}

/// In the order of the columns.
fn amounts(count: &Count) -> [u128; 3] {
    [ResourceKind::Cpu, ResourceKind::Memory, ResourceKind::Gpu].map(|wanted| {
        let each = ResourceKind::ALL.into_iter().zip(count.amounts);
        let of_kind = each.filter(|(kind, _)| *kind == wanted);
        of_kind.map(|(_, amount)| amount).sum()
    })
}

impl<'a> Record<'a> {
    fn of((queue, what, count): (&'a Token, Counted, &Count)) -> Self {
        let (state, pending_group, waiting_reason) = key(what);
        let [cpu_milli, memory_bytes, gpu_milli] = amounts(count);
        Self {
            queue,
            state,
            pending_group,
            waiting_reason,
            allocations: count.allocations,
            cpu_milli,
            memory_bytes,
            gpu_milli,
        }
    }
}

impl<'a> NodeRecord<'a> {
    fn of((node, stopping, count): (&'a Token, bool, &Count)) -> Self {
        let [cpu_milli, memory_bytes, gpu_milli] = amounts(count);
        Self {
            node,
            stopping,
            allocations: count.allocations,
            cpu_milli,
            memory_bytes,
            gpu_milli,
        }
    }
}

fn key(what: Counted) -> (&'static str, PendingGroupNo, &'static str) {
    match what {
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
    let (mut queues, mut nodes) = (Vec::new(), Vec::new());
    for CountRow { key, count } in rows {
        match key {
            CountKey::Queue { queue, what } => queues.push((queue, *what, count)),
            CountKey::Node { node, stopping } => nodes.push((node, *stopping, count)),
        }
    }
    let (some, none): (Vec<_>, Vec<_>) =
        (queues.into_iter()).partition(|(_, _, it)| it.allocations > 0);
    merge(tx, &some.into_iter().map(Record::of).collect::<Vec<_>>()).await?;
    leave_queues(tx, &none).await?;
    let (some, none): (Vec<_>, Vec<_>) =
        (nodes.into_iter()).partition(|(_, _, it)| it.allocations > 0);
    merge(
        tx,
        &some.into_iter().map(NodeRecord::of).collect::<Vec<_>>(),
    )
    .await?;
    leave_nodes(tx, &none).await
}

async fn leave_queues(
    tx: &mut PgConnection,
    rows: &[(&Token, Counted, &Count)],
) -> Result<(), WarmError> {
    if rows.is_empty() {
        return Ok(());
    }
    let (mut queues, mut states) = (Vec::new(), Vec::new());
    let (mut groups, mut reasons) = (Vec::new(), Vec::new());
    for (queue, what, _) in rows {
        let (state, pending_group, waiting_reason) = key(*what);
        queues.push(queue.to_string());
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

async fn leave_nodes(
    tx: &mut PgConnection,
    rows: &[(&Token, bool, &Count)],
) -> Result<(), WarmError> {
    if rows.is_empty() {
        return Ok(());
    }
    let each = rows
        .iter()
        .map(|(node, stopping, _)| (node.to_string(), *stopping));
    let (nodes, stopping): (Vec<_>, Vec<_>) = each.unzip();
    sqlx::query!(
        "DELETE FROM node_counts AS c USING unnest($1::text[], $2::boolean[]) AS gone (node, stopping)
         WHERE c.node = gone.node AND c.stopping = gone.stopping",
        &nodes,
        &stopping,
    )
    .execute(tx)
    .await?;
    Ok(())
}
