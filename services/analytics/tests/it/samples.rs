//! The table of samples on a real ClickHouse: what the bill's tables go through leaves it alone, and it forgets by itself.

use crate::common::{Database, Journal, LEDGER, Outcome, token};
use analytics::store::{SampleRow, slot};
use vocab::{DAY_MS, HOUR_MS, Millis};

fn sample(node: &str, at: i64, cpu_milli: u64) -> SampleRow {
    let at = Millis(at);
    SampleRow {
        at,
        slot: slot(at),
        node: token(node),
        samples: 1,
        cpu_milli,
        memory_bytes: 10 * cpu_milli,
        gpus: 2,
        gpu_busy_milli: cpu_milli,
        gpu_memory_bytes: cpu_milli,
        disk_used_bytes: cpu_milli,
        disk_free_bytes: cpu_milli,
        network_received_bytes: cpu_milli,
        network_sent_bytes: cpu_milli,
        load_milli: cpu_milli,
        oom_kills: cpu_milli,
        runs: 4,
    }
}

#[tokio::test]
async fn what_empties_the_bills_tables_leaves_samples() -> Outcome {
    let (database, store) = Database::store().await?;
    let mut journal = Journal::default();
    journal.node(0, "n1", None);
    journal.start(1, "t1", "n1", (1000, 1, 0), 10);
    journal.end(1, 30);
    let batch = journal.batch();
    store.apply(&batch).await?;
    let now = chassis::Clock::real().now_ms();
    store.insert_samples(&[sample("n1", now, 5)]).await?;
    let is = async |bill: u64, samples: u64| -> Outcome {
        assert_eq!(database.count("allocation_intervals").await?, bill);
        assert_eq!(database.count("node_samples").await?, samples);
        Ok(())
    };
    is(1, 1).await?;
    assert_eq!(store.conservation().await?.conservation_error_ms(), 0);
    store.wipe().await?;
    is(0, 1).await?;
    // Samples alone are no rows without a position.
    assert_eq!(store.resume(LEDGER).await?.through, vocab::Lsn(0));
    store.apply(&crate::common::again(&batch)).await?;
    is(1, 1).await?;
    // Made anew of the ledger.
    database
        .execute("ALTER TABLE rates DROP COLUMN micro_per_unit_hour")
        .await?;
    assert_eq!(store.ensure().await?, []);
    is(0, 1).await?;
    store.apply(&crate::common::again(&batch)).await?;
    // A version that had no samples, or others.
    for (changes, left) in [
        (&["DROP TABLE node_samples"][..], 0),
        (
            &[
                "ALTER TABLE node_samples REMOVE TTL",
                "ALTER TABLE node_samples DROP COLUMN runs",
            ],
            0,
        ),
        (&["ALTER TABLE node_samples COMMENT COLUMN runs ''"], 1),
    ] {
        database.execute("TRUNCATE TABLE node_samples").await?;
        store.insert_samples(&[sample("n1", now, 5)]).await?;
        for change in changes {
            database.execute(change).await?;
        }
        assert_eq!(store.ensure().await?, [], "{changes:?}");
        assert_eq!(store.diff().await?, [], "{changes:?}");
        is(1, left).await?;
    }
    database.drop().await
}

#[tokio::test]
async fn old_samples_become_one_for_five_minutes_and_go_after_a_month() -> Outcome {
    let (database, store) = Database::store().await?;
    let now = chassis::Clock::real().now_ms();
    let then = now - 3 * HOUR_MS;
    let then = then - then.rem_euclid(5 * 60_000);
    let rows = [
        sample("n1", then, 1000),
        sample("n1", then + 60_000, 2000),
        sample("n1", then + 299_999, 6000),
        sample("n1", then + 300_000, 7),
        sample("n2", then, 8),
        sample("n1", now, 9),
        sample("n1", now - 1, 10),
        sample("n1", now - 31 * DAY_MS, 11),
    ];
    // What was thinned before counts by what it was made of.
    for part in rows.chunks(2) {
        store.insert_samples(part).await?;
        database
            .execute("OPTIMIZE TABLE node_samples FINAL")
            .await?;
    }
    let found: Vec<(String, i64, u32, u64, u64, u64, u64)> = database
        .client
        .query(
            "SELECT node, toUnixTimestamp64Milli(at), samples, cpu_milli, memory_bytes, disk_free_bytes, oom_kills
             FROM node_samples ORDER BY node, at",
        )
        .fetch_all()
        .await?;
    let row = |node: &str, at, samples, amounts: [u64; 4]| {
        let [cpu, memory, free, kills] = amounts;
        (node.to_owned(), at, samples, cpu, memory, free, kills)
    };
    let alone = |cpu| [cpu, 10 * cpu, cpu, cpu];
    assert_eq!(
        found,
        [
            row("n1", then + 299_999, 3, [3000, 30_000, 1000, 6000]),
            row("n1", then + 300_000, 1, alone(7)),
            row("n1", now - 1, 1, alone(10)),
            row("n1", now, 1, alone(9)),
            row("n2", then, 1, alone(8)),
        ]
    );
    database.drop().await
}
