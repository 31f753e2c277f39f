//! The teams that a tenant has, and the priority classes that it may use: who is named has to be there.

use super::*;

fn tenant(teams: &[&str], classes: &[&str]) -> ChangeRequest {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    ChangeRequest::SetTenant(TenantRequest {
        tenant: "a".into(),
        rate_milli: Some(0),
        teams: owned(teams),
        priority_classes: owned(classes),
        ..TenantRequest::default()
    })
}

fn account(path: &str) -> AccountRequest {
    let mut names = path.split('/').map(str::to_owned);
    AccountRequest {
        tenant: "a".into(),
        team: names.next().unwrap(),
        namespace: names.next().unwrap_or_default(),
    }
}

/// A budget has one, and none that is taken back.
fn period(amount: Option<i64>) -> wire::Open<vocab::Period> {
    amount.map_or_else(Default::default, |_| wire::Open::Known(vocab::Period::Day))
}

/// What becomes of a request, limits and a budget of this team or namespace: the same of all.
#[track_caller]
fn check(teams: &[&str], path: &str, expected: &str) {
    let mut t = Table::new().roomy();
    t.set(tenant(teams, &[]), "applied 2");
    let of = account(path);
    let (accepted, set) = match expected {
        "" => ("requested", "applied 1"),
        refused => (refused, refused),
    };
    let submit = SubmitRequest {
        team: of.team.as_str().into(),
        namespace: of.namespace.as_str().into(),
        ..submit()
    };
    t.check("1", 1, Verb::Submit(submit), accepted);
    let quota = |unlimited| {
        ChangeRequest::SetQuota(QuotaRequest {
            account: of.clone(),
            resource: "gpu".into(),
            unlimited,
            ..QuotaRequest::default()
        })
    };
    t.set(quota(false), set);
    let budget = |amount| {
        ChangeRequest::SetBudget(BudgetRequest {
            account: of.clone(),
            of: "gpu".into(),
            amount,
            period: period(amount),
            ..BudgetRequest::default()
        })
    };
    t.set(budget(Some(1)), set);
    // Limits and budgets of any team can be removed if they were set.
    let again = match expected {
        "" => "applied 2".to_owned(),
        _ => format!("never_set a/{path} gpu"),
    };
    t.set(quota(true), &again);
    t.set(budget(None), &again);
}

#[test]
fn accounts_are_of_the_teams_that_a_tenant_has() {
    let (team, namespace) = ("team_unknown team", "team_unknown namespace");
    for path in ["", "ml", "ml/train"] {
        check(&[], path, "");
        check(&["ml", "ml/train"], path, "");
        check(&["ml/train"], path, "");
    }
    check(&["ml"], "ml/serve", "");
    check(&["ml/train"], "ml/serve", namespace);
    check(&["ml/train", "ml/serve"], "ml/serve", "");
    check(&["ml"], "m", team);
    check(&["ml"], "mlx", team);
    check(&["ml", "web/front"], "web/back", namespace);
    check(&["ml"], "", "");
}

