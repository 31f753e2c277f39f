//! Taking back what was asked for, or asking for it with more or less urgency.

use crate::{
    Failure,
    context::{Context, Whose},
    names,
    print::say,
    sending::Sending,
};
use clap::Args;
use client::{Client, Of};
use vocab::human::count;

#[derive(Args)]
pub struct Cancel {
    #[command(flatten)]
    whose: Whose,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    sending: Sending,
}

#[derive(Args)]
#[command(
    override_usage = "apportion priority [OPTIONS] <PRIORITY> <ALLOCATION_ID>\n       apportion priority [OPTIONS] <PRIORITY> --job-set <JOB_SET>"
)]
pub struct Priority {
    #[command(flatten)]
    whose: Whose,
    /// Higher goes first.
    #[arg(allow_negative_numbers = true)]
    priority: i32,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    sending: Sending,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct Which {
    /// Its id or name, or the beginning of one.
    allocation_id: Option<String>,
    /// All of this job set that has not ended.
    #[arg(long)]
    job_set: Option<String>,
}

impl Which {
    /// One of the two is there, as the command line has it.
    async fn of(self, client: &Client) -> Result<Of, Failure> {
        Ok(match self.allocation_id {
            Some(name) => Of::Allocation(names::allocation(client, &name).await?),
            None => Of::JobSet(self.job_set.unwrap_or_default()),
        })
    }
}

impl Cancel {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = self
            .sending
            .tenant(context, self.whose.tenant.as_deref())
            .await?;
        match self.which.of(&client).await? {
            Of::Allocation(id) => {
                let cancelled = client.cancel(id, self.sending.id()).await?;
                say!("{} cancelled", cancelled.allocation_id);
            }
            Of::JobSet(name) => {
                let cancelled = client.cancel_job_set(name, self.sending.id()).await?;
                say!(
                    "{} cancelled",
                    count(cancelled.allocations.into(), "allocation")
                );
            }
        }
        Ok(())
    }
}

impl Priority {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = self
            .sending
            .tenant(context, self.whose.tenant.as_deref())
            .await?;
        let of = self.which.of(&client).await?;
        let set = client.set_priority(of, self.priority, self.sending.id());
        let changed = count(set.await?.allocations.into(), "allocation");
        say!("priority {} for {changed}", self.priority);
        Ok(())
    }
}
