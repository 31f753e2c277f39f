//! What the books say, for rows, tests, measures and simulations.

use super::{
    Quota,
    account::AccountId,
    claim::{Claim, Place},
    cohort::Pool,
    marks::Marks,
    resource::ResourceId,
};
use vocab::{Account, AllocationNo, BudgetOf, EventNo, Limits, QuotaResource, Token};

/// One account's share of one resource type, in the resource's unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Holding {
    /// Those in force.
    pub limits: Option<Limits>,
    /// Granted, not started.
    pub reserved: u64,
    /// Started. GPUs that may be of any model are counted on every model.
    pub used: u64,
    /// Of both, without what may be of any model.
    pub own: u64,
    /// A tenant that may borrow of its cohort.
    pub may_borrow: bool,
}

impl Holding {
    pub fn held(&self) -> u64 {
        self.reserved.saturating_add(self.used)
    }

    /// What a tenant of a cohort holds beyond its hard limit, as far as it may borrow.
    pub fn borrowed(&self) -> u64 {
        self.limits.filter(|_| self.may_borrow).map_or(0, |limits| {
            let excess = self.held().saturating_sub(limits.hard);
            excess.min(limits.borrow.unwrap_or(u64::MAX))
        })
    }
}

/// What the tenants of a cohort lend each other of one resource type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolView {
    pub lendable: u128,
    pub taken: u128,
}

impl Quota {
    pub fn holding(&self, account: &Account, resource: &QuotaResource) -> Holding {
        let (usage_tree, names) = (&self.books.usage_tree, &self.books.names);
        let named = names.find(resource);
        // On a model that nobody names count those who name none.
        let any = matches!(resource, QuotaResource::GpuModel(_)).then_some(ResourceId::ANY_MODEL);
        let found = usage_tree.find(account).zip(named.or(any));
        found.map_or(Holding::default(), |(account, id)| {
            let node = usage_tree.node(account);
            let taken = node.taken(id);
            let own = named.and_then(|named| node.cell(named));
            Holding {
                limits: node.limited(id).map(|limited| limited.limits),
                reserved: taken.reserved,
                used: taken.used,
                own: own.map_or(0, |cell| cell.taken().held()),
                may_borrow: node.cohort.is_some() && node.settings().preemptible,
            }
        })
    }

    /// All that an allocation counts on, at each account of its path. What may be of any model counts on each that
    /// somebody limits there, or holds.
    pub fn each_counted(
        &self,
        allocation: AllocationNo,
        mut each: impl FnMut(Account, QuotaResource),
    ) {
        let Some(claim) = self.claims.get(&allocation) else {
            return;
        };
        let (usage_tree, names) = (&self.books.usage_tree, &self.books.names);
        for node in claim.path.ids().iter().map(|id| usage_tree.node(*id)) {
            for (part, _) in claim.counted() {
                if part == ResourceId::ANY_MODEL {
                    let models = node.cells.iter().map(|cell| cell.resource);
                    for model in models.filter(|it| it.is_model()) {
                        each(node.account.clone(), names.resource(model));
                    }
                } else {
                    each(node.account.clone(), names.resource(part));
                }
            }
        }
    }

    /// The resource types that are limited at an account.
    pub fn limited(&self, account: &Account) -> impl Iterator<Item = QuotaResource> {
        let found = self.books.usage_tree.find(account);
        let node = found.map(|account| self.books.usage_tree.node(account));
        let cells = node.into_iter().flat_map(|node| &node.cells);
        let limited = cells.filter(|cell| cell.limited.is_some());
        limited.map(|cell| self.books.names.resource(cell.resource))
    }

    /// The changes of limits that are to come, and the overrides that are not over, by the numbers of what set them.
    pub fn planned(&self, account: &Account, resource: &QuotaResource) -> Vec<EventNo> {
        let key = self.books.usage_tree.find(account);
        let key = key.zip(self.books.names.find(resource));
        let schedule = key.and_then(|key| self.schedules.get(&key));
        schedule.map_or(Vec::new(), |schedule| schedule.planned().collect())
    }

    /// Whether it counts on one of several models when it is on a node.
    pub fn chooses(&self, allocation: AllocationNo) -> bool {
        let claim = self.claims.get(&allocation);
        claim.is_some_and(|claim| claim.choice.is_some())
    }

    /// Whether it uses up what budgets are for.
    pub fn runs(&self, allocation: AllocationNo) -> bool {
        let claim = self.claims.get(&allocation);
        let hold = claim.and_then(|claim| claim.hold());
        hold.is_some_and(|hold| hold.running().is_some())
    }

    /// The budgets of its accounts.
    pub fn budgets(&self, allocation: AllocationNo) -> impl Iterator<Item = (&Account, BudgetOf)> {
        let claim = self.claims.get(&allocation);
        let path = claim.map_or(&[][..], |claim: &Claim| claim.path.ids());
        let node = |id: &AccountId| self.books.usage_tree.node(*id);
        path.iter().map(node).flat_map(|node| {
            let meters = node.meters.iter();
            meters.map(|meter| (&node.account, meter.purse.budget_of()))
        })
    }

    /// Whose it is, and its priority, if it does not hold quota and may be granted it.
    pub fn asks(&self, allocation: AllocationNo) -> Option<(&Account, i32)> {
        let claim = self.claims.get(&allocation)?;
        let account = &self.books.usage_tree.node(claim.path.leaf()).account;
        claim.hold().is_none().then_some((account, claim.priority))
    }

    /// Forgets what it had noted for its next decision, as a snapshot does: for who makes none.
    pub fn rest(&mut self) {
        self.books.marks = Marks::default();
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
        self.books.usage_tree.len()
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
