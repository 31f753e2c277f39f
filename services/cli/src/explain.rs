//! Why an allocation stands where it stands, now or at an earlier position of the ledger.

mod entry;
mod json;
mod quota;
mod reasons;
mod text;

pub use json::object;
pub use text::percent;

use crate::{
    Failure,
    context::{Context, Whose},
    get::NoAllocation,
    look::look_again,
    names,
    print::{Output, Page},
};
use clap::Args;
use scheduler::store;
use vocab::{AllocationId, Lsn};

#[derive(Args)]
pub struct Explain {
    #[command(flatten)]
    whose: Whose,
    /// Its id or name, or the beginning of one.
    allocation_id: String,
    /// As of this position of the ledger, and not as of now.
    #[arg(long, value_name = "LSN")]
    at: Option<u64>,
    /// Show all that was decided about it.
    #[arg(long)]
    history: bool,
    #[command(flatten)]
    output: Output,
}

impl Explain {
    async fn id(&self, context: &Context) -> Result<AllocationId, Failure> {
        if let Some(id) = AllocationId::parse(&self.allocation_id) {
            return Ok(id);
        }
        let client = context.tenant(self.whose.tenant.as_deref()).await?;
        names::id(&client, &self.allocation_id).await
    }

    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let pool = context.warm_state("scheduler").await?;
        let tenant = context.tenant_name(self.whose.tenant.as_deref())?;
        let id = self.id(context).await?;
        let at = self.at.map(Lsn);
        let found = look_again(async || store::explain(&pool, &tenant, id, at).await)
            .await?
            .ok_or_else(|| {
                let (tenant, id) = (tenant.to_string(), id.to_string());
                Failure::refused(NoAllocation { tenant, id })
            })?;
        if let Some(at) = at
            && at > found.through
        {
            let through = found.through.0;
            return Err(format!("the read model is at lsn {through}, before {}", at.0).into());
        }
        Page::new(json::explanation(&found, at))
            .lines(text::lines(&found, at, self.history))
            .rows(entry::sheet(&found))
            .print(self.output)
    }
}
