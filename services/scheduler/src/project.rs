//! The ledger as rows: where each allocation stands, why, and what operators have set. Pure.

mod allocation;
mod counts;
mod entry;
mod named;
mod node;
mod setting;
mod state;
mod tally;
#[cfg(test)]
mod tests;

pub use allocation::{AllocationRow, Attempt};
pub use counts::{Count, CountKey, CountRow, Counted};
pub use entry::{ANOTHER_TENANTS, Entries, Entry, Outcome, Over, Position, PreemptionRow, Said};
pub use named::{HeldRow, ResourceRow, SpaceRow};
pub use node::{Condition, Cordon, NodeChange, NodeRow, NodeStanding, Registered, What};
pub use setting::{ReservationRow, ReservationState, SettingRow};
pub use state::{AllocationState, Place, Preemption, Stop};
pub use tally::{Counts, JobSetTally, Standing, Tallies, TenantTally};
use vocab::fact::{
    AllocationRequested, Applied, Inputs, ReservationDecided, ReservationSet, ResourceAsked,
};
use vocab::inputs;

use bytes::Bytes;
use counts::LiveCounts;
use entry::Teller;
use ledger::{Batching, IllegalEvent, Projection};
use node::{NodeFact, Nodes};
use scheduler_rules::Named;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::{collections::BTreeMap, mem};
use vocab::{AllocationNo, At, Event, LifeFact, NamedSpecs, Numbered, Token};

/// One row to be written. Of what it replaces the last one counts; entries only add up.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)]
pub enum Change {
    /// Most are of this kind, so it lies here and not elsewhere.
    Allocation(Written),
    Preemption(Box<PreemptionRow>),
    Entry(Box<Entry>),
    Setting(Box<SettingRow>),
    Node(Box<NodeRow>),
    /// Of this node nothing is kept any more.
    NodeGone(Token),
    Resource(Box<ResourceRow>),
    Held(Box<HeldRow>),
    Space(Box<SpaceRow>),
    Count(CountRow),
}

/// An allocation's row as a batch leaves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    pub row: AllocationRow,
    /// As what the batch before left it; none: no batch has written it before.
    pub before: Option<Standing>,
    /// What was said of it in the batch that is said of every allocation once, each as [`Entries`]: it stands in the row.
    pub told: Told,
    /// The tenant's id of the operation that asked for it, where no batch has written it before: the row has it then.
    pub operation: Option<Token>,
}

impl Written {
    /// No batch has written it before.
    pub fn is_first(&self) -> bool {
        self.before.is_none()
    }

    /// The batch before left it in the queue.
    pub fn waited(&self) -> bool {
        self.before == Some(Standing::Waiting)
    }
}

/// An allocation that has not ended.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
struct Live {
    row: AllocationRow,
    /// Where what the batch has to write of it lies; none: nothing. Few are changed by a batch, so it lies elsewhere.
    #[serde(skip)]
    changed: Option<usize>,
}

/// What a batch has to write of an allocation beside its row.
#[derive(Debug, Default)]
struct Changed {
    allocation: AllocationNo,
    before: Option<Standing>,
    told: Told,
    operation: Option<Token>,
}

/// Most batches say of an allocation that it was placed, that it has ended, or both.
type Told = SmallVec<[Bytes; 2]>;

impl Changed {
    fn written(self, row: AllocationRow) -> Change {
        Change::Allocation(Written {
            row,
            before: self.before,
            told: self.told,
            operation: self.operation,
        })
    }
}

/// Folds the ledger into rows; holds the allocations that have not ended, the reservations, the named resources, and the nodes.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct WarmProjection {
    live: Numbered<AllocationNo, Live>,
    reservations: BTreeMap<Token, ReservationRow>,
    named: Named,
    nodes: Nodes,
    /// Of those that the batch has changed, each once; some have ended since.
    #[serde(skip)]
    changed: Vec<Changed>,
    /// None: not counted since the snapshot.
    #[serde(skip)]
    counts: Option<LiveCounts>,
    #[serde(skip)]
    specs: NamedSpecs,
    #[serde(skip)]
    teller: Teller,
}

