//! What a budget counts: money, or the use of one kind of resource.

use super::resource::ResourceId;
use serde::{Deserialize, Serialize};
use vocab::{BudgetOf, ResourceKind};

/// What a budget counts, as a small number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Purse {
    Money,
    Cpu,
    Memory,
    Gpu,
}

impl Purse {
    pub fn of(of: &BudgetOf) -> Self {
        match of {
            BudgetOf::Money => Self::Money,
            BudgetOf::Use(ResourceKind::Cpu) => Self::Cpu,
            BudgetOf::Use(ResourceKind::Memory) => Self::Memory,
            BudgetOf::Use(ResourceKind::Gpu) => Self::Gpu,
        }
    }

    pub fn budget_of(self) -> BudgetOf {
        match self.kind() {
            None => BudgetOf::Money,
            Some(kind) => BudgetOf::Use(kind),
        }
    }

    pub fn kind(self) -> Option<ResourceKind> {
        match self {
            Self::Money => None,
            Self::Cpu => Some(ResourceKind::Cpu),
            Self::Memory => Some(ResourceKind::Memory),
            Self::Gpu => Some(ResourceKind::Gpu),
        }
    }

    /// Whether a claim uses any of it.
    pub fn concerns(self, asks: impl Fn(ResourceId) -> bool) -> bool {
        match self.kind() {
            None => ResourceKind::ALL
                .into_iter()
                .any(|kind| asks(ResourceId::of(kind))),
            Some(kind) => asks(ResourceId::of(kind)),
        }
    }
}
