//! The words that facts are made of.

use crate::{AllocationNo, EventNo, Level, Lsn, Millis, Token};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// The deciding services: each owns one subject of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Writer {
    Admission,
    Quota,
    Scheduler,
    NodeHeartbeat,
}

impl Writer {
    pub const ALL: [Self; 4] = [
        Self::Admission,
        Self::Quota,
        Self::Scheduler,
        Self::NodeHeartbeat,
    ];

    /// The subject's last token, and the service's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Admission => "admission",
            Self::Quota => "quota",
            Self::Scheduler => "scheduler",
            Self::NodeHeartbeat => "node-heartbeat",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|writer| writer.name() == name)
    }
}

/// Where and when an event stands on the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At {
    /// The frame's position; 0 while it is being decided.
    pub lsn: Lsn,
    /// Index of the event in its frame.
    pub index: u32,
    /// Number of the event among its writer's.
    pub no: EventNo,
    /// The frame's clock.
    pub now: Millis,
}

/// W3C trace context in its binary form: trace id, span id, flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, wire::Wire)]
#[wire(via = [u8; 25])]
pub struct TraceContext {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
    pub flags: u8,
}

/// Who asked, and how to answer. The number of the event that carries it identifies the operation from then on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct Operation {
    /// A tenant, or `_operator`.
    #[wire(1)]
    pub tenant: Token,
    /// The client's idempotency key; none when the message could not be read that far.
    #[wire(2)]
    pub operation_id: Option<Token>,
    /// First 16 bytes of SHA-256 over the request as it was written; one that says a slot is encoded anew without it.
    #[wire(3)]
    pub digest: [u8; 16],
    #[wire(4)]
    pub reply_to: Option<Token>,
    /// Present only when sampled.
    #[wire(5)]
    pub trace: Option<TraceContext>,
    /// Which of the operators, where it is one with a name. Elsewhere than the tenant, so that it takes next to no room of the
    /// tenants' operations, which have none.
    #[wire(6)]
    pub by: Option<Box<Token>>,
}

/// A device of the node and how many thousandths of it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, wire::Wire,
)]
pub struct GpuShare {
    #[wire(1)]
    pub device: u16,
    #[wire(2)]
    pub milli: u16,
}

/// Devices that an allocation gets. Four need no more room than a list that is elsewhere.
pub type GpuShares = SmallVec<[GpuShare; 4]>;

/// Counts the pending groups of the queues: allocations of one queue that ask for the same, under the same rules, wait in one pending group
/// for the same reasons.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
#[wire(transparent)]
pub struct PendingGroupNo(pub u64);

/// A node that was considered, and how well the policy thought of it; higher is better.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct Candidate {
    #[wire(1)]
    pub node: Token,
    #[wire(2)]
    pub score: u32,
}

/// The best few nodes, in a row. An event has room for them: a request is larger.
pub type Candidates = SmallVec<[Candidate; 3]>;

/// What kept a node from taking an allocation; the first that did, in this order. Stable numbers, the same as the
/// contract's.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
pub enum Filter {
    NotReady = 1,
    Cordoned = 2,
    Selector = 3,
    Taint = 4,
    GpuModel = 5,
    /// Too small even when empty.
    Capacity = 6,
    Reserved = 7,
    Cpu = 8,
    Memory = 9,
    Gpu = 10,
    Extended = 11,
    Numa = 12,
    Affinity = 13,
    Spread = 14,
    /// Promised to, or being cleared for, one who waits for longer or is worth more.
    Backfill = 16,
    /// It holds as many allocations as it may; asked after `Numa`.
    MaxRuns = 17,
}

impl Filter {
    pub fn name(self) -> &'static str {
        match self {
            Self::NotReady => "not_ready",
            Self::Cordoned => "cordoned",
            Self::Selector => "selector",
            Self::Taint => "taint",
            Self::GpuModel => "gpu_model",
            Self::Capacity => "capacity",
            Self::Reserved => "reserved",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Gpu => "gpu",
            Self::Extended => "extended",
            Self::Numa => "numa",
            Self::Affinity => "affinity",
            Self::Spread => "spread",
            Self::MaxRuns => "max_runs",
            Self::Backfill => "backfill",
        }
    }
}

