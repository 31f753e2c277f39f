//! Whoever would have to go at once for another who waits is placed after that one, or not at all: so nothing is placed in
//! vain. The order between queues is that of their shares as long as nobody's priority takes from anybody.

use super::{Scheduler, class::add, fair::Share};
use vocab::PendingGroupNo;

/// Pending groups that may be tried and whose heads preempt, and those that come after them.
#[derive(Default)]
pub(super) struct Levels {
    /// By priority, the highest last; none before they were asked for.
    preempting: Option<Vec<(i32, PendingGroupNo)>>,
    held_back: Vec<PendingGroupNo>,
    /// What each queue is due; asked for when a part of that is protected.
    due: Option<Vec<Share>>,
}

impl Levels {
    fn of(state: &mut Scheduler) -> Vec<(i32, PendingGroupNo)> {
        if !state.settings.any_preempts() {
            return Vec::new();
        }
        let pending_groups = state.waiting.pending_groups_to_try();
        // Alone, nobody comes after anybody.
        if pending_groups.len() < 2 || state.settings.policy().preemptions_per_minute == 0 {
            return Vec::new();
        }
        let preempting = pending_groups.iter().filter_map(|no| {
            let head = state.waiting.queues().pending_group(*no)?.head()?;
            let live = state.allocations.get(&head.allocation)?;
            state
                .preempts(head.allocation, live)
                .then_some((live.priority, *no))
        });
        let mut preempting: Vec<_> = preempting.collect();
        preempting.sort_unstable();
        preempting
    }

    /// The highest priority that waits, may still be placed and preempts.
    fn highest(&mut self, state: &mut Scheduler) -> Option<i32> {
        let preempting = self.preempting.get_or_insert_with(|| Self::of(state));
        while let Some((priority, pending_group)) = preempting.last() {
            let pending_group = state.waiting.queues().pending_group(*pending_group);
            let live = pending_group
                .and_then(|pending_group| state.allocations.get(&pending_group.head()?.allocation));
            let still = live.is_some_and(|live| live.priority == *priority);
            if still
                && pending_group
                    .is_some_and(|pending_group| state.waiting.block_of(pending_group).is_none())
            {
                return Some(*priority);
            }
            preempting.pop();
        }
        None
    }

    /// Whether the pending group comes after another one; then it is passed over until `free`.
    pub fn hold_back(&mut self, state: &mut Scheduler, no: PendingGroupNo) -> bool {
        let Some(highest) = self.highest(state) else {
            return false;
        };
        let pending_group = state.waiting.queues().pending_group(no);
        let Some((pending_group, live)) = pending_group.and_then(|pending_group| {
            Some((
                pending_group,
                state.allocations.get(&pending_group.head()?.allocation)?,
            ))
        }) else {
            return false;
        };
        if live.priority >= highest || !state.settings.preemptible(live.priority_class) {
            return false;
        }
        let protected_milli = state.settings.policy().protected_milli;
        if protected_milli > 0 {
            let queue = pending_group.key.queue;
            let mut held = *state.waiting.queues().own(queue);
            add(&mut held, &pending_group.asks);
            let held = Share::dominant(&held, state.fleet.totals());
            let due = self.due.get_or_insert_with(|| state.fair_shares());
            let due = due.get(queue.0 as usize).copied().unwrap_or_default();
            if held <= due.part(protected_milli) {
                return false;
            }
        }
        state.waiting.pass_over(no);
        self.held_back.push(no);
        true
    }

    /// It is their turn; whether there were any.
    pub fn free(&mut self, state: &mut Scheduler) -> bool {
        let any = !self.held_back.is_empty();
        for no in self.held_back.drain(..) {
            state.waiting.take_up(no);
        }
        any
    }
}
