//! What is passed over, and what has to change before it is worth another try. Only saves work.

use super::Waiting;
use crate::{
    allocation::Allocations,
    class::{SchedulingKey, SchedulingKeyNo},
    fair::Share,
    fleet::{Fleet, KindNo, Node, NodeNo, Regrouped, most_on},
    queues::PendingGroup,
    sweep::Sweep,
};
use std::collections::{BTreeMap, BTreeSet};
use vocab::{
    AllocationNo, Millis, PendingGroupNo, Token, WaitingReason,
    sabotage::{self, Bug},
};

#[derive(Debug, Default)]
pub struct Blocked {
    /// Scheduling keys that there is no room for.
    scheduling_keys: BTreeMap<SchedulingKeyNo, Short>,
    /// Pending groups that are passed over by themselves: for a limit of a queue, or while nodes are reserved for some queues.
    pending_groups: BTreeSet<PendingGroupNo>,
    /// Scheduling keys do not tell who may be placed: pending groups are tried each by itself.
    one_by_one: bool,
    promise: Option<Promise>,
    /// What was last explained of a scheduling key, and when.
    explained: BTreeMap<SchedulingKeyNo, (WaitingReason, Millis)>,
    /// Pending groups to be explained.
    unexplained: BTreeSet<PendingGroupNo>,
    /// Who could be made to go for whom.
    pub sweep: Sweep,
    /// Pending groups whose heads could come, if more might go in a minute.
    rate_limited: BTreeSet<PendingGroupNo>,
    /// Scheduling keys that the fleet could not hold if it were empty, and the fleet's composition then.
    hopeless: (Option<u64>, BTreeMap<SchedulingKeyNo, bool>),
}

/// Why there are no places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Short {
    pub reason: WaitingReason,
    /// So many members must find room.
    pub min: u32,
    /// How many of them could find room on which node, at the most.
    pub room: BTreeMap<NodeNo, u32>,
}

impl Short {
    pub fn of(reason: WaitingReason) -> Self {
        Self {
            reason,
            min: 1,
            room: BTreeMap::new(),
        }
    }

    /// The node has room for so many now; whether that may be enough, all in all.
    fn gained(&mut self, node: NodeNo, members: u32) -> bool {
        self.room.insert(node, members);
        let room: u64 = self.room.values().map(|members| u64::from(*members)).sum();
        room >= u64::from(self.min)
    }
}

/// The earliest place that the first who does not fit can have by the run-time estimates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promise {
    pub to: AllocationNo,
    pub node: NodeNo,
    pub from: Millis,
}

/// What waits for an unchanged reason is explained again, with new numbers, no more often than this.
pub const AGAIN_MS: i64 = 60_000;

impl Blocked {
    pub fn new_pending_group(&mut self, pending_group: PendingGroupNo) {
        self.unexplained.insert(pending_group);
    }

    pub fn forget(&mut self, pending_group: PendingGroupNo) {
        self.pending_groups.remove(&pending_group);
        self.unexplained.remove(&pending_group);
        self.rate_limited.remove(&pending_group);
    }

    pub fn any_rate_limited(&self) -> bool {
        !self.rate_limited.is_empty()
    }

    pub fn is_hopeless(&self, scheduling_key: SchedulingKeyNo) -> bool {
        let hopeless = self.hopeless.1.get(&scheduling_key);
        hopeless.copied().unwrap_or(false)
    }

    pub fn forget_scheduling_key(&mut self, scheduling_key: SchedulingKeyNo) {
        self.scheduling_keys.remove(&scheduling_key);
        self.explained.remove(&scheduling_key);
        self.hopeless.1.remove(&scheduling_key);
        self.sweep.forget(scheduling_key);
    }
}

impl Waiting {
    // --- passed over

