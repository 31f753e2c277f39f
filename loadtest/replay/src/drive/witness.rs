//! What the tenants' feeds say, and whether it can be true. Shares no code with the deciders.

use crate::workload::Workload;
use client::{Position, TenantEvent};
use schemas::v1::{
    EndCause, GpuShare, WaitingReason, outcome::Result as Decided, tenant_event::Kind,
};
use std::collections::{BTreeMap, BTreeSet};
use vocab::Token;

/// Thousandths of one device.
const DEVICE_MILLI: i64 = 1000;

#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    pub position: Position,
    pub node: String,
    pub gpus: Vec<GpuShare>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Ending {
    pub position: Position,
    pub cause: EndCause,
    /// 0 when it never started, or when it is not said.
    pub started_ms: i64,
    pub ended_ms: i64,
}

/// One allocation's life as its tenant saw it. Lists, because more than one of anything is a finding.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Story {
    pub tenant: String,
    pub name: String,
    pub placed: Vec<Placement>,
    /// Where and when.
    pub started: Vec<(Position, i64)>,
    pub ended: Vec<Ending>,
    /// Runs that were over while the allocation went on.
    pub requeued: Vec<Ending>,
    pub waited: BTreeSet<&'static str>,
}

impl Story {
    /// How what was placed there was given back.
    fn over_after(&self, placed: Position) -> Option<&Ending> {
        let all = self.ended.iter().chain(&self.requeued);
        all.filter(|over| over.position > placed)
            .min_by_key(|over| over.position)
    }

    /// When the run began that was placed there and is over.
    fn started_of(&self, placed: Position, over: Position) -> Option<i64> {
        let of = |(at, _): &&(Position, i64)| *at > placed && *at < over;
        self.started.iter().find(of).map(|(_, ms)| *ms)
    }
}

/// A run that is over, as the feed told it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interval {
    pub tenant: String,
    pub pod: String,
    pub job_set: String,
    pub node: String,
    pub gpu_model: String,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub gpu_milli: u64,
    pub started_ms: i64,
    pub ended_ms: i64,
    pub cause: &'static str,
}

/// All feeds.
#[derive(Debug, Default)]
pub struct Witness {
    stories: BTreeMap<String, Story>,
    /// What happened to something that was not there.
    strange: Vec<String>,
}

/// What cannot be true, in sentences.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// Allocations that were placed, started or ended twice.
    pub twice: Vec<String>,
    /// Nodes or devices that were given out twice.
    pub double_booked: Vec<String>,
    pub strange: Vec<String>,
}

impl Witness {
    /// Events of one tenant come in order; those of several tenants come in any.
    pub fn see(&mut self, tenant: &Token, event: &TenantEvent) {
        let position = Position::from(event);
        let Some(kind) = &event.kind else {
            self.strange.push(format!(
                "an event of {tenant} at {} says nothing",
                event.lsn
            ));
            return;
        };
        if let Kind::Outcome(outcome) = kind
            && !matches!(outcome.result, Some(Decided::Submitted(_)))
        {
            // It made no allocation, or is about one that has its own story.
            return;
        }
        if event.allocation_id.is_empty() || matches!(kind, Kind::Requested(_)) {
            // About named resources, or of one that quota may still refuse.
            return;
        }
        if let Kind::Denied(_) = kind {
            self.stories.remove(&event.allocation_id);
            return;
        }
        let story = self.stories.entry(event.allocation_id.clone()).or_default();
        if story.tenant.is_empty() {
            story.tenant = tenant.to_string();
            story.name.clone_from(&event.name);
        } else if story.tenant != tenant.as_str() {
            let (id, other) = (&event.allocation_id, &story.tenant);
            self.strange
                .push(format!("{id} is in the feeds of {other} and of {tenant}"));
        }
        match kind {
            Kind::Outcome(_)
            | Kind::Stopping(_)
            | Kind::Preempted(_)
            | Kind::Requested(_)
            | Kind::PriorityChanged(_)
            | Kind::Expired(_)
            | Kind::Denied(_) => {}
            Kind::Requeued(requeued) => story.requeued.push(Ending {
                position,
                cause: requeued.cause(),
                started_ms: 0,
                ended_ms: requeued.ended_ms,
            }),
            Kind::Placed(placed) => story.placed.push(Placement {
                position,
                node: placed.node.clone(),
                gpus: placed.gpus.clone(),
            }),
            Kind::Waiting(waiting) => {
                story.waited.insert(reason_name(waiting.reason()));
            }
            Kind::Started(_) => story.started.push((position, event.at_ms)),
            Kind::Ended(ended) => story.ended.push(Ending {
                position,
                cause: ended.cause(),
                started_ms: ended.started_ms,
                ended_ms: ended.ended_ms,
            }),
        }
    }

