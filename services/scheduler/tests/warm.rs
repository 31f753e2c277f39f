//! The scheduler's tables against a real Postgres.

use chassis::warm::{WarmError, scratch::Scratch};
use ledger::{Batch, LedgerId, Sink, SinkError};
use scheduler::{
    project::{AllocationRow, AllocationState, Phase, Place},
    store,
};
use sqlx::{Executor, PgPool};
use vocab::{
    AllocationNo, AllocationSpec, CellNo, EndCause, GpuRequest, GpuShare, Lsn, Millis, Token,
    WaitingReason,
};

const CELL: CellNo = CellNo(3);
const LEDGER: LedgerId = LedgerId(1);

fn token(text: &str) -> Token {
    Token::new(text).unwrap()
}

fn row(allocation: u64, priority: i32, state: AllocationState) -> AllocationRow {
    AllocationRow {
        allocation: AllocationNo(allocation),
        tenant: token("t"),
        spec: AllocationSpec {
            job_set: token("j"),
            name: Some(token("n")),
            priority,
            cpu_milli: AllocationSpec::CPU_MILLI_MAX,
            memory_bytes: AllocationSpec::MEMORY_BYTES_MAX,
            gpu: Some(GpuRequest {
                count: 2,
                milli: 1000,
                models: vec![token("A100"), token("T4")],
            }),
        },
        requested_at: Millis(1_700_000_000_000),
        state,
        lsn: Lsn(allocation),
    }
}

fn queued(reason: Option<WaitingReason>, since: i64) -> AllocationState {
    let since = Millis(since);
    AllocationState::Queued { reason, since }
}

fn place(started_at: Option<i64>) -> Place {
    let share = |device| GpuShare {
        device,
        milli: 1000,
    };
    Place {
        node: token("node-1"),
        gpus: vec![share(0), share(7)],
        placed_at: Millis(1_700_000_000_001),
        started_at: started_at.map(Millis),
    }
}

fn held(phase: Phase, started_at: Option<i64>) -> AllocationState {
    let place = place(started_at);
    AllocationState::Held { place, phase }
}

fn ended(place: Option<Place>) -> AllocationState {
    AllocationState::Ended {
        place,
        cause: EndCause::NodeLost,
        at: Millis(1_700_000_000_009),
    }
}

async fn ready(name: &str) -> Scratch {
    let scratch = Scratch::open(name).await;
    let mut sink = store::sink(scratch.pool(), CELL);
    sink.resume(LEDGER).await.unwrap();
    scratch
}

/// Applies behind whatever was applied before.
async fn apply(pool: &PgPool, changes: Vec<AllocationRow>) -> Result<(), SinkError> {
    let mut sink = store::sink(pool.clone(), CELL);
    let after = sink.resume(LEDGER).await?.through;
    let batch = Batch {
        ledger: LEDGER,
        after,
        to: Lsn(after.0 + 1),
        changes,
    };
    sink.apply(&batch).await
}

async fn read(pool: &PgPool, allocation: u64) -> store::Allocation {
    let id = AllocationNo(allocation).id(CELL);
    let found = store::allocation(pool, &token("t"), id).await.unwrap();
    found.expect("written before")
}

/// Position and number of what waits.
async fn queue(pool: &PgPool) -> Vec<(i64, u64)> {
    let rows = store::queue(pool, &token("t"), 100).await.unwrap();
    let number = |row: &store::Queued| row.id.in_cell(CELL).unwrap().0;
    rows.iter().map(|row| (row.position, number(row))).collect()
}

#[tokio::test]
async fn every_state_is_read_as_it_was_written() {
    let scratch = ready("alloc_states").await;
    let pool = scratch.pool();
    let states = [
        AllocationState::Requested,
        queued(None, 5),
        queued(Some(WaitingReason::NoRoomNow), 6),
        held(Phase::Going, None),
        held(Phase::Going, Some(1_700_000_000_002)),
        held(Phase::Stopping, None),
        held(Phase::Stopping, Some(1_700_000_000_002)),
        ended(None),
        ended(Some(place(None))),
        ended(Some(place(Some(1_700_000_000_002)))),
        AllocationState::Denied { at: Millis(9) },
    ];
    for (i, state) in states.into_iter().enumerate() {
        let no = i as u64 + 1;
        let written = row(no, 0, state.clone());
        apply(&pool, vec![written.clone()]).await.unwrap();
        let found = read(&pool, no).await;
        assert_eq!(found.state, state.name());
        assert_eq!(found.lsn, Lsn(no));
        assert_eq!(found.requested_at, written.requested_at);
        assert_eq!(found.cpu_milli, AllocationSpec::CPU_MILLI_MAX);
        assert_eq!(found.memory_bytes, AllocationSpec::MEMORY_BYTES_MAX);
        assert_eq!(found.gpu_models, ["A100", "T4"]);
        assert_eq!((found.gpu_count, found.gpu_milli), (2, 1000));
        let place = state.place();
        assert_eq!(
            found.node.as_deref(),
            place.map(|place| place.node.as_str())
        );
        assert_eq!(found.gpus, place.map_or(&[][..], |place| &place.gpus));
        assert_eq!(found.placed_at, place.map(|place| place.placed_at));
        assert_eq!(found.started_at, place.and_then(|place| place.started_at));
        let (reason, cause, end) = match state {
            AllocationState::Queued { reason, .. } => (reason, None, None),
            AllocationState::Ended { cause, at, .. } => (None, Some(cause), Some(at)),
            AllocationState::Denied { at } => (None, None, Some(at)),
            AllocationState::Requested | AllocationState::Held { .. } => (None, None, None),
        };
        assert_eq!(
            (found.waiting_reason, found.end_cause, found.ended_at),
            (reason, cause, end)
        );
    }
    scratch.close().await;
}

