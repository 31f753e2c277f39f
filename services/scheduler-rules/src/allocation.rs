//! The allocations that have not ended: what each asks for, and how far it has come.

use super::{
    class::{Amounts, Class, ClassNo},
    fleet::{NodeNo, Taken},
    gang::GangNo,
    interner::Interner,
    job_sets::{Count, JobSetNo, JobSets, Member},
    queues::{Key, QueueNo, Use},
    settings::{PriorityNo, Settings},
};
use ledger::IllegalEvent;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, fmt, ops::Range};
use vocab::{AllocationNo, Millis, Numbered, PendingGroupNo, RunExit, RunState, Token};

/// An allocation that has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Live {
    pub class: ClassNo,
    pub queue: QueueNo,
    pub priority: i32,
    pub priority_class: Option<PriorityNo>,
    pub gang: Option<GangNo>,
    pub job_set: JobSetNo,
    pub retries_left: u8,
    /// How often it was queued again because a run failed, or a node did not take it.
    pub failures: u8,
    pub never_requeue: bool,
    /// Its quota is counted by the model of its GPUs: after a run it asks for quota again.
    pub by_model: bool,
    pub avoided: Avoided,
    pub requested: Millis,
    /// 0: not known.
    pub run_time_ms: u64,
    pub phase: Phase,
}

/// The nodes where a run of it failed last, or that did not take it: others are better. In a snapshot it reads as the one
/// node of earlier versions, or none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<NodeNo>", into = "Vec<NodeNo>")]
pub struct Avoided(Option<Box<Few>>);

/// Most allocations avoid none, so that a pointer is all that they need.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Few(Vec<NodeNo>);

impl From<Vec<NodeNo>> for Avoided {
    fn from(nodes: Vec<NodeNo>) -> Self {
        Self((!nodes.is_empty()).then(|| Box::new(Few(nodes))))
    }
}

impl From<Avoided> for Vec<NodeNo> {
    fn from(Avoided(few): Avoided) -> Self {
        few.map(|few| few.0).unwrap_or_default()
    }
}

impl Avoided {
    /// More than these have most likely recovered by the time that the next is tried.
    const MOST: usize = 4;

    fn nodes(&self) -> &[NodeNo] {
        self.0.as_deref().map_or(&[], |few| &few.0)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub fn contains(&self, node: NodeNo) -> bool {
        self.nodes().contains(&node)
    }

    /// The newest comes last, and takes the place of the oldest when there are too many.
    fn add(&mut self, node: NodeNo) {
        let others = self.nodes().iter().filter(|other| **other != node);
        let mut nodes: Vec<NodeNo> = others.copied().chain([node]).collect();
        nodes.drain(..nodes.len().saturating_sub(Self::MOST));
        *self = nodes.into();
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// And then for the end of a pause.
    AwaitingQuota(Option<Millis>),
    /// For what it depends on.
    AwaitingOthers,
    /// For the end of a pause.
    Pausing(Millis),
    /// In a pending group by itself.
    Queued(PendingGroupNo, Key),
    /// With its gang: in line, or waiting for the other members.
    InGang,
    /// Its node is being cleared for it.
    Nominated(NodeNo),
    Held(Box<Binding>),
}

/// A place on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    pub node: NodeNo,
    /// The node's incarnation at placement: a later one does not know of this hold.
    pub incarnation: u64,
    pub taken: Taken,
    pub placed: Millis,
    pub started: Option<Millis>,
    /// What its node has said and nobody has decided yet.
    pub reports: Reports,
    pub stop: Option<Stop>,
}

/// What a node has said of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    pub state: RunState,
    pub at: Millis,
    pub exit: Option<RunExit>,
}

/// What a node has said of a run, in order. Most often it is one thing, which takes no memory of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(Said, Millis)>", into = "Vec<(Said, Millis)>")]
pub struct Reports {
    first: Option<Report>,
    /// None if there is no first.
    more: Vec<Report>,
}

/// A report in a snapshot. Those without an exit are as they were before there were any: `RunState`, and its moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Said {
    Started,
    Finished,
    Failed,
    Rejected,
    Stopped,
    Exited(RunState, RunExit),
}

impl Reports {
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Report> {
        self.first.iter().chain(&self.more)
    }

    pub fn first(&self) -> Option<Report> {
        self.first
    }

    fn push(&mut self, report: Report) {
        match self.first {
            None => self.first = Some(report),
            Some(_) => self.more.push(report),
        }
    }

    fn pop_first(&mut self) {
        self.first = match self.more.is_empty() {
            true => None,
            false => Some(self.more.remove(0)),
        };
    }
}

