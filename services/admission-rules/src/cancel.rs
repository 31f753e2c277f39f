//! Cancel: only what is one's own, and only what has not ended.

use super::{Admission, Config, allocations::Owned};
use vocab::{AllocationId, AllocationNo, Refusal, Rule, Token};

impl Admission {
    pub(super) fn check_cancel(
        &self,
        tenant: &Token,
        allocation_id: &str,
        config: &Config,
    ) -> Result<AllocationNo, Refusal> {
        let subject = "allocation_id";
        let found = self.find_own(tenant, allocation_id, config, subject)?;
        let (no, owned) = found.ok_or_else(|| Refusal::new(Rule::AllocationNotFound, subject))?;
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
        config: &Config,
        subject: &str,
    ) -> Result<Option<(AllocationNo, &Owned)>, Refusal> {
        let id = AllocationId::parse(allocation_id)
            .ok_or_else(|| Refusal::new(Rule::AllocationIdInvalid, subject))?;
        let found = id
            .in_cell(config.cell)
            .and_then(|no| Some((no, self.allocations.get(no)?)));
        Ok(found.filter(|(_, owned)| owned.tenant == *tenant))
    }

    /// The tenant's own allocation that it has asked for by this operation.
    pub(super) fn find_asked(
        &self,
        tenant: &Token,
        operation_id: &str,
    ) -> Option<(AllocationNo, &Owned)> {
        let no = AllocationNo(self.operations.original(tenant, operation_id)?.0);
        let owned = self.allocations.get(no)?;
        (owned.tenant == *tenant).then_some((no, owned))
    }
}
