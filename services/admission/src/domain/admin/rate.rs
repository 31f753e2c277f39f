//! Rates.

use crate::domain::{Admission, check::amount};
use vocab::fact::RateSet;
use vocab::{AdminChange, Millis, Month, Refusal, ResourceKey, Rule};

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
        self.check_effective(&resource, effective_from, now)?;
        Ok(AdminChange::Rate(RateSet {
            resource,
            micro_per_unit_hour,
            effective_from,
        }))
    }

    /// To the millisecond. The first rate of a resource may reach back to the beginning, because nothing was billed by
    /// another, unless a month is closed; a later one may not.
    fn check_effective(
        &self,
        resource: &ResourceKey,
        effective_from: Millis,
        now: Millis,
    ) -> Result<(), Refusal> {
        let subject = "effective_from_ms";
        if effective_from < Millis(0) || effective_from >= Month::LAST.end() {
            return Err(Refusal::new(Rule::SettingInvalid, subject));
        }
        if effective_from > now {
            return Ok(());
        }
        if effective_from > Millis(0) || self.settings.rate_was_set(resource) {
            return Err(Refusal::new(Rule::RateForAPastHour, subject));
        }
        match self.closed_through {
            Some(Month(closed)) => {
                Err(Refusal::over(Rule::PeriodClosed, subject, closed.into(), 0))
            }
            None => Ok(()),
        }
    }
}
