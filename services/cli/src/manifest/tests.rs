//! Files, plans and what stands, at random.

use super::{
    Action, Kind, Plan, Setting, Standing, expecting, plan, read,
    reservation::in_order,
    units::{Moment, Word},
};
use admission::query::{asked_again, change_request};
use admission_rules::{Admission, Command, Config, Verb};
use ledger::{Decider, Draft};
use proptest::{
    collection::{btree_map, btree_set, vec},
    option,
    prelude::*,
    sample::{select, subsequence},
    strategy::ValueTree,
    test_runner::TestRunner,
};
use schemas::v1::{self, SettingView, setting_view::Change};
use serde_json::Value;
use std::collections::BTreeMap;
use vocab::{
    Event, EventNo, Millis, Operation, Token,
    fact::{Inputs, SettingFact},
    subjects::OPERATOR,
};

const NOW_MS: i64 = 1_800_000_000_000;
const AMOUNT_MAX: i64 = 1 << 53;

/// Names that look like something else in YAML are names as well.
const NAMES: [&str; 12] = [
    "a",
    "b",
    "team-a",
    "yes",
    "null",
    "1e3",
    "007",
    "0x1f",
    "x_",
    "-",
    "true",
    "2026-11-03",
];

fn token() -> impl Strategy<Value = String> {
    let reserved = Just("_x".to_owned());
    prop_oneof![
        60 => select(&NAMES[..]).prop_map(str::to_owned),
        1 => reserved
    ]
}

/// Within a bound, but for some.
fn mostly(value: i64, most: i64) -> i64 {
    match value % 16 {
        5 => value,
        _ => value % (most + 1),
    }
}

fn maybe() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), token()]
}

fn tokens() -> impl Strategy<Value = Vec<String>> {
    btree_set(token(), 0..4).prop_map(|names| names.into_iter().collect())
}

/// Tenant, team and namespace.
fn account() -> impl Strategy<Value = (String, String, String)> {
    prop_oneof![
        token().prop_map(|tenant| (tenant, String::new(), String::new())),
        (token(), token()).prop_map(|(tenant, team)| (tenant, team, String::new())),
        (token(), token(), token()),
    ]
}

fn amount() -> impl Strategy<Value = i64> {
    prop_oneof![
        Just(0),
        1..AMOUNT_MAX,
        (1..1000_i64).prop_map(|n| n * 1000),
        (0..40_u32).prop_map(|n| 3 << n)
    ]
}

fn placement() -> impl Strategy<Value = Option<i32>> {
    option::of(0..5_i32)
}

fn ms() -> impl Strategy<Value = i64> {
    prop_oneof![
        Just(0),
        1..31_622_400_000_i64,
        (1..366_i64).prop_map(|days| days * 86_400_000)
    ]
}

fn to_come() -> impl Strategy<Value = i64> {
    NOW_MS + 1..NOW_MS + 100_000_000
}

fn tenant() -> impl Strategy<Value = Change> {
    let names = (token(), maybe(), tokens(), teams());
    let numbers = (
        1..1_000_001_i64,
        0..1_000_000_001_i64,
        0..1_000_001_i64,
        amount(),
    );
    let rest = (
        any::<bool>(),
        0..2_i32,
        0..3_i32,
        -1_000_000..1_000_001_i32,
        amount(),
        amount(),
        any::<bool>(),
    );
    (names, numbers, rest).prop_map(|(names, numbers, rest)| {
        Change::Tenant(v1::SetTenant {
            tenant: names.0,
            expected_version: None,
            cohort: names.1,
            weight_milli: Some(numbers.0),
            preemptible: Some(rest.0),
            on_exceed: rest.1,
            reclaim: rest.2,
            rate_milli: Some(numbers.1),
            rate_burst: numbers.2,
            allocations_max: numbers.3,
            priority_classes: names.2,
            priority_max: Some(rest.3),
            default_cpu_milli: mostly(rest.4, 1_000_000_000),
            default_memory_bytes: mostly(rest.5, 1 << 50),
            closed: rest.6,
            teams: names.3,
        })
    })
}

fn teams() -> impl Strategy<Value = Vec<String>> {
    let below = (tokens(), any::<bool>());
    below.prop_map(|(names, with)| {
        let team = |name: String| match with {
            true => format!("{name}/dev"),
            false => name,
        };
        names.into_iter().map(team).collect()
    })
}

fn quota() -> impl Strategy<Value = Change> {
    let resources = vec![
        "cpu",
        "memory",
        "gpu",
        "gpu:A100",
        "pods",
        "leases",
        "storage",
        "extended:fpga",
    ];
    let limits = (
        amount(),
        option::of(amount()),
        option::of((amount(), 1..AMOUNT_MAX)),
        option::of(amount()),
    );
    let moments = (
        option::of(to_come()),
        option::of(to_come()),
        option::of(amount()),
    );
    let unlimited = proptest::bool::weighted(0.2);
    (account(), select(resources), limits, moments, unlimited).prop_map(
        |(account, resource, mut limits, mut moments, unlimited)| {
            // Few of those that are drawn field by field could be set.
            if limits.0 % 8 != 1 {
                limits.1 = limits.1.map(|soft| soft.min(limits.0));
                limits.2 = limits
                    .2
                    .map(|(burst, ms)| (burst.max(limits.0), 1 + ms % 86_400_000));
                limits.3 = limits.3.filter(|_| account.1.is_empty());
                moments.2 = moments.2.filter(|_| account.1.is_empty());
                moments.1 = moments
                    .1
                    .filter(|until| moments.0.is_none_or(|from| from < *until));
            }
            let limited = v1::SetQuota {
                limit: limits.0,
                soft: limits.1,
                burst: limits.2.map(|burst| burst.0),
                burst_ms: limits.2.map_or(0, |burst| burst.1),
                borrow: limits.3,
                lend: moments.2,
                ..v1::SetQuota::default()
            };
            let none = v1::SetQuota {
                unlimited,
                ..v1::SetQuota::default()
            };
            Change::Quota(v1::SetQuota {
                tenant: account.0,
                team: account.1,
                namespace: account.2,
                resource: resource.to_owned(),
                from_ms: moments.0,
                until_ms: moments.1,
                ..if unlimited { none } else { limited }
            })
        },
    )
}

fn budget() -> impl Strategy<Value = Change> {
    let of = select(vec!["money", "cpu", "memory", "gpu"]);
    (account(), of, option::weighted(0.8, amount()), 1..5_i32).prop_map(
        |(account, of, amount, period)| {
            Change::Budget(v1::SetBudget {
                tenant: account.0,
                team: account.1,
                namespace: account.2,
                of: of.to_owned(),
                amount,
                period: amount.map_or(0, |_| period),
                expected_version: None,
            })
        },
    )
}

