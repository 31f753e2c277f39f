//! A node's agent under the test's hand: it says what the test tells it to, and nothing else.

use crate::e2e::suite::{DEADLINE, GIB, Suite, eventually};
use async_nats::{Client, Subscriber, jetstream};
use chassis::{Clock, Stamp};
use futures::StreamExt;
use prost::Message;
use schemas::v1::{
    Assignment, AssignmentList, Heartbeat, NodeCapacity, NodeReport, Refusal, Register, Run,
    RunPhase, node_report::Report,
};
use std::{collections::BTreeMap, time::Duration};
use tokio::task::JoinHandle;
use vocab::subjects::Subjects;

pub const MODEL: &str = "V100";

pub struct Agent {
    pub name: String,
    pub boot: u64,
    pub capacity: NodeCapacity,
    nats: Client,
    jetstream: jetstream::Context,
    subjects: Subjects,
    pushes: Subscriber,
    /// What came, by allocation; a stop replaces what it stops.
    assigned: BTreeMap<String, Assignment>,
    beats: Option<JoinHandle<()>>,
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.fall_silent();
    }
}

impl Agent {
    /// Hears its assignments, and has said nothing yet.
    pub async fn connect(suite: &Suite, name: &str) -> Self {
        Self::on(suite.servers.nats("fleet").await, suite, name).await
    }

    /// The same on a connection of its own.
    pub async fn on(nats: Client, suite: &Suite, name: &str) -> Self {
        let subjects = suite.subjects.clone();
        let pushes = nats
            .subscribe(subjects.node(name, "assign"))
            .await
            .expect("its own subject");
        nats.flush().await.expect("the server is there");
        Self {
            name: name.to_owned(),
            boot: Stamp::now().unix_ns() / 1_000_000,
            jetstream: jetstream::new(nats.clone()),
            nats,
            capacity: Self::capacity(),
            subjects,
            pushes,
            assigned: BTreeMap::new(),
            beats: None,
        }
    }

    pub fn capacity() -> NodeCapacity {
        NodeCapacity {
            cpu_milli: 64_000,
            memory_bytes: 256 * GIB as u64,
            gpus: 8,
            gpu_model: MODEL.to_owned(),
            ..NodeCapacity::default()
        }
    }

    /// Asks to be registered.
    pub async fn announce(&self) {
        let capacity = Some(self.capacity.clone());
        self.report_raw(Report::Register(Register {
            capacity,
            change: 0,
        }))
        .await;
    }

    /// Registers, and waits until the cell knows this boot.
    pub async fn register(&mut self) {
        self.announce().await;
        eventually("the registration", || async {
            let list = self.sync().await?;
            (list.boot == self.boot).then_some(())
        })
        .await;
    }

    /// Comes back as another life.
    pub async fn register_again(&mut self) {
        self.boot += 1;
        self.assigned.clear();
        self.register().await;
    }

    pub async fn report_raw(&self, report: Report) {
        self.report_as(self.boot, report).await;
    }

    /// Until it is acknowledged, which is not yet decided.
    pub async fn report_as(&self, boot: u64, report: Report) {
        let message = NodeReport {
            boot,
            report: Some(report),
        };
        let subject = self.subjects.node(&self.name, "report");
        let payload = message.encode_to_vec();
        let sent = self.jetstream.publish(subject, payload.into()).await;
        sent.expect("it is sent").await.expect("it is acknowledged");
    }

    pub async fn report(&self, allocation: &str, phase: RunPhase, at_ms: i64) {
        let seen = self.assigned.get(allocation);
        let report = Run {
            revision: seen.map_or(0, |assignment| assignment.revision),
            ..run(allocation, phase, at_ms)
        };
        self.report_raw(Report::Run(report)).await;
    }

    pub async fn sync(&self) -> Option<AssignmentList> {
        let subject = self.subjects.node(&self.name, "sync");
        let answer = self.nats.request(subject, Vec::new().into()).await.ok()?;
        AssignmentList::decode(answer.payload).ok()
    }

