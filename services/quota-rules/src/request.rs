//! What comes in: requests, where they run, and how tenants are to be treated.

use super::{
    Quota,
    claim::{Claim, Stage},
    node::Settings,
    rates::ScopeNo,
    resource::ResourceId,
};
use ledger::IllegalEvent;
use std::fmt;
use vocab::{
    Account, AllocationNo, AllocationSpec, At, Millis, NodeCapacity, RateScope, TenantSettings,
    Token,
};

impl Quota {
    /// It counts at its account and those above it, from the moment it is granted.
    pub(super) fn request(
        &mut self,
        allocation: AllocationNo,
        tenant: &Token,
        spec: &AllocationSpec,
        event: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        if self.claims.contains_key(&allocation) {
            return Err(IllegalEvent::new("asked before", event));
        }
        let scope = self.rates.enter(RateScope {
            priority_class: spec.priority_class.clone(),
            ..RateScope::default()
        });
        let mut claim = self.claim(tenant, spec, scope);
        let gang = spec.gang.as_ref();
        claim.gang = gang.map(|gang| self.gangs.join(claim.path.tenant(), gang, allocation));
        self.claims.insert(allocation, claim);
        self.asked.insert(allocation);
        self.depend(allocation, &spec.depends_on);
        Ok(())
    }

    /// What the request asks for, by itself. Its account and its names are in use by it from now on.
    pub(super) fn claim(&mut self, tenant: &Token, spec: &AllocationSpec, scope: ScopeNo) -> Claim {
        let mut account = spec.account(tenant);
        if account.team.is_none() {
            // A namespace is a team's.
            account.namespace = None;
        }
        let leaf = self.books.usage_tree.enter(account);
        self.books.usage_tree.node_mut(leaf).claims += 1;
        let path = self.books.usage_tree.path(leaf);
        let (parts, choice) = self.books.names.parts(spec);
        Claim {
            path,
            parts,
            choice,
            priority: spec.priority,
            gang: None,
            again: false,
            model: None,
            scope,
            stage: Stage::Asked,
        }
    }

    /// The model of the node's GPUs says what they count on; with the node's pool and cluster, what they cost.
    pub(super) fn place(
        &mut self,
        at: &At,
        allocation: AllocationNo,
        node: &Token,
        event: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        self.hold(allocation, event)?;
        let model = self.fleet.model(node).cloned();
        self.count_on_model(allocation, model.as_ref(), at.now);
        if let Some(claim) = self.claims.get_mut(&allocation) {
            if let Some(gang) = claim.gang {
                self.gangs.placed(gang);
            }
            if claim.amount(ResourceId::GPU) > 0 {
                claim.model = model;
            }
            claim.scope = self.rates.enter(RateScope {
                priority_class: self.rates.scope(claim.scope).priority_class,
                ..self.fleet.place(node)
            });
        }
        Ok(())
    }

    /// Whether the scheduler waits for members of its gang beside it.
    pub(super) fn waits_for_fellows(&mut self, allocation: AllocationNo, waits: bool) {
        let claim = self.claims.get(&allocation);
        if let Some(gang) = claim
            .filter(|it| it.hold().is_some())
            .and_then(|it| it.gang)
        {
            self.gangs.lacks(gang, waits);
        }
    }

    pub(super) fn register(&mut self, node: &Token, capacity: &NodeCapacity) {
        if self.fleet.register(node, capacity) {
            // Another choice is possible for some, and not for others.
            self.books.mark_all();
        }
    }

    pub(super) fn treat(&mut self, tenant: &Token, settings: &TenantSettings, now: Millis) {
        let id = self.books.usage_tree.enter(Account::tenant(tenant.clone()));
        let wanted = Settings::of(settings);
        self.books.usage_tree.node_mut(id).settings =
            Some(wanted).filter(|s| *s != Settings::usual());
        self.books.join(id, settings.cohort.as_ref(), now);
        self.books.usage_tree.prune(id);
    }
}
