//! How tenants are treated: rates, backlogs, priorities, defaults; and what operators may set.

use super::*;
use vocab::Period;
use wire::Open;

fn treat(t: &mut Table, change: impl FnOnce(&mut TenantRequest), expected: &str) {
    let mut request = TenantRequest {
        tenant: "a".into(),
        ..TenantRequest::default()
    };
    change(&mut request);
    t.set(ChangeRequest::SetTenant(request), expected);
}

fn limit(t: &mut Table, change: impl FnOnce(&mut QuotaRequest), expected: &str) {
    let mut request = QuotaRequest {
        account: AccountRequest {
            tenant: "a".into(),
            ..AccountRequest::default()
        },
        resource: "gpu".into(),
        limit: 8000,
        ..QuotaRequest::default()
    };
    change(&mut request);
    t.set(ChangeRequest::SetQuota(request), expected);
}

#[test]
fn a_flood_is_turned_away_unrecorded_and_repeats_are_answered() {
    let mut t = Table::new().roomy();
    treat(&mut t, |r| r.rate_milli = Some(2000), "applied 2");
    t.check("1", 1, plain(), "requested");
    t.check(
        "2",
        1,
        cancel(&id(99)),
        "allocation_not_found allocation_id",
    );
    t.check("3", 1, plain(), "unrecorded rate_limited rate_milli");
    t.check("1", 2, plain(), "unrecorded rate_limited rate_milli");
    t.check("1", 1, plain(), "repeated 3");
    t.now += 500;
    t.check("3", 1, plain(), "requested");
    t.check("4", 1, plain(), "unrecorded rate_limited rate_milli");
    // Operators, and other tenants, have nothing to do with it.
    t.admin("b", set_tenant("b"), "applied 1");
    assert_eq!(t.ask("b", "1", 1, Ok(plain())), "requested");
    treat(&mut t, |r| r.rate_milli = Some(0), "applied 3");
    t.check("5", 1, plain(), "requested");
}

#[test]
fn a_tenant_without_a_rate_has_the_usual_one() {
    fn check(rate_milli: Option<i64>, rate_burst: i64, expected: (u64, u64)) {
        let mut t = Table::new().roomy();
        let asked = |r: &mut TenantRequest| (r.rate_milli, r.rate_burst) = (rate_milli, rate_burst);
        treat(&mut t, asked, "applied 2");
        let settings = &t.state.settings.tenants["a"];
        assert_eq!((settings.rate_milli, settings.rate_burst), expected);
    }
    check(None, 0, (1_000_000, 10_000));
    check(None, 7, (1_000_000, 7));
    check(Some(0), 0, (0, 0));
    check(Some(5000), 0, (5000, 0));
    check(Some(5000), 7, (5000, 7));
}

#[test]
fn a_rate_is_a_function_of_what_was_recorded() {
    let mut t = Table::new().roomy();
    treat(&mut t, |r| r.rate_milli = Some(1000), "applied 2");
    t.check("1", 1, plain(), "requested");
    let before = t.state.clone();
    t.check("2", 1, plain(), "unrecorded rate_limited rate_milli");
    assert_eq!(t.state, before);
}

#[test]
fn a_tenants_live_allocations_are_bounded() {
    let mut t = Table::new().roomy();
    t.admin("b", set_tenant("b"), "applied 1");
    treat(&mut t, |r| r.allocations_max = 1, "applied 2");
    t.check("1", 1, plain(), "requested");
    t.check("2", 1, plain(), "unrecorded backlog_full allocations");
    assert_eq!(t.ask("b", "1", 1, Ok(plain())), "requested");
    t.ended(4);
    t.ended(4);
    t.check("2", 1, plain(), "requested");
    t.check("3", 1, plain(), "unrecorded backlog_full allocations");
}

#[test]
fn priorities_are_what_the_tenant_may_ask_for() {
    let mut t = Table::new().roomy();
    for (class, value) in [("low", -5), ("high", 900)] {
        let request = ClassRequest {
            class: class.into(),
            value,
            ..ClassRequest::default()
        };
        t.set(ChangeRequest::SetPriorityClass(request), "applied 1");
    }
    let low = |r: &mut TenantRequest| {
        r.priority_classes = vec!["low".into()];
        r.priority_max = Some(10);
    };
    treat(&mut t, low, "applied 2");
    t.broken(|r| r.priority = 11, "priority_out_of_range priority");
    assert_eq!(t.spec(|r| r.priority = 10).unwrap().priority, 10);
    let class = |name: &'static str| move |r: &mut SubmitRequest| r.priority_class = name.into();
    t.broken(class("high"), "priority_class_forbidden priority_class");
    t.broken(class("none"), "priority_class_unknown priority_class");
    assert_eq!(t.spec(class("low")).unwrap().priority, -5);
    t.check("1", 1, plain(), "requested");
    let priority = |target, priority| Verb::SetPriority { target, priority };
    let one = || TargetRequest::AllocationId(id(5));
    t.check("2", 1, priority(one(), 10), "priority 10");
    t.check(
        "3",
        1,
        priority(one(), 11),
        "priority_out_of_range priority",
    );
    let all = || TargetRequest::JobSet("j".into());
    t.check("4", 1, priority(all(), 1), "priority 1");
    let wild = TargetRequest::JobSet("*".into());
    t.check("5", 1, priority(wild, 1), "name_invalid job_set");
    t.ended(5);
    t.check("7", 1, priority(one(), 1), "allocation_ended allocation_id");
    let job_set = |name: &str| Verb::CancelJobSet {
        job_set: name.into(),
    };
    t.check("8", 1, job_set("j"), "cancel all of j");
    t.check("9", 1, job_set(""), "name_invalid job_set");
}

