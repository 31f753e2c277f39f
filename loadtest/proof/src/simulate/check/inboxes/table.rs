//! Operations that are remembered, each for its window.

use super::{
    super::{Invariant, Place, Violation},
    room,
};
use schemas::v1;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct Table {
    kept: BTreeMap<(String, String), Kept>,
    /// What takes room, by tenant: also what is over and has been replaced, until that is said to be forgotten.
    taken: BTreeMap<String, Vec<Taken>>,
}

#[derive(Debug)]
struct Taken {
    original: u64,
    window: Window,
    bytes: u64,
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

impl Window {
    pub fn is_over(self, slot: u64, window: u64) -> bool {
        match self {
            Self::Slots(since) => slot > since.saturating_add(window),
            Self::Ms(_) => false,
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
        let taken = Taken {
            original: kept.original,
            window: kept.window,
            bytes: room::operation(&key.0, &key.1),
        };
        self.taken.entry(key.0.clone()).or_default().push(taken);
        self.kept.insert(key, kept);
    }

    /// Bytes that each tenant's operations take.
    pub fn bytes(&self) -> impl Iterator<Item = (&str, u64)> {
        let sum = |taken: &[Taken]| taken.iter().map(|taken| taken.bytes).sum();
        let all = self.taken.iter();
        all.map(move |(tenant, taken)| (tenant.as_str(), sum(taken)))
    }

    /// Those of the tenant's operations that are past their window at a slot.
    pub fn bytes_over(&self, tenant: &str, slot: u64, window: u64) -> u64 {
        let of = self.taken.get(tenant).into_iter().flatten();
        let over = of.filter(|taken| taken.window.is_over(slot, window));
        over.map(|taken| taken.bytes).sum()
    }

    /// How many of the tenant's are past their window at a slot.
    pub fn over(&self, tenant: &str, slot: u64, window: u64) -> u64 {
        let of = self.kept.iter().filter(|(key, _)| key.0 == tenant);
        of.filter(|(_, kept)| kept.window.is_over(slot, window))
            .count() as u64
    }

    /// By the clock; only what is past its window.
    pub fn forget(&mut self, at: &Place, through: u64, window_ms: i64) -> Result<(), Violation> {
        let gone = |_: &str, original: u64, of: Window| match of {
            Window::Ms(since) if original <= through => Some(at.now > since + window_ms),
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
        let gone = |tenant: &str, original: u64, of: Window| match of {
            Window::Slots(_) if tenant == e.slots_of && original <= e.through => {
                Some(of.is_over(slot, window))
            }
            Window::Ms(_) | Window::Slots(_) => None,
        };
        self.drop(at, gone)
    }

    /// Drops what is `gone`, which must be so rightly.
    fn drop(
        &mut self,
        at: &Place,
        gone: impl Fn(&str, u64, Window) -> Option<bool>,
    ) -> Result<(), Violation> {
        let of = |key: &(String, String), kept: &Kept| gone(&key.0, kept.original, kept.window);
        let early = self
            .kept
            .iter()
            .find(|(key, kept)| of(key, kept) == Some(false));
        at.rule(early.is_none(), Invariant::Operation, || {
            format!("forgotten within the window: {early:?} at {}", at.now)
        })?;
        self.kept.retain(|key, kept| of(key, kept).is_none());
        for (tenant, taken) in &mut self.taken {
            taken.retain(|one| gone(tenant, one.original, one.window).is_none());
        }
        Ok(())
    }
}
