//! What node-heartbeat records: which nodes there are, and what their agents say of runs.

use crate::{AllocationNo, Millis, NodeCapacity, RunExit, RunState, Taint, TaintEffect, Token};
use serde::{Deserialize, Serialize};

/// Ready from here on, with this capacity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct NodeRegistered {
    #[wire(1)]
    pub node: Token,
    /// Given by the cell, and never twice: this event's own number, or the one behind the node's last.
    #[wire(2)]
    pub incarnation: u64,
    /// The life of its agent, by the agent's own count.
    #[wire(4)]
    pub boot: u64,
    #[wire(3)]
    pub capacity: NodeCapacity,
}

/// Whoever has the key speaks for the node from here on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct NodeJoined {
    #[wire(1)]
    pub node: Token,
    /// The public key of its user on the bus.
    #[wire(2)]
    pub key: Token,
    /// Of the approval whose token it had.
    #[wire(3)]
    pub version: u64,
}

/// The cell knows nothing of it any more; it was lost before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct NodeForgotten {
    #[wire(1)]
    pub node: Token,
}

/// Of a node that was suspected: its agent was heard again, and all that runs there goes on. Of one that was lost: it is back
/// with nothing running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct NodeReady {
    #[wire(1)]
    pub node: Token,
    #[wire(2)]
    pub incarnation: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct NodeLost {
    #[wire(1)]
    pub node: Token,
    #[wire(2)]
    pub incarnation: u64,
    #[wire(3, name = "last_seen_ms")]
    pub last_seen: Millis,
}

/// Its agent was silent for half a lease while others were heard. Nothing new is placed there until it is ready again; what runs
/// there stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct NodeSuspected {
    #[wire(1)]
    pub node: Token,
    #[wire(2)]
    pub incarnation: u64,
    #[wire(3, name = "last_seen_ms")]
    pub last_seen: Millis,
}

/// A condition of the node, as its agent names it, holds from here on, or does so no more. It stays through a life of the agent,
/// until the next one says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct NodeConditionChanged {
    #[wire(1)]
    pub node: Token,
    #[wire(2)]
    pub condition: Token,
    #[wire(3)]
    pub holds: bool,
    /// None where it does not hold.
    #[wire(4)]
    pub reason: Option<Token>,
}

/// The node has this from here on, in the same life of its agent, and what runs there goes on; there may be less now than that
/// holds. Only amounts differ from before ([`NodeCapacity::may_become`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct NodeCapacityChanged {
    #[wire(1)]
    pub node: Token,
    #[wire(2)]
    pub incarnation: u64,
    /// The agent's count of them in its life; grows.
    #[wire(3)]
    pub change: u64,
    #[wire(4)]
    pub capacity: NodeCapacity,
}

impl NodeConditionChanged {
    /// The cell's own judgement, which no agent names.
    pub const READY: &str = "Ready";
    /// Conditions that keep new allocations away, as in Kubernetes.
    pub const KEEP_AWAY: [&str; 3] = ["MemoryPressure", "DiskPressure", "NetworkUnavailable"];

    /// The taint that the node has while the condition holds.
    pub fn taint(&self) -> Option<Taint> {
        let keeps_away = Self::KEEP_AWAY.contains(&self.condition.as_str());
        keeps_away.then(|| Taint {
            key: self.condition.clone(),
            value: None,
            effect: TaintEffect::NoSchedule,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct RunReported {
    #[wire(1)]
    pub allocation: AllocationNo,
    #[wire(2)]
    pub node: Token,
    #[wire(3)]
    pub state: RunState,
    #[wire(4, name = "at_ms")]
    pub at: Millis,
    #[wire(5)]
    pub exit: Option<RunExit>,
}
