//! What operators have set, and what the new tables refuse.

use super::*;
use scheduler::project::{
    Count, CountKey, CountRow, Counted, ReservationRow, ReservationState, SettingRow,
};
use store::{Held, QueueState, Waits};
use vocab::{
    AdvanceReservation, Operator, PlacementPolicy, QueueOrder, QueueSettings, Requirement,
    ResourceKind, SchedulingPolicy,
};

const NOW: Millis = Millis(1_700_000_000_000);

async fn set(pool: &PgPool, rows: Vec<SettingRow>) {
    let mut sink = store::sink(pool.clone(), CELL);
    let after = sink.resume(LEDGER).await.unwrap().through;
    let rows = rows.into_iter().map(|row| Change::Setting(Box::new(row)));
    let batch = Batch {
        ledger: LEDGER,
        after,
        to: Lsn(after.0 + 1),
        digest: None,
        changes: rows.collect(),
    };
    sink.apply(&batch).await.unwrap();
}

fn queue_of(name: &str, version: u64, settings: QueueSettings) -> SettingRow {
    SettingRow::Queue {
        queue: token(name),
        settings,
        version,
        at: NOW,
    }
}

fn ordered_by(order: QueueOrder) -> QueueSettings {
    QueueSettings {
        order,
        ..QueueSettings::default()
    }
}

#[tokio::test]
async fn queues_are_listed_with_what_they_hold() {
    let scratch = ready("queues").await;
    let pool = scratch.pool();
    let settings = QueueSettings {
        parent: Some(token("root")),
        weight_milli: 250,
        limits: vec![(ResourceKind::Cpu, 0), (ResourceKind::Gpu, 16_000)],
        tenants: vec![token("t"), token("u")],
        order: QueueOrder::Sjf,
        placement: Some(PlacementPolicy::Spread),
    };
    let before = queue_of("research", 1, QueueSettings::default());
    set(
        &pool,
        vec![before, queue_of("research", 2, settings.clone())],
    )
    .await;
    apply(
        &pool,
        vec![
            row(1, 0, held(None, None)),
            row(2, 0, held(None, Some(1_700_000_000_002))),
            // Does not count any more.
            row(3, 0, held(Some(preempted()), None)),
            row(4, 0, queued(None, 1)),
            row(5, 0, ended(Some(place(None)))),
        ],
    )
    .await
    .unwrap();
    let count = |what, allocations, gpu_milli: u128| {
        let key = CountKey::Queue {
            queue: token("t"),
            what,
        };
        let cpu_milli = u128::from(AllocationSpec::CPU_MILLI_MAX);
        let memory_bytes = u128::from(AllocationSpec::MEMORY_BYTES_MAX);
        let amounts = [cpu_milli, memory_bytes, gpu_milli];
        let count = Count {
            allocations,
            amounts: amounts.map(|amount| amount * u128::from(allocations)),
        };
        Change::Count(CountRow { key, count })
    };
    let waiting = |group: Option<u64>| Counted::Waiting {
        pending_group: group.map(PendingGroupNo),
        reason: None,
    };
    let counts = vec![
        count(Counted::Held, 1, 2000),
        count(Counted::Held, 2, 2000),
        count(waiting(None), 1, 2000),
        count(waiting(Some(7)), 1, 2000),
    ];
    apply_changes(&pool, counts).await.unwrap();
    // Nothing is left of it.
    let none = count(waiting(Some(7)), 0, 2000);
    apply_changes(&pool, vec![none]).await.unwrap();
    let research = QueueState {
        queue: "research".into(),
        settings,
        version: Some(2),
        held: Held::default(),
        waiting: Vec::new(),
        oldest: None,
        share: None,
    };
    let own = QueueState {
        queue: "t".into(),
        settings: QueueSettings::default(),
        version: None,
        held: Held {
            allocations: 2,
            cpu_milli: 2 * AllocationSpec::CPU_MILLI_MAX,
            memory_bytes: 2 * AllocationSpec::MEMORY_BYTES_MAX,
            gpu_milli: 4000,
        },
        waiting: vec![Waits {
            reason: None,
            allocations: 1,
        }],
        oldest: Some(NOW),
        share: None,
    };
    let of = async |tenant: Option<&str>| {
        let tenant = tenant.map(token);
        let whole = store::queues(&pool, tenant.as_ref(), "", 1000).await;
        // One after the other there are the same.
        let (mut each, mut after) = (Vec::new(), Some(String::new()));
        while let Some(behind) = after {
            let page = store::queues(&pool, tenant.as_ref(), &behind, 1).await;
            let page = page.unwrap();
            assert_eq!(page.found.len(), 1);
            each.extend(page.found);
            after = page.next;
        }
        let whole = whole.unwrap();
        assert_eq!((&whole.found, whole.next), (&each, None));
        whole.found
    };
    assert_eq!(of(None).await, [research.clone(), own.clone()]);
    // One's own, and those that one may submit to.
    assert_eq!(of(Some("t")).await, [research.clone(), own.clone()]);
    let nothing = |queue: &str| QueueState {
        queue: queue.into(),
        held: Held::default(),
        waiting: Vec::new(),
        oldest: None,
        ..own.clone()
    };
    assert_eq!(of(Some("u")).await, [research, nothing("u")]);
    assert_eq!(of(Some("v")).await, [nothing("v")]);
    scratch.close().await;
}

