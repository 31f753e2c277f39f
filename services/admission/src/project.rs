//! Tenants and operations as rows: who may ask, what was asked, and what became of it. Pure.

use crate::domain::is_kept;
use ledger::{Batching, IllegalEvent, Projection};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use vocab::fact::{OperationsForgotten, SettingFact};
use vocab::inputs;
use vocab::{
    AllocationNo, At, CancelVerdict, EventNo, Millis, Operation, Refusal, ReservationNo,
    ResourceAnswer, ResourceAsk, Rule, Slot, Token,
};

/// One change of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Tenant(TenantRow),
    /// `first`: no batch has written it before.
    Operation {
        row: OperationRow,
        first: bool,
    },
    /// The operations up to this event are over their retention window: those of the tenant whose window is counted in
    /// slots, or all others.
    Forgotten {
        through: EventNo,
        slots_of: Option<Token>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantRow {
    pub tenant: Token,
    pub version: u64,
    pub at: Millis,
}

/// An operation as it stands after the event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationRow {
    /// Of the event that recorded it.
    pub no: EventNo,
    pub tenant: Token,
    pub operation_id: Option<Token>,
    pub digest: [u8; 16],
    /// None when it was refused at the inbox: it may have had none.
    pub verb: Option<Verb>,
    /// The allocation that it made or that it is about.
    pub allocation: Option<AllocationNo>,
    /// Its window is counted in slots.
    pub by_slots: bool,
    pub requested_at: Millis,
    pub state: OperationState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verb {
    Submit,
    Cancel,
    CancelJobSet,
    SetPriority,
    CreateResource,
    Reserve,
    Confirm,
    Release,
    Revoke,
    Reclaim,
    SetTenant,
    SetQuota,
    SetRate,
    SetQueue,
    SetPriorityClass,
    SetScheduling,
    SetCordon,
    SetReservation,
    SetBudget,
    SetNode,
}

impl Verb {
    fn of(ask: &ResourceAsk) -> Self {
        match ask {
            ResourceAsk::Create { .. } => Self::CreateResource,
            ResourceAsk::Reserve { .. } => Self::Reserve,
            ResourceAsk::Confirm { .. } => Self::Confirm,
            ResourceAsk::Release { .. } => Self::Release,
            ResourceAsk::Revoke { .. } => Self::Revoke,
            ResourceAsk::Reclaim { .. } => Self::Reclaim,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Cancel => "cancel",
            Self::CancelJobSet => "cancel_job_set",
            Self::SetPriority => "set_priority",
            Self::CreateResource => "create_resource",
            Self::Reserve => "reserve",
            Self::Confirm => "confirm",
            Self::Release => "release",
            Self::Revoke => "revoke",
            Self::Reclaim => "reclaim",
            Self::SetTenant => "set_tenant",
            Self::SetQuota => "set_quota",
            Self::SetRate => "set_rate",
            Self::SetQueue => "set_queue",
            Self::SetPriorityClass => "set_priority_class",
            Self::SetScheduling => "set_scheduling",
            Self::SetCordon => "set_cordon",
            Self::SetReservation => "set_reservation",
            Self::SetBudget => "set_budget",
            Self::SetNode => "set_node",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum OperationState {
    Pending,
    Decided { at: Millis, outcome: Outcome },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    Placed,
    Waiting,
    /// Before it was placed.
    Ended,
    Cancelled,
    Applied {
        version: u64,
    },
    Refused(Refusal),
    JobSetCancelled {
        allocations: u64,
    },
    PrioritySet {
        allocations: u64,
    },
    Created,
    Reserved {
        reservation: ReservationNo,
        deadline: Slot,
    },
    Confirmed,
    Released {
        epoch: u64,
    },
    Revoked {
        epoch: u64,
    },
    Reclaimed,
}

impl Outcome {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Placed => "placed",
            Self::Waiting => "waiting",
            Self::Ended => "ended",
            Self::Cancelled => "cancelled",
            Self::Applied { .. } => "applied",
            Self::Refused(_) => "refused",
            Self::JobSetCancelled { .. } => "job_set_cancelled",
            Self::PrioritySet { .. } => "priority_set",
            Self::Created => "created",
            Self::Reserved { .. } => "reserved",
            Self::Confirmed => "confirmed",
            Self::Released { .. } => "released",
            Self::Revoked { .. } => "revoked",
            Self::Reclaimed => "reclaimed",
        }
    }

    /// What was answered about resources. A reservation has the number of the event that granted it.
    fn of(answer: &ResourceAnswer, no: EventNo) -> Self {
        match answer {
            ResourceAnswer::Created => Self::Created,
            ResourceAnswer::Reserved { deadline } => Self::Reserved {
                reservation: ReservationNo::of(no),
                deadline: *deadline,
            },
            ResourceAnswer::Confirmed => Self::Confirmed,
            ResourceAnswer::Released { epoch, .. } => Self::Released { epoch: *epoch },
            ResourceAnswer::Revoked { epoch } => Self::Revoked { epoch: *epoch },
            ResourceAnswer::Reclaimed { .. } => Self::Reclaimed,
            ResourceAnswer::Refused(refusal) => Self::Refused(refusal.clone()),
        }
    }
}

impl OperationRow {
    fn new(
        at: &At,
        operation: &Operation,
        verb: Option<Verb>,
        allocation: Option<AllocationNo>,
        state: OperationState,
    ) -> Self {
        Self {
            no: at.no,
            tenant: operation.tenant.clone(),
            operation_id: operation.operation_id.clone(),
            digest: operation.digest,
            verb,
            allocation,
            by_slots: false,
            requested_at: at.now,
            state,
        }
    }

    /// Whether the operation's id stands for this one: a repeat is answered with its outcome.
    pub fn stands(&self) -> bool {
        match &self.state {
            // At the inbox, where no verb is known.
            OperationState::Decided {
                outcome: Outcome::Refused(refusal),
                ..
            } if self.verb.is_none() => is_kept(refusal.rule),
            OperationState::Pending | OperationState::Decided { .. } => true,
        }
    }
}

/// Folds the ledger into tenants and operations; holds the operations that are not decided.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct WarmProjection {
    submits: BTreeMap<AllocationNo, OperationRow>,
    /// All others, by the number of the event that took them up.
    others: BTreeMap<EventNo, OperationRow>,
    #[serde(skip)]
    changed: Changed,
}

/// What a batch has to write.
#[derive(Debug, Default)]
struct Changed {
    /// Taken up in it.
    first: BTreeSet<EventNo>,
    decided: Vec<OperationRow>,
}

impl WarmProjection {
    fn applied(&mut self, at: &At, set: SettingFact<'_>, out: &mut Vec<Change>) {
        let (operation, version) = set.asked();
        let verb = match set {
            SettingFact::TenantSet(set) => {
                out.push(Change::Tenant(TenantRow {
                    tenant: set.change.tenant.clone(),
                    version,
                    at: at.now,
                }));
                Verb::SetTenant
            }
            SettingFact::QuotaSet(_) => Verb::SetQuota,
            SettingFact::RateSet(_) => Verb::SetRate,
            SettingFact::QueueSet(_) => Verb::SetQueue,
            SettingFact::PriorityClassSet(_) => Verb::SetPriorityClass,
            SettingFact::SchedulingSet(_) => Verb::SetScheduling,
            SettingFact::CordonSet(_) => Verb::SetCordon,
            SettingFact::ReservationSet(_) => Verb::SetReservation,
            SettingFact::BudgetSet(_) => Verb::SetBudget,
            SettingFact::NodeSet(_) => Verb::SetNode,
        };
        let state = OperationState::Decided {
            at: at.now,
            outcome: Outcome::Applied { version },
        };
        self.at_once(OperationRow::new(at, operation, Some(verb), None, state));
    }

    /// Taken up and decided by one event.
    fn at_once(&mut self, row: OperationRow) {
        self.changed.first.insert(row.no);
        self.changed.decided.push(row);
    }

    /// Taken up by this event.
    fn asked(
        &mut self,
        at: &At,
        operation: &Operation,
        verb: Verb,
        allocation: Option<AllocationNo>,
    ) -> OperationRow {
        self.changed.first.insert(at.no);
        OperationRow::new(
            at,
            operation,
            Some(verb),
            allocation,
            OperationState::Pending,
        )
    }

    fn submit_decided(&mut self, allocation: AllocationNo, at: &At, outcome: Outcome) {
        let pending = self.submits.remove(&allocation);
        self.decided(pending, at, outcome);
    }

    fn other_decided(&mut self, request: EventNo, at: &At, outcome: Outcome) {
        let pending = self.others.remove(&request);
        self.decided(pending, at, outcome);
    }

    /// Nothing when it was decided before, or forgotten.
    fn decided(&mut self, pending: Option<OperationRow>, at: &At, outcome: Outcome) {
        let state = OperationState::Decided {
            at: at.now,
            outcome,
        };
        let row = pending.map(|row| OperationRow { state, ..row });
        self.changed.decided.extend(row);
    }
}

inputs! {
    /// What the inbox has taken up, refused or forgotten.
    pub enum Asked {
        AllocationRequested,
        CancelRequested,
        JobSetCancelRequested,
        PriorityRequested,
        ResourceAsked,
        OperationRefused,
        OperationsForgotten,
    }
}

inputs! {
    /// What came of it.
    pub enum Decided {
        QuotaDenied,
        QuotaWaiting,
        AllocationPlaced,
        AllocationWaiting,
        AllocationEnded,
        CancelDecided,
        JobSetCancelDecided,
        PriorityDecided,
        ResourceDecided,
    }
}

inputs! {
    pub enum Input {
        ..SettingFact,
        ..Asked,
        ..Decided,
    }
}

impl WarmProjection {
    fn took_up(&mut self, at: &At, asked: Asked<'_>, out: &mut Vec<Change>) {
        let (operation, verb, allocation) = match asked {
            Asked::AllocationRequested(fact) => {
                let allocation = AllocationNo(at.no.0);
                let row = self.asked(at, &fact.operation, Verb::Submit, Some(allocation));
                self.submits.insert(allocation, row);
                return;
            }
            Asked::CancelRequested(fact) => (&fact.operation, Verb::Cancel, Some(fact.allocation)),
            Asked::JobSetCancelRequested(fact) => (&fact.operation, Verb::CancelJobSet, None),
            Asked::PriorityRequested(fact) => (&fact.operation, Verb::SetPriority, None),
            Asked::ResourceAsked(fact) => {
                let row = self.asked(at, &fact.operation, Verb::of(&fact.ask), None);
                let by_slots = fact.by_requests;
                self.others.insert(at.no, OperationRow { by_slots, ..row });
                return;
            }
            Asked::OperationRefused(fact) => {
                let state = OperationState::Decided {
                    at: at.now,
                    outcome: Outcome::Refused(fact.refusal.clone()),
                };
                self.at_once(OperationRow::new(at, &fact.operation, None, None, state));
                return;
            }
            Asked::OperationsForgotten(fact) => return self.forgot(fact, out),
        };
        let row = self.asked(at, operation, verb, allocation);
        self.others.insert(at.no, row);
    }

    fn forgot(&mut self, fact: &OperationsForgotten, out: &mut Vec<Change>) {
        let (through, slots_of) = (fact.through, fact.slots_of.clone());
        // The window of no submit is counted in slots.
        if slots_of.is_none() {
            let later = AllocationNo(through.0 + 1);
            self.submits = self.submits.split_off(&later);
        }
        let old = self.others.range(..=through);
        let forgotten = old.filter(|(_, row)| {
            row.by_slots == slots_of.is_some()
                && slots_of.as_ref().is_none_or(|of| *of == row.tenant)
        });
        for no in forgotten.map(|(no, _)| *no).collect::<Vec<_>>() {
            self.others.remove(&no);
        }
        out.push(Change::Forgotten { through, slots_of });
    }

    /// Of a submit the first of these is the outcome.
    fn outcome(&mut self, at: &At, decided: Decided<'_>) {
        let (request, outcome) = match decided {
            Decided::QuotaDenied(fact) => {
                let outcome = Outcome::Refused(fact.refusal.clone());
                return self.submit_decided(fact.allocation, at, outcome);
            }
            Decided::AllocationPlaced(fact) => {
                return self.submit_decided(fact.allocation, at, Outcome::Placed);
            }
            Decided::AllocationWaiting(fact) => {
                return self.submit_decided(fact.allocation, at, Outcome::Waiting);
            }
            Decided::QuotaWaiting(fact) => {
                return self.submit_decided(fact.allocation, at, Outcome::Waiting);
            }
            Decided::AllocationEnded(fact) => {
                return self.submit_decided(fact.allocation, at, Outcome::Ended);
            }
            Decided::CancelDecided(fact) => {
                let outcome = match fact.verdict {
                    CancelVerdict::WasLive => Outcome::Cancelled,
                    CancelVerdict::HadEnded => {
                        Outcome::Refused(Refusal::new(Rule::AllocationEnded, "allocation_id"))
                    }
                };
                (fact.request, outcome)
            }
            Decided::JobSetCancelDecided(fact) => {
                let allocations = fact.allocations;
                (fact.request, Outcome::JobSetCancelled { allocations })
            }
            Decided::PriorityDecided(fact) => {
                let allocations = fact.allocations;
                let outcome = match &fact.refusal {
                    Some(refusal) => Outcome::Refused(refusal.clone()),
                    None => Outcome::PrioritySet { allocations },
                };
                (fact.request, outcome)
            }
            Decided::ResourceDecided(fact) => (fact.request, Outcome::of(&fact.answer, at.no)),
        };
        self.other_decided(request, at, outcome);
    }
}

impl Projection for WarmProjection {
    type Change = Change;
    type Input<'a> = Input<'a>;

    const NAME: &'static str = "admission";
    const STATE_VERSION: u32 = 2;
    const BATCHING: Batching = Batching::BULK;

    fn project(
        &mut self,
        at: &At,
        input: Input<'_>,
        out: &mut Vec<Change>,
    ) -> Result<(), IllegalEvent> {
        match input {
            Input::SettingFact(set) => self.applied(at, set, out),
            Input::Asked(asked) => self.took_up(at, asked, out),
            Input::Decided(decided) => self.outcome(at, decided),
        }
        Ok(())
    }

    /// An operation's rows of one batch are one row.
    fn end_batch(&mut self, out: &mut Vec<Change>) {
        let Changed { first, decided } = std::mem::take(&mut self.changed);
        let mut open = first.clone();
        for row in decided {
            open.remove(&row.no);
            let first = first.contains(&row.no);
            out.push(Change::Operation { row, first });
        }
        for no in open {
            let submit = || self.submits.get(&AllocationNo(no.0));
            if let Some(row) = self.others.get(&no).or_else(submit) {
                let row = row.clone();
                out.push(Change::Operation { row, first: true });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vocab::fact::{
        AllocationEnded, AllocationPlaced, AllocationRequested, AllocationWaiting, CancelDecided,
        CancelRequested, OperationRefused, QuotaDenied, QuotaReserved, TenantSet,
    };
    use vocab::{
        AdminChange, AllocationSpec, EndCause, Event, Lsn, PlacementPolicy, WaitingReason,
    };

    fn token(text: &str) -> Token {
        Token::new(text).unwrap()
    }

    /// Allocation 1 and its cancel 2.
    fn event(step: &str) -> (u64, Event) {
        let allocation = AllocationNo(1);
        let request = EventNo(2);
        let operation = Operation {
            tenant: token("t"),
            operation_id: Some(token("op")),
            digest: [7; 16],
            reply_to: None,
            trace: None,
        };
        let refused = |operation, rule| {
            Event::OperationRefused(OperationRefused {
                operation,
                job_set: None,
                refusal: Refusal::new(rule, "x"),
            })
        };
        match step {
            "submit" => (
                1,
                Event::AllocationRequested(AllocationRequested {
                    operation,
                    spec: AllocationSpec::plain(token("j"), 1, 1),
                }),
            ),
            "cancel" => (
                2,
                Event::CancelRequested(CancelRequested {
                    operation,
                    allocation,
                }),
            ),
            "bad" => (3, refused(operation, Rule::QuantityZero)),
            "conflict" => (3, refused(operation, Rule::OperationConflict)),
            "tenant" => (
                3,
                AdminChange::Tenant(TenantSet {
                    tenant: token("t"),
                    settings: vocab::TenantSettings::default(),
                })
                .applied(operation, 5)
                .into(),
            ),
            "forget 1" => (
                4,
                Event::OperationsForgotten(OperationsForgotten {
                    through: EventNo(1),
                    slots_of: None,
                    ended_through: EventNo(0),
                    denied_through: EventNo(0),
                }),
            ),
            "forget 2" => (
                4,
                Event::OperationsForgotten(OperationsForgotten {
                    through: EventNo(2),
                    slots_of: None,
                    ended_through: EventNo(0),
                    denied_through: EventNo(0),
                }),
            ),
            "denied" => (
                1,
                Event::QuotaDenied(QuotaDenied {
                    allocation,
                    refusal: Refusal::over(Rule::QuotaExceeded, "gpu", 1, 2),
                }),
            ),
            "reserved" => (
                1,
                Event::QuotaReserved(QuotaReserved {
                    allocation,
                    flags: vocab::QuotaFlags::default(),
                    models: None,
                }),
            ),
            "placed" => (
                1,
                Event::AllocationPlaced(AllocationPlaced {
                    allocation,
                    node: token("n"),
                    incarnation: 1,
                    gpus: Vec::new(),
                    zones: 0,
                    policy: PlacementPolicy::Default,
                    candidates: Vec::new(),
                }),
            ),
            "waiting" => (
                1,
                Event::AllocationWaiting(AllocationWaiting {
                    allocation,
                    reason: WaitingReason::NoRoomNow,
                    pending_group: None,
                }),
            ),
            "ended" => (
                1,
                Event::AllocationEnded(AllocationEnded {
                    allocation,
                    cause: EndCause::Cancelled,
                    at: Millis(0),
                }),
            ),
            "was live" | "had ended" => (
                1,
                Event::CancelDecided(CancelDecided {
                    request,
                    allocation,
                    verdict: if step == "was live" {
                        CancelVerdict::WasLive
                    } else {
                        CancelVerdict::HadEnded
                    },
                }),
            ),
            other => panic!("{other}"),
        }
    }

    /// Steps, one millisecond apart; then the changes in a few words and how many operations are held.
    fn check(steps: &str, expected: &str) {
        let mut projection = WarmProjection::default();
        let mut changes = Vec::new();
        for (i, step) in steps.split(", ").enumerate() {
            let (no, event) = event(step);
            let at = At {
                lsn: Lsn(1),
                index: 0,
                no: EventNo(no),
                now: Millis(i as i64 + 1),
            };
            projection.project_event(&at, &event, &mut changes).unwrap();
            projection.end_batch(&mut changes);
        }
        let words: Vec<_> = changes
            .iter()
            .map(|change| match change {
                Change::Tenant(row) => format!("tenant v{}", row.version),
                Change::Forgotten { through, .. } => format!("forgotten {}", through.0),
                Change::Operation { row, .. } => {
                    let rests = if row.stands() { "" } else { " void" };
                    match &row.state {
                        OperationState::Pending => format!("{} pending{rests}", row.no.0),
                        OperationState::Decided { at, outcome } => {
                            let rule = match outcome {
                                Outcome::Refused(refusal) => format!(" {}", refusal.rule.name()),
                                _ => String::new(),
                            };
                            format!("{} {}{rule} @{}{rests}", row.no.0, outcome.name(), at.0)
                        }
                    }
                }
            })
            .collect();
        let held = projection.submits.len() + projection.others.len();
        assert_eq!(
            format!("{} held {held}", words.join(", ")),
            expected,
            "{steps}"
        );
    }

    #[test]
    fn the_first_decision_is_the_outcome() {
        check("submit", "1 pending held 1");
        check("submit, reserved", "1 pending held 1");
        check("submit, reserved, placed", "1 pending, 1 placed @3 held 0");
        check(
            "submit, reserved, waiting, placed",
            "1 pending, 1 waiting @3 held 0",
        );
        check(
            "submit, denied, ended",
            "1 pending, 1 refused quota_exceeded @2 held 0",
        );
        check("submit, ended, denied", "1 pending, 1 ended @2 held 0");
    }

    #[test]
    fn a_cancel_is_decided_by_the_scheduler() {
        check(
            "submit, cancel, ended, was live",
            "1 pending, 2 pending, 1 ended @3, 2 cancelled @4 held 0",
        );
        check(
            "cancel, had ended",
            "2 pending, 2 refused allocation_ended @2 held 0",
        );
    }

    #[test]
    fn what_the_inbox_decides_is_decided_at_once() {
        check("bad", "3 refused quantity_zero @1 held 0");
        check("conflict", "3 refused operation_conflict @1 void held 0");
        check("tenant", "tenant v5, 3 applied @1 held 0");
    }

    #[test]
    fn what_is_forgotten_does_not_come_back() {
        check(
            "submit, cancel, forget 1, placed, was live",
            "1 pending, 2 pending, forgotten 1, 2 cancelled @5 held 0",
        );
        check(
            "submit, cancel, forget 2, placed, was live",
            "1 pending, 2 pending, forgotten 2 held 0",
        );
    }
}