fn rate() -> impl Strategy<Value = Change> {
    let resource = select(vec!["cpu", "memory", "gpu", "gpu:A100"]);
    let scope = (maybe(), maybe(), maybe(), maybe());
    let from = prop_oneof![Just(0), 1..NOW_MS, to_come()];
    let price = option::weighted(0.8, 0..1_000_000_000_001_i64);
    (resource, scope, price, from).prop_map(|(resource, scope, price, from)| {
        Change::Rate(v1::SetRate {
            resource: resource.to_owned(),
            micro_per_unit_hour: price.unwrap_or(0),
            withdrawn: price.is_none(),
            effective_from_ms: from,
            tenant: scope.0,
            priority_class: scope.1,
            pool: scope.2,
            cluster: scope.3,
            expected_version: None,
            correction: false,
        })
    })
}

fn queue() -> impl Strategy<Value = Change> {
    let limits = btree_map(select(vec!["cpu", "memory", "gpu"]), amount(), 0..4);
    let rest = (
        1..1_000_001_i64,
        tokens(),
        0..3_i32,
        placement(),
        any::<bool>(),
    );
    (token(), maybe(), limits, rest).prop_map(|(queue, parent, limits, rest)| {
        let limit = |(resource, amount): (&str, i64)| v1::LimitRequest {
            resource: resource.to_owned(),
            amount,
        };
        let mut limits: Vec<_> = limits.into_iter().collect();
        // As the contract names them.
        limits.sort_by_key(|(resource, _)| {
            ["cpu", "memory", "gpu"]
                .iter()
                .position(|it| it == resource)
        });
        Change::Queue(v1::SetQueue {
            queue,
            parent,
            weight_milli: Some(rest.0),
            limits: limits.into_iter().map(limit).collect(),
            tenants: rest.1,
            order: rest.2,
            placement: rest.3,
            closed: rest.4,
            expected_version: None,
        })
    })
}

fn priority_class() -> impl Strategy<Value = Change> {
    let rest = (any::<[bool; 3]>(), ms(), placement());
    (token(), -1_000_000..1_000_001_i32, rest).prop_map(|(priority_class, value, rest)| {
        Change::PriorityClass(v1::SetPriorityClass {
            priority_class,
            value,
            preemptible: rest.0[0],
            preempts: rest.0[1],
            closed: rest.0[2],
            grace_ms: mostly(rest.1, 3_600_000),
            placement: rest.2,
            expected_version: None,
        })
    })
}

fn scheduling() -> impl Strategy<Value = Change> {
    let spans = (ms(), ms(), ms(), ms());
    let rest = (
        0..5_i32,
        any::<bool>(),
        0..1001_i64,
        0..1_000_001_i64,
        any::<bool>(),
    );
    (spans, rest).prop_map(|(spans, rest)| {
        Change::Scheduling(v1::SetScheduling {
            placement: rest.0,
            half_life_ms: spans.0,
            fair_share_preemption: Some(rest.1),
            protected_milli: rest.2,
            preemptions_per_minute: Some(rest.3),
            aging_ms: spans.1,
            backfill: rest.4,
            backoff_ms: Some(mostly(spans.2, 1000)),
            backoff_ms_max: Some(mostly(spans.3, 86_400_000)),
            expected_version: None,
        })
    })
}

fn cordon() -> impl Strategy<Value = Change> {
    (token(), any::<(bool, bool)>(), 0..9_u32).prop_map(|(node, (cordoned, drain), at_once)| {
        let drain = cordoned && drain;
        Change::Cordon(v1::SetCordon {
            node,
            cordoned,
            drain,
            at_once: if drain { at_once } else { 0 },
            expected_version: None,
        })
    })
}

fn taints() -> impl Strategy<Value = Change> {
    let effects = vec![2, 0, 1];
    // In the order of their texts.
    let taints = btree_map(token(), (maybe(), subsequence(effects, 0..3)), 0..3);
    (token(), taints).prop_map(|(node, taints)| {
        let taints = taints.into_iter().flat_map(|(key, (value, effects))| {
            effects.into_iter().map(move |effect| v1::Taint {
                key: key.clone(),
                value: value.clone(),
                effect,
            })
        });
        let mut taints: Vec<v1::Taint> = taints.collect();
        taints.sort_by_cached_key(|taint| crate::operate::taint_text(taint).unwrap());
        Change::Taints(v1::SetTaints {
            node,
            taints,
            expected_version: None,
        })
    })
}

fn reservation() -> impl Strategy<Value = Change> {
    let requirement =
        (token(), 1..5_i32, btree_set(token(), 1..4)).prop_map(|(label, operator, values)| {
            v1::Requirement {
                label,
                operator,
                values: match operator {
                    1 | 2 => values.into_iter().collect(),
                    _ => Vec::new(),
                },
            }
        });
    let wanted = (
        token(),
        0..NOW_MS,
        to_come(),
        1..10_001_i64,
        vec(requirement, 0..3),
    );
    let wanted = wanted.prop_map(|(queue, from_ms, until_ms, nodes, mut selector)| {
        // As the cell does.
        in_order(&mut selector);
        v1::ReservationRequest {
            queue,
            from_ms,
            until_ms,
            nodes,
            selector,
        }
    });
    (token(), option::weighted(0.8, wanted)).prop_map(|(reservation, wanted)| {
        Change::Reservation(v1::SetReservation {
            reservation,
            wanted,
            expected_version: None,
        })
    })
}

/// Also such as break a rule.
fn any_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        tenant(),
        quota(),
        quota(),
        budget(),
        rate(),
        queue(),
        priority_class(),
        scheduling(),
        cordon(),
        taints(),
        reservation()
    ]
}

/// Such as break no rule that is judged without a state.
fn change() -> impl Strategy<Value = Change> {
    any_change().prop_filter("it breaks a rule", |change| {
        let request = change_request(change);
        request.is_ok_and(|request| request.read(Millis(NOW_MS)).is_ok())
    })
}

/// A cell by what was last set, as the read model tells it.
#[derive(Debug, Clone, Default)]
struct Cell(Vec<SettingView>);

impl Cell {
    fn of(changes: Vec<Change>) -> Self {
        let mut cell = Self::default();
        changes.into_iter().for_each(|change| {
            let version = cell.version(&change);
            cell.set(change, version);
        });
        cell
    }

    fn id(change: &Change) -> (Option<Kind>, String) {
        (Kind::of(change), Setting(change).key(NOW_MS).unwrap())
    }

    fn counter(change: &Change) -> (Option<Kind>, String) {
        let (kind, key) = Self::id(change);
        (kind, Setting(change).counter().unwrap_or(key))
    }

