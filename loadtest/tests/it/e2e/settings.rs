//! What is set is read back as the requests that would set it again: all of it by operators, and its own by a tenant.

use crate::e2e::suite::{Outcome, Suite, id};
use client::{
    Client, Operation, QueryError, QueueOrder, RatesQuery, ReservationRequest, SetBudget,
    SetCordon, SetPriorityClass, SetQueue, SetQuota, SetRate, SetReservation, SetScheduling,
    SetTaints, SetTenant, SettingView, SettingsQuery, Taint, TaintEffect,
};
use schemas::v1::{LimitRequest, Period, request::Verb, setting_view::Change};
use vocab::{HOUR_MS, Rule};

fn refused<T>(asked: Result<T, QueryError>) -> Option<Rule> {
    asked.err().and_then(|error| error.rule())
}

/// All pages of so many.
async fn all(
    operator: &Client,
    query: SettingsQuery,
    limit: u32,
) -> Result<Vec<SettingView>, QueryError> {
    let mut query = SettingsQuery { limit, ..query };
    let mut found = Vec::new();
    loop {
        let page = operator.settings(&query).await?;
        assert!(page.settings.len() <= limit as usize && page.lsn >= query.at_lsn);
        found.extend(page.settings);
        query.after = page.next;
        if query.after.is_empty() {
            return Ok(found);
        }
    }
}

/// Sets what a view says, as a change of what it says.
async fn set_again(operator: &Client, view: &SettingView) -> Result<u64, client::Failed> {
    let expected_version = Some(view.version);
    macro_rules! again {
        ($($kind:ident: $verb:ident,)*) => {
            match view.change.clone().expect("a view has its change") {
                $(Change::$kind(mut change) => {
                    assert_eq!(change.expected_version, None);
                    change.expected_version = expected_version;
                    operator.$verb(change, id()).await
                })*
                other => panic!("{other:?} is not set here"),
            }
        };
    }
    let applied = again! {
        Tenant: set_tenant,
        Quota: set_quota,
        Queue: set_queue,
        PriorityClass: set_priority_class,
        Scheduling: set_scheduling,
        Cordon: set_cordon,
        Reservation: set_reservation,
        Budget: set_budget,
        Taints: set_taints,
    };
    applied.map(|applied| applied.version)
}

