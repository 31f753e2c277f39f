//! What operators set for the whole cell: the policy, and the priority classes.

use super::interner::Interner;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vocab::{PriorityClass, SchedulingPolicy, Token};

/// The name of a priority class that live allocations have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PriorityNo(u32);

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    policy: SchedulingPolicy,
    classes: BTreeMap<Token, PriorityClass>,
    /// Names of priority classes that live allocations have.
    names: Interner<Token>,
}

impl Settings {
    pub fn policy(&self) -> &SchedulingPolicy {
        &self.policy
    }

    pub fn set_policy(&mut self, policy: &SchedulingPolicy) {
        self.policy = policy.clone();
    }

    pub fn set_class(&mut self, name: &Token, class: &PriorityClass) {
        self.classes.insert(name.clone(), class.clone());
    }

    /// One more allocation has the class.
    pub fn acquire(&mut self, name: &Token) -> PriorityNo {
        PriorityNo(self.names.acquire(name))
    }

    /// One less.
    pub fn release(&mut self, class: PriorityNo) {
        self.names.release(class.0);
    }

    /// None where none is set under that name.
    pub fn class_named(&self, name: &Token) -> Option<&PriorityClass> {
        self.classes.get(name)
    }

    /// None where none was asked for, or set under that name.
    pub fn class(&self, of: Option<PriorityNo>) -> Option<&PriorityClass> {
        self.classes.get(self.names.get(of?.0))
    }

    pub fn preemptible(&self, of: Option<PriorityNo>) -> bool {
        self.class(of).is_some_and(|class| class.preemptible)
    }

    /// Whether any class is preemptible, whoever has it.
    pub fn any_preemptible(&self) -> bool {
        self.classes.values().any(|class| class.preemptible)
    }

    /// Whether anybody has a class that preempts.
    pub fn any_preempts(&self) -> bool {
        let mut all = self.names.users();
        all.any(|(no, _)| {
            self.class(Some(PriorityNo(no)))
                .is_some_and(|it| it.preempts)
        })
    }
}
