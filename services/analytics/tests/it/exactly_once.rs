//! A batch lands once, wherever the process or the server is killed.

use crate::common::{CELL, Database, Journal, LEDGER, Outcome, again};
use analytics::{
    domain::Change,
    store::{ClickHouseSink, Rows, Store, StoreError},
};
use ledger::{Batch, LedgerId, Resume, Sink, SinkError};
use vocab::{HOUR_MS, Lsn};

fn journal() -> Journal {
    let mut journal = Journal::default();
    journal.node(0, "n1", Some("V100"));
    journal.rate("cpu", 1000, 0, 1);
    for allocation in 1..=5 {
        let from = allocation as i64 * 1000;
        let to = from + allocation as i64 * HOUR_MS;
        journal.start(allocation, "t1", "n1", (1000, 1 << 30, 500), from);
        journal.end(allocation, to);
    }
    journal
}

/// What every case must come to.
async fn check(database: &Database, store: &Store, to: Lsn) -> Outcome {
    let resume = store.resume(LEDGER).await?;
    let through = Resume {
        through: to,
        digest: Some(crate::common::DIGEST),
        begun: None,
    };
    assert_eq!(resume, through);
    assert_eq!(database.count("allocation_intervals").await?, 5);
    assert_eq!(database.count("rates").await?, 1);
    let ms: i64 = database
        .client
        .query("SELECT sum(ms) FROM usage_hourly WHERE resource = 'cpu'")
        .fetch_one()
        .await?;
    assert_eq!(ms, (1 + 2 + 3 + 4 + 5) * HOUR_MS);
    let conservation = store.conservation().await?;
    assert_eq!(
        conservation.conservation_error_ms(),
        0,
        "{:?}",
        conservation.imbalances
    );
    Ok(())
}

#[tokio::test]
async fn killed_after_the_range_was_recorded() -> Outcome {
    let (database, store) = Database::store().await?;
    let batch = journal().batch();
    let rows = Rows::of(CELL, &batch.changes);
    assert!(!store.begin(&batch, &rows).await?.applied);
    let resume = store.resume(LEDGER).await?;
    assert_eq!((resume.through, resume.begun), (Lsn(0), Some(batch.to)));
    store.apply(&again(&batch)).await?;
    check(&database, &store, batch.to).await?;
    database.drop().await
}

#[tokio::test]
async fn killed_between_two_tables() -> Outcome {
    let (database, store) = Database::store().await?;
    let batch = journal().batch();
    let rows = Rows::of(CELL, &batch.changes);
    let begun = store.begin(&batch, &rows).await?;
    let broken = "ALTER TABLE usage_hourly ADD CONSTRAINT broken CHECK ms = 0";
    database.execute(broken).await?;
    let failed = store.send(&batch, &rows, begun).await;
    assert!(failed.is_err(), "{failed:?}");
    let mended = "ALTER TABLE usage_hourly DROP CONSTRAINT broken";
    database.execute(mended).await?;
    // The runs have landed, their hours have not: the case that a repeat must heal.
    assert_eq!(database.count("allocation_intervals").await?, 5);
    assert_eq!(database.count("usage_hourly").await?, 0);
    assert_eq!(store.resume(LEDGER).await?.begun, Some(batch.to));
    store.apply(&again(&batch)).await?;
    check(&database, &store, batch.to).await?;
    database.drop().await
}

#[tokio::test]
async fn killed_before_the_range_was_recorded_as_applied() -> Outcome {
    let (database, store) = Database::store().await?;
    let batch = journal().batch();
    let rows = Rows::of(CELL, &batch.changes);
    let begun = store.begin(&batch, &rows).await?;
    store.send(&batch, &rows, begun).await?;
    assert_eq!(store.resume(LEDGER).await?.begun, Some(batch.to));
    store.apply(&again(&batch)).await?;
    check(&database, &store, batch.to).await?;
    database.drop().await
}

#[tokio::test]
async fn applied_twice() -> Outcome {
    let (database, store) = Database::store().await?;
    let batch = journal().batch();
    store.apply(&batch).await?;
    store.apply(&again(&batch)).await?;
    // Also when nothing is known of the first time.
    let rows = Rows::of(CELL, &batch.changes);
    let begun = store.begin(&batch, &rows).await?;
    assert!(begun.applied);
    store.send(&batch, &rows, begun).await?;
    store.complete(&batch, &rows, begun).await?;
    check(&database, &store, batch.to).await?;
    database.drop().await
}

