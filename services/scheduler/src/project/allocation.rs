//! One allocation as a row, and what each fact about it writes.

use super::{
    entry::{Over, PreemptionRow},
    state::AllocationState,
};
use ledger::IllegalEvent;
use serde::{Deserialize, Serialize};
use std::mem;
use vocab::fact::{
    AllocationEnded, AllocationReprioritised, AllocationRequeued, AllocationWaiting, QuotaReserved,
};
use vocab::{
    AllocationNo, At, EndCause, LifeFact, Lsn, Millis, NamedSpec, QuotaFlags, Token, WaitingReason,
};

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
    /// What was remarkable about the quota that it has, or had at its end.
    pub quota_flags: QuotaFlags,
    /// Ledger position of the last change.
    pub lsn: Lsn,
}

impl AllocationRow {
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
            quota_flags: QuotaFlags::default(),
            lsn: at.lsn,
        }
    }

    /// The queue that it is in: where it names none, the tenant's own.
    pub fn queue(&self) -> &Token {
        self.spec.common().queue.as_ref().unwrap_or(&self.tenant)
    }

    /// Applies a fact about it. What comes back is the row of a preemption that has begun, or is over.
    pub(super) fn turn(
        &mut self,
        at: &At,
        life: LifeFact<'_>,
    ) -> Result<Option<PreemptionRow>, IllegalEvent> {
        let next = self.state.stage_after(life)?;
        let over = match life {
            LifeFact::AllocationRequeued(AllocationRequeued { cause, at, .. }) => {
                self.attempts = self.attempts.saturating_add(1);
                self.last_cause = Some(*cause);
                Some(Over::new(*cause, *at, true))
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
        self.state = mem::take(&mut self.state).turned(next, at, life);
        self.lsn = at.lsn;
        Ok(match life {
            LifeFact::AllocationPreempted(_) => self.preempted(None),
            _ => ended,
        })
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
