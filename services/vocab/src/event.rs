//! The facts of the ledger, in the past tense. Who writes which is in `Event::writer`.

use crate::{
    AllocationNo, AllocationSpec, EventNo, Lsn, Millis, NodeCapacity, Refusal, ResourceKey,
    ResourceKind, Token,
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
    /// First 16 bytes of SHA-256 over the request's canonical content.
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
    },
    Quota {
        tenant: Token,
        resource: ResourceKind,
        limit: u64,
    },
    Rate {
        resource: ResourceKey,
        micro_per_unit_hour: u64,
        effective_from: Millis,
    },
}

/// Why an allocation waits. Stable numbers, the same as the contract's `WaitingReason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum WaitingReason {
    NoNodeReady = 1,
    NoNodeOfModel = 2,
    LargerThanAnyNode = 3,
    NoRoomNow = 4,
}

impl WaitingReason {
    pub const ALL: [Self; 4] = [
        Self::NoNodeReady,
        Self::NoNodeOfModel,
        Self::LargerThanAnyNode,
        Self::NoRoomNow,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::NoNodeReady => "no_node_ready",
            Self::NoNodeOfModel => "no_node_of_model",
            Self::LargerThanAnyNode => "larger_than_any_node",
            Self::NoRoomNow => "no_room_now",
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
}

impl EndCause {
    pub const ALL: [Self; 5] = [
        Self::Finished,
        Self::Failed,
        Self::Cancelled,
        Self::NodeLost,
        Self::RejectedByNode,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::NodeLost => "node_lost",
            Self::RejectedByNode => "rejected_by_node",
        }
    }
}

/// What a node's agent says of a run. Stable numbers, the same as the contract's `RunState`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RunState {
    Started = 1,
    Finished = 2,
    Failed = 3,
    Rejected = 4,
}

impl RunState {
    pub const ALL: [Self; 4] = [Self::Started, Self::Finished, Self::Failed, Self::Rejected];
}

/// What the scheduler found when it took up a cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CancelVerdict {
    /// It has ended by this, or is being stopped.
    WasLive,
    /// It had ended before.
    HadEnded,
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
    },
    // quota
    QuotaReserved {
        allocation: AllocationNo,
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
    },
    AllocationWaiting {
        allocation: AllocationNo,
        reason: WaitingReason,
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
    // node-heartbeat
    /// Ready from here on, with this capacity.
    NodeRegistered {
        node: Token,
        incarnation: u64,
        capacity: NodeCapacity,
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
            | Self::OperationRefused { .. }
            | Self::OperationRepeated { .. }
            | Self::OperationsForgotten { .. } => Writer::Admission,
            Self::QuotaReserved { .. } | Self::QuotaDenied { .. } | Self::QuotaReleased { .. } => {
                Writer::Quota
            }
            Self::AllocationPlaced { .. }
            | Self::AllocationWaiting { .. }
            | Self::AllocationStarted { .. }
            | Self::AllocationStopping { .. }
            | Self::AllocationEnded { .. }
            | Self::CancelDecided { .. } => Writer::Scheduler,
            Self::NodeRegistered { .. }
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
            | Self::QuotaReserved { allocation }
            | Self::QuotaDenied { allocation, .. }
            | Self::QuotaReleased { allocation }
            | Self::AllocationPlaced { allocation, .. }
            | Self::AllocationWaiting { allocation, .. }
            | Self::AllocationStarted { allocation, .. }
            | Self::AllocationStopping { allocation }
            | Self::AllocationEnded { allocation, .. }
            | Self::CancelDecided { allocation, .. }
            | Self::RunReported { allocation, .. } => Some(*allocation),
            Self::AdminApplied { .. }
            | Self::OperationRefused { .. }
            | Self::OperationRepeated { .. }
            | Self::OperationsForgotten { .. }
            | Self::NodeRegistered { .. }
            | Self::NodeReady { .. }
            | Self::NodeLost { .. } => None,
        }
    }

    /// The name on metrics and spans, in snake case.
    pub fn name(&self) -> &'static str {
        match self {
            Self::AdminApplied { .. } => "admin_applied",
            Self::AllocationRequested { .. } => "allocation_requested",
            Self::CancelRequested { .. } => "cancel_requested",
            Self::OperationRefused { .. } => "operation_refused",
            Self::OperationRepeated { .. } => "operation_repeated",
            Self::OperationsForgotten { .. } => "operations_forgotten",
            Self::QuotaReserved { .. } => "quota_reserved",
            Self::QuotaDenied { .. } => "quota_denied",
            Self::QuotaReleased { .. } => "quota_released",
            Self::AllocationPlaced { .. } => "allocation_placed",
            Self::AllocationWaiting { .. } => "allocation_waiting",
            Self::AllocationStarted { .. } => "allocation_started",
            Self::AllocationStopping { .. } => "allocation_stopping",
            Self::AllocationEnded { .. } => "allocation_ended",
            Self::CancelDecided { .. } => "cancel_decided",
            Self::NodeRegistered { .. } => "node_registered",
            Self::NodeReady { .. } => "node_ready",
            Self::NodeLost { .. } => "node_lost",
            Self::RunReported { .. } => "run_reported",
        }
    }
}
