//! What the fold gives out: facts for the bill, transfers and capacities of the nodes' books, rates, and sums of a batch.

use super::meter::{Booked, Line, Shelf, Used};
use serde::{Deserialize, Serialize};
use std::{
    borrow::Cow,
    ops::{AddAssign, Sub, SubAssign},
    sync::Arc,
};
use vocab::{
    Account as Budgeted, AllocationNo, AllocationSpec, Budget, BudgetOf, EndCause, Lsn, Millis,
    Month, NodeCapacity, PreemptionCause, RateKey, RatePrice, Refusal, ResourceKind, RunExit,
    Token, WaitingReason,
};

/// Something that becomes a row, with the event that it became known by. `(lsn, index, part)` is unique. There are five of a
/// run, and a batch holds tens of thousands of runs, so it is small: what is large lies beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub lsn: Lsn,
    pub index: u32,
    /// Counts the changes of one event.
    pub part: u32,
    pub fact: Fact,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    Interval(Box<Interval>),
    Running(Box<Running>),
    Unplaced(Box<Unplaced>),
    Preemption(Box<Preemption>),
    Denial(Box<Denial>),
    Transfer(Transfer),
    Capacity(Box<Capacity>),
    Condition(Box<Condition>),
    Rate(Box<Rate>),
    Budget(Box<BudgetChange>),
    Closed(Closed),
    Sums(Box<Sums>),
    Clock(Clock),
    FirstAttempts(FirstAttempts),
}

/// Allocations that wait for their first run or are in it, so that no run of them is over. No table holds them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FirstAttempts {
    /// `begun` are all there are, and not those of the batch.
    pub all: bool,
    pub begun: Vec<AllocationNo>,
    /// Of those that began before the batch.
    pub over: Vec<AllocationNo>,
}

/// A run that is over: what a tenant used of a node, and from when to when. The bill's raw fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interval {
    pub allocation: AllocationNo,
    pub of: Owner,
    pub moved: Arc<Moved>,
    pub wait: Wait,
    /// From here on it was reserved, until it started.
    pub placed_at: Millis,
    pub started_at: Millis,
    /// After `started_at`; the first moment that is not used any more.
    pub ended_at: Millis,
    /// The first moment that is not reserved any more.
    pub released_at: Millis,
    pub cause: EndCause,
    /// How its command ended, if its agent said so.
    pub exit: Option<RunExit>,
}

/// A run that is under way at the end of a batch, or was at the end of one before and is not any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    pub allocation: AllocationNo,
    pub of: Owner,
    pub moved: Arc<Moved>,
    pub started_at: Millis,
    pub under_way: bool,
}

/// It waited for a place and ended without one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unplaced {
    pub allocation: AllocationNo,
    pub of: Owner,
    pub amounts: Amounts,
    pub wait: Wait,
    pub ended_at: Millis,
    pub cause: EndCause,
}

/// It had to make room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preemption {
    pub allocation: AllocationNo,
    pub of: Owner,
    pub node: Option<Token>,
    pub cause: PreemptionCause,
    /// None: for a reservation.
    pub by: Option<AllocationNo>,
    /// Whose that is, if it has not ended.
    pub by_payer: Option<Arc<Payer>>,
    pub at: Millis,
}

/// Quota will never let it run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    pub allocation: AllocationNo,
    /// Whose it is and what it asked for; none: the scheduler had ended it before.
    pub of: Option<(Owner, Amounts)>,
    pub refusal: Refusal,
    pub at: Millis,
}

/// Something holds of a node from here on, or does so no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    pub node: Token,
    pub condition: Cow<'static, str>,
    pub status: Status,
    /// Empty when none is known.
    pub reason: Cow<'static, str>,
    pub at: Millis,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    True,
    False,
    Unknown,
}

impl Status {
    pub fn name(self) -> &'static str {
        match self {
            Self::True => "true",
            Self::False => "false",
            Self::Unknown => "unknown",
        }
    }
}

/// The bill of the month, and of those before it, is final.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed {
    pub month: Month,
    pub version: u64,
    pub at: Millis,
}

/// What a batch comes to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sums {
    pub used: Vec<(Line, Used)>,
    pub booked: Vec<(Shelf, Account, Booked)>,
}

/// How far time is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    pub clock: Millis,
    pub accrued_to: Millis,
}

/// Whose an allocation is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    pub payer: Arc<Payer>,
    pub name: Option<Token>,
    /// The request's.
    pub operation_id: Option<Token>,
    pub gang: Option<Token>,
    pub labels: Box<[(Token, Token)]>,
}

/// Who pays, and for what: what use is summed up by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Payer {
    pub tenant: Token,
    pub team: Option<Token>,
    pub namespace: Option<Token>,
    pub queue: Token,
    pub job_set: Token,
    pub priority_class: Option<Token>,
}

impl Payer {
    pub fn of(tenant: &Token, spec: &AllocationSpec) -> Self {
        Self {
            tenant: tenant.clone(),
            team: spec.team.clone(),
            namespace: spec.namespace.clone(),
            // A tenant's own queue has its name.
            queue: spec.queue.as_ref().unwrap_or(tenant).clone(),
            job_set: spec.job_set.clone(),
            priority_class: spec.priority_class.clone(),
        }
    }
}

