//! The bill against sums made without ClickHouse, and the conservation check against damage done on purpose.

use crate::common::{Database, Journal, Outcome, token};
use analytics::store::{Conservation, Export, Store, Tenants};
use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
};
use vocab::fact::AllocationEnded;
use vocab::{AllocationNo, EndCause, Event, HOUR_MS, Millis, Month};

/// 2026-11-01 00:00 UTC.
const NOVEMBER: i64 = 1_793_491_200_000;

#[derive(Debug, Clone, Copy)]
struct Run {
    tenant: usize,
    amounts: (u64, u64, u16),
    from: i64,
    to: i64,
}

/// Repeats exactly; the multiplier is Knuth's.
fn runs(count: u64) -> Vec<Run> {
    let mut seed = 1u64;
    let mut next = |bound: u64| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % bound
    };
    (0..count)
        .map(|no| {
            let from = NOVEMBER - 3 * HOUR_MS + next(40 * HOUR_MS as u64) as i64;
            let ms = match no % 4 {
                0 => 1 + next(5) as i64,
                1 => next(HOUR_MS as u64) as i64 + 1,
                2 => HOUR_MS * (1 + next(3) as i64) - from.rem_euclid(HOUR_MS),
                _ => next(60 * HOUR_MS as u64) as i64 + 1,
            };
            Run {
                tenant: next(3) as usize,
                amounts: (next(900) + 1, next(9_999_999) + 1, next(1001) as u16),
                from,
                to: from + ms.max(1),
            }
        })
        .collect()
}

const RATES: [(&str, u64, i64, u64); 8] = [
    ("cpu", 31_007, 0, 1),
    ("cpu", 40_001, NOVEMBER, 2),
    // A correction of the same moment: the higher version counts.
    ("cpu", 39_989, NOVEMBER, 3),
    // Within an hour.
    ("cpu", 35_003, NOVEMBER + 5 * HOUR_MS + 1_234_567, 4),
    ("memory", 4_099, NOVEMBER - HOUR_MS, 1),
    ("gpu", 2_500_003, 0, 1),
    ("gpu", 2_600_009, NOVEMBER + 1, 2),
    ("gpu:V100", 3_100_019, NOVEMBER + HOUR_MS + 3, 1),
];

fn rate(resource: &str, at: i64) -> Option<u64> {
    let newest = |key: &str| {
        RATES
            .iter()
            .filter(|(of, _, from, _)| *of == key && *from <= at)
            .max_by_key(|(_, _, from, version)| (*from, *version))
            .map(|(_, micro, ..)| *micro)
    };
    let kind = resource.split(':').next().unwrap_or(resource);
    newest(resource).or_else(|| newest(kind))
}

/// By tenant, hour, resource and price.
type Lines = BTreeMap<(String, i64, String, Option<u64>), i128>;

fn expected_lines(runs: &[Run]) -> Lines {
    let mut lines = Lines::new();
    for run in runs {
        // Every moment at which anything may change for anybody.
        let hours = (run.from / HOUR_MS + 1..=run.to / HOUR_MS).map(|hour| hour * HOUR_MS);
        let rates = RATES.iter().map(|(_, _, from, _)| *from);
        let mut moments: Vec<i64> = hours.chain(rates).chain([run.from, run.to]).collect();
        moments.retain(|at| (run.from..=run.to).contains(at));
        moments.sort_unstable();
        for pair in moments.windows(2) {
            let (at, ms) = (pair[0], pair[1] - pair[0]);
            let (cpu, memory, gpu) = run.amounts;
            let used = [
                ("cpu", cpu),
                ("memory", memory),
                ("gpu:V100", u64::from(gpu)),
            ];
            for (resource, amount) in used {
                if amount > 0 && ms > 0 {
                    let (tenant, hour) = (format!("t{}", run.tenant), at / HOUR_MS * HOUR_MS);
                    let key = (tenant, hour, resource.to_owned(), rate(resource, at));
                    *lines.entry(key).or_default() += i128::from(amount) * i128::from(ms);
                }
            }
        }
    }
    lines
}

