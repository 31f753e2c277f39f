//! Tenants and operations as rows: who may ask, what was asked, and what became of it. Pure.

use crate::operation::{Answer, Decided, Of, OperationFact, OutcomeKind, Step, Taken};
use admission_rules::named;
use ledger::{Batching, IllegalEvent, Projection};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vocab::fact::Inputs;
use vocab::fact::{OperationsForgotten, SettingFact};
use vocab::{AllocationNo, At, Event, EventNo, Lsn, Millis, Rule, Token, Verb};

/// One change of a table. A batch has one of each operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Tenant(TenantRow),
    Setting(Box<SettingRow>),
    /// `first`: no batch has written it before.
    Operation {
        row: Box<OperationRow>,
        first: bool,
    },
    /// Unless it is `first`, it was written as an operation that is open.
    Answered {
        row: AnsweredRow,
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

/// What was last set of something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingRow {
    pub setting: &'static str,
    pub key: String,
    pub version: u64,
    pub operation_id: Option<Token>,
    /// The operator, where it is one with a name.
    pub set_by: Option<Token>,
    pub at: Millis,
    pub lsn: Lsn,
    /// The fact, as the ledger has it.
    pub fact: Event,
}

impl SettingRow {
    fn new(at: &At, fact: SettingFact<'_>) -> Self {
        let (operation, version) = fact.asked();
        let (setting, key) = named(&fact.change());
        Self {
            setting,
            key,
            version,
            operation_id: operation.operation_id.clone(),
            set_by: operation.by.as_deref().cloned(),
            at: at.now,
            lsn: at.lsn,
            fact: fact.to_event(),
        }
    }
}

/// An operation as it stands after the event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationRow {
    /// Of the event that recorded it.
    pub no: EventNo,
    pub tenant: Token,
    pub operation_id: Option<Token>,
    pub digest: [u8; 16],
    /// None when it was refused at the inbox: it may have had none, or the cell was of feature level 9 or below.
    pub verb: Option<Verb>,
    /// The allocation that it made or that it is about.
    pub allocation: Option<AllocationNo>,
    /// Its window is counted in slots.
    pub by_slots: bool,
    pub requested_at: Millis,
    pub state: OperationState,
    /// The operator that asked, where it is one with a name: mostly none. In a box, because a row is held for each open operation.
    pub by: Option<Box<Token>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum OperationState {
    Pending,
    Decided {
        at: Millis,
        outcome: Box<OutcomeKind>,
    },
}

/// A submit that has an allocation; its number is the operation's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnsweredRow {
    pub no: EventNo,
    pub tenant: Token,
    pub operation_id: Option<Token>,
    pub digest: [u8; 16],
    pub requested_at: Millis,
    pub answered_at: Millis,
    pub answer: Answer,
}

impl OperationRow {
    fn new(at: &At, taken: Taken<'_>) -> Self {
        let Taken {
            operation,
            verb,
            of,
            by_slots,
            outcome,
        } = taken;
        Self {
            no: at.no,
            tenant: operation.tenant.clone(),
            operation_id: operation.operation_id.clone(),
            digest: operation.digest,
            verb,
            allocation: match of {
                Of::New(_) => Some(AllocationNo(at.no.0)),
                Of::Allocation(allocation) => (verb == Some(Verb::Cancel)).then_some(allocation),
                Of::JobSet(_) | Of::NamedResources | Of::Cell => None,
            },
            by_slots,
            requested_at: at.now,
            state: outcome.map_or(OperationState::Pending, |outcome| OperationState::Decided {
                at: at.now,
                outcome: Box::new(outcome),
            }),
            by: operation.by.clone(),
        }
    }

    fn decided(self, at: &At, outcome: OutcomeKind) -> Self {
        let (at, outcome) = (at.now, Box::new(outcome));
        let state = OperationState::Decided { at, outcome };
        Self { state, ..self }
    }

    fn answered(self, at: &At, answer: Answer) -> AnsweredRow {
        AnsweredRow {
            no: self.no,
            tenant: self.tenant,
            operation_id: self.operation_id,
            digest: self.digest,
            requested_at: self.requested_at,
            answered_at: at.now,
            answer,
        }
    }