    /// The pending group's head was tried in vain.
    pub fn block(
        &mut self,
        no: PendingGroupNo,
        scheduling_key: SchedulingKeyNo,
        short: Short,
        now: Millis,
    ) {
        let limited = matches!(
            short.reason,
            WaitingReason::QueueLimit | WaitingReason::OverLimit
        );
        if limited || self.blocked.one_by_one {
            self.queues.block(no, short.reason);
            self.blocked.pending_groups.insert(no);
            self.blocked.unexplained.insert(no);
            self.sweep_too(no);
            return;
        }
        let said = short.reason;
        self.queues.close(scheduling_key);
        self.blocked.scheduling_keys.insert(scheduling_key, short);
        if self.blocked.sweep.takes(scheduling_key) {
            let of_scheduling_key = self.queues.by_scheduling_key().get(&scheduling_key);
            for pending_group in of_scheduling_key.cloned().into_iter().flatten() {
                self.sweep_too(pending_group);
            }
        }
        let news = self
            .blocked
            .explained
            .get(&scheduling_key)
            .is_none_or(|(reason, at)| *reason != said || now.since(*at) >= AGAIN_MS);
        if news {
            self.blocked.explained.insert(scheduling_key, (said, now));
            let of_scheduling_key = self.queues.by_scheduling_key().get(&scheduling_key);
            self.blocked
                .0
                .unexplained
                .extend(of_scheduling_key.into_iter().flatten());
        }
    }

    /// Whether a limit of its queue, or of one above, keeps the pending group's head from being placed.
    pub fn block_if_limited(&mut self, no: PendingGroupNo, now: Millis) -> bool {
        let Some(pending_group) = self.queues.pending_group(no) else {
            return false;
        };
        let (queue, scheduling_key, asks) = (
            pending_group.key.queue,
            pending_group.key.scheduling_key,
            pending_group.asks,
        );
        if self.queues.limited_by(queue, &asks).is_none() {
            return false;
        }
        let reason = if self.queues.ever(queue, &asks) {
            WaitingReason::QueueLimit
        } else {
            WaitingReason::OverLimit
        };
        self.block(no, scheduling_key, Short::of(reason), now);
        true
    }

    /// Passes over all pending groups that a limit keeps from being placed.
    pub fn block_all_limited(&mut self, now: Millis) {
        if self.queues.any_limits() {
            let pending_groups: Vec<_> = self
                .queues
                .pending_groups()
                .map(|pending_group| pending_group.no)
                .collect();
            for pending_group in pending_groups {
                self.block_if_limited(pending_group, now);
            }
        }
    }

    /// Why a pending group is passed over; none when it may be tried.
    pub fn block_of(&self, pending_group: &PendingGroup) -> Option<WaitingReason> {
        let of_scheduling_key = || {
            self.blocked
                .scheduling_keys
                .get(&pending_group.key.scheduling_key)
                .map(|short| short.reason)
        };
        pending_group.blocked.or_else(of_scheduling_key)
    }

    /// A pending group of each kind that may be tried, with its scheduling key.
    pub fn scheduling_keys_to_try(&mut self) -> Vec<(PendingGroupNo, SchedulingKeyNo)> {
        if self.blocked.one_by_one {
            let free = self
                .queues
                .pending_groups()
                .filter(|pending_group| pending_group.blocked.is_none());
            return free
                .map(|pending_group| (pending_group.no, pending_group.key.scheduling_key))
                .collect();
        }
        let blocked = &self.blocked.0.scheduling_keys;
        let by_scheduling_key = self.queues.by_scheduling_key().iter();
        let open =
            by_scheduling_key.filter(|(scheduling_key, _)| !blocked.contains_key(scheduling_key));
        open.filter_map(|(scheduling_key, pending_groups)| {
            Some((*pending_groups.first()?, *scheduling_key))
        })
        .collect()
    }

    /// All pending groups that may be tried.
    pub fn pending_groups_to_try(&mut self) -> Vec<PendingGroupNo> {
        let blocked = &self.blocked.0.scheduling_keys;
        let by_scheduling_key = self.queues.by_scheduling_key().iter();
        let open =
            by_scheduling_key.filter(|(scheduling_key, _)| !blocked.contains_key(scheduling_key));
        let mut pending_groups: Vec<_> = open
            .flat_map(|(_, pending_groups)| pending_groups.iter().copied())
            .collect();
        pending_groups.retain(|no| {
            self.queues
                .pending_group(*no)
                .is_some_and(|pending_group| self.block_of(pending_group).is_none())
        });
        pending_groups
    }

