//! A state is a function of the ledger: from the beginning, from a snapshot and the tail, and live, it is the same.

use crate::e2e::{
    agent::Agent,
    suite::{Outcome, Setup, Suite, eventually, id, small},
};
use admission_rules::{Admission, Config as AdmissionConfig};
use chassis::Clock;
use client::{Client, Operation, SetQuota, SetTenant};
use ledger::{Bus, Decider, Inbox, InboxLimits, Replica, Snapshot, Stored, Tail, state_digest};
use ledger_nats::{Leader, LeaderOptions, NoObserver, jetstream::JetStreamBus};
use node_heartbeat_rules::{Config as NodeConfig, Joining, Nodes};
use quota_rules::Quota;
use scheduler_rules::Scheduler;
use schemas::v1::{Cancel, RunPhase, request::Verb};
use std::sync::Arc;
use tokio::task::JoinHandle;
use uuid::Uuid;
use vocab::fact::{AllocationPlaced, QuotaReleased};
use vocab::{AllocationNo, Event, Lsn};

/// A leader of the suite's own, as the chassis drives it, that snapshots at every frame.
struct Live(JoinHandle<()>);

impl Drop for Live {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Live {
    async fn lead<D: Decider + Sync>(
        suite: &Suite,
        config: D::Config,
        inbox: Option<(Inbox, ledger_nats::Decode<D::Command>)>,
    ) -> Self {
        let options = LeaderOptions {
            config,
            leader: *Uuid::new_v4().as_bytes(),
            inbox,
            local: None,
            questions: None,
            effects: None,
            snapshot_every: 0,
            backlog: InboxLimits::default(),
            says_after: u64::MAX,
            takeover_after_ms: 3000,
            resign: tokio::sync::watch::Sender::new(false).subscribe(),
        };
        let bus = suite.bus(D::WRITER.name()).await;
        let leader: Leader<D, _, _> =
            Leader::new(bus, Clock::real(), options, Box::new(NoObserver)).await;
        Self(tokio::spawn(async move {
            let error = leader.run().await.expect_err("a leader leads for ever");
            panic!("{}: {error}", D::WRITER.name());
        }))
    }