#[tokio::test]
async fn the_queue_follows_its_order_and_aging() {
    let scratch = ready("order").await;
    let pool = scratch.pool();
    let one = |no: u64, priority, requested_s: i64, run_time_ms, gpus: Option<u16>| {
        let mut row = row(no, priority, queued(None, 1));
        row.requested_at = Millis(NOW.0 + requested_s * 1000);
        let spec = row.spec.common_mut();
        spec.run_time_ms = run_time_ms;
        if let Some(gpu) = &mut spec.gpu {
            gpu.count = gpus.unwrap_or(1);
        }
        row
    };
    let rows = vec![
        one(1, 0, 0, 900_000, Some(1)),
        one(2, 0, 1, 0, Some(1)),
        one(3, 0, 2, 300_000, Some(8)),
        one(4, 1, 100, 800_000, Some(2)),
    ];
    apply(&pool, rows).await.unwrap();
    let numbers =
        async || -> Vec<u64> { queue(&pool).await.into_iter().map(|(_, no)| no).collect() };
    assert_eq!(numbers().await, [4, 1, 2, 3]);
    set(&pool, vec![queue_of("t", 1, ordered_by(QueueOrder::Sjf))]).await;
    assert_eq!(numbers().await, [4, 3, 1, 2]);
    set(
        &pool,
        vec![queue_of("t", 2, ordered_by(QueueOrder::SmallestArea))],
    )
    .await;
    assert_eq!(numbers().await, [4, 1, 3, 2]);
    // A minute of waiting is worth one of priority.
    let policy = SchedulingPolicy {
        aging_ms: 60_000,
        ..SchedulingPolicy::default()
    };
    let policy = SettingRow::Policy {
        policy,
        version: 1,
        at: NOW,
    };
    set(&pool, vec![policy]).await;
    assert_eq!(numbers().await, [1, 2, 3, 4]);
    scratch.close().await;
}

#[tokio::test]
async fn reservations_are_kept() {
    let scratch = ready("settings").await;
    let pool = scratch.pool();
    let reservation = |name: &str, state| ReservationRow {
        reservation: token(name),
        terms: AdvanceReservation {
            queue: token("q"),
            from: NOW,
            until: NOW.plus(1),
            nodes: AdvanceReservation::NODES_MAX,
            selector: vec![Requirement {
                label: token("zone"),
                operator: Operator::In,
                values: vec![token("z1"), token("z2")],
            }],
        },
        state,
        version: 4,
        changed_at: NOW,
    };
    let nodes = vec![token("n1"), token("n2")];
    let states = [
        ReservationState::Asked,
        ReservationState::Granted { nodes },
        ReservationState::Refused,
        ReservationState::Withdrawn,
        ReservationState::Over,
    ];
    let written: Vec<_> = states
        .into_iter()
        .map(|state| reservation(state.name(), state))
        .collect();
    set(
        &pool,
        written
            .iter()
            .cloned()
            .map(SettingRow::Reservation)
            .collect(),
    )
    .await;
    let mut expected = written;
    expected.sort_by(|a, b| a.reservation.cmp(&b.reservation));
    let of = async |tenant: Option<&str>| {
        let tenant = tenant.map(token);
        store::reservations(&pool, tenant.as_ref()).await.unwrap()
    };
    assert_eq!(of(None).await, expected);
    assert_eq!(of(Some("t")).await, []);
    let shared = QueueSettings {
        tenants: vec![token("t")],
        ..QueueSettings::default()
    };
    set(&pool, vec![queue_of("q", 1, shared)]).await;
    assert_eq!(of(Some("t")).await, expected);
    assert_eq!(of(Some("u")).await, []);
    scratch.close().await;
}

