//! A node that falls silent, what becomes of its run, and how it comes back.

use crate::e2e::{
    agent::run,
    suite::{Outcome, Setup, Suite, id, small},
};
use chassis::Clock;
use client::Submit;
use schemas::v1::{RunPhase, node_report::Report};
use std::time::Duration;
use vocab::fact::{AllocationEnded, AllocationRequeued, AllocationStarted, NodeLost, RunReported};
use vocab::{AllocationId, At, EndCause, Event, Lsn};

/// Short enough to wait for, and many heartbeats long.
const LEASE_MS: i64 = 3_000;
const HEARTBEAT: Duration = Duration::from_millis(100);

#[tokio::test]
async fn a_lost_node_ends_its_run_and_comes_back_empty() -> Outcome {
    let suite = Suite::with(Setup {
        lease_ms: LEASE_MS,
        ..Setup::default()
    })
    .await;
    let tenant = suite.tenant("tenant-a").await;
    let mut agent = suite.node("n1").await;
    agent.beat(HEARTBEAT);
    let once = Submit {
        never_requeue: true,
        ..small("first")
    };
    let first = tenant.submit(once, id()).await?.allocation_id;
    let started = agent.assignment(&first, false).await.placed_ms;
    agent.report(&first, RunPhase::Started, started).await;
    let no = AllocationId::parse(&first).and_then(|id| id.in_cell(suite.cell_no()));
    let no = no.expect("an id of this cell");
    let has_started = |_: &At, event: &Event| {
        matches!(event, Event::AllocationStarted(AllocationStarted { allocation, .. }) if *allocation == no)
            .then_some(())
    };
    suite.events_of("the start", 1, has_started).await;

    agent.fall_silent();
    let lost = |at: &At, event: &Event| match event {
        Event::NodeLost(NodeLost {
            incarnation,
            last_seen,
            ..
        }) => Some((*incarnation, *last_seen, at.now)),
        _ => None,
    };
    let lost = suite.events_of("the loss", 1, lost).await;
    let (incarnation, last_seen, lost_at) = lost[0];
    // Given by the cell, whatever the agent counts: its registration is the first event of node-heartbeat.
    assert_eq!(incarnation, 1);
    assert!(
        lost_at.0 - last_seen.0 > LEASE_MS,
        "{lost_at:?} {last_seen:?}"
    );
    let end = |at: &At, event: &Event| match event {
        Event::AllocationEnded(AllocationEnded {
            allocation,
            cause,
            at: ended,
            ..
        }) if *allocation == no => Some((*cause, ended.0, at.lsn)),
        _ => None,
    };
    let ends = suite.events_of("the end", 1, end).await;
    let (cause, ended, ended_lsn) = ends[0];
    assert_eq!(cause, EndCause::NodeLost);
    assert_eq!(
        billed(&suite, ended_lsn, &first).await?,
        ("node_lost".to_owned(), started, ended)
    );

    // Nothing is placed on it meanwhile.
    let second = tenant.submit(small("second"), id()).await?;
    assert!(
        matches!(
            second.state,
            Some(schemas::v1::submitted::State::Waiting(_))
        ),
        "{second:?}"
    );

    // Its late word on the old run, in its old life; then it hears that this is over.
    let now = Clock::real().now_ms();
    agent.report(&first, RunPhase::FinishedOk, now).await;
    agent.heartbeat(agent.boot).await;
    agent.is_told_to_register().await;
    // Neither an older life nor the same one brings it back.
    agent.announce().await;
    let (old, current) = (agent.boot, agent.boot + 1);
    agent.register_again().await;
    agent.beat(HEARTBEAT);
    agent
        .report_as(old, Report::Run(run(&first, RunPhase::FinishedOk, now)))
        .await;
    agent
        .report_as(current, Report::Run(run(&first, RunPhase::FinishedOk, now)))
        .await;
    agent
        .report_as(current, Report::Run(run(&first, RunPhase::Started, now)))
        .await;

    let second = second.allocation_id;
    let (_, _) = agent.run(&second, 5).await;
    let finished = |at: &At, event: &Event| match event {
        Event::AllocationEnded(AllocationEnded {
            allocation, cause, ..
        }) if *allocation != no => Some((*cause, at.lsn)),
        _ => None,
    };
    let finished = suite.events_of("the second run's end", 1, finished).await;
    assert_eq!(finished[0].0, EndCause::Finished);

    // The reports came by one inbox in order, so all that was late has been decided before.
    let events = suite.events().await;
    let ends: Vec<_> = events
        .iter()
        .filter_map(|(at, event)| end(at, event))
        .collect();
    assert_eq!(ends, [(EndCause::NodeLost, ended, ended_lsn)]);
    let late = |(_, event): &&(At, Event)| matches!(event, Event::RunReported(RunReported { allocation, .. }) if *allocation == no);
    assert_eq!(events.iter().filter(late).count(), 1, "the start alone");
    let registered = |(_, event): &&(At, Event)| matches!(event, Event::NodeRegistered(_));
    assert_eq!(events.iter().filter(registered).count(), 2);
    suite.billed_through(finished[0].1).await;
    assert_eq!(
        billed(&suite, ended_lsn, &first).await?,
        ("node_lost".to_owned(), started, ended)
    );
    suite.assert_conserved().await;
    suite.assert_verified().await;
    suite.close().await;
    Ok(())
}

