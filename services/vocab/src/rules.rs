//! Where an allocation may run, and how a node is built inside.

use crate::Token;
use serde::{Deserialize, Serialize};

/// All of them must hold. The words are those of Kubernetes, the meaning too unless said.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
pub struct PlacementRules {
    /// Node selector and required node affinity.
    #[wire(1)]
    pub selector: Vec<Requirement>,
    #[wire(2)]
    pub tolerations: Vec<Toleration>,
    /// The group it belongs to, of which other allocations of the tenant can speak.
    #[wire(3)]
    pub group: Option<Token>,
    /// Only in a domain where such a group runs (or would run: the first of its own group may go anywhere).
    #[wire(4)]
    pub affinity: Vec<GroupTerm>,
    /// Only in a domain where no such group runs.
    #[wire(5)]
    pub anti_affinity: Vec<GroupTerm>,
    /// Its own group, spread over the domains of a label.
    #[wire(6)]
    pub spread: Vec<Spread>,
    #[wire(7)]
    pub numa: NumaPolicy,
}

impl PlacementRules {
    pub const REQUIREMENTS_MAX: usize = 16;
    pub const VALUES_MAX: usize = 32;
    pub const TOLERATIONS_MAX: usize = 16;
    pub const TERMS_MAX: usize = 8;
}

/// What a node's label must be like.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
pub struct Requirement {
    #[wire(1)]
    pub label: Token,
    #[wire(2)]
    pub operator: Operator,
    /// Empty with `Exists` and `Missing`.
    #[wire(3)]
    pub values: Vec<Token>,
}

/// Stable numbers, the same as the contract's.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
pub enum Operator {
    In = 1,
    /// Holds for a node without the label, too.
    NotIn = 2,
    Exists = 3,
    Missing = 4,
}

/// Keeps off whoever does not tolerate it; what runs already stays.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
pub struct Taint {
    #[wire(1)]
    pub key: Token,
    #[wire(2)]
    pub value: Option<Token>,
}

#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
pub struct Toleration {
    /// None: every taint.
    #[wire(1)]
    pub key: Option<Token>,
    /// None: every value.
    #[wire(2)]
    pub value: Option<Token>,
}

impl Toleration {
    pub fn tolerates(&self, taint: &Taint) -> bool {
        self.key.as_ref().is_none_or(|key| *key == taint.key)
            && (self.value.is_none() || self.value == taint.value)
    }
}

/// A group of the same tenant within one domain.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
pub struct GroupTerm {
    #[wire(1)]
    pub group: Token,
    /// The label whose values are the domains; none: each node is one.
    #[wire(2)]
    pub topology_key: Option<Token>,
}

/// No domain may have more than `max_skew` members above the domain with the fewest.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
pub struct Spread {
    /// As in `GroupTerm`.
    #[wire(1)]
    pub topology_key: Option<Token>,
    /// At least 1.
    #[wire(2)]
    pub max_skew: u32,
}

/// Stable numbers, the same as the contract's.
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
pub enum NumaPolicy {
    /// Wherever there is room; devices by the fewest free.
    #[default]
    None = 0,
    /// In one zone if one has room, else in zones and devices close to each other.
    BestEffort = 1,
    /// All of it in one zone, or not on this node.
    Single = 2,
}

wire::pair! {
    /// Two devices with a direct link.
    pub DeviceLink { low, high }
}

/// A node's NUMA zones and the direct links between its devices.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
pub struct Topology {
    /// 1..=8. Their sums are the node's capacity, each device is in one of them.
    #[wire(1)]
    pub zones: Vec<Zone>,
    /// Zone to zone, row by row; 10 is local, as the firmware's table has it.
    #[wire(2)]
    pub distances: Vec<u8>,
    /// Pairs of devices with a direct link, lower index first.
    #[wire(3, with = wire::Pairs<DeviceLink>)]
    pub links: Vec<(u8, u8)>,
}

impl Topology {
    pub const ZONES_MAX: usize = 8;
    pub const LINKS_MAX: usize = 120;
}

#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
pub struct Zone {
    #[wire(1)]
    pub cpu_milli: u64,
    #[wire(2)]
    pub memory_bytes: u64,
    /// Bit n: device n.
    #[wire(3)]
    pub gpus: u16,
}