impl From<Vec<(Said, Millis)>> for Reports {
    fn from(reports: Vec<(Said, Millis)>) -> Self {
        let mut all = Self::default();
        for (said, at) in reports {
            let (state, exit) = match said {
                Said::Started => (RunState::Started, None),
                Said::Finished => (RunState::Finished, None),
                Said::Failed => (RunState::Failed, None),
                Said::Rejected => (RunState::Rejected, None),
                Said::Stopped => (RunState::Stopped, None),
                Said::Exited(state, exit) => (state, Some(exit)),
            };
            all.push(Report { state, at, exit });
        }
        all
    }
}

impl From<Reports> for Vec<(Said, Millis)> {
    fn from(reports: Reports) -> Self {
        let said = |report: &Report| match (report.exit, report.state) {
            (Some(exit), state) => Said::Exited(state, exit),
            (None, RunState::Started) => Said::Started,
            (None, RunState::Finished) => Said::Finished,
            (None, RunState::Failed) => Said::Failed,
            (None, RunState::Rejected) => Said::Rejected,
            (None, RunState::Stopped) => Said::Stopped,
        };
        let reports = reports.iter();
        reports.map(|report| (said(report), report.at)).collect()
    }
}

/// Why it is being stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stop {
    Cancelled,
    /// Made to go for another; no longer counted against its queue. `told` once the node was.
    Preempted {
        told: bool,
        cancelled: bool,
    },
    /// It has gone on for as long as it may.
    TimeLimit,
    /// Like one that was preempted, but its node, or that of a fellow of its gang, was drained or got a taint that it does
    /// not tolerate.
    Evicted {
        told: bool,
        cancelled: bool,
    },
}

impl Binding {
    /// An agent's moment as it is recorded: not before the placement or the start, nor after now. What is outside is a
    /// difference of clocks, and whoever counts the run's time (quota's budgets, the bill, the tenant) counts the same.
    pub fn moment(&self, at: Millis, now: Millis) -> Millis {
        at.min(now).max(self.started.unwrap_or(self.placed))
    }

    /// Nothing stops it.
    pub fn stays(&self) -> bool {
        self.stop.is_none()
    }

    /// Made to go, for another or from its node.
    pub fn preempted(&self) -> bool {
        matches!(
            self.stop,
            Some(Stop::Preempted { .. } | Stop::Evicted { .. })
        )
    }

    pub fn evicted(&self) -> bool {
        matches!(self.stop, Some(Stop::Evicted { .. }))
    }

    /// What it is stopped for is no reason to queue it again.
    pub fn stops_for_good(&self) -> bool {
        self.cancelled() || self.stop == Some(Stop::TimeLimit)
    }

    pub fn cancelled(&self) -> bool {
        matches!(
            self.stop,
            Some(
                Stop::Cancelled
                    | Stop::Preempted {
                        cancelled: true,
                        ..
                    }
                    | Stop::Evicted {
                        cancelled: true,
                        ..
                    }
            )
        )
    }
}

impl Live {
    /// Its run on this node did not succeed, or has not begun.
    pub fn failed_on(&mut self, node: NodeNo) {
        self.failures = self.failures.saturating_add(1);
        self.avoided.add(node);
    }

    pub fn binding(&self) -> Option<&Binding> {
        match &self.phase {
            Phase::Held(binding) => Some(binding),
            _ => None,
        }
    }
}

/// All of them, by number.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocations {
    live: Numbered<AllocationNo, Live>,
    /// What they ask for.
    classes: Interner<Class>,
    job_sets: JobSets,
    /// With reports of their node to be decided.
    reported: BTreeSet<AllocationNo>,
    /// Whose node was lost.
    lost: BTreeSet<AllocationNo>,
    /// Whose node is being cleared for them.
    nominated: BTreeSet<AllocationNo>,
}

impl Allocations {
    pub fn all(&self) -> &Numbered<AllocationNo, Live> {
        &self.live
    }

    pub fn contains(&self, no: &AllocationNo) -> bool {
        self.live.contains_key(no)
    }

    pub fn get(&self, no: &AllocationNo) -> Option<&Live> {
        self.live.get(no)
    }

    pub fn get_mut(&mut self, no: &AllocationNo) -> Option<&mut Live> {
        self.live.get_mut(no)
    }

    pub fn class(&self, class: ClassNo) -> &Class {
        self.classes.get(class.0)
    }

    pub fn amounts(&self, live: &Live) -> Amounts {
        self.class(live.class).amounts()
    }

    /// What counts of it for its queue.
    pub fn used(&self, live: &Live, settings: &Settings) -> Use {
        Use {
            amounts: self.amounts(live),
            firm: !settings.preemptible(live.priority_class),
        }
    }

    /// One more asks for this.
    pub fn acquire_class(&mut self, class: &Class) -> ClassNo {
        ClassNo(self.classes.acquire(class))
    }

    /// The caller has acquired what it says.
    pub fn insert(&mut self, no: AllocationNo, live: Live) {
        self.live.insert(no, live);
    }

