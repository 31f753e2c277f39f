//! One member's word on its gang.

use crate::check::{optional, small_amount, small_quantity, token};
use smol_str::SmolStr;
use vocab::{AllocationSpec, Gang, Refusal, Rule};

/// A gang as it was written.
#[derive(Debug, Clone, Default, PartialEq, Eq, wire::Wire)]
pub struct GangRequest {
    #[wire(1)]
    pub name: SmolStr,
    #[wire(2)]
    pub size: i64,
    /// 0 means size.
    #[wire(3)]
    pub min: i64,
    #[wire(4)]
    pub uniform_label: SmolStr,
}

impl GangRequest {
    pub(super) fn check(&self) -> Result<Gang, Refusal> {
        let max = AllocationSpec::GANG_SIZE_MAX;
        let name = token(&self.name, "gang.name")?;
        let size = small_quantity(self.size, max, "gang.size")?;
        let min = match small_amount(self.min, max, "gang.min")? {
            0 => size,
            min if min > size => {
                let (limit, actual) = (size.into(), min.into());
                return Err(Refusal::over(Rule::GangInvalid, "gang.min", limit, actual));
            }
            min => min,
        };
        Ok(Gang {
            name,
            size,
            min,
            uniform_label: optional(&self.uniform_label, "gang.uniform_label")?,
        })
    }
}
