//! Who may speak for a node. An operator approves a name and gives its machine a token; whoever comes with the token first
//! binds the name to the key of its user on the bus, and the bus lets nobody else speak for the node.

use super::{Config, Effect, Nodes};
use ledger::{Draft, IllegalEvent};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};
use vocab::fact::NodeJoined;
use vocab::{At, Millis, NodeApproval, NodeCapacity, Refusal, Rule, Token};

/// How long a user of the bus lasts that a node was given. It asks for the next before that.
pub const IDENTITY_MS: i64 = 3_600_000;

/// Who may register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Joining {
    /// Approved nodes that have joined.
    Required,
    /// Every node for which the bus accepts messages, as for simulated fleets, but those that an operator forgot. An approval
    /// still bounds its node.
    Open,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Approved {
    approval: NodeApproval,
    version: u64,
    /// The key that has joined by the approval's token.
    key: Option<Token>,
}

/// Names whose last user of the bus may live until then.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Held(BTreeMap<Token, Millis>);

/// Somebody who wants to speak for a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Join {
    pub node: Token,
    /// SHA-256 of the token that it has.
    pub token: [u8; 32],
    /// The public key of its user on the bus.
    pub key: Token,
    pub request: u64,
}

pub(super) fn decide(state: &mut Nodes, asked: Box<Join>, draft: &mut Draft) {
    let Join {
        node,
        token,
        key,
        request,
    } = &*asked;
    match state.may_join(node, token, key, draft.now) {
        Err(refusal) => {
            state.refuse_join(node, *request, refusal, draft.now);
            return;
        }
        // It has lost the answer, or its user is about to end.
        Ok(None) => state.refused.may_join(node),
        Ok(Some(version)) => {
            state.refused.may_join(node);
            let joined = NodeJoined {
                node: node.clone(),
                key: key.clone(),
                version,
            };
            draft.emit(state, joined);
        }
    }
    state.effects.push(Effect::Joined(asked));
}

impl Nodes {
    /// The version of the approval by which it joins now; none if it has joined before.
    fn may_join(
        &self,
        node: &Token,
        token: &[u8; 32],
        key: &Token,
        now: Millis,
    ) -> Result<Option<u64>, Refusal> {
        let approved = self.approved.get(node);
        let approved = approved.ok_or_else(|| Refusal::new(Rule::NodeNotApproved, "node"))?;
        if approved.approval.token != *token {
            return Err(Refusal::new(Rule::JoinTokenInvalid, "token"));
        }
        match &approved.key {
            Some(known) if known == key => return Ok(None),
            Some(_) => return Err(Refusal::new(Rule::JoinTokenInvalid, "public_key")),
            None => {}
        }
        let until = approved.approval.until;
        if until <= now {
            return Err(over(Rule::JoinTokenExpired, "token", until, now));
        }
        match self.held.0.get(node) {
            Some(until) if *until > now => Err(over(Rule::NodeNameHeld, "node", *until, now)),
            _ => Ok(Some(approved.version)),
        }
    }

    /// Returns whether a machine speaks for the node by its approval's token.
    pub(super) fn has_joined(&self, node: &Token) -> bool {
        let approved = self.approved.get(node);
        approved.is_some_and(|approved| approved.key.is_some())
    }

    /// Whether a node may register with such a capacity.
    pub(super) fn may_register(
        &self,
        node: &Token,
        capacity: &NodeCapacity,
        config: &Config,
    ) -> Result<(), Refusal> {
        let approved = self.approved.get(node);
        let may_join = match config.joining {
            Joining::Required => self.has_joined(node),
            Joining::Open => !self.banned.contains(node),
        };
        if !may_join {
            return Err(Refusal::new(Rule::NodeNotApproved, "node"));
        }
        approved.map_or(Ok(()), |approved| approved.approval.permit(capacity))
    }

    /// Whoever has joined by the same token still speaks for the node; anybody else does not any more.
    pub(super) fn approve(
        &mut self,
        at: &At,
        node: &Token,
        approval: Option<&NodeApproval>,
        version: u64,
    ) {
        // Judged by another approval.
        self.refused.remove(node);
        let before = self.approved.remove(node);
        let token = before.as_ref().map(|before| before.approval.token);
        let key = before.and_then(|before| before.key);
        let goes_on = approval.is_some_and(|approval| Some(approval.token) == token);
        if key.is_some() && !goes_on {
            self.held.0.retain(|_, until| *until > at.now);
            self.held.0.insert(node.clone(), at.now.plus(IDENTITY_MS));
        }
        match approval {
            Some(approval) => {
                let approved = Approved {
                    approval: approval.clone(),
                    version,
                    key: key.filter(|_| goes_on),
                };
                self.approved.insert(node.clone(), approved);
                self.banned.remove(node);
            }
            None => {
                self.banned.insert(node.clone());
                self.forget_soon(node);
            }
        }
    }

    pub(super) fn joined(
        &mut self,
        node: &Token,
        key: &Token,
        version: u64,
        event: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        match self.approved.get_mut(node) {
            Some(approved) if approved.version == version && approved.key.is_none() => {
                approved.key = Some(key.clone());
                Ok(())
            }
            _ => Err(IllegalEvent::new("not approved, or joined already", event)),
        }
    }
}

/// With moments as limits; those before 1970 are no moments of a cell.
fn over(rule: Rule, subject: &str, limit: Millis, now: Millis) -> Refusal {
    let ms = |at: Millis| u64::try_from(at.0).unwrap_or(0);
    Refusal::over(rule, subject, ms(limit), ms(now))
}
