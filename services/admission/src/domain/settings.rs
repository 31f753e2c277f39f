//! What operators have set: versions of everything, and the values that requests are checked against.

use ledger::IllegalEvent;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vocab::{
    Account, AdminChange, BudgetOf, Event, QuotaResource, ResourceKey, TenantSettings, Token,
};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Settings {
    pub tenants: BTreeMap<Token, TenantSettings>,
    pub queues: BTreeMap<Token, Queue>,
    /// The values of the priority classes.
    pub classes: BTreeMap<Token, i32>,
    versions: Versions,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Queue {
    pub parent: Option<Token>,
    /// Who may submit to it beside the tenant of its name; sorted.
    pub tenants: Vec<Token>,
}

/// How often each was set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Versions {
    tenants: BTreeMap<Token, u64>,
    quotas: BTreeMap<(Account, QuotaResource), u64>,
    budgets: BTreeMap<(Account, BudgetOf), u64>,
    rates: BTreeMap<ResourceKey, u64>,
    queues: BTreeMap<Token, u64>,
    classes: BTreeMap<Token, u64>,
    scheduling: u64,
    cordons: BTreeMap<Token, u64>,
    reservations: BTreeMap<Token, u64>,
    nodes: BTreeMap<Token, u64>,
}

impl Settings {
    pub fn knows_tenant(&self, tenant: &Token) -> bool {
        self.tenants.contains_key(tenant)
    }

    /// The version that is in force; 0 for what was never set.
    pub fn version(&self, change: &AdminChange) -> u64 {
        let versions = &self.versions;
        let version = match change {
            AdminChange::Tenant { tenant, .. } => versions.tenants.get(tenant),
            AdminChange::Quota {
                account, resource, ..
            } => versions.quotas.get(&(account.clone(), resource.clone())),
            AdminChange::Budget { account, of, .. } => {
                versions.budgets.get(&(account.clone(), of.clone()))
            }
            AdminChange::Rate { resource, .. } => versions.rates.get(resource),
            AdminChange::Queue { queue, .. } => versions.queues.get(queue),
            AdminChange::PriorityClass { class, .. } => versions.classes.get(class),
            AdminChange::Scheduling(_) => Some(&versions.scheduling),
            AdminChange::Cordon { node, .. } => versions.cordons.get(node),
            AdminChange::Reservation { reservation, .. } => versions.reservations.get(reservation),
            AdminChange::Node { node, .. } => versions.nodes.get(node),
        };
        version.copied().unwrap_or(0)
    }

    pub fn rate_was_set(&self, resource: &ResourceKey) -> bool {
        self.versions.rates.contains_key(resource)
    }

    pub fn apply(
        &mut self,
        change: &AdminChange,
        version: u64,
        event: &Event,
    ) -> Result<(), IllegalEvent> {
        if version != self.version(change) + 1 {
            return Err(IllegalEvent::new("another version", event));
        }
        let versions = &mut self.versions;
        match change {
            AdminChange::Tenant { tenant, settings } => {
                versions.tenants.insert(tenant.clone(), version);
                self.tenants.insert(tenant.clone(), settings.clone());
            }
            AdminChange::Quota {
                account, resource, ..
            } => {
                let key = (account.clone(), resource.clone());
                versions.quotas.insert(key, version);
            }
            AdminChange::Budget { account, of, .. } => {
                let key = (account.clone(), of.clone());
                versions.budgets.insert(key, version);
            }
            AdminChange::Rate { resource, .. } => {
                versions.rates.insert(resource.clone(), version);
            }
            AdminChange::Queue { queue, settings } => {
                versions.queues.insert(queue.clone(), version);
                let known = Queue {
                    parent: settings.parent.clone(),
                    tenants: settings.tenants.clone(),
                };
                self.queues.insert(queue.clone(), known);
            }
            AdminChange::PriorityClass { class, settings } => {
                versions.classes.insert(class.clone(), version);
                self.classes.insert(class.clone(), settings.value);
            }
            AdminChange::Scheduling(_) => versions.scheduling = version,
            AdminChange::Cordon { node, .. } => {
                versions.cordons.insert(node.clone(), version);
            }
            AdminChange::Reservation { reservation, .. } => {
                versions.reservations.insert(reservation.clone(), version);
            }
            AdminChange::Node { node, .. } => {
                versions.nodes.insert(node.clone(), version);
            }
        }
        Ok(())
    }
}
