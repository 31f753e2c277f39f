//! The facts of the ledger, in the past tense. Who writes which is in `Event::writer`.

use crate::{
    Account, AdvanceReservation, AllocationNo, AllocationSpec, Budget, BudgetOf, EventNo, Limits,
    Lsn, Millis, NodeApproval, NodeCapacity, PlacementPolicy, PriorityClass, QueueSettings,
    QuotaResource, Refusal, ReservationNo, ResourceAnswer, ResourceAsk, ResourceKey, ResourceKind,
    SchedulingPolicy, Slot, TenantSettings, Token, Validity,
};
use serde::{Deserialize, Serialize};

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TraceContext {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
    pub flags: u8,
}

/// Who asked, and how to answer. The number of the event that carries it identifies the operation from then on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// A tenant, or `_operator`.
    pub tenant: Token,
    /// The client's idempotency key; none when the message could not be read that far.
    pub operation_id: Option<Token>,
    /// First 16 bytes of SHA-256 over the request as it was written; one that says a slot is encoded anew without it.
    pub digest: [u8; 16],
    pub reply_to: Option<Token>,
    /// Present only when sampled.
    pub trace: Option<TraceContext>,
}

/// A device of the node and how many thousandths of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GpuShare {
    pub device: u16,
    pub milli: u16,
}

/// An operator's change, each with its own version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdminChange {
    Tenant {
        tenant: Token,
        settings: TenantSettings,
    },
    Quota {
        account: Account,
        resource: QuotaResource,
        /// None: without limits of its own, as if they had never been set.
        limits: Option<Limits>,
        validity: Validity,
    },
    Budget {
        account: Account,
        of: BudgetOf,
        /// None takes it back.
        budget: Option<Budget>,
    },
    Rate {
        resource: ResourceKey,
        micro_per_unit_hour: u64,
        effective_from: Millis,
    },
    Queue {
        queue: Token,
        settings: QueueSettings,
    },
    PriorityClass {
        class: Token,
        settings: PriorityClass,
    },
    Scheduling(SchedulingPolicy),
    /// A cordoned node keeps what runs on it and takes nothing new.
    Cordon {
        node: Token,
        cordoned: bool,
    },
    /// None takes it back.
    Reservation {
        reservation: Token,
        wanted: Option<AdvanceReservation>,
    },
    /// Who may join the cell under this name. None: the node is forgotten.
    Node {
        node: Token,
        approval: Option<Box<NodeApproval>>,
    },
}

/// Counts the lines of the queues: allocations of one queue that ask for the same, under the same rules, wait in one line
/// for the same reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LineNo(pub u64);

/// A node that was considered, and how well the policy thought of it; higher is better.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    pub node: Token,
    pub score: u32,
}

/// What kept a node from taking an allocation; the first that did, in this order. Stable numbers, the same as the
/// contract's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
}

impl Filter {
    pub const ALL: [Self; 15] = [
        Self::NotReady,
        Self::Cordoned,
        Self::Selector,
        Self::Taint,
        Self::GpuModel,
        Self::Capacity,
        Self::Reserved,
        Self::Cpu,
        Self::Memory,
        Self::Gpu,
        Self::Extended,
        Self::Numa,
        Self::Affinity,
        Self::Spread,
        Self::Backfill,
    ];

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
            Self::Backfill => "backfill",
        }
    }
}

/// For whose sake an allocation had to go. Stable numbers, the same as the contract's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
}

impl PreemptionCause {
    pub const ALL: [Self; 5] = [
        Self::Priority,
        Self::FairShare,
        Self::Gang,
        Self::Reservation,
        Self::Quota,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Priority => "priority",
            Self::FairShare => "fair_share",
            Self::Gang => "gang",
            Self::Reservation => "reservation",
            Self::Quota => "quota",
        }
    }
}

/// Why an allocation waits. Stable numbers, the same as the contract's `WaitingReason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
    pub const ALL: [Self; 16] = [
        Self::NoNodeReady,
        Self::NoNodeOfModel,
        Self::LargerThanAnyNode,
        Self::NoRoomNow,
        Self::NoNodeMatches,
        Self::FairShare,
        Self::QueueLimit,
        Self::Backoff,
        Self::Dependency,
        Self::GangIncomplete,
        Self::GangNoRoom,
        Self::OverLimit,
        Self::NoUniformLabel,
        Self::Nominated,
        Self::Quota,
        Self::PreemptionLimit,
    ];

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EndCause {
    Finished = 1,
    Failed = 2,
    Cancelled = 3,
    NodeLost = 4,
    RejectedByNode = 5,
    Preempted = 6,
    /// Something it depends on ended otherwise than it had to.
    DependencyFailed = 7,
}