    /// Who may go to the nodes that are set aside is different for each pending group. When that changes, all are tried again.
    /// Returns whether it changed.
    pub fn promise(&mut self, promise: Option<Promise>, one_by_one: bool) -> bool {
        if self.blocked.one_by_one == one_by_one && self.blocked.promise == promise {
            return false;
        }
        self.blocked.one_by_one = one_by_one;
        self.blocked.promise = promise;
        self.blocked.sweep.anew();
        self.blocked.scheduling_keys.clear();
        self.blocked.pending_groups.clear();
        self.queues.free_all();
        true
    }

    pub fn promised(&self, node: NodeNo) -> bool {
        self.blocked
            .promise
            .is_some_and(|promise| promise.node == node)
    }

    // --- tried again

    /// Everything is worth another try.
    pub fn try_everything(&mut self) {
        self.queues.free_all();
        *self.blocked = Blocked::default();
    }

    /// Pending groups that are passed over by themselves are tried again if their queues hold less, or there is more room; but
    /// not those for which there never is.
    pub fn free_pending_groups(
        &mut self,
        room_gained: bool,
        fleet: &Fleet,
        allocations: &Allocations,
    ) {
        if !self.queues.take_released() && !room_gained {
            return;
        }
        self.look_for_hopeless(fleet, allocations);
        for no in std::mem::take(&mut self.blocked.pending_groups) {
            let still = self.queues.pending_group(no).is_some_and(|pending_group| {
                let for_room = matches!(
                    *pending_group.blocked,
                    Some(WaitingReason::NoRoomNow | WaitingReason::GangNoRoom)
                );
                let limited = || {
                    self.queues
                        .limited_by(pending_group.key.queue, &pending_group.asks)
                        .is_some()
                };
                for_room && self.is_hopeless(pending_group.key.scheduling_key) || limited()
            });
            if still {
                self.blocked.pending_groups.insert(no);
            } else {
                self.queues.free(no);
                // There may be no room for it either, which was not said of it yet.
                self.blocked.unexplained.insert(no);
            }
        }
    }

    /// There are other nodes: what was found of the old ones says little.
    pub fn open_all(&mut self) {
        for scheduling_key in std::mem::take(&mut self.blocked.scheduling_keys).keys() {
            self.queues.open(*scheduling_key);
        }
    }

    /// There is more room on these nodes.
    pub fn open_on(&mut self, nodes: &[NodeNo], fleet: &Fleet, allocations: &Allocations) {
        let mut scheduling_keys = std::mem::take(&mut self.blocked.scheduling_keys);
        scheduling_keys.retain(|scheduling_key, short| {
            let enough = is_enough(
                self.scheduling_key(*scheduling_key),
                nodes,
                short,
                (fleet, allocations),
            );
            if enough {
                self.queues.open(*scheduling_key);
            }
            !enough
        });
        self.blocked.scheduling_keys = scheduling_keys;
    }

    /// Whoever looks at these groups, or is of one that nominees may let in, is tried again.
    pub fn open_concerned(&mut self, regrouped: &Regrouped, allocations: &Allocations) {
        if regrouped.is_empty() {
            return;
        }
        // Members that have come or gone may change whether a scheduling key could ever be placed.
        let mut hopeless = std::mem::take(&mut self.blocked.hopeless.1);
        hopeless.retain(|no, _| !concerns(regrouped, self.scheduling_key(*no), allocations));
        self.blocked.hopeless.1 = hopeless;
        let mut scheduling_keys = std::mem::take(&mut self.blocked.scheduling_keys);
        scheduling_keys.retain(|scheduling_key, _| {
            let concerned = concerns(regrouped, self.scheduling_key(*scheduling_key), allocations);
            if concerned {
                self.queues.open(*scheduling_key);
            }
            !concerned
        });
        self.blocked.scheduling_keys = scheduling_keys;
    }

