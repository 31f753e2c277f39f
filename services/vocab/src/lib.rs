//! The words that all services share: ids, quantities, time, refusals and the facts of the ledger.
//!
//! No IO, no clock, no async, no generated types. What is sent or recorded is encoded by its own type (`wire`).

mod account;
mod capacity;
mod encoded_spec;
mod event;
pub mod fact;
pub mod human;
mod ids;
mod kind;
mod level;
mod life;
mod named_spec;
mod numbered;
mod rate;
mod refusal;
mod resource;
mod rules;
pub mod sabotage;
mod scheduling;
mod shared;
mod spec;
pub mod subjects;
mod time;
mod token;
mod verb;
mod work;

pub use account::{
    Account, Budget, BudgetOf, Limits, ModelChoice, OnExceed, Period, QuotaResource, ReclaimFrom,
    Team, TenantSettings, Validity,
};
pub use capacity::{Label, NodeApproval, NodeCapacity};
pub use encoded_spec::{EncodedSpec, EncodedSpecs};
pub use event::{
    At, CancelVerdict, Candidate, Candidates, EndCause, Filter, GpuShare, GpuShares, ModelGrant,
    Operation, PendingGroupNo, PreemptionCause, PriorityTarget, QuotaFlags, RunState, TraceContext,
    WaitingReason, Writer,
};
pub use fact::{AdminChange, Event, EventKind};
pub use ids::{AllocationId, AllocationNo, CellNo, EventNo, Lsn};
pub use kind::Kinds;
pub use level::Level;
pub use life::{LifeFact, Stage, Stop};
pub use named_spec::{NamedSpec, NamedSpecs};
pub use numbered::{Number, Numbered};
pub use rate::{RateKey, RateList, RatePrice, RateRank, RateScope};
pub use refusal::{Refusal, Rule, Teaching};
pub use resource::{LeaseNo, LeaseState, ResourceAnswer, ResourceAsk, Slot};
pub use rules::{
    GroupTerm, NumaPolicy, Operator, PlacementRules, Requirement, Spread, Taint, TaintEffect,
    Toleration, Topology, Zone,
};
pub use scheduling::{
    AdvanceReservation, PlacementPolicy, PriorityClass, QueueOrder, QueueSettings, SchedulingPolicy,
};
pub use shared::Shared;
pub use spec::{
    AllocationSpec, Dependency, Gang, GpuRequest, QosClass, ResourceKey, ResourceKind, Restart,
    RunLimits, TimeBounds,
};
pub use time::{DAY_MS, HOUR_MS, Millis, Month};
pub use token::{BadToken, Token};
pub use verb::Verb;
pub use work::{EnvVar, RunExit, RunExitReason, RunUsage, Work};
