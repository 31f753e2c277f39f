//! What has to end first.

use crate::{Admission, Config, check::bounded};
use std::collections::BTreeMap;
use vocab::{AllocationNo, AllocationSpec, Dependency, Gang, Refusal, Rule, Token};

/// A dependency as it was written.
#[derive(Debug, Clone, Default, PartialEq, Eq, wire::Wire)]
pub struct DependencyRequest {
    #[wire(1)]
    pub allocation_id: String,
    #[wire(2)]
    pub success: bool,
    /// In place of the allocation's id.
    #[wire(3)]
    pub operation_id: String,
}

impl Admission {
    /// Only on one's own, and only on what is known: live, or ended within the window, for which the scheduler keeps what
    /// became of it. Since it has to be there before, nothing can come to wait for itself but by its gang.
    pub(super) fn check_dependencies(
        &self,
        tenant: &Token,
        wanted: &[DependencyRequest],
        gang: Option<&Gang>,
        config: &Config,
    ) -> Result<Vec<Dependency>, Refusal> {
        let field = "depends_on";
        bounded(wanted, AllocationSpec::DEPENDENCIES_MAX, field)?;
        let mut found: BTreeMap<AllocationNo, bool> = BTreeMap::new();
        for one in wanted {
            let own = match one.operation_id.as_str() {
                "" => self.find_own(tenant, &one.allocation_id, config, field)?,
                _ if !one.allocation_id.is_empty() => {
                    return Err(Refusal::new(Rule::AllocationIdInvalid, field));
                }
                operation => self.find_asked(tenant, operation),
            };
            let (no, _) = own.ok_or_else(|| Refusal::new(Rule::DependencyUnknown, field))?;
            // Success is an end, too: whoever asks for both asks for success.
            *found.entry(no).or_default() |= one.success;
        }
        let dependency = |(allocation, success)| Dependency {
            allocation,
            success,
        };
        let depends_on: Vec<_> = found.into_iter().map(dependency).collect();
        if let Some(gang) = gang {
            let gangs = self.allocations.gangs();
            gangs.check(tenant, gang, &depends_on)?;
        }
        Ok(depends_on)
    }
}
