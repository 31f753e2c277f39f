//! The scheduler's rules: who is placed where, when, and why not yet. Pure; one file per subject.

mod allocation;
mod aside;
mod asked;
pub mod backfill;
mod class;
mod deadlines;
mod depend;
mod drain;
mod end;
mod explain;
pub mod fair;
mod figures;
mod fleet;
mod gang;
mod interner;
pub mod interval;
mod job_sets;
mod levels;
mod life;
mod operator;
pub mod order;
mod pace;
mod pause;
mod place;
mod preempt;
mod queues;
mod reclaim;
mod reserve;
pub mod scoring;
mod seeker;
mod settings;
mod sweep;
pub mod topology;
mod trial;
mod unblock;
mod unit;
mod waiting;
pub mod what_if;
mod work;

pub use allocation::{Binding, Live, Phase, Stop};
pub use class::Amounts;
pub use figures::METRICS;
pub use fleet::{Node, NodeNo};
pub use named_resources::{
    Bounds, Config, LeaseView, Named, ResourceState, ResourceView, Space, UnfitBound,
};
pub use trial::{Candidates, Standing, Trial, WouldBe};
use vocab::fact::AllocationWaiting;
use vocab::fact::SchedulerFact as Fact;
use vocab::inputs;

use allocation::Allocations;
use aside::Aside;
use asked::Asked;
use deadlines::Deadlines;
use depend::Dependencies;
use figures::Took;
use fleet::Fleet;
use ledger::{Decider, Draft, Figures, IllegalEvent, Scratch};
use levels::Levels;
use named_resources::{Holds, Input as ResourceInput};
use pace::Pace;
use preempt::{Board, Epoch, Rate};
use reclaim::Reclaims;
use reserve::Reservations;
use serde::{Deserialize, Serialize};
use settings::Settings;
use std::{collections::BTreeMap, convert::Infallible};
use vocab::{
    AllocationNo, At, EventNo, LeaseNo, Millis, Numbered, Refusal, Slot, Token, WaitingReason,
};
use waiting::Waiting;

/// Everything that the scheduler knows, folded from the ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheduler {
    fleet: Fleet,
    settings: Settings,
    allocations: Allocations,
    waiting: Waiting,
    dependencies: Dependencies,
    reservations: Reservations,
    rate: Rate,
    epoch: Epoch,
    /// To be decided, by the number of the request.
    asked: BTreeMap<EventNo, Asked>,
    reclaims: Reclaims,
    named: Named,
    /// The last, so that a state without them is one with none.
    deadlines: Deadlines,
    #[serde(skip)]
    pace: Scratch<Pace>,
    #[serde(skip)]
    board: Scratch<Board>,
    #[serde(skip)]
    took: Scratch<Took>,
}

impl Scheduler {
    pub fn nodes(&self) -> &[Node] {
        self.fleet.nodes()
    }

    pub fn live(&self) -> &Numbered<AllocationNo, Live> {
        self.allocations.all()
    }

    /// A named resource of the tenant.
    pub fn resource(&self, tenant: &Token, name: &Token) -> Option<ResourceView> {
        self.named.resource(tenant, name)
    }

    /// A lease of the tenant as it stands at `slot`, or at the latest that was seen.
    pub fn lease(&self, tenant: &Token, no: LeaseNo, slot: Slot) -> Result<LeaseView, Refusal> {
        self.named.lease(tenant, no, slot)
    }

    /// Who waits for a place, with or without a pending group.
    pub fn waiting(&self) -> usize {
        let held = self
            .fleet
            .nodes()
            .iter()
            .map(|node| node.holds.len())
            .sum::<usize>();
        let all = self.allocations.all().len();
        all - held.min(all)
    }
}

impl Holds for Scheduler {
    fn named(&mut self) -> &mut Named {
        &mut self.named
    }
}

/// A fact of its own, to be recorded.
type Written = vocab::fact::Written<vocab::fact::Scheduler>;

inputs! {
    /// What it reads of the other writers.
    pub enum Input {
        ..ResourceInput,
        TenantSet,
        QueueSet,
        PriorityClassSet,
        SchedulingSet,
        CordonSet,
        TaintsSet,
        ReservationSet,
        AllocationRequested,
        CancelRequested,
        JobSetCancelRequested,
        PriorityRequested,
        QuotaReserved,
        QuotaReclaimed,
        QuotaDenied,
        NodeRegistered,
        NodeReady,
        NodeLost,
        NodeSuspected,
        NodeForgotten,
        NodeConditionChanged,
        NodeCapacityChanged,
        RunReported,
        OperationsForgotten,
    }
}

impl Decider for Scheduler {
    type Command = Infallible;
    type Config = Config;
    type Effect = Infallible;
    type By = vocab::fact::Scheduler;
    type Input<'a> = Input<'a>;

    const STATE_VERSION: u32 = 12;

