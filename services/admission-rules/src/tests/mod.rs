//! Requests as tables: what is asked, then what admission records.

mod admin;
mod closed;
mod gangs;
mod isolation;
mod operators;
mod places;
mod queues;
mod read_back;
mod resources;
mod room;
mod submit;
mod teams;
mod tenants;
mod upgrade;

use super::*;
use vocab::fact::{
    AllocationEnded, AllocationRequeued, CancelRequested, Inputs, JobSetCancelRequested,
    OperationRefused, OperationRepeated, OperationsForgotten, PriorityRequested, QuotaDenied,
    ResourceAsked, SettingFact,
};
use vocab::{AllocationSpec, CellNo, EndCause, Event, EventNo, Lsn};

const WINDOW: i64 = 100;
/// What each has of its own of both kinds of room.
const OWN: u64 = 1 << 20;

struct Table {
    state: Admission,
    config: Config,
    next: u64,
    /// Events of other writers; one count will do for all.
    others: u64,
    now: i64,
    level: vocab::Level,
    /// The operator who asks, where it is one with a name.
    by: Option<&'static str>,
}

fn token(text: &str) -> Token {
    Token::new(text).unwrap()
}

fn shares(shared_bytes_max: u64) -> Shares {
    Shares {
        operations_own_bytes: OWN,
        allocations_own_bytes: OWN,
        shared_bytes_max,
    }
}

fn submit() -> SubmitRequest {
    SubmitRequest {
        cpu_milli: 1000,
        memory_bytes: 1 << 30,
        ..SubmitRequest::default()
    }
}

fn words(event: &Event) -> String {
    if let Some(set) = SettingFact::of(event) {
        return format!("applied {}", set.asked().1);
    }
    match event {
        Event::AllocationRequested(_) => "requested".into(),
        Event::CancelRequested(CancelRequested { allocation, .. }) => {
            format!("cancel {}", allocation.0)
        }
        Event::OperationRefused(OperationRefused { refusal, .. }) => {
            format!("{} {}", refusal.rule.name(), refusal.subject)
        }
        Event::OperationRepeated(OperationRepeated { original, .. }) => {
            format!("repeated {}", original.0)
        }
        Event::OperationsForgotten(OperationsForgotten {
            through,
            slots_of,
            ended_through: EventNo(0),
            denied_through: EventNo(0),
        }) => match slots_of {
            None => format!("forgotten {}", through.0),
            Some(tenant) => format!("{tenant} forgotten {}", through.0),
        },
        Event::OperationsForgotten(OperationsForgotten {
            through,
            ended_through,
            denied_through,
            ..
        }) => {
            let (ended, denied) = (ended_through.0, denied_through.0);
            format!("forgotten {} ended {ended} denied {denied}", through.0)
        }
        Event::JobSetCancelRequested(JobSetCancelRequested { job_set, .. }) => {
            format!("cancel all of {job_set}")
        }
        Event::PriorityRequested(PriorityRequested { priority, .. }) => {
            format!("priority {priority}")
        }
        Event::ResourceAsked(ResourceAsked { slot, .. }) => format!("asked in {slot}"),
        other => format!("{other:?}"),
    }
}

/// With the operator's name, where the event has it.
fn told(event: &Event) -> String {
    let by = event.operation().and_then(|asked| asked.by.as_deref());
    by.map_or_else(|| words(event), |by| format!("{} by {by}", words(event)))
}

impl Table {
    /// With tenant `a`, set by event 1.
    fn new() -> Self {
        let mut table = Self {
            state: Admission::default(),
            config: Config {
                cell: CellNo(1),
                operation_window_ms: WINDOW,
                operations_max: 8,
                allocations_max: 4,
                room: shares(0),
                slot_ms: 0,
                window_slots: 24,
            },
            next: 1,
            others: 0,
            now: 0,
            level: vocab::Level::KNOWN,
            by: None,
        };
        table.admin("tenant", set_tenant("a"), "applied 1");
        table
    }

    fn draft(&self) -> Draft {
        Draft::new(Millis(self.now), EventNo(self.next)).at_level(self.level)
    }

