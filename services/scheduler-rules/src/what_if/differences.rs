//! Where everybody stands with the changes and without them.

use vocab::{AllocationNo, EndCause, Filter, PreemptionCause, Token, WaitingReason};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    AwaitingQuota,
    Waits(WaitingReason),
    On(Token),
    Ended(EndCause),
}

/// An allocation that stands elsewhere with the changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    pub allocation: AllocationNo,
    pub queue: Token,
    pub before: Standing,
    pub after: Standing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// On a node only with the changes.
    Placed,
    /// On a node only without them.
    Unplaced,
    /// On another node.
    Moved,
    /// Over, or over for another reason.
    Ended,
    /// For another reason.
    Waits,
}

impl Difference {
    pub fn kind(&self) -> Kind {
        match (&self.before, &self.after) {
            (_, Standing::Ended(_)) => Kind::Ended,
            (Standing::On(_), Standing::On(_)) => Kind::Moved,
            (_, Standing::On(_)) => Kind::Placed,
            (Standing::On(_), _) => Kind::Unplaced,
            _ => Kind::Waits,
        }
    }
}

/// What becomes of an extra request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requested {
    pub standing: Standing,
    /// How many nodes each filter keeps off, while it waits in line.
    pub counts: Vec<(Filter, u32)>,
}

/// Made to go in one course and not, or not for the same, in the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preempted {
    pub allocation: AllocationNo,
    pub queue: Token,
    pub cause: PreemptionCause,
    pub by: Option<AllocationNo>,
    /// It is the extra request of this index in `Differences::requested` that it makes room for.
    pub by_extra: Option<usize>,
}

/// What a queue holds itself, and what it is due, as parts of the cell in the dominant resource; in millionths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shares {
    pub share_ppm: u32,
    pub fair_share_ppm: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueDifference {
    pub queue: Token,
    pub before: Shares,
    pub after: Shares,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodesUsed {
    /// With something on them.
    pub used: usize,
    pub ready: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Differences {
    /// In the order of the changes.
    pub requested: Vec<Requested>,
    /// By number.
    pub allocations: Vec<Difference>,
    pub preempted: Vec<Preempted>,
    /// Made to go only without the changes.
    pub spared: Vec<Preempted>,
    /// By name.
    pub queues: Vec<QueueDifference>,
    pub nodes_before: NodesUsed,
    pub nodes_after: NodesUsed,
    /// More would have to go than may in one minute: not all of the consequences are here.
    pub preemption_limited: bool,
}

impl Differences {
    pub fn is_empty(&self) -> bool {
        self.requested.is_empty()
            && self.allocations.is_empty()
            && self.preempted.is_empty()
            && self.spared.is_empty()
            && self.queues.is_empty()
            && self.nodes_before == self.nodes_after
    }

    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Difference> {
        self.allocations
            .iter()
            .filter(move |one| one.kind() == kind)
    }
}
