//! What is placed at once: one allocation, or the members of a gang, which are placed together or not at all, and go together
//! when one has to go and those who stay are too few.

use super::{
    Scheduler,
    allocation::{Binding, Live, Phase},
    class::{Amounts, ClassNo, SchedulingKey, add, run_time_bits},
    gang::{Formation, Gang, GangNo},
};
use ledger::Draft;
use std::collections::BTreeMap;
use vocab::fact::{AllocationPreempted, AllocationStopping};
use vocab::{AllocationNo, PreemptionCause, WaitingReason};

impl Scheduler {
    /// Puts the gang in line if all its members are ready and none is on a node. Members of a gang that runs already join
    /// the queue one by one.
    pub(super) fn form(&mut self, no: GangNo) {
        let stood = self.waiting.gangs().unit(no).is_some();
        self.disband(no);
        self.recall(no);
        match self.waiting.gangs_mut().form(no) {
            Formation::Waits if stood => self.tell_gang(no),
            Formation::Waits => {}
            Formation::Together { first_time } => {
                self.join_as_gang(no, first_time);
                self.tell_gang(no);
            }
            Formation::Alone(members) => {
                for member in members {
                    self.queue_alone(member);
                }
            }
        }
    }

    /// Schedules a report to each ready member: of the gang's pending group, or of the reason why it has none.
    pub(super) fn tell_gang(&mut self, no: GangNo) {
        let members = self.waiting.gangs().ready_members(no);
        self.waiting.tell(members);
    }

    /// Returns why the members of a gang without a pending group wait.
    pub(super) fn gang_waits_for(&self, no: GangNo) -> WaitingReason {
        let gang = self.waiting.gangs().get(no);
        let mut members = gang.into_iter().flat_map(Gang::members);
        let nominated = |no| {
            let live = self.allocations.get(&no);
            live.is_some_and(|live| matches!(live.phase, Phase::Nominated(_)))
        };
        let any = !self.allocations.nominated().is_empty() && members.any(nominated);
        match any {
            // Nodes are being cleared for other members, and there was room for no more.
            true => WaitingReason::GangNoRoom,
            false => WaitingReason::GangIncomplete,
        }
    }

    /// Once none runs any more, those that stood in line by themselves wait with the others again.
    fn recall(&mut self, no: GangNo) {
        for member in self.waiting.gangs().to_recall(no) {
            self.leave_waiting(member);
            if let Some(live) = self.allocations.get_mut(&member) {
                live.phase = Phase::InGang;
                self.waiting.gangs_mut().ready(no, member);
                self.waiting.tell([member]);
            }
        }
    }

    /// Members by class, and what all of them ask for.
    fn scheduling_key(&self, gang: &Gang) -> (SchedulingKey, Amounts) {
        let mut counts: BTreeMap<ClassNo, u32> = BTreeMap::new();
        let mut asks = Amounts::default();
        let mut longest = 0;
        let ready = gang.ready().iter();
        for live in ready.filter_map(|member| self.allocations.get(member)) {
            *counts.entry(live.class).or_default() += 1;
            longest = longest.max(live.run_time_ms);
            add(&mut asks, &self.allocations.amounts(live));
        }
        let scheduling_key = SchedulingKey {
            // A gang's size is a u32, and what is ready is enough.
            min: gang.needed() as u32,
            members: counts.into_iter().collect(),
            uniform_label: gang.uniform_label().cloned(),
            uniform_value: None,
            run_time_bits: run_time_bits(longest),
        };
        (scheduling_key, asks)
    }

    fn join_as_gang(&mut self, no: GangNo, first_time: bool) {
        let Some(gang) = self.waiting.gangs().get(no) else {
            return;
        };
        let (scheduling_key, asks) = self.scheduling_key(gang);
        let first = gang.ready().first().copied();
        let Some((first, live)) =
            first.and_then(|first| Some((first, self.allocations.get(&first)?)))
        else {
            return;
        };
        let (queue, priority_class) = (live.queue, live.priority_class);
        let key = self.waiting.key(first, live, asks, &self.settings);
        if first_time {
            self.gang_arrives(&scheduling_key, queue);
        }
        let unit = self
            .waiting
            .join((queue, priority_class), &scheduling_key, asks, key);
        self.waiting.gangs_mut().stands(no, unit);
    }

    /// Takes the gang out of its pending group.
    pub(super) fn disband(&mut self, no: GangNo) {
        if let Some((pending_group, key)) = self.waiting.gangs_mut().take_unit(no) {
            self.waiting.leave(pending_group, key);
        }
    }
}

/// Sends the rest of each broken gang after the member that had to go.
pub(super) fn decide(state: &mut Scheduler, draft: &mut Draft) {
    while let Some(no) = state.waiting.gangs().first_to_clear() {
        if draft.full() {
            return;
        }
        let members: Vec<_> = state.waiting.gangs().on_nodes(no).collect();
        for member in members {
            let live = state.allocations.get(&member);
            if live.and_then(Live::binding).is_some_and(Binding::stays) {
                state.evict(member, PreemptionCause::Gang, None, draft);
            }
        }
    }
}

impl Scheduler {
    /// Counts the members that are on nodes and that nothing stops.
    fn staying(&self, no: GangNo) -> usize {
        let stays = |member: &AllocationNo| {
            let live = self.allocations.get(member);
            live.and_then(Live::binding).is_some_and(Binding::stays)
        };
        self.waiting.gangs().on_nodes(no).filter(stays).count()
    }

    /// A member has to go from its node, or is queued again: its fellows follow unless those who stay are enough.
    pub(super) fn loses(&mut self, no: GangNo) {
        let needed = self.waiting.gangs().get(no).map_or(0, Gang::needed);
        if self.staying(no) < needed {
            self.waiting.gangs_mut().broken(no);
        }
    }

    /// Nothing is left to decide for a broken gang once all of it that is on nodes has been told to go, or once those who
    /// stay are enough because others have finished.
    pub(super) fn settle(&mut self, no: GangNo) {
        let staying = self.staying(no);
        let needed = self.waiting.gangs().get(no).map_or(0, Gang::needed);
        if staying == 0 {
            self.waiting.gangs_mut().cleared(no);
        } else if staying >= needed {
            self.waiting.gangs_mut().mended(no);
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
            .allocations
            .get(&allocation)
            .and_then(|live| self.settings.class(live.priority_class));
        let grace_ms = class.map_or(0, |class| class.grace_ms);
        let grace_until = vocab::Millis(draft.now.0.saturating_add_unsigned(grace_ms));
        let preempted = AllocationPreempted {
            allocation,
            cause,
            by,
            grace_until,
        };
        draft.emit(self, preempted);
        draft.emit(
            self,
            AllocationStopping {
                allocation,
                time_limit: false,
            },
        );
    }
}