    fn ask(&mut self, tenant: &str, id: &str, digest: u8, verb: Result<Verb, Refusal>) -> String {
        let operation = Operation {
            tenant: token(tenant),
            operation_id: Token::new(id).ok(),
            digest: [digest; 16],
            reply_to: Some(token("r")),
            trace: None,
            by: self.by.map(|name| Box::new(token(name))),
        };
        let mut draft = self.draft();
        let config = self.config;
        self.state
            .handle(Command { operation, verb }, &config, &mut draft);
        self.next = draft.next_no().0;
        let away = |turned: Turned| match turned.answer {
            Ok(_) => "unrecorded passes".to_owned(),
            Err(Refusal { rule, subject, .. }) => {
                format!("unrecorded {} {subject}", rule.name())
            }
        };
        let away = self.state.take_effects().into_iter().map(away);
        self.recount();
        let all: Vec<String> = draft.events().map(told).chain(away).collect();
        all.join(", ")
    }

    #[track_caller]
    fn check(&mut self, id: &str, digest: u8, verb: Verb, expected: &str) {
        assert_eq!(self.ask("a", id, digest, Ok(verb)), expected, "{id}");
    }

    #[track_caller]
    fn admin(&mut self, id: &str, verb: Verb, expected: &str) {
        assert_eq!(self.ask("_operator", id, 0, Ok(verb)), expected, "{id}");
    }

    /// An operator's change, under an operation id of its own.
    #[track_caller]
    fn set(&mut self, change: ChangeRequest, expected: &str) {
        let id = format!("set-{}", self.next);
        self.admin(&id, admin(change), expected);
    }

    /// What becomes of a submit of tenant `a` after `change`.
    fn spec(&self, change: impl FnOnce(&mut SubmitRequest)) -> Result<AllocationSpec, Refusal> {
        let mut request = submit();
        change(&mut request);
        self.state.check_submit(&token("a"), &request, &self.config)
    }

    /// A submit that breaks a rule by `change`.
    #[track_caller]
    fn broken(&self, change: impl FnOnce(&mut SubmitRequest), expected: &str) {
        let found = self.spec(change).expect_err(expected);
        assert_eq!(format!("{} {}", found.rule.name(), found.subject), expected);
    }

    /// Nothing is forgotten, and there is room.
    fn roomy(mut self) -> Self {
        self.config.operations_max = 1000;
        self.config.operation_window_ms = i64::MAX;
        self.config.allocations_max = 1000;
        self.config.room = shares(1 << 40);
        self
    }

    fn observe(&mut self, event: &Event) {
        self.others += 1;
        let at = At {
            lsn: Lsn(0),
            index: 0,
            no: EventNo(self.others),
            now: Millis(self.now),
        };
        self.state.observe_event(&at, event).unwrap();
        self.recount();
    }

    /// The room that tenants take is the sum over what is kept of them.
    fn recount(&self) {
        let mut room = Room::default();
        self.state.operations.occupy(&mut room);
        self.state.allocations.occupy(&mut room);
        assert_eq!(self.state.room, room);
    }

    fn ended(&mut self, allocation: u64) {
        self.ended_by(allocation, EndCause::Finished);
    }

    fn ended_by(&mut self, allocation: u64, cause: EndCause) {
        self.observe(&Event::AllocationEnded(AllocationEnded {
            allocation: AllocationNo(allocation),
            cause,
            at: Millis(self.now),
            exit: None,
        }));
    }

    fn denied(&mut self, allocation: u64) {
        self.observe(&Event::QuotaDenied(QuotaDenied {
            allocation: AllocationNo(allocation),
            refusal: Refusal::new(Rule::QuotaExceeded, "cpu"),
        }));
    }

    fn requeued(&mut self, allocation: u64) {
        self.observe(&Event::AllocationRequeued(AllocationRequeued {
            allocation: AllocationNo(allocation),
            cause: EndCause::NodeLost,
            at: Millis(self.now),
            not_before: Millis(self.now + 1000),
            exit: None,
        }));
    }

    fn tick(&mut self, now: i64, expected: &[&str]) {
        self.now = now;
        let mut draft = self.draft();
        let config = self.config;
        self.state.decide(&config, &mut draft);
        self.next = draft.next_no().0;
        self.recount();
        let found: Vec<String> = draft.events().map(words).collect();
        assert_eq!(found, expected);
    }
}

fn admin(change: ChangeRequest) -> Verb {
    Verb::Admin(change)
}

/// A tenant that may ask any number of times in one moment.
fn set_tenant(tenant: &str) -> Verb {
    admin(ChangeRequest::SetTenant(TenantRequest {
        tenant: tenant.into(),
        rate_milli: Some(0),
        ..TenantRequest::default()
    }))
}