    /// Version 10 had no deadlines: its last field is a map and a set, both empty. Up to 11 nothing was evicted.
    fn upgrade(version: u32, state: &[u8]) -> Option<Self> {
        match version {
            10 => ledger::decode_state(&[state, &[0, 0]].concat()),
            11 => ledger::decode_state(state),
            _ => None,
        }
    }

    fn observe(&mut self, at: &At, input: Input<'_>) -> Result<(), IllegalEvent> {
        match input {
            Input::ResourceInput(input) => self.named.observe(at, input),
            Input::TenantSet(set) => self.tenant_set(&set.change),
            Input::QueueSet(set) => self.queue_set(&set.change),
            Input::PriorityClassSet(set) => self.class_set(&set.change),
            Input::SchedulingSet(set) => self.policy_set(&set.change.policy),
            Input::CordonSet(set) => self.cordon_set(&set.change),
            Input::TaintsSet(set) => self.taints_set(&set.change),
            Input::ReservationSet(set) => self.reservation_set(&set.change, set.version),
            Input::AllocationRequested(fact) => self.request(fact, at),
            Input::CancelRequested(fact) => {
                self.asked.insert(at.no, Asked::Cancel(fact.allocation));
            }
            Input::JobSetCancelRequested(fact) => {
                let asked = Asked::CancelJobSet {
                    tenant: fact.operation.tenant.clone(),
                    job_set: fact.job_set.clone(),
                    ended: 0,
                };
                self.asked.insert(at.no, asked);
            }
            Input::PriorityRequested(fact) => {
                let asked = Asked::Priority {
                    tenant: fact.operation.tenant.clone(),
                    target: fact.target.clone(),
                    priority: fact.priority,
                };
                self.asked.insert(at.no, asked);
            }
            Input::OperationsForgotten(fact) => self.dependencies.forget(fact.ended_through),
            Input::QuotaReserved(fact) => {
                self.quota_reserved(fact.allocation, fact.models.as_deref());
            }
            Input::QuotaReclaimed(fact) => self.quota_reclaimed(fact.allocation, fact.by),
            Input::QuotaDenied(fact) => self.remove(fact.allocation, false, at.now),
            Input::NodeRegistered(fact) => {
                self.node_registered(&fact.node, fact.incarnation, &fact.capacity);
            }
            Input::NodeReady(fact) => self.node_ready(fact)?,
            Input::NodeLost(fact) => self.node_lost(fact)?,
            Input::NodeSuspected(fact) => self.node_suspected(fact)?,
            Input::NodeConditionChanged(fact) => self.node_condition_changed(fact),
            Input::NodeCapacityChanged(fact) => self.node_capacity_changed(fact)?,
            Input::NodeForgotten(fact) => self.fleet.forget_node(&fact.node),
            Input::RunReported(fact) => self.report(fact),
        }
        Ok(())
    }

    fn evolve(&mut self, at: &At, fact: Fact<'_>) -> Result<(), IllegalEvent> {
        match fact {
            Fact::AllocationPlaced(fact) => {
                let live = self.allocations.get(&fact.allocation);
                self.took.0.placed(at, live);
                self.placed(fact, at.now)
            }
            Fact::AllocationWaiting(fact) => self.waits(fact, at.now),
            Fact::AllocationPreempted(fact) => self.preempted(fact, at.now),
            Fact::AllocationNominated(fact) => self.nominated(fact, at.now),
            Fact::AllocationRequeued(fact) => self.requeued(fact, at.now),
            Fact::AllocationStarted(fact) => {
                let live = self.allocations.get(&fact.allocation);
                self.took.0.started(at, live, fact.at);
                self.started(fact)
            }
            Fact::AllocationStopping(fact) => self.stopping(fact),
            Fact::AllocationEnded(fact) => self.ended(fact, at),
            Fact::AllocationReprioritised(fact) => self.reprioritised(fact),
            Fact::CancelDecided(fact) => self.cancel_decided(fact),
            Fact::JobSetCancelDecided(fact) => self.job_set_cancel_decided(fact),
            Fact::PriorityDecided(fact) => self.priority_decided(fact),
            Fact::PendingGroupExplained(fact) => {
                self.waiting.explained(fact, at.now);
                Ok(())
            }
            Fact::ReservationDecided(fact) => {
                self.reservations.decided(fact, &mut self.fleet);
                self.pace.reserved_anew = true;
                Ok(())
            }
            Fact::ResourceDecided(fact) => {
                let decided = self.named.decided(at.no, fact.request, &fact.answer);
                decided
                    .map(|_| ())
                    .map_err(|unfit| IllegalEvent::new(unfit, fact))
            }
            Fact::LeaseExpired(fact) => {
                let (slot, retire_after) = (fact.slot, fact.retire_after);
                self.named
                    .expired(&fact.tenant, fact.lease, (slot, retire_after))
                    .map_err(|unfit| IllegalEvent::new(unfit, fact))
            }
        }
    }

