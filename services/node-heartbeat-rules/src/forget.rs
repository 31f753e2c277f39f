//! A node that an operator has forgotten is lost when its lease is over, if it was there, and then unknown. Until then what it
//! was given may run there, so nobody else gets that.

use super::{Nodes, condition};
use ledger::{Draft, IllegalEvent};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};
use vocab::fact::{NodeForgotten, NodeLost};
use vocab::{
    At, Millis, Token,
    sabotage::{self, Bug},
};

/// How long an agent that does not know of it is told to register again.
const TOLD_MS: i64 = 24 * 3_600_000;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Forgotten {
    /// To be forgotten as soon as their leases are over, which are not renewed.
    due: BTreeSet<Token>,
    /// The lives of those that were, and when.
    gone: BTreeMap<Token, (u64, Millis)>,
}

pub(super) fn decide(state: &mut Nodes, draft: &mut Draft) {
    if sabotage::armed(Bug::ForgottenAtOnce) {
        lose_at_once(state, draft);
    }
    let over = |node: &&Token| state.nodes.get(*node).is_none_or(|known| !known.ready);
    let over: Vec<Token> = state.forgotten.due.iter().filter(over).cloned().collect();
    for node in over {
        if draft.full() {
            return;
        }
        condition::end(state, &node, draft);
        draft.emit(state, NodeForgotten { node });
    }
}

fn lose_at_once(state: &mut Nodes, draft: &mut Draft) {
    for node in state.forgotten.due.clone() {
        let ready = state.nodes.get(&node).filter(|known| known.ready);
        if let Some(incarnation) = ready.map(|known| known.incarnation) {
            let last_seen = draft.now;
            let lost = NodeLost {
                node,
                incarnation,
                last_seen,
            };
            draft.emit(state, lost);
        }
    }
}

impl Nodes {
    pub(super) fn forget_soon(&mut self, node: &Token) {
        if self.nodes.contains_key(node) {
            self.forgotten.due.insert(node.clone());
        }
    }

    /// Whether it is to be forgotten when its lease is over.
    pub(super) fn is_to_go(&self, node: &Token) -> bool {
        self.forgotten.due.contains(node)
    }

    /// Whether its agent does not know that the node was forgotten.
    pub(super) fn was_forgotten(&self, node: &Token, boot: u64) -> bool {
        let gone = self.forgotten.gone.get(node);
        gone.is_some_and(|(known, _)| *known == boot)
    }

    pub(super) fn forgotten(
        &mut self,
        at: &At,
        node: &Token,
        event: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        match self.nodes.remove(node) {
            Some(known) if !known.ready => {
                self.forgotten.due.remove(node);
                self.leases.forget(node);
                self.changes.remove(node);
                let gone = &mut self.forgotten.gone;
                gone.retain(|_, (_, since)| since.plus(TOLD_MS) > at.now);
                gone.insert(node.clone(), (known.boot, at.now));
                Ok(())
            }
            _ => Err(IllegalEvent::new("not there, or not lost", event)),
        }
    }

    pub(super) fn is_back(&mut self, node: &Token) {
        self.forgotten.gone.remove(node);
    }
}