impl EndCause {
    pub const ALL: [Self; 7] = [
        Self::Finished,
        Self::Failed,
        Self::Cancelled,
        Self::NodeLost,
        Self::RejectedByNode,
        Self::Preempted,
        Self::DependencyFailed,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::NodeLost => "node_lost",
            Self::RejectedByNode => "rejected_by_node",
            Self::Preempted => "preempted",
            Self::DependencyFailed => "dependency_failed",
        }
    }
}

/// What a node's agent says of a run. Stable numbers, the same as the contract's `RunState`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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

impl RunState {
    pub const ALL: [Self; 5] = [
        Self::Started,
        Self::Finished,
        Self::Failed,
        Self::Rejected,
        Self::Stopped,
    ];
}

/// What the scheduler found when it took up a cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CancelVerdict {
    /// It has ended by this, or is being stopped.
    WasLive,
    /// It had ended before.
    HadEnded,
}

/// What a change of priority is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PriorityTarget {
    Allocation(AllocationNo),
    /// All of it that has not ended.
    JobSet(Token),
}

/// What is remarkable about quota that was granted. Bits, the same as the contract's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ModelGrant {
    /// It counts on these as long as it is on no node. Sorted.
    pub counts_on: Vec<Token>,
    /// There is no quota left of these: it does not run on them. Sorted.
    pub except: Vec<Token>,
}

/// One fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    // admission
    AdminApplied {
        operation: Operation,
        change: AdminChange,
        version: u64,
    },
    /// The allocation's number is this event's number.
    AllocationRequested {
        operation: Operation,
        spec: AllocationSpec,
    },
    CancelRequested {
        operation: Operation,
        allocation: AllocationNo,
    },
    /// All of a job set that was accepted before this and has not ended.
    JobSetCancelRequested {
        operation: Operation,
        job_set: Token,
    },
    PriorityRequested {
        operation: Operation,
        target: PriorityTarget,
        priority: i32,
    },
    ResourceAsked {
        operation: Operation,
        slot: Slot,
        /// The slot is the request's and not the clock's; its operation id is then remembered for a window of slots.
        by_requests: bool,
        ask: ResourceAsk,
    },
    OperationRefused {
        operation: Operation,
        job_set: Option<Token>,
        refusal: Refusal,
    },
    /// The same operation with the same content came again; `original` carried the first.
    OperationRepeated {
        tenant: Token,
        original: EventNo,
        reply_to: Option<Token>,
    },
    /// The retention window of all operations up to this event number is over.
    OperationsForgotten {
        through: EventNo,
        /// Only of those of this tenant whose window is counted in slots; none: of all others.
        slots_of: Option<Token>,
        /// So is that of the allocations that ended by the scheduler's events up to this number: nobody can be asked to
        /// start after them any more.
        ended_through: EventNo,
        /// The same of those that were denied, by quota's events.
        denied_through: EventNo,
    },
    // quota
    QuotaReserved {
        allocation: AllocationNo,
        flags: QuotaFlags,
        /// Which models it may run on, if some of those that it may choose from have limits.
        models: Option<Box<ModelGrant>>,
    },
    /// It waits for what the refusal names.
    QuotaWaiting {
        allocation: AllocationNo,
        refusal: Refusal,
    },
    /// What it holds is taken back, for the sake of `by`; none: its account's burst is over. It has to stop, and waits for
    /// quota again.
    QuotaReclaimed {
        allocation: AllocationNo,
        by: Option<AllocationNo>,
    },
    /// From here on these limits hold: a change or an override has begun, or one is over.
    LimitsInForce {
        account: Account,
        resource: QuotaResource,
        limits: Option<Limits>,
    },
    QuotaDenied {
        allocation: AllocationNo,
        refusal: Refusal,
    },
    QuotaReleased {
        allocation: AllocationNo,
    },
    // scheduler
    AllocationPlaced {
        allocation: AllocationNo,
        node: Token,
        incarnation: u64,
        gpus: Vec<GpuShare>,
        /// The NUMA zones that it takes from, as bits; 0 when the node has no topology.
        zones: u8,
        policy: PlacementPolicy,
        /// The best few nodes, the chosen one first.
        candidates: Vec<Candidate>,
    },
    AllocationWaiting {
        allocation: AllocationNo,
        reason: WaitingReason,
        /// None while it is in no line, as during a backoff.
        line: Option<LineNo>,
    },
    /// Why a whole line waits, and what would free it. Replaces what was said of the line before.
    LineExplained {
        line: LineNo,
        queue: Token,
        reason: WaitingReason,
        /// The one at the line's head, which was tried.
        head: AllocationNo,
        /// How many nodes each filter kept off; what is not named kept off none.
        counts: Vec<(Filter, u32)>,
        /// The least that must be freed on one node for the head to fit, in the units of the resource types; empty when
        /// freeing does not help.
        shortfall: Vec<(ResourceKind, u64)>,
        /// The queue's share of the cell and its fair share, in millionths.
        share_ppm: u32,
        fair_share_ppm: u32,
    },
    /// Is being cleared from its node for the sake of another; `AllocationStopping` follows.
    AllocationPreempted {
        allocation: AllocationNo,
        cause: PreemptionCause,
        /// Whom it makes room for; none for a reservation.
        by: Option<AllocationNo>,
        /// It should have stopped by then.
        grace_until: Millis,
    },
    /// Its place is held for it until those who are in it have gone.
    AllocationNominated {
        allocation: AllocationNo,
        node: Token,
        incarnation: u64,
    },
    /// The run is over by `cause` at `at`; the allocation waits again, and not before `not_before` is it tried.
    AllocationRequeued {
        allocation: AllocationNo,
        cause: EndCause,
        at: Millis,
        not_before: Millis,
    },
    /// The nodes of an advance reservation; empty when there are too few, or it was taken back or is over.
    ReservationDecided {
        reservation: Token,
        version: u64,
        nodes: Vec<Token>,
    },
    AllocationStarted {
        allocation: AllocationNo,
        at: Millis,
    },
    AllocationStopping {
        allocation: AllocationNo,
    },
    AllocationEnded {
        allocation: AllocationNo,
        cause: EndCause,
        at: Millis,
    },
    CancelDecided {
        /// Number of the `CancelRequested`.
        request: EventNo,
        allocation: AllocationNo,
        verdict: CancelVerdict,
    },
    JobSetCancelDecided {
        /// Number of the `JobSetCancelRequested`.
        request: EventNo,
        /// Allocations that have ended by this, or are being stopped.
        allocations: u64,
    },
    AllocationReprioritised {
        allocation: AllocationNo,
        priority: i32,
    },
    PriorityDecided {
        /// Number of the `PriorityRequested`.
        request: EventNo,
        /// Allocations whose priority it has set.
        allocations: u64,
        /// Why it has set none.
        refusal: Option<Refusal>,
    },
    ResourceDecided {
        /// Number of the `ResourceAsked`.
        request: EventNo,
        answer: ResourceAnswer,
    },
    /// Nobody confirmed it in time.
    ReservationExpired {
        tenant: Token,
        reservation: ReservationNo,
        slot: Slot,
        epoch: u64,
        retire_after: Slot,
    },
    // node-heartbeat
    /// Ready from here on, with this capacity.
    NodeRegistered {
        node: Token,
        /// Given by the cell, and never twice: this event's own number, or the one behind the node's last.
        incarnation: u64,
        /// The life of its agent, by the agent's own count.
        boot: u64,
        capacity: NodeCapacity,
    },
    /// Whoever has the key speaks for the node from here on.
    NodeJoined {
        node: Token,
        /// The public key of its user on the bus.
        key: Token,
        /// Of the approval whose token it had.
        version: u64,
    },
    /// The cell knows nothing of it any more; it was lost before.
    NodeForgotten {
        node: Token,
    },
    /// A lost node came back with the same capacity and nothing running.
    NodeReady {
        node: Token,
        incarnation: u64,
    },
    NodeLost {
        node: Token,
        incarnation: u64,
        last_seen: Millis,
    },
    RunReported {
        allocation: AllocationNo,
        node: Token,
        state: RunState,
        at: Millis,
    },
}