fn priority_class(class: &str) -> ChangeRequest {
    ChangeRequest::SetPriorityClass(ClassRequest {
        class: class.into(),
        ..ClassRequest::default()
    })
}

fn plain() -> Verb {
    Verb::Submit(submit())
}

fn cancel(id: &str) -> Verb {
    Verb::Cancel {
        allocation_id: id.into(),
    }
}

fn id(no: u64) -> String {
    AllocationNo(no).id(CellNo(1)).to_string()
}

#[test]
fn an_operation_has_one_outcome_within_its_window() {
    let mut t = Table::new();
    t.check("x", 1, plain(), "requested");
    t.check("x", 1, plain(), "repeated 2");
    t.check("x", 2, plain(), "operation_conflict operation_id");
    // A refusal is an outcome too, even when its cause has gone.
    t.check(
        "y",
        3,
        cancel(&id(99)),
        "allocation_not_found allocation_id",
    );
    t.check("y", 3, cancel(&id(99)), "repeated 5");
    t.tick(WINDOW, &[]);
    t.check("x", 1, plain(), "repeated 2");
    t.tick(WINDOW + 1, &["forgotten 5"]);
    t.check("x", 1, plain(), "requested");
}

#[test]
fn a_full_operation_table_refuses_new_ones_and_answers_old_ones() {
    let mut t = Table::new();
    t.config.operations_max = 1;
    t.check("x", 1, plain(), "requested");
    t.check(
        "y",
        1,
        plain(),
        "unrecorded operation_table_full operations",
    );
    t.check("x", 1, plain(), "repeated 2");
    // What nobody can read takes no place either, and neither operators nor other tenants wait for one.
    let unreadable = Err(Refusal::new(Rule::UnknownField, "payload"));
    let full = "unrecorded operation_table_full operations";
    assert_eq!(t.ask("a", "z", 1, unreadable), full);
    for version in 1..4 {
        t.set(priority_class("c"), &format!("applied {version}"));
    }
    t.admin("b", set_tenant("b"), "applied 1");
    assert_eq!(t.ask("b", "x", 1, Ok(plain())), "requested");
    t.tick(WINDOW + 1, &["forgotten 8"]);
    t.check("y", 1, plain(), "requested");
}

#[test]
fn an_unknown_tenant_may_try_again_once_it_is_known() {
    let mut t = Table::new();
    let verb = || Ok(plain());
    assert_eq!(
        t.ask("b", "x", 1, verb()),
        "unrecorded tenant_unknown tenant"
    );
    t.admin("b", set_tenant("b"), "applied 1");
    assert_eq!(t.ask("b", "x", 1, verb()), "requested");
}

#[test]
fn verbs_have_their_inboxes() {
    let mut t = Table::new();
    t.check("x", 1, set_tenant("b"), "unknown_verb verb");
    t.admin("x", plain(), "unknown_verb verb");
    let malformed = Err(Refusal::new(Rule::MalformedMessage, "payload"));
    assert_eq!(t.ask("a", "", 0, malformed), "malformed_message payload");
}

#[test]
fn only_ones_own_live_allocations_can_be_cancelled() {
    let mut t = Table::new();
    t.admin("b", set_tenant("b"), "applied 1");
    t.check("x", 1, plain(), "requested");
    let foreign = Ok(cancel(&id(3)));
    assert_eq!(
        t.ask("b", "c", 1, foreign),
        "allocation_not_found allocation_id"
    );
    t.check(
        "c1",
        1,
        cancel("nonsense"),
        "allocation_id_invalid allocation_id",
    );
    let elsewhere = AllocationNo(3).id(CellNo(2)).to_string();
    t.check(
        "c2",
        1,
        cancel(&elsewhere),
        "allocation_not_found allocation_id",
    );
    t.requeued(3);
    t.check("c3", 1, cancel(&id(3)), "cancel 3");
    t.ended(3);
    t.check("c4", 1, cancel(&id(3)), "allocation_ended allocation_id");
}

#[test]
fn live_allocations_of_a_tenant_are_bounded() {
    let mut t = Table::new();
    t.config.allocations_max = 1;
    t.check("x", 1, plain(), "requested");
    let full = "unrecorded allocation_table_full allocations";
    t.check("y", 1, plain(), full);
    t.ended(2);
    t.ended(2);
    t.check("z", 1, plain(), "requested");
    t.check("w", 1, plain(), full);
    t.admin("b", set_tenant("b"), "applied 1");
    assert_eq!(t.ask("b", "x", 1, Ok(plain())), "requested");
}