    /// It has ended. Its class as well, if nobody else asks for that.
    pub fn remove(&mut self, no: AllocationNo) -> Option<(Live, Option<ClassNo>)> {
        let live = self.live.remove(&no)?;
        let lives = |no: &AllocationNo| self.live.contains_key(no);
        self.job_sets.leave(member(no, &live), lives);
        let class = self.classes.release(live.class.0).map(|_| live.class);
        Some((live, class))
    }

    /// It is placed on all models but these from now on. The class that nobody asks for any more.
    pub fn except_models(&mut self, no: AllocationNo, except: &[Token]) -> Option<ClassNo> {
        let live = self.live.get_mut(&no)?;
        let before = live.class;
        let class = self.classes.get(before.0);
        if class.except_models == except {
            return None;
        }
        let class = Class {
            except_models: except.to_vec(),
            ..class.clone()
        };
        live.class = ClassNo(self.classes.acquire(&class));
        self.classes.release(before.0).map(|_| before)
    }

    pub fn join_job_set(
        &mut self,
        tenant: &Token,
        name: &Token,
        member: (AllocationNo, bool),
    ) -> JobSetNo {
        self.job_sets.join(tenant, name, member)
    }

    /// Whether it is in the tenant's job set of this name.
    pub fn is_in(&self, live: &Live, tenant: &Token, job_set: &Token) -> bool {
        self.job_sets.is(live.job_set, tenant, job_set)
    }

    /// Returns at most `most` members of the job set in this range, the lowest numbers first. Some may have ended.
    pub fn in_job_set(
        &mut self,
        set: (&Token, &Token),
        range: Range<AllocationNo>,
        most: usize,
    ) -> Vec<AllocationNo> {
        let all = self.live.iter().map(|(no, live)| member(*no, live));
        self.job_sets.members(set, range, most, all)
    }

    /// Counts the members of the job set that were requested before `before` and have not ended.
    pub fn count_job_set(&mut self, set: (&Token, &Token), before: AllocationNo) -> Count {
        let all = self.live.iter().map(|(no, live)| member(*no, live));
        let of = |no: &AllocationNo| self.live.get(no).map(|live| member(*no, live));
        self.job_sets.count(set, before, of, all)
    }

    // --- runs

    pub fn hold_mut(
        &mut self,
        no: AllocationNo,
        event: &impl fmt::Debug,
    ) -> Result<&mut Binding, IllegalEvent> {
        match self.live.get_mut(&no).map(|live| &mut live.phase) {
            Some(Phase::Held(binding)) => Ok(binding),
            _ => Err(IllegalEvent::new("not placed", event)),
        }
    }

    /// A report counts only from the node that holds the allocation; anything else is late.
    pub fn report(&mut self, no: AllocationNo, node: NodeNo, report: Report) {
        if let Some(Phase::Held(binding)) = self.live.get_mut(&no).map(|live| &mut live.phase)
            && binding.node == node
        {
            binding.reports.push(report);
            self.reported.insert(no);
        }
    }

    /// The first with a report to be decided.
    pub fn first_reported(&self) -> Option<AllocationNo> {
        self.reported.first().copied()
    }

    pub fn start(
        &mut self,
        no: AllocationNo,
        at: Millis,
        event: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        let binding = self.hold_mut(no, event)?;
        if binding.started.replace(at).is_some() {
            return Err(IllegalEvent::new("started already", event));
        }
        binding.reports.pop_first();
        if binding.reports.is_empty() {
            self.reported.remove(&no);
        }
        Ok(())
    }

    /// Their node was lost.
    pub fn lose<'a>(&mut self, held: impl IntoIterator<Item = &'a AllocationNo>) {
        self.lost.extend(held);
    }

    /// The first whose node was lost.
    pub fn first_lost(&self) -> Option<AllocationNo> {
        self.lost.first().copied()
    }

    /// Nothing is left to be decided of its run.
    pub fn run_is_over(&mut self, no: AllocationNo) {
        self.reported.remove(&no);
        self.lost.remove(&no);
    }

    /// Whose nodes are being cleared for them.
    pub fn nominated(&self) -> &BTreeSet<AllocationNo> {
        &self.nominated
    }

    pub fn nominate(&mut self, no: AllocationNo, node: NodeNo) {
        if let Some(live) = self.live.get_mut(&no) {
            live.phase = Phase::Nominated(node);
            self.nominated.insert(no);
        }
    }

    /// The caller says what it is instead.
    pub fn denominate(&mut self, no: AllocationNo) {
        self.nominated.remove(&no);
    }
}

fn member(no: AllocationNo, live: &Live) -> Member {
    Member {
        no,
        set: live.job_set,
        classed: live.priority_class.is_some(),
    }
}