    pub async fn heartbeat(&self, boot: u64) {
        let message = Heartbeat {
            boot,
            // Always behind, so that everything is sent again.
            revision: 0,
            ..Heartbeat::default()
        };
        let subject = self.subjects.node(&self.name, "heartbeat");
        let payload = message.encode_to_vec();
        self.nats
            .publish(subject, payload.into())
            .await
            .expect("it is sent");
    }

    /// Beats by itself from now on.
    pub fn beat(&mut self, every: Duration) {
        let (nats, subject) = (
            self.nats.clone(),
            self.subjects.node(&self.name, "heartbeat"),
        );
        let message = Heartbeat {
            boot: self.boot,
            revision: u64::MAX,
            ..Heartbeat::default()
        };
        let payload = bytes::Bytes::from(message.encode_to_vec());
        self.fall_silent();
        self.beats = Some(tokio::spawn(async move {
            loop {
                let _ = nats.publish(subject.clone(), payload.clone()).await;
                tokio::time::sleep(every).await;
            }
        }));
    }

    pub fn fall_silent(&mut self) {
        if let Some(beats) = self.beats.take() {
            beats.abort();
        }
    }

    /// The next push. Pushes may get lost; a heartbeat has them sent again.
    async fn pushed(&mut self) -> Assignment {
        loop {
            let next = tokio::time::timeout(Duration::from_millis(300), self.pushes.next());
            match next.await {
                Ok(message) => {
                    let payload = message.expect("the connection stands").payload;
                    return Assignment::decode(payload).expect("an assignment");
                }
                Err(_) => self.heartbeat(self.boot).await,
            }
        }
    }

    /// Waits for the assignment of an allocation, or for its stop.
    pub async fn assignment(&mut self, allocation: &str, stop: bool) -> Assignment {
        let known = |assigned: &BTreeMap<String, Assignment>| {
            let found = assigned.get(allocation);
            found.filter(|assignment| assignment.stop == stop).cloned()
        };
        let waiting = async {
            loop {
                if let Some(found) = known(&self.assigned) {
                    return found;
                }
                let mut push = self.pushed().await;
                let more = std::mem::take(&mut push.more);
                for change in std::iter::once(push).chain(more) {
                    self.assigned.insert(change.allocation_id.clone(), change);
                }
            }
        };
        let waited = tokio::time::timeout(DEADLINE, waiting).await;
        waited.unwrap_or_else(|_| panic!("no assignment of {allocation}"))
    }

    /// Waits for the word that its registration is refused.
    pub async fn is_refused(&mut self) -> Refusal {
        let waiting = async {
            loop {
                let push = self.pushed().await;
                if let Some(refusal) = push.registration_refused {
                    return refusal;
                }
            }
        };
        let waited = tokio::time::timeout(DEADLINE, waiting).await;
        waited.expect("a refused node is told so")
    }

    /// Waits until it is told that its life is over.
    pub async fn is_told_to_register(&mut self) {
        let waiting = async { while !self.pushed().await.register_again {} };
        let waited = tokio::time::timeout(DEADLINE, waiting).await;
        waited.expect("a lost node is told so");
    }

    /// Starts what it is assigned, lets it run for some milliseconds, and finishes it. What it said of start and end.
    pub async fn run(&mut self, allocation: &str, lasts_ms: i64) -> (i64, i64) {
        let started = self.assignment(allocation, false).await.placed_ms;
        self.report(allocation, RunPhase::Started, started).await;
        // An end in the future would be moved to the inbox's clock.
        let ended = started + lasts_ms;
        Clock::real().sleep_until(ended).await;
        self.report(allocation, RunPhase::FinishedOk, ended).await;
        (started, ended)
    }
}

/// Without a word on the assignment that it is about.
pub fn run(allocation: &str, phase: RunPhase, at_ms: i64) -> Run {
    Run {
        allocation_id: allocation.to_owned(),
        phase: phase.into(),
        at_ms,
        revision: 0,
        exit: None,
    }
}
