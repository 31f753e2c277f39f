//! The fleet as rows. Pure.

use ledger::{IllegalEvent, Projection};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};
use vocab::fact::{
    Applied, NodeCapacityChanged, NodeConditionChanged, NodeForgotten, NodeJoined, NodeLost,
    NodeReady, NodeRegistered, NodeSet, NodeSuspected,
};
use vocab::inputs;
use vocab::{At, Millis, NodeApproval, NodeCapacity, Token};

/// A node as it stands after the event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRow {
    pub node: Token,
    pub incarnation: u64,
    /// The life of its agent, by the agent's own count.
    pub boot: u64,
    pub state: NodeState,
    pub capacity: NodeCapacity,
    /// When this capacity was registered.
    pub registered_at: Millis,
    /// In this state since then.
    pub since: Millis,
    /// The last sign of life that stands on the ledger.
    pub last_seen: Millis,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeState {
    Ready,
    Lost,
    /// Ready, but its agent was not heard for half a lease.
    Suspect,
}

impl NodeState {
    pub const ALL: [Self; 3] = [Self::Ready, Self::Lost, Self::Suspect];

    pub fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Lost => "lost",
            Self::Suspect => "suspect",
        }
    }
}

/// Who may join under a name, and who has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalRow {
    pub node: Token,
    pub version: u64,
    pub approval: NodeApproval,
    pub approved_at: Millis,
    /// The key that has joined by its token, and since when.
    pub joined: Option<(Token, Millis)>,
}

/// What holds of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConditionRow {
    pub node: Token,
    pub condition: Token,
    pub reason: Option<Token>,
    /// It holds for this reason since then.
    pub since: Millis,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    Node(Box<NodeRow>),
    Forgotten(Token),
    Approval(Box<ApprovalRow>),
    /// Nobody may join under this name.
    Withdrawn(Token),
    Condition(Box<ConditionRow>),
    /// The condition of the node does not hold any more.
    NoCondition(Token, Token),
}

/// Folds the ledger into the fleet. Nodes are few, so all of them are held.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct WarmProjection {
    nodes: BTreeMap<Token, NodeRow>,
    approvals: BTreeMap<Token, ApprovalRow>,
}

impl WarmProjection {
    fn registered(
        &mut self,
        at: &At,
        node: &Token,
        (incarnation, boot): (u64, u64),
        capacity: &NodeCapacity,
    ) {
        let row = NodeRow {
            node: node.clone(),
            incarnation,
            boot,
            state: NodeState::Ready,
            capacity: capacity.clone(),
            registered_at: at.now,
            since: at.now,
            last_seen: at.now,
        };
        self.nodes.insert(node.clone(), row);
    }

    fn turned(
        &mut self,
        node: &Token,
        incarnation: u64,
        (state, since, last_seen): (NodeState, Millis, Millis),
        event: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        let turns = |from| match state {
            NodeState::Suspect => from == NodeState::Ready,
            NodeState::Ready | NodeState::Lost => from != state,
        };
        match self.nodes.get_mut(node) {
            Some(row) if row.incarnation == incarnation && turns(row.state) => {
                row.state = state;
                row.since = since;
                row.last_seen = last_seen;
                Ok(())
            }
            _ => Err(IllegalEvent::new("no such node to turn", event)),
        }
    }

    /// Whoever has joined by the same token still speaks for the node.
    fn approved(&mut self, at: &At, node: &Token, approval: &NodeApproval, version: u64) -> Change {
        let before = self.approvals.remove(node);
        let same = before.filter(|before| before.approval.token == approval.token);
        let row = ApprovalRow {
            node: node.clone(),
            version,
            approval: approval.clone(),
            approved_at: at.now,
            joined: same.and_then(|before| before.joined),
        };
        self.approvals.insert(node.clone(), row.clone());
        Change::Approval(Box::new(row))
    }
}

inputs! {
    pub enum Input {
        NodeSet, NodeJoined, NodeForgotten, NodeRegistered, NodeReady, NodeLost, NodeSuspected,
        NodeConditionChanged, NodeCapacityChanged
    }
}

impl Projection for WarmProjection {
    type Change = Change;
    type Input<'a> = Input<'a>;

    const NAME: &'static str = "node-heartbeat";
    const STATE_VERSION: u32 = 3;

