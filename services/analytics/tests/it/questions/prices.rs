//! Prices of generated rates and runs, held against a rule without SQL; and the rows and memory that prices take.

use crate::common::{Database, Journal, Outcome, operation, token};
use crate::questions::{
    answer::when::NOVEMBER,
    plan::Price,
    truth::{cut, full_hours, per_unit_hour, price_of, rounded},
};
use analytics::store::Corrected;
use clickhouse::Row;
use proptest::{
    prelude::*,
    sample::select,
    strategy::ValueTree,
    test_runner::{TestCaseError, TestRunner},
};
use serde::Deserialize;
use std::collections::BTreeMap;
use vocab::fact::{AllocationRequested, NodeRegistered, RateSet};
use vocab::{
    AdminChange, AllocationSpec, Event, GpuRequest, HOUR_MS, Millis, NodeCapacity, RateKey,
    RateScope, ResourceKey, Token,
};

const BEGIN: i64 = NOVEMBER - 5 * HOUR_MS;
const END: i64 = NOVEMBER + 7 * HOUR_MS + 1_234_567;

const TENANTS: [&str; 3] = ["acme", "birch", "cedar"];
const CLASSES: [&str; 3] = ["", "high", "low"];
const POOLS: [&str; 3] = ["", "batch", "train"];
const CLUSTERS: [&str; 3] = ["", "east", "west"];
const MODELS: [&str; 3] = ["", "H100", "L4"];
const RESOURCES: [&str; 5] = ["cpu", "memory", "gpu", "gpu:H100", "gpu:L4"];

