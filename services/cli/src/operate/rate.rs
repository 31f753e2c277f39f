//! What resources cost.

use super::{Expected, told};
use crate::{Failure, stack};
use chassis::stack::Stack;
use clap::Args;
use client::Operation;
use schemas::v1;

#[derive(Args)]
pub struct Rate {
    /// cpu, memory, gpu or gpu:<model>.
    resource: String,
    /// Millionths of the currency per core-hour, GiB-hour or GPU-hour.
    micro_per_unit_hour: i64,
    /// A full hour, Unix milliseconds; 0 only for a resource's first rate.
    #[arg(long, default_value_t = 0)]
    from_ms: i64,
    #[command(flatten)]
    expected: Expected,
}

impl Rate {
    pub async fn run(self, stack: &Stack) -> Result<(), Failure> {
        let title = format!("rate {}", self.resource);
        let change = v1::SetRate {
            resource: self.resource,
            micro_per_unit_hour: self.micro_per_unit_hour,
            effective_from_ms: self.from_ms,
            expected_version: self.expected.expected_version,
        };
        let operator = stack::operator(stack).await?;
        let applied = operator.set_rate(change, Operation::fresh_id()).await?;
        told(&title, applied);
        Ok(())
    }
}
