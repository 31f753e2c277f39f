//! The sink against a real Postgres: exactly once, through everything that may go wrong.

use chassis::warm::{Moment, OnDrift, PgSink, WarmError, WarmState, bigint, empty};
use ledger::{Batch, Digest, LedgerId, Resume, Sink, SinkError};
use sqlx::{Connection, Executor, PgConnection, PgPool};
use std::time::Duration;
use testkit::Scratch;
use vocab::{Lsn, Millis};

const LEDGER: LedgerId = LedgerId(1_700_000_000_000_000_000);
const OTHER_LEDGER: LedgerId = LedgerId(1_800_000_000_000_000_000);

struct Counters;

struct Add {
    name: &'static str,
    by: i64,
    at: Millis,
}

impl WarmState for Counters {
    type Change = Add;

    const NAME: &'static str = "counters";
    const DDL: &'static str = include_str!("warm/counters.sql");

    async fn write(&self, tx: &mut PgConnection, changes: &[Add]) -> Result<(), WarmError> {
        for add in changes {
            sqlx::query(
                "INSERT INTO counters (name, value, at) VALUES ($1, $2, $3)
                 ON CONFLICT (name) DO UPDATE SET value = counters.value + excluded.value, at = excluded.at",
            )
            .bind(add.name)
            .bind(add.by)
            .bind(Moment::try_from(add.at)?)
            .execute(&mut *tx)
            .await?;
        }
        Ok(())
    }

    async fn wipe(&self, tx: &mut PgConnection) -> Result<(), WarmError> {
        empty(tx, &["counters"]).await
    }
}

fn batch(after: u64, to: u64, by: i64) -> Batch<Add> {
    Batch {
        ledger: LEDGER,
        after: Lsn(after),
        to: Lsn(to),
        digest: Some(Digest([to as u8; 32])),
        changes: vec![Add {
            name: "a",
            by,
            at: Millis(1_700_000_000_123),
        }],
    }
}

fn at(lsn: u64) -> Result<Resume, SinkError> {
    Ok(Resume {
        through: Lsn(lsn),
        digest: (lsn > 0).then_some(Digest([lsn as u8; 32])),
        begun: None,
    })
}

async fn counter(pool: &PgPool) -> Option<i64> {
    sqlx::query_scalar("SELECT value FROM counters WHERE name = 'a'")
        .fetch_optional(pool)
        .await
        .unwrap()
}

async fn ready(scratch: &Scratch) -> PgSink<Counters> {
    let mut sink = PgSink::new(scratch.pool(), Counters);
    assert_eq!(sink.resume(LEDGER).await, at(0));
    sink
}

#[tokio::test]
async fn a_batch_is_applied_once_and_goes_on_after_a_restart() {
    let scratch = Scratch::open("once").await;
    let mut sink = ready(&scratch).await;
    assert_eq!(sink.apply(&batch(0, 3, 5)).await, Ok(()));
    // Its answer was lost.
    assert_eq!(sink.apply(&batch(0, 3, 5)).await, Err(SinkError::Moved));
    assert_eq!(sink.resume(LEDGER).await, at(3));

    let mut restarted = PgSink::new(scratch.pool(), Counters);
    assert_eq!(restarted.resume(LEDGER).await, at(3));
    assert_eq!(restarted.apply(&batch(3, 4, 1)).await, Ok(()));
    assert_eq!(sink.apply(&batch(3, 4, 1)).await, Err(SinkError::Moved));
    assert_eq!(counter(&scratch.pool()).await, Some(6));
    scratch.close().await;
}

