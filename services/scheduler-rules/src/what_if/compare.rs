//! Two courses, side by side.

use super::{
    course::Course,
    differences::{
        Difference, Differences, NodesUsed, Preempted, QueueDifference, Requested, Shares, Standing,
    },
    is_extra,
};
use crate::{
    Node, Scheduler,
    allocation::{Live, Phase},
    fair::Share,
};
use std::collections::BTreeMap;
use vocab::{AllocationNo, Filter, Token, WaitingReason};

impl Differences {
    pub(super) fn between(state: &Scheduler, before: &mut Course, after: &mut Course) -> Self {
        // Whoever lives in the state lives on, or has ended, in both courses.
        let of = |no: &AllocationNo, live: &Live| {
            let (before, after) = (before.standing(*no)?, after.standing(*no)?);
            (before != after).then(|| Difference {
                allocation: *no,
                queue: state.waiting.queues().get(live.queue).name.clone(),
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
                .allocations
                .all()
                .iter()
                .filter_map(|(no, live)| of(no, live))
                .collect(),
            preempted: preempted(after, before, &extra),
            spared: preempted(before, after, &extra),
            queues: queues(&mut before.state, &mut after.state),
            nodes_before: nodes(&before.state),
            nodes_after: nodes(&after.state),
            preemption_limited: after.state.waiting.any_rate_limited(),
        }
    }
}

impl Course {
    fn standing(&self, no: AllocationNo) -> Option<Standing> {
        match self.state.allocations.get(&no) {
            Some(live) => Some(self.state.standing(live)),
            None => self.ended.get(&no).map(|cause| Standing::Ended(*cause)),
        }
    }
}

impl Scheduler {
    fn standing(&self, live: &Live) -> Standing {
        let in_line = |none| match self.waiting.pending_group_of(live) {
            Some(pending_group) => {
                let said = pending_group.said.as_ref().map(|said| said.reason);
                said.or_else(|| self.waiting.block_of(pending_group))
                    .unwrap_or(WaitingReason::FairShare)
            }
            None => none,
        };
        Standing::Waits(match &live.phase {
            Phase::Held(binding) => {
                return Standing::On(self.fleet.node(binding.node).name.clone());
            }
            Phase::AwaitingQuota(_) => return Standing::AwaitingQuota,
            Phase::AwaitingOthers => WaitingReason::Dependency,
            Phase::Pausing(_) => WaitingReason::Backoff,
            Phase::Nominated(_) => WaitingReason::Nominated,
            Phase::Queued(..) => in_line(WaitingReason::FairShare),
            Phase::InGang => in_line(WaitingReason::GangIncomplete),
        })
    }

    fn counts(&self, no: AllocationNo) -> Vec<(Filter, u32)> {
        let said = self
            .allocations
            .get(&no)
            .and_then(|live| self.waiting.pending_group_of(live)?.said.as_ref());
        said.map_or_else(Vec::new, |said| said.counts.clone())
    }
}

/// The extra requests, live or ended.
fn extras(course: &Course) -> Vec<AllocationNo> {
    let all = course
        .state
        .allocations
        .all()
        .keys()
        .chain(course.ended.keys());
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
                .allocations
                .get(no)
                .or_else(|| other.state.allocations.get(no))?;
            Some(Preempted {
                allocation: *no,
                queue: one.state.waiting.queues().get(live.queue).name.clone(),
                cause: *cause,
                by: by.filter(|by| !is_extra(*by)),
                by_extra: by.and_then(|by| extra.binary_search(&by).ok()),
            })
        });
    all.collect()
}

fn shares(state: &mut Scheduler) -> BTreeMap<Token, Shares> {
    let due = state.fair_shares();
    let all = state
        .waiting
        .queues()
        .all()
        .zip(due)
        .map(|((no, queue), due)| {
            let held = Share::dominant(state.waiting.queues().own(no), state.fleet.totals());
            let shares = Shares {
                share_ppm: held.ppm(),
                fair_share_ppm: due.ppm(),
            };
            (queue.name.clone(), shares)
        });
    all.collect()
}

fn queues(before: &mut Scheduler, after: &mut Scheduler) -> Vec<QueueDifference> {
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
    let count = |which: fn(&Node) -> bool| state.nodes().iter().filter(|node| which(node)).count();
    NodesUsed {
        used: count(|node| !node.holds.is_empty()),
        ready: count(|node| node.ready),
    }
}