/// One of each kind beside those that the suite has set, all with what is not usual.
async fn set_one_of_each(operator: &Client, now_ms: i64) -> Result<(), client::Failed> {
    let name = |text: &str| text.to_owned();
    let class = SetPriorityClass {
        priority_class: name("urgent"),
        value: 1000,
        preempts: true,
        grace_ms: 5000,
        ..SetPriorityClass::default()
    };
    operator.set_priority_class(class, id()).await?;
    let tenant = SetTenant {
        tenant: name("tenant-c"),
        cohort: name("both"),
        weight_milli: Some(2500),
        preemptible: Some(false),
        rate_milli: Some(0),
        priority_classes: vec![name("urgent")],
        teams: vec![name("ml"), name("web/front")],
        priority_max: Some(-7),
        default_cpu_milli: 250,
        ..SetTenant::default()
    };
    operator.set_tenant(tenant, id()).await?;
    let quota = SetQuota {
        tenant: name("tenant-c"),
        resource: name("gpu:T4"),
        limit: 8000,
        soft: Some(4000),
        burst: Some(9000),
        burst_ms: 60_000,
        borrow: Some(0),
        lend: Some(1000),
        ..SetQuota::default()
    };
    operator.set_quota(quota.clone(), id()).await?;
    // For a time, beside what holds for good.
    let planned = SetQuota {
        from_ms: Some(now_ms + HOUR_MS),
        until_ms: Some(now_ms + 2 * HOUR_MS),
        ..quota
    };
    operator.set_quota(planned, id()).await?;
    let budget = SetBudget {
        tenant: name("tenant-c"),
        team: name("ml"),
        of: name("money"),
        amount: Some(5_000_000),
        period: Period::Week.into(),
        ..SetBudget::default()
    };
    operator.set_budget(budget, id()).await?;
    let rate = SetRate {
        resource: name("gpu:T4"),
        micro_per_unit_hour: 77,
        effective_from_ms: now_ms + HOUR_MS,
        tenant: name("tenant-c"),
        ..SetRate::default()
    };
    operator.set_rate(rate, id()).await?;
    let queue = SetQueue {
        queue: name("research"),
        weight_milli: Some(300),
        limits: vec![LimitRequest {
            resource: name("gpu"),
            amount: 16_000,
        }],
        tenants: vec![name("tenant-c"), name("tenant-a")],
        order: QueueOrder::Sjf.into(),
        ..SetQueue::default()
    };
    operator.set_queue(queue, id()).await?;
    let scheduling = SetScheduling {
        half_life_ms: 3_600_000,
        fair_share_preemption: Some(false),
        backoff_ms: Some(5),
        backoff_ms_max: Some(50),
        ..SetScheduling::default()
    };
    operator.set_scheduling(scheduling, id()).await?;
    let cordon = SetCordon {
        node: name("n1"),
        cordoned: true,
        drain: true,
        at_once: 3,
        ..SetCordon::default()
    };
    operator.set_cordon(cordon, id()).await?;
    let taints = SetTaints {
        node: name("n1"),
        taints: vec![Taint {
            key: name("maintenance"),
            value: name("disk"),
            effect: TaintEffect::PreferNoSchedule.into(),
        }],
        ..SetTaints::default()
    };
    operator.set_taints(taints, id()).await?;
    let reservation = SetReservation {
        reservation: name("launch"),
        wanted: Some(ReservationRequest {
            queue: name("research"),
            from_ms: now_ms,
            until_ms: now_ms + HOUR_MS,
            nodes: 2,
            selector: Vec::new(),
        }),
        ..SetReservation::default()
    };
    operator
        .set_reservation(reservation, "the-reservation")
        .await?;
    Ok(())
}