#[tokio::test]
async fn of_projectors_at_once_one_applies_each_batch() {
    let scratch = Scratch::open("race").await;
    ready(&scratch).await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let pool = scratch.another_pool();
        tasks.spawn(async move {
            // Also the tables are made by all of them at once.
            let mut sink = PgSink::new(pool, Counters);
            let mut applied = 0;
            loop {
                let after = sink.resume(LEDGER).await.unwrap().through.0;
                if after >= 50 {
                    return applied;
                }
                match sink.apply(&batch(after, after + 1, 1)).await {
                    Ok(()) => applied += 1,
                    Err(SinkError::Moved) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
    }
    let applied: u64 = tasks.join_all().await.into_iter().sum();
    assert_eq!((applied, counter(&scratch.pool()).await), (50, Some(50)));
    scratch.close().await;
}

#[tokio::test]
async fn tables_of_many_processes_are_made_once() {
    let scratch = Scratch::open("ensured").await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let pool = scratch.another_pool();
        tasks.spawn(async move { PgSink::new(pool, Counters).resume(LEDGER).await });
    }
    for outcome in tasks.join_all().await {
        assert_eq!(outcome, at(0));
    }
    scratch.close().await;
}

#[tokio::test]
async fn another_ledger_starts_from_nothing() {
    let scratch = Scratch::open("ledger").await;
    let mut sink = ready(&scratch).await;
    assert_eq!(sink.apply(&batch(0, 3, 5)).await, Ok(()));
    assert_eq!(sink.resume(OTHER_LEDGER).await, at(0));
    assert_eq!(counter(&scratch.pool()).await, None);
    // Whoever still follows the old one is put out.
    assert_eq!(sink.apply(&batch(0, 3, 5)).await, Err(SinkError::Moved));
    assert_eq!(counter(&scratch.pool()).await, None);
    scratch.close().await;
}

#[tokio::test]
async fn a_reader_that_stands_idle_in_a_transaction_holds_up_no_rebuild() {
    let scratch = Scratch::open("idle_reader").await;
    let mut sink = ready(&scratch).await;
    assert_eq!(sink.apply(&batch(0, 3, 5)).await, Ok(()));
    let pool = scratch.another_pool();
    let mut reader = pool.begin().await.unwrap();
    reader.execute("SELECT * FROM counters").await.unwrap();
    assert_eq!(sink.resume(OTHER_LEDGER).await, at(0));
    assert_eq!(counter(&scratch.pool()).await, None);
    reader.rollback().await.unwrap();
    scratch.close().await;
}

#[tokio::test]
async fn rows_without_a_position_are_wiped() {
    let scratch = Scratch::open("rebuild").await;
    let mut sink = ready(&scratch).await;
    assert_eq!(sink.apply(&batch(0, 3, 5)).await, Ok(()));
    let pool = scratch.pool();
    pool.execute("DELETE FROM projection_position")
        .await
        .unwrap();
    assert_eq!(sink.apply(&batch(3, 4, 1)).await, Err(SinkError::Moved));
    assert_eq!(sink.resume(LEDGER).await, at(0));
    assert_eq!(counter(&pool).await, None);
    scratch.close().await;
}

#[tokio::test]
async fn a_dropped_schema_is_made_anew() {
    let scratch = Scratch::open("dropped").await;
    let mut sink = ready(&scratch).await;
    assert_eq!(sink.apply(&batch(0, 3, 5)).await, Ok(()));
    scratch
        .pool()
        .execute("DROP TABLE projection_position, counters")
        .await
        .unwrap();
    let away = sink.apply(&batch(3, 4, 1)).await;
    assert!(matches!(away, Err(SinkError::Unavailable(_))), "{away:?}");
    assert_eq!(sink.apply(&batch(3, 4, 1)).await, Err(SinkError::Moved));
    assert_eq!(sink.resume(LEDGER).await, at(0));
    assert_eq!(sink.apply(&batch(0, 4, 6)).await, Ok(()));
    assert_eq!(counter(&scratch.pool()).await, Some(6));
    scratch.close().await;
}

#[tokio::test]
async fn what_is_dropped_or_changed_while_nothing_comes_is_noticed() {
    let scratch = Scratch::open("idle").await;
    let pool = scratch.pool();
    let mut sink = PgSink::new(scratch.pool(), Counters).on_drift(OnDrift::Refuse);
    assert_eq!(sink.resume(LEDGER).await, at(0));
    assert_eq!(sink.apply(&batch(0, 3, 5)).await, Ok(()));
    assert_eq!(sink.resume(LEDGER).await, at(3));
    pool.execute("DROP TABLE counters").await.unwrap();
    assert_eq!(sink.resume(LEDGER).await, at(0));
    assert_eq!(sink.apply(&batch(0, 3, 5)).await, Ok(()));
    assert_eq!(counter(&pool).await, Some(5));
    let change = "ALTER TABLE counters ALTER COLUMN value TYPE numeric";
    pool.execute(change).await.unwrap();
    let drifted = sink.resume(LEDGER).await;
    let Err(SinkError::Refused(why)) = drifted else {
        panic!("{drifted:?}");
    };
    assert!(why.contains("counters.value: type"), "{why}");
    scratch.close().await;
}

#[tokio::test]
async fn drift_may_be_refused() {
    let scratch = Scratch::open("drifted").await;
    ready(&scratch).await;
    let change = "ALTER TABLE counters ADD more text";
    scratch.pool().execute(change).await.unwrap();
    ready(&scratch).await;
    let mut sink = PgSink::new(scratch.pool(), Counters).on_drift(OnDrift::Refuse);
    let refused = "the tables have drifted:\n  counters.more: column extra";
    let refused = Err(SinkError::Refused(refused.to_owned()));
    assert_eq!(sink.resume(LEDGER).await, refused);
    scratch.close().await;
}

#[tokio::test]
async fn a_refused_row_takes_its_batch_back() {
    let scratch = Scratch::open("refused").await;
    let mut sink = ready(&scratch).await;
    let mut bad = batch(0, 1, 5);
    bad.changes.extend(batch(0, 1, -9).changes);
    for _ in 0..2 {
        match sink.apply(&bad).await {
            Err(SinkError::Unavailable(why)) => {
                assert!(why.contains("counters_value_check"), "{why}")
            }
            other => panic!("{other:?}"),
        }
        // Another build may have put the check, so the tables are looked at before it is tried again.
        assert_eq!(sink.apply(&bad).await, Err(SinkError::Moved));
        assert_eq!(sink.resume(LEDGER).await, at(0));
    }
    let mut never = batch(0, 1, 5);
    never.changes[0].at = Millis(i64::MAX);
    match sink.apply(&never).await {
        Err(SinkError::Unavailable(why)) => {
            assert_eq!(why, "time out of range: 9223372036854775807")
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(sink.resume(LEDGER).await, at(0));
    assert_eq!(counter(&scratch.pool()).await, None);
    assert_eq!(sink.apply(&batch(0, 1, 5)).await, Ok(()));
    scratch.close().await;
}

#[tokio::test]
async fn a_refusal_names_its_constraint() {
    let scratch = Scratch::open("names").await;
    ready(&scratch).await;
    let mut tx = scratch.pool().begin().await.unwrap();
    let error = Counters
        .write(&mut tx, &batch(0, 1, -1).changes)
        .await
        .unwrap_err();
    assert!(!error.passes());
    assert_eq!(error.sqlstate(), Some("23514"));
    assert_eq!(error.table(), Some("counters"));
    assert_eq!(error.constraint(), Some("counters_value_check"));
    drop(tx);
    scratch.close().await;
}

#[tokio::test]
async fn without_a_server_everything_is_to_be_tried_again() {
    let scratch = Scratch::open("away").await;
    let nobody_there = scratch.options().port(1);
    let pool = sqlx::postgres::PgPoolOptions::new()
        .acquire_timeout(Duration::from_millis(300))
        .connect_lazy_with(nobody_there);
    let mut sink = PgSink::new(pool, Counters);
    for _ in 0..2 {
        let away = sink.resume(LEDGER).await;
        assert!(matches!(away, Err(SinkError::Unavailable(_))), "{away:?}");
    }
    scratch.close().await;
}

#[tokio::test]
async fn a_killed_session_is_to_be_tried_again() {
    let scratch = Scratch::open("killed").await;
    let mut sink = ready(&scratch).await;
    let pool = scratch.another_pool();
    // Holds the position, so that the sink waits in its transaction; then the sink's session is ended.
    let mut tx = pool.begin().await.unwrap();
    tx.execute("SELECT FROM projection_position FOR UPDATE")
        .await
        .unwrap();
    let holder: i32 = sqlx::query_scalar("SELECT pg_backend_pid()")
        .fetch_one(&mut *tx)
        .await
        .unwrap();
    let killer = async {
        let mut killed = 0;
        while killed == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            killed = sqlx::query(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))",
            )
            .bind(holder)
            .execute(&pool)
            .await
            .unwrap()
            .rows_affected();
        }
    };
    let first = batch(0, 1, 5);
    let (outcome, ()) = tokio::join!(sink.apply(&first), killer);
    assert!(
        matches!(outcome, Err(SinkError::Unavailable(_))),
        "{outcome:?}"
    );
    tx.rollback().await.unwrap();
    assert_eq!(sink.apply(&batch(0, 1, 5)).await, Ok(()));
    assert_eq!(counter(&scratch.pool()).await, Some(5));
    scratch.close().await;
}

#[tokio::test]
async fn moments_are_exact_to_the_millisecond() {
    let scratch = Scratch::open("moments").await;
    let mut connection = PgConnection::connect_with(&scratch.options())
        .await
        .unwrap();
    for (ms, text) in [
        (0, "1970-01-01 00:00:00+00"),
        (-1, "1969-12-31 23:59:59.999+00"),
        (1_700_000_000_123, "2023-11-14 22:13:20.123+00"),
        (946_684_799_999, "1999-12-31 23:59:59.999+00"),
        (253_402_300_799_999, "9999-12-31 23:59:59.999+00"),
        (-62_135_596_800_000, "0001-01-01 00:00:00+00"),
    ] {
        let moment = Moment::try_from(Millis(ms)).unwrap();
        connection.execute("SET TIME ZONE 'UTC'").await.unwrap();
        let (written, read): (String, Moment) =
            sqlx::query_as("SELECT $1::text, ($2::timestamptz[])[1]")
                .bind(moment)
                .bind(vec![moment])
                .fetch_one(&mut connection)
                .await
                .unwrap();
        assert_eq!((written.as_str(), read), (text, moment));
    }
    let largest: i64 = sqlx::query_scalar("SELECT $1::bigint")
        .bind(bigint("x", i64::MAX as u64).unwrap())
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(largest, i64::MAX);
    connection.close().await.unwrap();
    scratch.close().await;
}
