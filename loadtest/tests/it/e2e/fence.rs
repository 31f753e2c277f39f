//! Two schedulers at once: the fence lets one of them decide.

use crate::e2e::{
    agent::MODEL,
    suite::{GIB, Outcome, Suite, eventually, id, small},
};
use chassis::Clock;
use client::{Client, Operation, Submit};
use futures::future::join_all;
use replay::{
    fleet::{Fleet, FleetOptions},
    workload::Node,
};
use scheduler::SchedulerService;
use schemas::v1::{outcome::Result as Decided, request::Verb};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use vocab::fact::{AllocationEnded, AllocationPlaced};
use vocab::{AllocationNo, Event, GpuShares, NodeCapacity, Token};

const FIRST: usize = 300;
const SECOND: usize = 60;

/// Eight nodes with four GPUs each, whose runs take a moment.
async fn fleet(suite: &Suite) -> Fleet {
    let node = |no| Node {
        name: crate::e2e::suite::token(&format!("n{no}")),
        capacity: NodeCapacity {
            cpu_milli: 64_000,
            memory_bytes: 256 * GIB as u64,
            gpus: 4,
            gpu_model: Some(crate::e2e::suite::token(MODEL)),
            ..NodeCapacity::default()
        },
    };
    let options = FleetOptions {
        url: suite.servers.nats.url.clone(),
        ca_file: None,
        creds: suite.servers.creds("fleet"),
        cell: suite.subjects.cell().to_owned(),
        nodes: (0..8).map(node).collect(),
        clock: Clock::real(),
        heartbeat: Duration::from_millis(500),
        report_pause: Duration::ZERO,
        asks: false,
        lifetime: Arc::new(|_| Some(30)),
    };
    Fleet::start(options).await.expect("the fleet connects")
}

/// All at once, each until its outcome is definite.
async fn submit(tenant: &Client, count: usize) {
    let one = |no: usize| async move {
        let request = Submit {
            gpu_count: 1,
            gpu_milli: if no.is_multiple_of(2) { 400 } else { 0 },
            ..small("load")
        };
        let operation = Operation::new(id(), Verb::Submit(request));
        let outcome = tenant
            .settle(&operation, 10, Duration::from_millis(50))
            .await;
        let outcome = outcome.expect("a definite outcome");
        assert!(
            matches!(outcome.result, Some(Decided::Submitted(_))),
            "{outcome:?}"
        );
    };
    join_all((0..count).map(one)).await;
}

/// Folds placements and ends by itself: each once, and never more on a device than it has.
fn check_placements(events: &[(vocab::At, Event)]) -> BTreeSet<AllocationNo> {
    let mut taken: BTreeMap<(Token, u16), u64> = BTreeMap::new();
    let mut placed: BTreeMap<AllocationNo, (Token, GpuShares)> = BTreeMap::new();
    let mut ended = BTreeSet::new();
    for (at, event) in events {
        match event {
            Event::AllocationPlaced(AllocationPlaced {
                allocation,
                node,
                gpus,
                ..
            }) => {
                let before = placed.insert(*allocation, (node.clone(), gpus.clone()));
                assert!(before.is_none(), "{allocation:?} is placed again at {at:?}");
                for share in gpus {
                    let sum = taken.entry((node.clone(), share.device)).or_default();
                    *sum += u64::from(share.milli);
                    assert!(
                        *sum <= 1000,
                        "{node} {share:?} is given out twice at {at:?}"
                    );
                }
            }
            Event::AllocationEnded(AllocationEnded { allocation, .. }) => {
                assert!(
                    ended.insert(*allocation),
                    "{allocation:?} ends again at {at:?}"
                );
                let (node, gpus) = &placed[allocation];
                for share in gpus {
                    *taken.entry((node.clone(), share.device)).or_default() -=
                        u64::from(share.milli);
                }
            }
            _ => {}
        }
    }
    ended
}

#[tokio::test]
async fn of_two_schedulers_one_decides_and_the_other_takes_over() -> Outcome {
    let mut suite = Suite::start().await;
    let _fleet = fleet(&suite).await;
    let tenant = suite.tenant("tenant-a").await;
    let second = suite.boot::<SchedulerService>().await;
    second.wait_ready().await;
    let first = suite.take("scheduler");

    submit(&tenant, FIRST).await;
    eventually("a refusal by the fence", || async {
        let refusals = first.metric("fenced_total").await + second.metric("fenced_total").await;
        (refusals > 0).then_some(())
    })
    .await;
    let all_ended = |count: usize| {
        let suite = &suite;
        async move {
            let is_end =
                |_: &_, event: &Event| matches!(event, Event::AllocationEnded(_)).then_some(());
            suite.events_of("all runs over", count, is_end).await;
        }
    };
    all_ended(FIRST).await;

    // The one whose frame was the last is killed, with requests under way.
    let last = (
        first.metric("frame_lsn").await,
        second.metric("frame_lsn").await,
    );
    let (active, standby) = if last.0 > last.1 {
        (first, second)
    } else {
        (second, first)
    };
    let frames = standby.metric("frames_total").await;
    tokio::join!(submit(&tenant, SECOND), active.kill());
    all_ended(FIRST + SECOND).await;
    assert!(standby.metric("frames_total").await > frames);
    assert_eq!(standby.metric("leading").await, 1);

    let ended = check_placements(&suite.events().await);
    assert_eq!(ended.len(), FIRST + SECOND);
    suite.assert_verified().await;
    suite.close().await;
    Ok(())
}
