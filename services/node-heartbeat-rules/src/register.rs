//! Registration: a node comes, or comes back as a new incarnation with nothing running; or it has another capacity by now, and
//! what runs there goes on.

use super::{Config, Node, Nodes, forget, lease};
use ledger::{Draft, IllegalEvent};
use std::{collections::BTreeSet, fmt};
use vocab::fact::{NodeCapacityChanged, NodeLost, NodeRegistered};
use vocab::{EventKind, Level, NodeCapacity, Refusal, Rule, Token};

/// A life of the agent, and how often the capacity has changed in it.
pub(super) struct Life {
    pub boot: u64,
    pub change: u64,
}

/// An older life of the agent is ignored, the current one only heard; a newer one ends the node's former life first. The
/// incarnation is given here, so that nothing an agent says can use up a name.
pub(super) fn decide(
    state: &mut Nodes,
    node: Token,
    Life { boot, change }: Life,
    capacity: NodeCapacity,
    config: &Config,
    draft: &mut Draft,
) {
    let may_register = capacity
        .check()
        .and_then(|()| state.may_register(&node, &capacity, config))
        .and_then(|()| state.may_have_hostname(&node, &capacity));
    if let Err(refusal) = may_register {
        state.refuse(node, boot, Some(capacity), refusal, draft.now);
        return;
    }
    match state.nodes.get(&node) {
        Some(known) if known.boot > boot => return,
        Some(known) if known.boot == boot => {
            // A lost incarnation stays lost: its runs were given to others.
            if known.ready && !state.is_to_go(&node) {
                lease::is_there(state, &node, config, draft);
                decide_change(state, node, Life { boot, change }, capacity, draft);
            }
            return;
        }
        Some(known) if known.ready => {
            let lost = NodeLost {
                node: node.clone(),
                incarnation: known.incarnation,
                last_seen: draft.now,
            };
            draft.emit(state, lost);
        }
        Some(_) | None => {}
    }
    let capacity = match draft.is_at(Level::NODE_RULES) {
        true => capacity,
        false => capacity.of_first_level(),
    };
    // What ran is over, as its agent says by this: nothing is to be waited for.
    forget::decide(state, draft);
    // Before they were given, agents chose their incarnations, and some were higher than any event's number.
    let before = state.nodes.get(&node).map_or(0, |known| known.incarnation);
    let registered = NodeRegistered {
        node: node.clone(),
        incarnation: draft.next_no().0.max(before.saturating_add(1)),
        boot,
        capacity,
    };
    draft.emit(state, registered);
    lease::renew(state, &node, config, draft);
}

/// A message that comes late, or again, has a change that was taken before, or an older one. Only what was refused, or changed
/// nothing, is not counted.
fn decide_change(
    state: &mut Nodes,
    node: Token,
    Life { boot, change }: Life,
    capacity: NodeCapacity,
    draft: &mut Draft,
) {
    let taken = state.changes.get(&node).copied().unwrap_or(0);
    let Some(known) = state.nodes.get(&node) else {
        return;
    };
    if known.capacity == capacity {
        state.refused.remove(&node);
        return;
    }
    if change <= taken {
        return;
    }
    let may = match draft.allows(EventKind::NodeCapacityChanged) {
        true => known.capacity.may_become(&capacity),
        false => Err(Refusal::new(Rule::NotSupported, "change")),
    };
    match may {
        Ok(()) => {
            let incarnation = known.incarnation;
            let changed = NodeCapacityChanged {
                node,
                incarnation,
                change,
                capacity,
            };
            draft.emit(state, changed);
        }
        Err(refusal) => state.refuse(node, boot, Some(capacity), refusal, draft.now),
    }
}

impl Nodes {
    pub(super) fn capacity_changed(
        &mut self,
        fact: &NodeCapacityChanged,
    ) -> Result<(), IllegalEvent> {
        let taken = self.changes.get(&fact.node).copied().unwrap_or(0);
        let known = self.nodes.get_mut(&fact.node);
        let known = known.filter(|it| it.ready && it.incarnation == fact.incarnation);
        match known {
            Some(known)
                if fact.change > taken && known.capacity.may_become(&fact.capacity).is_ok() =>
            {
                known.capacity = fact.capacity.clone();
                self.changes.insert(fact.node.clone(), fact.change);
                self.refused.remove(&fact.node);
                Ok(())
            }
            _ => Err(IllegalEvent::new(
                "no such change in this incarnation",
                fact,
            )),
        }
    }

    pub(super) fn registered(&mut self, fact: &NodeRegistered) -> Result<(), IllegalEvent> {
        let (node, incarnation, boot) = (&fact.node, fact.incarnation, fact.boot);
        let before = self.nodes.get(node);
        let newer = |known: &Node| known.incarnation < incarnation && known.boot < boot;
        if before.is_some_and(|known| known.ready || !newer(known)) {
            return Err(IllegalEvent::new("registered already", fact));
        }
        self.is_back(node);
        self.refused.remove(node);
        let fresh = Node {
            incarnation,
            boot,
            ready: true,
            suspect: false,
            capacity: fact.capacity.clone(),
            // Begins anew with each life. How far a former one was counted depends on what its leader had read when the
            // node was lost, and a leader that was fenced meanwhile may have told its agent of more.
            revision: 0,
            runs: BTreeSet::new(),
        };
        self.nodes.insert(node.clone(), fresh);
        self.changes.remove(node);
        self.has_hostname(node, &fact.capacity);
        self.leases.lacks(node);
        Ok(())
    }

    pub(super) fn ready(
        &mut self,
        node: &Token,
        incarnation: u64,
        event: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        match self.nodes.get_mut(node) {
            Some(known) if (known.suspect || !known.ready) && known.incarnation == incarnation => {
                known.ready = true;
                known.suspect = false;
                self.leases.lacks(node);
                Ok(())
            }
            _ => Err(IllegalEvent::new(
                "not suspected or lost in this incarnation",
                event,
            )),
        }
    }

    /// Its runs are over with it, whatever its agent may say later. The scheduler decides what becomes of the allocations;
    /// a next run is of another incarnation, so nothing that is said of this one can be taken for it.
    pub(super) fn lost(
        &mut self,
        node: &Token,
        incarnation: u64,
        event: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        match self.nodes.get_mut(node) {
            Some(known) if known.ready && known.incarnation == incarnation => {
                known.ready = false;
                known.suspect = false;
                for allocation in std::mem::take(&mut known.runs) {
                    if let Some(run) = self.runs.remove(&allocation) {
                        self.requested.insert(allocation, run.requested(false));
                    }
                }
                self.leases.drop(node);
                self.leaves_hostname(node);
                Ok(())
            }
            _ => Err(IllegalEvent::new("not ready in this incarnation", event)),
        }
    }
}
