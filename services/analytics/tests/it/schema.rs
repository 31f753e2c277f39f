//! The tables are made of the rows; drift is found, and what is missing is made, on a real ClickHouse.

use crate::common::{CELL, Database, Journal, LEDGER, Outcome};
use analytics::store::{ClickHouseSink, Store, StoreError, TABLES};
use chassis::warm::OnDrift;
use ledger::{Sink, SinkError};
use std::{fs, path::Path};
use table::Drift;
use testkit::check_made;

#[test]
fn the_tables_are_made_of_the_rows() {
    let made = format!(
        "-- Made of the rows in services/analytics/src/store by APPORTION_WRITE=1 cargo test -p analytics --test it the_tables_are\n\n{}",
        table::clickhouse::ddl(TABLES),
    );
    let path = "schemas/clickhouse/0001_tables.sql";
    check_made(path, &made, "-p analytics --test it the_tables_are");
}

fn lines(drifts: &[Drift]) -> Vec<String> {
    drifts.iter().map(Drift::to_string).collect()
}

/// Changes the tables, and says what is then found, and what still is after `ensure`.
async fn check(changes: &[&str], found: &[&str], left: &[&str]) -> Outcome {
    let (database, store) = Database::store().await?;
    assert_eq!(store.diff().await?, [], "fresh");
    for change in changes {
        database.execute(change).await?;
    }
    assert_eq!(lines(&store.diff().await?), found, "{changes:?}");
    for time in ["once", "twice"] {
        let drifts = store.ensure().await?;
        assert_eq!(lines(&drifts), left, "{changes:?}, ensured {time}");
        assert_eq!(lines(&store.diff().await?), left, "{changes:?}, {time}");
    }
    database.drop().await
}

/// Changes the tables in one database, each so that one drift is found, in the order of the drifts, which `ensure` mends.
async fn missing(changes: &[(&str, &str)]) -> Outcome {
    let (changes, found): (Vec<&str>, Vec<&str>) = changes.iter().copied().unzip();
    check(&changes, &found, &[]).await
}

/// As `missing`, but what is there is left to a person.
async fn stays(changes: &[(&str, &str)]) -> Outcome {
    let (changes, found): (Vec<&str>, Vec<&str>) = changes.iter().copied().unzip();
    check(&changes, &found, &found).await
}

#[tokio::test]
async fn what_is_missing_is_named_and_made() -> Outcome {
    missing(&[
        (
            "ALTER TABLE ledger_ranges MODIFY COLUMN recorded_at REMOVE DEFAULT",
            "ledger_ranges.recorded_at: default missing, expected now64(3)",
        ),
        ("DROP TABLE rates", "rates: table missing"),
        (
            "DROP VIEW unrated_usage",
            "unrated_usage: view missing, expected SELECT tenant, hour, resource, sum(quantity) AS quantity, sum(ms) AS ms \
             FROM chargeback_hourly WHERE has_rate = 0 GROUP BY tenant, hour, resource",
        ),
    ])
    .await?;
    missing(&[
        (
            "ALTER TABLE rates DROP COLUMN micro_per_unit_hour",
            "rates.micro_per_unit_hour: column missing",
        ),
        (
            "ALTER TABLE rates MODIFY COMMENT ''",
            "rates: comment missing, expected Prices.",
        ),
        (
            "ALTER TABLE rates COMMENT COLUMN resource ''",
            "rates.resource: comment missing, expected cpu, memory, gpu or gpu:<model>.",
        ),
        (
            "ALTER TABLE unrated_usage MODIFY COMMENT ''",
            "unrated_usage: comment missing, expected Use that nobody is charged for because no rate was effective.",
        ),
        (
            "ALTER TABLE waits COMMENT COLUMN tenant ''",
            "waits.tenant: comment missing, expected Whose it was.",
        ),
    ])
    .await
}

