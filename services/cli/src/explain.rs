//! Why an allocation stands where it stands, now or at an earlier position of the ledger.

mod entry;
mod json;
mod quota;
mod reasons;
mod text;

pub use entry::sheet;
pub use json::{explanation, object, of_refusal};
pub use quota::short as quota_short;
pub use reasons::{keeps_off, waits};
pub use text::{lines, percent};

use crate::{
    Failure,
    context::{Context, Whose},
    get::of_allocation,
    names,
    print::{Output, Page},
};
use clap::Args;
use client::ExplainQuery;
use scheduler::query;
use vocab::Lsn;

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
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.asker_of_one(self.whose.tenant.as_deref()).await?;
        let tenant = context.tenant_name(self.whose.tenant.as_deref())?;
        let query = ExplainQuery {
            allocation_id: names::allocation(&client, &self.allocation_id).await?,
            as_of_lsn: self.at.unwrap_or(0),
            at_lsn: 0,
        };
        let id = &query.allocation_id;
        let reply = of_allocation(&client, id, async || client.explain(&query).await).await?;
        let found = query::explanation(&reply, &tenant)?;
        let at = self.at.map(Lsn);
        Page::new(explanation(&found, at))
            .lines(lines(&found, at, self.history))
            .rows(sheet(&found))
            .print(self.output)
    }
}
