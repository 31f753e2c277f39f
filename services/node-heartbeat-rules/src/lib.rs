//! The rules of node-heartbeat: which nodes are there, what runs on them, and what their agents may say. Pure; one file
//! per subject.

mod condition;
mod forget;
mod hosts;
mod join;
mod lease;
mod refused;
mod register;
mod run;

pub use condition::{CONDITIONS_MAX, Conditions};
pub use join::{IDENTITY_MS, Join, Joining};
pub use refused::{REFUSED_MAX, RefusedNode};
pub use run::Report;
use vocab::fact::NodeHeartbeatFact as Fact;
use vocab::fact::{AllocationRequested, Applied};
use vocab::inputs;

use forget::Forgotten;
use join::{Approved, Held};
pub use lease::MassLoss;
use lease::{Beat, Leases};
use ledger::{Decider, Draft, IllegalEvent};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use vocab::{
    AllocationNo, At, EncodedSpec, EncodedSpecs, GpuShares, Millis, NodeCapacity, Numbered,
    Refusal, Rule, Token, TraceContext, Writer,
};

/// Everything that node-heartbeat knows; all but the leases folded from the ledger.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Nodes {
    nodes: BTreeMap<Token, Node>,
    runs: Numbered<AllocationNo, Run>,
    /// What runs nowhere, or went with its node: what its next assignment will have to say.
    requested: Numbered<AllocationNo, Requested>,
    /// Who may join, and who has.
    approved: BTreeMap<Token, Approved>,
    held: Held,
    forgotten: Forgotten,
    /// Who asked for the allocations that run commands.
    origins: BTreeMap<AllocationNo, Origin>,
    conditions: condition::Known,
    /// The last change of capacity of each node's present life; none: it has what it registered with.
    changes: BTreeMap<Token, u64>,
    /// Nodes that an operator forgot and has not approved since.
    banned: BTreeSet<Token>,
    /// Hot state, not recorded: heartbeats are many and lossy. A new leader grants every ready node a full lease.
    #[serde(skip)]
    leases: Leases,
    #[serde(skip)]
    hosts: hosts::Hosts,
    #[serde(skip)]
    refused: refused::RefusedNodes,
    #[serde(skip)]
    specs: EncodedSpecs,
    #[serde(skip)]
    effects: Vec<Effect>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub incarnation: u64,
    /// The life of its agent.
    pub boot: u64,
    pub ready: bool,
    /// It is there, but was not heard for half a lease.
    pub suspect: bool,
    pub capacity: NodeCapacity,
    /// Counts what the agent of this incarnation has to know: placements and stops.
    pub revision: u64,
    runs: BTreeSet<AllocationNo>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Requested {
    tenant: Token,
    spec: EncodedSpec,
    /// It has run, and an agent may still repeat what it said of that.
    again: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Run {
    node: Token,
    assignment: Assignment,
    /// The node's revision that it began with; a stop has a later one.
    began: u64,
    again: bool,
    started: Option<Millis>,
    /// The agent has reported its end; the scheduler has not recorded it yet.
    over: bool,
}

/// Who asked for a run with a command: what follows it from the request to the bill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    pub operation_id: Option<Token>,
    pub trace: Option<TraceContext>,
}

/// What a node's agent is to do, as data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// The node's revision that it came with.
    pub revision: u64,
    pub allocation: AllocationNo,
    pub tenant: Token,
    /// As the agent gets it: nothing is decided by it here.
    pub spec: EncodedSpec,
    /// As the agent gets it; none: there is no command that could read it.
    #[serde(skip)]
    pub origin: Option<Box<Origin>>,
    pub gpus: GpuShares,
    pub placed: Millis,
    pub stop: bool,
    /// Until when it may take to stop; none when nobody waits for its place.
    pub stop_by: Option<Millis>,
    /// The NUMA zones that it takes from, as bits.
    pub zones: u8,
}

