//! Gangs: members that are placed together or not at all, and go together when one has to go.

use super::{
    Scheduler,
    allocation::{Phase, Stop},
    class::{Amounts, ClassNo, Shape, add, run_time_bits},
    queues::Key,
};
use ledger::Draft;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU64,
};
use vocab::fact::{AllocationPreempted, AllocationStopping};
use vocab::{AllocationNo, LineNo, PreemptionCause, Token};

/// Never 0, so that one who is in none needs no room to say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GangNo(NonZeroU64);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gang {
    tenant: Token,
    name: Token,
    size: u32,
    min: u32,
    uniform_label: Option<Token>,
    /// Not ended.
    members: BTreeSet<AllocationNo>,
    /// So many have finished: the others go on without them.
    finished: u32,
    /// Ready to be placed together.
    ready: BTreeSet<AllocationNo>,
    /// In line by themselves, beside those that run.
    alone: BTreeSet<AllocationNo>,
    /// Their quota was taken back: the others go on without them, if they are enough.
    without_quota: BTreeSet<AllocationNo>,
    /// On nodes.
    held: BTreeSet<AllocationNo>,
    /// All members were there once: from then on it is complete with those that have not ended.
    formed: bool,
    /// A member had to go: the others have to, before any can be placed again.
    broken: bool,
    /// Where it stands in line.
    unit: Option<(LineNo, Key)>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gangs {
    gangs: BTreeMap<GangNo, Gang>,
    /// The gang of that name that members still join.
    names: BTreeMap<(Token, Token), GangNo>,
    next: u64,
    /// Broken, with members that were not told to go.
    to_clear: BTreeSet<GangNo>,
}

impl Gang {
    /// So many have to run together. Who has finished is not missing; who was cancelled, or failed for good, is.
    fn needed(&self) -> usize {
        self.min.saturating_sub(self.finished).max(1) as usize
    }

    /// All who can be. Once it was complete, members whose quota was taken back are not waited for as long as the others
    /// are enough: they have quota that nobody else can use meanwhile.
    fn all_are_ready(&self) -> bool {
        let missing = self.members.len() - self.ready.len();
        let waits = missing == 0 || self.formed && missing == self.without_quota.len();
        waits && self.ready.len() >= self.needed()
    }
}

impl Gangs {
    /// A member more. A gang that has all its members is joined by no more: one of the same name is a new gang.
    pub fn join(&mut self, tenant: &Token, wanted: &vocab::Gang, no: AllocationNo) -> GangNo {
        let key = (tenant.clone(), wanted.name.clone());
        let open = self.names.get(&key).copied().filter(|gang| {
            let gang = &self.gangs.get(gang);
            gang.is_some_and(|gang| !gang.formed && gang.members.len() < gang.size as usize)
        });
        let gang = open.unwrap_or_else(|| {
            let no = GangNo(NonZeroU64::MIN.saturating_add(self.next));
            self.next += 1;
            let gang = Gang {
                tenant: key.0.clone(),
                name: key.1.clone(),
                size: wanted.size,
                min: wanted.min,
                uniform_label: wanted.uniform_label.clone(),
                members: BTreeSet::new(),
                finished: 0,
                ready: BTreeSet::new(),
                alone: BTreeSet::new(),
                without_quota: BTreeSet::new(),
                held: BTreeSet::new(),
                formed: false,
                broken: false,
                unit: None,
            };
            self.gangs.insert(no, gang);
            self.names.insert(key, no);
            no
        });
        if let Some(gang) = self.gangs.get_mut(&gang) {
            gang.members.insert(no);
        }
        gang
    }

    pub fn get(&self, gang: GangNo) -> Option<&Gang> {
        self.gangs.get(&gang)
    }

    /// Members of it are on nodes, and stay there.
    pub fn runs(&self, gang: GangNo) -> bool {
        self.get(gang)
            .is_some_and(|gang| !gang.held.is_empty() && !gang.broken)
    }

    pub fn ready(&mut self, gang: GangNo, no: AllocationNo) {
        if let Some(gang) = self.gangs.get_mut(&gang) {
            gang.ready.insert(no);
        }
    }

    pub fn without_quota(&mut self, gang: GangNo, no: AllocationNo) {
        if let Some(gang) = self.gangs.get_mut(&gang) {
            gang.without_quota.insert(no);
        }
    }

    pub fn has_quota(&mut self, gang: GangNo, no: AllocationNo) {
        if let Some(gang) = self.gangs.get_mut(&gang) {
            gang.without_quota.remove(&no);
        }
    }

