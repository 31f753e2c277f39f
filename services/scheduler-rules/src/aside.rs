//! Nodes that not everybody may go to now: those of an advance reservation, and the one that the head of the pending group was
//! promised (backfill).

use super::{
    Scheduler,
    allocation::Live,
    fleet::{NodeNo, Wanted},
    queues::Key,
    reserve::Reservations,
    seeker::Seeker,
    waiting::Promise,
};
use std::collections::{BTreeMap, BTreeSet};
use vocab::{AllocationNo, Millis, WaitingReason};

/// Found anew for each round of decisions, from the state alone.
#[derive(Debug, Default)]
pub(super) struct Aside {
    now: Millis,
    promise: Option<Promise>,
}

impl Aside {
    pub(super) fn of(state: &Scheduler, now: Millis) -> Self {
        let promise = if state.settings.policy().backfill {
            promise(state, now)
        } else {
            None
        };
        Self { now, promise }
    }

    pub(super) fn promise(&self) -> Option<Promise> {
        self.promise
    }

    pub(super) fn nodes(&self, reservations: &Reservations) -> BTreeSet<NodeNo> {
        let mut nodes: BTreeSet<_> = reservations.nodes().collect();
        nodes.extend(self.promise.as_ref().map(|promise| promise.node));
        nodes
    }

    /// Whether an allocation may start on a node that is set aside. Without a run-time estimate it may end too late.
    pub(super) fn lets(
        &self,
        state: &Scheduler,
        no: AllocationNo,
        live: &Live,
        node: NodeNo,
    ) -> bool {
        self.lets_seeker(state, &state.seeker(no, live), node)
    }

    /// The same of one that need not stand in the state.
    pub(super) fn lets_seeker(&self, state: &Scheduler, seeker: &Seeker<'_>, node: NodeNo) -> bool {
        let ends = match seeker.run_time_ms {
            0 => None,
            run_time_ms => Some(Millis(self.now.0.saturating_add_unsigned(run_time_ms))),
        };
        if !state
            .reservations
            .let_in(state.waiting.queues(), seeker.queue, node, self.now, ends)
        {
            return false;
        }
        match &self.promise {
            Some(promise) if promise.node == node && promise.to != seeker.no => {
                ends.is_some_and(|ends| ends <= promise.from) || state.leaves_room(seeker, promise)
            }
            _ => true,
        }
    }
}

/// Kinds of request that a place is looked for, the first in line first: each look is at all nodes and what is on them.
const LOOKS_MAX: usize = 64;

/// The one to whom a place is promised: of those that were told that there is no room, the first by priority and order for
/// whom it can be known when there will be. One for whom it cannot takes the promise from nobody.
fn promise(state: &Scheduler, now: Millis) -> Option<Promise> {
    let told = |pending_group: &&super::queues::PendingGroup| {
        let said = pending_group.said.as_ref();
        said.is_some_and(|said| {
            let room = [WaitingReason::NoRoomNow, WaitingReason::PreemptionLimit];
            room.contains(&said.reason)
        }) && state
            .waiting
            .queues()
            .limited_by(pending_group.key.queue, &pending_group.asks)
            .is_none()
    };
    let pending_groups = state.waiting.queues().pending_groups().filter(told);
    let mut heads: Vec<Key> = pending_groups
        .filter_map(|pending_group| pending_group.head())
        .collect();
    heads.sort_unstable();
    let mut looked_at = BTreeSet::new();
    for head in heads {
        let live = state.allocations.get(&head.allocation)?;
        let policy = state.placement_policy(live);
        if !looked_at.insert((live.class, policy)) {
            continue;
        }
        if looked_at.len() > LOOKS_MAX {
            return None;
        }
        let wanted = Wanted {
            no: live.class,
            class: state.allocations.class(live.class),
            policy,
        };
        let places = state
            .fleet
            .nodes()
            .iter()
            .zip(0..)
            .filter_map(|(node, no)| {
                let no = NodeNo(no);
                // A node that is being cleared is promised already.
                let may = node.open() && node.nominees.is_empty();
                let from = may.then(|| state.free_from(no, &wanted, now))??;
                Some((from, std::cmp::Reverse(node.precedence), no))
            });
        if let Some((from, _, node)) = places.min() {
            return Some(Promise {
                to: head.allocation,
                node,
                from,
            });
        }
    }
    None
}

impl Scheduler {
    /// When the node has room for what is wanted, if nothing more comes and what runs ends by its estimate. None when that
    /// cannot be known.
    fn free_from(&self, no: NodeNo, wanted: &Wanted<'_>, now: Millis) -> Option<Millis> {
        let capacity = self.fleet.capacity(no);
        let mut node = self.fleet.node(no).clone();
        if self.fleet.value_of(&node, capacity, wanted).fits() {
            return Some(now);
        }
        let mut ends = BTreeMap::<Millis, Vec<AllocationNo>>::new();
        for held in &node.holds {
            if let Some(end) = self.estimated_end(*held) {
                ends.entry(end.max(now)).or_default().push(*held);
            }
        }
        for (end, held) in ends {
            for no in held {
                let live = self.allocations.get(&no)?;
                let class = self.allocations.class(live.class);
                node.give_back(capacity, (no, class), &live.binding()?.taken);
            }
            if self.fleet.value_of(&node, capacity, wanted).fits() {
                return Some(end);
            }
        }
        None
    }

    fn estimated_end(&self, no: AllocationNo) -> Option<Millis> {
        let live = self.allocations.get(&no)?;
        let binding = live.binding()?;
        let began = binding.started.unwrap_or(binding.placed);
        (live.run_time_ms > 0).then(|| Millis(began.0.saturating_add_unsigned(live.run_time_ms)))
    }

    /// Whether the one to whom the node is promised still fits at the promised time when `seeker` is there as well.
    fn leaves_room(&self, seeker: &Seeker<'_>, promise: &Promise) -> bool {
        let Some(promised) = self.allocations.get(&promise.to) else {
            return true;
        };
        let capacity = self.fleet.capacity(promise.node);
        let mut node = self.fleet.node(promise.node).clone();
        let class = seeker.class;
        let spot = self.fleet.spot(&node, capacity, class, seeker.policy);
        let Some(spot) = spot else {
            return false;
        };
        if node
            .take(capacity, (seeker.no, class), spot.parts())
            .is_err()
        {
            return false;
        }
        let held: Vec<_> = node.holds.iter().copied().collect();
        for no in held {
            if self
                .estimated_end(no)
                .is_some_and(|end| end <= promise.from)
                && let Some(live) = self.allocations.get(&no)
                && let Some(binding) = live.binding()
            {
                let class = self.allocations.class(live.class);
                node.give_back(capacity, (no, class), &binding.taken);
            }
        }
        let class = self.allocations.class(promised.class);
        node.check(capacity, class).is_ok()
    }
}
