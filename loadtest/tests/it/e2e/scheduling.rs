//! Queues, priorities, gangs and what nodes let on: a selection of the conformance table's rows, by the bus.

use crate::e2e::{
    agent::Agent,
    journey::feed_until,
    suite::{GIB, Outcome, Suite, id, small},
};
use client::{Client, GangRequest, SetCordon, SetPriorityClass, Submit, Submitted, Toleration};
use futures::future::join_all;
use schemas::v1::{
    EndCause, Label, NodeCapacity, PlacementRules, PreemptionCause, RunPhase, Taint, WaitingReason,
    submitted::State, tenant_event::Kind,
};
use std::collections::{BTreeMap, BTreeSet};
use vocab::fact::{AllocationPlaced, PendingGroupExplained};
use vocab::{AllocationNo, Event, Lsn};

/// 32 cores and 256 GiB.
fn n(label: Option<&str>) -> NodeCapacity {
    let zone = |value: &str| Label {
        name: "zone".to_owned(),
        value: value.to_owned(),
    };
    NodeCapacity {
        cpu_milli: 32_000,
        memory_bytes: 256 * GIB as u64,
        labels: label.map(zone).into_iter().collect(),
        ..NodeCapacity::default()
    }
}

/// 1 core and 4 GiB.
fn s() -> Submit {
    Submit {
        cpu_milli: 1_000,
        memory_bytes: 4 * GIB,
        ..small("s")
    }
}

fn class(name: &str) -> Submit {
    Submit {
        priority_class: name.to_owned(),
        ..s()
    }
}

fn gang(name: &str, size: i64, label: &str, cores: i64) -> Submit {
    Submit {
        cpu_milli: cores * 1_000,
        gang: Some(GangRequest {
            name: name.to_owned(),
            size,
            min: 0,
            uniform_label: label.to_owned(),
        }),
        ..s()
    }
}

/// All at once.
async fn submit(tenant: &Client, count: usize, asked: &Submit) -> Vec<Submitted> {
    let one = |_| tenant.submit(asked.clone(), id());
    let all = join_all((0..count).map(one)).await;
    let decided = all
        .into_iter()
        .map(|submitted| submitted.expect("accepted"));
    decided.collect()
}

fn reasons(submitted: &[Submitted]) -> BTreeSet<WaitingReason> {
    let reason = |submitted: &Submitted| match &submitted.state {
        Some(State::Waiting(waiting)) => waiting.reason(),
        other => panic!("it does not wait: {other:?}"),
    };
    submitted.iter().map(reason).collect()
}

/// Where and when each was placed, once so many are.
async fn placed(suite: &Suite, count: usize) -> BTreeMap<String, (String, Lsn)> {
    let placement = |at: &vocab::At, event: &Event| match event {
        Event::AllocationPlaced(AllocationPlaced {
            allocation, node, ..
        }) => Some((text(suite, *allocation), (node.to_string(), at.lsn))),
        _ => None,
    };
    let all = suite.events_of("the placements", count, placement).await;
    let placed: BTreeMap<_, _> = all.iter().cloned().collect();
    assert_eq!(
        (placed.len(), all.len()),
        (count, count),
        "no more, none twice"
    );
    placed
}

fn text(suite: &Suite, allocation: AllocationNo) -> String {
    allocation.id(suite.cell_no()).to_string()
}

fn among(of: &[Submitted], placed: &BTreeMap<String, (String, Lsn)>) -> usize {
    let is_placed = |one: &&Submitted| placed.contains_key(&one.allocation_id);
    of.iter().filter(is_placed).count()
}

/// Row 1: two queues with the same claim share a node evenly.
#[tokio::test]
async fn two_queues_share_a_node() -> Outcome {
    let suite = Suite::start().await;
    let (a, b) = (
        suite.tenant("tenant-a").await,
        suite.tenant("tenant-b").await,
    );
    let asked = s();
    let (of_a, of_b) = tokio::join!(submit(&a, 32, &asked), submit(&b, 32, &asked));
    let none_yet = BTreeSet::from([WaitingReason::NoNodeReady]);
    assert_eq!(
        (reasons(&of_a), reasons(&of_b)),
        (none_yet.clone(), none_yet)
    );
    let _node = suite.node_with("n1", n(None)).await;
    let placed = placed(&suite, 32).await;
    assert_eq!((among(&of_a, &placed), among(&of_b, &placed)), (16, 16));
    suite.assert_verified().await;
    suite.close().await;
    Ok(())
}