#[test]
fn teams_are_names_and_not_too_many() {
    let mut t = Table::new().roomy();
    let invalid = "name_invalid teams";
    for name in ["", "/", "ml/", "/train", "ml/train/x", "a b", "ml/a b"] {
        t.set(tenant(&[name], &[]), invalid);
    }
    let names: Vec<String> = (0..257).map(|i| format!("team-{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    t.set(tenant(&names, &[]), "too_many_elements teams");
    t.set(tenant(&names[1..], &[]), "applied 2");
}

#[test]
fn a_list_of_teams_can_change_and_go() {
    let mut t = Table::new().roomy();
    let of = |team: &'static str| move |r: &mut SubmitRequest| r.team = team.into();
    t.set(tenant(&["ml", "ml"], &[]), "applied 2");
    assert!(t.spec(of("ml")).is_ok());
    t.broken(of("web"), "team_unknown team");
    t.set(tenant(&["web"], &[]), "applied 3");
    t.broken(of("ml"), "team_unknown team");
    assert!(t.spec(of("web")).is_ok());
    t.set(tenant(&[], &[]), "applied 4");
    assert!(t.spec(of("ml")).is_ok());
    // Another's list is another's.
    t.set(tenant(&["web"], &[]), "applied 5");
    t.admin("b", set_tenant("b"), "applied 1");
    let mut request = submit();
    request.team = "ml".into();
    let spec = t.state.check_submit(&token("b"), &request, &t.config);
    assert!(spec.is_ok());
}

/// So that what is exported can be applied where it stands.
#[test]
fn limits_that_stand_may_change_after_their_team_has_gone() {
    let mut t = Table::new().roomy();
    let quota = |limit| {
        ChangeRequest::SetQuota(QuotaRequest {
            account: account("web"),
            resource: "gpu".into(),
            limit,
            ..QuotaRequest::default()
        })
    };
    let budget = |amount| {
        ChangeRequest::SetBudget(BudgetRequest {
            account: account("web"),
            of: "gpu".into(),
            amount: Some(amount),
            period: period(Some(amount)),
            ..BudgetRequest::default()
        })
    };
    t.set(quota(5), "applied 1");
    t.set(budget(5), "applied 1");
    t.set(tenant(&["ml"], &[]), "applied 2");
    t.set(quota(0), "applied 2");
    t.set(budget(0), "applied 2");
    t.broken(|r| r.team = "web".into(), "team_unknown team");
}

#[test]
fn a_list_of_teams_is_of_a_feature_level() {
    let mut t = Table::new().roomy();
    t.level = vocab::Level(vocab::Level::TEAMS.0 - 1);
    t.set(tenant(&["ml"], &[]), "not_supported feature level");
    t.set(tenant(&[], &[]), "applied 2");
}

/// What stands from a time when nobody looked may stay.
#[test]
fn classes_that_a_tenant_is_given_are_there() {
    let mut t = Table::new().roomy();
    let unknown = "priority_class_unknown priority_classes";
    t.set(tenant(&[], &["low"]), unknown);
    t.set(priority_class("low"), "applied 1");
    t.set(tenant(&[], &["low"]), "applied 2");
    t.set(tenant(&[], &["high", "low"]), unknown);
    t.state.settings.classes.clear();
    t.set(tenant(&[], &["low"]), "applied 3");
    t.set(tenant(&[], &["high", "low"]), unknown);
    t.set(tenant(&[], &[]), "applied 4");
    t.set(tenant(&[], &["low"]), unknown);
}

/// The verbs of what is refused, as they are recorded.
fn refused(t: &mut Table, tenant: &str, verb: Result<Verb, Refusal>) -> Option<vocab::Verb> {
    let operation = Operation {
        tenant: token(tenant),
        operation_id: None,
        digest: [0; 16],
        reply_to: None,
        trace: None,
        by: None,
    };
    let mut draft = t.draft();
    let config = t.config;
    t.state
        .handle(Command { operation, verb }, &config, &mut draft);
    t.next = draft.next_no().0;
    let mut events = draft.events();
    match events.next() {
        Some(Event::OperationRefused(fact)) => fact.verb,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_refusal_says_what_was_asked_for() {
    let mut t = Table::new().roomy();
    let mut zero = submit();
    zero.cpu_milli = -1;
    let acquire = ResourceRequest::Acquire {
        resource: "a b".into(),
        holder: "h".into(),
        ttl_slots: 1,
        slot: None,
    };
    t.config.slot_ms = 1;
    let cases = [
        ("a", Ok(Verb::Submit(zero)), Some(vocab::Verb::Submit)),
        ("a", Ok(cancel("x")), Some(vocab::Verb::Cancel)),
        ("a", Ok(Verb::Resource(acquire)), Some(vocab::Verb::Acquire)),
        (
            "_operator",
            Ok(set_tenant("_x")),
            Some(vocab::Verb::SetTenant),
        ),
        (
            "a",
            Err(Refusal::new(Rule::MalformedMessage, "message")),
            None,
        ),
    ];
    for (tenant, verb, expected) in cases {
        assert_eq!(refused(&mut t, tenant, verb.clone()), expected);
        t.level = vocab::Level(vocab::Level::REFUSED_VERBS.0 - 1);
        assert_eq!(refused(&mut t, tenant, verb), None);
        t.level = vocab::Level::KNOWN;
    }
}