    pub fn stories(&self) -> &BTreeMap<String, Story> {
        &self.stories
    }

    /// Where the last end of a run stands that had started.
    pub fn last_run_end(&self) -> Position {
        let runs = self
            .stories
            .values()
            .filter(|story| !story.started.is_empty());
        let ends = runs.flat_map(|story| story.ended.iter().map(|ending| ending.position));
        ends.max().unwrap_or_default()
    }

    /// Whether it is over, as far as is known.
    pub fn ended(&self, allocation: &str) -> bool {
        self.stories
            .get(allocation)
            .is_some_and(|story| !story.ended.is_empty())
    }

    /// Whether it still waits, as far as is known.
    pub fn waits(&self, allocation: &str) -> bool {
        let story = self.stories.get(allocation);
        story.is_none_or(|story| {
            story.placed.len() <= story.requeued.len() && story.ended.is_empty()
        })
    }

    /// Allocations that have a place now.
    pub fn placed_now(&self) -> usize {
        let has_place =
            |story: &&Story| story.placed.len() > story.requeued.len() && story.ended.is_empty();
        self.stories.values().filter(has_place).count()
    }

    /// Allocations known, placed, and ended.
    pub fn progress(&self) -> (usize, usize, usize) {
        let placed = self
            .stories
            .values()
            .filter(|story| !story.placed.is_empty())
            .count();
        let ended = self
            .stories
            .values()
            .filter(|story| !story.ended.is_empty())
            .count();
        (self.stories.len(), placed, ended)
    }

    /// How many allocations waited for each reason; one that waited for two counts for both.
    pub fn waiting_reasons(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        for reason in self.stories.values().flat_map(|story| &story.waited) {
            *counts.entry(*reason).or_default() += 1;
        }
        counts
    }

    pub fn ended_by_cause(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        for ending in self.stories.values().flat_map(|story| &story.ended) {
            *counts.entry(cause_name(ending.cause)).or_default() += 1;
        }
        counts
    }

    /// Runs that were over while their allocation went on, by cause.
    pub fn requeued_by_cause(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        for over in self.stories.values().flat_map(|story| &story.requeued) {
            *counts.entry(cause_name(over.cause)).or_default() += 1;
        }
        counts
    }

    pub fn ended_with(&self, allocation: &str, cause: EndCause) -> bool {
        let story = self.stories.get(allocation);
        story.is_some_and(|story| story.ended.iter().any(|ending| ending.cause == cause))
    }