    fn version(&self, of: &Change) -> u64 {
        let same = self.0.iter().filter(|view| {
            let change = view.change.as_ref().unwrap();
            Self::counter(change) == Self::counter(of)
        });
        same.map(|view| view.version).max().unwrap_or(0)
    }

    fn set(&mut self, change: Change, expected: u64) {
        assert_eq!(expected, self.version(&change), "{change:?}");
        let id = Self::id(&change);
        self.0
            .retain(|view| Self::id(view.change.as_ref().unwrap()) != id);
        self.0.push(SettingView {
            version: expected + 1,
            change: Some(change),
            ..SettingView::default()
        });
    }

    /// As `apply` does it.
    fn apply(&mut self, plan: &Plan) {
        let mut newest = std::collections::BTreeMap::new();
        for (step, send) in plan.sends() {
            let counter = (step.kind, send.counter.clone());
            let expected = *newest.get(&counter).unwrap_or(&send.version);
            self.set(send.change.clone(), expected);
            newest.insert(counter, expected + 1);
        }
    }

    fn standing(&self) -> Standing {
        Standing::of(&self.0, NOW_MS).unwrap()
    }

    /// What stands, as a file.
    fn file(&self) -> String {
        let there = self.0.iter().filter_map(|view| view.change.as_ref());
        let there = there.filter(|change| !Setting(change).is_absent());
        there
            .map(|change| format!("---\n{}", Setting(change).yaml().unwrap()))
            .collect()
    }

    fn plan(&self, file: &str, prune: bool) -> Result<Plan, Vec<String>> {
        // Whatever it names.
        let mut documents = read([("file", file)]);
        documents.is_whole = false;
        plan(&documents, &self.standing(), prune, NOW_MS)
    }

    /// What is wrong with a file, with the names in it.
    fn unmet(&self, file: &str) -> Vec<String> {
        let found = plan(&read([("file", file)]), &self.standing(), false, NOW_MS);
        found.err().unwrap_or_default()
    }
}

/// Fields that a file need not say, on a line of their own.
const OPTIONAL: [&str; 9] = [
    "soft",
    "weight",
    "cohort",
    "borrow",
    "preemptible",
    "grace",
    "drain",
    "parent",
    "rate",
];

fn sends_nothing(plan: &Plan) -> bool {
    plan.sends().next().is_none()
}

proptest! {
    #[test]
    fn what_stands_is_written_and_read_as_it_is(change in change()) {
        let setting = Setting(&change);
        if setting.is_absent() {
            return Ok(());
        }
        let file = setting.yaml().unwrap();
        let documents = read([("file", &*file)]);
        prop_assert!(documents.faults().is_empty(), "{:?}\n{file}", documents.faults());
        let document = &documents.all[0];
        let found = document.kind.read(&document.fields);
        let found = found.unwrap_or_else(|wrong| panic!("{wrong:?}\n{file}"));
        prop_assert_eq!(found, change, "{}", file);
    }

    #[test]
    fn an_export_changes_nothing(changes in vec(change(), 0..20), prune: bool) {
        let cell = Cell::of(changes);
        let plan = cell.plan(&cell.file(), prune).unwrap();
        prop_assert!(sends_nothing(&plan), "{:?}\n{}", plan, cell.file());
    }

    #[test]
    fn what_was_applied_is_not_applied_again(
        before in vec(change(), 0..20), wanted in vec(change(), 0..20), prune: bool,
        dropped in vec(any::<prop::sample::Index>(), 0..20)
    ) {
        let mut cell = Cell::of(before);
        // Some fields are not said.
        let file = Cell::of(wanted).file();
        let mut lines: Vec<&str> = file.lines().collect();
        for index in dropped {
            let no = index.index(lines.len().max(1));
            let is_left_out = |line: &&str| {
                let (name, value) = line.split_once(": ").unwrap_or_default();
                OPTIONAL.contains(&name) && !value.is_empty()
            };
            if lines.get(no).is_some_and(is_left_out) {
                lines.remove(no);
            }
        }
        let file = lines.join("\n");
        // Some of what is wanted cannot be: a price that was to change before now.
        let Ok(plan) = cell.plan(&file, prune) else { return Ok(()) };
        cell.apply(&plan);
        let again = cell.plan(&file, prune).unwrap();
        prop_assert!(sends_nothing(&again), "{:?}\n{}", again, file);
    }

    #[test]
    fn a_whole_export_brings_everything_back(before in vec(change(), 0..20), wanted in vec(change(), 0..20)) {
        let mut cell = Cell::of(before);
        let wanted = Cell::of(wanted);
        let Ok(plan) = cell.plan(&wanted.file(), true) else { return Ok(()) };
        cell.apply(&plan);
        for view in &wanted.0 {
            let change = view.change.as_ref().unwrap();
            let is_rate = matches!(change, Change::Rate(_));
            if is_rate || Setting(change).is_absent() {
                continue;
            }
            let id = Cell::id(change);
            let found = cell.0.iter().filter_map(|view| view.change.as_ref());
            let found = found.into_iter().find(|other| Cell::id(other) == id);
            prop_assert_eq!(found, Some(change));
        }
    }
}

/// The properties above skip files that cannot be applied.
#[test]
fn most_files_can_be_applied() {
    const SAMPLES: usize = 200;
    let strategy = (vec(change(), 0..20), vec(change(), 0..20));
    let mut runner = TestRunner::deterministic();
    let mut applied = 0;
    for _ in 0..SAMPLES {
        let tree = strategy.new_tree(&mut runner);
        let (before, wanted) = tree.expect("the strategy rejects nothing").current();
        let plan = Cell::of(before).plan(&Cell::of(wanted).file(), true);
        applied += usize::from(plan.is_ok_and(|plan| !sends_nothing(&plan)));
    }
    assert!(applied >= 20, "{applied} of {SAMPLES}");
}

/// Admission, and what the cell reports of its settings.
#[derive(Default)]
struct Inbox {
    state: Admission,
    decided: u64,
    reported: BTreeMap<(&'static str, String), SettingView>,
}

impl Inbox {
    /// With tenants and classes of all names that documents have.
    fn with_names() -> Self {
        let mut inbox = Self::default();
        for name in NAMES {
            let class = v1::SetPriorityClass {
                priority_class: name.to_owned(),
                ..v1::SetPriorityClass::default()
            };
            let tenant = v1::SetTenant {
                tenant: name.to_owned(),
                ..v1::SetTenant::default()
            };
            inbox.ask(&Change::PriorityClass(class)).unwrap();
            inbox.ask(&Change::Tenant(tenant)).unwrap();
        }
        inbox
    }

