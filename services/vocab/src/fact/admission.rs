//! What admission records: what operators set, what tenants ask for, and what was refused.

use super::{Admission, Written};
use crate::{
    Account, AdvanceReservation, AllocationNo, AllocationSpec, Budget, BudgetOf, EventNo, Limits,
    Millis, Month, NodeApproval, Operation, PriorityClass, PriorityTarget, QueueSettings,
    QuotaResource, RateKey, RatePrice, RateScope, Refusal, ResourceAsk, ResourceKey,
    SchedulingPolicy, Slot, Taint, Team, TenantSettings, Token, Validity, Verb,
};
use serde::{Deserialize, Serialize};
use wire::raw::{each_field, finish};
use wire::{
    Body, Codec, Depth, FieldDescriptor, Input, Kind, Message, MessageDescriptor, Out, Plain, Value,
};

/// An operator's change on the ledger. Each thing that can be set counts its own versions.
///
/// On the wire it is a message of the name of its fact: the operation is 1, the version 2, the change 3.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied<Change> {
    pub operation: Operation,
    pub change: Change,
    pub version: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
#[wire(name = "TenantSet.Change")]
pub struct TenantSet {
    #[wire(1)]
    pub tenant: Token,
    #[wire(2, default)]
    pub settings: TenantSettings,
    /// Nothing new of it is accepted: neither allocations, nor resources and leases of them. What is accepted goes on.
    #[wire(3)]
    pub closed: bool,
    /// The teams and namespaces that its accounts may be of; empty: any. Sorted. A team alone lets in all of its namespaces.
    #[wire(4)]
    pub teams: Vec<Team>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
#[wire(name = "QuotaSet.Change")]
pub struct QuotaSet {
    #[wire(flatten(tenant = 1, team = 2, namespace = 3))]
    pub account: Account,
    #[wire(4)]
    pub resource: QuotaResource,
    /// None: without limits of its own, as if they had never been set.
    #[wire(5)]
    pub limits: Option<Limits>,
    #[wire(flatten(
        from(6, optional, name = "from_ms"),
        until(7, optional, name = "until_ms")
    ))]
    pub validity: Validity,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
#[wire(name = "BudgetSet.Change")]
pub struct BudgetSet {
    #[wire(flatten(tenant = 1, team = 2, namespace = 3))]
    pub account: Account,
    #[wire(4)]
    pub of: BudgetOf,
    /// None takes it back.
    #[wire(5)]
    pub budget: Option<Budget>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
#[wire(name = "RateSet.Change")]
pub struct RateSet {
    #[wire(1)]
    pub resource: ResourceKey,
    /// 0 of what is taken back.
    #[wire(2)]
    pub micro_per_unit_hour: u64,
    #[wire(3, name = "effective_from_ms")]
    pub effective_from: Millis,
    #[wire(flatten(tenant = 4, priority_class = 5, pool = 6, cluster = 7))]
    pub scope: RateScope,
    /// From the moment on no rate of this resource and scope holds, and none that was to come.
    #[wire(8)]
    pub withdrawn: bool,
}

impl RateSet {
    pub fn price(&self) -> RatePrice {
        (!self.withdrawn).then_some(self.micro_per_unit_hour)
    }

