//! Requests as tables: what is asked, then what admission records.

use super::*;
use vocab::{AllocationSpec, EndCause, EventNo, Lsn};

const WINDOW: i64 = 100;

struct Table {
    state: Admission,
    rules: Rules,
    next: u64,
    now: i64,
}

fn token(text: &str) -> Token {
    Token::new(text).unwrap()
}

fn submit() -> SubmitRequest {
    SubmitRequest {
        cpu_milli: 1000,
        memory_bytes: 1 << 30,
        ..SubmitRequest::default()
    }
}

fn words(event: &Event) -> String {
    match event {
        Event::AdminApplied { version, .. } => format!("applied {version}"),
        Event::AllocationRequested { .. } => "requested".into(),
        Event::CancelRequested { allocation, .. } => format!("cancel {}", allocation.0),
        Event::OperationRefused { refusal, .. } => {
            format!("{} {}", refusal.rule.name(), refusal.subject)
        }
        Event::OperationRepeated { original, .. } => format!("repeated {}", original.0),
        Event::OperationsForgotten { through } => format!("forgotten {}", through.0),
        other => format!("{other:?}"),
    }
}

impl Table {
    /// With tenant `a`, set by event 1.
    fn new() -> Self {
        let mut table = Self {
            state: Admission::default(),
            rules: Rules {
                cell: CellNo(1),
                operation_window_ms: WINDOW,
                operations_max: 8,
                allocations_max: 4,
            },
            next: 1,
            now: 0,
        };
        table.admin("tenant", set_tenant("a"), "applied 1");
        table
    }

    fn draft(&self) -> Draft {
        Draft::new(Millis(self.now), EventNo(self.next))
    }

    fn ask(&mut self, tenant: &str, id: &str, digest: u8, verb: Result<Verb, Refusal>) -> String {
        let operation = Operation {
            tenant: token(tenant),
            operation_id: Token::new(id).ok(),
            digest: [digest; 16],
            reply_to: None,
            trace: None,
        };
        let mut draft = self.draft();
        let rules = self.rules;
        self.state
            .handle(Command { operation, verb }, &rules, &mut draft);
        self.next = draft.next_no().0;
        draft.events().map(words).collect::<Vec<_>>().join(", ")
    }

    fn check(&mut self, id: &str, digest: u8, verb: Verb, expected: &str) {
        assert_eq!(self.ask("a", id, digest, Ok(verb)), expected, "{id}");
    }

    fn admin(&mut self, id: &str, verb: Verb, expected: &str) {
        assert_eq!(self.ask("_operator", id, 0, Ok(verb)), expected, "{id}");
    }

    /// A submit that breaks a rule by `change`.
    fn broken(&mut self, change: impl FnOnce(&mut SubmitRequest), expected: &str) {
        let mut request = submit();
        change(&mut request);
        let found = request.check().expect_err(expected);
        assert_eq!(format!("{} {}", found.rule.name(), found.subject), expected);
    }

    fn ended(&mut self, allocation: u64) {
        let at = At {
            lsn: Lsn(0),
            index: 0,
            no: EventNo(0),
            now: Millis(self.now),
        };
        let event = Event::AllocationEnded {
            allocation: AllocationNo(allocation),
            cause: EndCause::Finished,
            at: Millis(self.now),
        };
        self.state.observe(&at, &event).unwrap();
    }

    fn tick(&mut self, now: i64, expected: &[&str]) {
        self.now = now;
        let mut draft = self.draft();
        let rules = self.rules;
        self.state.decide(&rules, &mut draft);
        self.next = draft.next_no().0;
        let found: Vec<String> = draft.events().map(words).collect();
        assert_eq!(found, expected);
    }
}

