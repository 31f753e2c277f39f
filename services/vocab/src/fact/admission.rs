//! What admission records: what operators set, what tenants ask for, and what was refused.

use super::{Admission, Written};
use crate::{
    Account, AdvanceReservation, AllocationNo, AllocationSpec, Budget, BudgetOf, EventNo, Limits,
    Millis, NodeApproval, Operation, PriorityClass, PriorityTarget, QueueSettings, QuotaResource,
    Refusal, ResourceAsk, ResourceKey, SchedulingPolicy, Slot, TenantSettings, Token, Validity,
};
use serde::{Deserialize, Serialize};

/// An operator's change on the ledger. Each thing that can be set counts its own versions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied<Change> {
    pub operation: Operation,
    pub change: Change,
    pub version: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantSet {
    pub tenant: Token,
    pub settings: TenantSettings,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaSet {
    pub account: Account,
    pub resource: QuotaResource,
    /// None: without limits of its own, as if they had never been set.
    pub limits: Option<Limits>,
    pub validity: Validity,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetSet {
    pub account: Account,
    pub of: BudgetOf,
    /// None takes it back.
    pub budget: Option<Budget>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateSet {
    pub resource: ResourceKey,
    pub micro_per_unit_hour: u64,
    pub effective_from: Millis,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueSet {
    pub queue: Token,
    pub settings: QueueSettings,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriorityClassSet {
    pub class: Token,
    pub settings: PriorityClass,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulingSet {
    pub policy: SchedulingPolicy,
}

/// A cordoned node keeps what runs on it and takes nothing new.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CordonSet {
    pub node: Token,
    pub cordoned: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationSet {
    pub reservation: Token,
    /// None takes it back.
    pub wanted: Option<AdvanceReservation>,
}

/// Who may join the cell under this name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSet {
    pub node: Token,
    /// None: the node is forgotten.
    pub approval: Option<Box<NodeApproval>>,
}

crate::inputs! {
    /// Any change of a setting.
    pub enum SettingFact {
        TenantSet,
        QuotaSet,
        BudgetSet,
        RateSet,
        QueueSet,
        PriorityClassSet,
        SchedulingSet,
        CordonSet,
        ReservationSet,
        NodeSet,
    }
}

impl<'a> SettingFact<'a> {
    /// What was asked for.
    pub fn change(self) -> AdminChange {
        macro_rules! change {
            ($($name:ident => $change:ident)*) => {
                match self { $(Self::$name(set) => AdminChange::$change(set.change.clone()),)* }
            };
        }
        change!(
            TenantSet => Tenant
            QuotaSet => Quota
            BudgetSet => Budget
            RateSet => Rate
            QueueSet => Queue
            PriorityClassSet => PriorityClass
            SchedulingSet => Scheduling
            CordonSet => Cordon
            ReservationSet => Reservation
            NodeSet => Node
        )
    }

    /// Who asked for it, and the version that it has.
    pub fn asked(self) -> (&'a Operation, u64) {
        macro_rules! asked {
            ($($name:ident)*) => {
                match self { $(Self::$name(set) => (&set.operation, set.version),)* }
            };
        }
        asked!(TenantSet QuotaSet BudgetSet RateSet QueueSet PriorityClassSet SchedulingSet CordonSet ReservationSet NodeSet)
    }
}

/// What an operator may change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdminChange {
    Tenant(TenantSet),
    Quota(QuotaSet),
    Budget(BudgetSet),
    Rate(RateSet),
    Queue(QueueSet),
    PriorityClass(PriorityClassSet),
    Scheduling(SchedulingSet),
    Cordon(CordonSet),
    Reservation(ReservationSet),
    Node(NodeSet),
}

impl AdminChange {
    /// The change as a fact.
    pub fn applied(self, operation: Operation, version: u64) -> Written<Admission> {
        macro_rules! applied {
            ($($name:ident)*) => {
                match self {
                    $(Self::$name(change) => Applied { operation, change, version }.into(),)*
                }
            };
        }
        applied!(Tenant Quota Budget Rate Queue PriorityClass Scheduling Cordon Reservation Node)
    }
}

/// The allocation's number is this event's number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationRequested {
    pub operation: Operation,
    pub spec: AllocationSpec,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelRequested {
    pub operation: Operation,
    pub allocation: AllocationNo,
}

/// All of a job set that was accepted before this and has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSetCancelRequested {
    pub operation: Operation,
    pub job_set: Token,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriorityRequested {
    pub operation: Operation,
    pub target: PriorityTarget,
    pub priority: i32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceAsked {
    pub operation: Operation,
    pub slot: Slot,
    /// The slot is the request's and not the clock's; its operation id is then remembered for a window of slots.
    pub by_requests: bool,
    pub ask: ResourceAsk,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationRefused {
    pub operation: Operation,
    pub job_set: Option<Token>,
    pub refusal: Refusal,
}

/// The same operation with the same content came again; `original` carried the first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationRepeated {
    pub tenant: Token,
    pub original: EventNo,
    pub reply_to: Option<Token>,
}

/// The retention window of all operations up to this event number is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationsForgotten {
    pub through: EventNo,
    /// Only of those of this tenant whose window is counted in slots; none: of all others.
    pub slots_of: Option<Token>,
    /// So is that of the allocations that ended by the scheduler's events up to this number: nobody can be asked to
    /// start after them any more.
    pub ended_through: EventNo,
    /// The same of those that were denied, by quota's events.
    pub denied_through: EventNo,
}
