//! What is read of warm state: who waits, and the nodes.

use crate::{
    Failure,
    context::Context,
    operate::{conditions, standing},
    print::{Output, Page, Sheet, column, moment, named, number, plain, quantity, wide},
};
use clap::Args;
use client::QueueQuery;
use scheduler::store::NodeUse;
use schemas::v1;
use std::time::Duration;
use vocab::{ResourceKind, Token, WaitingReason};

/// How often and how far apart the read model is looked at before something counts as not there.
const LOOKS: u32 = 10;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// The read model follows the ledger at a small distance: what was asked for a moment ago is looked for again.
pub async fn look_again<T, E: Into<Failure>>(
    mut look: impl AsyncFnMut() -> Result<Option<T>, E>,
) -> Result<Option<T>, Failure> {
    for _ in 0..LOOKS {
        if let Some(found) = look().await.map_err(Into::into)? {
            return Ok(Some(found));
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
    Ok(None)
}

/// A node and the shares of its devices.
pub fn place(node: &str, gpus: &[v1::GpuShare]) -> String {
    let shares = gpus
        .iter()
        .map(|share| format!(" gpu{}:{}", share.device, share.milli));
    format!("on {node}{}", shares.collect::<String>())
}

#[derive(Args)]
pub struct Queue {
    /// Without it, the context's.
    tenant: Option<String>,
    /// How many at the most.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    #[command(flatten)]
    output: Output,
}

impl Queue {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.tenant(self.tenant.as_deref()).await?;
        let query = QueueQuery {
            limit: self.limit,
            at_lsn: 0,
        };
        let queue = client.queue(&query).await?.waiting;
        let rows = queue.iter().map(|one| {
            let reason = WaitingReason::from_number(one.reason);
            vec![
                number(one.position),
                plain(&one.allocation_id),
                plain(&one.queue),
                number(one.priority),
                plain(reason.map_or("not tried yet".to_owned(), |reason| {
                    reason.name().replace('_', " ")
                })),
                moment(one.since_ms),
            ]
        });
        let columns = vec![
            column("position", "place"),
            column("allocation_id", "allocation"),
            wide("queue", "queue"),
            column("priority", "priority"),
            column("reason", "waits for"),
            column("since_ms", "since"),
        ];
        let all = columns.len();
        Page::of(Sheet::new(columns, all, rows.collect()), "nothing waits").print(self.output)
    }
}

#[derive(Args)]
pub struct Nodes {
    #[command(flatten)]
    output: Output,
}

impl Nodes {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let pool = context.warm_state("node_heartbeat").await?;
        let nodes = node_heartbeat::store::nodes(&pool).await?;
        let conditions = conditions(&pool).await?;
        let pool = context.warm_state("scheduler").await?;
        let used = scheduler::store::nodes(&pool).await?;
        let mut ready = 0;
        let rows = nodes.iter().map(|row| {
            ready += usize::from(row.state.name() == "ready");
            let capacity = &row.capacity;
            let of_none = NodeUse::default();
            let used = used.get(row.node.as_str()).unwrap_or(&of_none);
            let of_node = conditions.get(&row.node).map_or(&[][..], Vec::as_slice);
            let model = capacity.gpu_model.as_ref().map_or("", Token::as_str);
            vec![
                plain(&row.node),
                plain(row.state.name()),
                named(&standing(used, of_node)),
                named(model),
                moment(row.since.0),
                quantity(ResourceKind::Cpu, capacity.cpu_milli),
                quantity(ResourceKind::Cpu, used.cpu_milli),
                quantity(ResourceKind::Memory, capacity.memory_bytes),
                quantity(ResourceKind::Memory, used.memory_bytes),
                number(capacity.gpus),
                quantity(ResourceKind::Gpu, used.gpu_milli),
                number(used.allocations),
            ]
        });
        let rows = rows.collect();
        let columns = vec![
            column("node", "node"),
            column("state", "state"),
            column("standing", "standing"),
            column("gpu_model", "gpu model"),
            wide("since_ms", "since"),
            column("cpu_milli", "cpu"),
            wide("used_cpu_milli", "used"),
            column("memory_bytes", "memory"),
            wide("used_memory_bytes", "used"),
            column("gpus", "gpus"),
            wide("used_gpu_milli", "used"),
            column("allocations", "allocations"),
        ];
        Page::of(Sheet::new(columns, 5, rows), "no nodes")
            .text(format!("{} nodes, {ready} ready", nodes.len()))
            .print(self.output)
    }
}
