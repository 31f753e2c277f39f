//! Node-heartbeat's tables against a real Postgres.

use chassis::warm::{WarmError, WarmState};
use ledger::{Batch, LedgerId, Sink, SinkError};
use node_heartbeat::{
    project::{ApprovalRow, Change, NodeRow, NodeState},
    store::{self, NodeTables},
};
use sqlx::{Executor, PgPool};
use table::Row;
use testkit::{Scratch, check_migration};
use vocab::{Lsn, Millis, NodeApproval, NodeCapacity, Taint, Token, Topology, Zone};

fn token(text: &str) -> Token {
    Token::new(text).unwrap()
}

/// The fleet, by name.
async fn nodes(pool: &PgPool) -> Vec<NodeRow> {
    let query = table::select(store::Node::TABLE) + " ORDER BY node";
    let nodes: Vec<store::Node> = sqlx::query_as(&query).fetch_all(pool).await.unwrap();
    nodes.into_iter().map(NodeRow::from).collect()
}

fn row(node: &str, incarnation: u64, state: NodeState) -> NodeRow {
    NodeRow {
        node: token(node),
        incarnation,
        boot: u64::MAX - incarnation,
        state,
        capacity: NodeCapacity {
            cpu_milli: 96_000,
            memory_bytes: 1 << 50,
            gpus: 8,
            gpu_model: Some(token("V100M32")),
            // The database keeps the shorter name first.
            labels: vec![
                (token("machine-type"), token("c-2")),
                (token("zone"), token("z1")),
            ],
            taints: vec![
                Taint {
                    key: token("maintenance"),
                    value: None,
                    effect: vocab::TaintEffect::NoSchedule,
                },
                Taint {
                    key: token("dedicated"),
                    value: Some(token("research")),
                    effect: vocab::TaintEffect::NoSchedule,
                },
            ],
            extended: vec![(token("fpga"), 1 << 40)],
            topology: Some(Box::new(Topology {
                zones: vec![Zone {
                    cpu_milli: 96_000,
                    memory_bytes: 1 << 50,
                    gpus: 0xff,
                }],
                distances: vec![10],
                links: vec![(0, 1), (6, 7)],
            })),
            max_runs: 110,
        },
        registered_at: Millis(1_700_000_000_001),
        since: Millis(1_700_000_000_002),
        last_seen: Millis(1_700_000_000_003),
    }
}

async fn ready(name: &str) -> Scratch {
    let scratch = Scratch::open(name).await;
    let mut sink = store::sink(scratch.pool());
    sink.resume(LedgerId(1)).await.unwrap();
    scratch
}

#[test]
fn the_migration_is_made_of_the_rows() {
    check_migration("node-heartbeat", store::TABLES, store::VIEWS);
}

#[tokio::test]
async fn the_fleet_is_read_as_it_was_written() {
    let scratch = ready("nodes_rows").await;
    let pool = scratch.pool();
    let mut sink = store::sink(pool.clone());
    sink.resume(LedgerId(1)).await.unwrap();
    let a = row("a", u64::MAX, NodeState::Lost);
    let mut b = row("b", 0, NodeState::Ready);
    b.capacity = NodeCapacity::default();
    let first = row("a", 7, NodeState::Ready);
    let batch = Batch {
        ledger: LedgerId(1),
        after: Lsn(0),
        to: Lsn(1),
        digest: None,
        changes: [&first, &b, &a]
            .map(|row| Change::Node(Box::new(row.clone())))
            .into(),
    };
    sink.apply(&batch).await.unwrap();
    assert_eq!(sink.apply(&batch).await, Err(SinkError::Moved));
    assert_eq!(nodes(&pool).await, [a, b]);
    sink.resume(LedgerId(2)).await.unwrap();
    assert!(nodes(&pool).await.is_empty());
    scratch.close().await;
}

#[tokio::test]
async fn a_node_is_an_object_that_is_ready_or_lost() {
    let scratch = ready("nodes_objects").await;
    let pool = scratch.pool();
    let mut sink = store::sink(pool.clone());
    sink.resume(LedgerId(1)).await.unwrap();
    let rows = [row("a", 1, NodeState::Lost), row("b", 1, NodeState::Ready)];
    let batch = Batch {
        ledger: LedgerId(1),
        after: Lsn(0),
        to: Lsn(1),
        digest: None,
        changes: rows.map(|row| Change::Node(Box::new(row))).into(),
    };
    sink.apply(&batch).await.unwrap();
    let found: Vec<(String, String, String, String, Option<String>)> = sqlx::query_as(
        "SELECT id, type, state, (extract(epoch FROM changed_at) * 1000)::bigint::text, message
         FROM object_states ORDER BY id",
    )
    .fetch_all(&pool)
    .await
    .unwrap();
    let object = |id: &str, state: &str, message: Option<&str>| {
        let (id, kind, state) = (id.to_owned(), "node".to_owned(), state.to_owned());
        let since = "1700000000002".to_owned();
        (id, kind, state, since, message.map(str::to_owned))
    };
    assert_eq!(
        found,
        [
            object("a", "lost", Some("no_sign_of_life")),
            object("b", "ready", None)
        ]
    );
    scratch.close().await;
}

