//! The scheduler's tables against a real Postgres.

mod explain;
mod list;
mod named;
mod nodes;
mod settings;
mod states;
mod tallies;
mod views;

use chassis::warm::WarmError;
use ledger::{Batch, LedgerId, Sink, SinkError};
use scheduler::{
    project::{
        AllocationRow, AllocationState, Attempt, Change, Place, Position, Preemption, Standing,
        Stop, Written,
    },
    store,
};
use sqlx::{Executor, PgPool};
use testkit::{Scratch, check_migration};
use vocab::{
    AllocationNo, AllocationSpec, CellNo, EndCause, Gang, GpuRequest, GpuShare, Lsn, Millis,
    PendingGroupNo, PreemptionCause, QuotaFlags, Refusal, Rule, TimeBounds, Token, WaitingReason,
};

const CELL: CellNo = CellNo(3);
const LEDGER: LedgerId = LedgerId(1);
const BOUNDS: TimeBounds = TimeBounds {
    ttl_ms: 1,
    // No less than any run time, so that it is no estimate of one.
    time_limit_ms: AllocationSpec::RUN_TIME_MS_MAX,
};

#[test]
fn the_migration_is_made_of_the_rows() {
    check_migration("scheduler", store::TABLES, store::VIEWS);
}

fn token(text: &str) -> Token {
    Token::new(text).unwrap()
}

fn row(allocation: u64, priority: i32, state: AllocationState) -> AllocationRow {
    let mut spec = AllocationSpec::plain(
        token("j"),
        AllocationSpec::CPU_MILLI_MAX,
        AllocationSpec::MEMORY_BYTES_MAX,
    );
    spec.name = Some(token("n"));
    spec.priority = priority;
    spec.gpu = Some(GpuRequest {
        count: 2,
        milli: 1000,
        models: vec![token("A100"), token("T4")],
    });
    spec.priority_class = Some(token("batch"));
    spec.team = Some(token("team"));
    spec.namespace = Some(token("space"));
    spec.limits.cpu_milli = AllocationSpec::CPU_MILLI_MAX;
    spec.run_time_ms = AllocationSpec::RUN_TIME_MS_MAX;
    spec.bounds = BOUNDS;
    spec.gang = Some(Gang {
        name: token("g"),
        size: 2,
        min: 1,
        uniform_label: None,
    });
    AllocationRow {
        allocation: AllocationNo(allocation),
        tenant: token("t"),
        spec: spec.into(),
        requested_at: Millis(1_700_000_000_000),
        state,
        since: Millis(1_700_000_000_003),
        attempts: 2,
        last_cause: Some(EndCause::Preempted),
        past: vec![attempt(EndCause::Failed), attempt(EndCause::Preempted)],
        quota_flags: QuotaFlags::SOFT.with(QuotaFlags::BORROWED),
        lsn: Lsn(allocation),
    }
}

fn attempt(cause: EndCause) -> Attempt {
    let Place {
        node,
        gpus,
        placed_at,
        ..
    } = place(None);
    Attempt {
        node,
        gpus,
        placed_at,
        started_at: (cause == EndCause::Failed).then_some(Millis(1_700_000_000_002)),
        ended_at: Millis(1_700_000_000_003),
        cause,
        exit: None,
    }
}

fn queued(reason: Option<WaitingReason>, since: i64) -> AllocationState {
    AllocationState::Queued {
        reason,
        pending_group: reason.map(|_| PendingGroupNo(1 << 40)),
        since: Millis(since),
        not_before: None,
    }
}

fn paused(until: i64) -> AllocationState {
    AllocationState::Queued {
        reason: Some(WaitingReason::Backoff),
        pending_group: None,
        since: Millis(1),
        not_before: Some(Millis(until)),
    }
}

fn nominated() -> AllocationState {
    AllocationState::Nominated {
        node: token("node-9"),
        since: Millis(3),
    }
}

fn place(started_at: Option<i64>) -> Place {
    let share = |device| GpuShare {
        device,
        milli: 1000,
    };
    Place {
        node: token("node-1"),
        gpus: vec![share(0), share(7)].into(),
        placed_at: Millis(1_700_000_000_001),
        started_at: started_at.map(Millis),
    }
}

fn held(stop: Option<Stop>, started_at: Option<i64>) -> AllocationState {
    let place = place(started_at);
    AllocationState::Held { place, stop }
}

fn preempted() -> Stop {
    Stop::Preempted {
        preemption: Preemption {
            position: Position {
                lsn: Lsn(1),
                index: 0,
            },
            cause: PreemptionCause::Priority,
            priority: 5,
            by: None,
            by_priority: Some(9),
            at: Millis(1),
            grace_until: Millis(1),
        },
        told: true,
    }
}

fn ended(place: Option<Place>) -> AllocationState {
    AllocationState::Ended {
        place,
        cause: EndCause::NodeLost,
        at: Millis(1_700_000_000_009),
        exit: None,
    }
}

