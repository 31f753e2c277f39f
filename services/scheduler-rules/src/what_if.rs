//! What would be different: the same decisions, on clones of the state, with and without some changes.
//!
//! The ledger has no part in it. Both clones decide at one moment until nothing moves any more; agents do at once as they
//! are told. Nothing ends or comes back meanwhile that does not do so in the state already.

mod compare;
mod course;
mod differences;

pub use course::{WhatIfError, told_to_stop};
pub use differences::{
    Difference, Differences, Kind, NodesUsed, Preempted, QueueDifference, Requested, Shares,
    Standing,
};
use vocab::fact::{AllocationRequested, CordonSet, NodeLost, NodeRegistered, QuotaReserved};

use super::Scheduler;
use course::Course;
use vocab::{
    AdminChange, AllocationNo, AllocationSpec, Event, EventNo, Millis, NodeCapacity, Operation,
    Token,
};

/// What is not on the ledger is numbered from here: half of all numbers, which no ledger comes to. As allocations' numbers
/// decide among equals, extra requests come after everything that is there.
const FIRST_EXTRA: u64 = 1 << 63;

/// The incarnation of nodes that are not there.
const INCARNATION: u64 = 1;

/// Something that is not so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// What an operator sets.
    Admin(AdminChange),
    /// New nodes, ready and empty.
    AddNodes {
        like: Box<NodeCapacity>,
        names: Vec<Token>,
    },
    /// The node is lost, with what runs there.
    RemoveNode(Token),
    /// One more request; quota has granted it.
    Request {
        tenant: Token,
        spec: Box<AllocationSpec>,
    },
}

/// Decides with and without the changes and compares. The state stays as it is.
pub fn run(state: &Scheduler, now: Millis, changes: &[Change]) -> Result<Differences, WhatIfError> {
    let mut before = Course::of(state, now);
    before.settle()?;
    let mut after = Course::of(state, now);
    for change in changes {
        after.apply(change)?;
    }
    after.settle()?;
    Ok(Differences::between(state, &mut before, &mut after))
}

/// What the node has when it is empty; none if there is no such node.
pub fn capacity<'a>(state: &'a Scheduler, node: &Token) -> Option<&'a NodeCapacity> {
    let node = state.nodes().iter().find(|one| one.name == *node)?;
    Some(state.fleet.kind(node.kind))
}

impl Course {
    fn apply(&mut self, change: &Change) -> Result<(), WhatIfError> {
        match change {
            Change::Admin(change) => {
                if let AdminChange::Cordon(CordonSet { node, .. }) = change {
                    self.known(node)?;
                }
                let version = self.next_input().0;
                let operation = asked_by(operator());
                let applied = change.clone().applied(operation, version);
                self.observe(&applied.into())?;
            }
            Change::AddNodes { like, names } => {
                for node in names {
                    if capacity(&self.state, node).is_some() {
                        return Err(WhatIfError::NodeExists(node.clone()));
                    }
                    self.observe(&Event::NodeRegistered(NodeRegistered {
                        node: node.clone(),
                        incarnation: INCARNATION,
                        boot: INCARNATION,
                        capacity: (**like).clone(),
                    }))?;
                }
            }
            Change::RemoveNode(node) => {
                let incarnation = self.known(node)?;
                self.observe(&Event::NodeLost(NodeLost {
                    node: node.clone(),
                    incarnation,
                    last_seen: self.now,
                }))?;
            }
            Change::Request { tenant, spec } => {
                let allocation = AllocationNo(self.next_input().0);
                self.observe(&Event::AllocationRequested(AllocationRequested {
                    operation: asked_by(tenant.clone()),
                    spec: (**spec).clone(),
                }))?;
                self.observe(&Event::QuotaReserved(QuotaReserved {
                    allocation,
                    flags: vocab::QuotaFlags::default(),
                    models: None,
                }))?;
            }
        }
        Ok(())
    }

    /// The node's incarnation.
    fn known(&self, node: &Token) -> Result<u64, WhatIfError> {
        let found = self.state.nodes().iter().find(|one| one.name == *node);
        found
            .map(|one| one.incarnation)
            .ok_or_else(|| WhatIfError::NoSuchNode(node.clone()))
    }
}

fn operator() -> Token {
    // A name by the rules of names.
    Token::new("_operator").expect("it is a name")
}

/// Nobody waits for an answer.
fn asked_by(tenant: Token) -> Operation {
    Operation {
        tenant,
        operation_id: None,
        digest: [0; 16],
        reply_to: None,
        trace: None,
        by: None,
    }
}

/// Whether the allocation is one of the extra requests.
fn is_extra(allocation: AllocationNo) -> bool {
    allocation.0 >= FIRST_EXTRA
}

fn first_extra() -> EventNo {
    EventNo(FIRST_EXTRA)
}
