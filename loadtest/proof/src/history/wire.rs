//! Between the checker's words, the tenants' messages and the ledger's events.

use super::{Answer, Decision, Entry, Fact};
use schemas::v1::{self, outcome::Result as Reply, request::Verb};
use std::collections::BTreeMap;
use vocab::fact::{OperationRefused, ReservationExpired, ResourceAsked, ResourceDecided};
use vocab::{
    AllocationId, At, CellNo, Event, EventNo, ReservationNo, ResourceAsk, Rule, Slot, Token,
};

/// What to send. One resource is asked for without a bundle.
pub fn verb(ask: &ResourceAsk, slot: Option<Slot>, cell: CellNo) -> Verb {
    let id = |no: &ReservationNo| no.id(cell).to_string();
    match ask {
        ResourceAsk::Create { resource } => Verb::CreateResource(v1::CreateResource {
            resource: resource.to_string(),
            slot,
        }),
        ResourceAsk::Reserve {
            resources,
            holder,
            ttl_slots,
        } => reserve(resources, holder, *ttl_slots, slot),
        ResourceAsk::Confirm {
            reservation,
            holder,
            epoch,
        } => Verb::Confirm(v1::Confirm {
            reservation_id: id(reservation),
            holder: holder.to_string(),
            epoch: *epoch,
            slot,
        }),
        ResourceAsk::Release {
            reservation,
            holder,
            epoch,
        } => Verb::Release(v1::Release {
            reservation_id: id(reservation),
            holder: holder.to_string(),
            epoch: *epoch,
            slot,
        }),
        ResourceAsk::Revoke { reservation } => Verb::Revoke(v1::Revoke {
            reservation_id: id(reservation),
            slot,
        }),
        ResourceAsk::Reclaim { reservation } => Verb::Reclaim(v1::Reclaim {
            reservation_id: id(reservation),
            slot,
        }),
    }
}

fn reserve(resources: &[Token], holder: &Token, ttl_slots: u64, slot: Option<Slot>) -> Verb {
    let holder = holder.to_string();
    match resources {
        [resource] => Verb::Reserve(v1::Reserve {
            resource: resource.to_string(),
            holder,
            ttl_slots,
            slot,
        }),
        _ => Verb::ReserveBundle(v1::ReserveBundle {
            resources: resources.iter().map(Token::to_string).collect(),
            holder,
            ttl_slots,
            slot,
        }),
    }
}

/// What an outcome says; none if it is of another kind of request, or of a rule that this version does not know.
pub fn answer(outcome: &v1::Outcome, cell: CellNo) -> Option<Answer> {
    Some(match outcome.result.as_ref()? {
        Reply::ResourceCreated(_) => Answer::Created,
        Reply::Reserved(reserved) => Answer::Reserved {
            reservation: AllocationId::parse(&reserved.reservation_id)?
                .in_cell(cell)?
                .0,
            epoch: reserved.epoch,
            deadline: reserved.deadline_slot,
        },
        Reply::Confirmed(_) => Answer::Confirmed,
        Reply::Released(released) => Answer::Released {
            epoch: released.epoch,
        },
        Reply::Revoked(revoked) => Answer::Revoked {
            epoch: revoked.epoch,
        },
        Reply::Reclaimed(_) => Answer::Reclaimed,
        Reply::Refused(refused) => Answer::refused(rule(refused)?),
        _ => return None,
    })
}

fn rule(refused: &v1::Refused) -> Option<Rule> {
    Rule::from_number(refused.refusal.as_ref()?.rule)
}

/// The ledger's events as entries, frame by frame in the ledger's order.
#[derive(Debug, Default)]
pub struct Entries {
    asked: BTreeMap<EventNo, (Token, Token, Slot, ResourceAsk)>,
    /// Where the clock says the slot, two services' clocks meet: a request that comes with a slot before the latest is
    /// of the latest.
    latest: BTreeMap<Token, Slot>,
}

impl Entries {
    /// What an event is to the checker; most are nothing.
    pub fn entry(&mut self, at: &At, event: &Event) -> Option<Entry> {
        let (tenant, slot, fact) = match event {
            Event::ResourceAsked(ResourceAsked {
                operation,
                slot,
                ask,
                ..
            }) => {
                let id = operation.operation_id.clone()?;
                let asked = (operation.tenant.clone(), id, *slot, ask.clone());
                self.asked.insert(at.no, asked);
                return None;
            }
            Event::ResourceDecided(ResourceDecided { request, answer }) => {
                let (tenant, operation_id, slot, ask) = self.asked.remove(request)?;
                let decision = Decision::of(at.no.0, answer);
                let fact = Fact::Decided {
                    operation_id,
                    ask,
                    decision,
                };
                (tenant, slot, fact)
            }
            Event::OperationRefused(OperationRefused {
                operation, refusal, ..
            }) => {
                let operation_id = operation.operation_id.clone()?;
                let rule = refusal.rule;
                let slot = self.latest(&operation.tenant, 0);
                let fact = Fact::Refused { operation_id, rule };
                (operation.tenant.clone(), slot, fact)
            }
            Event::ReservationExpired(ReservationExpired {
                tenant,
                reservation,
                slot,
                epoch,
                retire_after,
            }) => {
                let fact = Fact::Expired {
                    reservation: reservation.0,
                    epoch: *epoch,
                    retire_after: *retire_after,
                };
                (tenant.clone(), *slot, fact)
            }
            _ => return None,
        };
        let slot = self.latest(&tenant, slot);
        Some(Entry {
            lsn: at.lsn.0,
            index: at.index,
            tenant,
            slot,
            fact,
        })
    }

    /// Asked, and not decided yet.
    pub fn open(&self) -> usize {
        self.asked.len()
    }

    fn latest(&mut self, tenant: &Token, slot: Slot) -> Slot {
        let latest = self.latest.entry(tenant.clone()).or_default();
        *latest = slot.max(*latest);
        *latest
    }
}
