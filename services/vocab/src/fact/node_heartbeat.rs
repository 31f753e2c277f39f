//! What node-heartbeat records: which nodes there are, and what their agents say of runs.

use crate::{AllocationNo, Millis, NodeCapacity, RunState, Token};
use serde::{Deserialize, Serialize};

/// Ready from here on, with this capacity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRegistered {
    pub node: Token,
    /// Given by the cell, and never twice: this event's own number, or the one behind the node's last.
    pub incarnation: u64,
    /// The life of its agent, by the agent's own count.
    pub boot: u64,
    pub capacity: NodeCapacity,
}

/// Whoever has the key speaks for the node from here on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeJoined {
    pub node: Token,
    /// The public key of its user on the bus.
    pub key: Token,
    /// Of the approval whose token it had.
    pub version: u64,
}

/// The cell knows nothing of it any more; it was lost before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeForgotten {
    pub node: Token,
}

/// A lost node came back with the same capacity and nothing running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReady {
    pub node: Token,
    pub incarnation: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLost {
    pub node: Token,
    pub incarnation: u64,
    pub last_seen: Millis,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunReported {
    pub allocation: AllocationNo,
    pub node: Token,
    pub state: RunState,
    pub at: Millis,
}