    /// Returns the version that a change makes, or why it is refused.
    fn ask(&mut self, change: &Change) -> Result<u64, String> {
        let request = change_request(change).map_err(|refusal| refusal.explanation())?;
        self.decided += 1;
        let operation = Operation {
            tenant: Token::new(OPERATOR).unwrap(),
            operation_id: Token::new(&format!("op-{}", self.decided)).ok(),
            digest: [0; 16],
            // A refusal without a record is answered.
            reply_to: Token::new("r").ok(),
            trace: None,
            by: None,
        };
        let command = Command {
            operation,
            verb: Ok(Verb::Admin(request)),
        };
        let mut draft = Draft::new(Millis(NOW_MS), EventNo(self.decided));
        self.state.handle(command, &Config::default(), &mut draft);
        let answered = self.state.take_effects().pop();
        if let Some(Err(refusal)) = answered.map(|turned| turned.answer) {
            return Err(refusal.explanation());
        }
        let event = draft.events().last().unwrap();
        if let Event::OperationRefused(refused) = event {
            return Err(refused.refusal.explanation());
        }
        let fact = SettingFact::of(event).unwrap();
        let (change, version) = (fact.change(), fact.asked().1);
        let (setting, key) = admission_rules::named(&change);
        let view = SettingView {
            setting: setting.to_owned(),
            key: key.clone(),
            version,
            set_at_ms: NOW_MS,
            change: asked_again(&change),
            ..SettingView::default()
        };
        self.reported.insert((setting, key), view);
        Ok(version)
    }

    fn close(&mut self, month: u32) {
        let close = v1::ClosePeriod {
            month,
            expected_version: None,
        };
        self.ask(&Change::Period(close)).unwrap();
    }

    fn plan(&self, file: &str, prune: bool) -> Result<Plan, Vec<String>> {
        self.plan_at(NOW_MS, file, prune)
    }

    fn plan_at(&self, now_ms: i64, file: &str, prune: bool) -> Result<Plan, Vec<String>> {
        let views: Vec<SettingView> = self.reported.values().cloned().collect();
        let standing = Standing::of(&views, now_ms).unwrap();
        plan(&read([("file", file)]), &standing, prune, now_ms)
    }

