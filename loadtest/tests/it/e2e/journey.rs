//! One request's whole way, looked at wherever it leaves a mark.

use crate::e2e::{
    agent::MODEL,
    suite::{DEADLINE, GIB, Outcome, RATES, Suite, eventually},
};
use analytics::store::UsageLine;
use client::{Client, Position, Submit, TenantEvent};
use schemas::v1::{
    EndCause, GpuShare, RunPhase, outcome::Result as Decided, submitted, tenant_event::Kind,
};
use std::collections::BTreeMap;
use vocab::{HOUR_MS, Lsn, Millis, Token};

/// The feed from its beginning up to the event that `last` knows.
pub async fn feed_until(tenant: &Client, last: impl Fn(&Kind) -> bool) -> Vec<TenantEvent> {
    let mut follower = tenant
        .follow(Position::default(), None)
        .await
        .expect("a feed");
    let mut events = Vec::new();
    let reading = async {
        let is_last = |event: &TenantEvent| event.kind.as_ref().is_some_and(&last);
        while !events.iter().any(is_last) {
            events.extend(follower.next_page().await.expect("a page"));
        }
    };
    let read = tokio::time::timeout(DEADLINE, reading).await;
    read.expect("the feed goes on");
    events
}

fn kind(event: &TenantEvent) -> &'static str {
    match &event.kind {
        Some(Kind::Outcome(_)) => "outcome",
        Some(Kind::Placed(_)) => "placed",
        Some(Kind::Waiting(_)) => "waiting",
        Some(Kind::Started(_)) => "started",
        Some(Kind::Stopping(_)) => "stopping",
        Some(Kind::Ended(_)) => "ended",
        Some(Kind::Preempted(_)) => "preempted",
        Some(Kind::Requeued(_)) => "requeued",
        Some(Kind::Requested(_)) => "requested",
        Some(Kind::PriorityChanged(_)) => "priority changed",
        Some(Kind::Denied(_)) => "denied",
        Some(Kind::Expired(_)) => "expired",
        None => "nothing",
    }
}

