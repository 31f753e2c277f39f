//! Where everybody stands with the changes and without them.

use super::{course::Course, is_extra};
use crate::domain::{
    Scheduler,
    allocation::{Live, Phase},
    fair::Share,
    queues::Line,
};
use std::collections::BTreeMap;
use vocab::{AllocationNo, EndCause, Filter, PreemptionCause, Token, WaitingReason};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    AwaitingQuota,
    Waits(WaitingReason),
    On(Token),
    Ended(EndCause),
}

/// An allocation that stands elsewhere with the changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    pub allocation: AllocationNo,
    pub queue: Token,
    pub before: Standing,
    pub after: Standing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// On a node only with the changes.
    Placed,
    /// On a node only without them.
    Unplaced,
    /// On another node.
    Moved,
    /// Over, or over for another reason.
    Ended,
    /// For another reason.
    Waits,
}

impl Difference {
    pub fn kind(&self) -> Kind {
        match (&self.before, &self.after) {
            (_, Standing::Ended(_)) => Kind::Ended,
            (Standing::On(_), Standing::On(_)) => Kind::Moved,
            (_, Standing::On(_)) => Kind::Placed,
            (Standing::On(_), _) => Kind::Unplaced,
            _ => Kind::Waits,
        }
    }
}

/// What becomes of an extra request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requested {
    pub standing: Standing,
    /// How many nodes each filter keeps off, while it waits in line.
    pub counts: Vec<(Filter, u32)>,
}

/// Made to go in one course and not, or not for the same, in the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preempted {
    pub allocation: AllocationNo,
    pub queue: Token,
    pub cause: PreemptionCause,
    pub by: Option<AllocationNo>,
    /// It is the extra request of this index in `Differences::requested` that it makes room for.
    pub by_extra: Option<usize>,
}

