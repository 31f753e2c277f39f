//! Rates.

use crate::domain::{Admission, check::amount};
use vocab::fact::RateSet;
use vocab::{AdminChange, HOUR_MS, Millis, Refusal, ResourceKey, Rule};

/// A million of the currency per unit and hour.
const RATE_MAX: u64 = 1_000_000_000_000;

impl Admission {
    pub(super) fn check_rate(
        &self,
        resource: &str,
        micro_per_unit_hour: i64,
        effective_from: Millis,
        now: Millis,
    ) -> Result<AdminChange, Refusal> {
        let resource = ResourceKey::parse(resource)
            .ok_or_else(|| Refusal::new(Rule::ResourceUnknown, "resource"))?;
        let micro_per_unit_hour = amount(micro_per_unit_hour, RATE_MAX, "micro_per_unit_hour")?;
        let first = !self.settings.rate_was_set(&resource);
        check_effective(effective_from, first, now)?;
        Ok(AdminChange::Rate(RateSet {
            resource,
            micro_per_unit_hour,
            effective_from,
        }))
    }
}

/// The first rate of a resource may reach back, because nothing was billed by another; a later one may not.
fn check_effective(effective_from: Millis, first: bool, now: Millis) -> Result<(), Refusal> {
    let subject = "effective_from_ms";
    if effective_from.0 < 0 || effective_from.0 % HOUR_MS != 0 {
        return Err(Refusal::new(Rule::RateNotOnTheHour, subject));
    }
    if !first && effective_from <= now {
        return Err(Refusal::new(Rule::RateForAPastHour, subject));
    }
    Ok(())
}