/// The bill of one run, made here: by hour and resource, each line rounded half up.
fn charge(
    amounts: [(&'static str, u64); 3],
    (from, to): (i64, i64),
) -> BTreeMap<(i64, String), (i128, i128)> {
    let mut lines = BTreeMap::new();
    let mut hour = from - from.rem_euclid(HOUR_MS);
    while hour < to {
        let ms = (to.min(hour + HOUR_MS) - from.max(hour)) as i128;
        for ((resource, amount), (_, rate)) in amounts.into_iter().zip(RATES) {
            let per_unit: i128 = if resource == "memory" { 1 << 30 } else { 1000 };
            let per_hour = per_unit * i128::from(HOUR_MS);
            let quantity = i128::from(amount) * ms;
            let micro = (quantity * rate as i128 + per_hour / 2) / per_hour;
            let resource = match resource {
                "gpu" => format!("gpu:{MODEL}"),
                other => other.to_owned(),
            };
            lines.insert((hour, resource), (quantity, micro));
        }
        hour += HOUR_MS;
    }
    lines
}

#[tokio::test]
async fn a_request_leaves_the_same_mark_everywhere() -> Outcome {
    let suite = Suite::start().await;
    let mut agent = suite.node("n1").await;
    let tenant = suite.tenant("tenant-a").await;
    let request = Submit {
        job_set: "night".to_owned(),
        name: "train-7".to_owned(),
        priority: 5,
        cpu_milli: 4_000,
        memory_bytes: 8 * GIB,
        gpu_count: 1,
        gpu_milli: 500,
        gpu_models: vec![MODEL.to_owned()],
        ..Submit::default()
    };
    let submitted = tenant.submit(request, "train-7-first").await?;
    let allocation = submitted.allocation_id.clone();
    let Some(submitted::State::Placed(placed)) = &submitted.state else {
        panic!("an empty node takes it: {submitted:?}");
    };
    let half = GpuShare {
        device: 0,
        milli: 500,
    };
    assert_eq!((placed.node.as_str(), &placed.gpus), ("n1", &vec![half]));

    // The node.
    let assignment = agent.assignment(&allocation, false).await;
    assert_eq!(
        (assignment.tenant.as_str(), assignment.gpus),
        ("tenant-a", vec![half])
    );
    let spec = assignment.spec.expect("an assignment says what to run");
    assert_eq!(
        (spec.cpu_milli, spec.memory_bytes, spec.job_set.as_str()),
        (4_000, 8 << 30, "night")
    );
    let (started, ended) = agent.run(&allocation, 40).await;

    // The feed, complete and in order.
    let events = feed_until(&tenant, |kind| matches!(kind, Kind::Ended(_))).await;
    let kinds: Vec<_> = events.iter().map(kind).collect();
    assert_eq!(
        kinds,
        ["requested", "outcome", "placed", "started", "ended"]
    );
    for event in &events {
        assert_eq!(
            (
                event.allocation_id.as_str(),
                event.job_set.as_str(),
                event.name.as_str()
            ),
            (allocation.as_str(), "night", "train-7")
        );
    }
    assert_eq!((events[3].at_ms, events[4].at_ms), (started, ended));
    let Some(Kind::Ended(end)) = &events[4].kind else {
        panic!("it is the last kind");
    };
    assert_eq!(
        (end.cause(), end.started_ms, end.ended_ms),
        (EndCause::Finished, started, ended)
    );
    let Some(Kind::Outcome(outcome)) = &events[1].kind else {
        panic!("it is the second kind");
    };
    let Some(Kind::Requested(requested)) = &events[0].kind else {
        panic!("it is the first kind");
    };
    let spec = requested.spec.as_ref().expect("all that it asks for");
    assert_eq!((spec.priority, spec.cpu_milli), (5, 4_000));
    assert_eq!(outcome.operation_id, "train-7-first");
    assert_eq!(outcome.result, Some(Decided::Submitted(submitted)));
    resumes_anywhere(&tenant, &events).await?;

    // The warm state of each service.
    let ended_lsn = Lsn(events[4].lsn);
    in_postgres(&suite, &allocation, (started, ended)).await;

    // The bill.
    suite.billed_through(ended_lsn).await;
    in_clickhouse(&suite, &allocation, (started, ended)).await?;
    suite.assert_conserved().await;
    suite.assert_verified().await;
    suite.assert_healthy(&tenant).await;
    suite.close().await;
    Ok(())
}

async fn resumes_anywhere(tenant: &Client, events: &[TenantEvent]) -> Outcome {
    assert_eq!(
        tenant.feed_page(Position::default(), None, 0).await?,
        events
    );
    assert_eq!(
        tenant
            .feed_page(Position::default(), Some("night"), 0)
            .await?,
        events
    );
    assert_eq!(
        tenant
            .feed_page(Position::default(), Some("other"), 0)
            .await?,
        []
    );
    for (no, event) in events.iter().enumerate() {
        let after = Position::from(event);
        let rest = &events[no + 1..];
        assert_eq!(tenant.feed_page(after, None, 0).await?, rest);
        let one = tenant.feed_page(after, Some("night"), 1).await?;
        assert_eq!(one, &rest[..rest.len().min(1)]);
    }
    let beyond = Position {
        lsn: u64::MAX,
        index: u32::MAX,
    };
    assert_eq!(tenant.feed_page(beyond, None, 0).await?, []);
    Ok(())
}

async fn in_postgres(suite: &Suite, allocation: &str, (started, ended): (i64, i64)) {
    let text = |value: &str| Some(value.to_owned());
    let ms = |ms: i64| Some(ms.to_string());
    let sql = format!(
        "SELECT state, end_cause, node, tenant, name, gpu_milli::text,
             (extract(epoch FROM started_at) * 1000)::bigint::text,
             (extract(epoch FROM ended_at) * 1000)::bigint::text
         FROM {{}}.allocations WHERE allocation_id = '{allocation}'"
    );
    let row = eventually("the ended allocation's row", || async {
        let rows = suite.rows("scheduler", &sql).await;
        let ended = |row: &Vec<Option<String>>| row[0].as_deref() == Some("ended");
        rows.into_iter().find(ended)
    })
    .await;
    let expected = [
        text("ended"),
        text("finished"),
        text("n1"),
        text("tenant-a"),
        text("train-7"),
    ];
    assert_eq!(row[..5], expected);
    assert_eq!(row[5..], [text("500"), ms(started), ms(ended)]);

    let sql = "SELECT resource, (reserved + used)::text, used_peak::text FROM {}.resource_quotas
               WHERE tenant = 'tenant-a' AND hard IS NOT NULL ORDER BY resource";
    eventually("the quota given back", || async {
        let rows = suite.rows("quota", sql).await;
        let row = |resource, peak| vec![text(resource), text("0"), text(peak)];
        let memory = (8 * GIB).to_string();
        (rows
            == [
                row("cpu", "4000"),
                row("gpu", "500"),
                row("memory", &memory),
            ])
        .then_some(())
    })
    .await;

    let sql = "SELECT verb, state, allocation_id::text FROM {}.operations
               WHERE tenant = 'tenant-a' AND operation_id = 'train-7-first'";
    eventually("the operation's row", || async {
        let rows = suite.rows("admission", sql).await;
        (rows == [vec![text("submit"), text("placed"), text(allocation)]]).then_some(())
    })
    .await;

    let sql = "SELECT state, gpus::text, gpu_model FROM {}.nodes WHERE node = 'n1'";
    eventually("the node's row", || async {
        let rows = suite.rows("node-heartbeat", sql).await;
        (rows == [vec![text("ready"), text("8"), text(MODEL)]]).then_some(())
    })
    .await;
}

async fn in_clickhouse(suite: &Suite, allocation: &str, run: (i64, i64)) -> Outcome {
    let query = suite.clickhouse().query(
        "SELECT toString(allocation), tenant || '/' || job_set || '/' || name || '/' || node || '/' || cause,
             toUnixTimestamp64Milli(started_at), toUnixTimestamp64Milli(ended_at)
         FROM allocation_intervals",
    );
    let rows: Vec<(String, String, i64, i64)> = query.fetch_all().await?;
    let words = "tenant-a/night/train-7/n1/finished".to_owned();
    assert_eq!(rows, [(allocation.to_owned(), words, run.0, run.1)]);

    let expected = charge([("cpu", 4_000), ("memory", 8 << 30), ("gpu", 500)], run);
    let all = (Millis(0), Millis(i64::MAX));
    let store = suite.store();
    let lines = store.tenant_usage(&Token::new("tenant-a")?, all).await?;
    let found: BTreeMap<_, _> = lines
        .iter()
        .map(|line: &UsageLine| {
            (
                (line.hour_ms, line.resource.clone()),
                (line.quantity, line.amount_micro),
            )
        })
        .collect();
    assert_eq!(found, expected);
    assert!(expected.values().all(|(_, micro)| *micro > 0));
    let bill: i128 = store
        .monthly_bill()
        .await?
        .iter()
        .map(|line| line.amount_micro)
        .sum();
    assert_eq!(bill, expected.values().map(|(_, micro)| micro).sum());
    Ok(())
}

/// What has not happened yet is an empty page, not a question without an answer.
#[tokio::test]
async fn a_feed_begins_empty() -> Outcome {
    let mut suite = Suite::bare(crate::e2e::suite::Setup::default()).await;
    suite.make_streams().await;
    suite.boot_all().await;
    let tenant = suite.tenant("tenant-a").await;
    assert_eq!(tenant.feed_page(Position::default(), None, 0).await?, []);
    suite.close().await;
    Ok(())
}

/// A cancel on its way to the node and back, and one that finds the allocation in the queue.
#[tokio::test]
async fn a_cancel_ends_what_runs_and_what_waits() -> Outcome {
    let suite = Suite::start().await;
    let tenant = suite.tenant("tenant-a").await;
    let waits = tenant
        .submit(crate::e2e::suite::small("waits"), "w")
        .await?;
    tenant.cancel(&waits.allocation_id, "cancel-w").await?;

    let mut agent = suite.node("n1").await;
    let runs = tenant
        .submit(crate::e2e::suite::small("runs"), "r")
        .await?
        .allocation_id;
    let placed = agent.assignment(&runs, false).await.placed_ms;
    agent.report(&runs, RunPhase::Started, placed).await;
    tenant.cancel(&runs, "cancel-r").await?;
    let stop: schemas::v1::Assignment = agent.assignment(&runs, true).await;
    let end = placed.max(stop.placed_ms) + 1;
    chassis::Clock::real().sleep_until(end).await;
    agent.report(&runs, RunPhase::FinishedOk, end).await;

    let is_over =
        |kind: &Kind| matches!(kind, Kind::Ended(end) if end.ended_ms > 0 && end.started_ms > 0);
    let events = feed_until(&tenant, is_over).await;
    for (allocation, expected) in [
        (
            &waits.allocation_id,
            &["requested", "outcome", "waiting", "ended", "outcome"][..],
        ),
        (
            &runs,
            &[
                "requested",
                "outcome",
                "placed",
                "started",
                "stopping",
                "outcome",
                "ended",
            ],
        ),
    ] {
        let of = events
            .iter()
            .filter(|event| event.allocation_id == *allocation);
        let mut kinds: Vec<_> = of.clone().map(kind).collect();
        let mut expected = expected.to_vec();
        // The run's start and the cancel come from two services, in either order.
        kinds.sort_unstable();
        expected.sort_unstable();
        assert_eq!(kinds, expected);
        let causes = of.filter_map(|event| match &event.kind {
            Some(Kind::Ended(end)) => Some(end.cause()),
            _ => None,
        });
        assert_eq!(causes.collect::<Vec<_>>(), [EndCause::Cancelled]);
    }
    suite.assert_verified().await;
    suite.close().await;
    Ok(())
}
