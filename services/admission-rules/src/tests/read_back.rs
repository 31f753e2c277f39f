//! What was set reads back as what would set it again.

use super::*;
use proptest::{option, prelude::*, sample::select, strategy::ValueTree, test_runner::TestRunner};
use std::collections::BTreeMap;
use vocab::{
    OnExceed, Operator, PlacementPolicy, QueueOrder, ReclaimFrom, TaintEffect, TenantSettings,
};
use wire::Open;

const NOW: Millis = Millis(1_000_000);

/// With tenant, class and queue `a`, and rates of `gpu`: for all, and for `a`.
fn cell() -> Admission {
    let mut t = Table::new();
    for tenant in ["", "a"] {
        let rate = RateRequest {
            resource: "gpu".into(),
            tenant: tenant.into(),
            ..RateRequest::default()
        };
        t.set(ChangeRequest::SetRate(rate), "applied 1");
    }
    let mut cell = t.state;
    let settings = &mut cell.settings;
    settings
        .tenants
        .insert(token("a"), TenantSettings::default());
    settings.classes.insert(token("a"), 0);
    settings.set_queue(&vocab::fact::QueueSet {
        queue: token("a"),
        closed: false,
        settings: vocab::QueueSettings::default(),
    });
    cell
}

/// Wrong values are rare: a request with one of them is refused, whatever the rest of it is.
fn name() -> impl Strategy<Value = String> {
    let text = prop_oneof![
        8 => select(vec!["a", "b"]),
        4 => Just(""),
        1 => select(vec!["_x", "a b"])
    ];
    text.prop_map(str::to_owned)
}

fn known() -> impl Strategy<Value = String> {
    select(vec!["a", "a", "a", "b"]).prop_map(str::to_owned)
}

fn amount() -> impl Strategy<Value = i64> {
    prop_oneof![
        12 => select(vec![0, 1, 999, 5000]),
        1 => select(vec![1 << 53, -1])
    ]
}

fn maybe() -> impl Strategy<Value = Option<i64>> {
    option::of(amount())
}

fn moment() -> impl Strategy<Value = Option<i64>> {
    option::of(select(vec![NOW.0 + 5, NOW.0 + 9, NOW.0 - 1]))
}

fn placement() -> impl Strategy<Value = Option<Open<PlacementPolicy>>> {
    option::of(select(PlacementPolicy::ALL.to_vec()).prop_map(Open::Known))
}

fn tenant() -> impl Strategy<Value = ChangeRequest> {
    let settings = (
        maybe(),
        option::of(any::<bool>()),
        maybe(),
        amount(),
        amount(),
    );
    let team = prop_oneof![
        8 => select(vec!["a", "a/b", "b"]),
        1 => select(vec!["b/_x", "/"])
    ];
    let rest = (
        option::of(-5..5i32),
        amount(),
        amount(),
        prop::collection::vec(known(), 0..3),
        prop::collection::vec(team, 0..3),
    );
    let words = (
        select(OnExceed::ALL.to_vec()),
        select(ReclaimFrom::ALL.to_vec()),
        any::<bool>(),
    );
    (name(), name(), settings, rest, words).prop_map(|(tenant, cohort, settings, rest, words)| {
        ChangeRequest::SetTenant(TenantRequest {
            tenant,
            cohort,
            weight_milli: settings.0,
            preemptible: settings.1,
            rate_milli: settings.2,
            rate_burst: settings.3,
            allocations_max: settings.4,
            priority_max: rest.0,
            default_cpu_milli: rest.1,
            default_memory_bytes: rest.2,
            priority_classes: rest.3,
            on_exceed: Open::Known(words.0),
            reclaim: Open::Known(words.1),
            closed: words.2,
            teams: rest.4.into_iter().map(str::to_owned).collect(),
            expected_version: None,
        })
    })
}

fn account() -> impl Strategy<Value = AccountRequest> {
    (known(), name(), name()).prop_map(|(tenant, team, namespace)| AccountRequest {
        tenant,
        team,
        namespace,
    })
}

