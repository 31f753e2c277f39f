//! Preemption: who has to go so that one who waits can come.
//!
//! By priority: an allocation whose class preempts takes from preemptible ones of lower priority. By fair share: a queue
//! takes from one that has more than it is due, as long as that one's share falls by it and then still exceeds its due by no
//! less than the taker's does, and never from a higher priority. The victims are of the lowest priority, the fewest, and the
//! youngest; nobody goes for one who then does not fit, may not be there, or is beyond a limit of its queue.
//!
//! It comes to rest. An *epoch* ends when something comes from outside: quota is granted, a run ends by itself, a node
//! or a setting changes. In one epoch an allocation has nodes cleared for it by its queue's share once, and not at all
//! once it was nominated in vain twice. What is left are preemptions by priority, of which each puts a higher priority
//! in the place of lower ones: in a gang whose members are of different priorities each takes by its own. So with n
//! allocations that wait or run and p priorities among them, nobody has to go more than n times by share in an epoch;
//! between two such, the numbers that hold a place, by priority and the highest first, only grow in the order of words,
//! and each grows at most n times before a higher one does.

mod board;
mod claim;
mod comers;
mod minding;
mod nominees;
mod plan;
mod rate;
mod units;

pub use board::Board;
pub use nominees::decide as decide_nominated;
pub use rate::Rate;
use vocab::fact::AllocationNominated;

use super::{
    Scheduler,
    allocation::Live,
    class::add,
    fair::Share,
    queues::PendingGroup,
    sweep::{Strength, Sweep},
    work,
};
use claim::{Claimant, Rights, Shares};
use ledger::Draft;
use plan::{Budget, Plan, Planner};
use serde::{Deserialize, Serialize};
use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
};
use vocab::{
    AllocationNo, Millis, PendingGroupNo,
    sabotage::{self, Bug},
};

/// Past use is forgiven from minute to minute here, so that what is decided depends on the state and the minute.
const MINUTE_MS: i64 = 60_000;

/// What has been done for whom since something last came from outside: quota that was granted, a run that ended by itself,
/// a node or a setting that changed. What follows from decisions alone begins no new one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epoch {
    /// Nodes were cleared for these: it is not done again for their queue's share.
    pub cleared_for: BTreeSet<AllocationNo>,
    /// They were nominated in vain so often.
    withdrawn: BTreeMap<AllocationNo, u32>,
}

/// Who was nominated in vain so often in one epoch has no node cleared for it any more.
const WITHDRAWN_MAX: u32 = 2;

impl Epoch {
    pub fn withdraws(&mut self, no: AllocationNo) {
        *self.withdrawn.entry(no).or_default() += 1;
    }

    fn bars(&self, no: AllocationNo) -> bool {
        let times = self.withdrawn.get(&no);
        times.is_some_and(|times| *times >= WITHDRAWN_MAX)
    }
}

impl Scheduler {
    /// Whether it may make lower priorities go, as far as it has not been nominated in vain.
    pub(super) fn preempts(&self, no: AllocationNo, live: &Live) -> bool {
        let class = self.settings.class(live.priority_class);
        class.is_some_and(|class| class.preempts) && !self.epoch.bars(no)
    }

    /// What one who waits may do to be placed.
    fn rights(&self, no: AllocationNo, live: &Live, shares: &Shares) -> Rights {
        let had_its_turn = self.epoch.cleared_for.contains(&no) || self.epoch.bars(no);
        let rests = had_its_turn || !shares.any_above_but(live.queue);
        let by_share = self.settings.policy().fair_share_preemption
            && (!rests || sabotage::armed(Bug::EndlessPreemption));
        Rights {
            by_priority: self.preempts(no, live),
            by_share,
        }
    }

