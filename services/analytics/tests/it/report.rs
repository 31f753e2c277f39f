//! What a report asks, against figures that were worked out by hand.

use crate::common::{CELL, Database, Journal, Outcome, token};
use analytics::store::{
    CapacityLine, Closing, CostLine, EndLine, LongWait, Mark, SizeLine, Span, Spender, SpentLine,
    Store, WaitLine,
};
use vocab::{AllocationNo, HOUR_MS, Millis, Month};

/// 2026-11-01 00:00 UTC.
const NOVEMBER: i64 = 1_793_491_200_000;
const GIB: u64 = 1 << 30;
/// Of a core or a GPU, in unit-milliseconds.
const HOURS: i128 = 1000 * HOUR_MS as i128;
const SPAN: Span = Span {
    from: Millis(NOVEMBER + 2 * HOUR_MS),
    until: Millis(NOVEMBER + 5 * HOUR_MS),
};

fn at(minutes: i64) -> i64 {
    NOVEMBER + minutes * 60_000
}

/// On one node with 64 cores and 8 GPUs. `a` has 4 cores and a GPU from 1:00 on, is sent away at 3:00, goes on at 3:15
/// and ends at 5:00. `b` has half a core from 2:00 to 2:30, and 5 cores with half a GPU from 4:00 on, still at 6:00.
async fn filled() -> Result<(Database, Store), Box<dyn std::error::Error>> {
    filled_with(|_| ()).await
}

/// With more, before the last event.
async fn filled_with(
    more: impl FnOnce(&mut Journal),
) -> Result<(Database, Store), Box<dyn std::error::Error>> {
    let (database, store) = Database::store().await?;
    let mut journal = Journal::default();
    journal.node(at(0), "n", Some("T4"));
    journal.rate("cpu", 1_000_000, 0, 1);
    journal.start(1, "a", "n", (4000, GIB, 1000), at(60));
    journal.start(2, "b", "n", (500, GIB, 0), at(120));
    journal.end(2, at(150));
    journal.requeue(1, at(180));
    journal.start_again(1, "n", at(195));
    journal.start(3, "b", "n", (5000, GIB, 500), at(240));
    journal.end(1, at(300));
    more(&mut journal);
    journal.node(at(360), "m", None);
    store.apply(&journal.batch()).await?;
    Ok((database, store))
}

#[tokio::test]
async fn capacity_is_told_apart_by_state_and_costs_what_it_is_worth() -> Outcome {
    let (database, store) = filled().await?;
    // Hundredths of a core, by the hour.
    let line = |hour: i64, allocated: i128| CapacityLine {
        begins_ms: NOVEMBER + hour * HOUR_MS,
        resource: "cpu".to_owned(),
        allocated: allocated * HOURS / 100,
        reserved: 0,
        idle: (6400 - allocated) * HOURS / 100,
        cordoned: 0,
        unavailable: 0,
    };
    let found = store.capacity(SPAN).await?;
    let cpu: Vec<_> = found.iter().filter(|line| line.resource == "cpu").collect();
    assert_eq!(cpu, [&line(2, 425), &line(3, 300), &line(4, 900)]);
    let resources: Vec<_> = found[..3].iter().map(|line| &line.resource).collect();
    assert_eq!(resources, ["cpu", "gpu:T4", "memory"]);
    let costs = store.platform_costs(SPAN).await?;
    let idle = CostLine {
        resource: "cpu".to_owned(),
        state: "idle".to_owned(),
        quantity: (3 * 6400 - 425 - 300 - 900) * HOURS / 100,
        amount_micro: 175_750_000,
    };
    let of_cpu: Vec<_> = costs.iter().filter(|line| line.resource == "cpu").collect();
    assert_eq!(of_cpu, [&idle]);
    database.drop().await
}