    /// Sends the changes as `apply` does, up to the first refusal.
    fn apply(&mut self, plan: &Plan) -> Result<(), String> {
        let mut newest = BTreeMap::new();
        for (step, send) in plan.sends() {
            let counter = (step.kind, send.counter.clone());
            let expected = *newest.get(&counter).unwrap_or(&send.version);
            let version = self.ask(&expecting(send.change.clone(), expected))?;
            newest.insert(counter, version);
        }
        Ok(())
    }
}

/// Documents of these, wherever they can be written.
fn written(wanted: &[Change]) -> String {
    let wanted = wanted.iter().filter(|change| !Setting(change).is_absent());
    let yaml = wanted.filter_map(|change| Setting(change).yaml().ok());
    yaml.map(|document| format!("---\n{document}")).collect()
}

fn history() -> impl Strategy<Value = (Vec<Change>, Vec<Change>, bool, bool)> {
    (
        vec(any_change(), 0..30),
        vec(any_change(), 1..6),
        any::<bool>(),
        any::<bool>(),
    )
}

fn after(before: &[Change], has_closed: bool) -> Inbox {
    let mut inbox = Inbox::with_names();
    if has_closed {
        inbox.close(202_611);
    }
    for change in before {
        // Whatever is refused changes nothing.
        let _refused = inbox.ask(change);
    }
    inbox
}

proptest! {
    #[test]
    fn what_a_plan_passes_is_applied((before, wanted, has_closed, prune) in history()) {
        let mut inbox = after(&before, has_closed);
        let file = written(&wanted);
        let Ok(plan) = inbox.plan(&file, prune) else { return Ok(()) };
        let applied = inbox.apply(&plan);
        prop_assert_eq!(applied, Ok(()), "{:?}\n{}", plan, file);
        // A rate without a moment counts from the next millisecond.
        let again = inbox.plan_at(NOW_MS + 1, &file, prune).unwrap();
        prop_assert!(sends_nothing(&again), "{:?}\n{}", again, file);
    }
}

/// The property above skips files that a plan refuses.
#[test]
fn many_generated_plans_pass_and_many_are_refused() {
    const SAMPLES: u32 = 300;
    let strategy = history();
    let mut runner = TestRunner::deterministic();
    let (mut passed, mut refused) = (0, 0);
    for _ in 0..SAMPLES {
        let tree = strategy.new_tree(&mut runner);
        let tree = tree.expect("the strategy rejects nothing");
        let (before, wanted, has_closed, prune) = tree.current();
        match after(&before, has_closed).plan(&written(&wanted), prune) {
            Ok(plan) => passed += u32::from(!sends_nothing(&plan)),
            Err(_) => refused += 1,
        }
    }
    assert!(passed >= 60 && refused >= 60, "{passed} {refused}");
}

#[test]
fn a_plan_refuses_what_the_inbox_would_refuse() {
    let mut inbox = Inbox::with_names();
    inbox.close(202_611);
    let set = |queue: &str, parent: &str| {
        Change::Queue(v1::SetQueue {
            queue: queue.to_owned(),
            parent: parent.to_owned(),
            ..v1::SetQueue::default()
        })
    };
    for (queue, parent) in [("root", ""), ("leaf", "root"), ("deep1", "")] {
        inbox.ask(&set(queue, parent)).unwrap();
    }
    for depth in 2..10 {
        let parent = format!("deep{}", depth - 1);
        inbox.ask(&set(&format!("deep{depth}"), &parent)).unwrap();
    }
    let cell = inbox.reported.clone();
    // The fault is the only one, and by the rules of admission; without the plan's judgement apply would stop at it.
    let check = |file: &str, expected: &str| {
        let good = "---\nkind: Queue\nqueue: good\n";
        let found = inbox
            .plan(&format!("{good}---\n{file}"), false)
            .unwrap_err();
        assert_eq!(found.len(), 1, "{file}: {found:?}");
        assert!(found[0].contains(expected), "{file}: {found:?}");
    };
    let interval = "from: 2027-02-02T00:00:00Z\nuntil: 2027-02-01T00:00:00Z\n";
    let reserve = "kind: Reservation\nreservation: r\nnodes: 1\n";
    check(
        &format!("{reserve}queue: good\n{interval}"),
        "Reservation: until: interval invalid: until_ms: ",
    );
    check(
        "kind: Reservation\nreservation: r\nnodes: 0\nqueue: good\nfrom: 2027-02-01T00:00:00Z\nuntil: 2027-02-02T00:00:00Z",
        "Reservation: nodes: quantity zero: nodes: ",
    );
    check(
        "kind: Reservation\nreservation: r\nnodes: 1\nqueue: gone\nfrom: 2027-02-01T00:00:00Z\nuntil: 2027-02-02T00:00:00Z",
        "Reservation: queue: there is no Queue or Tenant gone, ",
    );
    check(
        "kind: Queue\nqueue: q\nweight: 0",
        "Queue: weight: quantity zero: ",
    );
    check(
        "kind: Tenant\ntenant: t\nweight: 0",
        "Tenant: weight: quantity zero: ",
    );
    check(
        "kind: Queue\nqueue: _x",
        "Queue: queue: name invalid: queue: ",
    );
    check(
        "kind: Tenant\ntenant: _x",
        "Tenant: tenant: name invalid: tenant: ",
    );
    check(
        "kind: Queue\nqueue: root\nparent: leaf",
        "Queue: parent: queue tree invalid: ",
    );
    check(
        "kind: Queue\nqueue: deep10\nparent: deep9",
        "Queue: parent: queue tree invalid: ",
    );
    check(
        "kind: Queue\nqueue: root\nparent: root",
        "Queue: parent: queue tree invalid: ",
    );
    let quota = |rest: &str| format!("kind: Quota\naccount: a\n{rest}");
    check(
        &quota("resource: cpu\nhard: 4\nsoft: 5"),
        "Quota: soft: setting invalid: soft cpu: ",
    );
    check(
        &quota("resource: cpu\nhard: 4\nburst: 3\nburst_for: 1h"),
        "Quota: burst: setting invalid: burst cpu: ",
    );
    check(
        &quota("resource: memory\nhard: 16Pi"),
        "Quota: hard: quantity too large: limit: ",
    );
    check(
        &quota("resource: cpu\nhard: 4\nburst: 5\nburst_for: 99d"),
        "Quota: burst_for: quantity too large: burst_ms: ",
    );
    check(
        &quota("resource: leases\nhard: 4\nsoft: 3"),
        "Quota: resource: not supported: resource: ",
    );
    check(
        "kind: Quota\naccount: a/b\nresource: cpu\nhard: 4\nlend: 1",
        "Quota: lend: setting invalid: lend: ",
    );
    check(
        &quota("resource: cpu\nhard: 4\nfrom: 2027-03-01T00:00:00Z\nuntil: 2027-02-01T00:00:00Z"),
        "Quota: until: interval invalid: until_ms: ",
    );
    check(
        "kind: Budget\naccount: a\nof: cpu\namount: 9007199254741\nper: day",
        "Budget: amount: quantity too large: amount: ",
    );
    let rate = |rest: &str| format!("kind: Rate\nresource: {rest}");
    check(
        &rate("gpu\nprice: 1\ncorrection: true"),
        "Rate: effective_from: period closed: ",
    );
    check(
        &rate("gpu\nprice: 1000001\neffective_from: 2027-02-01T00:00:00Z"),
        "Rate: price: quantity too large: micro_per_unit_hour: ",
    );
    check(
        "kind: PriorityClass\nclass: c\nvalue: 1000001",
        "PriorityClass: value: priority out of range: ",
    );
    check(
        "kind: PriorityClass\nclass: c\nvalue: 1\ngrace: 2h",
        "PriorityClass: grace: quantity too large: grace_ms: ",
    );
    let policy = |rest: &str| format!("kind: Scheduling\n{rest}");
    check(
        &policy("protected: 2"),
        "Scheduling: protected: quantity too large: ",
    );
    check(
        &policy("backoff: 2h\nbackoff_max: 1h"),
        "Scheduling: backoff_max: setting invalid: backoff_ms_max: ",
    );
    check(
        &policy("half_life: 999d"),
        "Scheduling: half_life: quantity too large: ",
    );
    check(
        "kind: Tenant\ntenant: t\nrate: 1000001",
        "Tenant: rate: quantity too large: rate_milli: ",
    );
    check(
        "kind: Tenant\ntenant: t\npriority_max: -1000001",
        "Tenant: priority_max: priority out of range: ",
    );
    check(
        "kind: Taints\nnode: n\ntaints: [k=v:NoSchedule, k=w:NoSchedule]",
        "Taints: taints: setting invalid: taints: ",
    );
    assert_eq!(inbox.reported, cell);
}

#[test]
fn a_plan_judges_each_document_behind_those_that_it_needs() {
    let mut inbox = Inbox::with_names();
    // A new parent, and the former one below its child.
    let file = "kind: Queue\nqueue: top\n---\nkind: Queue\nqueue: below\nparent: top\n";
    let plan = inbox.plan(file, false).unwrap();
    inbox.apply(&plan).unwrap();
    let turned = "kind: Queue\nqueue: top\nparent: below\n---\nkind: Queue\nqueue: below\nparent: null\n---\n\
        kind: Reservation\nreservation: r\nqueue: new\nnodes: 1\nfrom: 2027-02-01T00:00:00Z\nuntil: 2027-02-02T00:00:00Z\n---\n\
        kind: Queue\nqueue: new\nparent: top\ntenants: [other]\n---\nkind: Tenant\ntenant: other\nclasses: [gold]\nteams: [ml]\n---\n\
        kind: PriorityClass\nclass: gold\nvalue: 3\n---\nkind: Quota\naccount: other/ml\nresource: cpu\nhard: 4\n";
    let plan = inbox.plan(turned, false).unwrap();
    assert_eq!(inbox.apply(&plan), Ok(()));
    // A fault hides the faults that follow from it.
    let faulty = turned
        .replace("tenant: other\n", "tenant: other\nweight: 0\n")
        .replace("other", "another")
        .replace("queue: new", "queue: next");
    let found = inbox.plan(&faulty, false).unwrap_err();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].contains("Tenant: weight: quantity zero"),
        "{found:?}"
    );
}

const FILE: &str = "
kind: Tenant
tenant: a
weight: 2.5
---
kind: Quota
account: a/ml
resource: memory
hard: 16Gi
---
kind: Queue
queue: child
parent: top
limits: {cpu: 4}
---
kind: Queue
queue: top
---
kind: Cordon
node: n1
";

fn lines(plan: &Plan) -> Vec<String> {
    let line = |step: &super::Step| {
        let differences = step.differences.iter().map(|one| {
            format!(
                " {}: {} -> {}",
                one.field,
                super::text(&one.from),
                super::text(&one.to)
            )
        });
        let why = step
            .why
            .as_ref()
            .map_or(String::new(), |why| format!(" ({why})"));
        let differences: String = differences.collect();
        format!(
            "{} {} {}{differences}{why}",
            step.action.name(),
            step.kind.name(),
            step.key
        )
    };
    plan.steps.iter().map(line).collect()
}

fn check(cell: &Cell, file: &str, prune: bool, expected: &[&str]) {
    let plan = cell.plan(file, prune).unwrap();
    assert_eq!(lines(&plan), expected);
}

fn applied(cell: &mut Cell, file: &str) {
    let plan = cell.plan(file, false).unwrap();
    cell.apply(&plan);
}