impl WarmProjection {
    fn requested(&mut self, at: &At, fact: &AllocationRequested) {
        let operation = &fact.operation;
        let row = AllocationRow::requested(at, &operation.tenant, self.specs.of(&fact.spec));
        let live = &self.live;
        self.counts.get_or_insert_with(|| LiveCounts::of(live));
        let changed = Some(self.changed.len());
        self.changed.push(Changed {
            allocation: row.allocation,
            operation: operation.operation_id.clone(),
            ..Changed::default()
        });
        self.live.insert(row.allocation, Live { row, changed });
    }

    /// `fact` is `life` as the ledger has it.
    fn turn(
        &mut self,
        at: &At,
        life: LifeFact<'_>,
        fact: &Event,
        out: &mut Vec<Change>,
    ) -> Result<(), IllegalEvent> {
        let allocation = life.allocation();
        let by = match life {
            LifeFact::AllocationPreempted(fact) => fact.by,
            _ => None,
        };
        let by = by.and_then(|by| self.live.get(&by));
        let by_priority = by.map(|by| by.row.spec.common().priority);
        let live = &mut self.live;
        let counts = self.counts.get_or_insert_with(|| LiveCounts::of(live));
        let Some(Live { row, changed }) = live.get_mut(&allocation) else {
            return match life.may_come_after_the_end() {
                true => Ok(()),
                false => Err(IllegalEvent::new("not live", &life)),
            };
        };
        let all_changed = &mut self.changed;
        let changed = *changed.get_or_insert_with(|| {
            counts.go(row);
            all_changed.push(Changed {
                allocation,
                before: Some(Standing::of(&row.state)),
                ..Changed::default()
            });
            all_changed.len() - 1
        });
        let attempts = row.attempts;
        let preempted = row.turn(at, life, by_priority)?;
        out.extend(preempted.map(|row| Change::Preemption(Box::new(row))));
        if let Some(said) = Said::of(fact) {
            if is_told_once(said, attempts) {
                all_changed[changed].told.push(self.teller.tell(at, fact));
            } else {
                let entry = Entry::new(Position::of(at), at.now, fact.clone());
                out.extend(entry.map(|entry| Change::Entry(Box::new(entry))));
            }
        }
        if row.state.stage().is_over()
            && let Some(Live { row, .. }) = self.live.remove(&allocation)
        {
            out.push(mem::take(&mut all_changed[changed]).written(row));
        }
        Ok(())
    }

    fn node(
        &mut self,
        at: &At,
        fact: NodeFact<'_>,
        out: &mut Vec<Change>,
    ) -> Result<(), IllegalEvent> {
        let node = fact.node().clone();
        out.push(match self.nodes.turn(at, fact)? {
            Some(row) => Change::Node(Box::new(row)),
            None => Change::NodeGone(node),
        });
        Ok(())
    }

    fn set(row: SettingRow, out: &mut Vec<Change>) {
        out.push(Change::Setting(Box::new(row)));
    }

    fn reservation_set(&mut self, at: &At, set: &Applied<ReservationSet>, out: &mut Vec<Change>) {
        let ReservationSet {
            reservation,
            wanted,
        } = &set.change;
        let row = match wanted {
            None => self.reservations.get_mut(reservation).map(|row| {
                row.withdraw(at.now, set.version);
                row.clone()
            }),
            Some(terms) => {
                let row = ReservationRow::asked(reservation, terms, at.now, set.version);
                self.reservations.insert(reservation.clone(), row.clone());
                Some(row)
            }
        };
        if let Some(row) = row {
            Self::set(SettingRow::Reservation(row), out);
        }
    }

    fn reservation_decided(
        &mut self,
        at: &At,
        decided: &ReservationDecided,
        out: &mut Vec<Change>,
    ) -> Result<(), IllegalEvent> {
        match self.reservations.get_mut(&decided.reservation) {
            Some(row) => {
                if row.decide(at.now, decided.version, &decided.nodes) {
                    Self::set(SettingRow::Reservation(row.clone()), out);
                }
                Ok(())
            }
            // One that never was is taken back.
            None if decided.nodes.is_empty() => Ok(()),
            None => Err(IllegalEvent::new("no such reservation", decided)),
        }
    }
}

/// Whether every allocation that comes to it is told this once, given how often it was queued again before.
fn is_told_once(said: Said<'_>, attempts: u32) -> bool {
    match said {
        Said::AllocationPlaced(_) => attempts == 0,
        Said::AllocationEnded(_) | Said::QuotaDenied(_) => true,
        _ => false,
    }
}

