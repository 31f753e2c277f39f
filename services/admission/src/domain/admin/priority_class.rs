//! Priority classes.

use super::placement;
use crate::domain::check::{amount, token};
use vocab::fact::PriorityClassSet;
use vocab::{AdminChange, AllocationSpec, PriorityClass, Refusal, Rule};

/// A class as it was written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClassRequest {
    pub class: String,
    pub value: i32,
    pub preemptible: bool,
    pub preempts: bool,
    pub grace_ms: i64,
    pub placement: Option<i32>,
}

impl ClassRequest {
    pub(super) fn check(&self) -> Result<AdminChange, Refusal> {
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
        Ok(AdminChange::PriorityClass(PriorityClassSet {
            class,
            settings,
        }))
    }
}
