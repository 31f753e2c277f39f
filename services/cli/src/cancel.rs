//! Taking back what was asked for, or asking for it with more or less urgency.

use crate::{
    Failure,
    context::{Context, Whose},
    print::say,
};
use clap::Args;
use client::{Of, Operation};

#[derive(Args)]
pub struct Cancel {
    #[command(flatten)]
    whose: Whose,
    #[command(flatten)]
    which: Which,
    /// Idempotency key; the same one gets the same outcome.
    #[arg(long, default_value_t = Operation::fresh_id())]
    operation_id: String,
}

#[derive(Args)]
pub struct Priority {
    #[command(flatten)]
    whose: Whose,
    /// Higher goes first.
    #[arg(allow_negative_numbers = true)]
    priority: i32,
    #[command(flatten)]
    which: Which,
    /// Idempotency key; the same one gets the same outcome.
    #[arg(long, default_value_t = Operation::fresh_id())]
    operation_id: String,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct Which {
    allocation_id: Option<String>,
    /// All of this job set that has not ended.
    #[arg(long)]
    job_set: Option<String>,
}

impl Which {
    /// One of the two is there, as the command line has it.
    fn of(self) -> Of {
        match self.allocation_id {
            Some(id) => Of::Allocation(id),
            None => Of::JobSet(self.job_set.unwrap_or_default()),
        }
    }
}

impl Cancel {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.tenant(self.whose.tenant.as_deref()).await?;
        match self.which.of() {
            Of::Allocation(id) => {
                let cancelled = client.cancel(id, self.operation_id).await?;
                say!("{} cancelled", cancelled.allocation_id);
            }
            Of::JobSet(name) => {
                let cancelled = client.cancel_job_set(name, self.operation_id).await?;
                say!("{} allocations cancelled", cancelled.allocations);
            }
        }
        Ok(())
    }
}

impl Priority {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.tenant(self.whose.tenant.as_deref()).await?;
        let set = client.set_priority(self.which.of(), self.priority, self.operation_id);
        say!(
            "{} allocations have priority {}",
            set.await?.allocations,
            self.priority
        );
        Ok(())
    }
}