impl Event {
    /// The only writer that may put this event on the ledger.
    pub fn writer(&self) -> Writer {
        match self {
            Self::AdminApplied { .. }
            | Self::AllocationRequested { .. }
            | Self::CancelRequested { .. }
            | Self::JobSetCancelRequested { .. }
            | Self::PriorityRequested { .. }
            | Self::ResourceAsked { .. }
            | Self::OperationRefused { .. }
            | Self::OperationRepeated { .. }
            | Self::OperationsForgotten { .. } => Writer::Admission,
            Self::QuotaReserved { .. }
            | Self::QuotaDenied { .. }
            | Self::QuotaWaiting { .. }
            | Self::QuotaReclaimed { .. }
            | Self::LimitsInForce { .. }
            | Self::QuotaReleased { .. } => Writer::Quota,
            Self::AllocationPlaced { .. }
            | Self::AllocationWaiting { .. }
            | Self::AllocationStarted { .. }
            | Self::AllocationStopping { .. }
            | Self::AllocationPreempted { .. }
            | Self::AllocationNominated { .. }
            | Self::AllocationRequeued { .. }
            | Self::AllocationEnded { .. }
            | Self::LineExplained { .. }
            | Self::ReservationDecided { .. }
            | Self::CancelDecided { .. }
            | Self::JobSetCancelDecided { .. }
            | Self::AllocationReprioritised { .. }
            | Self::PriorityDecided { .. }
            | Self::ResourceDecided { .. }
            | Self::ReservationExpired { .. } => Writer::Scheduler,
            Self::NodeRegistered { .. }
            | Self::NodeJoined { .. }
            | Self::NodeForgotten { .. }
            | Self::NodeReady { .. }
            | Self::NodeLost { .. }
            | Self::RunReported { .. } => Writer::NodeHeartbeat,
        }
    }