fn refusal() -> Refusal {
    Refusal::over(Rule::QuotaExceeded, "t/team cpu", 1 << 53, 1 << 60)
}

async fn ready(name: &str) -> Scratch {
    let scratch = Scratch::open(name).await;
    let mut sink = store::sink(scratch.pool(), CELL);
    sink.resume(LEDGER).await.unwrap();
    scratch
}

/// None was written before: it is in no table.
fn written(row: AllocationRow, before: Option<&store::Allocation>) -> Change {
    let told = Default::default();
    let before = before.map(|it| match it.state.as_str() {
        "requested" => Standing::Requested,
        "queued" | "nominated" | "awaiting_quota" => Standing::Waiting,
        "placed" => Standing::Placed,
        "running" => Standing::Running,
        "stopping" => Standing::Stopping,
        other => panic!("{other} is over"),
    });
    let operation = before.is_none().then(|| token("op-1"));
    Change::Allocation(Written {
        row,
        before,
        told,
        operation,
    })
}

/// Applies behind whatever was applied before; rows that are not there are new.
async fn apply(pool: &PgPool, rows: Vec<AllocationRow>) -> Result<(), SinkError> {
    let mut changes = Vec::new();
    for row in rows {
        let id = row.allocation.id(CELL);
        let known = store::allocation(pool, &row.tenant, id).await.unwrap();
        changes.push(written(row, known.as_ref()));
    }
    apply_changes(pool, changes).await
}

async fn apply_changes(pool: &PgPool, changes: Vec<Change>) -> Result<(), SinkError> {
    let mut sink = store::sink(pool.clone(), CELL);
    let after = sink.resume(LEDGER).await?.through;
    let batch = Batch {
        ledger: LEDGER,
        after,
        to: Lsn(after.0 + 1),
        digest: None,
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
        AllocationState::Requested { refusal: None },
        AllocationState::Requested {
            refusal: Some(refusal()),
        },
        queued(None, 5),
        queued(Some(WaitingReason::NoRoomNow), 6),
        paused(1_700_000_000_005),
        nominated(),
        held(None, None),
        held(None, Some(1_700_000_000_002)),
        held(Some(Stop::ForGood), None),
        held(Some(preempted()), Some(1_700_000_000_002)),
        ended(None),
        ended(Some(place(None))),
        ended(Some(place(Some(1_700_000_000_002)))),
        AllocationState::Denied {
            refusal: refusal(),
            at: Millis(9),
        },
    ];
    // Each once as a new row, and once as one that was there.
    let ways = states
        .iter()
        .flat_map(|state| [(state, true), (state, false)]);
    for (no, (state, new)) in (1..).zip(ways) {
        let state = state.clone();
        if !new {
            let before = row(no, 9, queued(None, 5));
            apply(&pool, vec![before]).await.unwrap();
        }
        let row = row(no, 0, state.clone());
        apply(&pool, vec![row.clone()]).await.unwrap();
        let found = read(&pool, no).await;
        assert_eq!(found.state, state.name());
        assert_eq!(found.lsn, Lsn(no));
        assert_eq!(found.requested_at, row.requested_at);
        assert_eq!(found.spec, row.spec.whole());
        assert_eq!(found.operation.as_deref(), Some("op-1"));
        assert_eq!(found.past, row.past);
        let place = state.place();
        assert_eq!(
            found.node.as_deref(),
            place.map(|place| place.node.as_str())
        );
        let gpus = place.map_or(&[][..], |place| &place.gpus[..]);
        assert_eq!(found.gpus[..], *gpus);
        assert_eq!(found.placed_at, place.map(|place| place.placed_at));
        assert_eq!(found.started_at, place.and_then(|place| place.started_at));
        assert_eq!(found.preempted, state.preemption().is_some());
        assert_eq!(
            (found.attempts, found.last_end_cause),
            (2, Some(EndCause::Preempted))
        );
        assert_eq!(found.queue, "t");
        assert_eq!(found.quota.as_ref(), state.refusal());
        assert_eq!(found.quota_flags, row.quota_flags);
        let waits = match &state {
            AllocationState::Queued { pending_group, .. } => (*pending_group, None),
            AllocationState::Nominated { node, .. } => (None, Some(node.as_str())),
            _ => (None, None),
        };
        assert_eq!(
            (found.pending_group, found.nominated_node.as_deref()),
            waits
        );
        let (reason, cause, end) = match state {
            AllocationState::Queued { reason, .. } => (reason, None, None),
            AllocationState::Ended { cause, at, .. } => (None, Some(cause), Some(at)),
            AllocationState::Denied { at, .. } => (None, None, Some(at)),
            AllocationState::Requested { .. }
            | AllocationState::Nominated { .. }
            | AllocationState::Held { .. } => (None, None, None),
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
    other.spec.common_mut().queue = Some(token("t"));
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
            row(6, 9, held(None, None)),
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
            row(2, 7, held(None, None)),
            row(4, 7, ended(None)),
            row(3, -7, queued(None, 2)),
        ],
    )
    .await
    .unwrap();
    assert_eq!(queue(&pool).await, [(2, 1), (3, 3)]);
    let first = &store::queue(&pool, &token("t"), 1).await.unwrap()[0];
    assert_eq!((first.waiting_reason, first.since), (reason, Millis(8)));
    assert_eq!(
        (first.queue.as_str(), first.position_in_line),
        ("t", Some(1))
    );
    scratch.close().await;
}