fn quota() -> impl Strategy<Value = ChangeRequest> {
    let resource = select(vec![
        "cpu",
        "gpu:T4",
        "pods",
        "leases",
        "extended:fpga",
        "disk",
    ]);
    let limits = (
        amount(),
        maybe(),
        maybe(),
        select(vec![0, 1, 60_000]),
        maybe(),
        maybe(),
    );
    (
        account(),
        resource,
        limits,
        (moment(), moment()),
        any::<bool>(),
        prop::bool::weighted(0.8),
    )
        .prop_map(|(account, resource, limits, moments, unlimited, mended)| {
            let mut request = QuotaRequest {
                account,
                resource: resource.to_owned(),
                limit: limits.0,
                soft: limits.1,
                burst: limits.2,
                burst_ms: limits.3,
                borrow: limits.4,
                lend: limits.5,
                from_ms: moments.0,
                until_ms: moments.1,
                unlimited,
                expected_version: None,
            };
            // Few that are drawn field by field are accepted.
            if mended {
                let limit = request.limit;
                request.unlimited = false;
                request.soft = request.soft.map(|soft| soft.min(limit));
                request.lend = request.lend.map(|lend| lend.min(limit));
                request.burst = request.burst.filter(|burst| *burst > 0);
                request.burst_ms = i64::from(request.burst.is_some()) * 60_000;
                request.from_ms = request.from_ms.map(|from| from.max(NOW.0));
                request.until_ms = request.until_ms.filter(|until| *until > NOW.0 + 9);
            }
            ChangeRequest::SetQuota(request)
        })
}

fn budget() -> impl Strategy<Value = ChangeRequest> {
    let of = select(vec!["money", "cpu", "gpu", "pods"]);
    let period = select(vocab::Period::ALL.to_vec());
    (account(), of, maybe(), period).prop_map(|(account, of, amount, period)| {
        ChangeRequest::SetBudget(BudgetRequest {
            account,
            of: of.to_owned(),
            amount,
            period: Open::Known(period),
            expected_version: None,
        })
    })
}

fn rate() -> impl Strategy<Value = ChangeRequest> {
    let resource = select(vec!["cpu", "memory", "gpu", "gpu:T4", "disk"]);
    let scope = (name(), name(), name(), name());
    let from = select(vec![0, NOW.0 + 1, NOW.0]);
    let said = prop_oneof![
        (amount(), Just(false)),
        Just((0, true)),
        (amount(), Just(true))
    ];
    (resource, said, from, scope).prop_map(|(resource, (micro, withdrawn), from, scope)| {
        ChangeRequest::SetRate(RateRequest {
            resource: resource.to_owned(),
            micro_per_unit_hour: micro,
            effective_from_ms: from,
            expected_version: None,
            tenant: scope.0,
            priority_class: scope.1,
            pool: scope.2,
            cluster: scope.3,
            withdrawn,
            correction: false,
        })
    })
}

fn queue() -> impl Strategy<Value = ChangeRequest> {
    let limit = (select(vec!["cpu", "memory", "gpu", "disk"]), amount());
    let limit = limit.prop_map(|(resource, amount)| (resource.to_owned(), amount));
    let order = select(QueueOrder::ALL.to_vec());
    let lists = (
        prop::collection::vec(limit, 0..3),
        prop::collection::vec(known(), 0..3),
    );
    let closed = any::<bool>();
    (name(), name(), maybe(), lists, order, placement(), closed).prop_map(
        |(queue, parent, weight_milli, (limits, tenants), order, placement, closed)| {
            ChangeRequest::SetQueue(QueueRequest {
                queue,
                parent,
                weight_milli,
                limits,
                tenants,
                order: Open::Known(order),
                placement,
                closed,
                expected_version: None,
            })
        },
    )
}

