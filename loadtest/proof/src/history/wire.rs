//! Between the checker's words, the tenants' messages and the ledger's events.

use super::{Answer, Decision, Entry, Fact};
use schemas::v1::{self, outcome::Result as Reply, request::Verb};
use std::collections::BTreeMap;
use vocab::fact::{LeaseExpired, OperationRefused, ResourceAsked, ResourceDecided};
use vocab::{AllocationId, At, CellNo, Event, EventNo, LeaseNo, ResourceAsk, Rule, Slot, Token};

/// What to send. One resource is asked for without a bundle.
pub fn verb(ask: &ResourceAsk, slot: Option<Slot>, cell: CellNo) -> Verb {
    let id = |no: &LeaseNo| no.id(cell).to_string();
    match ask {
        ResourceAsk::Create { resource } => Verb::CreateResource(v1::CreateResource {
            resource: resource.to_string(),
            slot,
        }),
        ResourceAsk::Acquire {
            resources,
            holder,
            ttl_slots,
        } => acquire(resources, holder, *ttl_slots, slot),
        ResourceAsk::Confirm {
            lease,
            holder,
            fencing_token,
        } => Verb::Confirm(v1::Confirm {
            lease_id: id(lease),
            holder: holder.to_string(),
            fencing_token: *fencing_token,
            slot,
        }),
        ResourceAsk::Release {
            lease,
            holder,
            fencing_token,
        } => Verb::Release(v1::Release {
            lease_id: id(lease),
            holder: holder.to_string(),
            fencing_token: *fencing_token,
            slot,
        }),
        ResourceAsk::Revoke { lease } => Verb::Revoke(v1::Revoke {
            lease_id: id(lease),
            slot,
        }),
        ResourceAsk::Reclaim { lease } => Verb::Reclaim(v1::Reclaim {
            lease_id: id(lease),
            slot,
        }),
    }
}

fn acquire(resources: &[Token], holder: &Token, ttl_slots: u64, slot: Option<Slot>) -> Verb {
    let holder = holder.to_string();
    match resources {
        [resource] => Verb::Acquire(v1::Acquire {
            resource: resource.to_string(),
            holder,
            ttl_slots,
            slot,
        }),
        _ => Verb::AcquireBundle(v1::AcquireBundle {
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
        Reply::LeaseGranted(granted) => Answer::Granted {
            lease: AllocationId::parse(&granted.lease_id)?.in_cell(cell)?.0,
            fencing_token: granted.fencing_token,
            deadline: granted.deadline_slot,
        },
        Reply::Confirmed(_) => Answer::Confirmed,
        Reply::Released(released) => Answer::Released {
            fencing_token: released.fencing_token,
        },
        Reply::Revoked(revoked) => Answer::Revoked {
            fencing_token: revoked.fencing_token,
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
            Event::LeaseExpired(LeaseExpired {
                tenant,
                lease,
                slot,
                fencing_token,
                retire_after,
            }) => {
                let fact = Fact::Expired {
                    lease: lease.0,
                    fencing_token: *fencing_token,
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
