//! The cell's scheduling policy, set as a whole.

use super::placement;
use crate::check::{amount, small_amount, written_amount};
use vocab::{AllocationSpec, PlacementPolicy, Refusal, Rule, SchedulingPolicy};
use wire::Open;

/// The policy as it was written; what is not given has its default.
#[derive(Debug, Clone, Default, PartialEq, Eq, wire::Wire)]
#[wire(name = "SetScheduling")]
pub struct SchedulingRequest {
    #[wire(1)]
    pub placement: Open<PlacementPolicy>,
    #[wire(2)]
    pub half_life_ms: i64,
    #[wire(3, optional)]
    pub fair_share_preemption: Option<bool>,
    #[wire(4)]
    pub protected_milli: i64,
    #[wire(5, optional)]
    pub preemptions_per_minute: Option<i64>,
    #[wire(6)]
    pub aging_ms: i64,
    #[wire(7)]
    pub backfill: bool,
    #[wire(8, optional)]
    pub backoff_ms: Option<i64>,
    #[wire(9, optional)]
    pub backoff_ms_max: Option<i64>,
    /// The version that it is a change of; none: whichever it is.
    #[wire(10, optional)]
    pub expected_version: Option<u64>,
}

/// Neither use nor waiting counts longer than a run may be believed to take.
const MEMORY_MS_MAX: u64 = AllocationSpec::RUN_TIME_MS_MAX;
/// A day.
const BACKOFF_MS_MAX: u64 = 24 * 3_600_000;
const PREEMPTIONS_PER_MINUTE_MAX: u32 = 1_000_000;

impl SchedulingRequest {
    pub(crate) fn read(&self) -> Result<SchedulingPolicy, Refusal> {
        let defaults = SchedulingPolicy::default();
        let pause = |given: Option<i64>, default, field| match given {
            None => Ok(default),
            Some(given) => amount(given, BACKOFF_MS_MAX, field),
        };
        let preemptions_per_minute = match self.preemptions_per_minute {
            None => defaults.preemptions_per_minute,
            Some(given) => {
                let field = "preemptions_per_minute";
                small_amount(given, PREEMPTIONS_PER_MINUTE_MAX, field)?
            }
        };
        let policy = SchedulingPolicy {
            placement: placement(self.placement)?,
            half_life_ms: amount(self.half_life_ms, MEMORY_MS_MAX, "half_life_ms")?,
            fair_share_preemption: self
                .fair_share_preemption
                .unwrap_or(defaults.fair_share_preemption),
            protected_milli: small_amount(self.protected_milli, 1000, "protected_milli")?,
            preemptions_per_minute,
            aging_ms: amount(self.aging_ms, MEMORY_MS_MAX, "aging_ms")?,
            backfill: self.backfill,
            backoff_ms: pause(self.backoff_ms, defaults.backoff_ms, "backoff_ms")?,
            backoff_ms_max: pause(
                self.backoff_ms_max,
                defaults.backoff_ms_max,
                "backoff_ms_max",
            )?,
        };
        if policy.backoff_ms > policy.backoff_ms_max {
            return Err(Refusal::new(Rule::SettingInvalid, "backoff_ms_max"));
        }
        Ok(policy)
    }
}

impl From<&SchedulingPolicy> for SchedulingRequest {
    fn from(policy: &SchedulingPolicy) -> Self {
        Self {
            placement: Open::Known(policy.placement),
            half_life_ms: written_amount(policy.half_life_ms),
            fair_share_preemption: Some(policy.fair_share_preemption),
            protected_milli: policy.protected_milli.into(),
            preemptions_per_minute: Some(policy.preemptions_per_minute.into()),
            aging_ms: written_amount(policy.aging_ms),
            backfill: policy.backfill,
            backoff_ms: Some(written_amount(policy.backoff_ms)),
            backoff_ms_max: Some(written_amount(policy.backoff_ms_max)),
            expected_version: None,
        }
    }
}