#[tokio::test]
async fn who_is_nominated_comes_first_and_who_pauses_last() {
    let scratch = ready("alloc_standing").await;
    let pool = scratch.pool();
    let mut elsewhere = row(5, 0, queued(None, 1));
    elsewhere.spec.common_mut().queue = Some(token("shared"));
    let reason = Some(WaitingReason::NoRoomNow);
    let rows = vec![
        row(1, 9, paused(1_700_000_000_005)),
        row(2, 0, queued(reason, 1)),
        row(3, -9, nominated()),
        row(4, 5, queued(reason, 1)),
        elsewhere,
    ];
    apply(&pool, rows).await.unwrap();
    let found = store::queue(&pool, &token("t"), 100).await.unwrap();
    let found: Vec<_> = found
        .iter()
        .map(|one| {
            let number = one.id.in_cell(CELL).unwrap().0;
            let standing = one.standing.name();
            (
                one.queue.as_str(),
                number,
                standing,
                one.position,
                one.position_in_line,
            )
        })
        .collect();
    let expected = [
        ("shared", 5, "queued", 1, None),
        ("t", 3, "nominated", 1, None),
        ("t", 4, "queued", 2, Some(1)),
        ("t", 2, "queued", 3, Some(2)),
        ("t", 1, "paused", 4, None),
    ];
    assert_eq!(found, expected);
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
    let rows = (0..5000).map(|i| row(i % 2500 + 1, 0, queued(None, 1)));
    let batch = Batch {
        ledger: LEDGER,
        after: Lsn(0),
        to: Lsn(1),
        digest: None,
        changes: rows.map(|row| written(row, None)).collect(),
    };
    assert_eq!(sink.apply(&batch).await, Ok(()));
    assert_eq!(sink.apply(&batch).await, Err(SinkError::Moved));
    let counts = async || -> (i64, i64) {
        sqlx::query_as(
            "SELECT (SELECT count(*) FROM live_allocations), (SELECT count(*) FROM scheduling_queue)",
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
            row(2, 0, held(None, Some(1_700_000_000_002))),
            row(3, 0, ended(Some(place(None)))),
        ],
    )
    .await
    .unwrap();
    let cases = [
        (1, "state = 'lost'", "live_allocations_state_check"),
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
            "live_allocations_waiting_reason_check",
        ),
        (1, "node = 'n'", "place_is_all_or_none"),
        (1, "state = 'ended'", "live_allocations_state_check"),
        (1, "state = 'denied'", "live_allocations_state_check"),
        (1, "started_at = now()", "started_only_where_placed"),
        (1, "gpu_milli = 1001", "live_allocations_gpu_milli_check"),
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
        (
            3,
            "end_cause = NULL",
            "ended_for_a_cause_or_denied_by_a_rule",
        ),
        (
            3,
            "state = 'denied'",
            "ended_for_a_cause_or_denied_by_a_rule",
        ),
        (
            3,
            "state = 'queued', end_cause = NULL",
            "ended_allocations_state_check",
        ),
        (
            3,
            "end_cause = 'bored'",
            "ended_allocations_end_cause_check",
        ),
        (3, "ended_at = NULL", ""),
        (
            3,
            "ended_at = placed_at - interval '1 ms'",
            "nothing_before_its_placement",
        ),
        (1, "nominated_node = 'n'", "nominated_for_a_node"),
        (1, "state = 'nominated'", "nominated_for_a_node"),
        (
            1,
            "pending_group = 0",
            "live_allocations_pending_group_check",
        ),
        (2, "pending_group = 1", "in_a_group_only_in_the_queue"),
        (2, "preempted = true", "preempted_from_its_node"),
        (2, "attempts = 0", "queued_again_for_a_cause"),
        (2, "last_end_cause = NULL", "queued_again_for_a_cause"),
        (2, "queue = NULL", ""),
    ];
    for (allocation, change, constraint) in cases {
        let id = AllocationNo(allocation).id(CELL);
        let table = if allocation == 3 { "ended" } else { "live" };
        let update =
            format!("UPDATE {table}_allocations SET {change} WHERE allocation_id = '{id}'");
        let error = WarmError::from(pool.execute(&*update).await.unwrap_err());
        assert_eq!(
            error.constraint().unwrap_or_default(),
            constraint,
            "{change}"
        );
    }
    scratch.close().await;
}