    /// The same, where pending groups are tried each by itself.
    pub fn free_concerned(&mut self, regrouped: &Regrouped, allocations: &Allocations) {
        if !self.blocked.one_by_one {
            return;
        }
        let pending_groups: Vec<_> = self.blocked.pending_groups.iter().copied().collect();
        for no in pending_groups {
            let concerned = self.queues.pending_group(no).is_some_and(|pending_group| {
                pending_group.blocked.is_some()
                    && concerns(
                        regrouped,
                        self.scheduling_key(pending_group.key.scheduling_key),
                        allocations,
                    )
            });
            if concerned {
                self.blocked.pending_groups.remove(&no);
                self.queues.free(no);
                self.blocked.unexplained.insert(no);
            }
        }
    }

    // --- explained

    /// The next pending group to be explained.
    pub fn first_unexplained(&self) -> Option<PendingGroupNo> {
        self.blocked.unexplained.first().copied()
    }

    pub fn is_explained(&mut self, pending_group: PendingGroupNo) {
        self.blocked.unexplained.remove(&pending_group);
    }

    /// There may be another reason for each pending group.
    pub fn explain_all(&mut self) {
        let pending_groups = self
            .queues
            .pending_groups()
            .map(|pending_group| pending_group.no);
        self.blocked.0.unexplained.extend(pending_groups);
    }

    // --- who may preempt

    /// Who could be made to go for whom is another matter now.
    pub fn sweep_anew(&mut self) {
        self.blocked.sweep.anew();
    }

    /// Whether the pending group could preempt is to be seen.
    pub(super) fn sweep_too(&mut self, pending_group: PendingGroupNo) {
        if let Some(head) = self
            .queues
            .pending_group(pending_group)
            .and_then(PendingGroup::head)
        {
            self.blocked.sweep.add(head, pending_group);
        }
    }

    /// For as long as it goes on; it is put back then.
    pub fn take_sweep(&mut self) -> Sweep {
        std::mem::take(&mut self.blocked.sweep)
    }

    pub fn put_sweep(&mut self, sweep: Sweep) {
        self.blocked.sweep = sweep;
    }

    /// Whether the limit on preemptions is all that keeps the pending group's head from coming; what changes is explained.
    pub fn rate_limits(&mut self, pending_group: PendingGroupNo, limited: bool) {
        let changed = match limited {
            true => self.blocked.rate_limited.insert(pending_group),
            false => self.blocked.rate_limited.remove(&pending_group),
        };
        if changed {
            self.blocked.unexplained.insert(pending_group);
        }
    }

    /// Nobody preempts any more.
    pub fn rate_limits_nobody(&mut self) {
        for pending_group in std::mem::take(&mut self.blocked.rate_limited) {
            self.blocked.unexplained.insert(pending_group);
        }
    }

    pub fn is_rate_limited(&self, pending_group: PendingGroupNo) -> bool {
        self.blocked.rate_limited.contains(&pending_group)
    }

    pub fn any_rate_limited(&self) -> bool {
        self.blocked.any_rate_limited()
    }

    /// Whether the fleet could not hold it if it were empty, as far as that was looked for.
    pub fn is_hopeless(&self, scheduling_key: SchedulingKeyNo) -> bool {
        self.blocked.is_hopeless(scheduling_key)
    }

    // --- shares

    /// What each queue is due, for what is in it itself.
    pub fn fair_shares(&mut self, fleet: &Fleet, allocations: &Allocations) -> Vec<Share> {
        self.look_for_hopeless(fleet, allocations);
        let counts = sabotage::armed(Bug::ImpossibleDemandCounts);
        let hopeless = |scheduling_key| !counts && self.blocked.0.is_hopeless(scheduling_key);
        let impossible = self.queues.impossible(hopeless);
        self.queues.fair_shares(fleet.totals(), &impossible)
    }

    /// Finds out of each scheduling key in line whether the fleet could hold it.
    pub(super) fn look_for_hopeless(&mut self, fleet: &Fleet, allocations: &Allocations) {
        let composition = Some(fleet.composition());
        if self.blocked.hopeless.0 != composition {
            self.blocked.hopeless = (composition, BTreeMap::new());
        }
        let known = &self.blocked.0.hopeless.1;
        let in_line = self.queues.by_scheduling_key().keys();
        let unknown: Vec<_> = in_line
            .filter(|no| !known.contains_key(no))
            .copied()
            .collect();
        if unknown.is_empty() {
            return;
        }
        let nodes = Counted {
            kinds: fleet.by_kind(),
            counts: Node::open,
        };
        for no in unknown {
            let scheduling_key = self.scheduling_key(no);
            let hopeless = !could_ever_fit(scheduling_key, &nodes, fleet, allocations);
            self.blocked.hopeless.1.insert(no, hopeless);
        }
    }
}