/// What comes in by the inbox, from heartbeats, and from agents that ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    Register {
        node: Token,
        boot: u64,
        capacity: Box<NodeCapacity>,
        /// The agent's count of the changes of its capacity in this life.
        change: u64,
    },
    Report {
        node: Token,
        boot: u64,
        report: Report,
    },
    Heartbeat {
        node: Token,
        boot: u64,
        revision: u64,
        /// Whose answer says that the lease is renewed; none: nobody waits for one.
        request: Option<u64>,
        /// What holds of the node.
        conditions: Conditions,
    },
    /// Somebody wants to speak for the node; `request` finds its way back with the answer.
    Join(Box<Join>),
    /// An agent asks for all its assignments; `request` finds its way back with the answer.
    Sync { node: Token, request: u64 },
    /// A registration with a capacity that cannot be read.
    RegisterUnreadable { node: Token, boot: u64 },
    /// A message that says nothing that could be decided. It moves the inbox's position on.
    Unreadable { node: Token },
}

/// What the shell sends to an agent. Best effort: a heartbeat with an old revision makes it be sent again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    Assign {
        node: Token,
        /// For this life of the agent and no other.
        boot: u64,
        assignment: Assignment,
    },
    /// The agent's lease is a full one again.
    Renewed {
        request: u64,
        boot: u64,
        lease_ms: i64,
        /// When the heartbeat was heard.
        now: Millis,
    },
    RegisterAgain {
        node: Token,
        boot: u64,
    },
    RegistrationRefused {
        node: Token,
        boot: u64,
        refusal: Box<Refusal>,
    },
    /// So many nodes are silent at once that the network is suspected, and they are lost slowly; none: that is over.
    MassLoss(Option<MassLoss>),
    /// The key speaks for the node; who has asked is to be given a user of the bus for it.
    Joined(Box<Join>),
    JoinRefused {
        request: u64,
        refusal: Box<Refusal>,
    },
    Synced {
        request: u64,
        boot: u64,
        revision: u64,
        assignments: Vec<Assignment>,
    },
}

/// Settings that decisions depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How long a node counts as there after its last heartbeat, in milliseconds of the cell's clock.
    pub lease_ms: i64,
    /// Who may register.
    pub joining: Joining,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            lease_ms: 40_000,
            joining: Joining::Required,
        }
    }
}

inputs! {
    /// What it reads of the other writers.
    pub enum Input {
        NodeSet,
        AllocationRequested,
        QuotaDenied,
        AllocationPlaced,
        AllocationPreempted,
        AllocationStopping,
        AllocationRequeued,
        AllocationEnded,
    }
}

impl Decider for Nodes {
    type Command = Command;
    type Config = Config;
    type Effect = Effect;
    type By = vocab::fact::NodeHeartbeat;
    type Input<'a> = Input<'a>;

    const STATE_VERSION: u32 = 11;

    fn upgrade(version: u32, state: &[u8]) -> Option<Self> {
        const NO_ORIGINS: u8 = 0;
        const NO_CONDITIONS: u8 = 0;
        const NO_CHANGES: u8 = 0;
        const NONE_BANNED: u8 = 0;
        let added: &[u8] = match version {
            7 => &[NO_ORIGINS, NO_CONDITIONS, NO_CHANGES, NONE_BANNED],
            8 => &[NO_CONDITIONS, NO_CHANGES, NONE_BANNED],
            9 => &[NO_CHANGES, NONE_BANNED],
            10 => &[NONE_BANNED],
            _ => return None,
        };
        ledger::decode_state(&[state, added].concat())
    }

    const READERS: &'static [Writer] = &[Writer::Scheduler];

