//! What is taken of each limit, as rows. Pure.

use ledger::{IllegalEvent, Projection};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use vocab::{AdminChange, AllocationNo, AllocationSpec, At, Event, Millis, ResourceKind, Token};

/// One tenant's share of one resource type, as it stands after the event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaRow {
    pub tenant: Token,
    pub resource: ResourceKind,
    pub account: Account,
    pub changed_at: Millis,
}

/// In the resource's unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    pub limit: Option<Limit>,
    /// Granted, not started.
    pub reserved: u64,
    /// Started.
    pub used: u64,
    pub peak: Option<Peak>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    pub hard: u64,
    pub version: u64,
}

/// The most that was ever used, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peak {
    pub used: u64,
    pub at: Millis,
}

/// Folds the ledger into accounts. Holds what is live, and nothing of what has ended.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct WarmProjection {
    accounts: BTreeMap<(Token, ResourceKind), Account>,
    /// Not decided by quota yet.
    asked: BTreeMap<AllocationNo, Claim>,
    /// Those of `asked` that have ended. A reservation that was decided before quota saw the end may still follow.
    ended: BTreeSet<AllocationNo>,
    held: BTreeMap<AllocationNo, Held>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Claim {
    tenant: Token,
    amounts: [u64; 3],
}

#[derive(Debug, Serialize, Deserialize)]
struct Held {
    claim: Claim,
    started: bool,
}

/// What happens to what a claim amounts to.
#[derive(Clone, Copy)]
enum Move {
    Reserve,
    Start,
    Requeue,
    ReleaseReserved,
    ReleaseUsed,
}

impl Claim {
    fn of(tenant: &Token, spec: &AllocationSpec) -> Self {
        Self {
            tenant: tenant.clone(),
            amounts: ResourceKind::ALL.map(|kind| spec.amount(kind)),
        }
    }
}

impl Account {
    /// None when it takes away more than is there, or adds up to more than can be counted.
    fn moved(self, how: Move, amount: u64, at: Millis) -> Option<Self> {
        let mut next = self;
        match how {
            Move::Reserve => next.reserved = self.reserved.checked_add(amount)?,
            Move::Start => {
                next.reserved = self.reserved.checked_sub(amount)?;
                next.used = self.used.checked_add(amount)?;
            }
            Move::Requeue => {
                next.used = self.used.checked_sub(amount)?;
                next.reserved = self.reserved.checked_add(amount)?;
            }
            Move::ReleaseReserved => next.reserved = self.reserved.checked_sub(amount)?,
            Move::ReleaseUsed => next.used = self.used.checked_sub(amount)?,
        }
        if next.used > self.peak.map_or(0, |peak| peak.used) {
            next.peak = Some(Peak {
                used: next.used,
                at,
            });
        }
        Some(next)
    }
}

impl WarmProjection {
    fn apply(
        &mut self,
        claim: &Claim,
        how: Move,
        at: &At,
        event: &Event,
        out: &mut Vec<QuotaRow>,
    ) -> Result<(), IllegalEvent> {
        for (resource, amount) in ResourceKind::ALL.into_iter().zip(claim.amounts) {
            if amount == 0 {
                continue;
            }
            let key = (claim.tenant.clone(), resource);
            let account = self.accounts.entry(key).or_default();
            *account = account
                .moved(how, amount, at.now)
                .ok_or_else(|| IllegalEvent::new("account would not add up", event))?;
            out.push(QuotaRow {
                tenant: claim.tenant.clone(),
                resource,
                account: *account,
                changed_at: at.now,
            });
        }
        Ok(())
    }

    fn decided(&mut self, allocation: AllocationNo, event: &Event) -> Result<Claim, IllegalEvent> {
        let claim = self
            .asked
            .remove(&allocation)
            .ok_or_else(|| IllegalEvent::new("not asked", event))?;
        // Quota decides in the order of the requests: those that it has passed over had ended before their turn.
        let later = self.ended.split_off(&allocation);
        for passed in std::mem::replace(&mut self.ended, later) {
            self.asked.remove(&passed);
        }
        self.ended.remove(&allocation);
        Ok(claim)
    }
}

impl Projection for WarmProjection {
    type Change = QuotaRow;

    const NAME: &'static str = "quota";
    const STATE_VERSION: u32 = 1;