    /// What it is for.
    pub fn key(&self) -> RateKey {
        RateKey {
            resource: self.resource.clone(),
            scope: self.scope.clone(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
#[wire(name = "QueueSet.Change")]
pub struct QueueSet {
    #[wire(1)]
    pub queue: Token,
    #[wire(2)]
    pub settings: QueueSettings,
    /// No allocation is accepted into it. Those that are in it go on.
    #[wire(3)]
    pub closed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
#[wire(name = "PriorityClassSet.Change")]
pub struct PriorityClassSet {
    #[wire(1, name = "priority_class")]
    pub class: Token,
    #[wire(2)]
    pub settings: PriorityClass,
    /// No allocation is accepted with it. Those that have it go on.
    #[wire(3)]
    pub closed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
#[wire(name = "SchedulingSet.Change")]
pub struct SchedulingSet {
    #[wire(1)]
    pub policy: SchedulingPolicy,
}

/// A cordoned node takes nothing new; what runs on it stays, unless it is drained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
#[wire(name = "CordonSet.Change")]
pub struct CordonSet {
    #[wire(1)]
    pub node: Token,
    #[wire(2)]
    pub cordoned: bool,
    /// What runs there is told to stop, and placed elsewhere; only of a cordoned node.
    #[wire(3)]
    pub drain: bool,
    /// So many of its allocations are on their way out at once, at the most; 0: all.
    #[wire(4)]
    pub at_once: u32,
}

/// The taints of a node beside those that it has itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
#[wire(name = "TaintsSet.Change")]
pub struct TaintsSet {
    #[wire(1)]
    pub node: Token,
    /// In order, each key and effect once.
    #[wire(2)]
    pub taints: Vec<Taint>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
#[wire(name = "ReservationSet.Change")]
pub struct ReservationSet {
    #[wire(1)]
    pub reservation: Token,
    /// None takes it back.
    #[wire(2)]
    pub wanted: Option<AdvanceReservation>,
}

/// Who may join the cell under this name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
#[wire(name = "NodeSet.Change")]
pub struct NodeSet {
    #[wire(1)]
    pub node: Token,
    /// None: the node is forgotten.
    #[wire(2)]
    pub approval: Option<Box<NodeApproval>>,
}

/// The bill of the month, and of all before it, is final: what becomes known later of their hours is a correction in the bill
/// of the first month that is not closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
#[wire(name = "PeriodClosed.Change")]
pub struct PeriodClosed {
    #[wire(1)]
    pub month: Month,
}

/// A change of a setting, as the content of its fact.
pub trait Setting: Message + Value {
    const DESCRIPTOR: MessageDescriptor;
    /// `Message.field` of the operation, the version and the change.
    const FIELDS: [&'static str; 3];
}

macro_rules! settings {
    ($($setting:ident: $name:ident,)*) => {
        /// What an operator may change.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        pub enum AdminChange { $($setting($name),)* }

        impl AdminChange {
            /// The change as a fact.
            pub fn applied(self, operation: Operation, version: u64) -> Written<Admission> {
                match self {
                    $(Self::$setting(change) => Applied { operation, change, version }.into(),)*
                }
            }
        }

        crate::inputs! {
            /// Any change of a setting.
            pub enum SettingFact { $($name,)* }
        }

        impl<'a> SettingFact<'a> {
            /// What was asked for.
            pub fn change(self) -> AdminChange {
                match self { $(Self::$name(set) => AdminChange::$setting(set.change.clone()),)* }
            }

            /// Who asked for it, and the version that it has.
            pub fn asked(self) -> (&'a Operation, u64) {
                match self { $(Self::$name(set) => (&set.operation, set.version),)* }
            }
        }

        $(
            impl Setting for $name {
                const DESCRIPTOR: MessageDescriptor = MessageDescriptor {
                    name: stringify!($name),
                    fields: &[
                        field::<Operation>(1, "operation"),
                        field::<u64>(2, "version"),
                        field::<Self>(3, "change"),
                    ],
                    oneofs: &[],
                };
                const FIELDS: [&'static str; 3] = [
                    concat!(stringify!($name), ".operation"),
                    concat!(stringify!($name), ".version"),
                    concat!(stringify!($name), ".change"),
                ];
            }
        )*
    };
}

settings! {
    Tenant: TenantSet,
    Quota: QuotaSet,
    Budget: BudgetSet,
    Rate: RateSet,
    Queue: QueueSet,
    PriorityClass: PriorityClassSet,
    Scheduling: SchedulingSet,
    Cordon: CordonSet,
    Taints: TaintsSet,
    Reservation: ReservationSet,
    Node: NodeSet,
    Period: PeriodClosed,
}

const fn field<T: Value>(number: u32, name: &'static str) -> FieldDescriptor {
    let shape = <Plain as Codec<T>>::SHAPE;
    FieldDescriptor {
        number,
        name,
        shape,
    }
}

impl<C: Setting> Message for Applied<C> {
    const DESCRIPTOR: &'static MessageDescriptor = &<C as Setting>::DESCRIPTOR;

    fn write_body<O: Out>(&self, out: &mut O) {
        Plain::write_field(&self.change, 3, out);
        Plain::write_field(&self.version, 2, out);
        Plain::write_field(&self.operation, 1, out);
    }

    fn read_body(body: Body, depth: Depth) -> wire::Result<Self> {
        let (mut operation, mut version, mut change) = (None, None, None);
        let [of_operation, of_version, of_change] = C::FIELDS;
        each_field(
            body,
            depth,
            <C as Setting>::DESCRIPTOR.name,
            |number, input| {
                let (read, field) = match number {
                    1 => (Plain::merge_field(&mut operation, input), of_operation),
                    2 => (Plain::merge_field(&mut version, input), of_version),
                    3 => (Plain::merge_field(&mut change, input), of_change),
                    _ => return Ok(false),
                };
                read.map_err(|error| error.at(field)).map(|()| true)
            },
        )?;
        Ok(Self {
            operation: finish::<Plain, _>(operation, of_operation)?,
            version: finish::<Plain, _>(version, of_version)?,
            change: finish::<Plain, _>(change, of_change)?,
        })
    }
}

impl<C: Setting> Value for Applied<C> {
    const KIND: Kind = Kind::Message(|| <Self as Message>::DESCRIPTOR);

    fn zero() -> Option<Self> {
        None
    }

    fn is_zero(&self) -> bool {
        false
    }

    fn write<O: Out>(&self, number: u32, out: &mut O) {
        out.message(number, |out| self.write_body(out));
    }

    fn read(input: Input) -> wire::Result<Option<Self>> {
        let (body, depth) = input.message(false)?;
        Ok(Some(Self::read_body(body, depth)?))
    }
}

/// The allocation's number is this event's number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct AllocationRequested {
    #[wire(1)]
    pub operation: Operation,
    #[wire(2)]
    pub spec: AllocationSpec,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct CancelRequested {
    #[wire(1)]
    pub operation: Operation,
    #[wire(2)]
    pub allocation: AllocationNo,
}

/// All of a job set that was accepted before this and has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct JobSetCancelRequested {
    #[wire(1)]
    pub operation: Operation,
    #[wire(2)]
    pub job_set: Token,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct PriorityRequested {
    #[wire(1)]
    pub operation: Operation,
    #[wire(oneof(2, 3))]
    pub target: PriorityTarget,
    #[wire(4)]
    pub priority: i32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct ResourceAsked {
    #[wire(1)]
    pub operation: Operation,
    #[wire(2)]
    pub slot: Slot,
    /// The slot is the request's and not the clock's; its operation id is then remembered for a window of slots.
    #[wire(9)]
    pub by_requests: bool,
    #[wire(oneof(3, 4, 5, 6, 7, 8))]
    pub ask: ResourceAsk,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct OperationRefused {
    #[wire(1)]
    pub operation: Operation,
    #[wire(2)]
    pub job_set: Option<Token>,
    #[wire(3)]
    pub refusal: Refusal,
    /// What was asked for; none: the message could not be read that far, or it is of feature level 9 or below.
    #[wire(4)]
    pub verb: Option<Verb>,
}

/// The same operation with the same content came again; `original` carried the first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct OperationRepeated {
    #[wire(1)]
    pub tenant: Token,
    #[wire(2)]
    pub original: EventNo,
    #[wire(3)]
    pub reply_to: Option<Token>,
}

/// The retention window of all operations up to this event number is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct OperationsForgotten {
    #[wire(1)]
    pub through: EventNo,
    /// Only of those of this tenant whose window is counted in slots; none: of all others.
    #[wire(2)]
    pub slots_of: Option<Token>,
    /// So is that of the allocations that ended by the scheduler's events up to this number: nobody can be asked to
    /// start after them any more.
    #[wire(3)]
    pub ended_through: EventNo,
    /// The same of those that were denied, by quota's events.
    #[wire(4)]
    pub denied_through: EventNo,
}
