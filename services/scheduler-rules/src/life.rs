//! The life of one allocation, from request to end: what each fact changes.

use super::{
    Scheduler,
    allocation::{Avoided, Binding, Live, Phase, Report, Reports, Stop},
    class::SchedulingKey,
    preempt::Epoch,
};
use ledger::IllegalEvent;
use vocab::fact::{
    AllocationEnded, AllocationNominated, AllocationPlaced, AllocationPreempted,
    AllocationRequested, AllocationRequeued, AllocationStarted, AllocationStopping,
    AllocationWaiting, RunReported,
};
use vocab::{AllocationNo, At, EndCause, Millis, PreemptionCause, WaitingReason};

impl Scheduler {
    pub(super) fn request(&mut self, fact: &AllocationRequested, at: &At) {
        let (no, tenant, spec) = (AllocationNo(at.no.0), &fact.operation.tenant, &fact.spec);
        let class = self.fleet.class(tenant, spec);
        let class = self.allocations.acquire_class(&class);
        let queue = self.waiting.enter(spec.queue.as_ref().unwrap_or(tenant));
        let priority_class = spec.priority_class.as_ref();
        let live = Live {
            class,
            queue,
            priority: spec.priority,
            priority_class: priority_class.map(|name| self.settings.acquire(name)),
            gang: spec
                .gang
                .as_ref()
                .map(|gang| self.waiting.gangs_mut().join(tenant, gang, no)),
            job_set: self.allocations.join_job_set(
                tenant,
                &spec.job_set,
                (no, priority_class.is_some()),
            ),
            // Checked at the inbox to be at most 16.
            retries_left: spec.restart.retries.min(255) as u8,
            failures: 0,
            never_requeue: spec.restart.never,
            by_model: false,
            avoided: Avoided::default(),
            requested: at.now,
            run_time_ms: spec.estimate_ms(),
            phase: Phase::AwaitingQuota(None),
        };
        self.allocations.insert(no, live);
        self.deadlines.requested(no, spec.bounds, at.now);
        self.dependencies
            .depend(no, &spec.depends_on, &self.allocations);
    }

    pub(super) fn report(&mut self, fact: &RunReported) {
        if let Some(node) = self.fleet.find(&fact.node) {
            let report = Report {
                state: fact.state,
                at: fact.at,
                exit: fact.exit,
            };
            self.allocations.report(fact.allocation, node, report);
        }
    }

    /// Puts it in line, or where it waits for what has to come first, and schedules the report of the reason.
    pub(super) fn queue(&mut self, no: AllocationNo) {
        let others = self.dependencies.awaits_others(no);
        let Some(live) = self.allocations.get_mut(&no) else {
            return;
        };
        self.waiting.tell([no]);
        if others {
            live.phase = Phase::AwaitingOthers;
            return;
        }
        match live.gang {
            Some(gang) => {
                live.phase = Phase::InGang;
                self.waiting.gangs_mut().ready(gang, no);
                self.form(gang);
            }
            None => self.queue_alone(no),
        }
    }

    pub(super) fn queue_alone(&mut self, no: AllocationNo) {
        let Some(live) = self.allocations.get(&no) else {
            return;
        };
        let mut scheduling_key = SchedulingKey::single(live.class, live.run_time_ms);
        // One that joins a gang that runs goes where the others are.
        let runs = live.gang.filter(|gang| self.waiting.gangs().runs(*gang));
        scheduling_key.uniform_label =
            runs.and_then(|gang| self.waiting.gangs().uniform_label(gang).cloned());
        scheduling_key.uniform_value = runs.and_then(|gang| self.uniform_value(gang));
        let asks = self.allocations.amounts(live);
        let key = self.waiting.key(no, live, asks, &self.settings);
        let (pending_group, key) = self.waiting.join(
            (live.queue, live.priority_class),
            &scheduling_key,
            asks,
            key,
        );
        self.waiting.tell([no]);
        if let Some(live) = self.allocations.get_mut(&no) {
            live.phase = Phase::Queued(pending_group, key);
            if let Some(gang) = live.gang {
                self.waiting.gangs_mut().alone(gang, no);
            }
        }
    }

