//! One allocation as a row, and what each fact about it writes.

use super::{
    entry::{Over, PreemptionRow},
    state::{AllocationState, Place},
};
use ledger::IllegalEvent;
use serde::{Deserialize, Serialize};
use std::mem;
use vocab::fact::{
    AllocationEnded, AllocationReprioritised, AllocationRequeued, AllocationWaiting, QuotaReserved,
};
use vocab::{
    AllocationNo, At, EndCause, GpuShares, LifeFact, Lsn, Millis, NamedSpec, QuotaFlags, RunExit,
    Token, WaitingReason,
};

/// A place that an allocation had before it was queued again, and what became of it there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct Attempt {
    #[wire(1)]
    pub node: Token,
    #[wire(2)]
    pub gpus: GpuShares,
    #[wire(3, name = "placed_at_ms")]
    pub placed_at: Millis,
    #[wire(4, name = "started_at_ms")]
    pub started_at: Option<Millis>,
    #[wire(5, name = "ended_at_ms")]
    pub ended_at: Millis,
    #[wire(6)]
    pub cause: EndCause,
    #[wire(7)]
    pub exit: Option<RunExit>,
}

impl Attempt {
    fn of(place: &Place, requeued: &AllocationRequeued) -> Self {
        Self {
            node: place.node.clone(),
            gpus: place.gpus.clone(),
            placed_at: place.placed_at,
            started_at: place.started_at,
            ended_at: requeued.at,
            cause: requeued.cause,
            exit: requeued.exit,
        }
    }
}

/// An allocation as it stands after the event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationRow {
    pub allocation: AllocationNo,
    pub tenant: Token,
    pub spec: NamedSpec,
    pub requested_at: Millis,
    pub state: AllocationState,
    /// In a state of this name since then.
    pub since: Millis,
    /// How often it was queued again.
    pub attempts: u32,
    /// What ended the run before the last time.
    pub last_cause: Option<EndCause>,
    /// The places before the one that it has, or had last, the oldest first, the last [`Self::PAST_MAX`] of them.
    pub past: Vec<Attempt>,
    /// What was remarkable about the quota that it has, or had at its end.
    pub quota_flags: QuotaFlags,
    /// Ledger position of the last change.
    pub lsn: Lsn,
}

impl AllocationRow {
    /// One that is preempted again and again has no longer a row than one that is retried.
    pub const PAST_MAX: usize = 32;

    pub(super) fn requested(at: &At, tenant: &Token, spec: NamedSpec) -> Self {
        Self {
            allocation: AllocationNo(at.no.0),
            tenant: tenant.clone(),
            spec,
            requested_at: at.now,
            state: AllocationState::Requested { refusal: None },
            since: at.now,
            attempts: 0,
            last_cause: None,
            past: Vec::new(),
            quota_flags: QuotaFlags::default(),
            lsn: at.lsn,
        }
    }

    /// The queue that it is in: where it names none, the tenant's own.
    pub fn queue(&self) -> &Token {
        self.spec.common().queue.as_ref().unwrap_or(&self.tenant)
    }

    /// Applies a fact about it; `by_priority` is the priority of the one that it has to go for. What comes back is the row of a
    /// preemption that has begun, or is over.
    pub(super) fn turn(
        &mut self,
        at: &At,
        life: LifeFact<'_>,
        by_priority: Option<i32>,
    ) -> Result<Option<PreemptionRow>, IllegalEvent> {
        let next = self.state.stage_after(life)?;
        let over = match life {
            LifeFact::AllocationRequeued(requeued) => {
                self.attempts = self.attempts.saturating_add(1);
                self.last_cause = Some(requeued.cause);
                self.end_attempt(requeued);
                Some(Over::new(requeued.cause, requeued.at, true))
            }
            LifeFact::AllocationReprioritised(AllocationReprioritised { priority, .. }) => {
                self.spec.common_mut().priority = *priority;
                None
            }
            LifeFact::AllocationEnded(AllocationEnded { cause, at, .. }) => {
                Some(Over::new(*cause, *at, false))
            }
            LifeFact::QuotaReserved(QuotaReserved { flags, .. }) => {
                self.quota_flags = *flags;
                None
            }
            LifeFact::QuotaReclaimed(_)
            | LifeFact::AllocationWaiting(AllocationWaiting {
                reason: WaitingReason::Quota,
                ..
            }) => {
                self.quota_flags = QuotaFlags::default();
                None
            }
            // Ends no preemption.
            _ => None,
        };
        let ended = over.and_then(|over| self.preempted(Some(over)));
        if next.name() != self.state.stage().name() {
            self.since = at.now;
        }
        let priorities = (self.spec.common().priority, by_priority);
        self.state = mem::take(&mut self.state).turned(next, at, life, priorities);
        self.lsn = at.lsn;
        Ok(match life {
            LifeFact::AllocationPreempted(_) => self.preempted(None),
            _ => ended,
        })
    }

    fn end_attempt(&mut self, requeued: &AllocationRequeued) {
        let Some(place) = self.state.place() else {
            return;
        };
        let attempt = Attempt::of(place, requeued);
        if self.past.len() == Self::PAST_MAX {
            self.past.remove(0);
        }
        self.past.push(attempt);
    }

    /// None: it is not being preempted.
    fn preempted(&self, over: Option<Over>) -> Option<PreemptionRow> {
        let (preemption, place) = (self.state.preemption()?, self.state.place()?);
        Some(PreemptionRow {
            allocation: self.allocation,
            tenant: self.tenant.clone(),
            queue: self.queue().clone(),
            node: place.node.clone(),
            preemption: preemption.clone(),
            over,
            amounts: vocab::ResourceKind::ALL.map(|kind| self.spec.common().amount(kind)),
        })
    }
}
