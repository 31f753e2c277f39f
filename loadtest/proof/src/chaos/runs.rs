//! What ran, by what was asked and what the feeds say: for the sum of the bill, and for the witness.

use super::book::{Ask, Asked, Book, Feeds};
use client::TenantEvent;
use replay::{
    drive::Interval,
    workload::{Node, Pod, Qos},
};
use schemas::v1::{EndCause, Placed, tenant_event::Kind};
use std::collections::BTreeMap;
use vocab::Token;

/// The allocations of a tenant's feed that are not over.
pub fn open(feeds: &Feeds) -> Vec<String> {
    let mut open: BTreeMap<&str, &str> = BTreeMap::new();
    for event in feeds.values().flatten() {
        match &event.kind {
            Some(Kind::Requested(_)) => {
                open.insert(&event.allocation_id, &event.name);
            }
            Some(Kind::Ended(_) | Kind::Denied(_)) => {
                open.remove(event.allocation_id.as_str());
            }
            Some(Kind::Outcome(outcome)) if is_refusal(outcome) => {
                open.remove(event.allocation_id.as_str());
            }
            _ => {}
        }
    }
    open.values().map(|name| (*name).to_owned()).collect()
}

fn is_refusal(outcome: &client::Outcome) -> bool {
    use schemas::v1::outcome::Result::Refused;
    matches!(outcome.result, Some(Refused(_)))
}

/// Every allocation by its name, with what its tenant had asked for.
fn asked<'a>(book: &'a Book, feeds: &'a Feeds) -> impl Iterator<Item = (&'a Token, &'a str, Ask)> {
    let all = feeds.iter().flat_map(|(tenant, events)| {
        let requested = events
            .iter()
            .filter(|event| matches!(event.kind, Some(Kind::Requested(_))));
        requested.map(move |event| (tenant, event.name.as_str()))
    });
    all.filter_map(|(tenant, name)| Some((tenant, name, ask_of(book, name)?)))
}

/// A name is the operation's id and how long it runs.
fn ask_of(book: &Book, name: &str) -> Option<Ask> {
    let (id, _) = name.rsplit_once('-')?;
    match book.operation(id)?.asked {
        Asked::Submit(ask) => Some(ask),
        Asked::Cancel | Asked::SetPriority => None,
    }
}

/// As a recorded workload would have them.
pub fn pods(book: &Book, feeds: &Feeds) -> Vec<Pod> {
    let pod = |(tenant, name, ask): (&Token, &str, Ask)| {
        Some(Pod {
            name: Token::new(name).ok()?,
            tenant: tenant.clone(),
            qos: Qos::Other,
            cpu_milli: ask.cpu_milli,
            memory_bytes: ask.memory_bytes,
            gpus: u64::from(ask.gpu_milli > 0),
            gpu_milli: ask.gpu_milli,
            gpu_models: Vec::new(),
            created_ms: 0,
            lifetime_ms: 0,
        })
    };
    asked(book, feeds).filter_map(pod).collect()
}

/// One allocation on its way along its feed.
#[derive(Default)]
struct Way {
    placed: Option<Placed>,
    started_ms: Option<i64>,
}

/// Every run that is over, several of one allocation where its node was lost; in the order of the feeds, and by their times.
pub fn intervals(book: &Book, feeds: &Feeds, nodes: &[Node]) -> Vec<Interval> {
    let mut found = Vec::new();
    for (tenant, events) in feeds {
        let mut ways: BTreeMap<&str, Way> = BTreeMap::new();
        for event in events {
            let way = ways.entry(&event.allocation_id).or_default();
            let (ended_ms, cause) = match &event.kind {
                Some(Kind::Placed(placed)) => {
                    way.placed = Some(placed.clone());
                    continue;
                }
                Some(Kind::Started(_)) => {
                    way.started_ms = Some(event.at_ms);
                    continue;
                }
                Some(Kind::Requeued(requeued)) => (requeued.ended_ms, requeued.cause()),
                Some(Kind::Ended(ended)) => (ended.ended_ms, ended.cause()),
                _ => continue,
            };
            let way = std::mem::take(way);
            if let (Some(placed), Some(started_ms)) = (way.placed, way.started_ms) {
                let run = (placed, started_ms, ended_ms, cause);
                found.extend(interval(book, nodes, (tenant, event), run));
            }
        }
    }
    found
}

