//! Quota that was granted and is taken back: who has it leaves its pending group or its node, and waits for quota again. So does, after
//! a run, what counts on the model of its node: others may have the quota of the models that it could run on next.
//!
//! Quota waits for one fact that says so: `AllocationWaiting` with this reason, or `AllocationEnded`. That a run is over and
//! queued again (`AllocationRequeued`) does not say it: it may have been decided before this service knew that quota is
//! taken back, and the next run with it.
//!
//! On a node it is preempted like others, but that does not count against the limit on preemptions: what is lent has to come
//! back. The fellows of a gang's member stay if they are enough; otherwise it takes them along. They keep their quota, and once none of them runs they go on without
//! it if they are enough; it joins them when it has quota again. A gang that needs it waits: what its members hold can be
//! taken back from each of them in the same way.

use super::{Scheduler, allocation::Phase, gang::GangNo, preempt::Epoch};
use ledger::{Draft, IllegalEvent};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};
use vocab::fact::AllocationWaiting;
use vocab::{
    AllocationNo, Millis, ModelGrant, PreemptionCause, WaitingReason,
    sabotage::{self, Bug},
};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reclaims {
    /// For whose sake. Until it waits for quota, or has ended.
    of: BTreeMap<AllocationNo, Option<AllocationNo>>,
    /// Those about which something is to be decided: they are on no node, or nothing stops them there.
    open: BTreeSet<AllocationNo>,
}

impl Reclaims {
    /// It stops already. When that is over, it will wait for quota.
    pub fn stops(&mut self, no: AllocationNo) {
        self.open.remove(&no);
    }

    /// Its run is over. Whether it waits for quota now, which is still to be said.
    pub fn stopped(&mut self, no: AllocationNo, asks_again: bool) -> bool {
        if asks_again && !sabotage::armed(Bug::ModelQuotaKept) {
            self.of.entry(no).or_insert(None);
        }
        let waits = self.of.contains_key(&no);
        if waits {
            self.open.insert(no);
        }
        waits
    }

    /// There is nothing to be taken back any more; whether there was.
    pub fn over(&mut self, no: AllocationNo) -> bool {
        self.open.remove(&no);
        self.of.remove(&no).is_some()
    }
}

impl Scheduler {
    pub(super) fn quota_reclaimed(&mut self, no: AllocationNo, by: Option<AllocationNo>) {
        let Some(live) = self.allocations.get(&no) else {
            return;
        };
        if matches!(live.phase, Phase::AwaitingQuota(_)) && !self.reclaims.of.contains_key(&no) {
            // It has given it up already.
            return;
        }
        let stops = live.binding().is_some_and(|binding| binding.stop.is_some());
        self.reclaims.of.entry(no).or_insert(by);
        if !stops {
            self.reclaims.open.insert(no);
        }
    }

    /// Quota may come to hold for an allocation that was cancelled meanwhile; there is nothing to queue then. Whoever has
    /// quota again loses nothing by what was taken back before.
    pub(super) fn quota_reserved(&mut self, no: AllocationNo, models: Option<&ModelGrant>) {
        self.reclaims.over(no);
        let Some(live) = self.allocations.get_mut(&no) else {
            return;
        };
        let Phase::AwaitingQuota(pause) = live.phase else {
            return;
        };
        let again = std::mem::replace(&mut live.by_model, models.is_some());
        // It waits in no pending group.
        let except = models.map_or(&[][..], |models| &models.except);
        if let Some(class) = self.allocations.except_models(no, except) {
            self.fleet.forget(class);
        }
        let Some(live) = self.allocations.get_mut(&no) else {
            return;
        };
        let (class, queue) = (live.class, live.queue);
        match live.gang {
            Some(gang) => self.waiting.gangs_mut().has_quota(gang, no),
            None => self.arrives(class, queue),
        }
        let Some(live) = self.allocations.get_mut(&no) else {
            return;
        };
        if !again {
            // What asks again after each run comes from what was decided here.
            self.epoch = Epoch::default();
        }
        // Whether it is over is seen by this writer's own clock, in the same frame.
        match pause {
            Some(until) => {
                live.phase = Phase::Pausing(until);
                self.waiting.pause(no, until);
                self.waiting.tell([no]);
            }
            None => self.queue(no),
        }
    }