    /// Takes it out of wherever it waits. Its class and its gang it keeps.
    pub(super) fn leave_waiting(&mut self, no: AllocationNo) {
        let Some(live) = self.allocations.get(&no) else {
            return;
        };
        match live.phase {
            Phase::Queued(pending_group, key) => {
                let gang = live.gang;
                self.waiting.leave(pending_group, key);
                if let Some(gang) = gang {
                    self.waiting.gangs_mut().not_ready(gang, no);
                }
            }
            Phase::InGang => {
                if let Some(gang) = live.gang {
                    self.disband(gang);
                    self.waiting.gangs_mut().not_ready(gang, no);
                }
            }
            Phase::Nominated(node) => {
                let class = self.allocations.class(live.class);
                self.fleet.denominate(node, no, class);
                self.allocations.denominate(no);
            }
            Phase::Pausing(until) => {
                self.waiting.end_pause(no, until);
            }
            Phase::AwaitingQuota(_) | Phase::AwaitingOthers | Phase::Held(_) => {}
        }
    }

    pub(super) fn placed(
        &mut self,
        fact: &AllocationPlaced,
        now: Millis,
    ) -> Result<(), IllegalEvent> {
        let no = fact.allocation;
        let illegal = |state| IllegalEvent::new(state, fact);
        let live = self
            .allocations
            .get(&no)
            .ok_or_else(|| illegal("no such allocation"))?;
        let nominated = match live.phase {
            Phase::Queued(..) | Phase::InGang => false,
            Phase::Nominated(_) => true,
            _ => return Err(illegal("not queued")),
        };
        let (class, queue, gang, used) = (
            live.class,
            live.queue,
            live.gang,
            self.allocations.used(live, &self.settings),
        );
        let node = self
            .fleet
            .find(&fact.node)
            .ok_or_else(|| illegal("no such node"))?;
        let there = self.fleet.node(node);
        if !there.ready || there.incarnation != fact.incarnation {
            return Err(illegal("no such ready node"));
        }
        let class = self.allocations.class(class);
        let spot = (&fact.gpus[..], fact.zones);
        let taken = self.fleet.take(node, no, class, spot).map_err(illegal)?;
        self.leave_waiting(no);
        if !nominated {
            self.waiting.binding(queue, &used, now, &self.settings);
        }
        self.waiting.is_told(no);
        if let Some(gang) = gang {
            self.waiting.gangs_mut().held(gang, no);
        }
        let binding = Binding {
            node,
            incarnation: fact.incarnation,
            taken,
            placed: now,
            started: None,
            reports: Reports::default(),
            stop: None,
        };
        if let Some(live) = self.allocations.get_mut(&no) {
            live.phase = Phase::Held(Box::new(binding));
        }
        self.deadlines.none(no);
        Ok(())
    }

    /// The allocation knows where it stands. One that was nominated in vain, or whose gang has started without it, is back
    /// in line.
    pub(super) fn waits(
        &mut self,
        fact: &AllocationWaiting,
        now: Millis,
    ) -> Result<(), IllegalEvent> {
        let (no, reason) = (fact.allocation, fact.reason);
        if reason == WaitingReason::Quota {
            return self.awaits_quota_again(no, now, fact);
        }
        let live = self
            .allocations
            .get(&no)
            .ok_or_else(|| IllegalEvent::new("no such allocation", fact))?;
        let queue = live.queue;
        // If its gang forms below, the report on that comes after this one.
        self.waiting.is_told(no);
        match live.phase {
            Phase::Held(_) | Phase::AwaitingQuota(_) => {
                return Err(IllegalEvent::new("not waiting", fact));
            }
            Phase::Nominated(_) if reason != WaitingReason::Nominated => {
                let used = self.allocations.used(live, &self.settings);
                self.leave_waiting(no);
                self.waiting.release(queue, &used, now, &self.settings);
                self.epoch.withdraws(no);
                self.queue(no);
            }
            Phase::InGang
                if live
                    .gang
                    .is_some_and(|gang| self.waiting.gangs().runs(gang)) =>
            {
                self.leave_waiting(no);
                self.queue_alone(no);
            }
            Phase::Pausing(_) if reason != WaitingReason::Backoff => {
                self.leave_waiting(no);
                self.queue(no);
            }
            Phase::AwaitingOthers
            | Phase::Pausing(_)
            | Phase::Queued(..)
            | Phase::InGang
            | Phase::Nominated(_) => {}
        }
        if self.waits_for_fellows(no).is_some_and(|now| now != reason) {
            self.waiting.tell([no]);
        }
        Ok(())
    }

    /// Returns why a ready member of a gang without a pending group waits; `None` for all other allocations.
    fn waits_for_fellows(&self, no: AllocationNo) -> Option<WaitingReason> {
        let live = self.allocations.get(&no)?;
        let gang = live.gang.filter(|_| live.phase == Phase::InGang)?;
        let waits = self.waiting.gangs().unit(gang).is_none();
        waits.then(|| self.gang_waits_for(gang))
    }