    pub fn alone(&mut self, gang: GangNo, no: AllocationNo) {
        if let Some(gang) = self.gangs.get_mut(&gang) {
            gang.ready.remove(&no);
            gang.alone.insert(no);
        }
    }

    pub fn not_ready(&mut self, gang: GangNo, no: AllocationNo) {
        if let Some(gang) = self.gangs.get_mut(&gang) {
            gang.ready.remove(&no);
            gang.alone.remove(&no);
        }
    }

    /// Whether so many members may be placed where none runs.
    pub fn enough(&self, gang: GangNo, members: usize) -> bool {
        self.get(gang)
            .is_some_and(|gang| gang.held.is_empty() && members >= gang.needed())
    }

    /// Those that wait for the others.
    pub fn ready_members(&self, gang: GangNo) -> Vec<AllocationNo> {
        self.get(gang)
            .map_or_else(Vec::new, |gang| gang.ready.iter().copied().collect())
    }

    pub fn held(&mut self, gang: GangNo, no: AllocationNo) {
        if let Some(gang) = self.gangs.get_mut(&gang) {
            gang.ready.remove(&no);
            gang.held.insert(no);
        }
    }

    pub fn not_held(&mut self, no: GangNo, member: AllocationNo) {
        if let Some(gang) = self.gangs.get_mut(&no) {
            gang.held.remove(&member);
            if gang.held.is_empty() {
                gang.broken = false;
                self.to_clear.remove(&no);
            }
        }
    }

    pub fn broken(&mut self, no: GangNo) {
        if let Some(gang) = self.gangs.get_mut(&no)
            && !gang.held.is_empty()
        {
            gang.broken = true;
            self.to_clear.insert(no);
        }
    }

    pub fn leave(&mut self, no: GangNo, member: AllocationNo, finished: bool) {
        let Some(gang) = self.gangs.get_mut(&no) else {
            return;
        };
        gang.members.remove(&member);
        gang.finished += u32::from(finished);
        gang.without_quota.remove(&member);
        if gang.members.is_empty()
            && let Some(gang) = self.gangs.remove(&no)
        {
            let key = (gang.tenant, gang.name);
            if self.names.get(&key) == Some(&no) {
                self.names.remove(&key);
            }
        }
    }

    pub fn stands(&mut self, no: GangNo, unit: (LineNo, Key)) {
        if let Some(gang) = self.gangs.get_mut(&no) {
            gang.unit = Some(unit);
        }
    }

    /// Where it stands in line.
    pub fn unit(&self, gang: GangNo) -> Option<(LineNo, Key)> {
        self.get(gang)?.unit
    }

    pub fn line(&self, gang: GangNo) -> Option<LineNo> {
        self.unit(gang).map(|(line, _)| line)
    }

    pub fn uniform_label(&self, gang: GangNo) -> Option<&Token> {
        self.get(gang)?.uniform_label.as_ref()
    }

    /// The members that are on nodes.
    pub fn on_nodes(&self, gang: GangNo) -> impl Iterator<Item = AllocationNo> {
        self.get(gang)
            .into_iter()
            .flat_map(|gang| gang.held.iter().copied())
    }
}

impl Scheduler {
    /// Puts the gang in line if all its members are ready and none is on a node. Members of a gang that runs already join
    /// the queue one by one.
    pub(super) fn form(&mut self, no: GangNo) {
        self.disband(no);
        self.recall(no);
        let Some(gang) = self.gangs.gangs.get_mut(&no) else {
            return;
        };
        let complete = gang.formed || gang.members.len() >= gang.size as usize;
        if gang.ready.is_empty() || !complete {
            return;
        }
        if gang.all_are_ready() {
            let first_time = !std::mem::replace(&mut gang.formed, true);
            let (shape, asks) = self.shape(no);
            let queue = self.gangs.gangs[&no].ready.first();
            let queue = queue.and_then(|first| Some(self.live.get(first)?.queue));
            if let Some(queue) = queue.filter(|_| first_time) {
                self.arrives(&shape, queue);
            }
            self.join_as_gang(no, &shape, asks);
        } else if !gang.held.is_empty() && !gang.broken {
            let alone = std::mem::take(&mut gang.ready);
            for member in alone {
                self.queue_alone(member);
            }
        }
    }

