//! Allocations that come to a node: its nominees, planned members, and the claimant.

use super::{
    super::{
        Scheduler,
        class::{Amounts, Class},
        fleet::{Node, NodeNo},
    },
    board::free,
    plan::Plan,
};
use vocab::AllocationNo;

pub struct Comers<'a> {
    state: &'a Scheduler,
    node: NodeNo,
    /// Allocations that come before the claimant.
    before: Vec<AllocationNo>,
    claimant: &'a Class,
    /// Amounts of all of them.
    asks: Amounts,
}

impl<'a> Comers<'a> {
    pub fn new(state: &'a Scheduler, node: NodeNo, claimant: &'a Class, plan: &Plan) -> Self {
        let mut before = state.fleet.node(node).nominees.clone();
        let planned = plan.places.iter().filter(|(_, at)| *at == node);
        before.extend(planned.map(|(coming, _)| *coming));
        let mut asks = claimant.amounts();
        for live in before.iter().filter_map(|no| state.allocations.get(no)) {
            for (asks, amount) in asks.iter_mut().zip(state.allocations.amounts(live)) {
                *asks = asks.saturating_add(amount);
            }
        }
        Self {
            state,
            node,
            before,
            claimant,
            asks,
        }
    }

    /// Returns whether these free amounts might suffice.
    pub fn might_fit(&self, free: &Amounts) -> bool {
        free.iter().zip(&self.asks).all(|(free, asks)| free >= asks)
    }

    /// Returns whether all of them find room on the node in this condition, the claimant last.
    pub fn fit(&self, node: &Node) -> bool {
        // Amounts rule out most nodes without a copy.
        if !self.might_fit(&free(node)) {
            return false;
        }
        let state = self.state;
        if self.before.is_empty() {
            return state.has_spot(node, self.node, self.claimant);
        }
        let mut node = node.clone();
        let mut before = self.before.iter();
        before.all(|no| state.come(&mut node, self.node, *no).is_some())
            && state.has_spot(&node, self.node, self.claimant)
    }
}
