//! What has to end first.

use crate::domain::{Admission, Rules, check::bounded};
use std::collections::BTreeMap;
use vocab::{AllocationNo, AllocationSpec, Dependency, Refusal, Token};

/// A dependency as it was written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DependencyRequest {
    pub allocation_id: String,
    pub success: bool,
}

impl Admission {
    /// Only on one's own, as with a cancel; what has ended within the retention window is still known. Since it has to
    /// be there before, nothing can come to wait for itself.
    pub(super) fn check_dependencies(
        &self,
        tenant: &Token,
        wanted: &[DependencyRequest],
        rules: &Rules,
    ) -> Result<Vec<Dependency>, Refusal> {
        let field = "depends_on";
        bounded(wanted, AllocationSpec::DEPENDENCIES_MAX, field)?;
        let mut found: BTreeMap<AllocationNo, bool> = BTreeMap::new();
        for one in wanted {
            let (no, _) = self.find_own(tenant, &one.allocation_id, rules, field)?;
            // Success is an end, too: whoever asks for both asks for success.
            *found.entry(no).or_default() |= one.success;
        }
        let dependency = |(allocation, success)| Dependency {
            allocation,
            success,
        };
        Ok(found.into_iter().map(dependency).collect())
    }
}