inputs! {
    pub enum Input {
        ..LifeFact,
        TenantSet,
        QueueSet,
        SchedulingSet,
        CordonSet,
        TaintsSet,
        NodeRegistered,
        NodeCapacityChanged,
        NodeReady,
        NodeSuspected,
        NodeLost,
        NodeForgotten,
        NodeConditionChanged,
        ReservationSet,
        AllocationRequested,
        PendingGroupExplained,
        ReservationDecided,
        ResourceAsked,
        ResourceDecided,
        LeaseExpired,
    }
}

impl Projection for WarmProjection {
    type Change = Change;
    type Input<'a> = Input<'a>;

    const NAME: &'static str = "scheduler";
    const STATE_VERSION: u32 = 9;
    const BATCHING: Batching = Batching::BULK;

    fn project(
        &mut self,
        at: &At,
        input: Input<'_>,
        out: &mut Vec<Change>,
    ) -> Result<(), IllegalEvent> {
        match input {
            Input::LifeFact(life) => return self.turn(at, life, &life.to_event(), out),
            Input::AllocationRequested(fact) => self.requested(at, fact),
            Input::PendingGroupExplained(pending_group) => {
                let entry = Entry::of(at, Said::PendingGroupExplained(pending_group));
                out.extend(entry.map(|entry| Change::Entry(Box::new(entry))));
            }
            Input::ReservationDecided(decided) => {
                return self.reservation_decided(at, decided, out);
            }
            Input::ReservationSet(set) => self.reservation_set(at, set, out),
            Input::QueueSet(set) => {
                let row = SettingRow::Queue {
                    queue: set.change.queue.clone(),
                    settings: set.change.settings.clone(),
                    version: set.version,
                    at: at.now,
                };
                Self::set(row, out);
            }
            Input::SchedulingSet(set) => {
                let row = SettingRow::Policy {
                    policy: set.change.policy.clone(),
                    version: set.version,
                    at: at.now,
                };
                Self::set(row, out);
            }
            Input::CordonSet(fact) => return self.node(at, NodeFact::Cordon(fact), out),
            Input::TaintsSet(fact) => return self.node(at, NodeFact::Taints(fact), out),
            Input::NodeRegistered(fact) => return self.node(at, NodeFact::Registered(fact), out),
            Input::NodeCapacityChanged(fact) => return self.node(at, NodeFact::Resized(fact), out),
            Input::NodeReady(fact) => return self.node(at, NodeFact::Ready(fact), out),
            Input::NodeSuspected(fact) => return self.node(at, NodeFact::Suspected(fact), out),
            Input::NodeLost(fact) => return self.node(at, NodeFact::Lost(fact), out),
            Input::NodeForgotten(fact) => return self.node(at, NodeFact::Forgotten(fact), out),
            Input::NodeConditionChanged(fact) => {
                return self.node(at, NodeFact::Condition(fact), out);
            }
            Input::TenantSet(set) => {
                let row = SettingRow::TenantWeight {
                    tenant: set.change.tenant.clone(),
                    weight_milli: set.change.settings.weight_milli,
                    version: set.version,
                    at: at.now,
                };
                Self::set(row, out);
            }
            Input::ResourceAsked(ResourceAsked {
                operation,
                slot,
                ask,
                ..
            }) => self.named.ask(at.no, &operation.tenant, *slot, ask),
            Input::ResourceDecided(fact) => return named::decided(&mut self.named, at, fact, out),
            Input::LeaseExpired(fact) => {
                return named::expired(&mut self.named, at, fact, out);
            }
        }
        Ok(())
    }

    /// A fact of a life is written as it is, and not copied for that.
    fn project_event(
        &mut self,
        at: &At,
        event: &Event,
        out: &mut Vec<Change>,
    ) -> Result<(), IllegalEvent> {
        match Input::of(event) {
            Some(Input::LifeFact(life)) => self.turn(at, life, event, out),
            Some(input) => self.project(at, input, out),
            None => Ok(()),
        }
    }

    /// An allocation's rows of one batch are one row.
    fn end_batch(&mut self, out: &mut Vec<Change>) {
        let Some(counts) = &mut self.counts else {
            return;
        };
        for changed in self.changed.drain(..) {
            // None has the number 0, which one that has ended leaves behind.
            if let Some(Live { row, changed: at }) = self.live.get_mut(&changed.allocation) {
                *at = None;
                counts.come(row);
                out.push(changed.written(row.clone()));
            }
        }
        out.extend(counts.finish().map(Change::Count));
    }
}