    fn observe(&mut self, at: &At, input: Input<'_>) -> Result<(), IllegalEvent> {
        match input {
            Input::AllocationRequested(AllocationRequested { operation, spec }) => {
                let requested = Requested {
                    tenant: operation.tenant.clone(),
                    spec: run::spec(&mut self.specs, spec),
                    again: false,
                };
                let allocation = AllocationNo(at.no.0);
                self.requested.insert(allocation, requested);
                if spec.work.is_some() {
                    let origin = Origin {
                        operation_id: operation.operation_id.clone(),
                        trace: operation.trace,
                    };
                    self.origins.insert(allocation, origin);
                }
            }
            Input::QuotaDenied(fact) => self.forget(fact.allocation),
            Input::AllocationPlaced(fact) => return self.assign(at, fact),
            // Without a grace of its priority class it has the agent's own, as after a cancel.
            Input::AllocationPreempted(fact) if fact.grace_until > at.now => {
                self.stop_by(fact.allocation, fact.grace_until);
            }
            Input::AllocationPreempted(_) => {}
            Input::AllocationStopping(fact) => return self.stop(fact.allocation, fact),
            Input::AllocationRequeued(fact) => return self.requeue(fact.allocation, fact),
            Input::AllocationEnded(fact) => self.forget(fact.allocation),
            Input::NodeSet(Applied {
                change, version, ..
            }) => self.approve(at, &change.node, change.approval.as_deref(), *version),
        }
        Ok(())
    }

    fn evolve(&mut self, at: &At, fact: Fact<'_>) -> Result<(), IllegalEvent> {
        match fact {
            Fact::NodeRegistered(fact) => self.registered(fact),
            Fact::NodeJoined(fact) => self.joined(&fact.node, &fact.key, fact.version, fact),
            Fact::NodeForgotten(fact) => self.forgotten(at, &fact.node, fact),
            Fact::NodeReady(fact) => self.ready(&fact.node, fact.incarnation, fact),
            Fact::NodeSuspected(fact) => self.suspected(fact),
            Fact::NodeConditionChanged(fact) => self.condition_changed(fact),
            Fact::NodeCapacityChanged(fact) => self.capacity_changed(fact),
            Fact::NodeLost(fact) => self.lost(&fact.node, fact.incarnation, fact),
            Fact::RunReported(fact) => self.reported(fact.allocation, fact.state, fact.at, fact),
        }
    }

    fn is_behind(&self, command: &Command) -> bool {
        match command {
            Command::Report { node, report, .. } => self.may_be_placed(report.allocation, node),
            Command::Register { .. }
            | Command::RegisterUnreadable { .. }
            | Command::Heartbeat { .. }
            | Command::Join(_)
            | Command::Sync { .. }
            | Command::Unreadable { .. } => false,
        }
    }

    fn handle(&mut self, command: Command, config: &Config, draft: &mut Draft) {
        match command {
            Command::Register {
                node,
                boot,
                capacity,
                change,
            } => {
                let life = register::Life { boot, change };
                register::decide(self, node, life, *capacity, config, draft);
            }
            Command::RegisterUnreadable { node, boot } => {
                let refusal = Refusal::new(Rule::MalformedMessage, "capacity");
                self.refuse(node, boot, None, refusal, draft.now);
            }
            Command::Report { node, boot, report } => {
                run::decide(self, &node, boot, &report, draft);
            }
            Command::Heartbeat {
                node,
                boot,
                revision,
                request,
                conditions,
            } => {
                let beat = Beat {
                    boot,
                    revision,
                    request,
                    conditions,
                };
                lease::heartbeat(self, node, beat, config, draft);
            }
            Command::Join(asked) => join::decide(self, asked, draft),
            Command::Sync { node, request } => self.sync(&node, request),
            Command::Unreadable { .. } => {}
        }
    }

    fn decide(&mut self, config: &Config, draft: &mut Draft) {
        lease::expire(self, config, draft);
        forget::decide(self, draft);
    }

    fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    fn wake_at(&self) -> Option<Millis> {
        match lease::all_granted(self) {
            true => self.leases.next_due(),
            // They are no part of what is recorded, so one who was not there grants them first.
            false => Some(Millis(i64::MIN)),
        }
    }

    fn is_counted_on(&self) -> bool {
        self.nodes.values().any(|node| node.ready)
    }

    fn proves_every(&self, config: &Config) -> Option<u64> {
        let ms = match self.leases.are_asked_for() {
            true => lease::proof_ms(config),
            // A standby does not hear heartbeats. It takes a leader for dead that says nothing for a whole lease.
            false => config.lease_ms / 2,
        };
        self.is_counted_on().then(|| ms.unsigned_abs().max(1))
    }
}

#[cfg(test)]
mod tests;