/// Half up, by adding the half before the division.
fn amount(resource: &str, micro: u64, quantity: i128) -> i128 {
    let unit: i128 = if resource == "memory" { 1 << 30 } else { 1000 };
    let per_hour = unit * i128::from(HOUR_MS);
    let rounded = (quantity.abs() * i128::from(micro) + per_hour / 2) / per_hour;
    rounded * quantity.signum()
}

/// Applied whenever so many runs have started or ended.
async fn filled(
    runs: &[Run],
    every: usize,
) -> Result<(Database, Store), Box<dyn std::error::Error>> {
    let (database, store) = Database::store().await?;
    let mut journal = Journal::default();
    for no in 0..runs.len() {
        journal.node(NOVEMBER - 3 * HOUR_MS, &format!("n{no}"), Some("V100"));
    }
    for (resource, micro, from, version) in RATES {
        journal.rate(resource, micro, from, version);
    }
    store.apply(&journal.batch()).await?;
    // By the scheduler's clock, as it writes.
    let mut events: Vec<(i64, bool, usize)> = runs
        .iter()
        .enumerate()
        .flat_map(|(no, run)| [(run.from, true, no), (run.to, false, no)])
        .collect();
    events.sort_unstable();
    for (written, (at, starts, no)) in events.into_iter().enumerate() {
        let (allocation, run) = (no as u64 + 1, &runs[no]);
        if starts {
            let (tenant, node) = (format!("t{}", run.tenant), format!("n{no}"));
            journal.start(allocation, &tenant, &node, run.amounts, at);
        } else {
            journal.end(allocation, at);
        }
        if written.is_multiple_of(every) {
            store.apply(&journal.batch()).await?;
        }
    }
    store.apply(&journal.batch()).await?;
    Ok((database, store))
}

#[tokio::test]
async fn the_bill_equals_an_independent_sum() -> Outcome {
    let runs = runs(300);
    let (database, store) = filled(&runs, 97).await?;
    let lines = expected_lines(&runs);
    let mut months: BTreeMap<(String, String, String), i128> = BTreeMap::new();
    let mut found = Lines::new();
    for tenant in ["t0", "t1", "t2"] {
        let all = (Millis(0), Millis(i64::MAX));
        for line in store.tenant_usage(&token(tenant), all).await? {
            let (hour, resource) = (line.hour_ms, line.resource);
            let micro = line.micro_per_unit_hour;
            assert_eq!(line.amount_micro, amount(&resource, micro, line.quantity));
            let month = if hour < NOVEMBER {
                "2026-10"
            } else {
                "2026-11"
            };
            let key = (tenant.to_owned(), month.to_owned(), resource.clone());
            *months.entry(key).or_default() += line.amount_micro;
            let key = (
                tenant.to_owned(),
                hour,
                resource,
                line.has_rate.then_some(micro),
            );
            found.insert(key, line.quantity);
        }
    }
    assert_eq!(found, lines);
    let bill: BTreeMap<(String, String, String), i128> = store
        .monthly_bill()
        .await?
        .into_iter()
        .map(|line| ((line.tenant, line.month, line.resource), line.amount_micro))
        .collect();
    assert_eq!(bill, months);
    assert!(bill.values().all(|micro| *micro > 0));
    let unrated = lines.keys().filter(|(.., price)| price.is_none());
    assert_eq!(
        database.count("unrated_usage").await?,
        unrated.count() as u64
    );
    let hours: BTreeSet<_> = lines.keys().map(|(t, hour, ..)| (t, hour)).collect();
    assert_eq!(store.hours_billed().await?, hours.len() as u64);
    let conservation = store.conservation().await?;
    assert_eq!(
        conservation.conservation_error_ms(),
        0,
        "{:?}",
        conservation.imbalances
    );
    database.drop().await
}

fn kinds(conservation: &Conservation) -> Vec<&str> {
    let wrong = conservation.imbalances.iter().filter(|i| i.error > 0);
    let mut kinds: Vec<&str> = wrong.map(|imbalance| imbalance.kind.as_str()).collect();
    kinds.dedup();
    kinds
}

