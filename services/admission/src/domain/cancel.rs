//! Cancel: only what is one's own, and only what has not ended.

use super::{Admission, Owned, Rules};
use vocab::{AllocationId, AllocationNo, Refusal, Rule, Token};

impl Admission {
    pub(super) fn check_cancel(
        &self,
        tenant: &Token,
        allocation_id: &str,
        rules: &Rules,
    ) -> Result<AllocationNo, Refusal> {
        let subject = "allocation_id";
        let (no, owned) = self.find_own(tenant, allocation_id, rules, subject)?;
        if owned.ended {
            return Err(Refusal::new(Rule::AllocationEnded, subject));
        }
        Ok(no)
    }

    /// Another tenant's allocation is not found, like one that never was: an id tells nothing to strangers.
    pub(super) fn find_own(
        &self,
        tenant: &Token,
        allocation_id: &str,
        rules: &Rules,
        subject: &str,
    ) -> Result<(AllocationNo, &Owned), Refusal> {
        let allocation = AllocationId::parse(allocation_id)
            .ok_or_else(|| Refusal::new(Rule::AllocationIdInvalid, subject))?
            .in_cell(rules.cell);
        allocation
            .and_then(|no| Some((no, self.allocations.get(&no)?)))
            .filter(|(_, owned)| owned.tenant == *tenant)
            .ok_or_else(|| Refusal::new(Rule::AllocationNotFound, subject))
    }
}