    /// One unit that waits in the pending group for room, with what its weakest and its strongest member can do, if any may have
    /// anybody go for it at all; cheap, and never wrong when it says no.
    fn claimant(
        &self,
        pending_group: &PendingGroup,
        members: &[AllocationNo],
        shares: &Shares,
        now: Millis,
    ) -> Option<(Claimant<'_>, Strength, Strength)> {
        let head = pending_group.head()?.allocation;
        let live = self.allocations.get(&head)?;
        let minute = Millis(now.0.div_euclid(MINUTE_MS).saturating_mul(MINUTE_MS));
        let queue = pending_group.key.queue;
        // Limits hold whoever has to go: what goes stays on its node until it has gone.
        let limited = self
            .waiting
            .queues()
            .limited_by(queue, &pending_group.asks)
            .is_some()
            && !sabotage::armed(Bug::PreemptOverQueueLimit);
        if limited {
            return None;
        }
        let half_life_ms = self.settings.policy().half_life_ms;
        let mut with_it = self
            .waiting
            .queues()
            .own_counted(queue, minute, half_life_ms);
        add(&mut with_it, &pending_group.asks);
        let mut claimant = Claimant {
            live,
            rights: Rights::default(),
            with_it: Share::dominant(&with_it, self.fleet.totals()),
            own_due: shares.due(queue),
            now,
            spared: Cell::default(),
        };
        let mut strengths: Option<(Strength, Strength)> = None;
        for no in members {
            claimant.stands_for(self, *no, shares);
            let own = claimant.strength();
            strengths = Some(match strengths {
                None => (own, own),
                Some((weakest, strongest)) => (weakest.weaker(own), strongest.stronger(own)),
            });
        }
        let (weakest, strongest) = strengths.filter(|(_, strongest)| strongest.is_any())?;
        Some((claimant, weakest, strongest))
    }

    /// Whether as many may go as the plan asks for; if not, it is looked at again when they may.
    fn may_go_now(&mut self, plan: &Plan, now: Millis) -> bool {
        let most = self.settings.policy().preemptions_per_minute;
        let may = self.rate.allows(now, plan.victims.len(), most);
        if !may {
            let again_at = self.rate.again_at(now);
            self.pace.preempt_at(again_at.unwrap_or(now));
        }
        may
    }
}

/// Clears nodes for waiting pending groups that may preempt, the highest priority first, and sets `due` to the fair shares if
/// it computed them. Returns whether something is left for the next frame, which continues where this one stopped.
pub(super) fn decide(
    state: &mut Scheduler,
    due: &mut Option<Vec<Share>>,
    draft: &mut Draft,
) -> bool {
    if !state.settings.any_preemptible() || state.settings.policy().preemptions_per_minute == 0 {
        state.waiting.rate_limits_nobody();
        return false;
    }
    let is_due = |at: Millis| at <= draft.now;
    if state.pace.preempt_again_at.is_some_and(is_due) || !draft.is_empty() {
        state.pace.preempt_again_at = None;
        state.waiting.sweep_anew();
    }
    let put_off = &mut state.pace.preempting_put_off;
    if !put_off.is_due(work::PREEMPTING_MAX, draft) {
        return true;
    }
    let mut sweep = state.waiting.take_sweep();
    let clear_for = |state: &mut Scheduler| {
        let Scheduler {
            waiting,
            fleet,
            allocations,
            ..
        } = state;
        waiting.pending_groups_to_clear_for(fleet, allocations)
    };
    let mut begins = |draft: &mut Draft| {
        let pending_groups = clear_for(state);
        draft.spend(pending_groups.len() / work::WALKED_FOR_ONE);
        pending_groups
    };
    if sweep.goes_on(|| begins(draft)) {
        let mut board = std::mem::take(&mut state.board.0);
        let mut shares = Shares::of(state);
        draft.spend(state.waiting.queues().all().count() / work::WALKED_FOR_ONE);
        draft.allow(work::PREEMPTING_LEAST);
        let may_spend = work::PREEMPTING_MAX.min(draft.work_left());
        let mut budget = Budget(may_spend);
        board.see_all(state, &mut budget);
        while !budget.is_spent() && !draft.full() {
            let Some(no) = sweep.next() else {
                if sweep.goes_on(|| clear_for(state)) {
                    continue;
                }
                break;
            };
            budget.spend(1);
            let with = (&mut board, &mut budget, &mut sweep);
            let plan = try_pending_group(state, no, &shares, with, draft);
            let (plan, limited) = match plan {
                Some(plan) if !state.may_go_now(&plan, draft.now) => (None, true),
                plan => (plan, false),
            };
            state.waiting.rate_limits(no, limited);
            let Some(plan) = plan else {
                continue;
            };
            let pending_group = state.waiting.queues().pending_group(no);
            let queues: Vec<_> = plan.less.keys().copied().collect();
            let queues = queues
                .into_iter()
                .chain(pending_group.map(|pending_group| pending_group.key.queue));
            let queues: Vec<_> = queues.collect();
            carry_out(state, plan, draft);
            shares.hold_now(state, &queues);
            sweep.moved();
            // What was promised to one who cannot be preempted makes others' due another one, from the next frame on.
            state.pace.preempt_at(Millis(draft.now.0.saturating_add(1)));
            // The next in the same pending group.
            if let Some(head) = state
                .waiting
                .queues()
                .pending_group(no)
                .and_then(PendingGroup::head)
            {
                sweep.add(head, no);
            }
        }
        state.board.0 = board;
        *due = Some(shares.into_due());
        draft.spend(may_spend - budget.0);
    }
    let left = !sweep.is_over();
    let anybody_waits = state.waiting.queues().pending_groups().next().is_some();
    if state.settings.policy().half_life_ms > 0
        && state.settings.policy().fair_share_preemption
        && anybody_waits
    {
        // Less may be remembered by then of one who waits.
        let next = (draft.now.0.div_euclid(MINUTE_MS) + 1).saturating_mul(MINUTE_MS);
        state.pace.preempt_at(Millis(next));
    }
    state.waiting.put_sweep(sweep);
    left
}