    async fn all(suite: &Suite) -> [Self; 4] {
        let cell = suite.cell_no();
        let admission = AdmissionConfig {
            cell,
            operation_window_ms: vocab::HOUR_MS,
            operations_max: 1_000,
            allocations_max: 1_000,
            room: admission_rules::Shares::default(),
            slot_ms: 1000,
            window_slots: 172_800,
        };
        let ingress = (
            Inbox::Ingress,
            Arc::new(admission::commands) as ledger_nats::Decode<_>,
        );
        let report = (
            Inbox::Report,
            Arc::new(move |message: &_, commands: &mut _| {
                node_heartbeat::report(message, cell, commands);
            }) as ledger_nats::Decode<_>,
        );
        let nodes = NodeConfig {
            lease_ms: 3_600_000,
            joining: Joining::Open,
        };
        [
            Self::lead::<Admission>(suite, admission, Some(ingress)).await,
            Self::lead::<Quota>(suite, quota_rules::Config::default(), None).await,
            Self::lead::<Scheduler>(suite, scheduler::Config::default(), None).await,
            Self::lead::<Nodes>(suite, nodes, Some(report)).await,
        ]
    }
}

/// One that its leader saved behind a frame later than `after`: while one is being saved, frames pass without. What is read
/// while it is replaced is damaged, and is read again.
async fn saved<D: Decider>(bus: &JetStreamBus, after: Lsn) -> Snapshot {
    let id = bus.ledger_id().await.expect("a ledger");
    eventually("a snapshot", || async {
        let stored = bus.load_snapshot(D::WRITER.name(), 0).await;
        let Some(Stored::Whole(bytes)) = stored.expect("a bucket") else {
            return None;
        };
        let snapshot = Snapshot::from_bytes(&bytes, id).expect("an intact snapshot");
        (snapshot.chain.head(D::WRITER).lsn > after).then_some(snapshot)
    })
    .await
}

/// Folds the ledger up to the writer's own frame at `target`.
async fn fold<D: Decider>(bus: &JetStreamBus, mut replica: Replica<D>, target: Lsn) -> Replica<D> {
    let mut records = bus.follow(replica.next()).await.expect("a ledger");
    while replica.head().lsn < target {
        let record = records.recv().await.expect("a record");
        replica.receive(&record).expect("a legal one");
    }
    replica
}

async fn equal_on_all_ways<D: Decider>(bus: &JetStreamBus, early: &Snapshot) {
    let name = D::WRITER.name();
    let position = |snapshot: &Snapshot| snapshot.chain.head(D::WRITER).lsn;
    let live = saved::<D>(bus, position(early)).await;

    let then = fold(bus, Replica::<D>::default(), position(early)).await;
    assert_eq!(
        state_digest(then.state()),
        early.digest(),
        "{name}: genesis and an early snapshot"
    );
    assert_eq!(then.snapshot(), *early, "{name}: with their chains");

    let genesis = fold(bus, Replica::<D>::default(), position(&live)).await;
    assert_eq!(
        state_digest(genesis.state()),
        live.digest(),
        "{name}: genesis and live"
    );
    assert_eq!(genesis.snapshot(), live, "{name}: with their chains");

    let restored = Replica::<D>::restore(early).expect("of this version");
    let tail = fold(bus, restored, position(&live)).await;
    assert_eq!(
        state_digest(tail.state()),
        live.digest(),
        "{name}: snapshot and tail, and live"
    );
    assert_eq!(tail.snapshot(), live, "{name}: with their chains");
}

/// A request whose outcome nobody tells, for admission's feed does not run.
async fn ask(client: &Client, verb: Verb) {
    drop(
        client
            .send(&Operation::new(id(), verb))
            .await
            .expect("it is sent"),
    );
}

/// Requests, starts, ends and cancels, each decided before the next, so that each makes frames of its own.
async fn load(suite: &Suite, tenant: &Client, agent: &Agent, rounds: usize) {
    let id = |allocation: &AllocationNo| allocation.id(suite.cell_no()).to_string();
    for no in 0..rounds {
        let before = suite.events().await.len();
        ask(tenant, Verb::Submit(small("load"))).await;
        let allocation = eventually("a placement", || async {
            let all = suite.events().await;
            all[before..].iter().find_map(|(_, event)| match event {
                Event::AllocationPlaced(AllocationPlaced { allocation, .. }) => Some(*allocation),
                _ => None,
            })
        })
        .await;
        agent.report(&id(&allocation), RunPhase::Started, 0).await;
        if no % 3 == 0 {
            let allocation_id = id(&allocation);
            ask(tenant, Verb::Cancel(Cancel { allocation_id })).await;
        }
        if no % 2 == 0 {
            agent
                .report(&id(&allocation), RunPhase::FinishedOk, i64::MAX)
                .await;
            eventually("the release", || async {
                let all = suite.events().await;
                let released = |(_, event): &(_, Event)| {
                    matches!(event, Event::QuotaReleased(QuotaReleased { allocation: of }) if *of == allocation)
                };
                all.iter().any(released).then_some(())
            })
            .await;
        }
    }
}

async fn is_on_ledger(suite: &Suite, what: &str, wanted: impl Fn(&Event) -> bool) {
    suite
        .events_of(what, 1, |_, event| wanted(event).then_some(()))
        .await;
}

#[tokio::test]
async fn all_ways_to_a_state_lead_to_the_same() -> Outcome {
    let mut suite = Suite::bare(Setup::default()).await;
    suite.make_streams().await;
    let leaders = Live::all(&suite).await;
    let (operator, tenant) = (suite.operator().await, suite.tenant("tenant-a").await);
    let named = || "tenant-a".to_owned();
    ask(
        &operator,
        Verb::SetTenant(SetTenant {
            tenant: named(),
            expected_version: None,
            ..SetTenant::default()
        }),
    )
    .await;
    for resource in ["cpu", "memory", "gpu"] {
        let quota = SetQuota {
            tenant: named(),
            resource: resource.to_owned(),
            limit: 1 << 53,
            expected_version: None,
            ..SetQuota::default()
        };
        ask(&operator, Verb::SetQuota(quota)).await;
    }
    let mut agent = Agent::connect(&suite, "n1").await;
    agent.announce().await;
    is_on_ledger(&suite, "the node", |event| {
        matches!(event, Event::NodeRegistered(_))
    })
    .await;

    load(&suite, &tenant, &agent, 5).await;
    let bus = suite.bus("analytics").await;
    let early = (
        saved::<Admission>(&bus, Lsn(0)).await,
        saved::<Quota>(&bus, Lsn(0)).await,
        saved::<Scheduler>(&bus, Lsn(0)).await,
        saved::<Nodes>(&bus, Lsn(0)).await,
    );
    load(&suite, &tenant, &agent, 6).await;

    equal_on_all_ways::<Admission>(&bus, &early.0).await;
    equal_on_all_ways::<Quota>(&bus, &early.1).await;
    equal_on_all_ways::<Scheduler>(&bus, &early.2).await;
    equal_on_all_ways::<Nodes>(&bus, &early.3).await;

    // The services themselves go on from there: snapshots for deciders, everything for the feed and the tables.
    drop(leaders);
    suite.boot_all().await;
    agent.register_again().await;
    tenant.submit(small("later"), id()).await?;
    suite.assert_verified().await;
    suite.close().await;
    Ok(())
}
