//! Whose turn it is to have nodes cleared. Only saves work: once a sweep is through, whoever could preempt has.

use super::{class::SchedulingKeyNo, fair::Share, queues::Key};
use std::collections::{BTreeMap, BTreeSet};
use vocab::PendingGroupNo;

/// A walk through all pending groups that wait for room, the highest priority first, over as many frames as that takes. Who comes
/// while it goes on is taken into it; who was looked at is looked at again in the next one, if anything has changed.
#[derive(Debug)]
pub struct Sweep {
    to_try: BTreeSet<(Key, PendingGroupNo)>,
    /// All pending groups of these are in it, or were.
    taken: BTreeSet<SchedulingKeyNo>,
    /// It was begun, and did not get through in one frame.
    under_way: bool,
    /// Something has changed since it began.
    again: bool,
    /// Whom no node could be cleared for since anybody last had to go.
    failed: BTreeMap<SchedulingKeyNo, Vec<Strength>>,
}

impl Default for Sweep {
    /// Nothing was looked at yet.
    fn default() -> Self {
        Self {
            to_try: BTreeSet::new(),
            taken: BTreeSet::new(),
            under_way: false,
            again: true,
            failed: BTreeMap::new(),
        }
    }
}

/// What a claimant can do: whoever is no stronger and asks for the same can do no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strength {
    /// It may take from lower priorities than this one.
    pub by_priority: Option<i32>,
    /// It may take, up to this priority, from queues that are above their due by more than it is above its own.
    pub by_share: Option<(i32, Share, Share)>,
}

impl Strength {
    /// Whether it can do anything.
    pub fn is_any(&self) -> bool {
        self.by_priority.is_some() || self.by_share.is_some()
    }

    /// What both can do.
    pub fn weaker(self, other: Self) -> Self {
        Self {
            by_priority: self.by_priority.min(other.by_priority),
            by_share: self.by_share.min(other.by_share),
        }
    }

    /// What either can do, or more.
    pub fn stronger(self, other: Self) -> Self {
        Self {
            by_priority: self.by_priority.max(other.by_priority),
            by_share: self.by_share.max(other.by_share),
        }
    }

    fn is_no_stronger(&self, than: &Self) -> bool {
        let by_share = match (self.by_share, than.by_share) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some((priority, with_it, due)), Some((other, others_with, others_due))) => {
                priority <= other
                    && with_it.0.saturating_add(others_due.0) >= others_with.0.saturating_add(due.0)
            }
        };
        self.by_priority <= than.by_priority && by_share
    }
}

impl Sweep {
    pub fn anew(&mut self) {
        self.again = true;
    }

    /// It has not been looked at as things stand.
    pub fn add(&mut self, key: Key, pending_group: PendingGroupNo) {
        if !self.begins_anew() {
            self.to_try.insert((key, pending_group));
        }
    }

    /// The next walk is another one, of all pending groups that wait then.
    fn begins_anew(&self) -> bool {
        !self.under_way && self.again
    }

    /// There is no room for the scheduling key, again: whether its pending groups are still to be added. If not, there is another walk.
    pub fn takes(&mut self, scheduling_key: SchedulingKeyNo) -> bool {
        if self.begins_anew() {
            return false;
        }
        let new = self.taken.insert(scheduling_key);
        self.again |= !new;
        new
    }

    /// Whether there is anybody to look at; `pending_groups` are those of a new walk, with their scheduling keys.
    pub fn goes_on(
        &mut self,
        pending_groups: impl FnOnce() -> Vec<(Key, PendingGroupNo, SchedulingKeyNo)>,
    ) -> bool {
        if self.begins_anew() {
            self.again = false;
            self.failed.clear();
            let pending_groups = pending_groups();
            self.taken = pending_groups
                .iter()
                .map(|(_, _, scheduling_key)| *scheduling_key)
                .collect();
            self.to_try = pending_groups
                .into_iter()
                .map(|(key, no, _)| (key, no))
                .collect();
        }
        self.under_way = !self.to_try.is_empty();
        self.under_way
    }

    /// Its number may come to mean another.
    pub fn forget(&mut self, scheduling_key: SchedulingKeyNo) {
        self.failed.remove(&scheduling_key);
        self.taken.remove(&scheduling_key);
    }

    pub fn next(&mut self) -> Option<PendingGroupNo> {
        let next = self
            .to_try
            .pop_first()
            .map(|(_, pending_group)| pending_group);
        self.under_way = next.is_some();
        next
    }

    pub fn is_over(&self) -> bool {
        self.to_try.is_empty() && !self.again
    }

    /// Somebody has to go: it may let another have his way who was looked at before.
    pub fn moved(&mut self) {
        self.failed.clear();
        self.again = true;
    }

    pub fn has_failed(&self, scheduling_key: SchedulingKeyNo, strength: &Strength) -> bool {
        let failed = self.failed.get(&scheduling_key);
        failed.is_some_and(|failed| failed.iter().any(|than| strength.is_no_stronger(than)))
    }

    pub fn fails(&mut self, scheduling_key: SchedulingKeyNo, strength: Strength) {
        let failed = self.failed.entry(scheduling_key).or_default();
        failed.retain(|other| !other.is_no_stronger(&strength));
        failed.push(strength);
    }
}
