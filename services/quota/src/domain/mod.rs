//! The quota's rules: one level, tenant × resource type, a hard limit. Pure; one file per subject.

mod release;
mod reserve;

use ledger::{Decider, Draft, IllegalEvent};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
};
use vocab::{
    AdminChange, AllocationNo, AllocationSpec, At, Event, Millis, ResourceKind, Token, Writer,
};

/// Everything that quota knows, folded from the ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    accounts: BTreeMap<(Token, ResourceKind), Account>,
    /// Asked for, not decided yet.
    asked: BTreeMap<AllocationNo, Claim>,
    /// Reserved or used.
    held: BTreeMap<AllocationNo, Held>,
    /// Ended, to be released.
    ended: BTreeSet<AllocationNo>,
}

/// One tenant's share of one resource type, in the resource's unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// No more than this may be reserved and used together. Without one ever set: nothing.
    pub limit: u64,
    /// Granted, not started.
    pub reserved: u64,
    /// Started.
    pub used: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Claim {
    tenant: Token,
    amounts: [u64; 3],
}

impl Claim {
    fn of(tenant: &Token, spec: &AllocationSpec) -> Self {
        Self {
            tenant: tenant.clone(),
            amounts: ResourceKind::ALL.map(|kind| spec.amount(kind)),
        }
    }

    /// What is asked of each resource type; nothing of a type is not asked for.
    fn parts(&self) -> impl Iterator<Item = (ResourceKind, u64)> {
        let parts = ResourceKind::ALL.into_iter().zip(self.amounts);
        parts.filter(|(_, amount)| *amount > 0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Held {
    claim: Claim,
    started: bool,
}

impl Quota {
    pub fn account(&self, tenant: &Token, kind: ResourceKind) -> Account {
        let key = (tenant.clone(), kind);
        self.accounts.get(&key).copied().unwrap_or_default()
    }

    fn account_mut(&mut self, tenant: &Token, kind: ResourceKind) -> &mut Account {
        self.accounts.entry((tenant.clone(), kind)).or_default()
    }
}

impl Decider for Quota {
    type Command = Infallible;
    type Rules = ();
    type Effect = Infallible;

    const WRITER: Writer = Writer::Quota;
    const STATE_VERSION: u32 = 1;

    fn observe(&mut self, at: &At, event: &Event) -> Result<(), IllegalEvent> {
        match event {
            Event::AdminApplied {
                change:
                    AdminChange::Quota {
                        tenant,
                        resource,
                        limit,
                    },
                ..
            } => self.account_mut(tenant, *resource).limit = *limit,
            Event::AllocationRequested { operation, spec } => {
                let claim = Claim::of(&operation.tenant, spec);
                self.asked.insert(AllocationNo(at.no.0), claim);
            }
            Event::AllocationStarted { allocation, .. } => self.convert(*allocation),
            Event::AllocationRequeued { allocation, .. } => self.revert(*allocation),
            Event::AllocationEnded { allocation, .. } => self.end(*allocation),
            // Not the quota's business.
            Event::AdminApplied { .. }
            | Event::CancelRequested { .. }
            | Event::OperationRefused { .. }
            | Event::OperationRepeated { .. }
            | Event::OperationsForgotten { .. }
            | Event::AllocationPlaced { .. }
            | Event::AllocationWaiting { .. }
            | Event::LineExplained { .. }
            | Event::AllocationPreempted { .. }
            | Event::AllocationNominated { .. }
            | Event::AllocationStopping { .. }
            | Event::CancelDecided { .. }
            | Event::ReservationDecided { .. }
            | Event::NodeRegistered { .. }
            | Event::NodeReady { .. }
            | Event::NodeLost { .. }
            | Event::RunReported { .. } => {}
            Event::QuotaReserved { .. }
            | Event::QuotaDenied { .. }
            | Event::QuotaReleased { .. } => {
                return Err(IllegalEvent::new("an own fact as input", event));
            }
        }
        Ok(())
    }

    fn evolve(&mut self, _at: &At, event: &Event) -> Result<(), IllegalEvent> {
        match event {
            Event::QuotaReserved { allocation } => self.reserved(*allocation, event),
            Event::QuotaDenied { allocation, .. } => match self.asked.remove(allocation) {
                Some(_) => Ok(()),
                None => Err(IllegalEvent::new("not asked", event)),
            },
            Event::QuotaReleased { allocation } => self.released(*allocation, event),
            Event::AdminApplied { .. }
            | Event::AllocationRequested { .. }
            | Event::CancelRequested { .. }
            | Event::OperationRefused { .. }
            | Event::OperationRepeated { .. }
            | Event::OperationsForgotten { .. }
            | Event::AllocationPlaced { .. }
            | Event::AllocationWaiting { .. }
            | Event::LineExplained { .. }
            | Event::AllocationPreempted { .. }
            | Event::AllocationNominated { .. }
            | Event::AllocationRequeued { .. }
            | Event::AllocationStarted { .. }
            | Event::AllocationStopping { .. }
            | Event::AllocationEnded { .. }
            | Event::CancelDecided { .. }
            | Event::ReservationDecided { .. }
            | Event::NodeRegistered { .. }
            | Event::NodeReady { .. }
            | Event::NodeLost { .. }
            | Event::RunReported { .. } => {
                Err(IllegalEvent::new("another writer's fact as own", event))
            }
        }
    }

    fn handle(&mut self, command: Infallible, (): &(), _draft: &mut Draft) {
        match command {}
    }

    /// Releases first, so that what they free can be reserved in the same frame.
    fn decide(&mut self, (): &(), draft: &mut Draft) {
        release::decide(self, draft);
        reserve::decide(self, draft);
    }

    fn wake_at(&self) -> Option<Millis> {
        None
    }
}

#[cfg(test)]
mod tests;