    /// The allocation that it is about, where `no` is the event's own number.
    pub fn allocation(&self, no: EventNo) -> Option<AllocationNo> {
        match self {
            Self::AllocationRequested { .. } => Some(AllocationNo(no.0)),
            Self::CancelRequested { allocation, .. }
            | Self::QuotaReserved { allocation, .. }
            | Self::QuotaDenied { allocation, .. }
            | Self::QuotaWaiting { allocation, .. }
            | Self::QuotaReclaimed { allocation, .. }
            | Self::QuotaReleased { allocation }
            | Self::AllocationPlaced { allocation, .. }
            | Self::AllocationWaiting { allocation, .. }
            | Self::AllocationStarted { allocation, .. }
            | Self::AllocationStopping { allocation }
            | Self::AllocationPreempted { allocation, .. }
            | Self::AllocationNominated { allocation, .. }
            | Self::AllocationRequeued { allocation, .. }
            | Self::AllocationEnded { allocation, .. }
            | Self::CancelDecided { allocation, .. }
            | Self::AllocationReprioritised { allocation, .. }
            | Self::RunReported { allocation, .. } => Some(*allocation),
            Self::AdminApplied { .. }
            | Self::JobSetCancelRequested { .. }
            | Self::PriorityRequested { .. }
            | Self::ResourceAsked { .. }
            | Self::LimitsInForce { .. }
            | Self::JobSetCancelDecided { .. }
            | Self::PriorityDecided { .. }
            | Self::ResourceDecided { .. }
            | Self::ReservationExpired { .. }
            | Self::OperationRefused { .. }
            | Self::OperationRepeated { .. }
            | Self::OperationsForgotten { .. }
            | Self::NodeRegistered { .. }
            | Self::NodeJoined { .. }
            | Self::NodeForgotten { .. }
            | Self::NodeReady { .. }
            | Self::LineExplained { .. }
            | Self::ReservationDecided { .. }
            | Self::NodeLost { .. } => None,
        }
    }

    /// The name on metrics and spans, in snake case.
    pub fn name(&self) -> &'static str {
        match self {
            Self::AdminApplied { .. } => "admin_applied",
            Self::AllocationRequested { .. } => "allocation_requested",
            Self::CancelRequested { .. } => "cancel_requested",
            Self::JobSetCancelRequested { .. } => "job_set_cancel_requested",
            Self::PriorityRequested { .. } => "priority_requested",
            Self::ResourceAsked { .. } => "resource_asked",
            Self::OperationRefused { .. } => "operation_refused",
            Self::OperationRepeated { .. } => "operation_repeated",
            Self::OperationsForgotten { .. } => "operations_forgotten",
            Self::QuotaReserved { .. } => "quota_reserved",
            Self::QuotaDenied { .. } => "quota_denied",
            Self::QuotaWaiting { .. } => "quota_waiting",
            Self::QuotaReclaimed { .. } => "quota_reclaimed",
            Self::LimitsInForce { .. } => "limits_in_force",
            Self::QuotaReleased { .. } => "quota_released",
            Self::AllocationPlaced { .. } => "allocation_placed",
            Self::AllocationWaiting { .. } => "allocation_waiting",
            Self::AllocationStarted { .. } => "allocation_started",
            Self::LineExplained { .. } => "line_explained",
            Self::AllocationPreempted { .. } => "allocation_preempted",
            Self::AllocationNominated { .. } => "allocation_nominated",
            Self::AllocationRequeued { .. } => "allocation_requeued",
            Self::ReservationDecided { .. } => "reservation_decided",
            Self::AllocationStopping { .. } => "allocation_stopping",
            Self::AllocationEnded { .. } => "allocation_ended",
            Self::CancelDecided { .. } => "cancel_decided",
            Self::JobSetCancelDecided { .. } => "job_set_cancel_decided",
            Self::AllocationReprioritised { .. } => "allocation_reprioritised",
            Self::PriorityDecided { .. } => "priority_decided",
            Self::ResourceDecided { .. } => "resource_decided",
            Self::ReservationExpired { .. } => "reservation_expired",
            Self::NodeRegistered { .. } => "node_registered",
            Self::NodeJoined { .. } => "node_joined",
            Self::NodeForgotten { .. } => "node_forgotten",
            Self::NodeReady { .. } => "node_ready",
            Self::NodeLost { .. } => "node_lost",
            Self::RunReported { .. } => "run_reported",
        }
    }
}
