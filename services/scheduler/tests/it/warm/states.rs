//! The view `object_states`: what it says of each thing, and which table is read for it.

use super::*;
use scheduler::project::{HeldRow, ReservationRow, ReservationState, SettingRow};
use vocab::{AdvanceReservation, LeaseNo, QueueSettings};

/// Id, type, state, milliseconds and message, in words.
async fn objects(pool: &PgPool, of: &str) -> Vec<String> {
    let query = format!(
        "SELECT concat_ws(' ', id, type, state, (extract(epoch FROM changed_at) * 1000)::bigint, message)
         FROM object_states WHERE {of} ORDER BY type, id"
    );
    sqlx::query_scalar(&query).fetch_all(pool).await.unwrap()
}

async fn check(pool: &PgPool, of: &str, expected: &[&str]) {
    assert_eq!(objects(pool, of).await, expected, "{of}");
}

fn id(allocation: u64) -> String {
    AllocationNo(allocation).id(CELL).to_string()
}

#[tokio::test]
async fn every_object_says_its_state_since_when_and_why() {
    let scratch = ready("objects").await;
    let pool = scratch.pool();
    let held_by_quota = AllocationState::Requested {
        refusal: Some(refusal()),
    };
    let rows = [
        held_by_quota,
        queued(Some(WaitingReason::NoRoomNow), 6),
        held(None, Some(1_700_000_000_002)),
        held(Some(preempted()), None),
        ended(None),
    ];
    let rows = (1..).zip(rows).map(|(no, state)| row(no, 0, state));
    apply(&pool, rows.collect()).await.unwrap();
    let at = Millis(1_700_000_000_009);
    let queue = SettingRow::Queue {
        queue: token("research"),
        settings: QueueSettings::default(),
        version: 1,
        at,
    };
    let advance = ReservationRow {
        reservation: token("maintenance"),
        terms: AdvanceReservation {
            queue: token("research"),
            from: Millis(1),
            until: Millis(2),
            nodes: 1,
            selector: Vec::new(),
        },
        state: ReservationState::Refused,
        version: 1,
        changed_at: at,
    };
    let named = HeldRow {
        tenant: token("t"),
        lease: LeaseNo(7),
        holder: token("h"),
        fencing_token: 1,
        state: vocab::LeaseState::Confirmed,
        since: at,
        deadline: 9,
        retire_after: None,
        resources: vec![token("r")],
    };
    let changes = vec![
        Change::Setting(Box::new(queue)),
        Change::Setting(Box::new(SettingRow::Reservation(advance))),
        Change::Held(Box::new(named)),
    ];
    apply_changes(&pool, changes).await.unwrap();
    check(
        &pool,
        "type <> 'allocation'",
        &[
            "maintenance advance_reservation refused 1700000000009",
            "7 lease confirmed 1700000000009",
            "research queue active 1700000000009",
        ],
    )
    .await;
    let of = |no, text| format!("{} allocation {text}", id(no));
    let allocations = [
        of(1, "awaiting_quota 1700000000003 quota_exceeded"),
        of(2, "queued 1700000000003 no_room_now"),
        of(3, "running 1700000000003"),
        of(4, "stopping 1700000000003 preempted"),
        of(5, "ended 1700000000003 node_lost"),
    ];
    let expected: Vec<&str> = allocations.iter().map(String::as_str).collect();
    check(&pool, "type = 'allocation'", &expected).await;
    check(
        &pool,
        "type = 'allocation' AND state = 'running'",
        &expected[2..3],
    )
    .await;
    scratch.close().await;
}

/// The plan of a query on the view, in which many allocations have ended, and most of the others wait.
async fn plan(pool: &PgPool, of: &str) -> String {
    let query = format!("EXPLAIN SELECT id FROM object_states WHERE {of}");
    let pending_groups: Vec<String> = sqlx::query_scalar(&query).fetch_all(pool).await.unwrap();
    pending_groups.join("\n")
}

#[tokio::test]
async fn a_query_that_names_a_type_or_a_live_state_reads_one_table() {
    let scratch = ready("object_plans").await;
    let pool = scratch.pool();
    let over = (1..=3000).map(|no| row(no, 0, ended(None)));
    let waiting = (3001..=6000).map(|no| row(no, 0, queued(None, 1)));
    let running = (6001..=6020).map(|no| row(no, 0, held(None, Some(1_700_000_000_002))));
    let changes = over
        .chain(waiting)
        .chain(running)
        .map(|row| written(row, None));
    apply_changes(&pool, changes.collect()).await.unwrap();
    pool.execute("ANALYZE").await.unwrap();
    let tables = [
        "live_allocations",
        "ended_allocations",
        "queues",
        "reservations",
        "leases",
    ];
    let read = |plan: &str| -> Vec<&str> {
        let on = |table: &&str| plan.contains(&format!(" on {table}"));
        tables.into_iter().filter(on).collect()
    };
    for (of, expected) in [
        ("type = 'allocation' AND state = 'running'", &tables[..1]),
        (
            "type = 'allocation' AND state IN ('stopping', 'nominated')",
            &tables[..1],
        ),
        ("type = 'allocation' AND state = 'ended'", &tables[1..2]),
        ("type = 'queue'", &tables[2..3]),
        // By their checks, no other table can have it.
        ("state = 'running'", &tables[..1]),
    ] {
        let plan = plan(&pool, of).await;
        assert_eq!(read(&plan), expected, "{plan}");
    }
    scratch.close().await;
}
