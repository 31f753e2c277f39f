//! Another priority for what has not ended.

use super::{Admission, Config, check::token};
use smol_str::SmolStr;
use vocab::fact::PriorityRequested;
use vocab::{AllocationSpec, Operation, PriorityTarget, Refusal, Rule, Token};

/// What it is for, as it was written.
#[derive(Debug, Clone, PartialEq, Eq, wire::Wire)]
#[wire(oneof)]
pub enum TargetRequest {
    #[wire(1)]
    AllocationId(String),
    #[wire(2)]
    JobSet(SmolStr),
}

impl Admission {
    pub(super) fn check_set_priority(
        &self,
        operation: Operation,
        target: &TargetRequest,
        priority: i32,
        config: &Config,
    ) -> Result<PriorityRequested, Refusal> {
        let tenant = &operation.tenant;
        self.check_priority(tenant, priority)?;
        let target = match target {
            TargetRequest::AllocationId(id) => {
                PriorityTarget::Allocation(self.check_cancel(tenant, id, config)?)
            }
            TargetRequest::JobSet(name) => PriorityTarget::JobSet(token(name, "job_set")?),
        };
        Ok(PriorityRequested {
            operation,
            target,
            priority,
        })
    }

    /// Within what any tenant may ask for without a priority class, and what this one may.
    pub(super) fn check_priority(&self, tenant: &Token, priority: i32) -> Result<(), Refusal> {
        let max = AllocationSpec::PRIORITY_MAX;
        let most = self
            .settings
            .tenants
            .get(tenant)
            .map_or(max, |t| t.priority_max);
        if (-max..=max.min(most)).contains(&priority) {
            return Ok(());
        }
        Err(Refusal::new(Rule::PriorityOutOfRange, "priority"))
    }
}