    /// Whether the operation's id stands for this one: a repeat is answered with its outcome.
    pub fn stands(&self) -> bool {
        match &self.state {
            // The only rule by which admission refuses what it records and does not keep; no other decider refuses by it.
            OperationState::Decided { outcome, .. } => match &**outcome {
                OutcomeKind::Refused(refusal) => refusal.rule != Rule::OperationConflict,
                _ => true,
            },
            OperationState::Pending => true,
        }
    }
}

/// Folds the ledger into tenants and operations; holds the operations that are not decided.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct WarmProjection {
    open: BTreeMap<EventNo, OperationRow>,
    /// The first operation that the batch has taken up: those behind it are in no table yet.
    #[serde(skip)]
    begins: Option<EventNo>,
}

/// The state of version 4, in which nobody says who asked.
#[derive(Deserialize)]
struct ProjectionOf4 {
    open: BTreeMap<EventNo, OperationOf4>,
}

#[derive(Deserialize)]
struct OperationOf4 {
    no: EventNo,
    tenant: Token,
    operation_id: Option<Token>,
    digest: [u8; 16],
    verb: Option<Verb>,
    allocation: Option<AllocationNo>,
    by_slots: bool,
    requested_at: Millis,
    state: OperationState,
}

impl From<OperationOf4> for OperationRow {
    fn from(before: OperationOf4) -> Self {
        Self {
            no: before.no,
            tenant: before.tenant,
            operation_id: before.operation_id,
            digest: before.digest,
            verb: before.verb,
            allocation: before.allocation,
            by_slots: before.by_slots,
            requested_at: before.requested_at,
            state: before.state,
            by: None,
        }
    }
}

impl From<ProjectionOf4> for WarmProjection {
    fn from(before: ProjectionOf4) -> Self {
        let open = before.open.into_iter();
        Self {
            open: open.map(|(no, row)| (no, row.into())).collect(),
            begins: None,
        }
    }
}

impl WarmProjection {
    fn is_first(&self, no: EventNo) -> bool {
        self.begins.is_some_and(|begins| no >= begins)
    }

    fn took_up(&mut self, at: &At, taken: Taken<'_>, out: &mut Vec<Change>) {
        self.begins.get_or_insert(at.no);
        let row = OperationRow::new(at, taken);
        match row.state {
            OperationState::Pending => drop(self.open.insert(at.no, row)),
            OperationState::Decided { .. } => out.push(Change::Operation {
                row: Box::new(row),
                first: true,
            }),
        }
    }

    /// Nothing when it was decided before, or forgotten.
    fn decided(&mut self, at: &At, decided: Decided<'_>, out: &mut Vec<Change>) {
        let Some(row) = self.open.remove(&decided.operation()) else {
            return;
        };
        let first = self.is_first(row.no);
        out.push(match decided.answer() {
            Some(answer) => Change::Answered {
                row: row.answered(at, answer),
                first,
            },
            None => Change::Operation {
                row: Box::new(row.decided(at, decided.outcome(at))),
                first,
            },
        });
    }

    fn forgot(&mut self, fact: &OperationsForgotten, out: &mut Vec<Change>) {
        let (through, slots_of) = (fact.through, fact.slots_of.clone());
        let old = self.open.range(..=through);
        let forgotten = old.filter(|(_, row)| match &slots_of {
            Some(tenant) => row.by_slots && row.tenant == *tenant,
            None => !row.by_slots,
        });
        for no in forgotten.map(|(no, _)| *no).collect::<Vec<_>>() {
            self.open.remove(&no);
        }
        out.push(Change::Forgotten { through, slots_of });
    }
}

impl Projection for WarmProjection {
    type Change = Change;
    type Input<'a> = OperationFact<'a>;

    const NAME: &'static str = "admission";
    const STATE_VERSION: u32 = 5;
    const BATCHING: Batching = Batching::BULK;

    fn upgrade(version: u32, state: &[u8]) -> Option<Self> {
        (version == 4).then(|| ledger::decode_state(state).map(ProjectionOf4::into))?
    }