/// What is not told otherwise runs again, on another node and in its own time; both runs are billed.
#[tokio::test]
async fn a_lost_run_is_queued_again_and_runs_elsewhere() -> Outcome {
    let suite = Suite::with(Setup {
        lease_ms: LEASE_MS,
        ..Setup::default()
    })
    .await;
    let tenant = suite.tenant("tenant-a").await;
    let mut first = suite.node("n1").await;
    first.beat(HEARTBEAT);
    let allocation = tenant.submit(small("twice"), id()).await?.allocation_id;
    let started = first.assignment(&allocation, false).await.placed_ms;
    first.report(&allocation, RunPhase::Started, started).await;
    let mut second = suite.node("n2").await;
    second.beat(HEARTBEAT);
    let start = |_: &At, event: &Event| matches!(event, Event::AllocationStarted(_)).then_some(());
    suite.events_of("the start", 1, start).await;

    first.fall_silent();
    let (again, ended) = second.run(&allocation, 5).await;
    let late = first.boot;
    first
        .report_as(
            late,
            Report::Run(run(&allocation, RunPhase::FailedRun, ended)),
        )
        .await;
    let end = |at: &At, event: &Event| match event {
        Event::AllocationEnded(AllocationEnded { cause, .. }) => Some((*cause, at.lsn)),
        _ => None,
    };
    let ends = suite.events_of("the end", 1, end).await;
    assert_eq!(ends[0].0, EndCause::Finished);
    let requeue = |_: &At, event: &Event| match event {
        Event::AllocationRequeued(AllocationRequeued { cause, at, .. }) => Some((*cause, at.0)),
        _ => None,
    };
    let requeues = suite.events_of("the requeue", 1, requeue).await;
    let (cause, lost) = requeues[0];
    assert_eq!(cause, EndCause::NodeLost);

    suite.billed_through(ends[0].1).await;
    let query = suite.clickhouse().query(
        "SELECT toString(node), toString(cause), toUnixTimestamp64Milli(started_at), toUnixTimestamp64Milli(ended_at)
         FROM allocation_intervals WHERE toString(allocation) = ? ORDER BY lsn",
    );
    let billed: Vec<(String, String, i64, i64)> = query.bind(&allocation).fetch_all().await?;
    let expected = [
        ("n1".to_owned(), "node_lost".to_owned(), started, lost),
        ("n2".to_owned(), "finished".to_owned(), again, ended),
    ];
    assert_eq!(billed, expected);
    suite.assert_conserved().await;
    suite.assert_verified().await;
    suite.close().await;
    Ok(())
}

async fn billed(
    suite: &Suite,
    lsn: Lsn,
    allocation: &str,
) -> Result<(String, i64, i64), clickhouse::error::Error> {
    suite.billed_through(lsn).await;
    let query = suite.clickhouse().query(
        "SELECT toString(cause), toUnixTimestamp64Milli(started_at), toUnixTimestamp64Milli(ended_at)
         FROM allocation_intervals WHERE toString(allocation) = ?",
    );
    query.bind(allocation).fetch_one().await
}