#[tokio::test]
async fn damage_is_found() -> Outcome {
    // What is done to the tables, and the kinds of error that must be among those found.
    let table: [(&str, &[&str]); 21] = [
        (
            "DELETE FROM allocation_intervals WHERE lsn = (SELECT max(lsn) FROM allocation_intervals WHERE whole)",
            &["rows", "runs", "tenants"],
        ),
        (
            "DELETE FROM allocation_intervals WHERE lsn = (SELECT max(lsn) FROM allocation_intervals WHERE NOT whole)",
            &["rows", "runs", "tenants"],
        ),
        (
            "INSERT INTO allocation_intervals SETTINGS insert_deduplicate = 0 SELECT * FROM allocation_intervals LIMIT 1",
            &["rows", "runs", "tenants"],
        ),
        (
            "ALTER TABLE allocation_intervals UPDATE ended_at = ended_at + toIntervalMillisecond(1)
             WHERE lsn = (SELECT max(lsn) FROM allocation_intervals WHERE whole) SETTINGS mutations_sync = 1",
            &["runs", "tenants"],
        ),
        (
            "ALTER TABLE allocation_intervals UPDATE cpu_milli = cpu_milli - 1
             WHERE lsn = (SELECT max(lsn) FROM allocation_intervals WHERE whole) SETTINGS mutations_sync = 1",
            &["runs", "tenants"],
        ),
        // Started before it was placed.
        (
            "ALTER TABLE allocation_intervals UPDATE placed_at = started_at + toIntervalMillisecond(1)
             WHERE lsn = (SELECT max(lsn) FROM allocation_intervals WHERE whole) SETTINGS mutations_sync = 1",
            &["overdrawn"],
        ),
        // Its transfers are nowhere.
        (
            "ALTER TABLE allocation_intervals UPDATE whole = false
             WHERE lsn = (SELECT max(lsn) FROM allocation_intervals WHERE whole) SETTINGS mutations_sync = 1",
            &["runs"],
        ),
        (
            "INSERT INTO usage_hourly SETTINGS insert_deduplicate = 0 SELECT * FROM usage_hourly LIMIT 1",
            &["hours", "rows", "tenants"],
        ),
        // The totals stay, the hours do not.
        (
            "INSERT INTO usage_hourly SELECT * REPLACE (
                 hour + toIntervalHour(n) AS hour, if(n = 0, -quantity, quantity) AS quantity, if(n = 0, -ms, ms) AS ms)
             FROM (SELECT * FROM usage_hourly WHERE ms > 0 LIMIT 1) ARRAY JOIN [0, 1] AS n",
            &["hours"],
        ),
        // The other tenant pays.
        (
            "INSERT INTO usage_hourly SELECT * REPLACE (
                 if(n = 0, tenant, 'other') AS tenant, if(n = 0, -quantity, quantity) AS quantity, if(n = 0, -ms, ms) AS ms)
             FROM (SELECT * FROM usage_hourly WHERE ms > 0 LIMIT 1) ARRAY JOIN [0, 1] AS n",
            &["tenants"],
        ),
        (
            "DELETE FROM node_transfers WHERE node = 'n0' AND from_account = 'outside'",
            &["clusters", "overdrawn", "rows", "unbalanced"],
        ),
        (
            "DELETE FROM node_transfers WHERE lsn = (SELECT min(lsn) FROM node_transfers WHERE to_account = 'allocated')",
            &["overdrawn", "rows", "runs"],
        ),
        (
            "ALTER TABLE node_transfers UPDATE memory_bytes = memory_bytes + 1
             WHERE lsn = (SELECT min(lsn) FROM node_transfers WHERE to_account = 'allocated') SETTINGS mutations_sync = 1",
            &["overdrawn", "runs"],
        ),
        ("DELETE FROM node_capacities WHERE node = 'n0'", &["rows", "unbalanced"]),
        (
            "ALTER TABLE node_capacities UPDATE cpu_milli = cpu_milli + 1 WHERE node = 'n0' SETTINGS mutations_sync = 1",
            &["unbalanced"],
        ),
        ("DELETE FROM rates WHERE version = 2", &["rows"]),
        (
            "DELETE FROM ledger_ranges WHERE to_lsn = (SELECT min(to_lsn) FROM ledger_ranges)",
            &["rows"],
        ),
        (
            "DELETE FROM ledger_ranges WHERE to_lsn = (SELECT max(to_lsn) FROM ledger_ranges)",
            &["rows"],
        ),
        (
            "INSERT INTO capacity_hourly SELECT * REPLACE (-risen AS risen, -moment AS moment, -transfers AS transfers)
             FROM capacity_hourly WHERE account = 'allocated' LIMIT 1",
            &["clusters", "hours", "rows", "runs"],
        ),
        (
            "INSERT INTO capacity_hourly SELECT * REPLACE (-risen AS risen, -moment AS moment, 0 AS transfers)
             FROM capacity_hourly WHERE account = 'idle' LIMIT 1",
            &["clusters"],
        ),
        (
            "INSERT INTO running_allocations SELECT * REPLACE (-sign AS sign) FROM running_allocations WHERE sign = 1 LIMIT 1",
            &["hours", "rows", "runs", "tenants"],
        ),
    ];
    let runs = runs(12);
    // Some runs within a batch, and some not.
    let (database, store) = filled(&runs, 9).await?;
    let whole = database.count("allocation_intervals WHERE whole").await?;
    assert!((1..runs.len() as u64).contains(&whole), "{whole}");
    for (damage, expected) in table {
        assert_eq!(store.conservation().await?.conservation_error_ms(), 0);
        // DELETE FROM, INSERT INTO or ALTER TABLE.
        let damaged = damage.split(' ').nth(2).expect("a table");
        database
            .execute(&format!("CREATE TABLE spare CLONE AS {damaged}"))
            .await?;
        database.execute(damage).await?;
        let conservation = store.conservation().await?;
        let found = kinds(&conservation);
        let missing: Vec<_> = expected.iter().filter(|k| !found.contains(k)).collect();
        assert!(missing.is_empty(), "{damage}: {missing:?} not in {found:?}");
        database
            .execute(&format!("EXCHANGE TABLES {damaged} AND spare"))
            .await?;
        database.execute("DROP TABLE spare SYNC").await?;
    }
    database.drop().await
}

