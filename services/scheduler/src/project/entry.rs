//! The history: what was decided about an allocation or a pending group, and why. An entry is the fact itself, as on the ledger.

use super::state::Preemption;
use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use vocab::fact::Inputs;
use vocab::{AllocationNo, At, EndCause, Event, EventNo, Lsn, Millis, Token, inputs};
use wire::{Message, Out, WireError};

/// Where a fact stands on the ledger.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
pub struct Position {
    #[wire(1)]
    pub lsn: Lsn,
    #[wire(2)]
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

inputs! {
    /// The facts that explain something.
    pub enum Said {
        AllocationWaiting,
        PendingGroupExplained,
        AllocationPlaced,
        AllocationNominated,
        AllocationPreempted,
        AllocationRequeued,
        AllocationEnded,
        QuotaWaiting,
        QuotaDenied,
        QuotaReclaimed,
        AllocationReprioritised,
    }
}

impl Said<'_> {
    /// Why it waits, had to go, or ended; the rule that quota refuses it by; a placement needs no reason.
    pub fn reason(self) -> Option<&'static str> {
        match self {
            Self::AllocationWaiting(fact) => Some(fact.reason.name()),
            Self::PendingGroupExplained(fact) => Some(fact.reason.name()),
            Self::AllocationPreempted(fact) => Some(fact.cause.name()),
            Self::AllocationRequeued(fact) => Some(fact.cause.name()),
            Self::AllocationEnded(fact) => Some(fact.cause.name()),
            Self::QuotaWaiting(fact) => Some(fact.refusal.rule.name()),
            Self::QuotaDenied(fact) => Some(fact.refusal.rule.name()),
            Self::AllocationPlaced(_)
            | Self::AllocationNominated(_)
            | Self::QuotaReclaimed(_)
            | Self::AllocationReprioritised(_) => None,
        }
    }
}

/// Stands where the allocation of another tenant is named, which is not told. No allocation has this number.
pub const ANOTHER_TENANTS: AllocationNo = AllocationNo(0);

/// A fact that explains something.
#[derive(Debug, Clone, PartialEq, Eq, wire::Wire)]
pub struct Entry {
    #[wire(1)]
    pub position: Position,
    #[wire(2, name = "at_ms")]
    pub at: Millis,
    #[wire(3)]
    fact: Event,
}

impl Entry {
    /// None when the fact explains nothing by itself.
    pub fn new(position: Position, at: Millis, fact: impl Into<Event>) -> Option<Self> {
        let fact = fact.into();
        Said::of(&fact)?;
        Some(Self { position, at, fact })
    }

    pub(super) fn of<'a>(at: &At, fact: impl Inputs<'a>) -> Option<Self> {
        if !Said::KINDS.has(fact.kind()) {
            return None;
        }
        Self::new(Position::of(at), at.now, fact.to_event())
    }

    pub fn said(&self) -> Said<'_> {
        // Whatever makes an entry has looked.
        Said::of(&self.fact).expect("a fact that explains something")
    }

    /// The kind in the table, which is the fact's name in the contract.
    pub fn kind(&self) -> &'static str {
        self.fact.kind().name()
    }

    /// None for what is said of a pending group.
    pub fn allocation(&self) -> Option<AllocationNo> {
        // None of these facts is the request, whose own number would be asked for.
        self.fact.allocation(EventNo(0))
    }

    /// The fact as on the ledger.
    pub fn bytes(&self) -> Vec<u8> {
        self.fact.encode_to_vec()
    }

    /// Another allocation that is named in it.
    pub fn names(&self) -> Option<AllocationNo> {
        match self.said() {
            Said::PendingGroupExplained(fact) => Some(fact.head),
            Said::AllocationPreempted(fact) => fact.by,
            Said::QuotaReclaimed(fact) => fact.by,
            _ => None,
        }
    }

    /// Takes out the name of the other allocation.
    pub fn hide(&mut self) {
        match &mut self.fact {
            Event::PendingGroupExplained(fact) => fact.head = ANOTHER_TENANTS,
            Event::AllocationPreempted(fact) => fact.by = None,
            Event::QuotaReclaimed(fact) => fact.by = None,
            _ => {}
        }
    }
}

/// What an entry has beside its fact.
#[derive(wire::Wire)]
struct Head {
    #[wire(1)]
    position: Position,
    #[wire(2, name = "at_ms")]
    at: Millis,
}

/// Entries one behind the other, as the columns `facts` of allocations have them.
#[derive(Debug, wire::Wire)]
pub struct Entries {
    #[wire(1)]
    entries: Vec<Entry>,
}

/// Makes [`Entries`] of one each, and has the bytes of many in one piece of memory.
#[derive(Debug, Default)]
pub(super) struct Teller {
    scratch: Vec<u8>,
    room: BytesMut,
}

impl Teller {
    const PIECE_BYTES: usize = 64 << 10;

    /// What an [`Entry`] of this fact is as one of [`Entries`], without making it.
    pub fn tell(&mut self, at: &At, fact: &Event) -> Bytes {
        let Self { scratch, room } = self;
        let head = Head {
            position: Position::of(at),
            at: at.now,
        };
        scratch.clear();
        wire::Row::behind(scratch, |out| {
            out.message(1, |out| {
                // The last field first.
                out.message(3, |out| fact.write_body(out));
                head.write_body(out);
            });
        });
        if room.capacity() < scratch.len() {
            *room = BytesMut::with_capacity(Self::PIECE_BYTES.max(scratch.len()));
        }
        room.extend_from_slice(scratch);
        room.split().freeze()
    }
}

impl Entries {
    pub fn read(bytes: &[u8]) -> Result<Vec<Entry>, WireError> {
        let entries = Self::decode(bytes)?.entries;
        let explain = entries.into_iter();
        Ok(explain
            .filter(|entry| Said::of(&entry.fact).is_some())
            .collect())
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
            | EndCause::DependencyFailed
            | EndCause::Expired
            | EndCause::TimeLimit
            | EndCause::Evicted => Outcome::Stopped,
        };
        Self {
            outcome,
            at,
            requeued,
        }
    }
}
