//! What the books say, for tests, measures and simulations.

use super::{Quota, claim::Place, cohort::Pool, resource::ResourceId};
use vocab::{Account, AllocationNo, Limits, QuotaResource, Token};

/// One account's share of one resource type, in the resource's unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Holding {
    /// Those in force.
    pub limits: Option<Limits>,
    /// Granted, not started.
    pub reserved: u64,
    /// Started. GPUs that may be of any model are counted on every model.
    pub used: u64,
}

/// What the tenants of a cohort lend each other of one resource type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolView {
    pub lendable: u128,
    pub taken: u128,
}

impl Quota {
    pub fn holding(&self, account: &Account, resource: &QuotaResource) -> Holding {
        let (tree, names) = (&self.books.tree, &self.books.names);
        // On a model that nobody names count those who name none.
        let any = matches!(resource, QuotaResource::GpuModel(_)).then_some(ResourceId::ANY_MODEL);
        let found = tree.find(account).zip(names.find(resource).or(any));
        found.map_or(Holding::default(), |(account, id)| {
            let node = tree.node(account);
            let taken = node.taken(id);
            Holding {
                limits: node.limited(id).map(|limited| limited.limits),
                reserved: taken.reserved,
                used: taken.used,
            }
        })
    }

    pub fn pool(&self, cohort: &Token, resource: &QuotaResource) -> PoolView {
        let found = self.books.cohorts.find(cohort);
        let pool = found
            .zip(self.books.names.find(resource))
            .map_or(Pool::default(), |(id, resource)| {
                self.books.cohorts.get(id).pool(resource)
            });
        PoolView {
            lendable: pool.lendable,
            taken: pool.taken,
        }
    }

    /// Accounts that are remembered.
    pub fn accounts(&self) -> usize {
        self.books.tree.len()
    }

    /// Names of resource types that are remembered.
    pub fn names(&self) -> usize {
        self.books.names.len()
    }

    /// Allocations that hold quota or want it.
    pub fn live(&self) -> usize {
        self.claims.len()
    }

    /// Allocations, or whole gangs, in a queue or aside.
    pub fn waiting(&self) -> usize {
        self.books.queues.len() + self.books.asides.len()
    }

    pub fn holds(&self, allocation: AllocationNo) -> bool {
        let claim = self.claims.get(&allocation);
        claim.is_some_and(|claim| claim.hold().is_some())
    }

    /// Whether it has been told to wait, for whatever.
    pub fn waits(&self, allocation: AllocationNo) -> bool {
        let claim = self.claims.get(&allocation);
        claim.is_some_and(|claim| claim.place() != Place::Nowhere)
    }
}