#[tokio::test]
async fn what_still_runs_is_booked_and_not_billed() -> Outcome {
    let (database, store) = Database::store().await?;
    let mut journal = Journal::default();
    journal.node(NOVEMBER - 5, "n1", Some("V100"));
    journal.start(1, "t1", "n1", (1000, 1 << 30, 500), NOVEMBER);
    journal.start(2, "t1", "n1", (1000, 1 << 30, 500), NOVEMBER + 5);
    journal.end(2, NOVEMBER + 7);
    store.apply(&journal.batch()).await?;
    assert_eq!(store.conservation().await?.conservation_error_ms(), 0);
    assert_eq!(database.count("allocation_intervals").await?, 1);
    let segments: Vec<(i64, Option<i64>, i128, i128, i128)> = database
        .client
        .query(
            "SELECT toUnixTimestamp64Milli(started_at), toUnixTimestamp64Milli(ended_at), allocated, idle, capacity
             FROM node_segments WHERE resource = 'cpu' ORDER BY started_at",
        )
        .fetch_all()
        .await?;
    let at = |ms: i64| NOVEMBER + ms;
    assert_eq!(
        segments,
        [
            (at(-5), Some(at(0)), 0, 64_000, 64_000),
            (at(0), Some(at(5)), 1000, 63_000, 64_000),
            (at(5), Some(at(7)), 2000, 62_000, 64_000),
            (at(7), None, 1000, 63_000, 64_000),
        ]
    );
    database.drop().await
}

