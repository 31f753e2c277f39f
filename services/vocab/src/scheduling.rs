//! What operators set for the scheduler: queues, priority classes, the cell's policy, reserved nodes.

use crate::spec::ResourceAmount;
use crate::{Millis, Requirement, ResourceKind, Token};
use serde::{Deserialize, Serialize};

/// How a queue shares with its siblings, and what it may hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct QueueSettings {
    /// None: at the root.
    #[wire(1)]
    pub parent: Option<Token>,
    /// The share that it is due beside its siblings, in thousandths; 1 / priority factor. 1..=1_000_000.
    #[wire(2)]
    pub weight_milli: u32,
    /// No more than this at a time, with all below it; each type once.
    #[wire(3, with = wire::Pairs<ResourceAmount>)]
    pub limits: Vec<(ResourceKind, u64)>,
    /// Who may submit to it beside the tenant of its name; sorted.
    #[wire(4)]
    pub tenants: Vec<Token>,
    #[wire(5)]
    pub order: QueueOrder,
    /// None: the cell's.
    #[wire(6, optional)]
    pub placement: Option<PlacementPolicy>,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            parent: None,
            weight_milli: 1000,
            limits: Vec::new(),
            tenants: Vec::new(),
            order: QueueOrder::default(),
            placement: None,
        }
    }
}

impl QueueSettings {
    pub const WEIGHT_MILLI_MAX: u32 = 1_000_000;
    pub const TENANTS_MAX: usize = 256;
    /// Queues above a queue, at the most.
    pub const DEPTH_MAX: usize = 8;
}

/// Order inside a queue among equal priorities. Stable numbers, the same as the contract's.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    wire::Wire,
)]
pub enum QueueOrder {
    /// First come, first served.
    #[default]
    Fcfs = 0,
    /// Shortest run-time estimate first; without one last.
    Sjf = 1,
    /// Least estimate times size first; without an estimate last.
    SmallestArea = 2,
}

impl QueueOrder {
    pub fn name(self) -> &'static str {
        match self {
            Self::Fcfs => "fcfs",
            Self::Sjf => "sjf",
            Self::SmallestArea => "smallest_area",
        }
    }
}

/// How the nodes that fit are ranked. Stable numbers, the same as the contract's.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    wire::Wire,
)]
pub enum PlacementPolicy {
    /// Our own.
    #[default]
    Default = 0,
    BestFit = 1,
    Spread = 2,
    GpuPacking = 3,
    Fgd = 4,
}

impl PlacementPolicy {
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::BestFit => "best_fit",
            Self::Spread => "spread",
            Self::GpuPacking => "gpu_packing",
            Self::Fgd => "fgd",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == text)
    }
}

/// What a priority is worth against others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct PriorityClass {
    /// The priority of its allocations.
    #[wire(1)]
    pub value: i32,
    /// It may be sent back to the queue for others.
    #[wire(2)]
    pub preemptible: bool,
    /// It may send preemptible allocations of lower value back.
    #[wire(3)]
    pub preempts: bool,
    /// Time between being told to stop and being expected to have stopped.
    #[wire(4)]
    pub grace_ms: u64,
    /// None: the queue's.
    #[wire(5, optional)]
    pub placement: Option<PlacementPolicy>,
}

impl PriorityClass {
    /// An hour.
    pub const GRACE_MS_MAX: u64 = 3_600_000;
}

/// The cell's scheduling policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct SchedulingPolicy {
    #[wire(1)]
    pub placement: PlacementPolicy,
    /// How fast past use is forgiven; 0: it never counts.
    #[wire(2)]
    pub half_life_ms: u64,
    /// A queue below its fair share takes from queues above theirs.
    #[wire(3)]
    pub fair_share_preemption: bool,
    /// A queue that holds no more than this part of its fair share is safe from preemption; thousandths, 0..=1000.
    #[wire(4)]
    pub protected_milli: u32,
    /// Preemptions in any minute, at the most; 0: none at all.
    #[wire(5)]
    pub preemptions_per_minute: u32,
    /// Waiting this long weighs as much as one more of priority; 0: waiting does not count.
    #[wire(6)]
    pub aging_ms: u64,
    /// The first that does not fit is promised the earliest place that run-time estimates allow; others go before it only
    /// where they do not delay it.
    #[wire(7)]
    pub backfill: bool,
    /// Pause before the first retry; doubles with each.
    #[wire(8)]
    pub backoff_ms: u64,
    #[wire(9)]
    pub backoff_ms_max: u64,
}

impl Default for SchedulingPolicy {
    fn default() -> Self {
        Self {
            placement: PlacementPolicy::Default,
            half_life_ms: 0,
            fair_share_preemption: true,
            protected_milli: 0,
            preemptions_per_minute: 600,
            aging_ms: 0,
            backfill: false,
            backoff_ms: 1000,
            backoff_ms_max: 300_000,
        }
    }
}

/// Whole nodes for one queue in an interval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct AdvanceReservation {
    #[wire(1)]
    pub queue: Token,
    /// From this moment, included.
    #[wire(2, name = "from_ms")]
    pub from: Millis,
    /// Up to this moment, not included.
    #[wire(3, name = "until_ms")]
    pub until: Millis,
    #[wire(4)]
    pub nodes: u32,
    /// What the nodes must be like.
    #[wire(5)]
    pub selector: Vec<Requirement>,
}

impl AdvanceReservation {
    pub const NODES_MAX: u32 = 10_000;
}