    /// Every run that started and is over, by start. What was asked for is the workload's, what was given is the feed's.
    pub fn intervals(&self, workload: &Workload) -> Vec<Interval> {
        let pods = workload.pods_by_name();
        let models: BTreeMap<&str, &str> = workload
            .nodes
            .iter()
            .map(|node| {
                let model = node.capacity.gpu_model.as_ref().map_or("", Token::as_str);
                (node.name.as_str(), model)
            })
            .collect();
        let mut intervals = Vec::new();
        for story in self.stories.values() {
            let Some(index) = pods.get(story.name.as_str()) else {
                continue;
            };
            let pod = &workload.pods[*index];
            for placed in &story.placed {
                let Some(over) = story.over_after(placed.position) else {
                    continue;
                };
                let Some(started_ms) = story.started_of(placed.position, over.position) else {
                    continue;
                };
                let model = models.get(placed.node.as_str());
                intervals.push(Interval {
                    tenant: story.tenant.clone(),
                    pod: story.name.clone(),
                    job_set: pod.job_set().to_owned(),
                    node: placed.node.clone(),
                    gpu_model: model.copied().unwrap_or_default().to_owned(),
                    cpu_milli: pod.cpu_milli,
                    memory_bytes: pod.memory_bytes,
                    gpu_milli: placed.gpus.iter().map(|gpu| u64::from(gpu.milli)).sum(),
                    started_ms,
                    ended_ms: over.ended_ms,
                    cause: cause_name(over.cause),
                });
            }
        }
        intervals.sort_by(|a, b| (a.started_ms, &a.pod).cmp(&(b.started_ms, &b.pod)));
        intervals
    }

    pub fn findings(&self, workload: &Workload) -> Findings {
        let mut findings = Findings {
            strange: self.strange.clone(),
            double_booked: self.double_booked(workload),
            ..Findings::default()
        };
        for (id, story) in &self.stories {
            let Story { name, .. } = story;
            let runs = 1 + story.requeued.len();
            let counts = [
                ("placed", story.placed.len(), runs),
                ("started", story.started.len(), runs),
                ("ended", story.ended.len(), 1),
            ];
            for (what, count, most) in counts {
                if count > most {
                    findings
                        .twice
                        .push(format!("{name} ({id}) was {what} {count} times"));
                }
            }
            if !story.started.is_empty() && story.placed.is_empty() {
                findings
                    .strange
                    .push(format!("{name} ({id}) started without having been placed"));
            }
            if let (Some(placed), Some(ending)) = (story.placed.last(), story.ended.first())
                && placed.position > ending.position
            {
                findings
                    .strange
                    .push(format!("{name} ({id}) was placed after it had ended"));
            }
            if let (Some((_, started_ms)), Some(ending)) =
                (story.started.last(), story.ended.first())
                && story.requeued.is_empty()
                && (ending.started_ms != *started_ms || ending.ended_ms < *started_ms)
            {
                findings.strange.push(format!(
                    "{name} ({id}) ended with times that are not its start's"
                ));
            }
        }
        findings
    }

    /// Walks along the ledger with every placement and ending, and adds up what each node and device gives out.
    fn double_booked(&self, workload: &Workload) -> Vec<String> {
        let pods = workload.pods_by_name();
        // Endings first where positions are equal, which they never are within one ledger.
        let mut steps: Vec<(Position, i64, &Placement, &str)> = Vec::new();
        for story in self.stories.values() {
            for placed in &story.placed {
                steps.push((placed.position, 1, placed, &story.name));
                if let Some(over) = story.over_after(placed.position) {
                    steps.push((over.position, -1, placed, &story.name));
                }
            }
        }
        steps.sort_by_key(|(position, sign, ..)| (*position, *sign));
        let capacities: BTreeMap<&str, _> = workload
            .nodes
            .iter()
            .map(|node| (node.name.as_str(), &node.capacity))
            .collect();
        let mut devices: BTreeMap<(&str, u32), i64> = BTreeMap::new();
        let mut held: BTreeMap<&str, (i128, i128)> = BTreeMap::new();
        let mut found = Vec::new();
        for (position, sign, placed, name) in steps {
            let node = placed.node.as_str();
            let at = position.lsn;
            let Some(capacity) = capacities.get(node) else {
                found.push(format!(
                    "{name} was placed on {node}, which is none of the nodes, at {at}"
                ));
                continue;
            };
            for share in &placed.gpus {
                let milli = devices.entry((node, share.device)).or_default();
                *milli += sign * i64::from(share.milli);
                let there = share.device < u32::from(capacity.gpus);
                if sign > 0 && (*milli > DEVICE_MILLI || !there) {
                    let device = share.device;
                    found.push(format!(
                        "device {device} of {node} holds {milli} thousandths with {name} at {at}"
                    ));
                }
            }
            if let Some(pod) = pods.get(name).map(|index| &workload.pods[*index]) {
                let (cpu, memory) = held.entry(node).or_default();
                *cpu += i128::from(sign) * i128::from(pod.cpu_milli);
                *memory += i128::from(sign) * i128::from(pod.memory_bytes);
                let over =
                    *cpu > capacity.cpu_milli.into() || *memory > capacity.memory_bytes.into();
                if sign > 0 && over {
                    found.push(format!("{node} holds more than it has with {name} at {at}"));
                }
            }
        }
        found
    }
}

