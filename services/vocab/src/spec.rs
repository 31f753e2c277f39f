//! What an allocation asks for, what a node has, and the resource types that quota and bill speak of.

use crate::Token;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What one allocation asks for; all of it on one node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AllocationSpec {
    pub job_set: Token,
    pub name: Option<Token>,
    /// Higher goes first.
    pub priority: i32,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub gpu: Option<GpuRequest>,
}

impl AllocationSpec {
    pub const PRIORITY_MAX: i32 = 1_000_000;
    pub const CPU_MILLI_MAX: u64 = 1_000_000_000;
    pub const MEMORY_BYTES_MAX: u64 = 1 << 50;
    pub const GPUS_MAX: u64 = 16;
    pub const GPU_MODELS_MAX: usize = 16;

    /// The requested amount in the unit of `kind`.
    pub fn amount(&self, kind: ResourceKind) -> u64 {
        match kind {
            ResourceKind::Cpu => self.cpu_milli,
            ResourceKind::Memory => self.memory_bytes,
            ResourceKind::Gpu => self.gpu.as_ref().map_or(0, GpuRequest::total_milli),
        }
    }
}

/// `count` devices of one node, `milli` thousandths of each.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GpuRequest {
    pub count: u16,
    /// 1..=1000; below 1000 only when `count` is 1.
    pub milli: u16,
    /// Allowed models, sorted; empty means any.
    pub models: Vec<Token>,
}

impl GpuRequest {
    pub fn total_milli(&self) -> u64 {
        u64::from(self.count) * u64::from(self.milli)
    }

    pub fn allows(&self, model: Option<&Token>) -> bool {
        self.models.is_empty() || model.is_some_and(|m| self.models.contains(m))
    }
}

/// What a node brings in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCapacity {
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub gpus: u16,
    pub gpu_model: Option<Token>,
}

impl NodeCapacity {
    pub fn amount(&self, kind: ResourceKind) -> u64 {
        match kind {
            ResourceKind::Cpu => self.cpu_milli,
            ResourceKind::Memory => self.memory_bytes,
            ResourceKind::Gpu => u64::from(self.gpus) * 1000,
        }
    }
}

/// A resource type of quotas and bills.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ResourceKind {
    /// In millicores.
    Cpu,
    /// In bytes.
    Memory,
    /// In thousandths of a device.
    Gpu,
}

impl ResourceKind {
    pub const ALL: [Self; 3] = [Self::Cpu, Self::Memory, Self::Gpu];

    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Gpu => "gpu",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == text)
    }

    /// How much of the resource's unit makes one billed unit (a core, a GiB, a GPU).
    pub fn per_billed_unit(self) -> u64 {
        match self {
            Self::Cpu | Self::Gpu => 1000,
            Self::Memory => 1 << 30,
        }
    }
}

/// What a rate is for: a resource type, or one GPU model.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ResourceKey {
    pub kind: ResourceKind,
    /// Only with `ResourceKind::Gpu`.
    pub model: Option<Token>,
}

impl ResourceKey {
    /// `cpu`, `memory`, `gpu` or `gpu:<model>`.
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once(':') {
            None => ResourceKind::parse(text).map(|kind| Self { kind, model: None }),
            Some(("gpu", model)) => Some(Self {
                kind: ResourceKind::Gpu,
                model: Some(Token::new(model).ok()?),
            }),
            Some(_) => None,
        }
    }
}

impl fmt::Display for ResourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.model {
            None => f.write_str(self.kind.name()),
            Some(model) => write!(f, "{}:{model}", self.kind.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_key_reads_what_it_writes() {
        for text in ["cpu", "memory", "gpu", "gpu:V100M32"] {
            assert_eq!(ResourceKey::parse(text).unwrap().to_string(), text);
        }
        for bad in ["", "disk", "cpu:x", "gpu:", "gpu:a.b"] {
            assert_eq!(ResourceKey::parse(bad), None, "{bad}");
        }
    }
}