    fn project(
        &mut self,
        at: &At,
        input: Input<'_>,
        out: &mut Vec<Change>,
    ) -> Result<(), IllegalEvent> {
        let node = match input {
            Input::NodeRegistered(NodeRegistered {
                node,
                incarnation,
                boot,
                capacity,
            }) => {
                self.registered(at, node, (*incarnation, *boot), capacity);
                node
            }
            Input::NodeSet(Applied {
                change: NodeSet { node, approval },
                version,
                ..
            }) => {
                out.push(match approval {
                    Some(approval) => self.approved(at, node, approval, *version),
                    None => {
                        self.approvals.remove(node);
                        Change::Withdrawn(node.clone())
                    }
                });
                return Ok(());
            }
            Input::NodeJoined(NodeJoined { node, key, .. }) => {
                let row = self.approvals.get_mut(node);
                let row = row.ok_or_else(|| IllegalEvent::new("no such approval", &input))?;
                row.joined = Some((key.clone(), at.now));
                out.push(Change::Approval(Box::new(row.clone())));
                return Ok(());
            }
            Input::NodeForgotten(NodeForgotten { node }) => {
                self.nodes.remove(node);
                out.push(Change::Forgotten(node.clone()));
                return Ok(());
            }
            Input::NodeConditionChanged(NodeConditionChanged {
                node,
                condition,
                holds,
                reason,
            }) => {
                out.push(match holds {
                    true => Change::Condition(Box::new(ConditionRow {
                        node: node.clone(),
                        condition: condition.clone(),
                        reason: reason.clone(),
                        since: at.now,
                    })),
                    false => Change::NoCondition(node.clone(), condition.clone()),
                });
                return Ok(());
            }
            Input::NodeCapacityChanged(NodeCapacityChanged {
                node,
                incarnation,
                capacity,
                ..
            }) => {
                let row = self.nodes.get_mut(node);
                let row = row.filter(|row| row.incarnation == *incarnation);
                let row = row.ok_or_else(|| IllegalEvent::new("no such node", &input))?;
                row.capacity = capacity.clone();
                node
            }
            Input::NodeReady(NodeReady { node, incarnation }) => {
                let turn = (NodeState::Ready, at.now, at.now);
                self.turned(node, *incarnation, turn, &input)?;
                node
            }
            Input::NodeLost(NodeLost {
                node,
                incarnation,
                last_seen,
            }) => {
                let turn = (NodeState::Lost, at.now, *last_seen);
                self.turned(node, *incarnation, turn, &input)?;
                node
            }
            Input::NodeSuspected(NodeSuspected {
                node,
                incarnation,
                last_seen,
            }) => {
                let turn = (NodeState::Suspect, at.now, *last_seen);
                self.turned(node, *incarnation, turn, &input)?;
                node
            }
        };
        let row = self.nodes.get(node).cloned();
        out.extend(row.map(|row| Change::Node(Box::new(row))));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vocab::{Event, EventNo, Lsn};

    /// Steps about one node, one millisecond apart: `registered`, `ready`, `suspect` or `lost`, and the incarnation; then the row as
    /// `state incarnation registered/since/last_seen`.
    fn check(steps: &str, expected: &str) {
        let mut projection = WarmProjection::default();
        let mut rows = Vec::new();
        let mut illegal = None;
        for (i, step) in steps.split(", ").enumerate() {
            let (verb, incarnation) = step.split_once(' ').unwrap();
            let node = Token::new("n").unwrap();
            let incarnation = incarnation.parse().unwrap();
            let event = match verb {
                "registered" => Event::NodeRegistered(NodeRegistered {
                    node,
                    incarnation,
                    boot: incarnation,
                    capacity: NodeCapacity::default(),
                }),
                "ready" => Event::NodeReady(NodeReady { node, incarnation }),
                "lost" => Event::NodeLost(NodeLost {
                    node,
                    incarnation,
                    last_seen: Millis(i as i64 * 10),
                }),
                "suspect" => Event::NodeSuspected(NodeSuspected {
                    node,
                    incarnation,
                    last_seen: Millis(i as i64 * 10),
                }),
                other => panic!("{other}"),
            };
            let at = At {
                lsn: Lsn(1),
                index: 0,
                no: EventNo(1),
                now: Millis(i as i64 + 1),
            };
            if let Err(error) = projection.project_event(&at, &event, &mut rows) {
                illegal = Some(error.state);
                break;
            }
        }
        let found = match (illegal, rows.last()) {
            (Some(state), _) => state.to_owned(),
            (None, Some(Change::Node(row))) => format!(
                "{} {} {}/{}/{}",
                row.state.name(),
                row.incarnation,
                row.registered_at.0,
                row.since.0,
                row.last_seen.0
            ),
            (None, last) => format!("{last:?}"),
        };
        assert_eq!(found, expected, "{steps}");
    }

    #[test]
    fn a_node_comes_goes_and_comes_back() {
        check("registered 1", "ready 1 1/1/1");
        check("registered 1, lost 1", "lost 1 1/2/10");
        check("registered 1, lost 1, ready 1", "ready 1 1/3/3");
        check("registered 1, lost 1, registered 2", "ready 2 3/3/3");
        check("registered 1, suspect 1", "suspect 1 1/2/10");
        check("registered 1, suspect 1, ready 1", "ready 1 1/3/3");
        check("registered 1, suspect 1, lost 1", "lost 1 1/3/20");
        check(
            "registered 18446744073709551615",
            "ready 18446744073709551615 1/1/1",
        );
    }

    #[test]
    fn only_the_current_incarnation_turns() {
        check("lost 1", "no such node to turn");
        check("registered 1, ready 1", "no such node to turn");
        check("registered 1, lost 2", "no such node to turn");
        check("registered 1, lost 1, lost 1", "no such node to turn");
        check("registered 1, lost 1, suspect 1", "no such node to turn");
        check("registered 1, suspect 1, suspect 1", "no such node to turn");
    }
}
