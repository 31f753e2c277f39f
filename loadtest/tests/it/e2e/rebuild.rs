//! From the feed alone, over the real bus, follows where every allocation stands.

use crate::e2e::suite::{Outcome, Suite, eventually, id, small};
use client::{Allocations, Client, Of, Position, Stands, Submit};
use schemas::{
    ToProst as _,
    v1::{AllocationSpec, RunPhase},
};
use std::collections::BTreeMap;
use vocab::fact::{
    AllocationEnded, AllocationPlaced, AllocationReprioritised, AllocationRequested,
    AllocationRequeued, AllocationStarted, AllocationStopping, AllocationWaiting, QuotaDenied,
    QuotaWaiting,
};
use vocab::{AllocationNo, At, Event};

/// An allocation in a few words: what it asks for, its priority and where it stands.
type Words = (AllocationSpec, i32, String);

fn from_feed(allocations: &Allocations) -> BTreeMap<String, Words> {
    let words = |(id, state): (&str, &client::AllocationState)| {
        let stands = match &state.stands {
            Stands::Requested => "requested".to_owned(),
            Stands::Waiting(waiting) => format!("waits {}", waiting.reason),
            Stands::Requeued(requeued) => format!("requeued {}", requeued.cause),
            Stands::Placed => format!("placed {}", node(state)),
            Stands::Started => {
                let at = state.started_ms.unwrap_or_default();
                format!("runs on {} since {at}", node(state))
            }
            Stands::Stopping => format!("stops on {}", node(state)),
            Stands::Ended(ended) => format!("ended {} at {}", ended.cause, ended.ended_ms),
            Stands::Denied(refusal) => format!("denied {}", refusal.rule),
        };
        let spec = state.spec.clone().unwrap_or_default();
        (id.to_owned(), (spec, state.priority, stands))
    };
    allocations.iter().map(words).collect()
}

fn node(state: &client::AllocationState) -> &str {
    state
        .placed
        .as_ref()
        .map_or("", |placed| placed.node.as_str())
}

/// The same from the ledger, by the test's own reading.
fn from_ledger(suite: &Suite, events: &[(At, Event)], tenant: &str) -> BTreeMap<String, Words> {
    let mut all: BTreeMap<AllocationNo, (Words, String)> = BTreeMap::new();
    for (at, event) in events {
        if let Event::AllocationRequested(AllocationRequested { operation, spec }) = event {
            if operation.tenant.as_str() == tenant {
                let words = (spec.to_prost(), spec.priority, "requested".to_owned());
                all.insert(AllocationNo(at.no.0), (words, String::new()));
            }
            continue;
        }
        let Some((allocation, stands)) = step(event) else {
            continue;
        };
        let Some((words, node)) = all.get_mut(&allocation) else {
            continue;
        };
        if let Event::AllocationPlaced(AllocationPlaced { node: chosen, .. }) = event {
            *node = chosen.to_string();
        }
        match stands {
            Step::Priority(priority) => words.1 = priority,
            Step::Stands(text) => words.2 = text.replace('@', node),
        }
    }
    let id = |no: AllocationNo| no.id(suite.cell_no()).to_string();
    all.into_iter()
        .map(|(no, (words, _))| (id(no), words))
        .collect()
}

enum Step {
    Priority(i32),
    /// With `@` for the node.
    Stands(String),
}

fn step(event: &Event) -> Option<(AllocationNo, Step)> {
    let stands = |allocation: &AllocationNo, text: String| Some((*allocation, Step::Stands(text)));
    match event {
        Event::AllocationReprioritised(AllocationReprioritised {
            allocation,
            priority,
        }) => Some((*allocation, Step::Priority(*priority))),
        Event::AllocationWaiting(AllocationWaiting {
            allocation, reason, ..
        }) => stands(allocation, format!("waits {}", *reason as i32)),
        Event::QuotaWaiting(QuotaWaiting { allocation, .. }) => {
            stands(allocation, "waits 15".to_owned())
        }
        Event::QuotaDenied(QuotaDenied {
            allocation,
            refusal,
        }) => stands(allocation, format!("denied {}", refusal.rule.number())),
        Event::AllocationPlaced(AllocationPlaced { allocation, .. }) => {
            stands(allocation, "placed @".to_owned())
        }
        Event::AllocationStarted(AllocationStarted { allocation, at }) => {
            stands(allocation, format!("runs on @ since {}", at.0))
        }
        Event::AllocationStopping(AllocationStopping { allocation, .. }) => {
            stands(allocation, "stops on @".to_owned())
        }
        Event::AllocationRequeued(AllocationRequeued {
            allocation, cause, ..
        }) => stands(allocation, format!("requeued {}", *cause as i32)),
        Event::AllocationEnded(AllocationEnded {
            allocation,
            cause,
            at,
            ..
        }) => stands(allocation, format!("ended {} at {}", *cause as i32, at.0)),
        _ => None,
    }
}