#[tokio::test]
async fn merged_parts_and_a_restarted_table_keep_their_tokens() -> Outcome {
    let (database, store) = Database::store().await?;
    let batch = journal().batch();
    store.apply(&batch).await?;
    for table in ["allocation_intervals", "node_transfers", "usage_hourly"] {
        database
            .execute(&format!("OPTIMIZE TABLE {table} FINAL"))
            .await?;
        database
            .execute(&format!("DETACH TABLE {table} SYNC"))
            .await?;
        database.execute(&format!("ATTACH TABLE {table}")).await?;
    }
    let rows = Rows::of(CELL, &batch.changes);
    let begun = store.begin(&batch, &rows).await?;
    assert!(begun.applied);
    store.send(&batch, &rows, begun).await?;
    check(&database, &store, batch.to).await?;
    database.drop().await
}

/// The same ledger, cut into batches in two ways: after 4 of its 5 events, and not at all.
fn two_cuts() -> [Batch<Change>; 3] {
    let mut journal = Journal::default();
    journal.node(0, "n1", None);
    journal.start(1, "t1", "n1", (1000, 1, 0), 10);
    let short = journal.batch();
    journal.end(1, 20);
    let tail = journal.batch();
    let mut whole = again(&short);
    whole.to = tail.to;
    whole.changes.extend(tail.changes.iter().cloned());
    [short, tail, whole]
}

fn moved(outcome: Result<Rows, StoreError>) {
    assert!(matches!(outcome, Err(StoreError::Moved)), "{outcome:?}");
}

#[tokio::test]
async fn of_two_projectors_the_first_sets_the_bounds() -> Outcome {
    for short_first in [true, false] {
        let (database, store) = Database::store().await?;
        let [short, tail, whole] = two_cuts();
        let (first, late) = if short_first {
            (&short, &whole)
        } else {
            (&whole, &short)
        };
        let rows = Rows::of(CELL, &first.changes);
        assert!(!store.begin(first, &rows).await?.applied);
        assert!(!store.conservation().await?.at_rest);
        moved(store.apply(late).await);
        assert_eq!(store.resume(LEDGER).await?.begun, Some(first.to));
        // Both go on with the first one's bounds, at the same time.
        let (one, other) = tokio::join!(store.apply(first), store.apply(first));
        one?;
        other?;
        if short_first {
            store.apply(&tail).await?;
            // Whoever is behind is told.
            moved(store.apply(&short).await);
        }
        moved(store.apply(late).await);
        assert_eq!(database.count("allocation_intervals").await?, 1);
        let conservation = store.conservation().await?;
        assert_eq!(conservation.conservation_error_ms(), 0);
        assert!(conservation.at_rest);
        database.drop().await?;
    }
    Ok(())
}

#[tokio::test]
async fn equal_use_in_two_batches_counts_twice() -> Outcome {
    let (database, store) = Database::store().await?;
    let mut journal = Journal::default();
    journal.node(0, "n1", None);
    journal.start(1, "t1", "n1", (1000, 1, 0), 10);
    journal.start(2, "t1", "n1", (1000, 1, 0), 10);
    for allocation in [1, 2] {
        journal.end(allocation, 30);
        store.apply(&journal.batch()).await?;
    }
    let ms: i64 = database
        .client
        .query("SELECT sum(ms) FROM usage_hourly WHERE resource = 'cpu'")
        .fetch_one()
        .await?;
    assert_eq!(ms, 40);
    assert_eq!(store.conservation().await?.conservation_error_ms(), 0);
    database.drop().await
}

#[tokio::test]
async fn another_ledger_empties_the_tables() -> Outcome {
    let (database, store) = Database::store().await?;
    let batch = journal().batch();
    store.apply(&batch).await?;
    let fresh = Resume {
        through: Lsn(0),
        digest: None,
        begun: None,
    };
    assert_eq!(store.resume(LedgerId(LEDGER.0 + 1)).await?, fresh);
    for table in ["allocation_intervals", "usage_hourly", "ledger_ranges"] {
        assert_eq!(database.count(table).await?, 0, "{table}");
    }
    // The old tokens are no obstacle when the first ledger comes back.
    assert_eq!(store.resume(LEDGER).await?, fresh);
    store.apply(&again(&batch)).await?;
    check(&database, &store, batch.to).await?;
    database.drop().await
}

#[tokio::test]
async fn emptied_or_dropped_tables_are_noticed() -> Outcome {
    let (database, store) = Database::store().await?;
    let mut journal = journal();
    let batch = journal.batch();
    store.apply(&batch).await?;
    journal.node(9, "n2", None);
    journal.start(6, "t1", "n2", (1, 1, 0), 50 * HOUR_MS);
    let next = journal.batch();
    store.wipe().await?;
    let lost = store.apply(&next).await;
    assert!(matches!(lost, Err(StoreError::Moved)), "{lost:?}");
    database.execute("DROP TABLE ledger_ranges").await?;
    let lost = store.apply(&next).await;
    assert!(matches!(lost, Err(StoreError::Moved)), "{lost:?}");
    database.drop().await
}

