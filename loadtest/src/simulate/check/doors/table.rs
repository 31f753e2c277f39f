//! Operations that are remembered, each for its window.

use super::super::{Invariant, Place, Violation};
use schemas::v1;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct Table {
    kept: BTreeMap<(String, String), Kept>,
}

#[derive(Debug)]
pub struct Kept {
    pub content: Vec<u8>,
    /// The number of the event that took it up.
    pub original: u64,
    pub window: Window,
}

/// From when on the window counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    Ms(i64),
    Slots(u64),
}

impl Kept {
    pub fn is_over(&self, slot: u64, window: u64) -> bool {
        match self.window {
            Window::Slots(since) => slot > since.saturating_add(window),
            Window::Ms(_) => false,
        }
    }
}

impl Table {
    pub fn of(&self, tenant: &str) -> u64 {
        self.kept.keys().filter(|key| key.0 == tenant).count() as u64
    }

    pub fn get(&self, key: &(String, String)) -> Option<&Kept> {
        self.kept.get(key)
    }

    pub fn keep(&mut self, key: (String, String), kept: Kept) {
        self.kept.insert(key, kept);
    }

    /// How many of the tenant's are past their window at a slot.
    pub fn over(&self, tenant: &str, slot: u64, window: u64) -> u64 {
        let of = self.kept.iter().filter(|(key, _)| key.0 == tenant);
        of.filter(|(_, kept)| kept.is_over(slot, window)).count() as u64
    }

    /// By the clock; only what is past its window.
    pub fn forget(&mut self, at: &Place, through: u64, window_ms: i64) -> Result<(), Violation> {
        let gone = |_: &(String, String), kept: &Kept| match kept.window {
            Window::Ms(since) if kept.original <= through => Some(at.now > since + window_ms),
            Window::Ms(_) | Window::Slots(_) => None,
        };
        self.drop(at, gone)
    }

    /// By the slots of one tenant.
    pub fn forget_slots(
        &mut self,
        at: &Place,
        e: &v1::OperationsForgotten,
        slot: u64,
        window: u64,
    ) -> Result<(), Violation> {
        let gone = |key: &(String, String), kept: &Kept| match kept.window {
            Window::Slots(_) if key.0 == e.slots_of && kept.original <= e.through => {
                Some(kept.is_over(slot, window))
            }
            Window::Ms(_) | Window::Slots(_) => None,
        };
        self.drop(at, gone)
    }

    /// Drops what is `gone`, which must be so rightly.
    fn drop(
        &mut self,
        at: &Place,
        gone: impl Fn(&(String, String), &Kept) -> Option<bool>,
    ) -> Result<(), Violation> {
        let early = self
            .kept
            .iter()
            .find(|(key, kept)| gone(key, kept) == Some(false));
        at.rule(early.is_none(), Invariant::Operation, || {
            format!("forgotten within the window: {early:?} at {}", at.now)
        })?;
        self.kept.retain(|key, kept| gone(key, kept).is_none());
        Ok(())
    }
}
