//! What operators set: versions and ranges.

use super::*;
use vocab::{PlacementPolicy, TaintEffect};
use wire::Open;

#[test]
fn operators_changes_name_the_version_that_they_expect() {
    let mut t = Table::new();
    let quota = |tenant: &str, resource: &str, limit, expected_version| {
        Verb::Admin(ChangeRequest::SetQuota(QuotaRequest {
            account: AccountRequest {
                tenant: tenant.into(),
                ..AccountRequest::default()
            },
            resource: resource.into(),
            limit,
            expected_version,
            ..QuotaRequest::default()
        }))
    };
    t.admin("q1", quota("a", "gpu", 8000, Some(0)), "applied 1");
    t.admin(
        "q2",
        quota("a", "gpu", 9000, Some(0)),
        "version_conflict expected_version",
    );
    t.admin("q3", quota("a", "gpu", 9000, Some(1)), "applied 2");
    t.admin(
        "q4",
        quota("b", "gpu", 1, None),
        "unrecorded tenant_unknown tenant",
    );
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
    t.config.operations_max = 100;
    t.config.operation_window_ms = i64::MAX;
    t.now = 5 * vocab::HOUR_MS;
    let now = t.now;
    let rate = |resource: &str, effective_from_ms: i64| {
        admin(ChangeRequest::SetRate(RateRequest {
            resource: resource.into(),
            micro_per_unit_hour: 7,
            effective_from_ms,
            ..RateRequest::default()
        }))
    };
    let past = "rate_for_a_past_hour effective_from_ms";
    t.admin("r1", rate("gpu:T4", 0), "applied 1");
    t.admin("r2", rate("gpu:T4", 0), past);
    t.admin("r3", rate("gpu:T4", now), past);
    t.admin("r4", rate("gpu:T4", now + 1), "applied 2");
    t.admin("r5", rate("disk", now + 1), "resource_unknown resource");
    // The first one may be without a moment, and not of the past.
    t.admin("r6", rate("cpu", 1), past);
    let invalid = "setting_invalid effective_from_ms";
    t.admin("r7", rate("cpu", -1), invalid);
    t.admin("r8", rate("cpu", vocab::Month::LAST.end().0), invalid);
    t.admin(
        "r9",
        rate("cpu", vocab::Month::LAST.end().0 - 1),
        "applied 1",
    );
    t.admin("r10", rate("gpu", 0), "applied 1");
    t.now = vocab::Month(202_602).begin().0;
    t.admin("p1", close(202_512), "applied 1");
    t.admin("r11", rate("memory", 0), "applied 1");
    t.admin("r12", rate("memory", t.now + 1), "applied 2");
}

