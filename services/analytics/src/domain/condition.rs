//! What holds of the nodes: whether they are ready, and what their agents name.

use super::change::{Condition, Fact, Status};
use vocab::fact::NodeConditionChanged;
use vocab::{At, Token};

/// Whether the node can be counted on, by the cell's own judgement.
pub fn ready(node: &Token, status: Status, reason: &'static str, at: &At) -> Fact {
    Fact::Condition(Box::new(Condition {
        node: node.clone(),
        condition: NodeConditionChanged::READY.into(),
        status,
        reason: reason.into(),
        at: at.now,
    }))
}

/// By the word of its agent.
pub fn changed(fact: &NodeConditionChanged, at: &At) -> Fact {
    let reason = fact.reason.as_ref().map_or("", Token::as_str);
    Fact::Condition(Box::new(Condition {
        node: fact.node.clone(),
        condition: fact.condition.as_str().to_owned().into(),
        status: match fact.holds {
            true => Status::True,
            false => Status::False,
        },
        reason: reason.to_owned().into(),
        at: at.now,
    }))
}