#[tokio::test]
async fn what_a_column_cannot_hold_is_an_error_and_no_other_number() {
    let scratch = ready("nodes_limits").await;
    let mut tx = scratch.pool().begin().await.unwrap();
    let mut large = row("a", 1, NodeState::Ready);
    large.capacity.cpu_milli = i64::MAX as u64;
    let change = |row: &NodeRow| Change::Node(Box::new(row.clone()));
    NodeTables.write(&mut tx, &[change(&large)]).await.unwrap();
    large.capacity.cpu_milli += 1;
    let error = NodeTables
        .write(&mut tx, &[change(&large)])
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "cpu_milli out of range: 9223372036854775808"
    );
    drop(tx);
    scratch.close().await;
}

#[tokio::test]
async fn impossible_rows_are_refused() {
    let scratch = ready("nodes_checks").await;
    let pool = scratch.pool();
    let cases = [
        ("('a b', 1, 'ready', 1, 1, 0, NULL", "nodes_node_check"),
        (
            "('n', -1, 'ready', 1, 1, 0, NULL",
            "nodes_incarnation_check",
        ),
        ("('n', 1, 'gone', 1, 1, 0, NULL", "nodes_state_check"),
        ("('n', 1, 'ready', -1, 1, 0, NULL", "nodes_cpu_milli_check"),
        (
            "('n', 1, 'ready', 1, -1, 0, NULL",
            "nodes_memory_bytes_check",
        ),
        ("('n', 1, 'ready', 1, 1, -1, NULL", "nodes_gpus_check"),
        ("('n', 1, 'ready', 1, 1, 0, 'T4'", "nodes_check"),
    ];
    let json = [
        ("'[]', '[]', '{}', NULL", "nodes_labels_check"),
        ("'{}', '{}', '{}', NULL", "nodes_taints_check"),
        ("'{}', '[]', '[]', NULL", "nodes_extended_check"),
        ("'{}', '[]', '{}', '1'", "nodes_topology_check"),
    ];
    let json = json.map(|(values, constraint)| {
        let node = "('n', 1, 'ready', 1, 1, 0, NULL, now(), now(), now()";
        (format!("{node}, {values})"), constraint)
    });
    let cases =
        cases.map(|(values, constraint)| (format!("{values}, now(), now(), now())"), constraint));
    // Of what comes behind.
    let boot = "ALTER TABLE nodes ALTER COLUMN boot SET DEFAULT 0";
    pool.execute(boot).await.unwrap();
    for (values, constraint) in cases.into_iter().chain(json) {
        let insert = format!("INSERT INTO nodes VALUES {values}");
        let error = WarmError::from(pool.execute(&*insert).await.unwrap_err());
        assert_eq!(error.constraint(), Some(constraint), "{values}");
    }
    scratch.close().await;
}

#[tokio::test]
async fn approvals_are_read_as_they_were_written_and_go_with_what_is_forgotten() {
    let scratch = ready("nodes_approvals").await;
    let pool = scratch.pool();
    let mut sink = store::sink(pool.clone());
    sink.resume(LedgerId(1)).await.unwrap();
    let node = row("a", 5, NodeState::Ready);
    let approval = |name, joined| ApprovalRow {
        node: token(name),
        version: 3,
        approval: NodeApproval {
            capacity: NodeCapacity {
                taints: Vec::new(),
                topology: None,
                max_runs: 0,
                ..node.capacity.clone()
            },
            token: [9; 32],
            until: Millis(1_800_000_000_000),
        },
        approved_at: Millis(1_700_000_000_000),
        joined,
    };
    let waiting = approval("b", None);
    let joined = approval("a", Some((token("UABC"), Millis(1_700_000_000_001))));
    let mut apply = async |after, changes| {
        let batch = Batch {
            ledger: LedgerId(1),
            after: Lsn(after),
            to: Lsn(after + 1),
            digest: None,
            changes,
        };
        sink.apply(&batch).await.unwrap();
    };
    let of = |row: &ApprovalRow| Change::Approval(Box::new(row.clone()));
    let there = vec![
        of(&approval("a", None)),
        of(&joined),
        of(&waiting),
        Change::Node(Box::new(node.clone())),
    ];
    apply(0, there).await;
    let read = async |prefix: &str, after: &str, limit| {
        let found = store::approvals(&pool, prefix, after, limit).await;
        found.unwrap()
    };
    assert_eq!(read("", "", 9).await, [joined.clone(), waiting.clone()]);
    assert_eq!(read("", "", 1).await, std::slice::from_ref(&joined));
    assert_eq!(read("", "a", 9).await, std::slice::from_ref(&waiting));
    assert_eq!(read("a", "", 9).await, [joined]);
    let gone = vec![Change::Withdrawn(token("a")), Change::Forgotten(token("a"))];
    apply(1, gone).await;
    assert_eq!(read("", "", 9).await, [waiting]);
    assert!(nodes(&pool).await.is_empty());
    scratch.close().await;
}