    fn project(
        &mut self,
        at: &At,
        fact: OperationFact<'_>,
        out: &mut Vec<Change>,
    ) -> Result<(), IllegalEvent> {
        if let OperationFact::SettingFact(fact) = fact {
            out.push(Change::Setting(Box::new(SettingRow::new(at, fact))));
            if let SettingFact::TenantSet(set) = fact {
                out.push(Change::Tenant(TenantRow {
                    tenant: set.change.tenant.clone(),
                    version: set.version,
                    at: at.now,
                }));
            }
        }
        match Step::from(fact) {
            Step::Taken(taken) => self.took_up(at, taken, out),
            Step::Decided(decided) => self.decided(at, decided, out),
            Step::Forgotten(fact) => self.forgot(fact, out),
        }
        Ok(())
    }

    /// What the batch has taken up and not decided.
    fn end_batch(&mut self, out: &mut Vec<Change>) {
        let Some(begins) = self.begins.take() else {
            return;
        };
        out.extend(self.open.range(begins..).map(|(_, row)| Change::Operation {
            row: Box::new(row.clone()),
            first: true,
        }));
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
        AdminChange, AllocationSpec, CancelVerdict, EndCause, Event, Lsn, Operation,
        PlacementPolicy, Refusal, Rule, WaitingReason,
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
            by: None,
        };
        let refused = |operation, rule, verb| {
            Event::OperationRefused(OperationRefused {
                operation,
                job_set: None,
                refusal: Refusal::new(rule, "x"),
                verb,
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
            "bad" => (
                3,
                refused(operation, Rule::QuantityZero, Some(Verb::Submit)),
            ),
            "conflict" => (
                3,
                refused(operation, Rule::OperationConflict, Some(Verb::Submit)),
            ),
            "tenant" => (
                3,
                AdminChange::Tenant(TenantSet {
                    tenant: token("t"),
                    closed: false,
                    teams: Vec::new(),
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
                    gpus: Default::default(),
                    zones: 0,
                    policy: PlacementPolicy::Default,
                    candidates: Default::default(),
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
                    exit: None,
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

    /// Steps, one millisecond apart, each a batch unless ` + ` stands between them; then the changes in a few words and how
    /// many operations are held.
    fn check(steps: &str, expected: &str) {
        let mut projection = WarmProjection::default();
        let mut changes = Vec::new();
        let mut now = 0;
        for batch in steps.split(", ") {
            for step in batch.split(" + ") {
                now += 1;
                let (no, event) = event(step);
                let at = At {
                    lsn: Lsn(1),
                    index: 0,
                    no: EventNo(no),
                    now: Millis(now),
                };
                projection.project_event(&at, &event, &mut changes).unwrap();
            }
            projection.end_batch(&mut changes);
        }
        let words: Vec<_> = changes
            .iter()
            .map(|change| match change {
                Change::Setting(row) => format!("{} {} v{}", row.setting, row.key, row.version),
                Change::Tenant(row) => format!("tenant v{}", row.version),
                Change::Forgotten { through, .. } => format!("forgotten {}", through.0),
                Change::Answered { row, first } => {
                    let (answer, at) = (row.answer.name(), row.answered_at.0);
                    let first = if *first { " at once" } else { "" };
                    format!("{} {answer} @{at}{first}", row.no.0)
                }
                Change::Operation { row, .. } => {
                    let rests = if row.stands() { "" } else { " void" };
                    match &row.state {
                        OperationState::Pending => format!("{} pending{rests}", row.no.0),
                        OperationState::Decided { at, outcome } => {
                            let rule = match &**outcome {
                                OutcomeKind::Refused(refusal) => {
                                    format!(" {}", refusal.rule.name())
                                }
                                _ => String::new(),
                            };
                            format!("{} {}{rule} @{}{rests}", row.no.0, outcome.name(), at.0)
                        }
                    }
                }
            })
            .collect();
        let held = projection.open.len();
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
    fn what_a_batch_asks_and_answers_is_written_once() {
        check("submit + reserved + placed", "1 placed @3 at once held 0");
        check("submit + cancel", "1 pending, 2 pending held 2");
        check(
            "submit, cancel + placed + was live",
            "1 pending, 1 placed @3, 2 cancelled @4 held 0",
        );
        check("submit + denied", "1 refused quota_exceeded @2 held 0");
        check("submit + forget 1 + placed", "forgotten 1 held 0");
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
        check("tenant", "tenant t v5, tenant v5, 3 applied @1 held 0");
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