    /// Once none runs any more, those that stood in line by themselves wait with the others again.
    fn recall(&mut self, no: GangNo) {
        if self.gangs.runs(no) {
            return;
        }
        let alone = self
            .gangs
            .get(no)
            .map_or_else(BTreeSet::new, |gang| gang.alone.clone());
        for member in alone {
            self.leave_waiting(member);
            if let Some(live) = self.live.get_mut(&member) {
                live.phase = Phase::InGang;
                self.gangs.ready(no, member);
            }
        }
    }

    /// Members by class, and what all of them ask for.
    fn shape(&self, no: GangNo) -> (Shape, Amounts) {
        let mut counts: BTreeMap<ClassNo, u32> = BTreeMap::new();
        let mut asks = Amounts::default();
        let mut longest = 0;
        let gang = &self.gangs.gangs[&no];
        for live in gang.ready.iter().filter_map(|member| self.live.get(member)) {
            *counts.entry(live.class).or_default() += 1;
            longest = longest.max(live.run_time_ms);
            add(&mut asks, &self.amounts(live));
        }
        let shape = Shape {
            // A gang's size is a u32, and what is ready is enough.
            min: gang.needed() as u32,
            members: counts.into_iter().collect(),
            uniform_label: gang.uniform_label.clone(),
            uniform_value: None,
            run_time_bits: run_time_bits(longest),
        };
        (shape, asks)
    }

    fn join_as_gang(&mut self, no: GangNo, shape: &Shape, asks: Amounts) {
        let first = self.gangs.gangs[&no].ready.first().copied();
        let Some((first, live)) = first.and_then(|first| Some((first, self.live.get(&first)?)))
        else {
            return;
        };
        let key = self.key(first, live, asks);
        let unit = self.join(first, shape, asks, key);
        if let Some(gang) = self.gangs.gangs.get_mut(&no) {
            gang.unit = Some(unit);
        }
    }

    /// Takes the gang out of its line.
    pub(super) fn disband(&mut self, no: GangNo) {
        let unit = self
            .gangs
            .gangs
            .get_mut(&no)
            .and_then(|gang| gang.unit.take());
        if let Some((line, key)) = unit {
            self.leave(line, key);
        }
    }

    /// The members of what stands in a line as `first`, in the order of their classes, of which there are so many.
    pub(super) fn unit(&self, first: AllocationNo, classes: usize) -> Vec<AllocationNo> {
        let live = self.live.get(&first);
        let gang = live
            .filter(|live| live.phase == Phase::InGang)
            .and_then(|live| live.gang);
        match gang.and_then(|gang| self.gangs.get(gang)) {
            Some(gang) => {
                let mut members: Vec<_> = gang.ready.iter().copied().collect();
                if classes > 1 {
                    members.sort_by_key(|no| (self.live.get(no).map(|live| live.class), *no));
                }
                members
            }
            None => vec![first],
        }
    }
}

/// Sends the rest of each broken gang after the member that had to go.
pub(super) fn decide(state: &mut Scheduler, draft: &mut Draft) {
    while let Some(no) = state.gangs.to_clear.first().copied() {
        if draft.full() {
            return;
        }
        let members: Vec<_> = state.gangs.on_nodes(no).collect();
        for member in members {
            let stop = state
                .live
                .get(&member)
                .and_then(|live| live.hold())
                .map(|hold| hold.stop);
            match stop {
                Some(None) => state.evict(member, PreemptionCause::Gang, None, draft),
                Some(Some(Stop::Cancelled | Stop::Preempted { .. })) | None => {}
            }
        }
    }
}

impl Scheduler {
    /// Once all of a broken gang that is on nodes has been told to go, nothing is left to decide for it.
    pub(super) fn settle(&mut self, no: GangNo) {
        let goes = |member| {
            let hold = self.live.get(&member).and_then(|live| live.hold());
            hold.is_none_or(|hold| hold.stop.is_some())
        };
        if self.gangs.on_nodes(no).all(goes) {
            self.gangs.to_clear.remove(&no);
        }
    }

    /// Makes an allocation go from its node, within its grace.
    pub(super) fn evict(
        &mut self,
        allocation: AllocationNo,
        cause: PreemptionCause,
        by: Option<AllocationNo>,
        draft: &mut Draft,
    ) {
        let class = self
            .live
            .get(&allocation)
            .and_then(|live| self.priority_class(live));
        let grace_ms = class.map_or(0, |class| class.grace_ms);
        let grace_until = vocab::Millis(draft.now.0.saturating_add_unsigned(grace_ms));
        let preempted = AllocationPreempted {
            allocation,
            cause,
            by,
            grace_until,
        };
        draft.emit(self, preempted);
        draft.emit(self, AllocationStopping { allocation });
    }
}