/// Of what kind a node is, for the bill: its labels of these names, and the model of its GPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Site {
    pub cluster: Option<Token>,
    pub zone: Option<Token>,
    pub pool: Option<Token>,
    pub gpu_model: Option<Token>,
}

impl Site {
    pub fn of(capacity: &NodeCapacity) -> Self {
        Self {
            cluster: capacity.label("cluster").cloned(),
            zone: capacity.label("zone").cloned(),
            pool: capacity.label("pool").cloned(),
            gpu_model: capacity.gpu_model.clone(),
        }
    }
}

/// How an allocation comes to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// Counts its tries, from 1.
    pub attempt: u32,
    /// When it was requested, or queued again.
    pub since: Millis,
    /// The last that was said of why it waits.
    pub reason: Option<WaitingReason>,
}

/// What is moved between the accounts of an incarnation of a node. All transfers of a run, and its interval, share one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// None: it is about no run. Such a one is in no state.
    #[serde(with = "of_a_run")]
    pub allocation: Option<AllocationNo>,
    pub node: Token,
    pub incarnation: u64,
    pub amounts: Amounts,
    pub site: Arc<Site>,
}

/// An allocation that is there, as such.
mod of_a_run {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::Error};
    use vocab::AllocationNo;

    pub fn serialize<S: Serializer>(no: &Option<AllocationNo>, to: S) -> Result<S::Ok, S::Error> {
        let no = no.ok_or_else(|| S::Error::custom("about no run"))?;
        no.serialize(to)
    }

    pub fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Option<AllocationNo>, D::Error> {
        AllocationNo::deserialize(from).map(Some)
    }
}

/// Where a node's capacity is at a moment. At every moment, what is not outside adds up to the node's capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Account {
    /// Not of this incarnation of the node: whence its capacity comes and where it goes.
    Outside,
    Allocated,
    Reserved,
    Idle,
    /// Free, and kept off new allocations by an operator.
    Cordoned,
    Unavailable,
}

impl Account {
    pub fn name(self) -> &'static str {
        match self {
            Self::Outside => "outside",
            Self::Allocated => "allocated",
            Self::Reserved => "reserved",
            Self::Idle => "idle",
            Self::Cordoned => "cordoned",
            Self::Unavailable => "unavailable",
        }
    }
}

/// From `at` on, so much of the node is no longer in the one account but in the other. The running totals are the
/// node's timeline, and because additions commute it does not matter that a start is known only some time after it
/// happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    pub moved: Arc<Moved>,
    pub from: Account,
    pub to: Account,
    pub at: Millis,
}

/// From `at` on, an incarnation of a node has so much in all. It is what the books' transfers must come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capacity {
    pub node: Token,
    pub incarnation: u64,
    pub at: Millis,
    pub amounts: Amounts,
}

/// The price of a resource from a moment on, until a newer one; none: it is taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rate {
    pub key: RateKey,
    pub price: RatePrice,
    pub effective_from: Millis,
    /// When it begins in the bill: what was folded before it was known keeps its price.
    pub applied_from: Millis,
    pub version: u64,
}

/// What an account may use up in every period from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetChange {
    pub account: Budgeted,
    pub of: BudgetOf,
    /// None takes it back.
    pub budget: Option<Budget>,
    pub version: u64,
    pub at: Millis,
}

/// One amount per resource type. Signed and wide, so that every sum and difference of recorded quantities exists and a
/// scheduler that gave out too much shows as a negative rest instead of stopping the projection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amounts {
    pub cpu_milli: i128,
    pub memory_bytes: i128,
    pub gpu_milli: i128,
}

impl Amounts {
    fn each(mut amount: impl FnMut(ResourceKind) -> i128) -> Self {
        Self {
            cpu_milli: amount(ResourceKind::Cpu),
            memory_bytes: amount(ResourceKind::Memory),
            gpu_milli: amount(ResourceKind::Gpu),
        }
    }

    pub fn of_spec(spec: &AllocationSpec) -> Self {
        Self::each(|kind| spec.amount(kind).into())
    }

    pub fn of_node(capacity: &NodeCapacity) -> Self {
        Self::each(|kind| capacity.amount(kind).into())
    }

    /// Of each the smaller.
    pub fn at_most(&self, other: &Self) -> Self {
        Self::each(|kind| self.get(kind).min(other.get(kind)))
    }

    /// Of each the larger.
    pub fn at_least(&self, other: &Self) -> Self {
        Self::each(|kind| self.get(kind).max(other.get(kind)))
    }

    pub fn get(&self, kind: ResourceKind) -> i128 {
        match kind {
            ResourceKind::Cpu => self.cpu_milli,
            ResourceKind::Memory => self.memory_bytes,
            ResourceKind::Gpu => self.gpu_milli,
        }
    }

    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

impl AddAssign for Amounts {
    fn add_assign(&mut self, other: Self) {
        *self = Self::each(|kind| self.get(kind) + other.get(kind));
    }
}

impl SubAssign for Amounts {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Sub for Amounts {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self::each(|kind| self.get(kind) - other.get(kind))
    }
}
