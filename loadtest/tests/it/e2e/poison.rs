//! What must not kill a service, though it stays on the stream: and what must stop it, because it is on the ledger.

use crate::e2e::{
    raw::Wire,
    suite::{Outcome, Suite, all_decided, eventually, id, small},
};
use async_nats::jetstream;
use client::Operation;
use ledger::Bus;
use prost::Message;
use schemas::v1::{
    NodeCapacity, NodeReport, Register, RunPhase, node_report::Report, request::Verb,
};
use vocab::fact::NodeRegistered;
use vocab::{Event, Writer};

#[tokio::test]
async fn garbage_of_agents_is_passed_over() -> Outcome {
    let suite = Suite::start().await;
    let tenant = suite.tenant("tenant-a").await;
    let fleet = suite.servers.nats("fleet").await;
    let inbox = jetstream::new(fleet.clone());
    let register = |capacity: Option<NodeCapacity>| {
        let report = NodeReport {
            boot: 1,
            report: Some(Report::Register(Register {
                capacity,
                change: 0,
            })),
        };
        report.encode_to_vec()
    };
    let capacity = |cpu_milli, gpus, gpu_model: &str| {
        register(Some(NodeCapacity {
            cpu_milli,
            memory_bytes: 1 << 30,
            gpus,
            gpu_model: gpu_model.to_owned(),
            ..NodeCapacity::default()
        }))
    };
    let run = |allocation: &str, phase: i32| {
        let run = schemas::v1::Run {
            allocation_id: allocation.to_owned(),
            phase,
            at_ms: i64::MIN,
            revision: u64::MAX,
            exit: None,
        };
        let report = Some(Report::Run(run));
        NodeReport {
            boot: u64::MAX,
            report,
        }
        .encode_to_vec()
    };
    let good = || capacity(1_000, 0, "");
    let reports = [
        ("n1", Vec::new()),
        ("n1", b"\xff\xff\xff".to_vec()),
        ("n1", vec![b'x'; 90_000]),
        ("n1", register(None)),
        ("n1", capacity(u64::MAX, 1, "V100")),
        ("n1", capacity(1_000, u32::MAX, "V100")),
        ("n1", capacity(1_000, 1, "a.b")),
        ("n1", capacity(1_000, 0, "V100")),
        ("n1", run("no id", 1)),
        (
            "n1",
            run(
                &uuid::Uuid::new_v4().to_string(),
                RunPhase::FinishedOk.into(),
            ),
        ),
        ("n1", run(&uuid::Uuid::new_v4().to_string(), 77)),
        // Names that a subject takes and a cell does not.
        ("nöde", good()),
        ("a$b", good()),
        ("раураl", good()),
    ];
    for (node, payload) in reports {
        let subject = suite.subjects.node(node, "report");
        inbox.publish(subject, payload.into()).await?.await?;
    }
    let long = "x".repeat(200);
    inbox
        .publish(suite.subjects.node(&long, "report"), good().into())
        .await?
        .await?;
    for node in ["n1", "nöde", &long] {
        for payload in [&b""[..], b"\xff\xff\xff", b"\x08\x01"] {
            let subject = suite.subjects.node(node, "heartbeat");
            fleet.publish(subject, payload.into()).await?;
            // Nobody to answer to.
            fleet
                .publish(suite.subjects.node(node, "sync"), payload.into())
                .await?;
        }
    }
    fleet.flush().await?;
    // The inbox is one queue: when the good node is known, all that came before has been decided.
    let mut agent = suite.node("good").await;
    let submitted = tenant.submit(small("works"), id()).await?;
    agent.run(&submitted.allocation_id, 1).await;
    let registered = |_: &_, event: &Event| match event {
        Event::NodeRegistered(NodeRegistered { node, .. }) => Some(node.to_string()),
        _ => None,
    };
    let registered = suite.events_of("the good node", 1, registered).await;
    assert_eq!(registered, ["good"]);
    suite.assert_healthy(&tenant).await;
    suite.assert_verified().await;
    suite.close().await;
    Ok(())
}

/// A header block is the sender's own bytes; the server stores and delivers them as they are.
const BROKEN_HEADERS: [&[u8]; 5] = [
    b"NATS/1.0\r\nno colon\r\n\r\n",
    b"NATS/1.0\r\nname: \xff\xfe\r\n\r\n",
    b"NATS/1.0\r\nbad name: x\r\n\r\n",
    b"HTTP/1.1\r\n\r\n",
    b"\xff\xff\xff\xff\r\n\r\n",
];

