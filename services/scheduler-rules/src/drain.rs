//! Draining: what runs on a drained node, or does not tolerate a taint `NoExecute` that its node has got, is told to stop and
//! placed elsewhere.

use super::{
    Scheduler,
    allocation::Binding,
    fleet::{NodeNo, Word, tolerates},
};
use ledger::Draft;
use vocab::{AllocationNo, PreemptionCause, TaintEffect};

pub(super) fn decide(state: &mut Scheduler, draft: &mut Draft) {
    for (node, word) in state.fleet.clearing() {
        for (allocation, cause) in state.has_to_go(node, &word) {
            if draft.full() {
                return;
            }
            state.evict(allocation, cause, None, draft);
        }
    }
}

impl Scheduler {
    /// Who is told to go from the node now, and why.
    fn has_to_go(&self, node: NodeNo, word: &Word) -> Vec<(AllocationNo, PreemptionCause)> {
        let mut on_their_way = 0;
        let mut goes = Vec::new();
        for no in &self.fleet.node(node).holds {
            let Some(live) = self.allocations.get(no) else {
                continue;
            };
            let class = self.allocations.class(live.class);
            let cause = match word.drain {
                true => PreemptionCause::Drain,
                false if self.is_run_out(node, class) => PreemptionCause::Taint,
                false => continue,
            };
            match live.binding().is_some_and(Binding::stays) {
                true => goes.push((*no, cause)),
                false => on_their_way += 1,
            }
        }
        if word.at_once > 0 {
            goes.truncate((word.at_once as usize).saturating_sub(on_their_way));
        }
        goes
    }

    fn is_run_out(&self, node: NodeNo, class: &super::class::Class) -> bool {
        let taints = self.fleet.capacity(node).taints.iter();
        let mut taints = taints.filter(|taint| taint.effect == TaintEffect::NoExecute);
        taints.any(|taint| !tolerates(class, taint))
    }
}
