//! Taking back what was asked for.

use crate::{Failure, stack};
use chassis::stack::Stack;
use clap::Args;
use client::Operation;

#[derive(Args)]
pub struct Cancel {
    #[arg(long)]
    tenant: String,
    allocation_id: String,
    /// Idempotency key; the same one gets the same outcome.
    #[arg(long, default_value_t = Operation::fresh_id())]
    operation_id: String,
}

impl Cancel {
    pub async fn run(self, stack: &Stack) -> Result<(), Failure> {
        let client = stack::tenant(stack, &self.tenant).await?;
        let cancelled = client.cancel(self.allocation_id, self.operation_id).await?;
        println!("{} cancelled", cancelled.allocation_id);
        Ok(())
    }
}