#[test]
fn what_is_not_named_is_the_tenants_default() {
    let mut t = Table::new().roomy();
    let nothing = |r: &mut SubmitRequest| (r.cpu_milli, r.memory_bytes) = (0, 0);
    t.broken(nothing, "quantity_zero cpu_milli");
    let defaults = |r: &mut TenantRequest| {
        (r.default_cpu_milli, r.default_memory_bytes) = (250, 1 << 20);
    };
    treat(&mut t, defaults, "applied 2");
    let spec = t.spec(nothing).unwrap();
    assert_eq!((spec.cpu_milli, spec.memory_bytes), (250, 1 << 20));
    assert_eq!(spec.qos().name(), "guaranteed");
    let more = t.spec(|r| r.cpu_milli_limit = 2000).unwrap();
    assert_eq!(
        (more.limits.cpu_milli, more.qos().name()),
        (2000, "burstable")
    );
    let same = t.spec(|r| r.cpu_milli_limit = 1000).unwrap();
    assert_eq!(same.qos().name(), "guaranteed");
    t.broken(
        |r| r.memory_bytes_limit = 1,
        "setting_invalid memory_bytes_limit",
    );
    t.broken(|r| r.best_effort = true, "setting_invalid best_effort");
    let left_over = |r: &mut SubmitRequest| {
        nothing(r);
        r.best_effort = true;
    };
    let spec = t.spec(left_over).unwrap();
    assert_eq!((spec.cpu_milli, spec.qos().name()), (0, "best_effort"));
    t.broken(|r| r.namespace = "n".into(), "name_invalid team");
    let spec = t.spec(|r| (r.team, r.namespace) = ("t".into(), "n".into()));
    assert_eq!(spec.unwrap().account(&token("a")).to_string(), "a/t/n");
}

#[test]
fn limits_that_cannot_be_are_refused() {
    let mut t = Table::new().roomy();
    t.now = 1000;
    limit(&mut t, |r| r.soft = Some(8000), "applied 1");
    limit(&mut t, |r| r.soft = Some(8001), "setting_invalid soft gpu");
    let burst = |most, ms| {
        move |r: &mut QuotaRequest| {
            r.burst = Some(most);
            r.burst_ms = ms;
        }
    };
    limit(&mut t, burst(9000, 60_000), "applied 2");
    limit(&mut t, burst(9000, 0), "quantity_zero burst_ms");
    limit(&mut t, burst(7999, 60_000), "setting_invalid burst gpu");
    limit(&mut t, |r| r.burst_ms = 1, "quantity_too_large burst_ms");
    limit(&mut t, |r| r.borrow = Some(1), "applied 3");
    let of_team = |r: &mut QuotaRequest| r.account.team = "t".into();
    limit(&mut t, of_team, "applied 1");
    let lent = |r: &mut QuotaRequest| {
        r.account.team = "t".into();
        r.lend = Some(1);
    };
    limit(&mut t, lent, "setting_invalid lend");
    limit(
        &mut t,
        |r| r.account.namespace = "n".into(),
        "name_invalid team",
    );
    limit(
        &mut t,
        |r| r.from_ms = Some(1000),
        "interval_invalid from_ms",
    );
    limit(&mut t, |r| r.until_ms = Some(1001), "applied 4");
    let backwards = |r: &mut QuotaRequest| (r.from_ms, r.until_ms) = (Some(2000), Some(2000));
    limit(&mut t, backwards, "interval_invalid until_ms");
    limit(
        &mut t,
        |r| r.until_ms = Some(i64::MAX),
        "interval_invalid until_ms",
    );
    limit(&mut t, |r| r.unlimited = true, "setting_invalid unlimited");
    let none = |r: &mut QuotaRequest| (r.limit, r.unlimited) = (0, true);
    limit(&mut t, none, "applied 5");
    let leases = |r: &mut QuotaRequest| r.resource = "leases".into();
    limit(&mut t, leases, "applied 1");
    let planned = |r: &mut QuotaRequest| {
        leases(r);
        r.until_ms = Some(5000);
    };
    limit(&mut t, planned, "not_supported resource");
}

#[test]
fn budgets_have_a_period() {
    let mut t = Table::new().roomy();
    let mut budget = |of: &str, amount: Option<i64>, period, expected: &str| {
        let request = BudgetRequest {
            account: AccountRequest {
                tenant: "a".into(),
                ..AccountRequest::default()
            },
            of: of.into(),
            amount,
            period: Period::from_number(period).map_or(Open::Unknown(period), Open::Known),
            expected_version: None,
        };
        t.set(ChangeRequest::SetBudget(request), expected);
    };
    budget("money", Some(1_000_000), 4, "applied 1");
    budget("money", None, 0, "applied 2");
    budget("gpu", Some(0), 1, "applied 1");
    budget("gpu", Some(1), 0, "setting_invalid period");
    budget("gpu", Some(1), 5, "setting_invalid period");
    budget("gpu", Some(-1), 1, "quantity_negative amount");
    budget("pods", Some(1), 1, "resource_unknown of");
}
