//! Tenants.

use super::{Expected, named, told};
use crate::{Failure, amount, context::Context};
use clap::{ArgAction, Args};
use schemas::v1;
use vocab::{OnExceed, ReclaimFrom};

/// Sets all of a tenant: what is not given goes back to its default.
#[derive(Args)]
pub struct Tenant {
    /// The tenant's name.
    tenant: String,
    /// Tenants of one cohort lend each other what they do not use.
    #[arg(long, default_value = "")]
    cohort: String,
    /// Weight of the tenant's own queue (3, or thousandths as 500m); without it 1.
    #[arg(long, value_parser = amount::thousandths)]
    weight: Option<i64>,
    /// Whether the lender may take back what it borrows; if not, it cannot borrow. Without it true.
    #[arg(long, action = ArgAction::Set, value_name = "true|false")]
    preemptible: Option<bool>,
    /// What becomes of a request beyond a limit: refuse or wait.
    #[arg(long, default_value = "refuse", value_parser = on_exceed)]
    on_exceed: i32,
    /// From whom it takes back what it has lent: any, lower-priority or never.
    #[arg(long, default_value = "any", value_parser = reclaim)]
    reclaim: i32,
    /// Requests per second (20, or thousandths as 500m), 0 for any number; without it 1,000.
    #[arg(long, value_parser = amount::thousandths)]
    rate: Option<i64>,
    /// Requests that may come at once after a pause; without it a second's worth, or 10,000 where no rate is given either.
    #[arg(long, default_value_t = 0)]
    burst: i64,
    /// Allocations that have not ended; without it as many as the cell takes.
    #[arg(long, default_value_t = 0)]
    backlog: i64,
    /// A priority class that it may use; may be repeated; without it any.
    #[arg(long = "class", value_name = "CLASS")]
    classes: Vec<String>,
    /// The highest priority that it may ask for without a class.
    #[arg(long, allow_negative_numbers = true)]
    priority_max: Option<i32>,
    /// Cores (4, or 1500m) that a request asks for which names none; without it, it has to name some.
    #[arg(long, default_value = "0", value_parser = amount::cpu_milli)]
    default_cpu: i64,
    /// Memory (16GiB), in the same way.
    #[arg(long, default_value = "0", value_parser = amount::bytes)]
    default_memory: i64,
    /// Accept nothing new of it; what was accepted goes on. Of feature level 8.
    #[arg(long)]
    closed: bool,
    #[command(flatten)]
    expected: Expected,
}

fn on_exceed(text: &str) -> Result<i32, String> {
    let all = OnExceed::ALL.map(|one| (one.name(), one as i32));
    named(&all, text)
}

fn reclaim(text: &str) -> Result<i32, String> {
    let all = ReclaimFrom::ALL.map(|one| (one.name(), one as i32));
    named(&all, text)
}

impl Tenant {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let sending = self.expected.sending.clone();
        let title = format!("tenant {}", self.tenant);
        let operator = sending.operator(context).await?;
        let id = sending.id();
        told(&title, operator.set_tenant(self.request(), id).await?)
    }

    pub fn request(self) -> v1::SetTenant {
        v1::SetTenant {
            tenant: self.tenant,
            expected_version: self.expected.expected_version,
            cohort: self.cohort,
            weight_milli: self.weight,
            preemptible: self.preemptible,
            on_exceed: self.on_exceed,
            reclaim: self.reclaim,
            rate_milli: self.rate,
            rate_burst: self.burst,
            allocations_max: self.backlog,
            priority_classes: self.classes,
            priority_max: self.priority_max,
            default_cpu_milli: self.default_cpu,
            default_memory_bytes: self.default_memory,
            closed: self.closed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_the_contracts_numbers() {
        assert_eq!(on_exceed("wait"), Ok(v1::OnExceed::Wait as i32));
        let lower = v1::ReclaimFrom::LowerPriority as i32;
        assert_eq!(reclaim("lower-priority"), Ok(lower));
        assert_eq!(
            reclaim("all"),
            Err("all: write any, lower-priority, never".into())
        );
    }
}