#[test]
fn what_was_billed_changes_only_by_a_stated_correction() {
    let mut t = Table::new().roomy();
    t.now = 5 * vocab::HOUR_MS;
    let rate = |resource: &str, from| RateRequest {
        resource: resource.into(),
        micro_per_unit_hour: 7,
        effective_from_ms: from,
        ..RateRequest::default()
    };
    let corrects = |resource: &str, from| RateRequest {
        correction: true,
        ..rate(resource, from)
    };
    let begins = |t: &Table, request: RateRequest| {
        let found = t
            .state
            .check_admin(&ChangeRequest::SetRate(request), Millis(t.now));
        match found.expect("it is accepted").0 {
            vocab::AdminChange::Rate(set) => set.effective_from.0,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(begins(&t, rate("gpu:T4", 0)), t.now + 1);
    assert_eq!(begins(&t, corrects("gpu:T4", 0)), 0);
    let set = ChangeRequest::SetRate;
    t.set(
        set(corrects("gpu:T4", t.now + 1)),
        "setting_invalid correction",
    );
    let withdrawn = RateRequest {
        withdrawn: true,
        micro_per_unit_hour: 0,
        ..corrects("gpu:T4", 0)
    };
    t.set(set(withdrawn), "setting_invalid correction");
    t.set(set(corrects("gpu:T4", 0)), "applied 1");
    // Only the first one.
    let past = "rate_for_a_past_hour effective_from_ms";
    t.set(set(corrects("gpu:T4", 0)), past);
    t.set(set(rate("cpu", 0)), "applied 1");
    t.set(set(corrects("cpu", 0)), past);
    t.now = vocab::Month(202_602).begin().0;
    t.admin("p1", close(202_512), "applied 1");
    let closed = "period_closed effective_from_ms";
    t.set(set(corrects("memory", 0)), closed);
    t.set(set(rate("memory", 0)), "applied 1");
}

#[test]
fn each_scope_has_rates_of_its_own() {
    let mut t = Table::new().roomy();
    t.now = 5 * vocab::HOUR_MS;
    let rate = |scope: &str, effective_from_ms: i64| {
        let mut request = RateRequest {
            resource: "cpu".into(),
            micro_per_unit_hour: 7,
            effective_from_ms,
            ..RateRequest::default()
        };
        for word in scope.split_whitespace() {
            let (of, name) = word.split_once('=').unwrap();
            let field = match of {
                "tenant" => &mut request.tenant,
                "class" => &mut request.priority_class,
                "pool" => &mut request.pool,
                "cluster" => &mut request.cluster,
                other => panic!("{other}"),
            };
            *field = name.to_owned();
        }
        admin(ChangeRequest::SetRate(request))
    };
    let past = "rate_for_a_past_hour effective_from_ms";
    t.admin("r1", rate("", 0), "applied 1");
    t.admin("r2", rate("pool=p", 0), "applied 1");
    t.admin("r3", rate("pool=p cluster=c", 0), "applied 1");
    t.admin("r4", rate("pool=p", 0), past);
    t.admin("r5", rate("pool=p", t.now + 1), "applied 2");
    t.admin("r6", rate("pool=q", t.now), past);
    t.admin("r7", rate("pool=a.b", t.now + 1), "name_invalid pool");
    t.admin("r8", rate("cluster=*", t.now + 1), "name_invalid cluster");
    let unknown = "unrecorded tenant_unknown tenant";
    t.admin("r9", rate("tenant=nobody", t.now + 1), unknown);
    let unknown = "priority_class_unknown priority_class";
    t.admin("r10", rate("class=none", t.now + 1), unknown);
    t.admin("t1", set_tenant("b"), "applied 1");
    t.admin("r11", rate("tenant=b", t.now + 1), "applied 1");
    // Below the level at which rates have scopes.
    t.level = vocab::Level(4);
    let unsupported = "not_supported feature level";
    t.admin("r12", rate("tenant=b", t.now + 1), unsupported);
    t.admin("r13", rate("", t.now + 1), "applied 2");
}

#[test]
fn a_rate_that_was_set_can_be_taken_back() {
    let mut t = Table::new().roomy();
    t.now = 5 * vocab::HOUR_MS;
    let request = |resource: &str, pool: &str, effective_from_ms| RateRequest {
        resource: resource.into(),
        pool: pool.into(),
        effective_from_ms,
        ..RateRequest::default()
    };
    let back = |resource: &str, pool: &str, from| {
        ChangeRequest::SetRate(RateRequest {
            withdrawn: true,
            ..request(resource, pool, from)
        })
    };
    let rate = |resource: &str, pool: &str, from| {
        ChangeRequest::SetRate(RateRequest {
            micro_per_unit_hour: 7,
            ..request(resource, pool, from)
        })
    };
    let now = t.now;
    t.set(back("cpu", "", 0), "never_set cpu");
    t.set(rate("cpu", "", 0), "applied 1");
    t.set(back("cpu", "p", now + 1), "never_set cpu pool=p");
    t.set(back("gpu:T4", "", now + 1), "never_set gpu:T4");
    // What was used before keeps its price.
    let past = "rate_for_a_past_hour effective_from_ms";
    t.set(back("cpu", "", now), past);
    t.set(back("cpu", "", 1), past);
    let invalid = "setting_invalid effective_from_ms";
    t.set(back("cpu", "", -1), invalid);
    let month = vocab::Month::LAST.end().0;
    t.set(back("cpu", "", month), invalid);
    let priced = RateRequest {
        withdrawn: true,
        micro_per_unit_hour: 1,
        ..request("cpu", "", now + 1)
    };
    let priced = ChangeRequest::SetRate(priced);
    t.set(priced, "quantity_too_large micro_per_unit_hour");
    t.set(back("cpu", "", now + 1), "applied 2");
    // Again, and as soon as it is accepted.
    t.set(back("cpu", "", 0), "applied 3");
    // It was set once, so another one does not reach back either.
    t.set(rate("cpu", "", 0), past);
    t.set(rate("cpu", "", now + 1), "applied 4");
    t.level = vocab::Level(vocab::Level::RATE_WITHDRAWALS.0 - 1);
    t.set(back("cpu", "", now + 1), "not_supported feature level");
    t.set(rate("cpu", "", now + 1), "applied 5");
}

#[test]
fn what_is_taken_back_at_once_is_so_from_the_next_millisecond() {
    let mut t = Table::new().roomy();
    t.now = 5 * vocab::HOUR_MS;
    let request = RateRequest {
        resource: "cpu".into(),
        ..RateRequest::default()
    };
    t.set(ChangeRequest::SetRate(request.clone()), "applied 1");
    let back = RateRequest {
        withdrawn: true,
        ..request
    };
    let found = t
        .state
        .check_admin(&ChangeRequest::SetRate(back), Millis(t.now))
        .map(|(change, _)| match change {
            vocab::AdminChange::Rate(set) => (set.effective_from, set.price()),
            other => panic!("{other:?}"),
        });
    assert_eq!(found, Ok((Millis(t.now + 1), None)));
}

fn close(month: u32) -> Verb {
    admin(ChangeRequest::ClosePeriod {
        month: vocab::Month(month),
        expected_version: None,
    })
}

#[test]
fn months_are_closed_one_after_the_other() {
    let mut t = Table::new().roomy();
    t.now = vocab::Month(202_603).begin().0 + vocab::HOUR_MS - 1;
    t.admin("p1", close(202_602), "period_not_over month");
    t.admin("p2", close(202_613), "setting_invalid month");
    t.admin("p3", close(0), "setting_invalid month");
    // The first one closes all before it.
    t.admin("p4", close(202_511), "applied 1");
    for (id, month) in [("p5", 202_511), ("p6", 202_501)] {
        t.admin(id, close(month), "period_closed month");
    }
    t.admin("p7", close(202_601), "period_out_of_turn month");
    t.admin("p8", close(202_512), "applied 2");
    t.admin("p9", close(202_601), "applied 3");
    t.now += 1;
    t.admin("p10", close(202_602), "applied 4");
}

#[test]
fn no_month_is_closed_below_the_level_of_its_fact() {
    let mut t = Table::new().roomy();
    t.now = vocab::Month(202_603).begin().0;
    t.level = vocab::Level(3);
    t.admin("p1", close(202_601), "not_supported feature level");
}

#[test]
fn each_thing_that_operators_set_has_its_own_version() {
    let mut t = Table::new().roomy();
    let cordon = |node: &str, cordoned| {
        ChangeRequest::SetCordon(CordonRequest {
            node: node.into(),
            cordoned,
            ..CordonRequest::default()
        })
    };
    t.set(cordon("n1", true), "applied 1");
    t.set(cordon("n2", true), "applied 1");
    t.set(cordon("n1", false), "applied 2");
    t.set(cordon("n.1", false), "name_invalid node");
    let scheduling = || ChangeRequest::SetScheduling(SchedulingRequest::default());
    t.set(scheduling(), "applied 1");
    t.set(scheduling(), "applied 2");
    let stale = Verb::Admin(ChangeRequest::SetScheduling(SchedulingRequest {
        expected_version: Some(1),
        ..SchedulingRequest::default()
    }));
    t.admin("s", stale, "version_conflict expected_version");
}

#[test]
fn only_a_cordoned_node_is_drained() {
    let mut t = Table::new().roomy();
    let drain = |cordoned, drain, at_once| {
        ChangeRequest::SetCordon(CordonRequest {
            node: "n1".into(),
            cordoned,
            drain,
            at_once,
            expected_version: None,
        })
    };
    t.set(drain(true, true, 0), "applied 1");
    t.set(drain(true, true, 7), "applied 2");
    t.set(drain(false, true, 0), "setting_invalid drain");
    t.set(drain(true, false, 1), "setting_invalid at_once");
    t.level = vocab::Level(5);
    t.admin(
        "p1",
        Verb::Admin(drain(true, true, 0)),
        "not_supported feature level",
    );
    t.admin("p2", Verb::Admin(drain(true, false, 0)), "applied 3");
}

#[test]
fn a_node_has_each_taint_once() {
    let mut t = Table::new().roomy();
    let taint = |key: &str, value: &str, effect| TaintRequest {
        key: key.into(),
        value: value.into(),
        effect: Open::Known(effect),
    };
    let taints = |taints: &[TaintRequest]| {
        ChangeRequest::SetTaints(TaintsRequest {
            node: "n1".into(),
            taints: taints.to_vec(),
            expected_version: None,
        })
    };
    let (soft, hard) = (TaintEffect::PreferNoSchedule, TaintEffect::NoExecute);
    t.set(
        taints(&[taint("k", "v", soft), taint("k", "", hard)]),
        "applied 1",
    );
    t.set(taints(&[]), "applied 2");
    t.set(taints(&[taint("", "v", soft)]), "name_invalid taints");
    t.set(taints(&[taint("k", "v.w", soft)]), "name_invalid taints");
    let twice = [taint("k", "v", soft), taint("k", "w", soft)];
    t.set(taints(&twice), "setting_invalid taints");
    let unknown = TaintRequest {
        effect: Open::Unknown(9),
        ..taint("k", "", soft)
    };
    t.set(taints(&[unknown]), "setting_invalid taints");
    let many: Vec<_> = (0..17).map(|i| taint(&format!("k{i}"), "", soft)).collect();
    t.set(taints(&many), "too_many_elements taints");
    t.level = vocab::Level(5);
    t.admin(
        "p1",
        Verb::Admin(taints(&[])),
        "not_supported feature level",
    );
}

#[test]
fn a_priority_class_has_its_ranges() {
    let mut t = Table::new().roomy();
    let class = |change: fn(&mut ClassRequest)| {
        let mut request = ClassRequest {
            class: "batch".into(),
            ..ClassRequest::default()
        };
        change(&mut request);
        ChangeRequest::SetPriorityClass(request)
    };
    t.set(class(|c| c.value = -1_000_000), "applied 1");
    t.set(class(|c| c.grace_ms = 3_600_000), "applied 2");
    t.set(
        class(|c| c.placement = Some(Open::Known(PlacementPolicy::Fgd))),
        "applied 3",
    );
    t.set(class(|c| c.class.clear()), "name_invalid priority_class");
    t.set(
        class(|c| c.value = 1_000_001),
        "priority_out_of_range value",
    );
    t.set(class(|c| c.grace_ms = -1), "quantity_negative grace_ms");
    t.set(
        class(|c| c.grace_ms = 3_600_001),
        "quantity_too_large grace_ms",
    );
    t.set(
        class(|c| c.placement = Some(Open::Unknown(5))),
        "setting_invalid placement",
    );
}

#[test]
fn the_policy_has_its_ranges() {
    let mut t = Table::new().roomy();
    let policy = |change: fn(&mut SchedulingRequest)| {
        let mut request = SchedulingRequest::default();
        change(&mut request);
        request
    };
    assert_eq!(
        policy(|_| {}).read().unwrap(),
        vocab::SchedulingPolicy::default()
    );
    for (request, expected) in [
        (
            policy(|p| p.placement = Open::Unknown(9)),
            "setting_invalid placement",
        ),
        (
            policy(|p| p.half_life_ms = -1),
            "quantity_negative half_life_ms",
        ),
        (
            policy(|p| p.protected_milli = 1001),
            "quantity_too_large protected_milli",
        ),
        (
            policy(|p| p.preemptions_per_minute = Some(-1)),
            "quantity_negative preemptions_per_minute",
        ),
        (
            policy(|p| p.aging_ms = i64::MAX),
            "quantity_too_large aging_ms",
        ),
        (
            policy(|p| p.backoff_ms = Some(86_400_001)),
            "quantity_too_large backoff_ms",
        ),
        (
            policy(|p| p.backoff_ms = Some(300_001)),
            "setting_invalid backoff_ms_max",
        ),
    ] {
        t.set(ChangeRequest::SetScheduling(request), expected);
    }
}

#[test]
fn a_reservation_lies_ahead_and_can_be_taken_back() {
    let mut t = Table::new().roomy();
    t.now = 1000;
    let reserve = |change: fn(&mut ReservationRequest)| {
        let mut wanted = ReservationRequest {
            queue: "a".into(),
            from_ms: 500,
            until_ms: 2000,
            nodes: 3,
            selector: Vec::new(),
        };
        change(&mut wanted);
        ChangeRequest::SetReservation {
            reservation: "demo".into(),
            wanted: Some(wanted),
            expected_version: None,
        }
    };
    let back = |expected_version| ChangeRequest::SetReservation {
        reservation: "demo".into(),
        wanted: None,
        expected_version,
    };
    t.set(back(None), "never_set demo");
    t.set(back(Some(1)), "version_conflict expected_version");
    t.set(reserve(|_| {}), "applied 1");
    t.set(reserve(|w| w.until_ms = 1001), "applied 2");
    t.set(back(None), "applied 3");
    t.set(back(None), "applied 4");
    t.set(reserve(|w| w.queue = "b".into()), "queue_unknown queue");
    t.set(reserve(|w| w.queue.clear()), "name_invalid queue");
    t.set(reserve(|w| w.until_ms = 1000), "interval_invalid until_ms");
    t.set(reserve(|w| w.from_ms = 2000), "interval_invalid until_ms");
    t.set(reserve(|w| w.from_ms = -1), "quantity_negative from_ms");
    t.set(
        reserve(|w| w.until_ms = i64::MAX),
        "quantity_too_large until_ms",
    );
    t.set(reserve(|w| w.nodes = 0), "quantity_zero nodes");
    t.set(reserve(|w| w.nodes = 10_001), "quantity_too_large nodes");
    let selector = |w: &mut ReservationRequest| w.selector = vec![RequirementRequest::default()];
    t.set(reserve(selector), "name_invalid selector");
}