/// Nodes by kind, and which of them count.
pub struct Counted {
    pub kinds: Vec<(KindNo, u32, u32)>,
    /// Condition for a node to be counted in the last number of each kind.
    pub counts: fn(&Node) -> bool,
}

/// Returns whether the counted nodes could hold the scheduling key if only the groups in its affinity were there, by numbers alone.
pub fn could_ever_fit(
    scheduling_key: &SchedulingKey,
    nodes: &Counted,
    fleet: &Fleet,
    allocations: &Allocations,
) -> bool {
    let open = nodes.kinds.iter().filter(|(_, _, open)| *open > 0);
    let members = scheduling_key.members.iter();
    let near = members.map(|(class_no, _)| {
        let others = scheduling_key.members.iter();
        let others = others.filter(|(other, _)| other != class_no);
        let fellows: Vec<_> = others.map(|(no, _)| allocations.class(*no)).collect();
        fleet.near_by_kind(allocations.class(*class_no), &fellows, nodes.counts)
    });
    let near: Vec<_> = near.collect();
    let fits = |of_value: &dyn Fn(KindNo) -> bool| {
        let mut members = 0u64;
        for ((class, count), near) in scheduling_key.members.iter().zip(&near) {
            let class = allocations.class(*class);
            let places = open.clone().filter(|(kind, _, _)| of_value(*kind));
            let places = places.map(|(kind, _, open)| {
                let near = near.as_ref().map(|near| near.get(kind).copied());
                let nodes = near.map_or(*open, Option::unwrap_or_default);
                most_on(fleet.kind(*kind), class).saturating_mul(u64::from(nodes))
            });
            let places = places.fold(0u64, u64::saturating_add);
            members += places.min(u64::from(*count));
        }
        members > 0 && members >= u64::from(scheduling_key.min)
    };
    let Some(label) = &scheduling_key.uniform_label else {
        return fits(&|_| true);
    };
    let mut values: Vec<_> = fleet.label_values(label);
    if let Some(value) = &scheduling_key.uniform_value {
        values.retain(|other| other == value);
    }
    values
        .iter()
        .any(|value| fits(&|kind| fleet.kind(kind).label(label.as_str()) == Some(value)))
}

/// Whether the scheduling key's members look at a group that has changed, or are of one that nominees may let in.
fn concerns(
    regrouped: &Regrouped,
    scheduling_key: &SchedulingKey,
    allocations: &Allocations,
) -> bool {
    let members = scheduling_key.members.iter();
    let mut classes = members.map(|(class, _)| allocations.class(*class));
    classes.any(|class| {
        let of = |(tenant, group): (&Token, &Token)| {
            let group = (tenant.clone(), group.clone());
            regrouped.let_in.contains(&group)
        };
        class.looks_at(&regrouped.moved)
            || !regrouped.let_in.is_empty() && class.group().is_some_and(of)
    })
}

/// Whether, with what there is on these nodes now, all members that have to may find room.
fn is_enough(
    scheduling_key: &SchedulingKey,
    nodes: &[NodeNo],
    short: &mut Short,
    (fleet, allocations): (&Fleet, &Allocations),
) -> bool {
    // Where members differ, room on one node may make room for another member on another.
    let differ = scheduling_key.members.len() > 1;
    nodes.iter().any(|no| {
        let node = fleet.node(*no);
        if !node.open() {
            return false;
        }
        let members = scheduling_key.members.iter();
        let classes = members.map(|(class, _)| allocations.class(*class));
        let room = classes.map(|class| node.room_for(fleet.capacity(*no), class));
        let room = room.max().unwrap_or(0);
        room > 0 && (short.gained(*no, room) || differ)
    })
}
