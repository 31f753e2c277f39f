//! Tables of an earlier version, with rows, become today's.

use super::*;
use sqlx::migrate::Migrator;
use vocab::Lsn;

#[tokio::test]
async fn rows_of_one_level_are_kept_until_the_ledger_is_read_again() {
    let scratch = Scratch::open("quota_upgrade").await;
    let pool = scratch.pool();
    let old = Migrator {
        migrations: QuotaTables::migrator().migrations[..2].to_vec().into(),
        ..Migrator::DEFAULT
    };
    old.run(&pool).await.unwrap();
    pool.execute(
        "INSERT INTO projection_position VALUES ('quota', 1, 7);
         INSERT INTO resource_quotas VALUES
             ('t', 'cpu', 4, 2, 3, 2, 5, to_timestamp(8), to_timestamp(9)),
             ('t', 'gpu', NULL, 0, 0, 0, 0, NULL, to_timestamp(9)),
             ('t', 'memory', 9, 1, 9, 0, 0, NULL, to_timestamp(9))",
    )
    .await
    .unwrap();

    QuotaTables::migrator().run(&pool).await.unwrap();
    let rows = store::account(&pool, &account("t")).await.unwrap();
    let cpu = AccountState {
        limits: Some(Limits::hard(4)),
        version: 2,
        reserved: 3,
        used: 2,
        peak: Some(Peak {
            used: 5,
            at: Millis(8000),
        }),
        // When it came to be above was not written down.
        over_since: Some(Millis(9000)),
        changed_at: Millis(9000),
        ..AccountState::default()
    };
    assert_eq!(rows[0].state, cpu);
    let found: Vec<_> = rows
        .iter()
        .map(|row| (row.resource.to_string(), row.state.over_since))
        .collect();
    let over = Some(Millis(9000));
    let expected = [("cpu", over), ("gpu", None), ("memory", None)];
    assert_eq!(found, expected.map(|(name, since)| (name.into(), since)));

    // What earlier versions passed by is on the ledger.
    let mut sink = store::sink(pool.clone());
    assert_eq!(sink.resume(LedgerId(1)).await.unwrap().through, Lsn(0));
    assert_eq!(count(&pool, "resource_quotas").await, 0);
    write(&pool, &[put(key("t/x/n", "gpu:T4"), below(4))])
        .await
        .unwrap();
    assert_eq!(count(&pool, "resource_quotas").await, 1);
    scratch.close().await;
}