fn reason_name(reason: WaitingReason) -> &'static str {
    match reason {
        WaitingReason::Unspecified => "unknown",
        WaitingReason::NoNodeReady => "no_node_ready",
        WaitingReason::NoNodeOfModel => "no_node_of_model",
        WaitingReason::LargerThanAnyNode => "larger_than_any_node",
        WaitingReason::NoRoomNow => "no_room_now",
        WaitingReason::NoNodeMatches => "no_node_matches",
        WaitingReason::FairShare => "fair_share",
        WaitingReason::QueueLimit => "queue_limit",
        WaitingReason::Backoff => "backoff",
        WaitingReason::Dependency => "dependency",
        WaitingReason::GangIncomplete => "gang_incomplete",
        WaitingReason::GangNoRoom => "gang_no_room",
        WaitingReason::OverLimit => "over_limit",
        WaitingReason::NoUniformLabel => "no_uniform_label",
        WaitingReason::Nominated => "nominated",
        WaitingReason::Quota => "quota",
        WaitingReason::PreemptionLimit => "preemption_limit",
    }
}

fn cause_name(cause: EndCause) -> &'static str {
    match cause {
        EndCause::Unspecified => "unknown",
        EndCause::Finished => "finished",
        EndCause::Failed => "failed",
        EndCause::Cancelled => "cancelled",
        EndCause::NodeLost => "node_lost",
        EndCause::RejectedByNode => "rejected_by_node",
        EndCause::Preempted => "preempted",
        EndCause::DependencyFailed => "dependency_failed",
        EndCause::Expired => "expired",
        EndCause::TimeLimit => "time_limit",
        EndCause::Evicted => "evicted",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Selection, openb};
    use schemas::v1::{Ended, Placed, Requeued, Started, Waiting};

    fn event(lsn: u64, pod: &str, at_ms: i64, kind: Kind) -> TenantEvent {
        TenantEvent {
            lsn,
            allocation_id: format!("id-of-{pod}"),
            name: pod.to_owned(),
            at_ms,
            kind: Some(kind),
            ..TenantEvent::default()
        }
    }

    fn placed(device: u32, milli: u32) -> Kind {
        Kind::Placed(Placed {
            node: "openb-node-0000".to_owned(),
            gpus: vec![GpuShare { device, milli }],
        })
    }

    fn ended(started_ms: i64, ended_ms: i64) -> Kind {
        Kind::Ended(Ended {
            cause: EndCause::Finished.into(),
            started_ms,
            ended_ms,
            exit: None,
        })
    }

    fn witness(events: &[TenantEvent]) -> Witness {
        let tenant = Token::new("t").expect("a token");
        let mut witness = Witness::default();
        for event in events {
            witness.see(&tenant, event);
        }
        witness
    }

    const A: &str = "openb-pod-0000";
    const B: &str = "openb-pod-0001";

    #[test]
    fn a_true_story_has_an_interval_and_no_findings() {
        let workload = openb(Selection::plain());
        let waiting = Waiting {
            reason: WaitingReason::NoRoomNow.into(),
            ..Waiting::default()
        };
        let witness = witness(&[
            event(1, A, 0, Kind::Waiting(waiting)),
            event(2, A, 0, placed(0, 1000)),
            event(3, A, 5, Kind::Started(Started {})),
            event(4, A, 9, ended(5, 9)),
            event(5, B, 0, placed(0, 460)),
        ]);
        assert_eq!(witness.findings(&workload), Findings::default());
        let intervals = witness.intervals(&workload);
        let [only] = &intervals[..] else {
            panic!("one interval, not {intervals:?}");
        };
        assert_eq!(
            (only.started_ms, only.ended_ms, only.gpu_milli),
            (5, 9, 1000)
        );
        assert_eq!((only.gpu_model.as_str(), only.cause), ("P100", "finished"));
        assert_eq!((witness.progress(), witness.placed_now()), ((2, 2, 1), 1));
        assert_eq!(witness.last_run_end(), Position { lsn: 4, index: 0 });
        assert_eq!(
            witness.waiting_reasons(),
            BTreeMap::from([("no_room_now", 1)])
        );
        assert!(witness.ended(&format!("id-of-{A}")) && !witness.waits(&format!("id-of-{B}")));
        assert!(witness.waits("id-of-someone-else"));
    }

    #[test]
    fn each_try_is_a_run_of_its_own() {
        let workload = openb(Selection::plain());
        let requeued = |ended_ms| {
            Kind::Requeued(Requeued {
                cause: EndCause::Preempted.into(),
                ended_ms,
                not_before_ms: ended_ms,
                exit: None,
            })
        };
        let start = || Kind::Started(Started {});
        let witness = witness(&[
            event(1, A, 0, placed(0, 1000)),
            event(2, A, 3, start()),
            event(3, A, 8, requeued(7)),
            // Taken back before it began.
            event(4, A, 9, placed(0, 1000)),
            event(5, A, 10, requeued(10)),
            event(6, A, 11, placed(1, 1000)),
            event(7, A, 12, start()),
            event(8, A, 20, ended(12, 19)),
        ]);
        assert_eq!(witness.findings(&workload), Findings::default());
        let runs = witness.intervals(&workload);
        let runs: Vec<_> = runs
            .iter()
            .map(|run| (run.started_ms, run.ended_ms, run.cause))
            .collect();
        assert_eq!(runs, [(3, 7, "preempted"), (12, 19, "finished")]);
        assert_eq!(
            witness.requeued_by_cause(),
            BTreeMap::from([("preempted", 2)])
        );
    }

    #[test]
    fn whatever_cannot_be_true_is_found() {
        let workload = openb(Selection::plain());
        let found = |events: &[TenantEvent]| {
            let findings = witness(events).findings(&workload);
            (
                findings.twice.len(),
                findings.double_booked.len(),
                findings.strange.len(),
            )
        };
        let start = || Kind::Started(Started {});
        assert_eq!(
            found(&[
                event(1, A, 0, placed(0, 600)),
                event(2, B, 0, placed(0, 600))
            ]),
            (0, 1, 0)
        );
        assert_eq!(
            found(&[event(1, A, 0, placed(7, 1))]),
            (0, 1, 0),
            "no such device"
        );
        assert_eq!(
            found(&[event(1, A, 0, placed(0, 1)), event(2, A, 0, placed(0, 1))]),
            (1, 0, 0)
        );
        assert_eq!(found(&[event(1, A, 0, start())]), (0, 0, 1));
        assert_eq!(
            found(&[event(1, A, 0, ended(0, 0)), event(2, A, 0, placed(0, 1))]),
            (0, 0, 1)
        );
        let wrong = [
            event(1, A, 0, placed(0, 1)),
            event(2, A, 5, start()),
            event(3, A, 9, ended(4, 9)),
        ];
        assert_eq!(found(&wrong), (0, 0, 1));
    }
}
