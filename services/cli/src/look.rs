//! Who waits, and looking again.

use crate::{
    Failure,
    context::Context,
    print::{Output, Page, Sheet, column, moment, number, plain, wide},
};
use clap::Args;
use client::QueueQuery;
use schemas::v1;
use std::time::Duration;
use vocab::WaitingReason;

/// How often and how far apart the read model is looked at before something counts as not there.
const LOOKS: u32 = 10;
pub const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

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
        let client = context.asker_of_one(self.tenant.as_deref()).await?;
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