    pub(super) fn nominated(
        &mut self,
        fact: &AllocationNominated,
        now: Millis,
    ) -> Result<(), IllegalEvent> {
        let no = fact.allocation;
        let illegal = |state| IllegalEvent::new(state, fact);
        let live = self
            .allocations
            .get(&no)
            .ok_or_else(|| illegal("no such allocation"))?;
        if !matches!(live.phase, Phase::Queued(..) | Phase::InGang) {
            return Err(illegal("not queued"));
        }
        let (queue, class, used) = (
            live.queue,
            live.class,
            self.allocations.used(live, &self.settings),
        );
        let node = self
            .fleet
            .find(&fact.node)
            .ok_or_else(|| illegal("no such node"))?;
        if self.fleet.node(node).incarnation != fact.incarnation {
            return Err(illegal("another incarnation"));
        }
        self.leave_waiting(no);
        self.fleet.nominate(node, no, self.allocations.class(class));
        self.epoch.cleared_for.insert(no);
        self.waiting.binding(queue, &used, now, &self.settings);
        self.allocations.nominate(no, node);
        Ok(())
    }

    pub(super) fn started(&mut self, fact: &AllocationStarted) -> Result<(), IllegalEvent> {
        let (no, at) = (fact.allocation, fact.at);
        self.allocations.start(no, at, fact)?;
        let binding = self.allocations.get(&no).and_then(Live::binding);
        if binding.is_some_and(Binding::stays) {
            self.deadlines.started(no, at);
        }
        Ok(())
    }

    pub(super) fn stopping(&mut self, fact: &AllocationStopping) -> Result<(), IllegalEvent> {
        let no = fact.allocation;
        let binding = self.allocations.hold_mut(no, fact)?;
        match &mut binding.stop {
            Some(Stop::Preempted { told, .. } | Stop::Evicted { told, .. }) if !*told => {
                *told = true
            }
            Some(_) => return Err(IllegalEvent::new("stopping already", fact)),
            stop @ None if fact.time_limit => *stop = Some(Stop::TimeLimit),
            stop @ None => *stop = Some(Stop::Cancelled),
        }
        let node = binding.node;
        self.deadlines.none(no);
        let Some(live) = self.allocations.get(&no) else {
            return Ok(());
        };
        self.fleet.stops(node, self.allocations.class(live.class));
        self.reclaims.stops(no);
        if let Some(gang) = self.allocations.get(&no).and_then(|live| live.gang) {
            self.settle(gang);
        }
        Ok(())
    }

    /// From here on its queue does not have it any more, though it still has its node.
    pub(super) fn preempted(
        &mut self,
        fact: &AllocationPreempted,
        now: Millis,
    ) -> Result<(), IllegalEvent> {
        let no = fact.allocation;
        let binding = self.allocations.hold_mut(no, fact)?;
        if binding.stop.is_some() {
            return Err(IllegalEvent::new("stopping already", fact));
        }
        let node = binding.node;
        let (told, cancelled) = (false, false);
        let stop = match self.goes_for_node(fact) {
            true => Stop::Evicted { told, cancelled },
            false => Stop::Preempted { told, cancelled },
        };
        self.allocations.hold_mut(no, fact)?.stop = Some(stop);
        self.deadlines.none(no);
        let Some(live) = self.allocations.get(&no) else {
            return Ok(());
        };
        self.fleet.stops(node, self.allocations.class(live.class));
        let (queue, used, gang) = (
            live.queue,
            self.allocations.used(live, &self.settings),
            live.gang,
        );
        self.waiting.goes(queue, &used, now, &self.settings);
        if !self.goes_for_quota(fact.cause, gang) {
            self.rate.preempted(now);
        }
        self.reclaims.stops(no);
        if let Some(gang) = gang {
            self.loses(gang);
            self.settle(gang);
            self.form(gang);
        }
        Ok(())
    }

    /// Whether it goes because its node, or that of a fellow of its gang, is being cleared.
    fn goes_for_node(&self, fact: &AllocationPreempted) -> bool {
        match fact.cause {
            PreemptionCause::Drain | PreemptionCause::Taint => true,
            PreemptionCause::Gang => {
                let live = self.allocations.get(&fact.allocation);
                let gang = live.and_then(|live| live.gang);
                let mut fellows = gang
                    .into_iter()
                    .flat_map(|gang| self.waiting.gangs().on_nodes(gang))
                    .filter_map(|fellow| self.allocations.get(&fellow)?.binding());
                fellows.any(Binding::evicted)
            }
            PreemptionCause::Priority
            | PreemptionCause::FairShare
            | PreemptionCause::Reservation
            | PreemptionCause::Quota => false,
        }
    }