#[tokio::test]
async fn what_is_set_is_read_back_and_can_be_set_again() -> Outcome {
    let suite = Suite::start().await;
    let operator = suite.operator().await;
    let now_ms = chassis::Clock::real().now_ms();
    set_one_of_each(&operator, now_ms).await?;
    let last = async || {
        let events = suite.events().await;
        events.iter().map(|(at, _)| at.lsn.0).max().unwrap_or(0)
    };
    let at_lsn = last().await;
    let of = |setting: &str, key_prefix: &str| SettingsQuery {
        setting: setting.to_owned(),
        key_prefix: key_prefix.to_owned(),
        at_lsn,
        ..SettingsQuery::default()
    };
    let found = all(&operator, of("", ""), 500).await?;
    // Pages of whatever size say the same.
    assert_eq!(all(&operator, of("", ""), 2).await?, found);
    let keys = |found: &[SettingView]| -> Vec<(String, String)> {
        let keys = found
            .iter()
            .map(|one| (one.setting.clone(), one.key.clone()));
        keys.collect()
    };
    let (from, until) = (now_ms + HOUR_MS, now_ms + 2 * HOUR_MS);
    for (setting, prefix, expected) in [
        ("tenant", "tenant-c", vec!["tenant-c".to_owned()]),
        (
            "quota",
            "tenant-c",
            vec![
                "tenant-c gpu:T4".to_owned(),
                format!("tenant-c gpu:T4 from {from} until {until}"),
            ],
        ),
        ("budget", "", vec!["tenant-c/ml money".to_owned()]),
        ("rate", "gpu:T4", vec!["gpu:T4 tenant=tenant-c".to_owned()]),
        ("queue", "", vec!["research".to_owned()]),
        ("priority_class", "", vec!["urgent".to_owned()]),
        ("scheduling", "", vec!["cell".to_owned()]),
        ("cordon", "", vec!["n1".to_owned()]),
        ("taints", "", vec!["n1".to_owned()]),
        ("reservation", "", vec!["launch".to_owned()]),
        ("period", "", Vec::new()),
        ("tenant", "no-such", Vec::new()),
    ] {
        let found = keys(&all(&operator, of(setting, prefix), 100).await?);
        let expected: Vec<_> = (expected.into_iter())
            .map(|key| (setting.to_owned(), key))
            .collect();
        assert_eq!(found, expected, "{setting} {prefix}");
    }
    let reservation = found.iter().find(|one| one.setting == "reservation");
    let reservation = reservation.expect("it was set");
    assert_eq!(reservation.operation_id, "the-reservation");
    assert!(reservation.lsn > 0 && reservation.set_at_ms > 0);
    // The same again changes nothing but who set it. Rates only hold for the future.
    let again = found.iter().filter(|one| one.setting != "rate");
    for view in again.filter(|one| one.key.contains("tenant-c") || !one.key.contains("tenant-")) {
        // With the same limits for other times.
        let prefix = view.key.split(" from ").next().unwrap_or_default();
        let query = SettingsQuery {
            at_lsn: last().await,
            ..of(&view.setting, prefix)
        };
        let current = all(&operator, query, 100).await?;
        let same = current.iter().find(|one| one.key == view.key);
        assert_eq!(same.map(|one| &one.change), Some(&view.change));
        // The limits of one account and resource share one count.
        let count = current.iter().map(|one| one.version).max().unwrap_or(0);
        let view = SettingView {
            version: count,
            ..view.clone()
        };
        assert_eq!(set_again(&operator, &view).await?, count + 1, "{view:?}");
        let stale = set_again(&operator, &view).await;
        assert!(
            stale.is_err(),
            "it is a change of an older version: {view:?}"
        );
    }
    let query = SettingsQuery {
        at_lsn: last().await,
        ..of("", "")
    };
    let changes = |found: &[SettingView]| -> Vec<_> {
        let changes = found
            .iter()
            .map(|one| (one.key.clone(), one.change.clone()));
        changes.collect()
    };
    let later = all(&operator, query, 500).await?;
    assert_eq!(changes(&later), changes(&found));
    // Tenants are told their own.
    let mut own = Vec::new();
    for name in ["tenant-a", "tenant-b"] {
        let tenant = suite.tenant(name).await;
        let told = all(&tenant, of("", ""), 3).await?;
        let is_own = |key: &str| {
            key == name
                || key.starts_with(&format!("{name} "))
                || key.starts_with(&format!("{name}/"))
        };
        let kinds = ["tenant", "quota", "budget"];
        for one in told.iter().filter(|one| one.setting != "priority_class") {
            assert!(
                kinds.contains(&&*one.setting) && is_own(&one.key),
                "{one:?}"
            );
        }
        let expected = later.iter().filter(|one| {
            one.setting == "priority_class" || kinds.contains(&&*one.setting) && is_own(&one.key)
        });
        let expected: Vec<_> = expected.cloned().collect();
        assert_eq!(changes(&told), changes(&expected));
        own.extend(told);
    }
    assert!(own.iter().any(|one| one.setting == "quota"), "{own:?}");
    for (query, rule) in [
        (of("disk", ""), Rule::SettingInvalid),
        (of("", &"x".repeat(2000)), Rule::SettingInvalid),
        (
            SettingsQuery {
                after: "nonsense".to_owned(),
                ..SettingsQuery::default()
            },
            Rule::SettingInvalid,
        ),
        (
            SettingsQuery {
                limit: 1001,
                ..SettingsQuery::default()
            },
            Rule::QuantityTooLarge,
        ),
        (
            SettingsQuery {
                at_lsn: u64::MAX,
                ..SettingsQuery::default()
            },
            Rule::NotApplied,
        ),
    ] {
        let found = operator.settings(&query).await;
        assert_eq!(refused(found), Some(rule), "{query:?}");
    }
    suite.close().await;
    Ok(())
}

