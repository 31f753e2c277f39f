//! Nodes: who is there, since when, and what their agents have said.

use super::{
    Checker, Frame, Invariant, Place, Violation, Writer, chain::Handled, decode, foreign,
    process_of,
};
use schemas::v1::{self, event::Kind, node_report::Report};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// A heartbeat that reached a process, at a step of the world, its clock showing `clock_ms`.
#[derive(Debug, Clone)]
pub struct Heartbeat {
    pub process: u64,
    pub node: String,
    pub incarnation: u64,
    pub step: u64,
    pub clock_ms: i64,
}

/// What was known of a node at some position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    pub incarnation: u64,
    pub ready: bool,
}

/// What an agent has reported, as recorded.
#[derive(Debug, Clone, Copy)]
pub struct Reported {
    pub lsn: u64,
    pub state: i32,
    pub at_ms: i64,
}

#[derive(Debug)]
struct Registration {
    capacity: v1::NodeCapacity,
    /// The writer's clock, and the world's step at which it was found on the ledger.
    now_ms: i64,
    step: u64,
}

#[derive(Debug)]
struct Process {
    clock_ms: i64,
    drafted: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
pub struct Nodes {
    door: Vec<(String, Option<v1::NodeReport>)>,
    processes: BTreeMap<u64, Process>,
    heard: Vec<Heartbeat>,
    history: BTreeMap<String, Vec<(u64, Known)>>,
    registrations: BTreeMap<(String, u64), Registration>,
    started: BTreeMap<u64, Reported>,
    over: BTreeMap<u64, Reported>,
}

const RUN_STARTED: i32 = 1;
/// Over after its agent was told to stop it, in whichever way the agent puts that.
pub const RUN_STOPPED: i32 = 5;
const FINISHED_OK: i32 = 2;
const FAILED_RUN: i32 = 3;
const REJECTED: i32 = 4;

impl Nodes {
    pub fn reported(&mut self, node: &str, payload: &[u8]) {
        self.door.push((node.to_owned(), decode(payload)));
    }

    pub fn began(&mut self, process: u64, clock_ms: i64, drafted: Arc<AtomicU64>) {
        self.processes
            .insert(process, Process { clock_ms, drafted });
    }

    pub fn heard(&mut self, heartbeat: Heartbeat) {
        self.heard.push(heartbeat);
    }

    /// As of a position.
    pub fn known(&self, node: &str, through: u64) -> Option<Known> {
        let history = self.history.get(node)?;
        let seen = history.iter().rev().find(|(lsn, _)| *lsn <= through);
        seen.map(|(_, known)| *known)
    }

    /// Those that are ready as of a position, with what they brought in.
    pub fn all(&self, through: u64) -> impl Iterator<Item = (&str, u64, &v1::NodeCapacity)> {
        self.history.keys().filter_map(move |node| {
            let known = self.known(node, through).filter(|known| known.ready)?;
            let capacity = self.capacity(node, known.incarnation)?;
            Some((node.as_str(), known.incarnation, capacity))
        })
    }

    pub fn was_lost(&self, node: &str, incarnation: u64, through: u64) -> bool {
        let history = self.history.get(node).into_iter().flatten();
        let lost = Known {
            incarnation,
            ready: false,
        };
        history
            .into_iter()
            .any(|(lsn, known)| *lsn <= through && *known == lost)
    }

    pub fn capacity(&self, node: &str, incarnation: u64) -> Option<&v1::NodeCapacity> {
        let key = (node.to_owned(), incarnation);
        self.registrations.get(&key).map(|r| &r.capacity)
    }

    pub fn started(&self, allocation: u64) -> Option<Reported> {
        self.started.get(&allocation).copied()
    }

    pub fn over(&self, allocation: u64) -> Option<Reported> {
        self.over.get(&allocation).copied()
    }