fn class() -> impl Strategy<Value = ChangeRequest> {
    (name(), any::<[bool; 3]>(), -9..9i32, amount(), placement()).prop_map(
        |(class, [preemptible, preempts, closed], value, grace_ms, placement)| {
            ChangeRequest::SetPriorityClass(ClassRequest {
                class,
                value,
                preemptible,
                preempts,
                grace_ms,
                placement,
                closed,
                expected_version: None,
            })
        },
    )
}

fn scheduling() -> impl Strategy<Value = ChangeRequest> {
    let placement = select(PlacementPolicy::ALL.to_vec());
    let amounts = (amount(), amount(), amount(), maybe(), maybe(), maybe());
    (placement, option::of(any::<bool>()), any::<bool>(), amounts).prop_map(
        |(placement, fair_share_preemption, backfill, amounts)| {
            ChangeRequest::SetScheduling(SchedulingRequest {
                placement: Open::Known(placement),
                half_life_ms: amounts.0,
                fair_share_preemption,
                protected_milli: amounts.1,
                preemptions_per_minute: amounts.3,
                aging_ms: amounts.2,
                backfill,
                backoff_ms: amounts.4,
                backoff_ms_max: amounts.5,
                expected_version: None,
            })
        },
    )
}

fn of_a_node() -> impl Strategy<Value = ChangeRequest> {
    let taint = (name(), name(), select(TaintEffect::ALL.to_vec()));
    let taint = taint.prop_map(|(key, value, effect)| TaintRequest {
        key: key.into(),
        value: value.into(),
        effect: Open::Known(effect),
    });
    let taints = (known(), prop::collection::vec(taint, 0..3)).prop_map(|(node, taints)| {
        ChangeRequest::SetTaints(TaintsRequest {
            node,
            taints,
            expected_version: None,
        })
    });
    let cordon = (known(), any::<[bool; 2]>(), 0..3u32);
    let cordon = cordon.prop_map(|(node, [cordoned, drain], at_once)| {
        ChangeRequest::SetCordon(CordonRequest {
            node,
            cordoned,
            expected_version: None,
            drain,
            at_once,
        })
    });
    prop_oneof![taints, cordon]
}

fn reservation() -> impl Strategy<Value = ChangeRequest> {
    let requirement = (
        name(),
        select(Operator::ALL.to_vec()),
        prop::collection::vec(name(), 0..3),
    );
    let requirement = requirement.prop_map(|(label, operator, values)| RequirementRequest {
        label: label.into(),
        operator: Open::Known(operator),
        values: values.into_iter().map(Into::into).collect(),
    });
    let selector = prop::collection::vec(requirement, 0..2);
    let until_ms = select(vec![NOW.0 + 5, NOW.0 + 9, NOW.0 - 1]);
    let wanted = (known(), amount(), until_ms, amount(), selector);
    let wanted =
        wanted.prop_map(
            |(queue, from_ms, until_ms, nodes, selector)| ReservationRequest {
                queue,
                from_ms,
                until_ms,
                nodes,
                selector,
            },
        );
    (name(), option::of(wanted)).prop_map(|(reservation, wanted)| ChangeRequest::SetReservation {
        reservation,
        wanted,
        expected_version: None,
    })
}

fn change() -> impl Strategy<Value = ChangeRequest> {
    prop_oneof![
        tenant(),
        quota(),
        budget(),
        rate(),
        queue(),
        class(),
        scheduling(),
        of_a_node(),
        reservation(),
    ]
}

proptest! {
    #[test]
    fn what_was_set_would_be_set_again_by_what_is_read_back(request in change()) {
        let cell = cell();
        if let Ok((change, version)) = cell.check_admin(&request, NOW) {
            let again = ChangeRequest::from(&change);
            prop_assert_eq!(cell.check_admin(&again, NOW), Ok((change.clone(), version)));
            // It is written in one way only.
            prop_assert_eq!(ChangeRequest::from(&change), again);
            let (setting, key) = named(&change);
            prop_assert!(SETTINGS.contains(&setting) && !key.is_empty());
        }
    }
}

