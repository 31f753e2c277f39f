//! The nodes, and what is on them.

use super::*;
use scheduler::project::{
    Condition, Cordon, Count, CountKey, CountRow, NodeChange, NodeRow, NodeStanding, Registered,
    What,
};
use store::{Listed, Used, WantedNodes};
use vocab::{NodeCapacity, Operator, Requirement, Taint, TaintEffect};

const NOW: Millis = Millis(1_700_000_000_000);

fn registered(name: &str, zone: &str, standing: NodeStanding) -> NodeRow {
    NodeRow {
        node: token(name),
        registered: Some(Registered {
            incarnation: u64::MAX,
            standing,
            since: NOW,
            last_seen: NOW.plus(-1),
            at: NOW.plus(-2),
            capacity: NodeCapacity {
                cpu_milli: 64_000,
                memory_bytes: 1 << 38,
                gpus: 8,
                gpu_model: Some(token("A100")),
                labels: vec![(token("zone"), token(zone))],
                max_runs: 7,
                ..NodeCapacity::default()
            },
        }),
        cordon: Cordon {
            cordoned: true,
            drain: true,
            at_once: 3,
            version: 2,
        },
        taints: vec![Taint {
            key: token("maintenance"),
            value: Some(token("v")),
            effect: TaintEffect::NoExecute,
        }],
        taints_version: 5,
        conditions: vec![Condition {
            condition: token("DiskPressure"),
            reason: Some(token("full")),
            since: NOW,
        }],
        history: [What::Registered, What::Drained]
            .map(|what| NodeChange {
                lsn: Lsn(7),
                at: NOW,
                what,
            })
            .into(),
    }
}

fn absent(name: &str) -> NodeRow {
    NodeRow {
        registered: None,
        ..registered(name, "z", NodeStanding::Lost)
    }
}

async fn write(pool: &PgPool, rows: &[&NodeRow]) {
    let rows = rows
        .iter()
        .map(|row| Change::Node(Box::new((*row).clone())));
    apply_changes(pool, rows.collect()).await.unwrap();
}

#[tokio::test]
async fn a_node_is_read_as_it_was_written() {
    let scratch = ready("nodes").await;
    let pool = scratch.pool();
    let known = registered("node-1", "z1", NodeStanding::Ready);
    let said_of = absent("node-2");
    write(&pool, &[&absent("node-1"), &said_of]).await;
    write(&pool, &[&known]).await;
    let read = async |name: &str| store::node(&pool, &token(name)).await.unwrap();
    assert_eq!(read("node-1").await, Some((known, Used::default())));
    assert_eq!(read("node-2").await, Some((said_of, Used::default())));
    assert_eq!(read("node").await, None);

    apply(
        &pool,
        vec![
            row(1, 0, held(None, None)),
            row(2, 5, held(Some(preempted()), Some(1_700_000_000_002))),
            row(3, 0, queued(None, 1)),
            row(4, 0, ended(Some(place(None)))),
        ],
    )
    .await
    .unwrap();
    let counted = |stopping, allocations| {
        let node = token("node-1");
        let amounts = [
            AllocationSpec::CPU_MILLI_MAX,
            AllocationSpec::MEMORY_BYTES_MAX,
            2000,
        ];
        Change::Count(CountRow {
            key: CountKey::Node { node, stopping },
            count: Count {
                allocations,
                amounts: amounts.map(u128::from),
            },
        })
    };
    apply_changes(&pool, vec![counted(false, 1), counted(true, 1)])
        .await
        .unwrap();
    let (_, used) = read("node-1").await.unwrap();
    let expected = Used {
        allocations: 2,
        stopping: 1,
        amounts: [
            2 * AllocationSpec::CPU_MILLI_MAX,
            2 * AllocationSpec::MEMORY_BYTES_MAX,
            4000,
        ],
    };
    assert_eq!(used, expected);
    // Nothing is left of it.
    apply_changes(&pool, vec![counted(true, 0)]).await.unwrap();
    let (_, used) = read("node-1").await.unwrap();
    assert_eq!((used.allocations, used.stopping), (1, 0));
    let runs = store::on_node(&pool, &token("node-1"), 10).await.unwrap();
    let states: Vec<_> = runs
        .iter()
        .map(|run| (run.id, run.state.as_str()))
        .collect();
    let id = |no| AllocationNo(no).id(CELL);
    assert_eq!(states, [(id(1), "placed"), (id(2), "stopping")]);
    assert_eq!(runs[1].priority, 5);
    assert_eq!(runs[1].gpus[..], place(None).gpus[..]);
    assert_eq!(runs[1].started, Some(Millis(1_700_000_000_002)));
    let runs = store::on_node(&pool, &token("node-1"), 1).await.unwrap();
    assert_eq!(runs.len(), 1);
    assert_eq!(
        store::capacity(&pool).await.unwrap(),
        [64_000, 1 << 38, 8000]
    );

    apply_changes(&pool, vec![Change::NodeGone(token("node-2"))])
        .await
        .unwrap();
    assert_eq!(read("node-2").await, None);
    scratch.close().await;
}

