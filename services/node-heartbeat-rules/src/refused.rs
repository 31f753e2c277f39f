//! Nodes with a refused registration, change of capacity or join, for operators. Hot state, not recorded: the agent of a
//! refused node asks again within seconds.

use super::{Effect, Nodes};
use std::collections::BTreeMap;
use vocab::{Millis, NodeCapacity, Refusal, Rule, Token};

/// Refused nodes that are kept; the oldest refusal goes first.
pub const REFUSED_MAX: usize = 256;
/// Milliseconds for which a refusal is kept that is not repeated.
const KEPT_MS: i64 = 24 * 3_600_000;

/// Why a node is not in the cell, or not as it reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedNode {
    pub refusal: Refusal,
    /// The moment of the last refusal.
    pub at: Millis,
    /// The reported capacity; `None` for a join and for an unreadable registration.
    pub reported: Option<NodeCapacity>,
    /// The node has joined by a token.
    pub joined: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct RefusedNodes(BTreeMap<Token, RefusedNode>);

impl RefusedNodes {
    fn insert(&mut self, node: &Token, refused: RefusedNode) {
        self.0.insert(node.clone(), refused);
        if self.0.len() > REFUSED_MAX {
            let oldest = self.0.iter().min_by_key(|(_, refused)| refused.at);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                self.0.remove(&oldest);
            }
        }
    }

    pub fn remove(&mut self, node: &Token) {
        self.0.remove(node);
    }

    /// Drops a refused join; the refusal of a registration stays.
    pub fn may_join(&mut self, node: &Token) {
        if self.0.get(node).is_some_and(|it| it.reported.is_none()) {
            self.0.remove(node);
        }
    }
}

impl RefusedNode {
    /// Returns the remedy for an operator.
    pub fn remedy(&self, node: &Token) -> String {
        match (self.refusal.rule, &self.reported) {
            (Rule::CapacityNotApproved | Rule::NodeNotApproved, Some(reported)) => {
                reported.approval_command(node.as_str(), self.joined)
            }
            (rule, _) => rule.teaching().passes.to_owned(),
        }
    }
}

impl Nodes {
    /// Returns the refused nodes with names that begin with `prefix`, by name.
    pub fn refused_nodes(
        &self,
        prefix: &str,
        now: Millis,
    ) -> impl Iterator<Item = (&Token, &RefusedNode)> {
        let is_kept = move |refused: &RefusedNode| refused.at.plus(KEPT_MS) > now;
        self.refused
            .0
            .iter()
            .filter(move |(node, refused)| node.as_str().starts_with(prefix) && is_kept(refused))
    }

    /// Tells the agent, and keeps the refusal for operators.
    pub(super) fn refuse(
        &mut self,
        node: Token,
        boot: u64,
        reported: Option<NodeCapacity>,
        refusal: Refusal,
        at: Millis,
    ) {
        let refused = RefusedNode {
            refusal: refusal.clone(),
            at,
            reported,
            joined: self.has_joined(&node),
        };
        self.refused.insert(&node, refused);
        self.effects.push(Effect::RegistrationRefused {
            node,
            boot,
            refusal: Box::new(refusal),
        });
    }

    /// Tells the machine that asked. Only the refusal for an approved name is kept: anyone may ask for any other.
    pub(super) fn refuse_join(&mut self, node: &Token, request: u64, refusal: Refusal, at: Millis) {
        if self.approved.contains_key(node) {
            let refused = RefusedNode {
                refusal: refusal.clone(),
                at,
                reported: None,
                joined: self.has_joined(node),
            };
            self.refused.insert(node, refused);
        }
        self.effects.push(Effect::JoinRefused {
            request,
            refusal: Box::new(refusal),
        });
    }
}