    fn project(
        &mut self,
        at: &At,
        event: &Event,
        out: &mut Vec<QuotaRow>,
    ) -> Result<(), IllegalEvent> {
        match event {
            Event::AdminApplied {
                change:
                    AdminChange::Quota {
                        tenant,
                        resource,
                        limit,
                    },
                version,
                ..
            } => {
                let account = self
                    .accounts
                    .entry((tenant.clone(), *resource))
                    .or_default();
                account.limit = Some(Limit {
                    hard: *limit,
                    version: *version,
                });
                out.push(QuotaRow {
                    tenant: tenant.clone(),
                    resource: *resource,
                    account: *account,
                    changed_at: at.now,
                });
                Ok(())
            }
            Event::AllocationRequested { operation, spec } => {
                let claim = Claim::of(&operation.tenant, spec);
                self.asked.insert(AllocationNo(at.no.0), claim);
                Ok(())
            }
            Event::QuotaReserved { allocation } => {
                let claim = self.decided(*allocation, event)?;
                self.apply(&claim, Move::Reserve, at, event, out)?;
                let held = Held {
                    claim,
                    started: false,
                };
                self.held.insert(*allocation, held);
                Ok(())
            }
            Event::QuotaDenied { allocation, .. } => self.decided(*allocation, event).map(drop),
            Event::AllocationStarted { allocation, .. } => {
                let held = self.held.get_mut(allocation);
                let claim = match held {
                    Some(held) if !held.started => {
                        held.started = true;
                        held.claim.clone()
                    }
                    _ => return Err(IllegalEvent::new("no quota reserved", event)),
                };
                self.apply(&claim, Move::Start, at, event, out)
            }
            Event::AllocationRequeued { allocation, .. } => {
                let held = self
                    .held
                    .get_mut(allocation)
                    .ok_or_else(|| IllegalEvent::new("no quota reserved", event))?;
                // A run that was over before it started has used nothing.
                if !std::mem::replace(&mut held.started, false) {
                    return Ok(());
                }
                let claim = held.claim.clone();
                self.apply(&claim, Move::Requeue, at, event, out)
            }
            // What is held stays held until quota gives it back.
            Event::AllocationEnded { allocation, .. } => {
                if self.asked.contains_key(allocation) {
                    self.ended.insert(*allocation);
                }
                Ok(())
            }
            Event::QuotaReleased { allocation } => {
                let held = self
                    .held
                    .remove(allocation)
                    .ok_or_else(|| IllegalEvent::new("nothing held", event))?;
                let how = if held.started {
                    Move::ReleaseUsed
                } else {
                    Move::ReleaseReserved
                };
                self.apply(&held.claim, how, at, event, out)
            }
            // Changes no account.
            Event::AdminApplied {
                change:
                    AdminChange::Tenant { .. }
                    | AdminChange::Rate { .. }
                    | AdminChange::Queue { .. }
                    | AdminChange::PriorityClass { .. }
                    | AdminChange::Scheduling(_)
                    | AdminChange::Cordon { .. }
                    | AdminChange::Reservation { .. },
                ..
            }
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
            | Event::RunReported { .. } => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vocab::{EndCause, EventNo, GpuRequest, Lsn, Operation, Refusal, Rule};

    fn token(text: &str) -> Token {
        Token::new(text).unwrap()
    }

    fn operation() -> Operation {
        Operation {
            tenant: token("t"),
            operation_id: Some(token("op")),
            digest: [0; 16],
            reply_to: None,
            trace: None,
        }
    }

    /// One step: `ask n gpus`, `limit gpu n`, or a fact about allocation n.
    fn event(step: &str) -> (u64, Event) {
        let mut words = step.split(' ');
        let verb = words.next().unwrap();
        let number: u64 = words.next().unwrap().parse().unwrap();
        let allocation = AllocationNo(number);
        let event = match verb {
            "limit" => Event::AdminApplied {
                operation: operation(),
                change: AdminChange::Quota {
                    tenant: token("t"),
                    resource: ResourceKind::Gpu,
                    limit: number,
                },
                version: 1,
            },
            "ask" => Event::AllocationRequested {
                operation: operation(),
                spec: AllocationSpec {
                    gpu: Some(GpuRequest {
                        count: words.next().unwrap().parse().unwrap(),
                        milli: 1000,
                        models: Vec::new(),
                    }),
                    ..AllocationSpec::plain(token("j"), 0, 0)
                },
            },
            "reserved" => Event::QuotaReserved { allocation },
            "denied" => Event::QuotaDenied {
                allocation,
                refusal: Refusal::new(Rule::QuotaExceeded, "gpu"),
            },
            "released" => Event::QuotaReleased { allocation },
            "started" => Event::AllocationStarted {
                allocation,
                at: Millis(0),
            },
            "requeued" => Event::AllocationRequeued {
                allocation,
                cause: EndCause::NodeLost,
                at: Millis(0),
                not_before: Millis(0),
            },
            "ended" => Event::AllocationEnded {
                allocation,
                cause: EndCause::Finished,
                at: Millis(0),
            },
            other => panic!("{other}"),
        };
        (number, event)
    }

    /// Steps, one millisecond apart; then `reserved/used/peak@ms` of the GPUs in thousands and what is still remembered.
    fn check(steps: &str, expected: &str) {
        let mut projection = WarmProjection::default();
        let mut rows = Vec::new();
        let mut illegal = None;
        for (i, step) in steps.split(", ").enumerate() {
            let (number, event) = event(step);
            let at = At {
                lsn: Lsn(1),
                index: 0,
                no: EventNo(number),
                now: Millis(i as i64 + 1),
            };
            if let Err(error) = projection.project(&at, &event, &mut rows) {
                illegal = Some(error.state);
                break;
            }
        }
        let account = rows.last().map_or(Account::default(), |row| row.account);
        let peak = account.peak.unwrap_or(Peak {
            used: 0,
            at: Millis(0),
        });
        let found = format!(
            "{}/{}/{}@{} live {}{}",
            account.reserved / 1000,
            account.used / 1000,
            peak.used / 1000,
            peak.at.0,
            projection.asked.len() + projection.held.len(),
            illegal.map_or(String::new(), |state| format!(": {state}")),
        );
        assert_eq!(found, expected, "{steps}");
    }

    #[test]
    fn what_is_reserved_is_used_and_given_back() {
        check("limit 8000, ask 1 4", "0/0/0@0 live 1");
        check("ask 1 4, reserved 1", "4/0/0@0 live 1");
        check("ask 1 4, reserved 1, started 1", "0/4/4@3 live 1");
        check("ask 1 4, reserved 1, started 1, ended 1", "0/4/4@3 live 1");
        check(
            "ask 1 4, reserved 1, started 1, ended 1, released 1",
            "0/0/4@3 live 0",
        );
        check("ask 1 4, reserved 1, ended 1, released 1", "0/0/0@0 live 0");
        check("ask 1 4, denied 1", "0/0/0@0 live 0");
        check(
            "ask 1 2, ask 2 3, reserved 1, reserved 2, started 2, released 2",
            "2/0/3@5 live 1",
        );
    }

    #[test]
    fn what_waits_again_stays_reserved() {
        check("ask 1 4, reserved 1, requeued 1", "4/0/0@0 live 1");
        check(
            "ask 1 4, reserved 1, started 1, requeued 1",
            "4/0/4@3 live 1",
        );
        check(
            "ask 1 4, reserved 1, started 1, requeued 1, started 1, requeued 1, requeued 1, ended 1, released 1",
            "0/0/4@3 live 0",
        );
        check(
            "ask 1 4, reserved 1, started 1, requeued 1, started 1, ended 1, released 1",
            "0/0/4@3 live 0",
        );
    }

    #[test]
    fn the_end_may_come_before_the_decision() {
        check("ask 1 4, ended 1", "0/0/0@0 live 1");
        check("ask 1 4, ended 1, reserved 1", "4/0/0@0 live 1");
        check("ask 1 4, ended 1, reserved 1, released 1", "0/0/0@0 live 0");
        check("ask 1 4, ended 1, denied 1", "0/0/0@0 live 0");
        check("ask 1 4, denied 1, ended 1", "0/0/0@0 live 0");
        // Passed over, so never to be decided; the later one is not touched.
        check(
            "ask 1 4, ask 2 1, ask 3 1, ended 1, ended 3, reserved 2",
            "1/0/0@0 live 2",
        );
    }

    #[test]
    fn what_cannot_be_is_refused() {
        check("reserved 1", "0/0/0@0 live 0: not asked");
        check("ask 1 4, started 1", "0/0/0@0 live 1: no quota reserved");
        check("ask 1 4, requeued 1", "0/0/0@0 live 1: no quota reserved");
        check("ask 1 4, released 1", "0/0/0@0 live 1: nothing held");
        check(
            "ask 1 4, reserved 1, reserved 1",
            "4/0/0@0 live 1: not asked",
        );
        check(
            "ask 1 4, reserved 1, started 1, started 1",
            "0/4/4@3 live 1: no quota reserved",
        );
    }

    #[test]
    fn an_account_neither_goes_below_nothing_nor_beyond_counting() {
        let account = Account {
            reserved: u64::MAX,
            ..Account::default()
        };
        assert_eq!(account.moved(Move::Reserve, 1, Millis(0)), None);
        assert_eq!(account.moved(Move::ReleaseUsed, 1, Millis(0)), None);
    }
}