fn set_tenant(tenant: &str) -> Verb {
    Verb::SetTenant {
        tenant: tenant.into(),
        expected: None,
    }
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
    t.check("x", 1, Verb::Submit(submit()), "requested");
    t.check("x", 1, Verb::Submit(submit()), "repeated 2");
    t.check(
        "x",
        2,
        Verb::Submit(submit()),
        "operation_conflict operation_id",
    );
    // A refusal is an outcome too, even when its cause has gone.
    t.check(
        "y",
        3,
        cancel(&id(99)),
        "allocation_not_found allocation_id",
    );
    t.check("y", 3, cancel(&id(99)), "repeated 5");
    t.tick(WINDOW, &[]);
    t.check("x", 1, Verb::Submit(submit()), "repeated 2");
    t.tick(WINDOW + 1, &["forgotten 5"]);
    t.check("x", 1, Verb::Submit(submit()), "requested");
}

#[test]
fn a_full_operation_table_refuses_new_ones_and_answers_old_ones() {
    let mut t = Table::new();
    t.rules.operations_max = 2;
    t.check("x", 1, Verb::Submit(submit()), "requested");
    t.check(
        "y",
        1,
        Verb::Submit(submit()),
        "operation_table_full operations",
    );
    t.check("x", 1, Verb::Submit(submit()), "repeated 2");
    t.tick(WINDOW + 1, &["forgotten 2"]);
    t.check("y", 1, Verb::Submit(submit()), "requested");
}

#[test]
fn an_unknown_tenant_may_try_again_once_it_is_known() {
    let mut t = Table::new();
    let verb = || Ok(Verb::Submit(submit()));
    assert_eq!(t.ask("b", "x", 1, verb()), "tenant_unknown tenant");
    t.admin("b", set_tenant("b"), "applied 1");
    assert_eq!(t.ask("b", "x", 1, verb()), "requested");
}

#[test]
fn verbs_have_their_doors() {
    let mut t = Table::new();
    t.check("x", 1, set_tenant("b"), "unknown_verb verb");
    t.admin("x", Verb::Submit(submit()), "unknown_verb verb");
    let malformed = Err(Refusal::new(Rule::MalformedMessage, "payload"));
    assert_eq!(t.ask("a", "", 0, malformed), "malformed_message payload");
}

#[test]
fn only_ones_own_live_allocations_can_be_cancelled() {
    let mut t = Table::new();
    t.admin("b", set_tenant("b"), "applied 1");
    t.check("x", 1, Verb::Submit(submit()), "requested");
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
    t.check("c3", 1, cancel(&id(3)), "cancel 3");
    t.ended(3);
    t.check("c4", 1, cancel(&id(3)), "allocation_ended allocation_id");
}

#[test]
fn live_allocations_are_bounded() {
    let mut t = Table::new();
    t.rules.allocations_max = 1;
    t.check("x", 1, Verb::Submit(submit()), "requested");
    t.check(
        "y",
        1,
        Verb::Submit(submit()),
        "allocation_table_full allocations",
    );
    t.ended(2);
    t.ended(2);
    t.check("z", 1, Verb::Submit(submit()), "requested");
    t.check(
        "w",
        1,
        Verb::Submit(submit()),
        "allocation_table_full allocations",
    );
}