/// What a queue holds itself, and what it is due, as parts of the cell in the dominant resource; in millionths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shares {
    pub share_ppm: u32,
    pub fair_share_ppm: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueDifference {
    pub queue: Token,
    pub before: Shares,
    pub after: Shares,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodesUsed {
    /// With something on them.
    pub used: usize,
    pub ready: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Differences {
    /// In the order of the changes.
    pub requested: Vec<Requested>,
    /// By number.
    pub allocations: Vec<Difference>,
    pub preempted: Vec<Preempted>,
    /// Made to go only without the changes.
    pub spared: Vec<Preempted>,
    /// By name.
    pub queues: Vec<QueueDifference>,
    pub nodes_before: NodesUsed,
    pub nodes_after: NodesUsed,
    /// More would have to go than may in one minute: not all of the consequences are here.
    pub preemption_limited: bool,
}

impl Differences {
    pub fn is_empty(&self) -> bool {
        self.requested.is_empty()
            && self.allocations.is_empty()
            && self.preempted.is_empty()
            && self.spared.is_empty()
            && self.queues.is_empty()
            && self.nodes_before == self.nodes_after
    }

    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Difference> {
        self.allocations
            .iter()
            .filter(move |one| one.kind() == kind)
    }

    pub(super) fn between(state: &Scheduler, before: &Course, after: &Course) -> Self {
        // Whoever lives in the state lives on, or has ended, in both courses.
        let of = |no: &AllocationNo, live: &Live| {
            let (before, after) = (before.standing(*no)?, after.standing(*no)?);
            (before != after).then(|| Difference {
                allocation: *no,
                queue: state.queues.get(live.queue).name.clone(),
                before,
                after,
            })
        };
        let extra = extras(after);
        let requested = extra.iter().filter_map(|no| {
            Some(Requested {
                standing: after.standing(*no)?,
                counts: after.state.counts(*no),
            })
        });
        Self {
            requested: requested.collect(),
            allocations: state
                .live
                .iter()
                .filter_map(|(no, live)| of(no, live))
                .collect(),
            preempted: preempted(after, before, &extra),
            spared: preempted(before, after, &extra),
            queues: queues(&before.state, &after.state),
            nodes_before: nodes(&before.state),
            nodes_after: nodes(&after.state),
            preemption_limited: after.state.blocked.preempt_again_at.is_some(),
        }
    }
}

impl Course {
    fn standing(&self, no: AllocationNo) -> Option<Standing> {
        match self.state.live.get(&no) {
            Some(live) => Some(self.state.standing(live)),
            None => self.ended.get(&no).map(|cause| Standing::Ended(*cause)),
        }
    }
}

impl Scheduler {
    fn line_of(&self, live: &Live) -> Option<&Line> {
        let line = match live.phase {
            Phase::Queued(line, _) => Some(line),
            Phase::InGang => live.gang.and_then(|gang| self.gangs.line(gang)),
            _ => None,
        };
        self.queues.line(line?)
    }

    fn standing(&self, live: &Live) -> Standing {
        let in_line = |none| match self.line_of(live) {
            Some(line) => {
                let said = line.said.as_ref().map(|said| said.reason);
                said.or_else(|| self.block_of(line))
                    .unwrap_or(WaitingReason::FairShare)
            }
            None => none,
        };
        Standing::Waits(match &live.phase {
            Phase::Held(hold) => return Standing::On(self.fleet.node(hold.node).name.clone()),
            Phase::AwaitingQuota => return Standing::AwaitingQuota,
            Phase::AwaitingOthers => WaitingReason::Dependency,
            Phase::Pausing(_) => WaitingReason::Backoff,
            Phase::Nominated(_) => WaitingReason::Nominated,
            Phase::Queued(..) => in_line(WaitingReason::FairShare),
            Phase::InGang => in_line(WaitingReason::GangIncomplete),
        })
    }

    fn counts(&self, no: AllocationNo) -> Vec<(Filter, u32)> {
        let said = self
            .live
            .get(&no)
            .and_then(|live| self.line_of(live)?.said.as_ref());
        said.map_or_else(Vec::new, |said| said.counts.clone())
    }
}

/// The extra requests, live or ended.
fn extras(course: &Course) -> Vec<AllocationNo> {
    let all = course.state.live.keys().chain(course.ended.keys());
    let mut extra: Vec<_> = all.copied().filter(|no| is_extra(*no)).collect();
    extra.sort_unstable();
    extra
}

/// Those who had to go in `one` and not, or not for the same, in `other`. Extra requests are told of by themselves.
fn preempted(one: &Course, other: &Course, extra: &[AllocationNo]) -> Vec<Preempted> {
    let news = one
        .preempted
        .iter()
        .filter(|(no, why)| other.preempted.get(no) != Some(why));
    let all = news
        .filter(|(no, _)| !is_extra(**no))
        .filter_map(|(no, (cause, by))| {
            let live = one
                .state
                .live
                .get(no)
                .or_else(|| other.state.live.get(no))?;
            Some(Preempted {
                allocation: *no,
                queue: one.state.queues.get(live.queue).name.clone(),
                cause: *cause,
                by: by.filter(|by| !is_extra(*by)),
                by_extra: by.and_then(|by| extra.binary_search(&by).ok()),
            })
        });
    all.collect()
}

fn shares(state: &Scheduler) -> BTreeMap<Token, Shares> {
    let due = state.queues.fair_shares(state.fleet.totals());
    let all = state.queues.all().zip(due).map(|((no, queue), due)| {
        let held = Share::dominant(&state.queues.own(no).0, state.fleet.totals());
        let shares = Shares {
            share_ppm: held.ppm(),
            fair_share_ppm: due.ppm(),
        };
        (queue.name.clone(), shares)
    });
    all.collect()
}

fn queues(before: &Scheduler, after: &Scheduler) -> Vec<QueueDifference> {
    let before = shares(before);
    // No queue goes.
    let all = shares(after)
        .into_iter()
        .map(|(queue, after)| QueueDifference {
            before: before.get(&queue).copied().unwrap_or_default(),
            queue,
            after,
        });
    all.filter(|one| one.before != one.after).collect()
}

fn nodes(state: &Scheduler) -> NodesUsed {
    let count = |which: fn(&super::super::Node) -> bool| {
        state.nodes().iter().filter(|node| which(node)).count()
    };
    NodesUsed {
        used: count(|node| !node.holds.is_empty()),
        ready: count(|node| node.ready),
    }
}