/// Nodes for the head of the pending group, and who has to go from them.
fn try_pending_group(
    state: &mut Scheduler,
    pending_group: PendingGroupNo,
    shares: &Shares,
    (board, budget, sweep): (&mut Board, &mut Budget, &mut Sweep),
    draft: &Draft,
) -> Option<Plan> {
    let now = draft.now;
    let pending_group = state.waiting.queues().pending_group(pending_group)?;
    let hopeless = state.waiting.is_hopeless(pending_group.key.scheduling_key);
    if hopeless || !state.waiting.waits_for_room(pending_group) {
        return None;
    }
    let (head, scheduling_key_no, queue) = (
        pending_group.head()?.allocation,
        pending_group.key.scheduling_key,
        pending_group.key.queue,
    );
    let scheduling_key = state.waiting.scheduling_key(scheduling_key_no);
    let mut members = Vec::new();
    let classes = scheduling_key.members.len();
    state
        .waiting
        .unit(head, classes, &state.allocations, &mut members);
    let (claimant, weakest, strongest) = state.claimant(pending_group, &members, shares, now)?;
    if sweep.has_failed(scheduling_key_no, &strongest) {
        return None;
    }
    let min = scheduling_key.min as usize;
    state.largest_first(&mut members);
    let mut planner = Planner::new(state, (claimant, members.len() == 1), shares, board, budget);
    let mut plan = Plan::default();
    let mut full = BTreeSet::new();
    for no in &members {
        let live = state.allocations.get(no)?;
        let alike = (live.class, live.priority);
        if !full.contains(&alike) && !planner.clear_for(*no, &mut plan) {
            full.insert(alike);
        }
    }
    let spared = planner.claimant.spared.get();
    if spared {
        // Allocations that were placed in this frame may be evicted in the next, instead of more or other victims.
        state.pace.preempt_at(Millis(now.0.saturating_add(1)));
    }
    if plan.places.is_empty() || plan.places.len() < min {
        // Other claimants may preempt in this claimant's queue, if that is above its due, and in its gang; it may not.
        let gang_runs = members.iter().any(|no| {
            let gang = state.allocations.get(no).and_then(|live| live.gang);
            gang.is_some_and(|gang| state.waiting.gangs().runs(gang))
        });
        if !shares.is_above(queue) && !gang_runs && !spared {
            sweep.fails(scheduling_key_no, weakest);
        }
        return None;
    }
    Some(plan)
}

/// Tells the victims to go for those whom nodes are cleared for.
fn carry_out(state: &mut Scheduler, plan: Plan, draft: &mut Draft) {
    for (victim, (cause, by)) in &plan.victims {
        state.evict(*victim, *cause, Some(*by), draft);
    }
    for (allocation, node) in plan.places {
        let there = state.fleet.node(node);
        let nominated = AllocationNominated {
            allocation,
            node: there.name.clone(),
            incarnation: there.incarnation,
        };
        draft.emit(state, nominated);
    }
}
