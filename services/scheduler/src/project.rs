//! The ledger as rows: where each allocation stands, why, and what operators have set. Pure.

mod allocation;
mod fact;
mod named;
mod setting;
mod state;
#[cfg(test)]
mod tests;

pub use allocation::AllocationRow;
pub use fact::{Entry, Fact, Outcome, Over, Position, PreemptionRow, Subject};
pub use named::{HeldRow, ResourceRow, SpaceRow};
pub use setting::{ReservationRow, ReservationState, SettingRow};
pub use state::{AllocationState, Place, Preemption, Stop};

use crate::domain::Named;
use ledger::{Batching, IllegalEvent, Projection};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vocab::{AdminChange, AllocationNo, At, Event, Token};

/// One row to be written. Of what it replaces the last one counts; entries only add up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Allocation(Box<Written>),
    Preemption(Box<PreemptionRow>),
    Entry(Box<Entry>),
    Setting(Box<SettingRow>),
    Resource(Box<ResourceRow>),
    Held(Box<HeldRow>),
    Space(Box<SpaceRow>),
}

/// An allocation's row as a batch leaves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    pub row: AllocationRow,
    /// No batch has written it before.
    pub first: bool,
    /// What was said of it in the batch that is said of every allocation once: it stands in the row.
    pub told: Vec<Entry>,
}

/// What a batch has to write of an allocation.
#[derive(Debug, Clone, Default)]
struct Changed {
    first: bool,
    told: Vec<Entry>,
    /// The last row of one that is not live any more.
    over: Option<AllocationRow>,
}

/// Folds the ledger into rows; holds the allocations that have not ended, the reservations, and the named resources.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct WarmProjection {
    live: BTreeMap<AllocationNo, AllocationRow>,
    reservations: BTreeMap<Token, ReservationRow>,
    named: Named,
    #[serde(skip)]
    changed: BTreeMap<AllocationNo, Changed>,
}

impl WarmProjection {
    fn turn(
        &mut self,
        allocation: AllocationNo,
        at: &At,
        event: &Event,
        out: &mut Vec<Change>,
    ) -> Result<(), IllegalEvent> {
        let Some(row) = self.live.get_mut(&allocation) else {
            return match event {
                // Quota and scheduler decide beside each other: what one has ended, the other may still decide on.
                Event::QuotaReserved { .. }
                | Event::QuotaWaiting { .. }
                | Event::QuotaReclaimed { .. }
                | Event::QuotaDenied { .. }
                | Event::AllocationReprioritised { .. }
                | Event::AllocationEnded { .. } => Ok(()),
                _ => Err(IllegalEvent::new("not live", event)),
            };
        };
        let attempts = row.attempts;
        let preempted = row.turn(at, event)?;
        out.extend(preempted.map(|row| Change::Preemption(Box::new(row))));
        let over = matches!(
            row.state,
            AllocationState::Ended { .. } | AllocationState::Denied { .. }
        );
        let changed = self.changed.entry(allocation).or_default();
        if over {
            changed.over = self.live.remove(&allocation);
        }
        match Entry::of(at, event) {
            Some(entry) if is_told_once(&entry.fact, attempts) => changed.told.push(entry),
            entry => out.extend(entry.map(|entry| Change::Entry(Box::new(entry)))),
        }
        Ok(())
    }

    fn admin(&mut self, at: &At, change: &AdminChange, version: u64, out: &mut Vec<Change>) {
        let row = match change {
            AdminChange::Reservation {
                reservation,
                wanted: None,
            } => self.reservations.get_mut(reservation).map(|row| {
                row.withdraw(at.now, version);
                SettingRow::Reservation(row.clone())
            }),
            AdminChange::Reservation {
                reservation,
                wanted: Some(terms),
            } => {
                let row = ReservationRow::asked(reservation, terms, at.now, version);
                self.reservations.insert(reservation.clone(), row.clone());
                Some(SettingRow::Reservation(row))
            }
            AdminChange::Tenant { .. }
            | AdminChange::Quota { .. }
            | AdminChange::Rate { .. }
            | AdminChange::Budget { .. }
            | AdminChange::Queue { .. }
            | AdminChange::PriorityClass { .. }
            | AdminChange::Scheduling(_)
            | AdminChange::Cordon { .. }
            | AdminChange::Node { .. } => SettingRow::of(change, at.now, version),
        };
        out.extend(row.map(|row| Change::Setting(Box::new(row))));
    }

