//! Nodes that not everybody may go to now: those of an advance reservation, and the one that the head of the pending group was
//! promised (backfill).

use super::{
    Scheduler,
    allocation::{Live, Phase},
    class::Class,
    fleet::{Moves, Node, NodeNo, Others, Wanted, keeps_off},
    queues::{Key, PendingGroup},
    reserve::Reservations,
    seeker::Seeker,
    waiting::Promise,
};
use std::{
    cell::RefCell,
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};
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
        let ends = ends(self.now, seeker.run_time_ms);
        if !state
            .reservations
            .let_in(state.waiting.queues(), seeker, node, self.now, ends)
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
/// Nodes that are searched for the earliest start of one allocation.
const EARLIEST_NODES_MAX: usize = 1000;
/// Number of ends that are considered for an allocation with rules about others. Later moments count as unknown.
const ENDS_MAX: usize = 16;

/// The one to whom a place is promised: of those that were told that there is no room, the first by priority and order for
/// which it can be known when there will be, and which may be there then. One for which it cannot is skipped.
fn promise(state: &Scheduler, now: Millis) -> Option<Promise> {
    let told = |pending_group: &&PendingGroup| {
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
        let forecast = StartForecast::of(state, head.allocation, live, now);
        // It is not known when a nominee that minds it will have come.
        let minding = state.minding(head.allocation, forecast.wanted.class);
        let nodes = state
            .fleet
            .all()
            .filter(|node| minding.let_it_come_to(*node));
        let places = nodes.filter_map(|node| {
            let from = forecast.free_from(node)?;
            let precedence = state.fleet.node(node).precedence;
            Some((from, Reverse(precedence), node))
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

/// Earliest starts of a pending allocation by node, if nothing else is placed and running allocations end by their estimates.
struct StartForecast<'a> {
    state: &'a Scheduler,
    now: Millis,
    wanted: Wanted<'a>,
    seeker: Seeker<'a>,
    /// Members of the groups in its rules that have a known end, by end.
    others: Vec<(Millis, NodeNo, &'a Class)>,
    /// Positions of the remaining members, by the number of `others` that have ended.
    left: RefCell<BTreeMap<usize, Others<'a>>>,
}

impl<'a> StartForecast<'a> {
    fn of(state: &'a Scheduler, no: AllocationNo, live: &Live, now: Millis) -> Self {
        let seeker = state.seeker(no, live);
        let class = seeker.class;
        let groups: BTreeSet<_> = class.groups_looked_at().collect();
        let members = groups
            .iter()
            .flat_map(|(tenant, group)| state.fleet.members(tenant, group));
        let there = members.filter(|(_, members)| members.there > 0);
        let nodes: BTreeSet<NodeNo> = there.map(|(node, _)| node).collect();
        let mut others = Vec::new();
        for node in nodes {
            for held in &state.fleet.node(node).holds {
                let of = state.allocations.get(held);
                let of = of.map(|live| state.allocations.class(live.class));
                let looked_at = of.filter(|of| of.group().is_some_and(|it| groups.contains(&it)));
                if let (Some(of), Some(end)) = (looked_at, state.estimated_end(*held)) {
                    others.push((end, node, of));
                }
            }
        }
        others.sort_by_key(|(end, node, _)| (*end, *node));
        Self {
            state,
            now,
            wanted: Wanted {
                no: live.class,
                class,
                policy: seeker.policy,
            },
            seeker,
            others,
            left: RefCell::default(),
        }
    }

    /// Returns the first moment at which it may be on the node and there is room; `None` if that cannot be known. An allocation
    /// that runs longer than estimated counts as the next to end, so the moment may be past.
    fn free_from(&self, no: NodeNo) -> Option<Millis> {
        let state = self.state;
        let there = state.fleet.node(no);
        let capacity = state.fleet.capacity(no);
        // A node that is being cleared is promised already.
        let may = there.open()
            && there.nominees.is_empty()
            && keeps_off(capacity, self.wanted.class).is_none();
        if !may {
            return None;
        }
        if self.may_start(there, no, self.now, 0) {
            return Some(self.now);
        }
        let mut ends = BTreeMap::<Millis, Vec<AllocationNo>>::new();
        for held in &there.holds {
            if let Some(end) = state.estimated_end(*held) {
                ends.entry(end).or_default().push(*held);
            }
        }
        let mut moments: Vec<_> = self.others.iter().map(|(end, _, _)| *end).collect();
        moments.dedup();
        let unknown = moments.get(ENDS_MAX).copied();
        let reserved = state.reservations.moments_of(no);
        moments.extend(reserved.filter(|moment| *moment > self.now));
        for moment in moments {
            ends.entry(moment).or_default();
        }
        let mut node = there.clone();
        for (moment, held) in ends {
            if unknown.is_some_and(|unknown| unknown <= moment) {
                return None;
            }
            for held in held {
                let live = state.allocations.get(&held)?;
                let class = state.allocations.class(live.class);
                node.give_back(capacity, (held, class), &live.binding()?.taken);
            }
            let ended = self.others.partition_point(|(end, _, _)| *end <= moment);
            if self.may_start(&node, no, moment.max(self.now), ended) {
                return Some(moment);
            }
        }
        None
    }

    /// Returns whether it may start on `node` at that moment, when the first `ended` of `others` have ended.
    fn may_start(&self, node: &Node, no: NodeNo, at: Millis, ended: usize) -> bool {
        let state = self.state;
        let queues = state.waiting.queues();
        let ends = ends(at, self.seeker.run_time_ms);
        let capacity = state.fleet.capacity(no);
        state.fleet.value_of(node, capacity, &self.wanted).fits()
            && state
                .reservations
                .let_in(queues, &self.seeker, no, at, ends)
            && self.may_be_beside_others(no, ended)
    }

    /// Returns whether its rules about others allow the node when the first `ended` of `others` have ended.
    fn may_be_beside_others(&self, node: NodeNo, ended: usize) -> bool {
        let class = self.wanted.class;
        if !class.looks_at_others() {
            return true;
        }
        let mut left = self.left.borrow_mut();
        let left = left.entry(ended).or_insert_with(|| {
            let gone = self.others[..ended].iter();
            let moves = Moves {
                gone: gone.map(|(_, node, class)| (*node, *class)).collect(),
                ..Moves::default()
            };
            Others::of(&self.state.fleet, class, &moves)
        });
        left.keep_off(node).is_none()
    }
}

/// Returns the estimated end of a run that starts then; `None` without an estimate.
fn ends(starts: Millis, run_time_ms: u64) -> Option<Millis> {
    (run_time_ms > 0).then(|| Millis(starts.0.saturating_add_unsigned(run_time_ms)))
}

impl Scheduler {
    /// Returns the earliest moment at which a queued allocation fits on one of the first [`EARLIEST_NODES_MAX`] nodes that it may
    /// use, if running allocations end by their estimates and no other allocation is placed before it. `None` for a gang, if there
    /// is room now, and if no end is known that makes room: an allocation that runs longer than estimated may end at any time.
    pub fn earliest_start(&self, no: AllocationNo, now: Millis) -> Option<Millis> {
        let live = self.allocations.get(&no)?;
        if !matches!(live.phase, Phase::Queued(..)) {
            return None;
        }
        let forecast = StartForecast::of(self, no, live, now);
        let may_use = |node: &NodeNo| {
            let capacity = self.fleet.capacity(*node);
            self.fleet.node(*node).open() && keeps_off(capacity, forecast.wanted.class).is_none()
        };
        let nodes = self.fleet.all().filter(may_use).take(EARLIEST_NODES_MAX);
        let earliest = nodes.filter_map(|node| forecast.free_from(node)).min();
        earliest.filter(|at| *at > now)
    }

    /// Returns the estimated end of an allocation on a node; `None` without an estimate.
    pub(super) fn estimated_end(&self, no: AllocationNo) -> Option<Millis> {
        let live = self.allocations.get(&no)?;
        let binding = live.binding()?;
        ends(binding.started.unwrap_or(binding.placed), live.run_time_ms)
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
        let promised = self.allocations.class(promised.class);
        node.check(capacity, promised).is_ok() && self.leaves_it_alone(seeker, promise, promised)
    }

    /// Returns whether the promised allocation's rules still allow the node when `seeker` is there.
    fn leaves_it_alone(&self, seeker: &Seeker<'_>, promise: &Promise, promised: &Class) -> bool {
        let group = seeker.class.group();
        if !promised.groups_looked_at().any(|it| Some(it) == group) {
            return true;
        }
        let held = self.fleet.node(promise.node).holds.iter();
        let ended = held.filter(|no| {
            let end = self.estimated_end(**no);
            end.is_some_and(|end| end <= promise.from)
        });
        let gone = ended.filter_map(|no| {
            let class = self.allocations.get(no)?.class;
            Some((promise.node, self.allocations.class(class)))
        });
        let moves = Moves {
            gone: gone.collect(),
            come: vec![(promise.node, seeker.class)],
            ..Moves::default()
        };
        let others = Others::of(&self.fleet, promised, &moves);
        others.keep_off(promise.node).is_none()
    }
}
