//! Taking back what was asked for, or asking for it with more or less urgency.

use crate::{
    Failure, amount,
    context::{Context, Whose},
    names,
    print::{Fields, Output, Page, note, number, plain},
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
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
#[command(
    override_usage = "apportion priority [OPTIONS] <PRIORITY> <ALLOCATION_ID>\n       apportion priority [OPTIONS] <PRIORITY> --job-set <JOB_SET>"
)]
pub struct Priority {
    #[command(flatten)]
    whose: Whose,
    /// Higher goes first.
    #[arg(value_parser = amount::priority)]
    priority: i32,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    sending: Sending,
    #[command(flatten)]
    output: Output,
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
            Some(name) => Of::Allocation(names::to_change(client, &name).await?),
            None => Of::JobSet(self.job_set.unwrap_or_default()),
        })
    }
}

/// What was asked for of one allocation or a job set, and of how many it holds.
fn told(key: &'static str, name: &str, allocations: u64, text: String) -> Page {
    let fields = Fields::default().add(key, key, plain(name)).add(
        "allocations",
        "allocations",
        number(allocations),
    );
    Page::said(text, fields)
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
                Sending::seen(&client).await;
                let id = cancelled.allocation_id;
                let text = format!("{id} cancelled");
                told("allocation_id", &id, 1, text).print(self.output)
            }
            Of::JobSet(name) => {
                let id = self.sending.id();
                let cancelled = client.cancel_job_set(name.as_str(), id).await?.allocations;
                Sending::seen(&client).await;
                if cancelled == 0 {
                    note!("nothing of the job set {name} was left to cancel");
                }
                let text = format!("{} cancelled", count(cancelled.into(), "allocation"));
                told("job_set", &name, cancelled, text).print(self.output)
            }
        }
    }
}

impl Priority {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = self
            .sending
            .tenant(context, self.whose.tenant.as_deref())
            .await?;
        let of = self.which.of(&client).await?;
        let (key, name) = match &of {
            Of::Allocation(id) => ("allocation_id", id.clone()),
            Of::JobSet(name) => ("job_set", name.clone()),
        };
        let set = client.set_priority(of, self.priority, self.sending.id());
        let changed = set.await?.allocations;
        Sending::seen(&client).await;
        let all = count(changed.into(), "allocation");
        let text = format!("priority {} for {all}", self.priority);
        told(key, &name, changed, text).print(self.output)
    }
}