#[tokio::test]
async fn every_run_of_an_allocation_is_billed_and_the_last_may_be_under_way() -> Outcome {
    let (database, store) = Database::store().await?;
    let mut journal = Journal::default();
    journal.node(NOVEMBER - 5, "n1", Some("V100"));
    journal.node(NOVEMBER - 5, "n2", Some("V100"));
    journal.start(1, "t1", "n1", (1000, 1 << 30, 500), NOVEMBER);
    // Twice on the same node, across an hour, then on another.
    let starts = [("n1", NOVEMBER + 7), ("n2", NOVEMBER + HOUR_MS + 20)];
    for (run, (node, at)) in starts.into_iter().enumerate() {
        journal.requeue(1, at - 2);
        journal.start_again(1, node, at);
        store.apply(&journal.batch()).await?;
        let runs = run as u64 + 1;
        assert_eq!(database.count("allocation_intervals").await?, runs);
        let conservation = store.conservation().await?;
        assert_eq!(kinds(&conservation), Vec::<&str>::new(), "{runs}");
    }
    journal.end(1, NOVEMBER + HOUR_MS + 25);
    store.apply(&journal.batch()).await?;
    let lines = store
        .tenant_usage(&token("t1"), (Millis(0), Millis(i64::MAX)))
        .await?;
    let cpu: Vec<i128> = lines
        .iter()
        .filter(|line| line.resource == "cpu")
        .map(|line| line.quantity / 1000)
        .collect();
    assert_eq!(cpu, [5 + i128::from(HOUR_MS) - 7, 18 + 5]);
    assert_eq!(kinds(&store.conservation().await?), Vec::<&str>::new());
    // A former run's bill is missed though the allocation runs on.
    database
        .execute("DELETE FROM allocation_intervals WHERE lsn = (SELECT min(lsn) FROM allocation_intervals)")
        .await?;
    let found = kinds(&store.conservation().await?).join(" ");
    assert_eq!(found, "clusters rows runs tenants");
    database.drop().await
}

/// Returns everything that is exported of October.
async fn october(store: &Store) -> Result<Vec<Vec<u8>>, Box<dyn std::error::Error>> {
    let month = Month(202_610);
    let mut exports = Vec::new();
    let billed = store.billed_tenants(month).await?;
    assert_eq!(billed.len(), 1, "{billed:?}");
    for (what, tenants) in [
        (Export::Lines, &billed[0]),
        (Export::FocusRows, &billed[0]),
        (Export::FocusRows, &Tenants::none()),
        (Export::FocusParquet, &Tenants::none()),
    ] {
        let mut cursor = store.export(what, month, tenants)?;
        let mut bytes = Vec::new();
        while let Some(piece) = Store::next_bytes(&mut cursor).await? {
            bytes.extend(piece);
        }
        exports.push(bytes);
    }
    exports.push(format!("{:?}", store.reconciliation(month).await?).into_bytes());
    Ok(exports)
}

#[tokio::test]
async fn an_export_has_its_columns_without_lines_and_its_currency_in_each() -> Outcome {
    let (database, store) = Database::store().await?;
    let month = Month(202_611);
    let lines = async |what: Export, tenants: &Tenants| -> Result<Vec<String>, Box<dyn Error>> {
        let mut cursor = store.export(what, month, tenants)?;
        let mut bytes = Vec::new();
        while let Some(piece) = Store::next_bytes(&mut cursor).await? {
            bytes.extend(piece);
        }
        let text = String::from_utf8(bytes)?;
        Ok(text.lines().map(str::to_owned).collect())
    };
    let names = lines(Export::Lines, &Tenants::none()).await?;
    assert_eq!(names.len(), 1, "{names:?}");
    assert!(names[0].ends_with(",\"currency\""), "{names:?}");
    assert_eq!(lines(Export::FocusRows, &Tenants::none()).await?.len(), 1);
    let mut journal = Journal::default();
    journal.node(NOVEMBER, "n1", Some("V100"));
    journal.start(1, "t1", "n1", (1003, 5 << 30, 500), NOVEMBER);
    journal.end(1, NOVEMBER + HOUR_MS);
    store.apply(&journal.batch()).await?;
    store.says(Millis(NOVEMBER + HOUR_MS), "EUR").await?;
    let billed = store.billed_tenants(month).await?;
    assert_eq!(billed.len(), 1);
    let found = lines(Export::Lines, &billed[0]).await?;
    assert_eq!(found.len(), 4);
    assert_eq!(found[0], names[0]);
    for line in &found[1..] {
        assert!(line.ends_with(",\"EUR\""), "{line}");
    }
    database.drop().await
}