#[tokio::test]
async fn who_spends_most_comes_first() -> Outcome {
    let (database, store) = filled().await?;
    let memory = |minutes: i128| i128::from(GIB) * minutes * 60_000;
    let line =
        |tenant: &str, queue: &str, job_set: &str, cpu: i128, minutes, gpu: i128| SpentLine {
            tenant: tenant.to_owned(),
            team: String::new(),
            queue: queue.to_owned(),
            job_set: job_set.to_owned(),
            cpu: cpu * HOURS / 100,
            memory: memory(minutes),
            gpu: gpu * HOURS / 100,
            amount_micro: cpu * 10_000,
        };
    let both = |a: (&str, &str, &str), b: (&str, &str, &str)| {
        [
            line(a.0, a.1, a.2, 1100, 165, 275),
            line(b.0, b.1, b.2, 525, 90, 50),
        ]
    };
    for (by, expected) in [
        (Spender::Tenant, both(("a", "", ""), ("b", "", ""))),
        (Spender::Team, both(("a", "", ""), ("b", "", ""))),
        (Spender::JobSet, both(("a", "", "jobs"), ("b", "", "jobs"))),
        (Spender::Queue, both(("", "a", ""), ("", "b", ""))),
    ] {
        assert_eq!(store.spenders(SPAN, by, 9).await?, expected, "{by:?}");
        assert_eq!(store.spenders(SPAN, by, 1).await?, expected[..1], "{by:?}");
    }
    // Since 1:00 and up to 6:00: `a` 4 cores for 3:45, `b` half a core for 0:30 and 5 for 2:00.
    let amounts = store.month_amounts().await?;
    let amounts = amounts
        .iter()
        .map(|of| (of.tenant.as_str(), of.amount_micro));
    let expected = [("a", 15_000_000), ("b", 10_250_000)];
    assert_eq!(amounts.collect::<Vec<_>>(), expected);
    database.drop().await
}

#[tokio::test]
async fn runs_are_cut_to_the_stretch() -> Outcome {
    let (database, store) = filled().await?;
    let memory = |minutes: i128| i128::from(GIB) * minutes * 60_000;
    let ended = |cause: &str, runs, cpu: i128, minutes, gpu: i128| EndLine {
        cause: cause.to_owned(),
        runs,
        cpu: cpu * HOURS / 100,
        memory: memory(minutes),
        gpu: gpu * HOURS / 100,
    };
    let expected = [
        ended("finished", 2, 725, 135, 175),
        ended("preempted", 1, 400, 60, 100),
    ];
    assert_eq!(store.ends(SPAN).await?, expected);
    let size = |resource: &str, up_to_milli, runs, quantity: i128| SizeLine {
        resource: resource.to_owned(),
        up_to_milli,
        runs,
        quantity: quantity * HOURS / 100,
    };
    let expected = [
        size("cpu", 999, 1, 25),
        size("cpu", 4000, 2, 1100),
        size("cpu", 8000, 1, 500),
        size("gpu", 0, 1, 0),
        size("gpu", 999, 1, 50),
        size("gpu", 1000, 2, 275),
    ];
    assert_eq!(store.sizes(SPAN).await?, expected);
    database.drop().await
}

/// Beside what `filled` has, `a` waits in vain from 3:30 to 4:45, and so does `c` from 4:00 to 4:10.
#[tokio::test]
async fn waits_end_with_a_place_within_the_stretch() -> Outcome {
    let (database, store) = filled_with(|journal| {
        journal.request(4, "a", (1000, GIB, 0), at(210));
        journal.request(5, "c", (1000, GIB, 0), at(240));
        journal.end(5, at(250));
        journal.end(4, at(285));
    })
    .await?;
    let waited = |queue: &str, (placed, unplaced), ms| WaitLine {
        queue: queue.to_owned(),
        placed,
        unplaced,
        p50_ms: ms,
        p90_ms: ms,
        p99_ms: ms,
        max_ms: ms,
    };
    // What never got a place is counted, and its wait is in no figure.
    assert_eq!(
        store.waits(SPAN).await?,
        [
            waited("a", (1, 1), Some(900_000)),
            waited("b", (1, 0), Some(0)),
            waited("c", (0, 1), None),
        ]
    );
    let longest = LongWait {
        allocation: AllocationNo(1).id(CELL).to_string().parse()?,
        tenant: "a".to_owned(),
        team: String::new(),
        queue: "a".to_owned(),
        job_set: "jobs".to_owned(),
        queued_ms: at(180),
        waited_ms: 900_000,
        reason: String::new(),
        ended_by: String::new(),
    };
    let found = store.longest_waits(SPAN, 9).await?;
    assert_eq!(found[1], longest);
    let of = |line: &LongWait| (line.queue.clone(), line.waited_ms, line.ended_by.clone());
    let expected = [
        ("a", 4_500_000, "finished"),
        ("a", 900_000, ""),
        ("c", 600_000, "finished"),
    ];
    let expected = expected.map(|(queue, ms, by)| (queue.to_owned(), ms, by.to_owned()));
    assert_eq!(found.iter().map(of).collect::<Vec<_>>(), expected);
    database.drop().await
}