    /// What was said of a run that is over does not count for the next.
    pub fn over_again(&mut self, allocation: u64) {
        self.started.remove(&allocation);
        self.over.remove(&allocation);
    }

    fn now(&self, node: &str) -> Option<Known> {
        self.known(node, u64::MAX)
    }

    fn remember(&mut self, node: &str, lsn: u64, known: Known) {
        self.history
            .entry(node.to_owned())
            .or_default()
            .push((lsn, known));
    }

    /// Whether the door has let in such a message from the node, up to where the frame has read.
    fn said(&self, node: &str, handled: &Handled, what: impl Fn(&v1::NodeReport) -> bool) -> bool {
        let read = self.door.iter().take(handled.of(node) as usize);
        read.filter(|(sender, _)| sender == node)
            .any(|(_, report)| report.as_ref().is_some_and(&what))
    }
}

impl Checker {
    pub(super) fn node_heartbeat(
        &mut self,
        at: &Place,
        frame: &Frame,
        kinds: &[(Place, &Kind)],
        step: u64,
    ) -> Result<(), Violation> {
        let asked = self.nodes.door.len() as u64;
        let handled = self.chain.handled(Writer::Nodes);
        at.rule(handled.last() <= asked, Invariant::Outcome, || {
            format!("door position {handled:?} of {asked}")
        })?;
        for (index, (at, kind)) in kinds.iter().enumerate() {
            match kind {
                Kind::NodeRegistered(e) => {
                    let capacity = e.capacity.clone().unwrap_or_default();
                    self.quotas.node(at, &e.node, &capacity);
                    self.registered(at, &handled, e, step)?;
                }
                Kind::NodeLost(e) => {
                    let next = kinds.get(index + 1).map(|(_, kind)| *kind);
                    let again = matches!(next, Some(Kind::NodeRegistered(n))
                        if n.node == e.node && n.incarnation > e.incarnation);
                    self.lost(at, frame, e, again)?;
                }
                Kind::RunReported(e) => self.run_reported(at, &handled, e)?,
                other => return Err(foreign(at, other)),
            }
        }
        Ok(())
    }

    fn registered(
        &mut self,
        at: &Place,
        handled: &Handled,
        e: &v1::NodeRegistered,
        step: u64,
    ) -> Result<(), Violation> {
        let before = self.nodes.now(&e.node);
        let newer = before.is_none_or(|known| !known.ready && known.incarnation < e.incarnation);
        at.rule(newer, Invariant::Terminal, || {
            format!("{e:?} after {before:?}")
        })?;
        let said = self.nodes.said(&e.node, handled, |report| {
            let same = |r: &v1::Register| r.capacity == e.capacity;
            report.incarnation == e.incarnation
                && matches!(&report.report, Some(Report::Register(r)) if same(r))
        });
        at.rule(said, Invariant::Outcome, || format!("nobody said {e:?}"))?;
        let registration = Registration {
            capacity: e.capacity.clone().unwrap_or_default(),
            now_ms: at.now,
            step,
        };
        let key = (e.node.clone(), e.incarnation);
        self.nodes.registrations.insert(key, registration);
        let known = Known {
            incarnation: e.incarnation,
            ready: true,
        };
        self.nodes.remember(&e.node, at.lsn, known);
        Ok(())
    }

    fn lost(
        &mut self,
        at: &Place,
        frame: &Frame,
        e: &v1::NodeLost,
        again: bool,
    ) -> Result<(), Violation> {
        let before = self.nodes.now(&e.node);
        let there = before.is_some_and(|known| known.ready && known.incarnation == e.incarnation);
        at.rule(there, Invariant::Terminal, || {
            format!("{e:?} after {before:?}")
        })?;
        if !again {
            let renewed = self.last_renewal(frame, e);
            let late = renewed.is_some_and(|ms| at.now > ms + self.limits.lease_ms);
            at.rule(late, Invariant::Expiry, || {
                let lease = self.limits.lease_ms;
                format!("{e:?} at {}, lease {lease} renewed at {renewed:?}", at.now)
            })?;
        }
        let known = Known {
            incarnation: e.incarnation,
            ready: false,
        };
        self.nodes.remember(&e.node, at.lsn, known);
        Ok(())
    }