/// Views of a version that gave them no comments.
#[tokio::test]
async fn a_view_that_says_nothing_is_told_what_it_is() -> Outcome {
    let select = "SELECT tenant, hour, resource, sum(quantity) AS quantity, sum(ms) AS ms
                  FROM chargeback_hourly WHERE has_rate = 0 GROUP BY tenant, hour, resource";
    let change = format!("CREATE OR REPLACE VIEW unrated_usage AS {select}");
    check(
        &[&change],
        &[
            "unrated_usage: comment missing, expected Use that nobody is charged for because no rate was effective.",
            "unrated_usage.hour: comment missing, expected Its beginning, in UTC.",
            "unrated_usage.ms: comment missing, expected Milliseconds of allocations that had some of it.",
            "unrated_usage.quantity: comment missing, expected Millicore-, byte- or milli-GPU-milliseconds.",
            "unrated_usage.resource: comment missing, expected cpu, memory, gpu or gpu:<model>.",
            "unrated_usage.tenant: comment missing, expected Who pays.",
        ],
        &[],
    )
    .await
}

/// A reader finds in the server what everything is. A view with parameters has no columns there.
#[tokio::test]
async fn every_table_view_and_column_says_what_it_is() -> Outcome {
    let (database, _store) = Database::store().await?;
    let silent: Vec<String> = database
        .client
        .query(
            "SELECT name FROM system.tables WHERE database = currentDatabase() AND comment = ''
             UNION ALL
             SELECT concat(table, '.', name) FROM system.columns WHERE database = currentDatabase() AND comment = ''
             ORDER BY 1",
        )
        .fetch_all()
        .await?;
    assert_eq!(silent, Vec::<String>::new());
    let found: Vec<(String, String)> = database
        .client
        .query("SELECT table, name FROM system.columns WHERE database = currentDatabase()")
        .fetch_all()
        .await?;
    assert!(found.len() > 300, "{}", found.len());
    // Nothing is told of what is not there.
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas/clickhouse/view_columns.txt");
    let list = fs::read_to_string(path)?;
    for (name, _) in list.lines().filter_map(|line| line.split_once(": ")) {
        let there = found
            .iter()
            .any(|(view, column)| match name.split_once('.') {
                Some(of) => of == (view, column),
                None => name == column || name.starts_with('#'),
            });
        assert!(there, "{name}");
    }
    database.drop().await
}

#[tokio::test]
async fn what_is_there_and_should_not_be_is_named() -> Outcome {
    stays(&[
        (
            "CREATE TABLE more (x String) ENGINE = MergeTree ORDER BY x",
            "more: table extra",
        ),
        (
            "CREATE VIEW more_of_it AS SELECT 1 AS one",
            "more_of_it: view extra, found SELECT 1 AS one",
        ),
        (
            "ALTER TABLE rates ADD COLUMN more String DEFAULT 'x' COMMENT 'y'",
            "rates.more: column extra",
        ),
        (
            "ALTER TABLE rates MODIFY COLUMN version DEFAULT 7",
            "rates.version: default extra, found 7",
        ),
    ])
    .await
}

#[tokio::test]
async fn what_is_otherwise_is_named() -> Outcome {
    stays(&[
        (
            "ALTER TABLE budgets MODIFY COLUMN version CODEC(ZSTD(1))",
            "budgets.version: type different, expected UInt64, found UInt64 CODEC(ZSTD(1))",
        ),
        (
            "ALTER TABLE ledger_ranges MODIFY COLUMN recorded_at DEFAULT now64(2)",
            "ledger_ranges.recorded_at: default different, expected now64(3), found now64(2)",
        ),
        (
            "ALTER TABLE rates MODIFY TTL toDateTime(effective_from) + toIntervalDay(1)",
            "rates: engine different, expected MergeTree, found MergeTree TTL toDateTime(effective_from) + \
             toIntervalDay(1)",
        ),
        (
            "ALTER TABLE rates MODIFY SETTING non_replicated_deduplication_window = 7",
            "rates: storage different, expected non_replicated_deduplication_window = 10000, \
             max_suspicious_broken_parts = 1000000, found non_replicated_deduplication_window = 7, \
             max_suspicious_broken_parts = 1000000",
        ),
        (
            "ALTER TABLE rates MODIFY COLUMN micro_per_unit_hour UInt32",
            "rates.micro_per_unit_hour: type different, expected UInt64, found UInt32",
        ),
        (
            "ALTER TABLE rates MODIFY COMMENT 'It''s others.'",
            "rates: comment different, expected Prices., found It's others.",
        ),
    ])
    .await
}

