//! Who waits, and whom it may make go.

use super::{
    super::{
        Scheduler,
        allocation::Live,
        class::{Amounts, add},
        fair::Share,
        queues::QueueNo,
        sweep::Strength,
    },
    board::Entry,
    plan::Plan,
};
use std::cell::Cell;
use vocab::{
    AllocationNo, Millis, PreemptionCause,
    sabotage::{self, Bug},
};

/// Shares are rounded down by less than this.
pub const ROUNDING: u128 = 1 << 16;

/// A share of what the cell has none of is as large as can be.
fn sum(a: Share, b: Share) -> u128 {
    a.0.saturating_add(b.0)
}

/// What the queues have and are due. Within a frame nobody is due anything else because somebody has to go: what leaves is
/// demand of its queue still, and floors count from the next frame on.
#[derive(Debug)]
pub struct Shares {
    due: Vec<Share>,
    /// What each queue has itself, by its dominant resource.
    held: Vec<Share>,
    /// So many are above their due.
    above: usize,
}

impl Shares {
    pub fn of(state: &mut Scheduler) -> Self {
        let due = state.fair_shares();
        let all = state.waiting.queues().all();
        let held = all.map(|(no, _)| state.held_share(no, &Amounts::default()));
        let mut shares = Self {
            held: held.collect(),
            due,
            above: 0,
        };
        let all = state.waiting.queues().all();
        shares.above = all.filter(|(no, _)| shares.is_above(*no)).count();
        shares
    }

    /// What each queue is due.
    pub fn into_due(self) -> Vec<Share> {
        self.due
    }

    /// What these queues hold has changed.
    pub fn hold_now(&mut self, state: &Scheduler, queues: &[QueueNo]) {
        for queue in queues {
            self.above -= usize::from(self.is_above(*queue));
            if let Some(held) = self.held.get_mut(queue.0 as usize) {
                *held = state.held_share(*queue, &Amounts::default());
            }
            self.above += usize::from(self.is_above(*queue));
        }
    }

    pub fn due(&self, queue: QueueNo) -> Share {
        self.due.get(queue.0 as usize).copied().unwrap_or_default()
    }

    fn held(&self, queue: QueueNo) -> Share {
        self.held.get(queue.0 as usize).copied().unwrap_or_default()
    }

    /// Whether there is a queue from which one of this queue might take.
    pub fn any_above_but(&self, queue: QueueNo) -> bool {
        self.above > usize::from(self.is_above(queue))
    }

    pub fn is_above(&self, queue: QueueNo) -> bool {
        self.held(queue).0 > self.due(queue).0.saturating_add(ROUNDING)
    }
}

/// What one may do to be placed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rights {
    /// It may take from lower priorities.
    pub by_priority: bool,
    /// It may take from queues that are above their due.
    pub by_share: bool,
}

/// One who waits, as far as preemption is concerned.
///
/// Of a gang it is one member after the other: each takes by its own priority, or a higher one among them would clear nodes for
/// a lower one, which those who had to go would clear again.
pub struct Claimant<'a> {
    pub live: &'a Live,
    pub rights: Rights,
    /// What counts against its queue with all that it asks for.
    pub with_it: Share,
    pub own_due: Share,
    /// What was placed now stays for now: nothing is placed and preempted in one frame.
    pub now: Millis,
    /// Somebody stays for that.
    pub spared: Cell<bool>,
}

impl<'a> Claimant<'a> {
    /// From here on it is that member of the unit.
    pub fn stands_for(&mut self, state: &'a Scheduler, no: AllocationNo, shares: &Shares) {
        if let Some(live) = state.allocations.get(&no) {
            self.live = live;
            self.rights = state.rights(no, live, shares);
        }
    }

    pub fn strength(&self) -> Strength {
        let priority = self.live.priority;
        Strength {
            by_priority: self.rights.by_priority.then_some(priority),
            by_share: self
                .rights
                .by_share
                .then_some((priority, self.with_it, self.own_due)),
        }
    }