fn faults(cell: &Cell, file: &str) -> Vec<String> {
    cell.plan(file, false).unwrap_err()
}

#[test]
fn parents_go_before_their_queues() {
    let mut cell = Cell::default();
    let expected = [
        "create Tenant a weight: none -> 2.5",
        "create Queue top",
        "create Queue child limits.cpu: none -> 4 parent: none -> top",
        "create Quota a/ml memory hard: none -> 16Gi",
        "create Cordon n1",
    ];
    check(&cell, FILE, false, &expected);
    applied(&mut cell, FILE);
    assert!(sends_nothing(&cell.plan(FILE, true).unwrap()));
}

#[test]
fn what_is_named_has_to_be_set() {
    let cell = Cell::of(vec![]);
    let quota = "kind: Quota\naccount: a/ml\nresource: cpu\nhard: 4\n";
    assert_eq!(
        cell.unmet(quota),
        [
            "file:2: document 1, Quota: account: there is no Tenant a, neither in the cell nor in the files"
        ]
    );
    let tenant = "---\nkind: Tenant\ntenant: a\n";
    assert_eq!(
        cell.unmet(&format!("{quota}{tenant}")),
        Vec::<String>::new()
    );
    let tenant = format!("{quota}{tenant}classes: [urgent]\n");
    assert_eq!(
        cell.unmet(&tenant),
        [
            "file:8: document 2, Tenant: classes: there is no PriorityClass urgent, neither in the cell nor in the files"
        ]
    );
    let class = "---\nkind: PriorityClass\nclass: urgent\nvalue: 5\n";
    assert_eq!(
        cell.unmet(&format!("{tenant}{class}")),
        Vec::<String>::new()
    );
    let queue = "kind: Queue\nqueue: q\nparent: top\ntenants: [b]\n";
    assert_eq!(cell.unmet(queue).len(), 2);
    // Also one that is wrong itself is there, and what is meant is said.
    let files = format!("{}hrad: 1\n", tenant.replace("urgent", "urgnt") + class);
    assert_eq!(
        cell.unmet(&files),
        [
            "file:8: document 2, Tenant: classes: there is no PriorityClass urgnt, neither in the cell nor in the files; did you mean urgent?",
            "file:13: document 3, PriorityClass: hrad: there is no such field; fields are class, value, preemptible, preempts, grace, placement, closed",
        ]
    );
    // Of one whose name is misspelt nobody knows what it would set.
    let misspelt = format!("{quota}---\nkind: Tenant\ntennant: a\n");
    assert_eq!(
        cell.unmet(&misspelt),
        ["file:7: document 2, Tenant: tennant: there is no such field; did you mean tenant?"]
    );
    // One that is misspelt is neither a second of the same, nor of a wrong value less.
    let rates =
        "kind: Rate\nresource: gpu\nprice: 1\n---\nkind: Rate\nresource: gpu\ntenat: b\nprice: x\n";
    let found = cell.unmet(rates);
    let starts = [
        "file:7: document 2, Rate: tenat: ",
        "file:8: document 2, Rate: price: ",
    ];
    assert_eq!(found.len(), starts.len(), "{found:?}");
    for (fault, start) in found.iter().zip(starts) {
        assert!(fault.starts_with(start), "{fault}");
    }
    // A queue is not above itself.
    let own = "kind: Queue\nqueue: q1\nparent: q2\n";
    assert!(
        cell.unmet(own)[0].ends_with("there is no Queue q2, neither in the cell nor in the files")
    );
    // Where a document cannot be read, nobody knows what it would set.
    assert_eq!(cell.unmet(&format!("{quota}---\nkind: Tenat\n")).len(), 1);
    let rate = "kind: Rate\nresource: cpu\nprice: 1\ntenant: b\n";
    assert_eq!(cell.unmet(rate).len(), 1);
}

#[test]
fn an_account_is_of_a_team_that_its_tenant_will_have() {
    let mut cell = Cell::of(vec![]);
    let none = Vec::<String>::new();
    let quota = "---\nkind: Quota\naccount: a/ml/train\nresource: cpu\nhard: 4\n";
    let budget = "---\nkind: Budget\naccount: a/ml\nof: cpu\namount: 4\nper: day\n";
    let both = format!("{quota}{budget}");
    let tenant = |teams: &str| format!("kind: Tenant\ntenant: a\nteams: [{teams}]\n");
    let missing = |place: &str, teams: &str| {
        format!("file:{place}: account: it is not among the teams of a, which are {teams}")
    };
    for teams in ["", "ml", "ml/train", "web, ml/train"] {
        assert_eq!(cell.unmet(&(tenant(teams) + &both)), none, "{teams}");
    }
    assert_eq!(
        cell.unmet(&(tenant("web") + &both)),
        [
            missing("6: document 2, Quota", "web"),
            missing("11: document 3, Budget", "web")
        ]
    );
    let only = cell.unmet(&(tenant("ml/serve") + &both));
    assert_eq!(only, [missing("6: document 2, Quota", "ml/serve")]);
    let meant = cell.unmet(&(tenant("web, ml/trian, m1") + budget));
    assert_eq!(meant.len(), 0, "a namespace covers its team: {meant:?}");
    let meant = cell.unmet(&(tenant("web, m1") + budget));
    assert_eq!(
        meant,
        [missing(
            "6: document 2, Budget",
            "web, m1; did you mean m1?"
        )]
    );
    // By what stands; and what stands itself may change.
    applied(&mut cell, &(tenant("ml") + quota));
    assert_eq!(cell.unmet(budget), none);
    let other = budget.replace("a/ml", "a/web");
    assert_eq!(cell.unmet(&other), [missing("3: document 1, Budget", "ml")]);
    // What a faulty tenant would have is not known.
    let faulty = format!("kind: Tenant\ntenant: a\ntems: [web]\n{other}");
    assert_eq!(
        cell.unmet(&faulty),
        ["file:3: document 1, Tenant: tems: there is no such field; did you mean teams?"]
    );
    applied(&mut cell, &tenant("web"));
    assert_eq!(cell.unmet(&quota.replace("hard: 4", "hard: 5")), none);
    assert_eq!(
        cell.unmet(budget),
        [missing("3: document 1, Budget", "web")]
    );
    assert_eq!(cell.unmet(&other), none);
}