async fn set_class(operator: &Client, name: &str, value: i32, preemptible: bool) {
    let class = SetPriorityClass {
        priority_class: name.to_owned(),
        value,
        preemptible,
        preempts: true,
        grace_ms: 60_000,
        ..SetPriorityClass::default()
    };
    let set = operator.set_priority_class(class, id()).await;
    set.expect("a new class");
}

/// Row 7: the youngest of a lower priority makes room, is told so, and waits again.
#[tokio::test]
async fn a_higher_priority_sends_the_youngest_back() -> Outcome {
    let suite = Suite::start().await;
    let operator = suite.operator().await;
    set_class(&operator, "low", 2, true).await;
    set_class(&operator, "high", 3, false).await;
    let (a, b) = (
        suite.tenant("tenant-a").await,
        suite.tenant("tenant-b").await,
    );
    let mut agent = suite.node_with("n1", n(None)).await;
    let mut of_a = Vec::new();
    // One after the other, so that it is known who is the youngest.
    for _ in 0..32 {
        of_a.extend(submit(&a, 1, &class("low")).await);
    }
    let beyond = submit(&a, 1, &class("low")).await;
    assert_eq!(reasons(&beyond), BTreeSet::from([WaitingReason::NoRoomNow]));
    assert_eq!(among(&of_a, &placed(&suite, 32).await), 32);

    let victim = of_a[31].allocation_id.clone();
    let high = submit(&b, 1, &class("high")).await;
    assert!(matches!(high[0].state, Some(State::Waiting(_))), "{high:?}");
    let stop = agent.assignment(&victim, true).await;
    assert!(stop.stop_by_ms > stop.placed_ms, "{stop:?}");
    agent
        .report(&victim, RunPhase::FinishedOk, stop.placed_ms)
        .await;
    let comes = agent.assignment(&high[0].allocation_id, false).await;
    assert_eq!(comes.stop_by_ms, 0);

    let requeued = |kind: &Kind| matches!(kind, Kind::Requeued(_));
    let events = feed_until(&a, requeued).await;
    let of_victim: Vec<_> = events
        .iter()
        .filter(|event| event.allocation_id == victim)
        .filter_map(|event| event.kind.as_ref())
        .collect();
    let preempted = of_victim.iter().find_map(|kind| match kind {
        Kind::Preempted(preempted) => Some((preempted.cause(), preempted.grace_until_ms)),
        _ => None,
    });
    assert_eq!(
        preempted,
        Some((PreemptionCause::Priority, stop.stop_by_ms))
    );
    let again = of_victim.iter().find_map(|kind| match kind {
        Kind::Requeued(requeued) => Some(requeued.cause()),
        _ => None,
    });
    assert_eq!(again, Some(EndCause::Preempted));
    let stays = placed(&suite, 33).await;
    assert_eq!((among(&of_a, &stays), among(&high, &stays)), (32, 1));
    assert_eq!(among(&beyond, &stays), 0);
    suite.assert_verified().await;
    suite.close().await;
    Ok(())
}

/// Row 10: all of a gang, at one moment, or none.
#[tokio::test]
async fn a_gang_is_placed_whole_or_not_at_all() -> Outcome {
    let suite = Suite::start().await;
    let tenant = suite.tenant("tenant-a").await;
    let _node = suite.node_with("n1", n(None)).await;
    let too_many = submit(&tenant, 33, &gang("too-many", 33, "", 1)).await;
    let waiting = reasons(&too_many);
    let expected = BTreeSet::from([WaitingReason::GangIncomplete, WaitingReason::GangNoRoom]);
    assert!(waiting.is_subset(&expected), "{waiting:?}");
    let fitting = submit(&tenant, 32, &gang("fitting", 32, "", 1)).await;
    let placed = placed(&suite, 32).await;
    assert_eq!(
        (among(&fitting, &placed), among(&too_many, &placed)),
        (32, 0)
    );
    let moments: BTreeSet<Lsn> = placed.values().map(|(_, lsn)| *lsn).collect();
    assert_eq!(moments.len(), 1);
    suite.assert_verified().await;
    suite.close().await;
    Ok(())
}

