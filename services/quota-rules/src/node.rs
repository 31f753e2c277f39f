//! One account: what it holds, and how it is treated.

use super::{
    account::AccountId, claim::Seniority, cohort::CohortId, limits::Limited, meter::Meter,
    resource::ResourceId, taken::Taken,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use vocab::{Account, OnExceed, ReclaimFrom, TenantSettings};

/// One account's share of one resource type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cell {
    pub resource: ResourceId,
    /// Granted, not started.
    pub reserved: u64,
    /// Started.
    pub used: u64,
    /// Of both: has to stop, and will come back.
    pub returning: u64,
    /// Asked for by those who take back what the tenant has lent.
    pub owed: u64,
    pub limited: Option<Box<Limited>>,
    /// A burst or a cohort's sums follow from what is held.
    pub watched: bool,
}

impl Cell {
    fn new(resource: ResourceId) -> Self {
        Self {
            resource,
            reserved: 0,
            used: 0,
            returning: 0,
            owed: 0,
            limited: None,
            watched: false,
        }
    }

    pub fn taken(&self) -> Taken {
        Taken {
            reserved: self.reserved,
            used: self.used,
            returning: self.returning,
            owed: self.owed,
        }
    }

    pub fn is_empty(&self) -> bool {
        let held = self.reserved | self.used | self.returning | self.owed;
        held == 0 && self.limited.is_none()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Node {
    pub account: Account,
    pub parent: Option<AccountId>,
    pub children: BTreeSet<AccountId>,
    /// Sorted by resource.
    pub cells: Vec<Cell>,
    /// Allocations of this very account that hold quota.
    pub held: BTreeSet<Seniority>,
    /// Allocations of this very account.
    pub claims: u32,
    /// Settings and limits that stand or are to come.
    pub pins: u32,
    /// Allocations that wait for something of this account.
    pub parked: u32,
    pub meters: Vec<Meter>,
    /// Tenants only.
    pub cohort: Option<CohortId>,
    /// Tenants only; none: nothing was set that is not usual.
    pub settings: Option<Settings>,
}

/// What of a tenant's settings quota goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Settings {
    pub preemptible: bool,
    pub on_exceed: OnExceed,
    pub reclaim: ReclaimFrom,
}

impl Settings {
    pub fn of(settings: &TenantSettings) -> Self {
        Self {
            preemptible: settings.preemptible,
            on_exceed: settings.on_exceed,
            reclaim: settings.reclaim,
        }
    }

    pub fn usual() -> Self {
        Self::of(&TenantSettings::default())
    }
}

impl Node {
    pub fn settings(&self) -> Settings {
        self.settings.unwrap_or_else(Settings::usual)
    }

    pub fn is_tenant(&self) -> bool {
        self.parent.is_none()
    }

    pub fn cell(&self, resource: ResourceId) -> Option<&Cell> {
        let found = self.cells.binary_search_by_key(&resource, |c| c.resource);
        found.ok().map(|at| &self.cells[at])
    }

    pub fn cell_mut(&mut self, resource: ResourceId) -> &mut Cell {
        let found = self.cells.binary_search_by_key(&resource, |c| c.resource);
        let at = found.unwrap_or_else(|at| {
            self.cells.insert(at, Cell::new(resource));
            at
        });
        &mut self.cells[at]
    }

    pub fn drop_empty(&mut self, resource: ResourceId) {
        let found = self.cells.binary_search_by_key(&resource, |c| c.resource);
        if let Ok(at) = found
            && self.cells[at].is_empty()
        {
            self.cells.remove(at);
        }
    }

    /// What counts on a model is what names it and what may run on any.
    pub fn taken(&self, resource: ResourceId) -> Taken {
        let of = |resource| self.cell(resource).map_or_else(Taken::default, Cell::taken);
        if resource.is_model() {
            of(resource).plus(of(ResourceId::ANY_MODEL))
        } else {
            of(resource)
        }
    }

    /// Whether anything follows from a change of the part.
    pub fn watches(&self, part: ResourceId) -> bool {
        if part == ResourceId::ANY_MODEL {
            self.cells
                .iter()
                .any(|c| c.resource.is_model() && c.watched)
        } else {
            self.cell(part).is_some_and(|c| c.watched)
        }
    }

    pub fn limited(&self, resource: ResourceId) -> Option<&Limited> {
        self.cell(resource)?.limited.as_deref()
    }

    /// The models that have limits here.
    pub fn limited_models(&self) -> impl Iterator<Item = ResourceId> {
        let limited = self.cells.iter().filter(|c| c.limited.is_some());
        limited.map(|c| c.resource).filter(|it| it.is_model())
    }

    /// Whether there is nothing to remember of it.
    pub fn is_idle(&self) -> bool {
        self.claims == 0
            && self.pins == 0
            && self.children.is_empty()
            && self.cells.is_empty()
            && self.meters.is_empty()
            && self.cohort.is_none()
            && self.settings.is_none()
    }
}
