//! Priority classes.

use super::placement;
use crate::check::{amount, token, written_amount};
use vocab::fact::PriorityClassSet;
use vocab::{AllocationSpec, PlacementPolicy, PriorityClass, Refusal, Rule};
use wire::Open;

/// A class as it was written.
#[derive(Debug, Clone, Default, PartialEq, Eq, wire::Wire)]
#[wire(name = "SetPriorityClass")]
pub struct ClassRequest {
    #[wire(1, name = "priority_class")]
    pub class: String,
    #[wire(2)]
    pub value: i32,
    #[wire(3)]
    pub preemptible: bool,
    #[wire(4)]
    pub preempts: bool,
    #[wire(5)]
    pub grace_ms: i64,
    #[wire(6, optional)]
    pub placement: Option<Open<PlacementPolicy>>,
    /// The version that it is a change of; none: whichever it is.
    #[wire(7, optional)]
    pub expected_version: Option<u64>,
    #[wire(8)]
    pub closed: bool,
}

impl ClassRequest {
    pub(super) fn read(&self) -> Result<PriorityClassSet, Refusal> {
        let class = token(&self.class, "priority_class")?;
        let max = AllocationSpec::PRIORITY_MAX;
        if !(-max..=max).contains(&self.value) {
            return Err(Refusal::new(Rule::PriorityOutOfRange, "value"));
        }
        let settings = PriorityClass {
            value: self.value,
            preemptible: self.preemptible,
            preempts: self.preempts,
            grace_ms: amount(self.grace_ms, PriorityClass::GRACE_MS_MAX, "grace_ms")?,
            placement: self.placement.map(placement).transpose()?,
        };
        Ok(PriorityClassSet {
            class,
            settings,
            closed: self.closed,
        })
    }
}

impl From<&PriorityClassSet> for ClassRequest {
    fn from(set: &PriorityClassSet) -> Self {
        let settings = &set.settings;
        Self {
            class: set.class.to_string(),
            value: settings.value,
            preemptible: settings.preemptible,
            preempts: settings.preempts,
            grace_ms: written_amount(settings.grace_ms),
            placement: settings.placement.map(Open::Known),
            expected_version: None,
            closed: set.closed,
        }
    }
}