    /// It leaves wherever it waits for a place.
    pub(super) fn awaits_quota_again(
        &mut self,
        no: AllocationNo,
        now: Millis,
        event: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        let illegal = |state| IllegalEvent::new(state, event);
        let live = self.allocations.get(&no);
        let live = live.ok_or_else(|| illegal("no such allocation"))?;
        let (pause, promised) = match live.phase {
            Phase::Pausing(until) => (Some(until), false),
            Phase::AwaitingQuota(pause) => (pause, false),
            Phase::AwaitingOthers | Phase::Queued(..) | Phase::InGang => (None, false),
            Phase::Nominated(_) => (None, true),
            Phase::Held(_) => return Err(illegal("it is on a node")),
        };
        let (queue, gang, used) = (
            live.queue,
            live.gang,
            self.allocations.used(live, &self.settings),
        );
        if !self.reclaims.over(no) {
            return Err(illegal("nothing was taken back"));
        }
        let stood = gang.filter(|gang| self.waiting.gangs().unit(*gang).is_some());
        self.leave_waiting(no);
        if promised {
            self.waiting.release(queue, &used, now, &self.settings);
        }
        self.waiting.is_told(no);
        self.await_quota(no, pause);
        if let Some(gang) = gang {
            self.form(gang);
        }
        if let Some(gang) = stood {
            // They stand in another pending group by now, or in none.
            let members = self.waiting.gangs().ready_members(gang);
            self.waiting.tell(members);
        }
        Ok(())
    }

    /// From here on it waits for quota, and then for the end of the pause. The caller has taken it out of everything else,
    /// and forms its gang anew.
    pub(super) fn await_quota(&mut self, no: AllocationNo, pause: Option<Millis>) {
        let Some(live) = self.allocations.get_mut(&no) else {
            return;
        };
        live.phase = Phase::AwaitingQuota(pause);
        if let Some(gang) = live.gang {
            self.waiting.gangs_mut().without_quota(gang, no);
        }
    }

    /// Whether it goes because quota is taken back, from itself or from another of its gang.
    pub(super) fn goes_for_quota(&self, cause: PreemptionCause, gang: Option<GangNo>) -> bool {
        match (cause, gang) {
            (PreemptionCause::Quota, _) => true,
            (PreemptionCause::Gang, Some(gang)) if !self.reclaims.of.is_empty() => {
                let mut fellows = self.waiting.gangs().on_nodes(gang);
                fellows.any(|no| self.reclaims.of.contains_key(&no))
            }
            (
                PreemptionCause::Gang
                | PreemptionCause::Priority
                | PreemptionCause::FairShare
                | PreemptionCause::Reservation
                | PreemptionCause::Drain
                | PreemptionCause::Taint,
                _,
            ) => false,
        }
    }
}

pub(super) fn decide(state: &mut Scheduler, draft: &mut Draft) {
    while let Some(allocation) = state.reclaims.open.first().copied() {
        if draft.full() {
            return;
        }
        let on_node = state
            .allocations
            .get(&allocation)
            .map(|live| live.binding().is_some());
        match on_node {
            Some(true) => {
                let by = state.reclaims.of.get(&allocation).copied().flatten();
                state.evict(allocation, PreemptionCause::Quota, by, draft);
            }
            Some(false) => {
                let waiting = AllocationWaiting {
                    allocation,
                    reason: WaitingReason::Quota,
                    pending_group: None,
                };
                draft.emit(state, waiting);
            }
            // Whoever ends is taken out.
            None => return,
        }
    }
}