#[test]
fn what_is_absent_stays_and_null_clears() {
    let mut cell = Cell::default();
    applied(&mut cell, FILE);
    let quota = "kind: Quota\naccount: a/ml\nresource: memory\n";
    applied(&mut cell, &format!("{quota}soft: 8Gi"));
    check(
        &cell,
        &format!("{quota}hard: 32768Mi"),
        false,
        &["change Quota a/ml memory hard: 16Gi -> 32Gi"],
    );
    check(
        &cell,
        &format!("{quota}soft: null"),
        false,
        &["change Quota a/ml memory soft: 8Gi -> none"],
    );
    check(
        &cell,
        "kind: Tenant\ntenant: a\nweight: null",
        false,
        &["change Tenant a weight: 2.5 -> 1"],
    );
    check(
        &cell,
        "kind: Queue\nqueue: child\nlimits: {memory: 1Ti, cpu: null}",
        false,
        &["change Queue child limits.cpu: 4 -> none limits.memory: none -> 1Ti"],
    );
}

#[test]
fn only_the_kinds_of_the_file_are_pruned() {
    let mut cell = Cell::default();
    applied(&mut cell, FILE);
    check(
        &cell,
        "kind: Cordon\nnode: n2\n---\nkind: Queue\nqueue: top\n",
        true,
        &[
            "unchanged Queue top",
            "create Cordon n2",
            "delete Cordon n1",
            "close Queue child closed: false -> true",
        ],
    );
    check(
        &cell,
        "kind: Cordon\nnode: n1\ncordoned: false",
        false,
        &["change Cordon n1 cordoned: true -> false"],
    );
}

#[test]
fn what_the_ledger_names_for_ever_is_closed_once() {
    let mut cell = Cell::default();
    let file = |kind: &str, name: &str| format!("---\nkind: {kind}\n{name}\n");
    let others = [
        file("Tenant", "tenant: a"),
        file("Queue", "queue: q"),
        file("PriorityClass", "class: c\nvalue: 1"),
        file("Rate", "resource: cpu\nprice: 1"),
    ];
    applied(&mut cell, &others.concat());
    let kept = [
        file("Tenant", "tenant: b"),
        file("Queue", "queue: r"),
        file("PriorityClass", "class: d\nvalue: 1"),
        file("Rate", "resource: gpu\nprice: 1"),
    ];
    applied(&mut cell, &kept.concat());
    let same = [
        "unchanged Tenant b",
        "unchanged Queue r",
        "unchanged PriorityClass d",
        "unchanged Rate gpu",
    ];
    let closes = [
        "delete Rate cpu",
        "close PriorityClass c closed: false -> true",
        "close Queue q closed: false -> true",
        "close Tenant a closed: false -> true",
    ];
    let mut found = lines(&cell.plan(&kept.concat(), true).unwrap());
    let mut expected: Vec<&str> = same.into_iter().chain(closes).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    let plan = cell.plan(&kept.concat(), true).unwrap();
    cell.apply(&plan);
    assert!(sends_nothing(&cell.plan(&kept.concat(), true).unwrap()));
    // A file that has it again opens it by saying so.
    let opened = "change Tenant a closed: true -> false";
    let file = "kind: Tenant\ntenant: a\nclosed: false";
    check(&cell, file, false, &[opened]);
}

#[test]
fn a_changed_price_counts_from_a_moment_to_come() {
    let mut cell = Cell::default();
    let rate = "kind: Rate\nresource: gpu:A100\nprice: 3.5\n";
    applied(&mut cell, rate);
    assert!(sends_nothing(&cell.plan(rate, false).unwrap()));
    let changed = rate.replace("3.5", "4.25");
    let found = faults(&cell, &changed);
    let expected = "file:1: document 1, Rate: effective_from: it is missing: a changed price counts from a moment to come, \
                    such as 2026-01-31T08:00:00Z";
    assert_eq!(found, [expected]);
    let past = faults(
        &cell,
        &format!("{changed}effective_from: 2026-01-31T08:00:00Z"),
    );
    assert!(
        past[0].starts_with("file:4: document 1, Rate: effective_from: 2026-01-31"),
        "{past:?}"
    );
    let to_come = format!("{changed}effective_from: 2027-12-01T00:00:00Z");
    check(
        &cell,
        &to_come,
        false,
        &["change Rate gpu:A100 effective_from: none -> 2027-12-01T00:00:00Z price: 3.5 -> 4.25"],
    );
    applied(&mut cell, &to_come);
    // The same price does not say again since when it counts.
    assert!(sends_nothing(&cell.plan(&changed, false).unwrap()));
}

#[test]
fn only_a_first_rate_corrects_the_past() {
    let mut cell = Cell::default();
    let rate = |rest: &str| format!("kind: Rate\nresource: gpu\n{rest}\n");
    let corrects = rate("price: 3\ncorrection: true");
    let created = "create Rate gpu correction: none -> true price: none -> 3";
    check(&cell, &corrects, false, &[created]);
    let wrong = |cell: &Cell, rest: &str, expected: &str| {
        let found = faults(cell, &rate(rest));
        assert!(found[0].contains(expected), "{found:?}");
    };
    let to_come = "effective_from: 2027-12-01T00:00:00Z";
    wrong(
        &cell,
        &format!("price: 3\ncorrection: true\n{to_come}"),
        "correction: a correction counts from the beginning of time",
    );
    wrong(
        &cell,
        "withdrawn: true\ncorrection: true",
        "correction: a withdrawal corrects nothing",
    );
    // Read back, it is a rate like others: a correction that was made is not made again.
    applied(&mut cell, &rate("price: 3"));
    assert!(sends_nothing(&cell.plan(&corrects, true).unwrap()));
    wrong(
        &cell,
        "price: 4\ncorrection: true",
        "correction: only the first rate of a resource and scope",
    );
}

#[test]
fn a_rate_that_was_taken_back_is_set_again_from_a_moment_to_come() {
    let mut cell = Cell::default();
    let rate = |rest: &str| format!("kind: Rate\nresource: gpu\n{rest}\n");
    // Nothing is there to be taken back.
    let back = rate("withdrawn: true");
    check(&cell, &back, false, &["unchanged Rate gpu"]);
    applied(&mut cell, &rate("price: 3"));
    let wrong = |cell: &Cell, rest: &str, expected: &str| {
        let found = faults(cell, &rate(rest));
        assert!(found[0].contains(expected), "{found:?}");
    };
    wrong(
        &cell,
        "withdrawn: true\nprice: 3",
        "Rate: withdrawn: it goes with no price",
    );
    let past = "effective_from: 2026-01-31T08:00:00Z";
    wrong(&cell, &format!("withdrawn: true\n{past}"), "billed already");
    let to_come = "effective_from: 2027-12-01T00:00:00Z";
    let expected = "change Rate gpu effective_from: none -> 2027-12-01T00:00:00Z price: 3 -> none withdrawn: none -> true";
    check(
        &cell,
        &rate(&format!("withdrawn: true\n{to_come}")),
        false,
        &[expected],
    );
    let expected = "change Rate gpu price: 3 -> none withdrawn: none -> true";
    check(&cell, &back, false, &[expected]);
    applied(&mut cell, &back);
    assert!(sends_nothing(&cell.plan(&back, false).unwrap()));
    assert!(cell.file().is_empty());
    // It is not the first any more.
    wrong(&cell, "price: 3", "effective_from: it is missing");
    wrong(&cell, &format!("price: 3\n{past}"), "billed already");
    let expected = "create Rate gpu effective_from: none -> 2027-12-01T00:00:00Z price: none -> 3";
    let again = rate(&format!("price: 3\n{to_come}"));
    check(&cell, &again, false, &[expected]);
    applied(&mut cell, &again);
    assert!(sends_nothing(&cell.plan(&again, true).unwrap()));
}