/// For whose sake an allocation had to go. Stable numbers, the same as the contract's.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
pub enum PreemptionCause {
    /// Of higher priority.
    Priority = 1,
    /// Of a queue below its fair share.
    FairShare = 2,
    /// A member of its gang had to go.
    Gang = 3,
    /// A reservation of its node begins.
    Reservation = 4,
    /// What its tenant has borrowed, or holds beyond its limit, is taken back.
    Quota = 5,
    /// Its node is drained.
    Drain = 6,
    /// Its node has got a taint that it does not tolerate.
    Taint = 7,
}

impl PreemptionCause {
    pub fn name(self) -> &'static str {
        match self {
            Self::Priority => "priority",
            Self::FairShare => "fair_share",
            Self::Gang => "gang",
            Self::Reservation => "reservation",
            Self::Quota => "quota",
            Self::Drain => "drain",
            Self::Taint => "taint",
        }
    }
}

/// Why an allocation waits. Stable numbers, the same as the contract's `WaitingReason`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
#[wire(prefix = "")]
pub enum WaitingReason {
    NoNodeReady = 1,
    NoNodeOfModel = 2,
    LargerThanAnyNode = 3,
    NoRoomNow = 4,
    /// Selector, taints and cordons leave no node.
    NoNodeMatches = 5,
    /// Others go first; it was not tried yet.
    FairShare = 6,
    /// Its queue, or one above it, holds as much as it may.
    QueueLimit = 7,
    /// A pause before the next try.
    Backoff = 8,
    /// Something it depends on has not ended.
    Dependency = 9,
    /// Members of its gang are missing.
    GangIncomplete = 10,
    /// The gang does not fit now.
    GangNoRoom = 11,
    /// It, or its gang, asks for more than its queue, or one above it, may ever hold.
    OverLimit = 12,
    /// No node has the label that the gang wants to be uniform.
    NoUniformLabel = 13,
    /// Its node is being cleared for it.
    Nominated = 14,
    /// Its tenant holds as much as it may; what that is, the refusal beside it says.
    Quota = 15,
    /// Others would have to go for it, and as many had to in the last minute as may.
    PreemptionLimit = 16,
}

impl WaitingReason {
    pub fn name(self) -> &'static str {
        match self {
            Self::NoNodeReady => "no_node_ready",
            Self::NoNodeOfModel => "no_node_of_model",
            Self::LargerThanAnyNode => "larger_than_any_node",
            Self::NoRoomNow => "no_room_now",
            Self::NoNodeMatches => "no_node_matches",
            Self::FairShare => "fair_share",
            Self::QueueLimit => "queue_limit",
            Self::Backoff => "backoff",
            Self::Dependency => "dependency",
            Self::GangIncomplete => "gang_incomplete",
            Self::GangNoRoom => "gang_no_room",
            Self::OverLimit => "over_limit",
            Self::NoUniformLabel => "no_uniform_label",
            Self::Nominated => "nominated",
            Self::Quota => "quota",
            Self::PreemptionLimit => "preemption_limit",
        }
    }
}

/// How an allocation ended. Stable numbers, the same as the contract's `EndCause`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
#[wire(prefix = "")]
pub enum EndCause {
    Finished = 1,
    Failed = 2,
    Cancelled = 3,
    NodeLost = 4,
    RejectedByNode = 5,
    Preempted = 6,
    /// Something it depends on ended otherwise than it had to.
    DependencyFailed = 7,
    /// It was not placed in time.
    Expired = 8,
    /// Its run was stopped because it had gone on for as long as it may.
    TimeLimit = 9,
    /// Its node was drained, or got a taint that it does not tolerate.
    Evicted = 10,
}

impl EndCause {
    pub fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::NodeLost => "node_lost",
            Self::RejectedByNode => "rejected_by_node",
            Self::Preempted => "preempted",
            Self::DependencyFailed => "dependency_failed",
            Self::Expired => "expired",
            Self::TimeLimit => "time_limit",
            Self::Evicted => "evicted",
        }
    }

    /// The feature level from which a run or an allocation may end so.
    pub fn since(self) -> Level {
        match self {
            Self::Expired | Self::TimeLimit => Level::TIME_BOUNDS,
            Self::Evicted => Level::EVICTIONS,
            Self::Finished
            | Self::Failed
            | Self::Cancelled
            | Self::NodeLost
            | Self::RejectedByNode
            | Self::Preempted
            | Self::DependencyFailed => Level::FIRST,
        }
    }
}