#[tokio::test]
async fn rows_without_a_position_are_emptied() -> Outcome {
    let (database, store) = Database::store().await?;
    let [short, tail, whole] = two_cuts();
    store.apply(&short).await?;
    store.apply(&tail).await?;
    database.execute("TRUNCATE TABLE ledger_ranges").await?;
    assert_eq!(store.resume(LEDGER).await?.through, Lsn(0));
    // In other bounds, so that no token says what is there already.
    store.apply(&whole).await?;
    assert_eq!(database.count("allocation_intervals").await?, 1);
    assert_eq!(store.conservation().await?.conservation_error_ms(), 0);
    database.drop().await
}

#[tokio::test]
async fn what_was_sent_into_tables_that_were_made_anew_meanwhile_is_sent_again() -> Outcome {
    let (database, store) = Database::store().await?;
    let batch = journal().batch();
    let rows = Rows::of(CELL, &batch.changes);
    let begun = store.begin(&batch, &rows).await?;
    database
        .execute("ALTER TABLE rates DROP COLUMN lsn")
        .await?;
    assert_eq!(store.ensure().await?, []);
    store.send(&batch, &rows, begun).await?;
    let lost = store.complete(&batch, &rows, begun).await;
    assert!(matches!(lost, Err(StoreError::Moved)), "{lost:?}");
    assert_eq!(store.resume(LEDGER).await?.through, Lsn(0));
    store.apply(&again(&batch)).await?;
    check(&database, &store, batch.to).await?;
    database.drop().await
}

/// After a power cut: the table is without the parts that hold these rows, and knows their tokens all the same.
async fn lose(database: &Database, table: &str, rows: &str) -> Outcome {
    let paths: Vec<String> = database
        .client
        .query(&format!(
            "SELECT DISTINCT path FROM system.parts WHERE database = ? AND table = ? AND active
                 AND name IN (SELECT _part FROM {table} WHERE {rows})"
        ))
        .bind(&database.name)
        .bind(table)
        .fetch_all()
        .await?;
    assert!(!paths.is_empty(), "{table}: {rows}");
    database
        .execute(&format!("DETACH TABLE {table} SYNC"))
        .await?;
    for path in paths {
        std::fs::remove_dir_all(path)?;
    }
    database.execute(&format!("ATTACH TABLE {table}")).await
}

#[tokio::test]
async fn lost_rows_of_which_the_server_knows_the_tokens_come_again() -> Outcome {
    let behind = "lsn > (SELECT min(to_lsn) FROM ledger_ranges)";
    let last = "to_lsn > (SELECT min(to_lsn) FROM ledger_ranges)";
    let applied = format!("{last} AND state = 'applied'");
    let ranges = |rows: &'static str| ("ledger_ranges", rows);
    let data = [("allocation_intervals", behind), ("node_transfers", behind)];
    let all = [data[0], data[1], ("usage_hourly", "1"), ranges(last)];
    let cases: [&[(&str, &str)]; 7] = [
        &data[..1],
        // As if the batch had never been.
        &all,
        &[ranges(last)],
        &[("ledger_ranges", &applied)],
        &[data[0], ("ledger_ranges", &applied)],
        // The record of the first batch as well, whose token begins every refill.
        &[ranges("1")],
        &[data[0], data[1], ("usage_hourly", "1"), ranges("1")],
    ];
    for lost in cases {
        let (database, store) = Database::store().await?;
        for table in ["ledger_ranges", "allocation_intervals", "node_transfers"] {
            // The rows of each batch stay in a part of their own.
            database
                .execute(&format!("SYSTEM STOP MERGES {table}"))
                .await?;
        }
        let mut journal = Journal::default();
        journal.node(0, "n1", None);
        let first = journal.batch();
        journal.start(1, "t1", "n1", (1000, 1, 0), 10);
        journal.start(2, "t1", "n1", (1000, 1, 0), 10);
        journal.end(1, 20);
        let second = journal.batch();
        store.apply(&first).await?;
        store.apply(&second).await?;
        let entries = database.count("node_entries").await?;
        // What the ranges say is looked up before they are lost.
        for (table, rows) in lost {
            lose(&database, table, rows).await?;
        }
        let mut sink = ClickHouseSink::new(store.clone(), "EUR", Default::default(), |_| {});
        let mut tries = 0;
        loop {
            let resume = sink.resume(LEDGER).await?;
            if resume.through == second.to && resume.begun.is_none() {
                break;
            }
            tries += 1;
            assert!(tries < 8, "{lost:?}: {resume:?}");
            let next = if resume.through < first.to {
                &first
            } else {
                &second
            };
            match sink.apply(&again(next)).await {
                Ok(()) | Err(SinkError::Moved) => {}
                Err(error) => return Err(error.into()),
            }
        }
        assert_eq!(database.count("allocation_intervals").await?, 1, "{lost:?}");
        assert_eq!(database.count("node_entries").await?, entries, "{lost:?}");
        assert_eq!(store.conservation().await?.conservation_error_ms(), 0);
        database.drop().await?;
    }
    Ok(())
}
