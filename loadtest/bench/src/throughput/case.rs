//! The cases by name: how many tenants and nodes, and what goes in one message.

use clap::ValueEnum;
use replay::command::Size;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Case {
    /// Many requests in one message.
    Batched,
    /// One call for each request; the library gathers them.
    Single,
    /// Batched, by twenty tenants with a queue each.
    Tenants,
    /// Batched, behind many requests that nothing has room for.
    Deep,
    /// Batched, on a cluster in which each task waits for another one's end.
    Full,
    /// Batched, with ten thousand nodes.
    Nodes,
    /// No rate: memory with many live allocations, and how long the scheduler then takes to come back.
    Live,
}

/// What one node has.
#[derive(Debug, Clone, Copy)]
pub struct NodeSize {
    pub cores: u64,
    pub memory_bytes: u64,
}

const TIB: u64 = 1 << 40;

impl Case {
    pub fn name(self) -> &'static str {
        match self {
            Self::Batched => "batched",
            Self::Single => "single",
            Self::Tenants => "tenants",
            Self::Deep => "deep",
            Self::Full => "full",
            Self::Nodes => "nodes",
            Self::Live => "live",
        }
    }

    pub fn tenants(self) -> usize {
        match self {
            Self::Tenants => 20,
            _ => 1,
        }
    }

    pub fn nodes(self, size: Size) -> usize {
        match self {
            // As many in each case, which then can follow another on one stack.
            _ if size.smoke => 4,
            Self::Nodes => 10_000,
            Self::Full => 4,
            _ => 100,
        }
    }

    /// Room for all that is under way at any rate, unless the case is that there is none.
    pub fn node(self, size: Size) -> NodeSize {
        match self {
            Self::Nodes => NodeSize {
                cores: 10_000,
                memory_bytes: 32 * TIB,
            },
            Self::Full => NodeSize {
                cores: size.pick(1_000, 10),
                memory_bytes: 32 * TIB,
            },
            _ => NodeSize {
                cores: 1_000_000,
                memory_bytes: 1024 * TIB,
            },
        }
    }

    /// Tasks under way in the closed loop that makes the first guess: on a full cluster twice what it has room for.
    pub fn probe_tasks(self, size: Size) -> u64 {
        match self {
            Self::Full => 2 * self.nodes(size) as u64 * self.node(size).cores,
            _ => size.pick(30_000, 100),
        }
    }

    /// Parts of the highest rate that are measured beside it.
    pub fn sweep(self, size: Size) -> &'static [f64] {
        match self {
            Self::Batched if size.smoke => &[0.5],
            _ if size.smoke => &[],
            Self::Batched | Self::Single => &[0.25, 0.5, 0.75],
            _ => &[0.5],
        }
    }

    /// The cases that others are compared with are measured at length.
    pub fn at_length(self) -> bool {
        matches!(self, Self::Batched | Self::Single)
    }

    /// Of a run, by itself; none: until it is stopped.
    pub fn lifetime_ms(self) -> Option<i64> {
        match self {
            Self::Live => None,
            Self::Full => Some(100),
            // A run of no length at all is nothing to the bill.
            _ => Some(1),
        }
    }

    pub fn batched(self) -> bool {
        self != Self::Single
    }
}