#[tokio::test]
async fn what_is_known_late_of_a_closed_month_is_a_correction_in_the_next_and_changes_nothing_in_it()
-> Outcome {
    let (database, store) = Database::store().await?;
    let mut journal = Journal::default();
    let (minute, begin) = (60_000, NOVEMBER - 3 * HOUR_MS);
    for (resource, micro) in [("cpu", 31_607), ("memory", 4_099), ("gpu", 2_500_003)] {
        journal.rate(resource, micro, 0, 1);
    }
    journal.node(begin, "n1", Some("V100"));
    for allocation in [1, 2] {
        let amounts = (1003, 5 << 30, 500);
        journal.start(allocation, "t1", "n1", amounts, begin + 90 * minute);
    }
    journal.end(2, NOVEMBER + HOUR_MS);
    journal.close(NOVEMBER + HOUR_MS, Month(202_610), 1);
    store.apply(&journal.batch()).await?;
    let before = october(&store).await?;
    assert!(before.iter().all(|bytes| bytes.len() > 200));
    // The first was over half an hour before the month was.
    let ended = Event::AllocationEnded(AllocationEnded {
        allocation: AllocationNo(1),
        cause: EndCause::Finished,
        at: Millis(NOVEMBER - 30 * minute),
        exit: None,
    });
    journal.write(NOVEMBER + 2 * HOUR_MS, 0, ended);
    journal.start(3, "t1", "n1", (1, 1, 1), NOVEMBER + 3 * HOUR_MS);
    store.apply(&journal.batch()).await?;
    assert!(october(&store).await? == before);
    assert_eq!(kinds(&store.conservation().await?), Vec::<&str>::new());
    let months = store.reconciled_months().await?;
    let months: Vec<_> = months
        .iter()
        .map(|line| (line.month.as_str(), line.closed, line.variance.as_str()))
        .collect();
    assert_eq!(months, [("2026-10", true, "0"), ("2026-11", false, "0")]);
    // What October was charged too much for, and what that was instead.
    let corrections: Vec<(String, i128)> = database
        .client
        .query(
            "SELECT state, sum(quantity) FROM (
                 SELECT 'allocated' AS state, quantity FROM chargeback_hourly
                 WHERE is_correction AND resource = 'cpu' AND billing_period = '2026-11-01'
                 UNION ALL
                 SELECT state, toInt128(quantity) AS quantity FROM platform_cost_hourly
                 WHERE is_correction AND resource = 'cpu' AND billing_period = '2026-11-01'
             ) GROUP BY state ORDER BY state",
        )
        .fetch_all()
        .await?;
    let much = i128::from(1003 * 30 * minute);
    assert_eq!(
        corrections,
        [
            ("allocated".to_owned(), -much),
            ("reserved".to_owned(), much)
        ]
    );
    database.drop().await
}

#[tokio::test]
async fn a_year_of_hours_in_one_run_and_the_largest_amounts() -> Outcome {
    let (database, store) = Database::store().await?;
    let mut journal = Journal::default();
    journal.node(NOVEMBER - 5, "n1", Some("V100"));
    journal.rate("memory", u64::MAX, 0, 1);
    let year = 365 * 24 * HOUR_MS;
    for allocation in 1..=60 {
        let amounts = (1, 1 << 50, 1);
        let from = NOVEMBER + allocation as i64;
        journal.start(allocation, "t1", "n1", amounts, from);
    }
    for allocation in 1..=60 {
        journal.end(allocation, NOVEMBER + year + allocation as i64);
    }
    store.apply(&journal.batch()).await?;
    let memory: i128 = database
        .client
        .query("SELECT sum(quantity) FROM usage_hourly WHERE resource = 'memory'")
        .fetch_one()
        .await?;
    assert_eq!(memory, 60 * (1i128 << 50) * i128::from(year));
    let conservation = store.conservation().await?;
    // The node never had that much memory, and the check says so; everything else adds up.
    assert_eq!(kinds(&conservation), ["overdrawn"]);
    let bill = store.monthly_bill().await?;
    let micro: i128 = bill
        .iter()
        .filter(|line| line.resource == "memory")
        .map(|line| line.amount_micro)
        .sum();
    let exact = 60 * (1i128 << 20) * i128::from(year / HOUR_MS) * i128::from(u64::MAX);
    assert!(micro.abs_diff(exact) <= 366 * 24, "{micro} {exact}");
    database.drop().await
}