/// The same columns and comments, and another engine, partition, key and order.
#[tokio::test]
async fn another_engine_or_key_is_named() -> Outcome {
    let other = "CREATE TABLE rates AS before ENGINE = ReplacingMergeTree(micro_per_unit_hour) PARTITION BY version PRIMARY KEY resource
                 ORDER BY (resource, version) SETTINGS non_replicated_deduplication_window = 10000,
                 max_suspicious_broken_parts = 1000000 COMMENT 'Prices.'";
    let changes = ["RENAME TABLE rates TO before", other, "DROP TABLE before"];
    let found = [
        "rates: engine different, expected MergeTree, found ReplacingMergeTree(micro_per_unit_hour)",
        "rates: order_by different, expected resource, tenant, priority_class, pool, cluster, applied_from, version, found resource, version",
        "rates: partition_by extra, found version",
        "rates: primary_key extra, found resource",
    ];
    check(&changes, &found, &found).await
}

#[tokio::test]
async fn a_view_with_another_query_is_named_and_replaced() -> Outcome {
    let text = "unrated_usage: view different, expected SELECT tenant, hour, resource, sum(quantity) AS quantity, sum(ms) AS ms \
                FROM chargeback_hourly WHERE has_rate = 0 GROUP BY tenant, hour, resource, found SELECT tenant FROM chargeback_hourly";
    check(
        &["CREATE OR REPLACE VIEW unrated_usage AS SELECT tenant FROM chargeback_hourly"],
        &[
            text,
            "unrated_usage: comment missing, expected Use that nobody is charged for because no rate was effective.",
            "unrated_usage.tenant: comment missing, expected Who pays.",
        ],
        &[],
    )
    .await
}

#[tokio::test]
async fn of_many_at_once_all_find_the_tables_made() -> Outcome {
    let database = Database::create().await?;
    let store = Store::new(database.client.clone(), &database.name, CELL);
    for changes in [
        &[][..],
        &["DROP TABLE node_transfers", "DROP VIEW conservation"],
        &["ALTER TABLE rates DROP COLUMN micro_per_unit_hour"],
    ] {
        for change in changes {
            database.execute(change).await?;
        }
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let store = store.clone();
            tasks.spawn(async move { store.ensure().await });
        }
        while let Some(left) = tasks.join_next().await {
            assert_eq!(left??, [], "{changes:?}");
        }
        assert_eq!(store.diff().await?, [], "{changes:?}");
    }
    database.drop().await
}

#[tokio::test]
async fn rows_stay_unless_they_lack_what_only_the_ledger_knows() -> Outcome {
    let (database, store) = Database::store().await?;
    let mut journal = Journal::default();
    journal.node(0, "n1", None);
    journal.start(1, "t1", "n1", (1000, 1, 0), 10);
    journal.end(1, 30);
    let batch = journal.batch();
    for (change, stay) in [
        ("DROP VIEW unrated_usage", true),
        ("ALTER TABLE rates COMMENT COLUMN resource ''", true),
        ("ALTER TABLE rates DROP COLUMN micro_per_unit_hour", false),
        ("DROP TABLE rates", false),
    ] {
        store.apply(&crate::common::again(&batch)).await?;
        database.execute(change).await?;
        assert_eq!(store.ensure().await?, [], "{change}");
        for table in ["ledger_ranges", "allocation_intervals", "usage_hourly"] {
            assert_eq!(database.count(table).await? > 0, stay, "{change}: {table}");
        }
    }
    database.drop().await
}