    /// What it held is free again.
    fn give_back(&mut self, no: AllocationNo, now: Millis) {
        let Some(live) = self.allocations.get(&no) else {
            return;
        };
        let (queue, gang, class) = (live.queue, live.gang, self.allocations.class(live.class));
        let used = self.allocations.used(live, &self.settings);
        match &live.phase {
            Phase::Held(binding) => {
                if self.fleet.node(binding.node).incarnation == binding.incarnation {
                    self.fleet
                        .give_back(binding.node, no, class, &binding.taken);
                }
                if binding.preempted() {
                    self.waiting.gone(queue, &used.amounts);
                } else {
                    self.waiting.release(queue, &used, now, &self.settings);
                }
            }
            Phase::Nominated(_) => self.waiting.release(queue, &used, now, &self.settings),
            _ => {}
        }
        if let Some(gang) = gang {
            self.waiting.gangs_mut().not_held(gang, no);
        }
        self.allocations.run_is_over(no);
        self.deadlines.none(no);
    }

    pub(super) fn requeued(
        &mut self,
        fact: &AllocationRequeued,
        now: Millis,
    ) -> Result<(), IllegalEvent> {
        let (no, cause) = (fact.allocation, fact.cause);
        let node = self.allocations.hold_mut(no, fact)?.node;
        self.is_to_be_walked_again(no);
        let gang = self.allocations.get(&no).and_then(|live| live.gang);
        if !matches!(cause, EndCause::Preempted | EndCause::Evicted) {
            self.epoch = Epoch::default();
        }
        self.give_back(no, now);
        if let Some(gang) = gang {
            self.loses(gang);
        }
        let Some(live) = self.allocations.get_mut(&no) else {
            return Ok(());
        };
        match cause {
            EndCause::Failed => {
                live.retries_left = live.retries_left.saturating_sub(1);
                live.failed_on(node);
            }
            EndCause::RejectedByNode => live.failed_on(node),
            _ => {}
        }
        let pause = (fact.not_before > now).then_some(fact.not_before);
        if self.reclaims.stopped(no, live.by_model) {
            self.await_quota(no, pause);
        } else if let Some(until) = pause {
            live.phase = Phase::Pausing(until);
            self.waiting.pause(no, until);
        } else {
            self.queue(no);
        }
        if let Some(gang) = gang {
            self.settle(gang);
            self.form(gang);
        }
        Ok(())
    }

    pub(super) fn ended(&mut self, fact: &AllocationEnded, at: &At) -> Result<(), IllegalEvent> {
        let (no, cause) = (fact.allocation, fact.cause);
        if !self.allocations.contains(&no) {
            return Err(IllegalEvent::new("no such allocation", fact));
        }
        self.epoch = Epoch::default();
        if cause == EndCause::Cancelled {
            self.counts_as_cancelled(no);
        }
        self.remove(no, cause == EndCause::Finished, at.now);
        if cause == EndCause::Finished {
            self.dependencies.finished(at.no, no);
        }
        Ok(())
    }

    /// It is gone from everywhere.
    pub(super) fn remove(&mut self, no: AllocationNo, success: bool, now: Millis) {
        let gang = self.allocations.get(&no).and_then(|live| live.gang);
        let stood = gang.filter(|gang| self.waiting.gangs().unit(*gang).is_some());
        self.leave_waiting(no);
        self.give_back(no, now);
        let Some((live, class)) = self.allocations.remove(no) else {
            return;
        };
        self.waiting.is_told(no);
        self.deadlines.forget(no);
        self.reclaims.over(no);
        if let Some(class) = class {
            self.fleet.forget(class);
        }
        if let Some(class) = live.priority_class {
            self.settings.release(class);
        }
        if let Some(gang) = live.gang {
            self.waiting.gangs_mut().leave(gang, no, success);
            // It may have been the last that was still to be told to go.
            self.settle(gang);
            self.form(gang);
        }
        if let Some(gang) = stood {
            // They stand in another pending group by now, or in none.
            let members = self.waiting.gangs().ready_members(gang);
            self.waiting.tell(members);
        }
        self.release_dependents(no, success);
    }
}