#[test]
fn limits_that_have_begun_hold_in_place_of_those_before() {
    let mut cell = Cell::default();
    let base = "kind: Quota\naccount: a\nresource: gpu\nhard: 4\n---\n";
    let planned = "kind: Quota\naccount: a\nresource: gpu\nhard: 8\nfrom: 2027-01-16T00:00:00Z\n";
    let file = format!("{base}{planned}");
    applied(&mut cell, &file);
    let documents = read([("file", &*file)]);
    assert!(sends_nothing(&cell.plan(&file, true).unwrap()));
    // Two days later; the cell tells them as they were set.
    let later = NOW_MS + 2 * 86_400_000;
    let standing = Standing::of(&cell.0, later).unwrap();
    let plan = plan(&documents, &standing, true, later).unwrap();
    assert!(sends_nothing(&plan), "{plan:?}");
    assert_eq!(plan.count(Action::Over), 1);
}

#[test]
fn limits_that_were_planned_hold_from_their_moment_whatever_was_set_before_it() {
    let quota = |limit, from_ms| {
        Change::Quota(v1::SetQuota {
            tenant: "a".to_owned(),
            resource: "pods".to_owned(),
            limit,
            from_ms,
            ..v1::SetQuota::default()
        })
    };
    let view = |version, set_at_ms, change| SettingView {
        version,
        set_at_ms,
        change: Some(change),
        ..SettingView::default()
    };
    let planned = view(1, NOW_MS, quota(8, Some(NOW_MS + 50)));
    let hold = |base_at_ms: i64| {
        let base = view(2, base_at_ms, quota(4, None));
        let tenant = Change::Tenant(v1::SetTenant {
            tenant: "a".to_owned(),
            ..v1::SetTenant::default()
        });
        let cell = Cell(vec![view(1, 0, tenant), planned.clone(), base]);
        let standing = Standing::of(&cell.0, NOW_MS + 100).unwrap();
        let file = "kind: Quota\naccount: a\nresource: pods\nhard: 8";
        let file = read([("file", file)]);
        sends_nothing(&plan(&file, &standing, true, NOW_MS + 100).unwrap())
    };
    assert!(
        hold(NOW_MS + 20),
        "the planned ones took the place of those before"
    );
    assert!(
        !hold(NOW_MS + 70),
        "those after took the place of the planned ones"
    );
}

#[test]
fn what_is_over_is_not_set_again() {
    let cell = Cell::default();
    let file = "kind: Reservation\nreservation: r\nqueue: q\nfrom: 2026-01-01T00:00:00Z\nuntil: 2026-01-02T00:00:00Z\nnodes: 1";
    check(&cell, file, false, &["over Reservation r"]);
}

#[test]
fn faults_name_the_field_and_what_to_write() {
    let cell = Cell::default();
    let check = |file: &str, expected: &str| assert_eq!(faults(&cell, file), [expected], "{file}");
    check(
        "kind: Quota\naccount: a\nresource: memory\nhard: 16",
        "file:4: document 1, Quota: hard: 16: say of what: write 16GiB or 16Gi, or 16 bytes as 16B",
    );
    check(
        "kind: Quota\naccount: a\nresource: memory",
        "file:1: document 1, Quota: hard: it is missing",
    );
    check(
        "kind: Tenant\ntenant: a\nweight: 1\nweight: 2",
        "file:4: weight: it is there twice: remove one of them",
    );
    check(
        "kind: Tenant\ntenant: a\non_exceed: queue",
        "file:3: document 1, Tenant: on_exceed: queue: write refuse, wait",
    );
    check(
        "kind: Tenant\ntenant: a\npriority_max: high",
        "file:3: document 1, Tenant: priority_max: high: write a whole number",
    );
    check(
        "kind: Tenant\ntenant: a\nclasses: [b, 7]",
        "file:3: document 1, Tenant: classes[1]: 7: write it in quotes",
    );
    check(
        "kind: Tenant\ntenant: a b",
        "file:2: document 1, Tenant: tenant: a b: a name is 1 to 64 characters from A-Z a-z 0-9 _ -",
    );
    check(
        "kind: Quota\naccount: a b\nresource: cpu\nhard: 1",
        "file:2: document 1, Quota: account: a b: write tenant, tenant/team or tenant/team/namespace",
    );
    check(
        "kind: Cordon\nnode: n\n---\nkind: Cordon\nnode: n",
        "file:4: document 2, Cordon: n is set by document 1 of file already",
    );
    check(
        "kind: Queue\nqueue: q\nlimits: {disk: 1}",
        "file:3: document 1, Queue: limits.disk: 1: unknown field `disk`, expected one of `cpu`, `memory`, `gpu`",
    );
    check(
        "kind: Rate\nresource: cpu\nprice: 0.1234567",
        "file:3: document 1, Rate: price: 0.1234567: write money as 3.5, with six digits behind the point at most",
    );
    check(
        "kind: Quota\naccount: a/x\nresource: gpu\nhard: unlimited\nsoft: 4",
        "file:4: document 1, Quota: hard: unlimited goes with no other limit: set soft, burst, burst_for, borrow and lend to null",
    );
    check(
        "kind: Quota\naccount: a\nresource: gpu\nhard: unlimited",
        "file:4: document 1, Quota: hard: a tenant without limits may hold nothing: write an amount, or none",
    );
    check(
        "kind: Quota\naccount: a/x\nresource: gpu\nhard: none",
        "file:4: document 1, Quota: hard: write unlimited: those above it bound it then",
    );
}

#[test]
fn kinds_have_the_names_of_the_bus() {
    let names: Vec<_> = Kind::ALL.iter().map(|kind| kind.setting()).collect();
    assert!(
        names.contains(&"priority_class") && names.contains(&"taints"),
        "{names:?}"
    );
    for kind in Kind::ALL {
        assert_eq!(Kind::parse(kind.name()), Ok(*kind));
    }
    let word = Word::<vocab::Period>::try_from("month".to_owned());
    assert_eq!(word.map(Word::number), Ok(4));
    assert_eq!(Value::from(Moment(0)), "1970-01-01T00:00:00Z");
}