#[tokio::test]
async fn the_tables_say_how_far_they_are() -> Outcome {
    let (database, store) = filled().await?;
    let found = store.mark().await?;
    let expected = Mark {
        through_ms: at(360),
        after_lsn: 0,
        lsn: found.lsn,
    };
    assert_eq!(found, expected);
    assert_eq!(store.through().await?.0, found.lsn);
    assert_eq!(store.closing(Month(202_611)).await?, None);
    let empty = Span::of(Month(202_612));
    assert_eq!(store.waits(empty).await?, []);
    assert_eq!(store.capacity(empty).await?, []);
    database.drop().await
}

#[tokio::test]
async fn a_month_is_closed_with_all_before_it() -> Outcome {
    let (database, store) = Database::store().await?;
    let mut journal = Journal::default();
    journal.node(at(0), "n", None);
    journal.close(at(120), Month(202_610), 1);
    store.apply(&journal.batch()).await?;
    let closing = Closing {
        closed_ms: at(120),
        lsn: 2,
    };
    for (month, expected) in [
        (202_609, Some(closing)),
        (202_610, Some(closing)),
        (202_611, None),
    ] {
        assert_eq!(store.closing(Month(month)).await?, expected, "{month}");
    }
    database.drop().await
}

/// Checks an ended run and a running one.
#[tokio::test]
async fn the_parts_of_an_hour_have_their_names_and_all_models() -> Outcome {
    let (database, store) = filled().await?;
    let part = async |tenant: &str, resource: &str| -> Result<_, Box<dyn std::error::Error>> {
        let parts = store
            .parts(&token(tenant), Millis(at(240)), Some(resource))
            .await?;
        let parts = parts.into_iter();
        let parts = parts.map(|part| (part.name, part.resource, part.amount, part.ended_ms));
        Ok(parts.collect::<Vec<_>>())
    };
    let of = |name: &str, resource: &str, amount, ended_ms| {
        (name.to_owned(), resource.to_owned(), amount, ended_ms)
    };
    for resource in ["gpu", "gpu:T4"] {
        let ended = of("run-1", "gpu:T4", 1000, at(300));
        assert_eq!(part("a", resource).await?, [ended], "{resource}");
        let running = of("run-3", "gpu:T4", 500, 0);
        assert_eq!(part("b", resource).await?, [running], "{resource}");
    }
    assert_eq!(part("a", "gpu:V100").await?, []);
    assert_eq!(part("b", "cpu").await?, [of("run-3", "cpu", 5000, 0)]);
    database.drop().await
}

/// Planning a statement takes most of its time where there are few rows, and the server plans a view again at each place that names
/// it. So a view names each other view once.
#[tokio::test]
async fn a_view_reads_the_views_below_it_once() -> Outcome {
    let (database, _store) = filled().await?;
    let reads = async |view: &str| -> Result<usize, Box<dyn std::error::Error>> {
        // Otherwise it writes each expression out, which takes gigabytes.
        let query = format!("EXPLAIN pretty = 0 SELECT * FROM {view}");
        let lines: Vec<String> = database.client.query(&query).fetch_all().await?;
        let reads = lines
            .iter()
            .filter(|line| line.contains("ReadFromMergeTree") && line.contains("usage_hourly"));
        Ok(reads.count())
    };
    let bill = reads("chargeback_hourly").await?;
    let (costs, runs) = (
        reads("platform_cost_hourly").await?,
        reads("run_costs").await?,
    );
    let days = reads("demand_days").await?;
    assert!(bill > 0 && days > 0);
    let check = async |view: &str, most: usize| -> Outcome {
        let found = reads(view).await?;
        assert!(
            found <= most,
            "{view}: {found} reads, expected at most {most}"
        );
        Ok(())
    };
    for method in ["none", "proportional", "equal", "cost_centre"] {
        let shares = format!(
            "cost_shares(month = '2026-11-01', method = '{method}', cost_centre = 'c', credited = '')"
        );
        check(&shares, bill + costs + runs).await?;
    }
    // And the first hour of each tenant.
    check("demand_days", bill + 1).await?;
    check("month_forecast", bill + 2 * days).await?;
    check("budget_forecast", bill + days + runs).await?;
    database.drop().await
}