async fn read(tenant: &Client) -> Allocations {
    let mut allocations = Allocations::default();
    let mut after = Position::default();
    loop {
        let page = tenant.page(after, None, 13, 0).await.expect("a page");
        for event in &page.events {
            allocations.take(event);
        }
        match page.events.last() {
            Some(last) if page.more => after = Position::from(last),
            _ => return allocations,
        }
    }
}

#[tokio::test]
async fn the_feed_says_where_every_allocation_stands() -> Outcome {
    let suite = Suite::start().await;
    let mut agent = suite.node("n1").await;
    let tenant = suite.tenant("tenant-a").await;
    let submit = |cpu_milli| Submit {
        cpu_milli,
        job_set: "set".to_owned(),
        ..small("s")
    };
    // Runs to its end, is cancelled where it waits, waits for ever, is denied, stays where it was placed.
    let runs = tenant.submit(submit(100), id()).await?;
    let cancelled = tenant.submit(submit(900_000), id()).await?;
    let waits = tenant.submit(submit(900_000), id()).await?;
    crate::e2e::suite::set_quota(&suite.operator().await, "tenant-a", "pods", 4).await;
    let stays = tenant.submit(submit(200), id()).await?;
    let denied = tenant.submit(submit(100), id()).await;
    assert!(denied.is_err(), "{denied:?}");
    agent.run(&runs.allocation_id, 5).await;
    tenant.cancel(&cancelled.allocation_id, id()).await?;
    let one = Of::Allocation(waits.allocation_id.clone());
    assert_eq!(tenant.set_priority(one, 7, id()).await?.allocations, 1);
    let rest = Of::JobSet("set".to_owned());
    assert_eq!(tenant.set_priority(rest, 9, id()).await?.allocations, 2);
    eventually("the same from both", || async {
        let fed = from_feed(&read(&tenant).await);
        let ledger = from_ledger(&suite, &suite.events().await, "tenant-a");
        let over = ledger.values().filter(|words| words.2.starts_with("ended"));
        (fed == ledger && over.count() == 2 && ledger.len() == 5).then_some(())
    })
    .await;
    let known = read(&tenant).await;
    let placed = known.get(&stays.allocation_id).map(|state| &state.stands);
    assert_eq!(placed, Some(&Stands::Placed));
    let other = suite.tenant("tenant-b").await;
    assert!(read(&other).await.is_empty());
    suite.assert_healthy(&other).await;
    suite.close().await;
    Ok(())
}

#[tokio::test]
async fn a_job_set_is_followed_to_its_end_from_anywhere() -> Outcome {
    let suite = Suite::start().await;
    let mut agent = suite.node("n1").await;
    let tenant = suite.tenant("tenant-a").await;
    let submit = |job_set: &str| Submit {
        job_set: job_set.to_owned(),
        ..small("s")
    };
    let submits = (0..4).map(|i| (format!("op-{i}"), submit("followed")));
    let mut ids = Vec::new();
    for (_, submitted) in tenant.submit_all(submits).await {
        ids.push(submitted?.allocation_id);
    }
    // Another job set's never ends.
    tenant.submit(submit("beside"), id()).await?;
    let mut watch = tenant
        .watch_job_set("followed", Position::default())
        .await?;
    let mut seen = watch.next_page().await?.expect("it is under way");
    let middle = Position::from(&seen[seen.len() / 2]);
    for id in &ids[..3] {
        agent.run(id, 1).await;
    }
    let ended = |_: &At, event: &Event| matches!(event, Event::AllocationEnded(_)).then_some(());
    suite.events_of("three ends", 3, ended).await;
    let cancel = tenant.cancel_job_set("followed", id()).await?;
    assert_eq!(cancel.allocations, 1);
    let stop = agent.assignment(&ids[3], true).await;
    let end = stop.placed_ms + 1;
    chassis::Clock::real().sleep_until(end).await;
    agent.report(&ids[3], RunPhase::FinishedOk, end).await;
    while let Some(page) = watch.next_page().await? {
        seen.extend(page);
    }
    assert!(watch.allocations().all_over());
    assert_eq!(watch.allocations().len(), 4);
    assert_eq!(
        tenant
            .feed_page(Position::default(), Some("followed"), 0)
            .await?,
        seen
    );
    let mut resumed = tenant.watch_job_set("followed", middle).await?;
    let mut rest = Vec::new();
    while let Some(page) = resumed.next_page().await? {
        rest.extend(page);
    }
    let behind: Vec<_> = seen
        .iter()
        .filter(|event| Position::from(*event) > middle)
        .cloned()
        .collect();
    assert_eq!(rest, behind);
    assert_eq!(resumed.allocations(), watch.allocations());
    assert_eq!(resumed.position(), watch.position());
    suite.close().await;
    Ok(())
}