#[test]
fn every_broken_quantity_and_name_is_named() {
    let mut t = Table::new();
    t.broken(|r| r.cpu_milli = 0, "quantity_zero cpu_milli");
    t.broken(|r| r.cpu_milli = -1, "quantity_negative cpu_milli");
    t.broken(|r| r.cpu_milli = i64::MIN, "quantity_negative cpu_milli");
    t.broken(|r| r.cpu_milli = i64::MAX, "quantity_too_large cpu_milli");
    t.broken(|r| r.memory_bytes = 0, "quantity_zero memory_bytes");
    t.broken(
        |r| r.memory_bytes = (1 << 50) + 1,
        "quantity_too_large memory_bytes",
    );
    t.broken(|r| r.gpu_count = -1, "quantity_negative gpu_count");
    t.broken(|r| r.gpu_count = 17, "quantity_too_large gpu_count");
    t.broken(|r| r.gpu_milli = 5, "quantity_zero gpu_count");
    t.broken(
        |r| (r.gpu_count, r.gpu_milli) = (2, 500),
        "gpu_share_invalid gpu_milli",
    );
    t.broken(
        |r| (r.gpu_count, r.gpu_milli) = (1, 1001),
        "gpu_share_invalid gpu_milli",
    );
    t.broken(
        |r| (r.gpu_count, r.gpu_milli) = (1, -5),
        "quantity_negative gpu_milli",
    );
    t.broken(
        |r| (r.gpu_count, r.gpu_models) = (1, vec!["T4".into(); 17]),
        "too_many_elements gpu_models",
    );
    t.broken(
        |r| (r.gpu_count, r.gpu_models) = (1, vec!["T 4".into()]),
        "name_invalid gpu_models",
    );
    t.broken(|r| r.priority = i32::MIN, "priority_out_of_range priority");
    for name in ["nul\0", "a.b", "*", ">", "раураl"] {
        t.broken(|r| r.name = name.into(), "name_invalid name");
        t.broken(|r| r.job_set = name.into(), "name_invalid job_set");
    }
    t.broken(|r| r.name = "x".repeat(300), "name_invalid name");
    let max = SubmitRequest {
        cpu_milli: AllocationSpec::CPU_MILLI_MAX as i64,
        memory_bytes: AllocationSpec::MEMORY_BYTES_MAX as i64,
        gpu_count: 16,
        gpu_models: vec!["B".into(), "A".into(), "B".into()],
        ..submit()
    };
    let gpu = max.check().unwrap().gpu.unwrap();
    assert_eq!((gpu.count, gpu.milli), (16, 1000));
    assert_eq!(gpu.models, [token("A"), token("B")]);
}

#[test]
fn operators_changes_name_the_version_that_they_expect() {
    let mut t = Table::new();
    let quota = |tenant: &str, resource: &str, limit, expected| Verb::SetQuota {
        tenant: tenant.into(),
        resource: resource.into(),
        limit,
        expected,
    };
    t.admin("q1", quota("a", "gpu", 8000, Some(0)), "applied 1");
    t.admin(
        "q2",
        quota("a", "gpu", 9000, Some(0)),
        "version_conflict expected_version",
    );
    t.admin("q3", quota("a", "gpu", 9000, Some(1)), "applied 2");
    t.admin("q4", quota("b", "gpu", 1, None), "tenant_unknown tenant");
    t.admin(
        "q5",
        quota("a", "disk", 1, None),
        "resource_unknown resource",
    );
    t.admin("q6", quota("a", "cpu", -1, None), "quantity_negative limit");
    t.admin("t2", set_tenant("_x"), "name_invalid tenant");
    t.admin("t3", set_tenant("a"), "applied 2");
}

#[test]
fn a_rate_does_not_change_what_was_billed() {
    let mut t = Table::new();
    t.rules.operations_max = 100;
    t.rules.operation_window_ms = i64::MAX;
    t.now = 5 * vocab::HOUR_MS;
    let rate = |resource: &str, hour: i64, extra: i64| Verb::SetRate {
        resource: resource.into(),
        micro_per_unit_hour: 7,
        effective_from_ms: hour * vocab::HOUR_MS + extra,
        expected: None,
    };
    t.admin("r1", rate("gpu:T4", 0, 0), "applied 1");
    t.admin(
        "r2",
        rate("gpu:T4", 5, 0),
        "rate_for_a_past_hour effective_from_ms",
    );
    t.admin(
        "r3",
        rate("gpu:T4", 6, 1),
        "rate_not_on_the_hour effective_from_ms",
    );
    t.admin("r4", rate("gpu:T4", 6, 0), "applied 2");
    t.admin("r5", rate("disk", 6, 0), "resource_unknown resource");
}