/// It had no running allocations, and its hours were by job set; the one before had a table of entries, and a view that wrote
/// the hours.
#[tokio::test]
async fn the_tables_of_the_version_before_are_made_anew() -> Outcome {
    let (database, store) = Database::store().await?;
    let mut journal = Journal::default();
    journal.node(0, "n1", None);
    journal.start(1, "t1", "n1", (1000, 1, 0), 10);
    journal.end(1, 30);
    let batch = journal.batch();
    store.apply(&batch).await?;
    for statement in [
        "DROP VIEW node_entries",
        "CREATE TABLE node_entries (lsn UInt64, account LowCardinality(String)) ENGINE = MergeTree ORDER BY lsn",
        "INSERT INTO node_entries VALUES (1, 'idle')",
        "ALTER TABLE allocation_intervals DROP COLUMN whole, DROP COLUMN placed_at, DROP COLUMN released_at",
        "ALTER TABLE ledger_ranges RENAME COLUMN node_transfers TO node_entries, DROP COLUMN node_capacities,
             DROP COLUMN usage_ms, DROP COLUMN clock",
        "DROP TABLE running_allocations",
        "DROP TABLE usage_hourly",
        "CREATE TABLE usage_hourly (tenant LowCardinality(String), job_set String, hour DateTime('UTC'),
             resource LowCardinality(String), quantity UInt128, ms UInt64)
             ENGINE = MergeTree ORDER BY (tenant, hour, resource, job_set)",
        "ALTER TABLE rates MODIFY SETTING fsync_after_insert = 1",
        "CREATE MATERIALIZED VIEW usage_hourly_from_intervals TO usage_hourly AS
             SELECT tenant, job_set, toDateTime(started_at, 'UTC') AS hour, 'cpu' AS resource,
                 toUInt128(cpu_milli) AS quantity, toUInt64(1) AS ms FROM allocation_intervals",
    ] {
        database.execute(statement).await?;
    }
    assert_eq!(store.ensure().await?, []);
    assert_eq!(store.diff().await?, []);
    assert_eq!(store.resume(LEDGER).await?.through, vocab::Lsn(0));
    store.apply(&crate::common::again(&batch)).await?;
    assert_eq!(store.conservation().await?.conservation_error_ms(), 0);
    database.drop().await
}

#[tokio::test]
async fn drift_may_be_refused() -> Outcome {
    let (database, store) = Database::store().await?;
    database
        .execute("ALTER TABLE rates ADD COLUMN more String")
        .await?;
    let sink = || ClickHouseSink::new(store.clone(), "EUR", Default::default(), |_| {});
    assert!(sink().resume(LEDGER).await.is_ok());
    let refused = "the tables have drifted:\n  rates.more: column extra";
    let refused = Err(SinkError::Refused(refused.to_owned()));
    let mut sink = sink().on_drift(OnDrift::Refuse);
    assert_eq!(sink.resume(LEDGER).await, refused);
    database.drop().await
}

#[tokio::test]
async fn a_dropped_table_is_made_anew_by_whom_it_stops() -> Outcome {
    let (database, store) = Database::store().await?;
    let mut sink = ClickHouseSink::new(store.clone(), "EUR", Default::default(), |_| {});
    let mut journal = Journal::default();
    journal.node(0, "n1", None);
    let batch = journal.batch();
    sink.resume(LEDGER).await?;
    sink.apply(&batch).await?;
    assert_eq!(store.currency().await?, "EUR");
    journal.start(1, "t1", "n1", (1, 1, 0), 1);
    database.execute("DROP TABLE node_transfers").await?;
    let lost = sink.apply(&journal.batch()).await;
    assert_eq!(lost, Err(SinkError::Moved));
    assert_eq!(sink.resume(LEDGER).await?.through, vocab::Lsn(0));
    sink.apply(&crate::common::again(&batch)).await?;
    assert_eq!(store.through().await?, batch.to);

    // All files lost.
    let tables = ["cells", "ledger_ranges", "node_capacities"];
    for table in tables {
        database.execute(&format!("DROP TABLE {table}")).await?;
    }
    let lost = sink.apply(&journal.batch()).await;
    assert_eq!(lost, Err(SinkError::Moved));
    assert_eq!(sink.resume(LEDGER).await?.through, vocab::Lsn(0));
    assert_eq!(store.currency().await?, "");
    sink.apply(&crate::common::again(&batch)).await?;
    assert_eq!(store.currency().await?, "EUR");
    database.drop().await
}

