//! The history: what was decided about an allocation or a line, and why.

use super::{life::Life, state::Preemption};
use serde::{Deserialize, Serialize};
use vocab::fact::LineExplained;
use vocab::{
    AllocationNo, At, Candidate, EndCause, Filter, GpuShare, LineNo, Lsn, Millis, PlacementPolicy,
    PreemptionCause, Refusal, ResourceKind, Token, WaitingReason,
};

/// Where a fact stands on the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Position {
    pub lsn: Lsn,
    pub index: u32,
}

impl Position {
    pub fn of(at: &At) -> Self {
        Self {
            lsn: at.lsn,
            index: at.index,
        }
    }
}

/// A fact that explains something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub position: Position,
    pub at: Millis,
    pub subject: Subject,
    pub fact: Fact,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    Allocation(AllocationNo),
    Line { line: LineNo, queue: Token },
}

/// What was decided. Other allocations are named where they may be seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    Waiting {
        reason: WaitingReason,
        line: Option<LineNo>,
    },
    Line {
        reason: WaitingReason,
        /// None where it is another tenant's.
        head: Option<AllocationNo>,
        counts: Vec<(Filter, u32)>,
        shortfall: Vec<(ResourceKind, u64)>,
        share_ppm: u32,
        fair_share_ppm: u32,
    },
    Placed {
        node: Token,
        gpus: Vec<GpuShare>,
        zones: u8,
        policy: PlacementPolicy,
        candidates: Vec<Candidate>,
    },
    Nominated {
        node: Token,
    },
    Preempted {
        cause: PreemptionCause,
        /// None also where it is another tenant's.
        by: Option<AllocationNo>,
        grace_until: Millis,
    },
    Requeued {
        cause: EndCause,
        at: Millis,
        not_before: Millis,
    },
    Ended {
        cause: EndCause,
        at: Millis,
    },
    QuotaWaiting {
        refusal: Refusal,
    },
    QuotaDenied {
        refusal: Refusal,
    },
    QuotaReclaimed {
        /// None also where it is another tenant's.
        by: Option<AllocationNo>,
    },
    Reprioritised {
        priority: i32,
    },
}

impl Fact {
    /// The kind in the table.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Waiting { .. } => "waiting",
            Self::Line { .. } => "line",
            Self::Placed { .. } => "placed",
            Self::Nominated { .. } => "nominated",
            Self::Preempted { .. } => "preempted",
            Self::Requeued { .. } => "requeued",
            Self::Ended { .. } => "ended",
            Self::QuotaWaiting { .. } => "quota_waiting",
            Self::QuotaDenied { .. } => "quota_denied",
            Self::QuotaReclaimed { .. } => "quota_reclaimed",
            Self::Reprioritised { .. } => "reprioritised",
        }
    }

    /// Why it waits, had to go, or ended; the rule that quota refuses it by; a placement needs no reason.
    pub fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Waiting { reason, .. } | Self::Line { reason, .. } => Some(reason.name()),
            Self::Preempted { cause, .. } => Some(cause.name()),
            Self::Requeued { cause, .. } | Self::Ended { cause, .. } => Some(cause.name()),
            Self::QuotaWaiting { refusal } | Self::QuotaDenied { refusal } => {
                Some(refusal.rule.name())
            }
            Self::Placed { .. }
            | Self::Nominated { .. }
            | Self::QuotaReclaimed { .. }
            | Self::Reprioritised { .. } => None,
        }
    }
}

impl Entry {
    /// None when the fact explains nothing by itself.
    pub(super) fn of(at: &At, life: Life<'_>) -> Option<Self> {
        let fact = match life {
            Life::AllocationWaiting(fact) => Fact::Waiting {
                reason: fact.reason,
                line: fact.line,
            },
            Life::AllocationPlaced(fact) => Fact::Placed {
                node: fact.node.clone(),
                gpus: fact.gpus.clone(),
                zones: fact.zones,
                policy: fact.policy,
                candidates: fact.candidates.clone(),
            },
            Life::AllocationNominated(fact) => Fact::Nominated {
                node: fact.node.clone(),
            },
            Life::AllocationPreempted(fact) => Fact::Preempted {
                cause: fact.cause,
                by: fact.by,
                grace_until: fact.grace_until,
            },
            Life::AllocationRequeued(fact) => Fact::Requeued {
                cause: fact.cause,
                at: fact.at,
                not_before: fact.not_before,
            },
            Life::AllocationEnded(fact) => Fact::Ended {
                cause: fact.cause,
                at: fact.at,
            },
            Life::QuotaWaiting(fact) => Fact::QuotaWaiting {
                refusal: fact.refusal.clone(),
            },
            Life::QuotaDenied(fact) => Fact::QuotaDenied {
                refusal: fact.refusal.clone(),
            },
            Life::QuotaReclaimed(fact) => Fact::QuotaReclaimed { by: fact.by },
            Life::AllocationReprioritised(fact) => Fact::Reprioritised {
                priority: fact.priority,
            },
            Life::QuotaReserved(_) | Life::AllocationStarted(_) | Life::AllocationStopping(_) => {
                return None;
            }
        };
        Some(Self {
            position: Position::of(at),
            at: at.now,
            subject: Subject::Allocation(life.allocation()),
            fact,
        })
    }

    pub(super) fn of_line(at: &At, line: &LineExplained) -> Self {
        let fact = Fact::Line {
            reason: line.reason,
            head: Some(line.head),
            counts: line.counts.clone(),
            shortfall: line.shortfall.clone(),
            share_ppm: line.share_ppm,
            fair_share_ppm: line.fair_share_ppm,
        };
        Self {
            position: Position::of(at),
            at: at.now,
            subject: Subject::Line {
                line: line.line,
                queue: line.queue.clone(),
            },
            fact,
        }
    }
}

/// One that had to go from its node, and what became of that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreemptionRow {
    /// The victim.
    pub allocation: AllocationNo,
    pub tenant: Token,
    pub queue: Token,
    pub node: Token,
    pub preemption: Preemption,
    /// None while it is still stopping.
    pub over: Option<Over>,
    /// What it holds, by `ResourceKind::ALL`.
    pub amounts: [u64; 3],
}

/// The end of a run that was preempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Over {
    pub outcome: Outcome,
    pub at: Millis,
    /// It waits again.
    pub requeued: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Stopped,
    NodeLost,
    /// Its node had never begun it.
    RejectedByNode,
}

impl Outcome {
    pub const ALL: [Self; 3] = [Self::Stopped, Self::NodeLost, Self::RejectedByNode];

    pub fn name(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::NodeLost => "node_lost",
            Self::RejectedByNode => "rejected_by_node",
        }
    }
}

impl Over {
    pub(super) fn new(cause: EndCause, at: Millis, requeued: bool) -> Self {
        let outcome = match cause {
            EndCause::NodeLost => Outcome::NodeLost,
            EndCause::RejectedByNode => Outcome::RejectedByNode,
            EndCause::Finished
            | EndCause::Failed
            | EndCause::Cancelled
            | EndCause::Preempted
            | EndCause::DependencyFailed => Outcome::Stopped,
        };
        Self {
            outcome,
            at,
            requeued,
        }
    }
}
