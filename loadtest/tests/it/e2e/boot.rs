//! No service works on a ledger that could lose what it has acknowledged.

use crate::e2e::suite::{Outcome, Setup, Suite, eventually};
use analytics::AnalyticsService;
use async_nats::jetstream::{
    self,
    stream::{Config, PersistenceMode, RetentionPolicy, StorageType},
};
use ledger_nats::cell::{Chosen, ledger_config};
use std::time::Duration;

async fn unsafe_cell(change: impl Fn(&mut Config)) -> Suite {
    let suite = Suite::bare(Setup::default()).await;
    let mut config = ledger_config(&suite.subjects, Chosen::default());
    change(&mut config);
    let maker = jetstream::new(suite.servers.nats("bus").await);
    maker
        .create_stream(config)
        .await
        .expect("the server takes these settings");
    suite
}

#[tokio::test]
async fn a_scheduler_names_the_unsafe_setting() -> Outcome {
    type Change = fn(&mut Config);
    let table: [(Change, &str); 10] = [
        (
            |c| c.max_age = Duration::from_secs(3600),
            "max_age is 3600s, must be 0",
        ),
        (
            |c| c.deny_delete = false,
            "deny_delete is false, must be true",
        ),
        (
            |c| c.deny_purge = false,
            "deny_purge is false, must be true",
        ),
        (
            |c| c.storage = StorageType::Memory,
            "storage is Memory, must be file",
        ),
        (
            |c| c.max_messages = 1_000_000,
            "max_msgs is 1000000, must be unlimited",
        ),
        (
            |c| c.max_bytes = 1 << 30,
            "max_bytes is 1073741824, must be unlimited",
        ),
        (
            |c| c.max_messages_per_subject = 9,
            "max_msgs_per_subject is 9, must be unlimited",
        ),
        (
            |c| c.allow_message_ttl = true,
            "allow_msg_ttl is true, must be false",
        ),
        (
            |c| {
                c.retention = RetentionPolicy::WorkQueue;
                c.deny_delete = false;
            },
            "retention is WorkQueue, must be limits",
        ),
        // Not unsafe, but made by nobody who knows how long a slot is.
        (
            |c| c.metadata.clear(),
            "apportion_slot_ms is None, must be a number",
        ),
    ];
    for (change, expected) in table {
        let suite = unsafe_cell(change).await;
        let said = suite
            .boot::<scheduler::SchedulerService>()
            .await
            .gives_up()
            .await;
        assert!(said.contains(expected), "{said}\n{expected}");
        suite.close().await;
    }
    Ok(())
}

#[tokio::test]
async fn every_service_refuses() -> Outcome {
    let suite = unsafe_cell(|config| config.max_age = Duration::from_secs(3600)).await;
    for refusing in [
        suite.boot::<admission::AdmissionService>().await,
        suite.boot::<quota::QuotaService>().await,
        suite.boot::<scheduler::SchedulerService>().await,
        suite.boot::<node_heartbeat::NodeHeartbeatService>().await,
        suite.boot::<AnalyticsService>().await,
    ] {
        let name = refusing.name;
        let said = refusing.gives_up().await;
        let expected = "the ledger stream is not safe: max_age is 3600s, must be 0";
        assert!(said.contains(expected), "{name}: {said}");
    }
    suite.close().await;
    Ok(())
}

/// Faster, and able to lose what it has acknowledged. A server that cannot do it refuses the stream instead.
#[tokio::test]
async fn asynchronous_persistence_is_refused() -> Outcome {
    let change = |config: &mut Config| config.persist_mode = Some(PersistenceMode::Async);
    let suite = unsafe_cell(change).await;
    let said = suite
        .boot::<scheduler::SchedulerService>()
        .await
        .gives_up()
        .await;
    assert!(
        said.contains("persist_mode is async, must be default"),
        "{said}"
    );
    suite.close().await;
    Ok(())
}

/// Its messages would count from 1 again, and be taken for ones that were decided.
#[tokio::test]
async fn an_inbox_that_was_made_anew_is_not_opened() -> Outcome {
    let mut suite = Suite::start().await;
    suite.take("admission").stop().await;
    let maker = jetstream::new(suite.servers.nats("bus").await);
    maker.delete_stream(suite.subjects.ingress_stream()).await?;
    suite.make_streams().await;
    let said = suite
        .boot::<admission::AdmissionService>()
        .await
        .gives_up()
        .await;
    assert!(said.contains("it is another stream"), "{said}");
    suite.close().await;
    Ok(())
}

/// A cell that is not made yet is waited for.
#[tokio::test]
async fn a_service_waits_for_its_cell() -> Outcome {
    let mut suite = Suite::bare(Setup::default()).await;
    let early = suite.boot::<quota::QuotaService>().await;
    assert!(early.says("/healthz").await);
    assert!(!early.says("/readyz").await);
    suite.make_streams().await;
    early.wait_ready().await;
    early.stop().await;
    suite.boot_all().await;
    suite.furnish().await;
    let tenant = suite.tenant("tenant-a").await;
    suite.assert_healthy(&tenant).await;
    suite.close().await;
    Ok(())
}

/// What a process knows is of a ledger that is gone: it says so, and does not go on with another one.
#[tokio::test]
async fn a_deleted_ledger_is_noticed_by_all_services() -> Outcome {
    let mut suite = Suite::start().await;
    let bus = jetstream::new(suite.servers.nats("bus").await);
    bus.delete_stream(suite.subjects.ledger_stream()).await?;
    for service in suite.services() {
        eventually("it is not ready", || async {
            (!service.says("/readyz").await).then_some(())
        })
        .await;
    }
    suite.make_streams().await;
    for name in [
        "admission",
        "quota",
        "scheduler",
        "node-heartbeat",
        "analytics",
    ] {
        let why = suite.take(name).gives_up().await;
        assert!(
            why.contains("another one stands in its place"),
            "{name}: {why}"
        );
    }
    suite.close().await;
    Ok(())
}
