//! One allocation, as its tenant may ask by the bus.

use crate::{
    Failure,
    context::{Context, Whose},
    list,
    look::look_again,
    names,
    print::{Fields, Output, Page, bound, moment_or_never, named, number, plain},
    submit::{how, why, words},
};
use clap::Args;
use client::{AllocationReply, AllocationView, Client, QueryError};
use serde_json::json;
use vocab::Rule;

#[derive(Args)]
pub struct Get {
    #[command(flatten)]
    whose: Whose,
    /// Its id or name, or the beginning of one.
    allocation_id: String,
    #[command(flatten)]
    output: Output,
}

impl Get {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.asker_of_one(self.whose.tenant.as_deref()).await?;
        let found = whole(&client, &self.allocation_id).await?;
        let view = found.view.ok_or(QueryError::Empty)?;
        let mut value = list::json(&view);
        value["operation_id"] = found.operation_id.as_str().into();
        let gpus = view.gpus.iter();
        let gpus = gpus.map(|share| json!({ "device": share.device, "milli": share.milli }));
        value["gpus"] = gpus.collect();
        value["lsn"] = view.lsn.into();
        let fields = fields(&view).add("operation_id", "operation", named(&found.operation_id));
        Page::new(value).fields(fields).print(self.output)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{tenant} has no allocation {id}")]
pub struct NoAllocation {
    tenant: String,
    id: String,
}

/// All that is told of one.
pub async fn whole(client: &Client, name: &str) -> Result<AllocationReply, Failure> {
    let id = names::allocation(client, name).await?;
    of_id(client, &id).await
}

/// Returns the allocation with this ID.
pub async fn of_id(client: &Client, id: &str) -> Result<AllocationReply, Failure> {
    let ask = async || client.allocation_whole(id, 0).await;
    of_allocation(client, id, ask).await
}

/// What the cell says of an allocation that its read model may not have yet.
pub async fn of_allocation<T>(
    client: &Client,
    id: &str,
    mut ask: impl AsyncFnMut() -> Result<T, QueryError>,
) -> Result<T, Failure> {
    let found = look_again::<_, Failure>(async || match ask().await {
        Err(error) if error.rule() == Some(Rule::AllocationNotFound) => Ok(None),
        found => Ok(Some(found?)),
    });
    found.await?.ok_or_else(|| {
        Failure::refused(NoAllocation {
            tenant: client.party().name().to_owned(),
            id: id.to_owned(),
        })
    })
}

fn fields(view: &AllocationView) -> Fields {
    let ended = view.ended.as_ref();
    let how = ended.map(|ended| how(ended.cause(), ended.exit));
    let waiting = view.waiting.as_ref().map(why);
    let gpus = view.gpus.iter();
    let gpus: Vec<_> = gpus
        .map(|share| format!("gpu{}:{}", share.device, share.milli))
        .collect();
    Fields::default()
        .add("allocation_id", "allocation", plain(&view.allocation_id))
        .add("name", "name", named(&view.name))
        .add("job_set", "job set", plain(&view.job_set))
        .add("state", "state", plain(words(view.state())))
        .add("waits", "why", named(&waiting.unwrap_or_default()))
        .add("quota_flags", "quota", list::quota(view))
        .add("ttl_ms", "ttl", bound(view.ttl_ms))
        .add("time_limit_ms", "time limit", bound(view.time_limit_ms))
        .add("end_cause", "ended by", named(&how.unwrap_or_default()))
        .add("node", "node", named(&view.node))
        .add("gpus", "gpus", named(&gpus.join(" ")))
        .add(
            "requested_ms",
            "requested",
            moment_or_never(view.requested_ms),
        )
        .add("placed_ms", "placed", moment_or_never(view.placed_ms))
        .add(
            "started_ms",
            "started",
            moment_or_never(list::started_ms(view)),
        )
        .add(
            "ended_ms",
            "ended",
            moment_or_never(ended.map_or(0, |ended| ended.ended_ms)),
        )
        .add("lsn", "as of lsn", number(view.lsn))
}
