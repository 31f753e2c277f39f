//! Tables of an earlier version, with rows, become today's.

use super::*;
use chassis::warm::WarmState;
use sqlx::migrate::Migrator;
use store::SchedulerTables;

#[tokio::test]
async fn rows_from_before_there_were_queues_are_kept() {
    let scratch = Scratch::open("upgrade").await;
    let pool = scratch.pool();
    let old = Migrator {
        migrations: SchedulerTables::migrator().migrations[..2].to_vec().into(),
        ..Migrator::DEFAULT
    };
    old.run(&pool).await.unwrap();
    let (one, two) = (AllocationNo(1).id(CELL), AllocationNo(2).id(CELL));
    let rows = format!(
        "INSERT INTO projection_position VALUES ('scheduler', {LEDGER}, 7);
         INSERT INTO allocations VALUES
             ('{one}', 't', 'j', NULL, 5, 1000, 1, 2, 500, '{{}}', 'queued', 'no_room_now', NULL, '{{}}', '{{}}', NULL,
              to_timestamp(9), NULL, NULL, NULL, 3),
             ('{two}', 't', 'j', NULL, 5, 1000, 1, 0, 0, '{{}}', 'ended', NULL, NULL, '{{}}', '{{}}', 'cancelled',
              to_timestamp(9), NULL, NULL, to_timestamp(10), 4);
         INSERT INTO scheduling_queue VALUES ('{one}', 't', 5, 1, 'no_room_now', to_timestamp(9))",
        LEDGER = LEDGER.0,
    );
    pool.execute(&*rows).await.unwrap();

    let mut sink = store::sink(pool.clone(), CELL);
    assert_eq!(sink.resume(LEDGER).await.unwrap().through, Lsn(7));
    let waits = read(&pool, 1).await;
    assert_eq!(waits.queue, "t");
    assert_eq!((waits.attempts, waits.run_time_ms), (0, 0));
    assert_eq!(waits.waiting_reason, Some(WaitingReason::NoRoomNow));
    assert_eq!(read(&pool, 2).await.end_cause, Some(EndCause::Cancelled));
    assert_eq!(queue(&pool).await, [(1, 1)]);
    let size: i64 = sqlx::query_scalar("SELECT size FROM scheduling_queue")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(size, 1000);
    apply(
        &pool,
        vec![row(1, 0, held(None, None)), row(3, 0, nominated())],
    )
    .await
    .unwrap();
    assert_eq!(queue(&pool).await, [(1, 3)]);
    scratch.close().await;
}

#[tokio::test]
async fn rows_from_before_quota_was_waited_for_are_kept() {
    let scratch = Scratch::open("upgrade_quota").await;
    let pool = scratch.pool();
    let old = Migrator {
        migrations: SchedulerTables::migrator().migrations[..3].to_vec().into(),
        ..Migrator::DEFAULT
    };
    old.run(&pool).await.unwrap();
    let one = AllocationNo(1).id(CELL);
    let rows = format!(
        "INSERT INTO projection_position VALUES ('scheduler', {LEDGER}, 7);
         INSERT INTO allocations (allocation_id, tenant, job_set, priority, cpu_milli, memory_bytes, gpu_count,
                                  gpu_milli, gpu_models, state, waiting_reason, gpu_devices, gpu_shares,
                                  requested_at, lsn, queue, line)
         VALUES ('{one}', 't', 'j', 5, 1000, 1, 0, 0, '{{}}', 'queued', 'gang_over_limit', '{{}}', '{{}}',
                 to_timestamp(9), 3, 't', 4);
         INSERT INTO scheduling_queue (allocation_id, tenant, priority, arrival, waiting_reason, since, queue, line,
                                       requested_at)
         VALUES ('{one}', 't', 5, 1, 'gang_over_limit', to_timestamp(9), 't', 4, to_timestamp(9));
         INSERT INTO explanations (lsn, event_index, at, kind, allocation_id, line, queue, reason, detail)
         VALUES (2, 0, to_timestamp(9), 'line', NULL, 4, 't', 'gang_over_limit',
                 '{{\"kind\": \"line\", \"head\": \"{one}\", \"counts\": {{}}, \"shortfall\": {{}},
                   \"share_ppm\": 1, \"fair_share_ppm\": 2}}'),
                (3, 0, to_timestamp(9), 'waiting', '{one}', 4, NULL, 'gang_over_limit', '{{\"kind\": \"waiting\"}}')",
        LEDGER = LEDGER.0,
    );
    pool.execute(&*rows).await.unwrap();

    let mut sink = store::sink(pool.clone(), CELL);
    assert_eq!(sink.resume(LEDGER).await.unwrap().through, Lsn(7));
    let waits = read(&pool, 1).await;
    assert_eq!(waits.waiting_reason, Some(WaitingReason::OverLimit));
    assert_eq!((waits.qos, waits.cpu_milli_most), (QosClass::Guaranteed, 0));
    assert_eq!((waits.team, waits.quota), (None, None));
    let found = store::explain(&pool, &token("t"), one, None).await.unwrap();
    let reasons: Vec<_> = found
        .iter()
        .flat_map(|found| found.history.iter().chain(&found.line))
        .map(|entry| entry.fact.reason())
        .collect();
    assert_eq!(reasons, [Some("over_limit"), Some("over_limit")]);
    let queued = store::queue(&pool, &token("t"), 9).await.unwrap();
    assert_eq!(queued[0].waiting_reason, Some(WaitingReason::OverLimit));
    // What is taken back waits for quota again.
    let refusal = Some(refusal());
    apply(
        &pool,
        vec![row(1, 0, AllocationState::Requested { refusal })],
    )
    .await
    .unwrap();
    assert_eq!(queue(&pool).await, []);
    assert_eq!(read(&pool, 1).await.quota, Some(super::refusal()));
    scratch.close().await;
}
