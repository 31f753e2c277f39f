//! Nodes: who is there, since when, and what their agents have said.

use super::{
    Checker, Frame, Invariant, Place, Violation, Writer, chain::Handled, decode,
    fit::PREFER_NO_SCHEDULE, foreign, process_of,
};
use schemas::v1::{self, event::Kind, node_report::Report};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Conditions of a node, with the reasons.
pub type Named = BTreeMap<String, String>;

/// A heartbeat that reached a process, at a step of the world, its clock showing `clock_ms`.
#[derive(Debug, Clone)]
pub struct Heartbeat {
    pub process: u64,
    pub node: String,
    pub boot: u64,
    pub step: u64,
    pub clock_ms: i64,
    pub conditions: Named,
}

/// What was known of a node at some position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    pub incarnation: u64,
    /// The life of its agent; 0 once it was forgotten.
    pub boot: u64,
    pub ready: bool,
    /// Of a ready one: it was silent for a while.
    pub suspect: bool,
}

/// What an agent has reported, as recorded.
#[derive(Debug, Clone, Copy)]
pub struct Reported {
    pub lsn: u64,
    pub state: i32,
    pub at_ms: i64,
    pub exit: Option<v1::RunExit>,
}

#[derive(Debug)]
struct Registration {
    boot: u64,
    /// What it had from which position on.
    capacity: Vec<(u64, v1::NodeCapacity)>,
    /// The last change of it.
    change: u64,
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
    inbox: Vec<(String, Option<v1::NodeReport>)>,
    processes: BTreeMap<u64, Process>,
    heard: Vec<Heartbeat>,
    history: BTreeMap<String, Vec<(u64, Known)>>,
    /// The conditions of each, and where they changed.
    conditions: BTreeMap<String, Vec<(u64, Named)>>,
    /// Where each was last forgotten.
    forgotten: BTreeMap<String, u64>,
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
        self.inbox.push((node.to_owned(), decode(payload)));
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
            let capacity = self.capacity(node, known.incarnation, through)?;
            Some((node.as_str(), known.incarnation, capacity))
        })
    }

    pub fn was_lost(&self, node: &str, incarnation: u64, through: u64) -> bool {
        let mut history = self.history.get(node).into_iter().flatten();
        history
            .any(|(lsn, known)| *lsn <= through && known.incarnation == incarnation && !known.ready)
    }

    /// As of a position; what it registered with at least.
    pub fn capacity(
        &self,
        node: &str,
        incarnation: u64,
        through: u64,
    ) -> Option<&v1::NodeCapacity> {
        let key = (node.to_owned(), incarnation);
        let had = &self.registrations.get(&key)?.capacity;
        let seen = had.iter().rev().find(|(lsn, _)| *lsn <= through);
        seen.or(had.first()).map(|(_, capacity)| capacity)
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

    /// What its agent names, as of a position.
    pub fn conditions<'a>(
        &'a self,
        node: &str,
        through: u64,
    ) -> impl Iterator<Item = &'a str> + use<'a> {
        let history = self.conditions.get(node).into_iter().flatten();
        let seen = history.rev().find(|(lsn, _)| *lsn <= through);
        seen.into_iter()
            .flat_map(|(_, of)| of.keys())
            .map(String::as_str)
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

    /// Whether the inbox has let in such a message from the node, up to where the frame has read.
    fn said(&self, node: &str, handled: &Handled, what: impl Fn(&v1::NodeReport) -> bool) -> bool {
        let read = self.inbox.iter().take(handled.of(node) as usize);
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
        let asked = self.nodes.inbox.len() as u64;
        let handled = self.chain.handled(Writer::Nodes);
        at.rule(handled.last() <= asked, Invariant::Outcome, || {
            format!("inbox position {handled:?} of {asked}")
        })?;
        for (index, (at, kind)) in kinds.iter().enumerate() {
            match kind {
                Kind::NodeRegistered(e) => {
                    let capacity = e.capacity.clone().unwrap_or_default();
                    self.quotas.node(at, &e.node, &capacity);
                    self.registered(at, &handled, e, step)?;
                }
                Kind::NodeLost(e) => {
                    let rest = kinds[index + 1..].iter().map(|(_, kind)| *kind);
                    let ends = |kind: &&Kind| {
                        matches!(kind, Kind::NodeForgotten(_) | Kind::NodeConditionChanged(_))
                    };
                    let next = rest.skip_while(ends);
                    let again = match next.into_iter().next() {
                        Some(Kind::NodeRegistered(n)) => {
                            n.node == e.node && n.incarnation > e.incarnation
                        }
                        _ => false,
                    };
                    self.lost(at, frame, e, again)?;
                }
                Kind::NodeSuspected(e) => self.suspected(at, frame, e)?,
                Kind::NodeReady(e) => self.ready_again(at, e)?,
                Kind::NodeForgotten(e) => self.node_forgotten(at, e)?,
                Kind::NodeConditionChanged(e) => self.condition_changed(at, frame, e)?,
                Kind::NodeCapacityChanged(e) => self.capacity_changed(at, &handled, e)?,
                Kind::RunReported(e) => self.run_reported(at, &handled, e)?,
                other => return Err(foreign(at, other)),
            }
        }
        match kinds.last() {
            Some((at, _)) => self.nobody_is_left_to_forget(at),
            None => Ok(()),
        }
    }

    /// Whoever decides has forgotten all of whom it had read that they are to be forgotten, but for those that may still run what
    /// they were given.
    fn nobody_is_left_to_forget(&self, at: &Place) -> Result<(), Violation> {
        let left = self.settings.forgotten(at).find(|(node, set)| {
            let there = self.nodes.now(node).is_some_and(|known| known.ready);
            let history = self.nodes.history.get(*node).into_iter().flatten();
            let before = history.rev().find(|(lsn, _)| lsn < set);
            let since = self.nodes.forgotten.get(*node);
            let known = before.is_some_and(|(_, known)| known.boot != 0);
            !there && known && since.is_none_or(|lsn| lsn < set)
        });
        at.rule(left.is_none(), Invariant::Outcome, || {
            format!("{left:?} was to be forgotten")
        })
    }

    fn node_forgotten(&mut self, at: &Place, e: &v1::NodeForgotten) -> Result<(), Violation> {
        let before = self.nodes.now(&e.node);
        let lost = before.filter(|known| !known.ready && known.boot != 0);
        let asked = self.settings.forgotten(at).any(|(node, _)| node == e.node);
        at.rule(lost.is_some() && asked, Invariant::Outcome, || {
            format!("{e:?} after {before:?}, asked: {asked}")
        })?;
        let holds = self.nodes.conditions(&e.node, u64::MAX).next();
        at.rule(holds.is_none(), Invariant::Outcome, || {
            format!("{holds:?} outlives {e:?}")
        })?;
        if let Some(known) = lost {
            let gone = Known { boot: 0, ..known };
            self.nodes.remember(&e.node, at.lsn, gone);
        }
        self.nodes.forgotten.insert(e.node.clone(), at.lsn);
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
        let boot = e.boot;
        let newer = before.is_none_or(|known| {
            !known.ready && known.incarnation < e.incarnation && known.boot < boot
        });
        at.rule(newer, Invariant::Terminal, || {
            format!("{e:?} after {before:?}")
        })?;
        let said = self.nodes.said(&e.node, handled, |report| {
            // At the first level some of what it says does not count.
            let plain = |it: v1::NodeCapacity| v1::NodeCapacity {
                max_runs: 0,
                taints: it
                    .taints
                    .into_iter()
                    .filter(|taint| taint.effect != PREFER_NO_SCHEDULE)
                    .map(|taint| v1::Taint { effect: 0, ..taint })
                    .collect(),
                ..it
            };
            let same = |r: &v1::Register| {
                r.capacity == e.capacity
                    || self.began_at_first_level && r.capacity.clone().map(plain) == e.capacity
            };
            report.boot == boot && matches!(&report.report, Some(Report::Register(r)) if same(r))
        });
        at.rule(said, Invariant::Outcome, || format!("nobody said {e:?}"))?;
        at.rule(
            !self.settings.is_forgotten(&e.node, at),
            Invariant::Outcome,
            || format!("{e:?}, which an operator forgot"),
        )?;
        let approved = self.settings.approval(&e.node, at);
        let within = approved.is_none_or(|approved| within(approved, e.capacity.as_ref()));
        at.rule(within, Invariant::Fit, || {
            format!("{e:?}, approved {approved:?}")
        })?;
        let registration = Registration {
            boot,
            capacity: vec![(at.lsn, e.capacity.clone().unwrap_or_default())],
            change: 0,
            now_ms: at.now,
            step,
        };
        let key = (e.node.clone(), e.incarnation);
        self.nodes.registrations.insert(key, registration);
        let known = Known {
            incarnation: e.incarnation,
            boot,
            ready: true,
            suspect: false,
        };
        self.nodes.remember(&e.node, at.lsn, known);
        Ok(())
    }

    /// Its agent has said so in this life, and nothing but amounts is other than before.
    fn capacity_changed(
        &mut self,
        at: &Place,
        handled: &Handled,
        e: &v1::NodeCapacityChanged,
    ) -> Result<(), Violation> {
        let known = self.nodes.now(&e.node);
        let there = known.filter(|known| known.ready && known.incarnation == e.incarnation);
        let boot = there.map(|known| known.boot);
        let said = self.nodes.said(&e.node, handled, |report| {
            let same = |r: &v1::Register| r.capacity == e.capacity && r.change == e.change;
            Some(report.boot) == boot
                && matches!(&report.report, Some(Report::Register(r)) if same(r))
        });
        at.rule(said, Invariant::Outcome, || {
            format!("nobody said {e:?} of {known:?}")
        })?;
        let approved = self.settings.approval(&e.node, at);
        let within = approved.is_none_or(|approved| within(approved, e.capacity.as_ref()));
        at.rule(within, Invariant::Fit, || {
            format!("{e:?}, approved {approved:?}")
        })?;
        let key = (e.node.clone(), e.incarnation);
        let registration = self.nodes.registrations.get_mut(&key);
        let (Some(registration), Some(capacity)) = (registration, &e.capacity) else {
            return Err(at.wrong(Invariant::Terminal, format!("{e:?} of nothing")));
        };
        let before = registration.capacity.last().map(|(_, before)| before);
        let grows = e.change > registration.change;
        let fits = grows && before.is_some_and(|before| is_resized(before, capacity));
        at.rule(fits, Invariant::Terminal, || {
            format!("{e:?} after {before:?}")
        })?;
        registration.change = e.change;
        registration.capacity.push((at.lsn, capacity.clone()));
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
            let life = (&e.node[..], e.incarnation);
            let renewed = self.renewed(at, frame, life, e.last_seen_ms);
            let late = renewed.is_some_and(|ms| at.now > ms + self.limits.lease_ms);
            at.rule(late, Invariant::Expiry, || {
                let lease = self.limits.lease_ms;
                format!("{e:?} at {}, lease {lease} renewed at {renewed:?}", at.now)
            })?;
        }
        let known = Known {
            incarnation: e.incarnation,
            boot: before.map_or(0, |known| known.boot),
            ready: false,
            suspect: false,
        };
        self.nodes.remember(&e.node, at.lsn, known);
        Ok(())
    }

    /// When the node's lease was renewed last; that of one that is to be forgotten is not any more.
    fn renewed(&self, at: &Place, frame: &Frame, life: (&str, u64), seen_ms: i64) -> Option<i64> {
        let renewed = self.last_renewal(frame, life, seen_ms);
        let to_go = self.settings.forgotten(at).any(|(node, _)| node == life.0);
        renewed.map(|ms| if to_go { seen_ms } else { ms })
    }

    fn suspected(
        &mut self,
        at: &Place,
        frame: &Frame,
        e: &v1::NodeSuspected,
    ) -> Result<(), Violation> {
        let before = self.nodes.now(&e.node);
        let there = before
            .filter(|known| known.ready && !known.suspect && known.incarnation == e.incarnation);
        let life = (&e.node[..], e.incarnation);
        let renewed = self.renewed(at, frame, life, e.last_seen_ms);
        let half = self.limits.lease_ms / 2;
        let late = renewed.is_some_and(|ms| at.now > ms + half);
        at.rule(late, Invariant::Expiry, || {
            format!(
                "{e:?} at {}, half a lease {half}, renewed at {renewed:?}",
                at.now
            )
        })?;
        // A leader whose nodes are all silent is deaf itself. In steps: its clock may be behind the ledger's.
        // What comes late of a former life renews nothing.
        let boot = before.map(|known| known.boot);
        let own = self.heard_by(frame);
        let own = own.filter(|h| h.node == e.node && Some(h.boot) == boot);
        // What is said in the name of a node that is to be forgotten is not listened to.
        let to_go = self.settings.forgotten(at).any(|(node, _)| node == e.node);
        let own = own.filter(|h| !to_go || h.clock_ms <= e.last_seen_ms);
        let last = own.map(|h| h.step).max();
        let since = |h: &Heartbeat| h.node != e.node && last.is_none_or(|last| h.step >= last);
        let heard = self.heard_by(frame).any(since);
        at.rule(heard, Invariant::Outcome, || {
            format!("{e:?} at {}, and nobody else was heard", at.now)
        })?;
        match there {
            Some(known) => {
                let suspect = true;
                self.nodes
                    .remember(&e.node, at.lsn, Known { suspect, ..known });
                Ok(())
            }
            None => Err(at.wrong(Invariant::Terminal, format!("{e:?} after {before:?}"))),
        }
    }

    /// Its agent has said so in this life, to the leader of the frame; of a node that is forgotten nothing holds.
    fn condition_changed(
        &mut self,
        at: &Place,
        frame: &Frame,
        e: &v1::NodeConditionChanged,
    ) -> Result<(), Violation> {
        let known = self.nodes.now(&e.node);
        let history = self.nodes.conditions.entry(e.node.clone()).or_default();
        let mut of = history.last().map(|(_, of)| of.clone()).unwrap_or_default();
        let before = of.remove(&e.condition);
        if e.holds {
            of.insert(e.condition.clone(), e.reason.clone());
        }
        let changes = before.as_ref() != of.get(&e.condition);
        history.push((at.lsn, of.clone()));
        at.rule(changes, Invariant::Terminal, || {
            format!("{e:?} after {before:?}")
        })?;
        let forgotten = |node: &str| self.settings.forgotten(at).any(|(it, _)| it == node);
        let goes = known.is_some_and(|known| !known.ready) && !e.holds && forgotten(&e.node);
        let boot = known.filter(|known| known.ready).map(|known| known.boot);
        // It may have been heard in the step of the draft itself.
        let process = process_of(&frame.leader);
        let said = self.nodes.heard.iter().any(|h| {
            Some(h.process) == process
                && h.node == e.node
                && Some(h.boot) == boot
                && h.conditions.get(&e.condition) == of.get(&e.condition)
        });
        at.rule(said || goes, Invariant::Outcome, || {
            format!("nobody said {e:?} of {known:?}")
        })
    }

    /// Nothing makes a lost one ready again but a registration.
    fn ready_again(&mut self, at: &Place, e: &v1::NodeReady) -> Result<(), Violation> {
        let before = self.nodes.now(&e.node);
        let suspected = before.filter(|known| known.suspect && known.incarnation == e.incarnation);
        match suspected {
            Some(known) => {
                let suspect = false;
                self.nodes
                    .remember(&e.node, at.lsn, Known { suspect, ..known });
                Ok(())
            }
            None => Err(at.wrong(Invariant::Terminal, format!("{e:?} after {before:?}"))),
        }
    }

    /// What the leader of the frame had heard.
    fn heard_by(&self, frame: &Frame) -> impl Iterator<Item = &Heartbeat> {
        let process = process_of(&frame.leader);
        let leader = process.and_then(|process| self.nodes.processes.get(&process));
        let drafted = leader.map_or(0, |leader| leader.drafted.load(Ordering::Relaxed));
        let heard = self.nodes.heard.iter();
        heard.filter(move |h| Some(h.process) == process && h.step < drafted)
    }

    /// The last moment at which the leader that drafted this frame must have renewed the lease.
    fn last_renewal(
        &self,
        frame: &Frame,
        (node, incarnation): (&str, u64),
        last_seen_ms: i64,
    ) -> Option<i64> {
        let process = process_of(&frame.leader)?;
        let leader = self.nodes.processes.get(&process)?;
        let drafted = leader.drafted.load(Ordering::Relaxed);
        let key = (node.to_owned(), incarnation);
        let registration = self.nodes.registrations.get(&key)?;
        let heard = self
            .nodes
            .heard
            .iter()
            .filter(|h| h.process == process && h.node == node)
            .filter(|h| h.boot == registration.boot)
            .filter(|h| (registration.step..drafted).contains(&h.step))
            .map(|h| h.clock_ms)
            .max();
        let known = [registration.now_ms, leader.clock_ms, last_seen_ms];
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
            current.is_some_and(|known| known.boot == report.boot)
                && runs(report).iter().any(|run| {
                    let over = [FINISHED_OK, FAILED_RUN, REJECTED].contains(&run.phase);
                    let same = run.phase == e.state || over && e.state == RUN_STOPPED;
                    same && run.exit == e.exit && run.allocation_id.ends_with(&id_end)
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
            exit: e.exit,
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

/// Whether only amounts differ, and no extended resource is gone.
fn is_resized(before: &v1::NodeCapacity, after: &v1::NodeCapacity) -> bool {
    let shape = |of: &v1::NodeCapacity| {
        let mut shape = of.clone();
        (shape.cpu_milli, shape.memory_bytes, shape.max_runs) = (0, 0, 0);
        shape.extended.clear();
        for zone in shape.topology.iter_mut().flat_map(|it| &mut it.zones) {
            (zone.cpu_milli, zone.memory_bytes) = (0, 0);
        }
        shape
    };
    let has = |of: &v1::NodeCapacity, name: &str| of.extended.iter().any(|it| it.name == name);
    shape(before) == shape(after)
        && before != after
        && (before.extended.iter()).all(|it| has(after, &it.name))
}

/// Whether a node brings in no more than was approved.
fn within(approved: &v1::NodeCapacity, said: Option<&v1::NodeCapacity>) -> bool {
    let Some(said) = said else {
        return false;
    };
    let amount = |of: &v1::NodeCapacity, name: &str| {
        let found = of.extended.iter().find(|one| one.name == name);
        found.map_or(0, |one| one.amount)
    };
    said.cpu_milli <= approved.cpu_milli
        && said.memory_bytes <= approved.memory_bytes
        && said.gpus <= approved.gpus
        && (said.gpus == 0 || said.gpu_model == approved.gpu_model)
        && said
            .labels
            .iter()
            .all(|label| approved.labels.contains(label))
        && (said.extended.iter()).all(|one| one.amount <= amount(approved, &one.name))
}