    fn handle(&mut self, command: Infallible, _config: &Config, _draft: &mut Draft) {
        match command {}
    }

    /// Ends first, so that what they free is there for the queues; whom nodes were cleared for before anybody else.
    fn decide(&mut self, config: &Config, draft: &mut Draft) {
        named_resources::decide(self, config, draft);
        end::decide_reports(self, draft);
        end::decide_lost(self, draft);
        asked::decide(self, draft);
        depend::decide(self, draft);
        deadlines::decide(self, draft);
        reclaim::decide(self, draft);
        unit::decide(self, draft);
        pause::decide(self, draft);
        reserve::decide(self, draft);
        drain::decide(self, draft);
        let aside = Aside::of(self, draft.now);
        self.set_aside(&aside);
        self.unblock(draft.now);
        preempt::decide_nominated(self, &aside, draft);
        // Whoever did not come to the node that was cleared for it has left it to others.
        self.unblock(draft.now);
        let mut left = self.decide_queues(&aside, draft);
        let mut due = None;
        left |= preempt::decide(self, &mut due, draft);
        left |= explain::decide(self, due, draft);
        // What was said just now may make the promise another one, room for nominees that were looked at before, or
        // those room that nominees minded.
        let promised = |state: &Self| Aside::of(state, draft.now).promise();
        let room_for_nominees = self.pace.room_gained && !self.allocations.nominated().is_empty();
        let minded = self.fleet.any_minding() && self.fleet.any_regrouped();
        let moved = || room_for_nominees || minded || promised(self) != aside.promise();
        self.pace.again = left || !draft.is_empty() && moved();
    }

    fn show(&self, now: Millis, figures: &mut Figures) {
        self.figures(now, figures);
    }

    fn wake_at(&self) -> Option<Millis> {
        let pauses = self.waiting.first_pause().map(|(until, _)| until);
        let later = |moment: &Millis| self.pace.decided.is_none_or(|decided| decided < *moment);
        let begins_or_ends = self.reservations.moments().filter(later).min();
        let expires = self.named.wake_at();
        let deadline = self.deadlines.first().map(|(moment, _)| moment);
        let again = self.pace.again.then_some(self.pace.decided).flatten();
        [
            again,
            pauses,
            begins_or_ends,
            self.pace.preempt_again_at,
            expires,
            deadline,
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

impl Scheduler {
    /// Places whoever is next until nobody fits. One who does not fit does not block those behind. One who would have to go
    /// at once for another who waits, comes after that one. Whether some may be left for the next frame.
    fn decide_queues(&mut self, aside: &Aside, draft: &mut Draft) -> bool {
        let put_off = &mut self.pace.placing_put_off;
        if !put_off.is_due(work::PLACING_LEAST, draft) {
            return true;
        }
        self.close_hopeless(aside, draft);
        let mut levels = Levels::default();
        let mut members = Vec::new();
        let mut first = true;
        loop {
            if draft.full() && !first {
                // Whoever comes after others is not passed over: it is its turn in the next frame.
                levels.free(self);
                return true;
            }
            let totals = *self.fleet.totals();
            let next = self.waiting.next(&totals, draft.now, &self.settings);
            draft.spend(self.waiting.take_looked_at() * work::QUEUE);
            if std::mem::take(&mut first) {
                draft.allow(work::PLACING_LEAST);
            }
            let Some(no) = next else {
                if levels.free(self) {
                    continue;
                }
                return false;
            };
            let Some((scheduling_key, head)) =
                self.waiting
                    .queues()
                    .pending_group(no)
                    .and_then(|pending_group| {
                        Some((
                            pending_group.key.scheduling_key,
                            pending_group.head()?.allocation,
                        ))
                    })
            else {
                return false;
            };
            if self.waiting.block_if_limited(no, draft.now) || levels.hold_back(self, no) {
                continue;
            }
            let classes = self.waiting.scheduling_key(scheduling_key).members.len();
            self.waiting
                .unit(head, classes, &self.allocations, &mut members);
            match self.place(&members, scheduling_key, aside, draft) {
                Ok(()) => {
                    self.tell_the_rest(&members, draft);
                    if self.fleet.any_regrouped() {
                        let regrouped = self.fleet.take_regrouped();
                        self.reopen(&regrouped, aside, draft);
                    }
                }
                Err(short) => self.waiting.block(no, scheduling_key, short, draft.now),
            }
        }
    }

    /// Members of a gang that found no place beside the others go on by themselves.
    fn tell_the_rest(&mut self, members: &[AllocationNo], draft: &mut Draft) {
        for allocation in members {
            let left = self
                .allocations
                .get(allocation)
                .is_some_and(|live| matches!(live.phase, Phase::InGang));
            if left {
                let waiting = AllocationWaiting {
                    allocation: *allocation,
                    reason: WaitingReason::GangNoRoom,
                    pending_group: None,
                };
                draft.emit(self, waiting);
            }
        }
    }
}

#[cfg(test)]
mod tests;