    /// The last moment at which the leader that drafted this frame must have renewed the lease.
    fn last_renewal(&self, frame: &Frame, e: &v1::NodeLost) -> Option<i64> {
        let process = process_of(&frame.leader)?;
        let leader = self.nodes.processes.get(&process)?;
        let drafted = leader.drafted.load(Ordering::Relaxed);
        let key = (e.node.clone(), e.incarnation);
        let registration = self.nodes.registrations.get(&key)?;
        let heard = self
            .nodes
            .heard
            .iter()
            .filter(|h| h.process == process && h.node == e.node)
            .filter(|h| h.incarnation == e.incarnation)
            .filter(|h| (registration.step..drafted).contains(&h.step))
            .map(|h| h.clock_ms)
            .max();
        let known = [registration.now_ms, leader.clock_ms, e.last_seen_ms];
        known.into_iter().chain(heard).max()
    }

    fn run_reported(
        &mut self,
        at: &Place,
        handled: &Handled,
        e: &v1::RunReported,
    ) -> Result<(), Violation> {
        let current = self.nodes.now(&e.node).filter(|known| known.ready);
        let hold = self
            .allocations
            .get(e.allocation)
            .and_then(|a| a.hold.clone());
        let fits = match (&hold, current) {
            (Some(hold), Some(known)) => {
                at.saw(hold.lsn) && hold.node == e.node && hold.incarnation == known.incarnation
            }
            _ => false,
        };
        at.rule(fits, Invariant::Exclusive, || {
            format!("{e:?} of {current:?}, placed {hold:?}")
        })?;
        let said = self.nodes.said(&e.node, handled, |report| {
            let id_end = format!("{:012x}", e.allocation);
            current.is_some_and(|known| known.incarnation == report.incarnation)
                && runs(report).iter().any(|run| {
                    let over = [FINISHED_OK, FAILED_RUN, REJECTED].contains(&run.phase);
                    let same = run.phase == e.state || over && e.state == RUN_STOPPED;
                    same && run.allocation_id.ends_with(&id_end)
                })
        });
        // No agent knows of a stop before the scheduler has decided it.
        let told = hold.as_ref().is_some_and(|hold| hold.stop.is_some());
        let said = said && (e.state != RUN_STOPPED || told);
        at.rule(said, Invariant::Outcome, || format!("nobody said {e:?}"))?;
        let over = self.nodes.over(e.allocation);
        let started = self.nodes.started(e.allocation);
        let moves_on = over.is_none() && (e.state != RUN_STARTED || started.is_none());
        at.rule(moves_on, Invariant::Terminal, || {
            format!("{e:?} after {started:?} and {over:?}")
        })?;
        let placed = hold.map_or(i64::MIN, |hold| hold.now_ms);
        let low = started.map_or(placed, |report| report.at_ms);
        let bounded = e.at_ms >= low && e.at_ms <= at.now.max(low);
        at.rule(bounded, Invariant::Expiry, || {
            format!("{e:?} at {} not within {low} and now", at.now)
        })?;
        let reported = Reported {
            lsn: at.lsn,
            state: e.state,
            at_ms: e.at_ms,
        };
        let reports = if e.state == RUN_STARTED {
            &mut self.nodes.started
        } else {
            &mut self.nodes.over
        };
        reports.insert(e.allocation, reported);
        Ok(())
    }
}

fn runs(report: &v1::NodeReport) -> &[v1::Run] {
    match &report.report {
        Some(Report::Run(run)) => std::slice::from_ref(run),
        Some(Report::Runs(many)) => &many.runs,
        Some(Report::Register(_)) | None => &[],
    }
}
