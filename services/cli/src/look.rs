//! Who waits, and looking again.

use crate::{
    Failure,
    context::{Context, Whose},
    print::{Output, Page, Sheet, allocation, column, moment, named, number, plain, wide},
};
use clap::Args;
use client::{Client, QueueQuery};
use futures::{StreamExt, TryStreamExt, stream};
use schemas::v1;
use std::time::Duration;
use vocab::{Rule, WaitingReason};

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
    /// The tenant; without it, the context's.
    #[arg(value_name = "TENANT", conflicts_with = "tenant")]
    of: Option<String>,
    #[command(flatten)]
    whose: Whose,
    /// How many at the most.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    #[command(flatten)]
    output: Output,
}

/// Questions that are asked at once.
const AT_ONCE: usize = 8;

/// The name of an allocation that waits; empty if it has none or is no longer known.
async fn name(client: &Client, id: &str) -> Result<String, Failure> {
    match client.allocation(id, 0).await {
        Ok(view) => Ok(view.name),
        Err(error) if error.rule() == Some(Rule::AllocationNotFound) => Ok(String::new()),
        Err(error) => Err(error.into()),
    }
}

impl Queue {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let tenant = self.whose.tenant.or(self.of);
        let client = context.asker_of_one(tenant.as_deref()).await?;
        let query = QueueQuery {
            limit: self.limit,
            at_lsn: 0,
        };
        let found = client.queue(&query).await?;
        let (queue, lsn) = (found.waiting, found.lsn);
        let names = queue.iter().map(|one| name(&client, &one.allocation_id));
        let names: Vec<_> = stream::iter(names).buffered(AT_ONCE).try_collect().await?;
        let rows = queue.iter().zip(names).map(|(one, name)| {
            let reason = WaitingReason::from_number(one.reason);
            vec![
                number(one.position),
                allocation(&one.allocation_id),
                named(&name),
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
            column("name", "name"),
            wide("queue", "queue"),
            column("priority", "priority").rank(8),
            column("reason", "waits for"),
            column("since_ms", "since").rank(9),
        ];
        let all = columns.len();
        Page::of(
            Sheet::new(columns, all, rows.collect()),
            lsn,
            "nothing waits",
        )
        .print(self.output)
    }
}