#[tokio::test]
async fn operators_read_all_rates_that_were_set() -> Outcome {
    let suite = Suite::start().await;
    let operator = suite.operator().await;
    let now_ms = chassis::Clock::real().now_ms();
    let mut at_lsn = 0;
    // The last one takes the first three back.
    let withdrawn_no = 4;
    let all = [("", 0), ("", 9), ("", 5), ("tenant-a", 7), ("", 0)];
    for (no, (tenant, from)) in all.iter().enumerate() {
        let withdrawn = no == withdrawn_no;
        let rate = SetRate {
            resource: "gpu:T4".to_owned(),
            withdrawn,
            micro_per_unit_hour: if withdrawn { 0 } else { no as i64 },
            effective_from_ms: if *from == 0 {
                0
            } else {
                now_ms + from * HOUR_MS
            },
            tenant: (*tenant).to_owned(),
            ..SetRate::default()
        };
        let operation = Operation::new(format!("rate-{no}"), Verb::SetRate(rate));
        at_lsn = operator.call(&operation).await?.lsn;
    }
    let query = RatesQuery {
        resource: "gpu:T4".to_owned(),
        at_lsn,
        ..RatesQuery::default()
    };
    for limit in [1, 3, 4, 5, 0] {
        let mut query = RatesQuery {
            limit,
            ..query.clone()
        };
        let mut found = Vec::new();
        loop {
            let page = operator.rates(&query).await?;
            assert!(limit == 0 || page.rates.len() <= limit as usize);
            for one in page.rates {
                assert!(one.set_at_ms >= now_ms && one.lsn > 0 && one.lsn <= at_lsn);
                let Some(Change::Rate(rate)) = one.change else {
                    panic!("{:?}", one.change);
                };
                let price = rate.micro_per_unit_hour;
                let is_last = one.operation_id == format!("rate-{withdrawn_no}");
                assert_eq!(rate.withdrawn, is_last);
                // It says since when.
                assert!(!is_last || rate.effective_from_ms > now_ms);
                found.push((one.key, one.version, price, one.operation_id));
            }
            query.after = page.next;
            if query.after.is_empty() {
                break;
            }
        }
        let expected = [
            ("gpu:T4", 1, 0),
            ("gpu:T4", 2, 1),
            ("gpu:T4", 3, 2),
            ("gpu:T4", 4, withdrawn_no as i64),
            ("gpu:T4 tenant=tenant-a", 1, 3),
        ];
        let expected = expected.map(|(key, version, no)| {
            let price = if no == withdrawn_no as i64 { 0 } else { no };
            (key.to_owned(), version, price, format!("rate-{no}"))
        });
        assert_eq!(found, expected, "{limit}");
    }
    let of = |resource: &str, after: &str| RatesQuery {
        resource: resource.to_owned(),
        after: after.to_owned(),
        ..query.clone()
    };
    // The resource stands for all of its models, and one model for no other.
    for (other, has_it) in [("gpu:T", false), ("gpu", true), ("cpu", false)] {
        let found = operator.rates(&of(other, "")).await?.rates;
        let is_it = |one: &SettingView| one.key.starts_with("gpu:T4");
        assert_eq!(found.iter().any(is_it), has_it, "{other}: {found:?}");
    }
    let ask = async |query| refused(operator.rates(&query).await);
    assert_eq!(ask(of("disk", "")).await, Some(Rule::ResourceUnknown));
    assert_eq!(ask(of("", "cpu")).await, Some(Rule::SettingInvalid));
    let tenant = suite.tenant("tenant-a").await;
    let asked = tenant.rates(&query).await;
    assert_eq!(refused(asked), Some(Rule::UnknownVerb));
    suite.close().await;
    Ok(())
}
