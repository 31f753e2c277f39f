//! What could go from each node, at a glance. Only saves work.

use super::super::{
    Scheduler,
    class::{Amounts, add},
    fleet::{Node, NodeNo},
    gang::GangNo,
    queues::QueueNo,
    work,
};
use super::plan::Budget;
use std::cmp::Reverse;
use vocab::{AllocationNo, Millis};

/// What stands on the nodes, as far as preemption is concerned; brought up to date when a node is looked at.
#[derive(Debug, Default)]
pub struct Board {
    nodes: Vec<Option<Seen>>,
}

/// One node, as of a change of it.
#[derive(Debug)]
pub struct Seen {
    version: Option<u64>,
    /// Free once those have gone that go already, but for what is promised to nominees.
    pub prospect: Amounts,
    /// Those that may be preempted: the lowest priority first, then the youngest.
    pub may_go: Vec<Entry>,
    /// Some entries of `may_go` are members of gangs.
    pub any_gang: bool,
    /// Somebody goes already.
    pub clears: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct Entry {
    pub priority: i32,
    pub placed: Millis,
    pub no: AllocationNo,
    pub queue: QueueNo,
    /// Gang that is preempted as a whole.
    pub gang: Option<GangNo>,
    pub amounts: Amounts,
}

impl Board {
    /// Looks at nodes that were never seen, so that not one who waits has to look at all of them.
    pub fn see_all(&mut self, state: &Scheduler, budget: &mut Budget) {
        let mut unseen = state.fleet.all().skip(self.nodes.len());
        while !budget.is_spent()
            && let Some(no) = unseen.next()
        {
            self.look(state, no, budget);
        }
    }

    pub fn look(&mut self, state: &Scheduler, no: NodeNo, budget: &mut Budget) -> &Seen {
        let at = no.0 as usize;
        if self.nodes.len() <= at {
            self.nodes.resize_with(at + 1, || None);
        }
        let version = state.fleet.version(no);
        let seen = self.nodes[at].take().filter(|seen| seen.version == version);
        self.nodes[at].insert(seen.unwrap_or_else(|| {
            budget.spend(work::SEE + work::SEE_EACH * state.fleet.node(no).holds.len());
            Seen::of(state, no, version)
        }))
    }
}

impl Seen {
    fn of(state: &Scheduler, no: NodeNo, version: Option<u64>) -> Self {
        let node = state.fleet.node(no);
        let mut prospect = free(node);
        let mut may_go = Vec::new();
        let mut clears = false;
        for (no, live) in node
            .holds
            .iter()
            .filter_map(|no| Some((no, state.allocations.get(no)?)))
        {
            let Some(binding) = live.binding() else {
                continue;
            };
            let amounts = state.allocations.amounts(live);
            if binding.stop.is_some() {
                clears = true;
                add(&mut prospect, &amounts);
            } else if state.settings.preemptible(live.priority_class) {
                may_go.push(Entry {
                    priority: live.priority,
                    placed: binding.placed,
                    no: *no,
                    queue: live.queue,
                    gang: live.gang,
                    amounts,
                });
            }
        }
        may_go.sort_unstable_by_key(|entry| {
            (entry.priority, Reverse(entry.placed), Reverse(entry.no))
        });
        if let Some(owed) = &node.past.owed {
            for (prospect, owed) in prospect.iter_mut().zip([owed.cpu_milli, owed.memory_bytes]) {
                *prospect = prospect.saturating_sub(owed);
            }
        }
        for live in node
            .nominees
            .iter()
            .filter_map(|no| state.allocations.get(no))
        {
            for (prospect, promised) in prospect.iter_mut().zip(state.allocations.amounts(live)) {
                *prospect = prospect.saturating_sub(promised);
            }
        }
        Self {
            version,
            prospect,
            any_gang: may_go.iter().any(|entry| entry.gang.is_some()),
            may_go,
            clears,
        }
    }
}

/// Returns the free amounts of a node.
pub fn free(node: &Node) -> Amounts {
    [
        node.room.cpu_milli(),
        node.room.memory_bytes(),
        node.room.gpu_milli_total(),
    ]
}