#[tokio::test]
async fn a_broken_header_block_closes_no_inbox() -> Outcome {
    let suite = Suite::start().await;
    let tenant = suite.tenant("tenant-a").await;
    let mut sent = Vec::new();
    let login = suite.servers.held("tenant:tenant-a");
    let mut wire = Wire::connect(&suite.servers.nats.url, Some(&login)).await?;
    let ingress = suite.subjects.ingress("tenant-a");
    let feed = suite.subjects.query("tenant-a", "feed");
    for block in BROKEN_HEADERS {
        let operation_id = id();
        sent.push(operation_id.clone());
        let request = schemas::v1::Request {
            operation_id,
            verb: Some(Verb::Submit(small("headers"))),
        };
        wire.publish(&ingress, block, &request.encode_to_vec())
            .await?;
        wire.publish(&feed, block, b"x").await?;
    }
    wire.flush().await?;
    let mut agents =
        Wire::connect(&suite.servers.nats.url, Some(&suite.servers.held("fleet"))).await?;
    for block in BROKEN_HEADERS {
        for what in ["report", "heartbeat", "sync"] {
            agents
                .publish(&suite.subjects.node("n1", what), block, b"x")
                .await?;
        }
    }
    agents.flush().await?;

    // Unreadable headers are as good as none: each request is decided, and so is what comes behind them.
    all_decided(&tenant, &sent).await;
    let operation = Operation::new(id(), Verb::Submit(small("behind")));
    let settled = tenant
        .settle(&operation, 5, std::time::Duration::from_millis(100))
        .await;
    assert!(settled.is_ok(), "{settled:?}");
    suite.node("n1").await;
    suite.assert_healthy(&tenant).await;
    suite.assert_verified().await;
    suite.close().await;
    Ok(())
}

/// A carriage return in a header's value ends the client library's task. Another client takes its place, and what is in its
/// way is fetched without it.
#[tokio::test]
async fn a_carriage_return_in_a_header_closes_no_inbox() -> Outcome {
    const BLOCK: &[u8] = b"NATS/1.0\r\nA: x\rB: y\r\n\r\n";
    let suite = Suite::start().await;
    let tenant = suite.tenant("tenant-a").await;
    let login = suite.servers.held("tenant:tenant-a");
    let mut wire = Wire::connect(&suite.servers.nats.url, Some(&login)).await?;
    let ingress = suite.subjects.ingress("tenant-a");
    let mut sent = Vec::new();
    for _ in 0..3 {
        let operation_id = id();
        sent.push(operation_id.clone());
        let request = schemas::v1::Request {
            operation_id,
            verb: Some(Verb::Submit(small("headers"))),
        };
        wire.publish(&ingress, BLOCK, &request.encode_to_vec())
            .await?;
    }
    wire.flush().await?;
    let mut agents =
        Wire::connect(&suite.servers.nats.url, Some(&suite.servers.held("fleet"))).await?;
    let report = suite.subjects.node("n1", "report");
    agents.publish(&report, BLOCK, b"x").await?;
    agents.flush().await?;

    all_decided(&tenant, &sent).await;
    suite.node("n1").await;
    suite.assert_healthy(&tenant).await;
    suite.assert_verified().await;
    suite.close().await;
    Ok(())
}

/// Going on past it would make two histories. Every reader stops, and says where.
#[tokio::test]
async fn a_foreign_record_on_the_ledger_stops_its_readers() -> Outcome {
    let mut suite = Suite::start().await;
    let bus = suite.bus("quota").await;
    let lsn = eventually("a gap between quota's own frames", || async {
        let last = bus.last(Writer::Quota).await.ok()?;
        let expected = last.map_or(vocab::Lsn(0), |record| record.lsn);
        bus.append(Writer::Quota, expected, expected, "no frame at all".into())
            .await
            .ok()
    })
    .await;
    let place = format!("{lsn:?}");
    let readers = [
        "admission",
        "quota",
        "scheduler",
        "node-heartbeat",
        "analytics",
    ];
    for name in readers {
        let service = suite.take(name);
        let said = service.gives_up().await;
        assert!(
            said.contains(&place) && said.contains("not readable"),
            "{name}: {said}"
        );
    }
    let error = ledger_nats::verify(&bus, &[])
        .await
        .expect_err("it is no frame")
        .to_string();
    assert!(error.contains(&place), "{error}");
    // A restart does not get past it either.
    let again = suite.boot::<scheduler::SchedulerService>().await;
    let said = again.gives_up().await;
    assert!(said.contains(&place), "{said}");
    suite.close().await;
    Ok(())
}