    /// Whether it was placed just now.
    pub fn spares(&self, placed: Millis) -> bool {
        let spares = placed >= self.now && !sabotage::armed(Bug::PlacedAndPreempted);
        self.spared.set(self.spared.get() || spares);
        spares
    }

    /// Whether an allocation might go for it, at a glance: never wrong when this says no.
    pub fn might_take(&self, entry: &Entry, shares: &Shares) -> bool {
        if self.rights.by_priority && entry.priority < self.live.priority {
            return true;
        }
        let closer = shares.is_above(entry.queue)
            && sum(shares.held(entry.queue), self.own_due).saturating_add(ROUNDING)
                >= sum(self.with_it, shares.due(entry.queue));
        self.rights.by_share
            && entry.priority <= self.live.priority
            && entry.queue != self.live.queue
            && (closer || sabotage::armed(Bug::EndlessPreemption))
    }
}

impl Scheduler {
    /// What the queue itself holds, less than that by `less`.
    pub(super) fn held_share(&self, queue: QueueNo, less: &Amounts) -> Share {
        let mut held = *self.waiting.queues().own(queue);
        for (held, less) in held.iter_mut().zip(less) {
            *held = held.saturating_sub(*less);
        }
        Share::dominant(&held, self.fleet.totals())
    }

    /// Whether, and why, `no` may be made to go for the claimant.
    ///
    /// By fair share: from a queue that is above its due, whose share becomes smaller by it and then still exceeds its due
    /// by no less than the claimant's does. So the larger of the two excesses falls each time.
    pub(super) fn may_go(
        &self,
        no: AllocationNo,
        claimant: &Claimant<'_>,
        shares: &Shares,
        plan: &Plan,
    ) -> Option<PreemptionCause> {
        let live = self.allocations.get(&no)?;
        let goes_already = live.binding()?.stop.is_some() || plan.victims.contains_key(&no);
        if goes_already || live.gang.is_some() && live.gang == claimant.live.gang {
            return None;
        }
        // Who is in a gang takes the others along: what holds for one has to hold for all.
        let fellows = || {
            self.fellows(no)
                .into_iter()
                .filter_map(|fellow| self.allocations.get(&fellow))
        };
        let wanted_near = |live: &Live| {
            let class = self.allocations.class(live.class);
            let mut affinity = self.allocations.class(claimant.live.class).affinity();
            affinity.any(|group| class.group() == Some(group))
        };
        let may = |live: &Live| {
            let stays = live
                .binding()
                .is_none_or(|binding| claimant.spares(binding.placed));
            self.settings.preemptible(live.priority_class) && !stays && !wanted_near(live)
        };
        if !fellows().all(may) {
            return None;
        }
        let priority = fellows().map(|live| live.priority).max()?;
        let due = shares.due(live.queue);
        let mut less = plan.less.get(&live.queue).copied().unwrap_or_default();
        let before = self.held_share(live.queue, &less);
        if before.0 <= due.part(self.settings.policy().protected_milli).0
            && self.settings.policy().protected_milli > 0
        {
            return None;
        }
        if claimant.rights.by_priority && priority < claimant.live.priority {
            return Some(PreemptionCause::Priority);
        }
        for fellow in fellows().filter(|fellow| fellow.queue == live.queue) {
            add(&mut less, &self.allocations.amounts(fellow));
        }
        let after = self.held_share(live.queue, &less);
        let closer = before.0 > due.0.saturating_add(ROUNDING)
            && before.0 > after.0.saturating_add(ROUNDING)
            && sum(after, claimant.own_due).saturating_add(ROUNDING) >= sum(claimant.with_it, due);
        let fair = claimant.rights.by_share
            && live.queue != claimant.live.queue
            && priority <= claimant.live.priority
            && (closer || sabotage::armed(Bug::EndlessPreemption));
        fair.then_some(PreemptionCause::FairShare)
    }

    /// It and, for a member of a gang, all members that are on nodes.
    pub(super) fn fellows(&self, no: AllocationNo) -> Vec<AllocationNo> {
        match self.allocations.get(&no).and_then(|live| live.gang) {
            Some(gang) => self.waiting.gangs().on_nodes(gang).collect(),
            None => vec![no],
        }
    }
}