#[tokio::test]
async fn what_is_dropped_or_changed_while_nothing_comes_is_noticed() -> Outcome {
    let (database, store) = Database::store().await?;
    let sink = ClickHouseSink::new(store.clone(), "EUR", Default::default(), |_| {});
    let mut sink = sink.on_drift(OnDrift::Refuse);
    let mut journal = Journal::default();
    journal.node(0, "n1", None);
    let batch = journal.batch();
    sink.resume(LEDGER).await?;
    sink.apply(&batch).await?;
    database.execute("DROP VIEW prices").await?;
    assert_eq!(sink.resume(LEDGER).await?.through, batch.to);
    assert_eq!(database.count("prices").await?, 0);
    database.execute("DROP TABLE node_transfers").await?;
    assert_eq!(sink.resume(LEDGER).await?.through, vocab::Lsn(0));
    sink.apply(&crate::common::again(&batch)).await?;
    database
        .execute("ALTER TABLE rates MODIFY COLUMN resource String")
        .await?;
    let drifted = sink.resume(LEDGER).await;
    let Err(SinkError::Refused(why)) = drifted else {
        panic!("{drifted:?}");
    };
    assert!(why.contains("rates.resource: type"), "{why}");
    database.drop().await
}

#[tokio::test]
async fn tables_of_which_a_question_finds_a_part_damaged_are_made_again() -> Outcome {
    let (database, store) = Database::store().await?;
    let mut sink = ClickHouseSink::new(store.clone(), "EUR", Default::default(), |_| {});
    let mut journal = Journal::default();
    journal.node(0, "n1", None);
    let batch = journal.batch();
    sink.resume(LEDGER).await?;
    sink.apply(&batch).await?;
    assert_eq!(sink.resume(LEDGER).await?.through, batch.to);
    // As a server says it that finds an empty file of a part.
    let damage =
        "CREATE VIEW cells AS SELECT throwIf(1, 'empty marks file', 246::Int16) AS currency,
                  now64() AS at
                  SETTINGS allow_custom_error_code_in_throwif = 1";
    database.execute("RENAME TABLE cells TO kept").await?;
    database.execute(damage).await?;
    let damaged = store.currency().await;
    assert!(
        matches!(damaged, Err(StoreError::Damaged(_))),
        "{damaged:?}"
    );
    database.execute("DROP VIEW cells").await?;
    database.execute("RENAME TABLE kept TO cells").await?;
    assert_eq!(sink.resume(LEDGER).await?.through, vocab::Lsn(0));
    sink.apply(&crate::common::again(&batch)).await?;
    assert_eq!(store.currency().await?, "EUR");
    database.drop().await
}

#[tokio::test]
async fn what_was_lost_while_the_server_was_away_is_noticed_and_what_is_being_sent_is_left_alone()
-> Outcome {
    let (database, store) = Database::store().await?;
    let mut sink = ClickHouseSink::new(store.clone(), "EUR", Default::default(), |_| {});
    let mut journal = Journal::default();
    journal.rate("cpu", 1, 0, 1);
    journal.rate("memory", 1, 0, 1);
    let rates = journal.batch();
    sink.resume(LEDGER).await?;
    sink.apply(&rates).await?;
    database.execute("TRUNCATE TABLE rates").await?;
    // Not looked for without a reason, because it takes a walk over all ranges.
    assert_eq!(sink.resume(LEDGER).await?.through, rates.to);
    let failed = "ALTER TABLE rates ADD CONSTRAINT broken CHECK version = 0";
    database.execute(failed).await?;
    journal.rate("gpu", 1, 0, 2);
    let next = journal.batch();
    let failed = sink.apply(&next).await;
    assert!(
        matches!(failed, Err(SinkError::Unavailable(_))),
        "{failed:?}"
    );
    // While a range is begun, nobody can tell what is missing.
    assert_eq!(sink.resume(LEDGER).await?.begun, Some(next.to));
    let mended = "ALTER TABLE rates DROP CONSTRAINT broken";
    database.execute(mended).await?;
    sink.apply(&next).await?;
    assert_eq!(sink.resume(LEDGER).await?.through, vocab::Lsn(0));
    for batch in [&rates, &next] {
        sink.apply(&crate::common::again(batch)).await?;
    }
    assert_eq!(sink.resume(LEDGER).await?.through, next.to);
    assert_eq!(store.conservation().await?.conservation_error_ms(), 0);
    database.drop().await
}