/// What a node's agent says of a run. Stable numbers, the same as the contract's `RunState`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
#[wire(prefix = "RUN_")]
pub enum RunState {
    Started = 1,
    /// It ended by itself: its agent had not been told to stop it.
    Finished = 2,
    /// It failed by itself.
    Failed = 3,
    Rejected = 4,
    /// It is over, in whichever way, after its agent was told to stop it.
    Stopped = 5,
}

/// What the scheduler found when it took up a cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
#[wire(via = bool)]
pub enum CancelVerdict {
    /// It has ended by this, or is being stopped.
    WasLive,
    /// It had ended before.
    HadEnded,
}

/// What a change of priority is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
#[wire(oneof)]
pub enum PriorityTarget {
    #[wire(2)]
    Allocation(AllocationNo),
    /// All of it that has not ended.
    #[wire(3)]
    JobSet(Token),
}

/// What is remarkable about quota that was granted. Bits, the same as the contract's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
#[wire(transparent)]
pub struct QuotaFlags(pub u32);

impl QuotaFlags {
    /// An account is above a soft limit.
    pub const SOFT: Self = Self(1);
    /// An account is above a hard limit, for as long as its burst lasts.
    pub const BURST: Self = Self(2);
    /// The tenant holds what others of its cohort lend.
    pub const BORROWED: Self = Self(4);

    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// What was granted to a request that may run on more than one model of GPUs. Once it is on a node it counts on the model of
/// that node; when its run is over without its end, it asks for quota again.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
pub struct ModelGrant {
    /// It counts on these as long as it is on no node. Sorted.
    #[wire(1)]
    pub counts_on: Vec<Token>,
    /// There is no quota left of these: it does not run on them. Sorted.
    #[wire(2)]
    pub except: Vec<Token>,
}

impl TraceContext {
    /// Reads a `traceparent` header. What the standard does not allow is nothing, never an error: a broken trace must not
    /// refuse a request. Versions above 00 may append fields, which are ignored. Ids are never all zero.
    pub fn parse(header: &str) -> Option<Self> {
        let mut fields = header.splitn(5, '-');
        let version = hex::<1>(fields.next()?)?;
        let trace_id = hex::<16>(fields.next()?)?;
        let span_id = hex::<8>(fields.next()?)?;
        let [flags] = hex::<1>(fields.next()?)?;
        let known = match version {
            [0x00] => fields.next().is_none(),
            [0xff] => false,
            _ => true,
        };
        let real = trace_id != [0; 16] && span_id != [0; 8];
        (known && real).then_some(Self {
            trace_id,
            span_id,
            flags,
        })
    }

    /// Whether the trace is recorded.
    pub fn sampled(&self) -> bool {
        self.flags & 1 == 1
    }
}

/// Lower case only, as the standard demands; exactly two digits a byte.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, odd) = text.as_bytes().as_chunks::<2>();
    if !odd.is_empty() || pairs.len() != N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

/// Trace id, span id, flags.
impl From<&TraceContext> for [u8; 25] {
    fn from(trace: &TraceContext) -> Self {
        let mut bytes = [trace.flags; 25];
        bytes[..16].copy_from_slice(&trace.trace_id);
        bytes[16..24].copy_from_slice(&trace.span_id);
        bytes
    }
}

impl From<[u8; 25]> for TraceContext {
    fn from(bytes: [u8; 25]) -> Self {
        Self {
            trace_id: std::array::from_fn(|at| bytes[at]),
            span_id: std::array::from_fn(|at| bytes[16 + at]),
            flags: bytes[24],
        }
    }
}

impl From<&CancelVerdict> for bool {
    fn from(verdict: &CancelVerdict) -> Self {
        matches!(verdict, CancelVerdict::WasLive)
    }
}

impl From<bool> for CancelVerdict {
    fn from(was_live: bool) -> Self {
        match was_live {
            true => Self::WasLive,
            false => Self::HadEnded,
        }
    }
}