#[derive(Debug, Clone)]
struct Run {
    /// Tenant, priority class, pool and cluster.
    scope: [&'static str; 4],
    model: &'static str,
    amounts: [(&'static str, u64); 3],
    from: i64,
    /// `END`: it runs.
    to: i64,
}

impl Run {
    fn uses(&self) -> impl Iterator<Item = (String, u64)> {
        let model = self.model;
        let uses = self.amounts.into_iter().filter(|(_, amount)| *amount > 0);
        uses.map(move |(kind, amount)| match kind {
            "gpu" if !model.is_empty() => (format!("gpu:{model}"), amount),
            _ => (kind.to_owned(), amount),
        })
    }
}

/// A moment of the history; often a full hour or one of a few others, so that changes coincide.
fn moment() -> impl Strategy<Value = i64> {
    prop_oneof![
        BEGIN..END,
        (0..(END - BEGIN) / HOUR_MS).prop_map(|hour| BEGIN + hour * HOUR_MS),
        select(vec![
            NOVEMBER - 1,
            NOVEMBER,
            NOVEMBER + 1,
            NOVEMBER + 4_000_003
        ]),
    ]
}

/// A name of the list, or none.
fn some_name(names: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop_oneof![2 => Just(""), 1 => select(names)]
}

fn prices() -> impl Strategy<Value = Vec<Price>> {
    let scope = (
        some_name(&TENANTS),
        some_name(&CLASSES),
        some_name(&POOLS),
        some_name(&CLUSTERS),
    );
    let micro = prop_oneof![1 => Just(None), 3 => (0u64..5_000_000).prop_map(Some)];
    let from = prop_oneof![1 => Just(0), 3 => moment(), 1 => END..END + 99 * HOUR_MS];
    let price = (select(&RESOURCES[..]), scope, micro, from, moment());
    prop::collection::vec(price, 0..40).prop_map(|mut all| {
        all.sort_by_key(|(.., said)| *said);
        let mut versions: BTreeMap<(&str, [&str; 4]), u64> = BTreeMap::new();
        let mut prices = Vec::new();
        for (resource, (tenant, class, pool, cluster), micro, from, said) in all {
            let scope = [tenant, class, pool, cluster];
            let version = versions.entry((resource, scope)).or_default();
            *version += 1;
            // Only the first one may reach back.
            let is_first = *version == 1 && micro.is_some();
            prices.push(Price {
                resource,
                scope,
                micro,
                from: if is_first { from } else { from.max(said) },
                said,
                version: *version,
            });
        }
        prices
    })
}

fn runs() -> impl Strategy<Value = Vec<Run>> {
    let scope = (
        select(&TENANTS[..]),
        select(&CLASSES[..]),
        select(&POOLS[..]),
        select(&CLUSTERS[..]),
    );
    let amounts = (
        0u64..9000,
        0u64..1 << 36,
        select(vec![0u64, 500, 1000, 3000]),
    );
    let run = (
        scope,
        select(&MODELS[..]),
        amounts,
        moment(),
        moment(),
        0..4,
    );
    let run = run.prop_filter_map("no time", |(scope, model, amounts, one, other, rest)| {
        let (tenant, class, pool, cluster) = scope;
        let (cpu, memory, gpu) = amounts;
        let to = if rest == 0 { END } else { one.max(other) };
        (one.min(other) < to).then_some(Run {
            scope: [tenant, class, pool, cluster],
            model,
            amounts: [("cpu", cpu), ("memory", memory), ("gpu", gpu)],
            from: one.min(other),
            to,
        })
    });
    prop::collection::vec(run, 1..30)
}

fn some(name: &str) -> Option<Token> {
    (!name.is_empty()).then(|| token(name))
}

/// Writes rates and runs, each on a separate node, in the order of their moments.
fn journal(prices: &[Price], runs: &[Run]) -> Journal {
    let mut journal = Journal::default();
    let mut steps: Vec<(i64, u8, usize)> = Vec::new();
    steps.extend((0..).zip(prices).map(|(no, price)| (price.said, 0, no)));
    steps.extend((0..).zip(runs).map(|(no, run)| (run.from, 2, no)));
    let ended = (0..).zip(runs).filter(|(_, run)| run.to < END);
    steps.extend(ended.map(|(no, run)| (run.to, 1, no)));
    steps.sort_unstable();
    for (now, kind, no) in steps {
        let allocation = no as u64 + 1;
        match kind {
            0 => journal.write(now, 0, rate(&prices[no])),
            1 => journal.end(allocation, now),
            _ => {
                let (run, node) = (&runs[no], format!("n{no}"));
                journal.write(now, 0, node_of(run, &node));
                journal.write(now, allocation, request(run));
                journal.start_again(allocation, &node, now);
            }
        }
    }
    journal.node(END, "last", None);
    journal
}

fn rate_key(resource: &str, scope: [&str; 4]) -> RateKey {
    let [tenant, priority_class, pool, cluster] = scope.map(some);
    RateKey {
        resource: ResourceKey::parse(resource).expect("a resource"),
        scope: RateScope {
            tenant,
            priority_class,
            pool,
            cluster,
        },
    }
}

fn rate(price: &Price) -> Event {
    let RateKey { resource, scope } = rate_key(price.resource, price.scope);
    let change = AdminChange::Rate(RateSet {
        resource,
        micro_per_unit_hour: price.micro.unwrap_or(0),
        effective_from: Millis(price.from),
        scope,
        withdrawn: price.micro.is_none(),
    });
    change.applied(operation("_operator"), price.version).into()
}

fn node_of(run: &Run, node: &str) -> Event {
    let [_, _, pool, cluster] = run.scope.map(some);
    let labels = [("cluster", cluster), ("pool", pool)];
    let labels = labels.into_iter();
    let labels = labels.filter_map(|(name, value)| Some((token(name), value?)));
    let capacity = NodeCapacity {
        cpu_milli: 16_000,
        memory_bytes: 1 << 40,
        gpus: 4,
        gpu_model: some(run.model),
        labels: labels.collect(),
        ..NodeCapacity::default()
    };
    let (node, incarnation) = (token(node), 1);
    Event::NodeRegistered(NodeRegistered {
        node,
        incarnation,
        boot: incarnation,
        capacity,
    })
}

fn request(run: &Run) -> Event {
    let [(_, cpu), (_, memory), (_, gpu)] = run.amounts;
    let gpu = (gpu > 0).then(|| GpuRequest {
        count: gpu.div_ceil(1000) as u16,
        milli: gpu.min(1000) as u16,
        models: Vec::new(),
    });
    let spec = AllocationSpec {
        gpu,
        priority_class: some(run.scope[1]),
        ..AllocationSpec::plain(token("jobs"), cpu, memory)
    };
    let operation = operation(run.scope[0]);
    Event::AllocationRequested(AllocationRequested { operation, spec })
}

/// Tenant, priority class, pool, cluster, resource, hour, price, list price.
type Key = ([String; 4], String, i64, Option<u64>, u64);

fn expected_lines(prices: &[Price], runs: &[Run]) -> BTreeMap<Key, (i128, i128)> {
    let mut sums: BTreeMap<Key, i128> = BTreeMap::new();
    for run in runs {
        let moments = prices.iter().map(Price::applied);
        let moments = moments.chain(full_hours(run.from, run.to));
        for (from, until) in cut(run.from, run.to, moments) {
            for (resource, amount) in run.uses() {
                let [_, _, pool, cluster] = run.scope;
                let price = price_of(prices, &resource, run.scope, from);
                let list = price_of(prices, &resource, ["", "", pool, cluster], from);
                let hour = from / HOUR_MS * HOUR_MS;
                let scope = run.scope.map(str::to_owned);
                let key = (scope, resource, hour, price, list.unwrap_or(0));
                *sums.entry(key).or_default() += i128::from(amount) * i128::from(until - from);
            }
        }
    }
    let line = |(key, quantity): (Key, i128)| {
        let (_, resource, _, price, _) = &key;
        let exact = quantity * i128::from(price.unwrap_or(0));
        let micro = rounded(exact, per_unit_hour(resource));
        (key, (quantity, micro))
    };
    sums.into_iter().map(line).collect()
}

#[derive(Debug, Row, Deserialize)]
struct Line {
    tenant: String,
    priority_class: String,
    pool: String,
    cluster: String,
    resource: String,
    hour_ms: i64,
    micro: u64,
    has_rate: bool,
    list: u64,
    quantity: i128,
    amount_micro: i128,
}

async fn check(prices: &[Price], runs: &[Run]) -> Outcome {
    let (database, store) = Database::store().await?;
    store.apply(&journal(prices, runs).batch()).await?;
    let lines: Vec<Line> = database
        .client
        .query(
            "SELECT toString(c.tenant) AS tenant, toString(c.priority_class) AS priority_class, toString(c.pool) AS pool,
                 toString(c.cluster) AS cluster, toString(c.resource) AS resource, toInt64(toUnixTimestamp(c.hour)) * 1000 AS hour_ms,
                 c.micro_per_unit_hour AS micro, c.has_rate = 1 AS has_rate, c.list_micro_per_unit_hour AS list,
                 c.quantity AS quantity, c.amount_micro AS amount_micro
             FROM chargeback_hourly AS c",
        )
        .fetch_all()
        .await?;
    let found = lines.into_iter().map(|line| {
        let scope = [line.tenant, line.priority_class, line.pool, line.cluster];
        let price = line.has_rate.then_some(line.micro);
        let key = (scope, line.resource, line.hour_ms, price, line.list);
        (key, (line.quantity, line.amount_micro))
    });
    let found: Vec<_> = found.collect();
    let lines = found.len();
    let found: BTreeMap<_, _> = found.into_iter().collect();
    assert_eq!(found.len(), lines, "two lines of one key");
    assert_eq!(found, expected_lines(prices, runs));
    // The cost of each run, and the books of the capacity at its list price, are made of the same prices.
    for of in RESOURCES {
        let sql = "SELECT assumeNotNull(
                       (SELECT sum(cost) FROM run_costs WHERE resource = {of:String})
                       = (SELECT sum(toInt256(quantity) * micro_per_unit_hour) FROM chargeback_hourly WHERE resource = {of:String})
                   )";
        let is_same: u8 = database
            .client
            .query(sql)
            .param("of", of)
            .fetch_one()
            .await?;
        assert_eq!(is_same, 1, "the cost of runs and of their lines: {of}");
    }
    for (resource, scope) in CORRECTIONS {
        let is_set = |price: &Price| price.resource == resource && price.scope == scope;
        if !prices.iter().any(is_set) {
            let key = rate_key(resource, scope);
            let found = store.corrected(&key, CORRECTED_MICRO).await?;
            assert_eq!(found, corrected(prices, runs, resource, scope), "{key:?}");
        }
    }
    for month in store.reconciled_months().await? {
        assert_eq!(month.variance, "0", "{month:?}");
    }
    let conservation = store.conservation().await?;
    assert_eq!(conservation.conservation_error_ms(), 0);
    database.drop().await
}

/// Scopes in which a first rate could correct the past.
const CORRECTIONS: [(&str, [&str; 4]); 4] = [
    ("gpu", ["", "", "", ""]),
    ("gpu:L4", ["", "", "", ""]),
    ("cpu", ["acme", "", "train", ""]),
    ("memory", ["", "low", "", ""]),
];
/// No generated price is so high.
const CORRECTED_MICRO: u64 = 6_000_000;

/// Returns the charges of the use that would have the new price, before and after.
fn corrected(
    prices: &[Price],
    runs: &[Run],
    resource: &'static str,
    scope: [&'static str; 4],
) -> Corrected {
    let correction = Price {
        resource,
        scope,
        micro: Some(CORRECTED_MICRO),
        from: 0,
        said: END,
        version: 1,
    };
    let all = [prices, &[correction]].concat();
    let (mut before, mut after, mut per) = (0, 0, 1);
    for run in runs {
        let moments = prices.iter().map(Price::applied);
        for (from, until) in cut(run.from, run.to, moments) {
            for (of, amount) in run.uses() {
                if price_of(&all, &of, run.scope, from) == Some(CORRECTED_MICRO) {
                    let quantity = i128::from(amount) * i128::from(until - from);
                    let micro = price_of(prices, &of, run.scope, from).unwrap_or(0);
                    before += quantity * i128::from(micro);
                    after += quantity * i128::from(CORRECTED_MICRO);
                    per = per_unit_hour(&of);
                }
            }
        }
    }
    Corrected {
        before_micro: rounded(before, per),
        after_micro: rounded(after, per),
    }
}

/// A database for each history: of those that other properties have, every 32nd.
#[test]
fn a_line_has_the_price_of_the_narrowest_rate_in_force() {
    let cases = ProptestConfig::default().cases.div_ceil(32).max(4);
    let config = ProptestConfig {
        cases,
        max_shrink_iters: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let outcome = TestRunner::new(config).run(&(prices(), runs()), |(prices, runs)| {
        runtime
            .block_on(check(&prices, &runs))
            .map_err(|error| TestCaseError::fail(error.to_string()))
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

/// The property holds, too, if no use has a price or all have the same one.
#[test]
fn many_histories_have_prices_of_each_kind() {
    let strategy = (prices(), runs());
    let mut runner = TestRunner::deterministic();
    let (mut unpriced, mut discounted, mut withdrawn) = (0, 0, 0);
    for _ in 0..40 {
        let tree = strategy.new_tree(&mut runner);
        let (prices, runs) = tree.expect("it rejects few").current();
        let lines = expected_lines(&prices, &runs);
        unpriced += usize::from(lines.keys().any(|(.., price, _)| price.is_none()));
        let is_other = |(.., price, list): &Key| price.is_some_and(|price| price != *list);
        discounted += usize::from(lines.keys().any(is_other));
        withdrawn += usize::from(prices.iter().any(|price| price.micro.is_none()));
    }
    let kinds = [unpriced, discounted, withdrawn];
    assert!(kinds.iter().all(|histories| *histories > 20), "{kinds:?}");
}

const CELL_OF_TENANTS: [&str; 5] = [
    // A price for all, for each of 6 pools, 4 clusters, 4 classes and 6 models; and 12 of each of 1,000 tenants, some to come.
    "INSERT INTO rates (lsn, resource, tenant, priority_class, pool, cluster, applied_from, version, micro_per_unit_hour)
     SELECT number + 1, scope.1, scope.2, scope.3, scope.4, scope.5, fromUnixTimestamp64Milli(scope.6, 'UTC'), 1, number + 1000
     FROM (
         SELECT number, arrayJoin(arrayConcat(
             if(number = 0, [('cpu', '', '', '', '', toInt64(0)), ('memory', '', '', '', '', 0), ('gpu', '', '', '', '', 0)], []),
             if(number < 6, [('cpu', '', '', concat('p', toString(number)), '', toInt64(0)),
                             (concat('gpu:M', toString(number)), '', '', '', '', 0)], []),
             if(number < 4, [('cpu', '', '', '', concat('c', toString(number)), toInt64(0)),
                             ('cpu', '', concat('k', toString(number)), '', '', 0)], []),
             arrayMap(month -> ('cpu', concat('t', toString(number)), '', '', '', {now:Int64} + (month - 6) * 86400000), range(12))
         )) AS scope
         FROM numbers(1000)
     )",
    "INSERT INTO usage_hourly
     SELECT '2026-11-01', concat('t', toString(number)), '', '', '', 'jobs', concat('k', toString(number % 5)),
         concat('c', toString(number % 4)), concat('p', toString(number % 6)), fromUnixTimestamp(intDiv({now:Int64}, 1000)) - 3600 * (hour + 1),
         resource, fromUnixTimestamp64Milli({now:Int64} - 86400000, 'UTC'), 3600000, 3600000, 1, 1
     FROM numbers(1000)
     ARRAY JOIN ['cpu', 'memory', concat('gpu:M', toString(number % 6))] AS resource
     ARRAY JOIN range(3) AS hour",
    "INSERT INTO capacity_hourly
     SELECT '2026-11-01', concat('c', toString(number % 4)), concat('p', toString(intDiv(number, 4))), resource, 'idle',
         fromUnixTimestamp(intDiv({now:Int64}, 1000)) - 10800, fromUnixTimestamp64Milli({now:Int64} - 86400000, 'UTC'), 1000000, 0, 1
     FROM numbers(24) ARRAY JOIN ['cpu', 'memory', 'gpu:M1'] AS resource",
    "INSERT INTO ledger_ranges (ledger, to_lsn, state, clock, accrued_to)
     SELECT 77, 1, 'applied', fromUnixTimestamp64Milli({now:Int64}, 'UTC'), fromUnixTimestamp64Milli({now:Int64}, 'UTC')",
    "INSERT INTO cells SELECT 3, fromUnixTimestamp64Milli({now:Int64}, 'UTC'), 'EUR'",
];

/// Neither time nor memory of the machine is measured: the rows of the prices, and whether a fifth of a reader's memory will do.
#[tokio::test]
async fn prices_are_of_rates_and_lines_and_not_of_all_combinations_of_names() -> Outcome {
    let (database, _store) = Database::store().await?;
    for fill in CELL_OF_TENANTS {
        let fill = database.client.query(fill);
        fill.param("now", NOVEMBER + 20 * 24 * HOUR_MS)
            .execute()
            .await?;
    }
    assert!(database.count("rates").await? > 12_000);
    let lines = database.count("chargeback_hourly").await?;
    assert_eq!(lines, 9000);
    // Of each tenant's CPU the 12 of its own and the first ones, of memory and a model one; and of 24 places the list price of 3
    // resources.
    assert_eq!(
        database.count("prices").await?,
        1000 * (12 + 1 + 2) + 24 * 3
    );
    for question in [
        "SELECT * FROM chargeback_hourly WHERE billing_period = '2026-11-01' ORDER BY ALL",
        "SELECT * FROM focus_charges WHERE BillingPeriodStart = '2026-11-01 00:00:00'",
        "SELECT * FROM reconciliation",
        "SELECT * FROM run_costs",
        "SELECT * FROM budget_forecast",
    ] {
        let question = format!("SELECT count() FROM ({question})");
        let query = database.client.query(&question);
        let query = query.with_setting("max_memory_usage", "300000000");
        query.fetch_one::<u64>().await?;
    }
    database.drop().await
}

/// Returns a history of one run for each tenant; prices change for one tenant at a time.
fn changing(tenants: u64, changes: u64, days: i64) -> Journal {
    let mut journal = Journal::default();
    journal.rate("cpu", 31_007, 0, 1);
    let span = days * 24 * HOUR_MS;
    for change in 0..tenants * changes {
        let part = i128::from(span) * i128::from(change) / i128::from(tenants * changes);
        let at = BEGIN + part as i64 + 7;
        let scope = RateScope {
            tenant: some(&format!("t{}", change % tenants)),
            ..RateScope::default()
        };
        journal.scoped_rate("cpu", scope, 1000 + change, at, change / tenants + 1);
    }
    journal.node(BEGIN, "n", None);
    for tenant in 0..tenants {
        journal.start(tenant + 1, &format!("t{tenant}"), "n", (100, 0, 0), BEGIN);
    }
    for tenant in 0..tenants {
        journal.end(tenant + 1, BEGIN + span);
    }
    journal
}

#[tokio::test]
async fn rates_of_other_tenants_cut_no_rows() -> Outcome {
    const TENANTS: u64 = 20;
    const CHANGES: u64 = 6;
    const DAYS: u64 = 4;
    let (database, store) = Database::store().await?;
    let batch = changing(TENANTS, CHANGES, DAYS as i64).batch();
    store.apply(&batch).await?;
    let rows = TENANTS * (24 * DAYS + CHANGES);
    assert_eq!(database.count("usage_hourly").await?, rows);
    assert_eq!(database.count("chargeback_hourly").await?, rows);
    // Of each tenant the list price and its own prices; and the list price of the capacity.
    let prices = TENANTS * (1 + CHANGES) + 1;
    assert_eq!(database.count("prices").await?, prices);
    for month in store.reconciled_months().await? {
        assert_eq!(month.variance, "0", "{month:?}");
    }
    database.drop().await
}