#[tokio::test]
async fn impossible_rows_of_the_new_tables_are_refused() {
    let scratch = ready("new_checks").await;
    let pool = scratch.pool();
    apply(&pool, vec![row(1, 0, queued(None, 1))])
        .await
        .unwrap();
    let id = AllocationNo(1).id(CELL);
    let cases = [
        (
            "explanations",
            "1, 0, now(), 'pending_group_explained', NULL, NULL, 'q', 'no_room_now', ''",
            "pending_group_of_what_waits",
        ),
        (
            "explanations",
            "1, 0, now(), 'pending_group_explained', NULL, 1, NULL, 'no_room_now', ''",
            "of_an_allocation_or_of_a_pending_group",
        ),
        (
            "explanations",
            "1, 0, now(), 'allocation_waiting', NULL, 1, NULL, 'no_room_now', ''",
            "of_an_allocation_or_of_a_pending_group",
        ),
        (
            "explanations",
            "1, 0, now(), 'allocation_placed', 'ID', 1, NULL, NULL, ''",
            "pending_group_of_what_waits",
        ),
        (
            "explanations",
            "1, 0, now(), 'allocation_placed', 'ID', NULL, NULL, 'failed', ''",
            "reason_fits_kind",
        ),
        (
            "explanations",
            "1, 0, now(), 'allocation_ended', 'ID', NULL, NULL, NULL, ''",
            "reason_fits_kind",
        ),
        (
            "explanations",
            "1, 0, now(), 'allocation_ended', 'ID', NULL, NULL, 'priority', ''",
            "reason_fits_kind",
        ),
        (
            "explanations",
            "1, 0, now(), 'allocation_waiting', 'ID', NULL, NULL, 'bored', ''",
            "reason_fits_kind",
        ),
        (
            "explanations",
            "1, 0, now(), 'bored', 'ID', NULL, NULL, NULL, ''",
            "explanations_kind_check",
        ),
        (
            "preemption_events",
            "1, 0, 'ID', 't', 'q', 'n', 'bored', 5, NULL, NULL, now(), now(), 'stopping'",
            "preemption_events_cause_check",
        ),
        (
            "preemption_events",
            "1, 0, 'ID', 't', 'q', 'n', 'gang', 5, NULL, 9, now(), now(), 'stopped'",
            "over_is_all_or_none",
        ),
        (
            "preemption_events",
            "1, 0, 'ID', 't', 'q', 'n', 'gang', 5, NULL, 9, now(), now(), 'stopping', now()",
            "over_is_all_or_none",
        ),
        (
            "preemption_events",
            "1, 0, 'ID', 't', 'q', 'n', 'gang', 5, NULL, 9, now(), to_timestamp(0), 'stopping'",
            "preemption_events_check",
        ),
        (
            "queues",
            "'q', 'q', 1, NULL, NULL, NULL, '{}', 'fcfs', NULL, 1, now()",
            "queues_check",
        ),
        (
            "queues",
            "'q', NULL, 1, NULL, NULL, NULL, '{}', 'lifo', NULL, 1, now()",
            "queues_queue_order_check",
        ),
        (
            "reservations",
            "'r', 'q', now(), now(), 1, '[]', 'asked', '{}', 1, now()",
            "reservations_check",
        ),
        (
            "reservations",
            "'r', 'q', now(), 'infinity', 1, '[]', 'granted', '{}', 1, now()",
            "granted_with_nodes",
        ),
        (
            "reservations",
            "'r', 'q', now(), 'infinity', 1, '[]', 'over', '{n}', 1, now()",
            "granted_with_nodes",
        ),
    ];
    for (table, values, constraint) in cases {
        let insert = format!(
            "INSERT INTO {table} VALUES ({})",
            values.replace("ID", &id.to_string())
        );
        let error = WarmError::from(pool.execute(&*insert).await.unwrap_err());
        assert_eq!(error.constraint(), Some(constraint), "{values}");
    }
    let updates = [
        ("state = 'paused'", "paused_until_a_moment"),
        ("not_before = now()", "paused_until_a_moment"),
        (
            "state = 'nominated', pending_group = 1",
            "in_a_group_only_when_queued",
        ),
        (
            "waiting_reason = 'bored'",
            "scheduling_queue_waiting_reason_check",
        ),
    ];
    for (update, constraint) in updates {
        let update = format!("UPDATE scheduling_queue SET {update}");
        let error = WarmError::from(pool.execute(&*update).await.unwrap_err());
        assert_eq!(error.constraint(), Some(constraint), "{update}");
    }
    scratch.close().await;
}