    fn reservation_decided(
        &mut self,
        at: &At,
        event: &Event,
        (reservation, version, nodes): (&Token, u64, &[Token]),
        out: &mut Vec<Change>,
    ) -> Result<(), IllegalEvent> {
        match self.reservations.get_mut(reservation) {
            Some(row) => {
                if row.decide(at.now, version, nodes) {
                    let row = SettingRow::Reservation(row.clone());
                    out.push(Change::Setting(Box::new(row)));
                }
                Ok(())
            }
            // One that never was is taken back.
            None if nodes.is_empty() => Ok(()),
            None => Err(IllegalEvent::new("no such reservation", event)),
        }
    }
}

/// Whether every allocation that comes to it is told this once, given how often it was queued again before.
fn is_told_once(fact: &Fact, attempts: u32) -> bool {
    match fact {
        Fact::Placed { .. } => attempts == 0,
        Fact::Ended { .. } | Fact::QuotaDenied { .. } => true,
        Fact::Waiting { .. }
        | Fact::Line { .. }
        | Fact::Nominated { .. }
        | Fact::Preempted { .. }
        | Fact::Requeued { .. }
        | Fact::QuotaWaiting { .. }
        | Fact::QuotaReclaimed { .. }
        | Fact::Reprioritised { .. } => false,
    }
}

impl Projection for WarmProjection {
    type Change = Change;

    const NAME: &'static str = "scheduler";
    const STATE_VERSION: u32 = 3;
    const BATCHING: Batching = Batching::BULK;

    fn project(
        &mut self,
        at: &At,
        event: &Event,
        out: &mut Vec<Change>,
    ) -> Result<(), IllegalEvent> {
        match event {
            Event::AllocationRequested { operation, spec } => {
                let row = AllocationRow::requested(at, &operation.tenant, spec);
                self.changed.entry(row.allocation).or_default().first = true;
                self.live.insert(row.allocation, row);
                Ok(())
            }
            Event::QuotaReserved { allocation, .. }
            | Event::QuotaWaiting { allocation, .. }
            | Event::QuotaReclaimed { allocation, .. }
            | Event::AllocationReprioritised { allocation, .. }
            | Event::QuotaDenied { allocation, .. }
            | Event::AllocationPlaced { allocation, .. }
            | Event::AllocationWaiting { allocation, .. }
            | Event::AllocationStarted { allocation, .. }
            | Event::AllocationStopping { allocation }
            | Event::AllocationPreempted { allocation, .. }
            | Event::AllocationNominated { allocation, .. }
            | Event::AllocationRequeued { allocation, .. }
            | Event::AllocationEnded { allocation, .. } => self.turn(*allocation, at, event, out),
            Event::LineExplained { .. } => {
                out.extend(Entry::of(at, event).map(|entry| Change::Entry(Box::new(entry))));
                Ok(())
            }
            Event::ReservationDecided {
                reservation,
                version,
                nodes,
            } => self.reservation_decided(at, event, (reservation, *version, nodes), out),
            Event::AdminApplied {
                change, version, ..
            } => {
                self.admin(at, change, *version, out);
                Ok(())
            }
            Event::ResourceAsked {
                operation,
                slot,
                ask,
                ..
            } => {
                self.named.ask(at.no, &operation.tenant, *slot, ask);
                Ok(())
            }
            Event::ResourceDecided { .. } => named::decided(&mut self.named, at, event, out),
            Event::ReservationExpired { .. } => named::expired(&mut self.named, event, out),
            // Changes no row.
            Event::CancelRequested { .. }
            | Event::OperationRefused { .. }
            | Event::OperationRepeated { .. }
            | Event::OperationsForgotten { .. }
            | Event::JobSetCancelRequested { .. }
            | Event::PriorityRequested { .. }
            | Event::LimitsInForce { .. }
            | Event::JobSetCancelDecided { .. }
            | Event::PriorityDecided { .. }
            | Event::QuotaReleased { .. }
            | Event::CancelDecided { .. }
            | Event::NodeRegistered { .. }
            | Event::NodeJoined { .. }
            | Event::NodeForgotten { .. }
            | Event::NodeReady { .. }
            | Event::NodeLost { .. }
            | Event::RunReported { .. } => Ok(()),
        }
    }

    /// An allocation's rows of one batch are one row.
    fn end_batch(&mut self, out: &mut Vec<Change>) {
        for (allocation, changed) in std::mem::take(&mut self.changed) {
            let live = || self.live.get(&allocation).cloned();
            if let Some(row) = changed.over.or_else(live) {
                out.push(Change::Allocation(Box::new(Written {
                    row,
                    first: changed.first,
                    told: changed.told,
                })));
            }
        }
    }
}