#[tokio::test]
async fn the_queue_has_what_waits_in_the_order_in_which_it_is_tried() {
    let scratch = ready("alloc_queue").await;
    let pool = scratch.pool();
    let mut other = row(5, 9, queued(None, 1));
    other.tenant = token("other");
    apply(
        &pool,
        vec![
            row(1, 0, queued(None, 1)),
            row(2, 7, queued(None, 1)),
            row(3, -7, queued(None, 1)),
            row(4, 7, queued(None, 1)),
            other,
            // Came and went within the batch.
            row(6, 9, queued(None, 1)),
            row(6, 9, held(Phase::Going, None)),
        ],
    )
    .await
    .unwrap();
    assert_eq!(queue(&pool).await, [(2, 2), (3, 4), (4, 1), (5, 3)]);
    let reason = Some(WaitingReason::LargerThanAnyNode);
    apply(
        &pool,
        vec![
            row(1, 0, queued(reason, 8)),
            row(2, 7, held(Phase::Going, None)),
            row(4, 7, ended(None)),
            row(3, -7, queued(None, 2)),
        ],
    )
    .await
    .unwrap();
    assert_eq!(queue(&pool).await, [(2, 1), (3, 3)]);
    let first = &store::queue(&pool, &token("t"), 1).await.unwrap()[0];
    assert_eq!((first.waiting_reason, first.since), (reason, Millis(8)));
    scratch.close().await;
}

#[tokio::test]
async fn another_tenants_allocation_is_not_found() {
    let scratch = ready("alloc_tenant").await;
    let pool = scratch.pool();
    apply(&pool, vec![row(1, 0, queued(None, 1))])
        .await
        .unwrap();
    let id = AllocationNo(1).id(CELL);
    let found = store::allocation(&pool, &token("other"), id).await.unwrap();
    assert_eq!(found, None);
    let queue = store::queue(&pool, &token("other"), 100).await.unwrap();
    assert!(queue.is_empty());
    scratch.close().await;
}

#[tokio::test]
async fn a_large_batch_is_written_once_and_another_ledger_wipes_it() {
    let scratch = ready("alloc_large").await;
    let pool = scratch.pool();
    let mut sink = store::sink(pool.clone(), CELL);
    sink.resume(LEDGER).await.unwrap();
    let changes = (0..5000).map(|i| row(i % 2500 + 1, 0, queued(None, 1)));
    let batch = Batch {
        ledger: LEDGER,
        after: Lsn(0),
        to: Lsn(1),
        changes: changes.collect(),
    };
    assert_eq!(sink.apply(&batch).await, Ok(()));
    assert_eq!(sink.apply(&batch).await, Err(SinkError::Moved));
    let counts = async || -> (i64, i64) {
        sqlx::query_as(
            "SELECT (SELECT count(*) FROM allocations), (SELECT count(*) FROM scheduling_queue)",
        )
        .fetch_one(&pool)
        .await
        .unwrap()
    };
    assert_eq!(counts().await, (2500, 2500));
    sink.resume(LedgerId(2)).await.unwrap();
    assert_eq!(counts().await, (0, 0));
    scratch.close().await;
}

#[tokio::test]
async fn impossible_rows_are_refused() {
    let scratch = ready("alloc_checks").await;
    let pool = scratch.pool();
    apply(
        &pool,
        vec![
            row(1, 0, queued(None, 1)),
            row(2, 0, held(Phase::Going, Some(1_700_000_000_002))),
            row(3, 0, ended(None)),
        ],
    )
    .await
    .unwrap();
    let cases = [
        (1, "state = 'lost'", "allocations_state_check"),
        (1, "state = 'running'", "state_fits_place"),
        (1, "state = 'placed'", "state_fits_place"),
        (
            1,
            "state = 'requested', waiting_reason = 'no_room_now'",
            "waits_only_in_the_queue",
        ),
        (
            1,
            "waiting_reason = 'bored'",
            "allocations_waiting_reason_check",
        ),
        (1, "node = 'n'", "place_is_all_or_none"),
        (1, "end_cause = 'finished'", "cause_when_ended"),
        (1, "ended_at = now()", "time_of_the_end"),
        (1, "started_at = now()", "started_only_where_placed"),
        (1, "gpu_milli = 1001", "allocations_gpu_milli_check"),
        (1, "gpu_count = 0", "gpu_is_all_or_none"),
        (2, "state = 'queued'", "state_fits_place"),
        (
            2,
            "gpu_devices = '{1}', gpu_shares = '{1000}'",
            "placed_with_the_devices_asked_for",
        ),
        (2, "gpu_shares = '{1000}'", "every_device_has_its_share"),
        (
            2,
            "gpu_shares = '{1000,1001}'",
            "every_device_has_its_share",
        ),
        (2, "gpu_shares = '{0,1000}'", "every_device_has_its_share"),
        (
            2,
            "started_at = placed_at - interval '1 ms'",
            "nothing_before_its_placement",
        ),
        (3, "end_cause = NULL", "cause_when_ended"),
        (3, "end_cause = 'bored'", "allocations_end_cause_check"),
        (3, "ended_at = NULL", "time_of_the_end"),
    ];
    for (allocation, change, constraint) in cases {
        let id = AllocationNo(allocation).id(CELL);
        let update = format!("UPDATE allocations SET {change} WHERE allocation_id = '{id}'");
        let error = WarmError::from(pool.execute(&*update).await.unwrap_err());
        assert_eq!(error.constraint(), Some(constraint), "{change}");
    }
    scratch.close().await;
}
