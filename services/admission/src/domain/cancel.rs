//! Cancel: only what is one's own, and only what has not ended.

use super::{Admission, Rules};
use vocab::{AllocationId, AllocationNo, Operation, Refusal, Rule};

impl Admission {
    /// Another tenant's allocation is not found, like one that never was: an id tells nothing to strangers.
    pub(super) fn check_cancel(
        &self,
        operation: &Operation,
        allocation_id: &str,
        rules: &Rules,
    ) -> Result<AllocationNo, Refusal> {
        let subject = "allocation_id";
        let allocation = AllocationId::parse(allocation_id)
            .ok_or_else(|| Refusal::new(Rule::AllocationIdInvalid, subject))?
            .in_cell(rules.cell);
        let owned = allocation.and_then(|no| Some((no, self.allocations.get(&no)?)));
        match owned {
            Some((no, owned)) if owned.tenant == operation.tenant => {
                if owned.ended {
                    Err(Refusal::new(Rule::AllocationEnded, subject))
                } else {
                    Ok(no)
                }
            }
            _ => Err(Refusal::new(Rule::AllocationNotFound, subject)),
        }
    }
}
