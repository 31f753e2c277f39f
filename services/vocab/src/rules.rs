//! Where an allocation may run, and how a node is built inside.

use crate::Token;
use serde::{Deserialize, Serialize};

/// All of them must hold. The words are those of Kubernetes, the meaning too unless said.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PlacementRules {
    /// Node selector and required node affinity.
    pub selector: Vec<Requirement>,
    pub tolerations: Vec<Toleration>,
    /// The group it belongs to, of which other allocations of the tenant can speak.
    pub group: Option<Token>,
    /// Only in a domain where such a group runs (or would run: the first of its own group may go anywhere).
    pub near: Vec<GroupTerm>,
    /// Only in a domain where no such group runs.
    pub apart: Vec<GroupTerm>,
    /// Its own group, spread over the domains of a label.
    pub spread: Vec<Spread>,
    pub numa: NumaPolicy,
}

impl PlacementRules {
    pub const REQUIREMENTS_MAX: usize = 16;
    pub const VALUES_MAX: usize = 32;
    pub const TOLERATIONS_MAX: usize = 16;
    pub const TERMS_MAX: usize = 8;
}

/// What a node's label must be like.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Requirement {
    pub label: Token,
    pub operator: Operator,
    /// Empty with `Exists` and `Missing`.
    pub values: Vec<Token>,
}

/// Stable numbers, the same as the contract's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Operator {
    In = 1,
    /// Holds for a node without the label, too.
    NotIn = 2,
    Exists = 3,
    Missing = 4,
}

impl Operator {
    pub const ALL: [Self; 4] = [Self::In, Self::NotIn, Self::Exists, Self::Missing];
}

/// Keeps off whoever does not tolerate it; what runs already stays.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Taint {
    pub key: Token,
    pub value: Option<Token>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Toleration {
    /// None: every taint.
    pub key: Option<Token>,
    /// None: every value.
    pub value: Option<Token>,
}

impl Toleration {
    pub fn tolerates(&self, taint: &Taint) -> bool {
        self.key.as_ref().is_none_or(|key| *key == taint.key)
            && (self.value.is_none() || self.value == taint.value)
    }
}

/// A group of the same tenant within one domain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupTerm {
    pub group: Token,
    /// The label whose values are the domains; none: each node is one.
    pub domain: Option<Token>,
}

/// No domain may have more than `skew_max` members above the domain with the fewest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Spread {
    /// As in `GroupTerm`.
    pub domain: Option<Token>,
    /// At least 1.
    pub skew_max: u32,
}

/// Stable numbers, the same as the contract's.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
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

impl NumaPolicy {
    pub const ALL: [Self; 3] = [Self::None, Self::BestEffort, Self::Single];
}

/// A node's NUMA zones and the direct links between its devices.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Topology {
    /// 1..=8. Their sums are the node's capacity, each device is in one of them.
    pub zones: Vec<Zone>,
    /// Zone to zone, row by row; 10 is local, as the firmware's table has it.
    pub distances: Vec<u8>,
    /// Pairs of devices with a direct link, lower index first.
    pub links: Vec<(u8, u8)>,
}

impl Topology {
    pub const ZONES_MAX: usize = 8;
    pub const LINKS_MAX: usize = 120;
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Zone {
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    /// Bit n: device n.
    pub gpus: u16,
}