fn interval(
    book: &Book,
    nodes: &[Node],
    (tenant, event): (&Token, &TenantEvent),
    (placed, started_ms, ended_ms, cause): (Placed, i64, i64, EndCause),
) -> Option<Interval> {
    let ask = ask_of(book, &event.name)?;
    let node = nodes.iter().find(|node| node.name.as_str() == placed.node);
    let model = node.and_then(|node| node.capacity.gpu_model.as_ref());
    Some(Interval {
        tenant: tenant.to_string(),
        pod: event.name.clone(),
        job_set: event.job_set.clone(),
        node: placed.node,
        gpu_model: model.map_or("", Token::as_str).to_owned(),
        cpu_milli: ask.cpu_milli,
        memory_bytes: ask.memory_bytes,
        gpu_milli: ask.gpu_milli,
        started_ms,
        ended_ms,
        cause: match cause {
            EndCause::Finished => "finished",
            EndCause::NodeLost => "node_lost",
            _ => "other",
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::{agents, flood};
    use schemas::v1::{Ended, Requested, Requeued, Started};
    use std::time::Duration;

    /// Told 5 ms after the agent's moment.
    fn event(lsn: u64, at_ms: i64, kind: Kind) -> TenantEvent {
        TenantEvent {
            lsn,
            now_ms: at_ms + 5,
            allocation_id: "a".to_owned(),
            name: "t-1-500".to_owned(),
            at_ms,
            kind: Some(kind),
            ..TenantEvent::default()
        }
    }

    fn placed() -> Kind {
        Kind::Placed(Placed {
            node: "steady-0".to_owned(),
            ..Placed::default()
        })
    }

    #[test]
    fn a_run_that_its_node_took_along_and_the_one_after_it_both_count() {
        let tenant = Token::new("t").expect("a token");
        let mut book = Book::default();
        let asked = Asked::Submit(flood::ASK);
        book.sent("t-1", &tenant, asked, Duration::ZERO, true);
        let requeued = Requeued {
            cause: EndCause::NodeLost.into(),
            ended_ms: 70,
            ..Requeued::default()
        };
        let ended = |ended_ms| Ended {
            cause: EndCause::Finished.into(),
            ended_ms,
            ..Ended::default()
        };
        let mut events = vec![
            event(1, 0, Kind::Requested(Requested::default())),
            event(2, 40, placed()),
            event(3, 50, Kind::Started(Started {})),
            event(4, 70, Kind::Requeued(requeued)),
            event(5, 75, placed()),
        ];
        let feeds = |events: &[TenantEvent]| Feeds::from([(tenant.clone(), events.to_vec())]);
        let lengths = |events: &[TenantEvent]| -> Vec<(i64, i64)> {
            let runs = intervals(&book, &feeds(events), &agents::nodes());
            runs.iter()
                .map(|run| (run.started_ms, run.ended_ms))
                .collect()
        };
        assert_eq!(open(&feeds(&events)), ["t-1-500"]);
        // It never started again.
        let mut without = events.clone();
        without.push(event(6, 90, Kind::Ended(ended(90))));
        assert_eq!(lengths(&without), [(50, 70)]);
        events.push(event(6, 80, Kind::Started(Started {})));
        events.push(event(7, 95, Kind::Ended(ended(95))));
        assert_eq!(lengths(&events), [(50, 70), (80, 95)]);
        assert!(open(&feeds(&events)).is_empty());
        let pods = pods(&book, &feeds(&events));
        assert_eq!(pods.len(), 1);
        assert_eq!(pods[0].cpu_milli, flood::ASK.cpu_milli);
    }
}