/// Settings as the cell reports them: each as its request, with its version.
type Reported = BTreeMap<(&'static str, String), (ChangeRequest, u64)>;

fn report(reported: &mut Reported, change: &vocab::AdminChange, version: u64) {
    let request = ChangeRequest::from(change);
    reported.insert(named(change), (request, version));
}

proptest! {
    #[test]
    fn a_trial_of_reported_settings_judges_as_the_inbox_does(
        requests in prop::collection::vec(change(), 1..40), has_closed in any::<bool>()
    ) {
        let mut t = Table::new().roomy();
        t.now = NOW.0;
        let (mut reported, mut trial) = (Reported::new(), SettingsTrial::default());
        let a = vocab::fact::TenantSet {
            tenant: token("a"),
            settings: TenantSettings::default(),
            closed: false,
            teams: Vec::new(),
        };
        report(&mut reported, &vocab::AdminChange::Tenant(a), 1);
        if has_closed {
            t.state.closed_through = Some(Month(202601));
            let set = vocab::fact::PeriodClosed { month: Month(202601) };
            report(&mut reported, &vocab::AdminChange::Period(set), 1);
        }
        for (request, version) in reported.values() {
            trial.stands(request, *version).unwrap();
        }
        for request in requests {
            let expected = t.state.check_admin(&request, NOW);
            // A trial of reported settings, and one that judged all changes before.
            let mut afresh = SettingsTrial::default();
            for (request, version) in reported.values() {
                afresh.stands(request, *version).unwrap();
            }
            let versions = expected.clone().map(|(_, version)| version);
            prop_assert_eq!(afresh.judge(&request, NOW), versions.clone(), "{:?}", &request);
            prop_assert_eq!(trial.judge(&request, NOW), versions, "{:?}", &request);
            if let Ok((change, version)) = expected {
                report(&mut reported, &change, version);
                t.set(request, &format!("applied {version}"));
            }
        }
    }
}

/// The first property above skips requests that are refused. It makes none of nodes and periods.
#[test]
fn some_requests_of_each_setting_are_accepted() {
    const SAMPLES: usize = 2000;
    let (cell, strategy) = (cell(), change());
    let mut runner = TestRunner::deterministic();
    let mut accepted: BTreeMap<&str, u32> = BTreeMap::new();
    for _ in 0..SAMPLES {
        let tree = strategy.new_tree(&mut runner);
        let request = tree.expect("the strategy rejects nothing").current();
        if let Ok((change, _)) = cell.check_admin(&request, NOW) {
            *accepted.entry(named(&change).0).or_default() += 1;
        }
    }
    let made = SETTINGS
        .iter()
        .filter(|it| !["node", "period"].contains(it));
    let rare = made.filter(|it| accepted.get(*it).is_none_or(|times| *times < 5));
    let rare: Vec<_> = rare.collect();
    assert!(rare.is_empty(), "{rare:?} of {accepted:?}");
}

/// Two of one kind have one key only if the one replaces the other.
#[test]
fn what_counts_versions_of_its_own_has_a_key_of_its_own() {
    let quota = |text: &str, resource: &str, from: Option<i64>| {
        let set = vocab::fact::QuotaSet {
            account: vocab::Account::parse(text).unwrap(),
            resource: vocab::QuotaResource::parse(resource).unwrap(),
            limits: None,
            validity: vocab::Validity {
                from: from.map(Millis),
                until: None,
            },
        };
        named(&vocab::AdminChange::Quota(set))
    };
    let check = |found: (&'static str, String), key: &str| assert_eq!(found, ("quota", key.into()));
    check(quota("a", "cpu", None), "a cpu");
    check(quota("a/b", "cpu", None), "a/b cpu");
    check(quota("a/b/c", "gpu:T4", Some(7)), "a/b/c gpu:T4 from 7");
}