/// Row 11: a gang stays within one value of its label.
#[tokio::test]
async fn a_gang_keeps_to_one_value_of_its_label() -> Outcome {
    let suite = Suite::start().await;
    let tenant = suite.tenant("tenant-a").await;
    let mut nodes: Vec<Agent> = Vec::new();
    for (name, zone) in [
        ("a1", "a"),
        ("a2", "a"),
        ("b1", "b"),
        ("b2", "b"),
        ("b3", "b"),
    ] {
        nodes.push(suite.node_with(name, n(Some(zone))).await);
    }
    let nowhere = submit(&tenant, 2, &gang("nowhere", 2, "rack", 1)).await;
    let first = |_: &_, event: &Event| match event {
        Event::PendingGroupExplained(PendingGroupExplained { reason, .. }) => Some(*reason),
        _ => None,
    };
    let said = suite.events_of("why it waits", 1, first).await;
    assert_eq!(said.last(), Some(&vocab::WaitingReason::NoUniformLabel));
    let gang = submit(&tenant, 3, &gang("wide", 3, "zone", 32)).await;
    let placed = placed(&suite, 3).await;
    assert_eq!((among(&gang, &placed), among(&nowhere, &placed)), (3, 0));
    let on: BTreeSet<&str> = placed.values().map(|(node, _)| node.as_str()).collect();
    assert_eq!(on, BTreeSet::from(["b1", "b2", "b3"]));
    suite.assert_verified().await;
    suite.close().await;
    Ok(())
}

fn taint() -> Taint {
    Taint {
        key: "maintenance".to_owned(),
        ..Taint::default()
    }
}

async fn cordon(operator: &Client, cordoned: bool) {
    let change = SetCordon {
        node: "n1".to_owned(),
        cordoned,
        ..SetCordon::default()
    };
    let set = operator.set_cordon(change, id()).await;
    set.expect("any node may be cordoned");
}

/// Row 12: a cordoned node keeps what runs and takes nothing; a taint keeps off who does not tolerate it.
#[tokio::test]
async fn cordons_and_taints_keep_off() -> Outcome {
    let suite = Suite::start().await;
    let (operator, tenant) = (suite.operator().await, suite.tenant("tenant-a").await);
    let mut first = suite.node_with("n1", n(None)).await;
    let tainted = NodeCapacity {
        taints: vec![taint()],
        ..n(None)
    };
    let mut second = suite.node_with("n2", tainted).await;
    let keeps = submit(&tenant, 1, &s()).await;
    first.assignment(&keeps[0].allocation_id, false).await;

    cordon(&operator, true).await;
    let waits = submit(&tenant, 1, &s()).await;
    reasons(&waits);
    let tolerant = Submit {
        rules: Some(PlacementRules {
            tolerations: vec![Toleration {
                key: "maintenance".to_owned(),
                ..Toleration::default()
            }],
            ..PlacementRules::default()
        }),
        ..s()
    };
    let tolerates = submit(&tenant, 1, &tolerant).await;
    second.assignment(&tolerates[0].allocation_id, false).await;
    assert_eq!(among(&waits, &placed(&suite, 2).await), 0);

    cordon(&operator, false).await;
    first.assignment(&waits[0].allocation_id, false).await;
    let running = first.sync().await.expect("the inbox answers").assignments;
    let running: BTreeSet<&str> = running
        .iter()
        .map(|one| one.allocation_id.as_str())
        .collect();
    let both = [&keeps[0], &waits[0]].map(|one| one.allocation_id.as_str());
    assert_eq!(running, BTreeSet::from(both));
    suite.assert_verified().await;
    suite.close().await;
    Ok(())
}