#[tokio::test]
async fn nodes_are_listed_by_what_is_asked_for() {
    let scratch = ready("nodes_listed").await;
    let pool = scratch.pool();
    let rows = [
        registered("a-1", "z1", NodeStanding::Ready),
        registered("a-2", "z2", NodeStanding::Ready),
        registered("b-1", "z1", NodeStanding::Lost),
        absent("c-1"),
    ];
    write(&pool, &rows.each_ref()).await;
    let check = async |wanted: WantedNodes, after: &str, expected: &str| {
        let wanted = WantedNodes {
            limit: if wanted.limit == 0 { 10 } else { wanted.limit },
            ..wanted
        };
        let Listed { found, next } = store::nodes(&pool, &wanted, after).await.unwrap();
        let names = found.iter().map(|(row, _)| row.node.as_str());
        let mut text = names.collect::<Vec<_>>().join(" ");
        if let Some(next) = next {
            text += &format!(", after {next}");
        }
        assert_eq!(text, expected, "{wanted:?} {after}");
    };
    let all = WantedNodes::default;
    check(all(), "", "a-1 a-2 b-1 c-1").await;
    check(all(), "a-2", "b-1 c-1").await;
    let two = WantedNodes { limit: 2, ..all() };
    check(two.clone(), "", "a-1 a-2, after a-2").await;
    check(two, "a-2", "b-1 c-1").await;
    let name_prefix = "a-".to_owned();
    check(
        WantedNodes {
            name_prefix,
            ..all()
        },
        "",
        "a-1 a-2",
    )
    .await;
    let model = |name| WantedNodes {
        gpu_model: Some(token(name)),
        ..all()
    };
    check(model("A100"), "", "a-1 a-2 b-1").await;
    check(model("T4"), "", "").await;
    let standing = |standing| WantedNodes {
        standings: vec![standing],
        ..all()
    };
    check(standing(Some(NodeStanding::Ready)), "", "a-1 a-2").await;
    check(standing(None), "", "c-1").await;
    let zone = Requirement {
        label: token("zone"),
        operator: Operator::In,
        values: vec![token("z1")],
    };
    let selector = WantedNodes {
        selector: vec![zone],
        ..all()
    };
    check(selector, "", "a-1 b-1").await;
    scratch.close().await;
}

#[tokio::test]
async fn what_is_on_a_node_is_found_by_the_index() {
    let scratch = ready("nodes_plan").await;
    let pool = scratch.pool();
    let mut db = pool.acquire().await.unwrap();
    for setting in [
        "enable_seqscan = off",
        "plan_cache_mode = force_generic_plan",
    ] {
        db.execute(&*format!("SET {setting}")).await.unwrap();
    }
    db.execute("PREPARE used (text[]) AS SELECT node, count(*) FROM live_allocations WHERE node = ANY ($1) GROUP BY node")
        .await
        .unwrap();
    let plan: Vec<String> = sqlx::query_scalar("EXPLAIN EXECUTE used ('{a,b}')")
        .fetch_all(&mut *db)
        .await
        .unwrap();
    let plan = plan.join("\n");
    assert!(plan.contains("live_allocations_on_node"), "{plan}");
    drop(db);
    scratch.close().await;
}
