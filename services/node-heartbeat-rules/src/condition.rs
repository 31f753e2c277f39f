//! Conditions of nodes: what their agents name in heartbeats goes on the ledger when it changes.

use super::{Config, Nodes};
use ledger::{Draft, IllegalEvent};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vocab::fact::NodeConditionChanged;
use vocab::{EventKind, Millis, Token};

/// That a node has at once, at the most.
pub const CONDITIONS_MAX: usize = 8;
/// The conditions of a node change so often in a lease, at the most: an agent that cannot make up its mind fills no ledger.
const CHANGES_IN_A_LEASE: i64 = 4;

/// What holds of a node, with the reasons.
pub type Conditions = BTreeMap<Token, Option<Token>>;

/// By node; none without any. They stay when the node is lost, until its next life says otherwise.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Known {
    of: BTreeMap<Token, Conditions>,
    /// When they last changed.
    #[serde(skip)]
    changed: BTreeMap<Token, Millis>,
}

/// `said` holds of the node, and nothing else. What comes too soon after the last change is left to the next heartbeat.
pub(super) fn decide(
    state: &mut Nodes,
    node: &Token,
    said: &Conditions,
    config: &Config,
    draft: &mut Draft,
) {
    let before = state.conditions.of.get(node);
    if before.map_or(said.is_empty(), |before| before == said)
        || !draft.allows(EventKind::NodeConditionChanged)
    {
        return;
    }
    let changed = state.conditions.changed.get(node);
    let pause_ms = config.lease_ms / CHANGES_IN_A_LEASE;
    if changed.is_some_and(|at| draft.now.since(*at) < pause_ms) {
        return;
    }
    let nothing = Conditions::new();
    let before = before.unwrap_or(&nothing);
    let gone = before.keys().filter(|name| !said.contains_key(*name));
    let gone = gone.map(|name| no_more(node, name));
    let new = said
        .iter()
        .filter(|(name, reason)| before.get(*name) != Some(reason));
    let new = new.map(|(name, reason)| NodeConditionChanged {
        node: node.clone(),
        condition: name.clone(),
        holds: true,
        reason: reason.clone(),
    });
    let changes: Vec<_> = gone.chain(new).collect();
    state.conditions.changed.insert(node.clone(), draft.now);
    for change in changes {
        draft.emit(state, change);
    }
}

/// Nothing holds of a node that is forgotten.
pub(super) fn end(state: &mut Nodes, node: &Token, draft: &mut Draft) {
    let holds = state.conditions.of.get(node).into_iter().flatten();
    let changes: Vec<_> = holds.map(|(name, _)| no_more(node, name)).collect();
    for change in changes {
        draft.emit(state, change);
    }
    state.conditions.changed.remove(node);
}

fn no_more(node: &Token, condition: &Token) -> NodeConditionChanged {
    NodeConditionChanged {
        node: node.clone(),
        condition: condition.clone(),
        holds: false,
        reason: None,
    }
}

impl Nodes {
    pub(super) fn condition_changed(
        &mut self,
        fact: &NodeConditionChanged,
    ) -> Result<(), IllegalEvent> {
        if !self.nodes.contains_key(&fact.node) {
            return Err(IllegalEvent::new("no such node", fact));
        }
        let mut known = self.conditions.of.remove(&fact.node).unwrap_or_default();
        let before = known.remove(&fact.condition);
        let changes = match fact.holds {
            true => before.as_ref() != Some(&fact.reason),
            false => before.is_some(),
        };
        if fact.holds {
            known.insert(fact.condition.clone(), fact.reason.clone());
        }
        if !known.is_empty() {
            self.conditions.of.insert(fact.node.clone(), known);
        }
        match changes {
            true => Ok(()),
            false => Err(IllegalEvent::new("as it was", fact)),
        }
    }
}