/// Bounds of time hold by the cell's clock, and are told with their causes.
#[tokio::test]
async fn what_is_not_placed_expires_and_a_run_ends_at_its_limit() -> Outcome {
    let suite = Suite::start().await;
    let tenant = suite.tenant("tenant-a").await;
    let mut agent = suite.node_with("n1", n(None)).await;
    let waits = Submit {
        cpu_milli: 64_000,
        ttl_ms: 300,
        ..s()
    };
    let runs = Submit {
        time_limit_ms: 500,
        retries: 3,
        ..s()
    };
    let waits = submit(&tenant, 1, &waits).await.remove(0).allocation_id;
    let runs = submit(&tenant, 1, &runs).await.remove(0).allocation_id;
    let assigned = agent.assignment(&runs, false).await;
    agent
        .report(&runs, RunPhase::Started, assigned.placed_ms)
        .await;
    let stop = agent.assignment(&runs, true).await;
    assert_eq!(stop.stop_by_ms, 0, "the agent's own grace");
    agent
        .report(&runs, RunPhase::FailedRun, stop.placed_ms + 600)
        .await;
    let is_over = |kind: &Kind| matches!(kind, Kind::Ended(end) if end.started_ms > 0);
    let events = feed_until(&tenant, is_over).await;
    let of = |allocation: &str| -> Vec<EndCause> {
        let of = events
            .iter()
            .filter(|event| event.allocation_id == *allocation);
        let causes = of.filter_map(|event| match &event.kind {
            Some(Kind::Ended(end)) => Some(end.cause()),
            _ => None,
        });
        causes.collect()
    };
    assert_eq!(of(&waits), [EndCause::Expired]);
    assert_eq!(of(&runs), [EndCause::TimeLimit]);
    let told = |event: &client::TenantEvent| matches!(&event.kind, Some(Kind::Stopping(told)) if told.time_limit);
    assert_eq!(events.iter().filter(|event| told(event)).count(), 1);
    for (allocation, cause) in [(&waits, EndCause::Expired), (&runs, EndCause::TimeLimit)] {
        let last = events.last().expect("an event").lsn;
        let view = tenant.allocation(allocation, last).await?;
        let ended = view.ended.as_ref().map(schemas::v1::Ended::cause);
        assert_eq!(ended, Some(cause), "{view:?}");
    }
    suite.assert_verified().await;
    suite.close().await;
    Ok(())
}

/// Who starts after others may stand in one message with them: it names their operations.
#[tokio::test]
async fn a_dependency_names_an_operation_of_the_same_message() -> Outcome {
    let suite = Suite::start().await;
    let tenant = suite.tenant("tenant-a").await;
    let mut agent = suite.node_with("n1", n(None)).await;
    let after = |operation_id: &str| Submit {
        depends_on: vec![client::DependencyRequest {
            success: true,
            operation_id: operation_id.to_owned(),
            ..client::DependencyRequest::default()
        }],
        ..s()
    };
    let all = tenant
        .submit_all([
            ("first".to_owned(), s()),
            ("second".to_owned(), after("first")),
            ("lost".to_owned(), after("nobody")),
        ])
        .await;
    let ids: Vec<Option<String>> = all
        .iter()
        .map(|(_, done)| done.as_ref().ok().map(|done| done.allocation_id.clone()))
        .collect();
    let [Some(first), Some(second), None] = &ids[..] else {
        panic!("{all:?}");
    };
    let waits = all[1].1.as_ref().expect("accepted").clone();
    assert_eq!(
        reasons(&[waits]),
        BTreeSet::from([WaitingReason::Dependency])
    );
    let assigned = agent.assignment(first, false).await;
    agent
        .report(first, RunPhase::Started, assigned.placed_ms)
        .await;
    agent
        .report(first, RunPhase::FinishedOk, assigned.placed_ms + 1)
        .await;
    agent.assignment(second, false).await;
    suite.assert_verified().await;
    suite.close().await;
    Ok(())
}
