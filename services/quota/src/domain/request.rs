//! What comes in: requests, where they run, and how tenants are to be treated.

use super::{
    Quota,
    claim::{Claim, Stage},
    gang::Gang,
    node::Settings,
    resource::ResourceId,
};
use ledger::IllegalEvent;
use std::collections::{BTreeSet, btree_map};
use vocab::{
    Account, AllocationNo, AllocationSpec, Event, Millis, NodeCapacity, TenantSettings, Token,
};

impl Quota {
    /// It counts at its account and those above it, from the moment it is granted.
    pub(super) fn request(
        &mut self,
        allocation: AllocationNo,
        tenant: &Token,
        spec: &AllocationSpec,
        event: &Event,
    ) -> Result<(), IllegalEvent> {
        let btree_map::Entry::Vacant(slot) = self.claims.entry(allocation) else {
            return Err(IllegalEvent::new("asked before", event));
        };
        let mut account = spec.account(tenant);
        if account.team.is_none() {
            // A namespace is a team's.
            account.namespace = None;
        }
        let leaf = self.books.tree.enter(account);
        self.books.tree.node_mut(leaf).claims += 1;
        let path = self.books.tree.path(leaf);
        slot.insert(Claim {
            path,
            parts: self.books.names.parts(spec),
            priority: spec.priority,
            gang: spec.gang.as_ref().map(|gang| gang.name.clone()),
            again: false,
            model: None,
            stage: Stage::Asked,
        });
        self.asked.insert(allocation);
        if let Some(gang) = &spec.gang {
            let key = (path.tenant(), gang.name.clone());
            let record = self.gangs.entry(key).or_insert_with(|| Gang {
                size: gang.size.max(1),
                live: 0,
                granted: false,
                open: BTreeSet::new(),
                queued: false,
            });
            record.live += 1;
        }
        Ok(())
    }

    /// The model of the node's GPUs says what they cost.
    pub(super) fn place(
        &mut self,
        allocation: AllocationNo,
        node: &Token,
        event: &Event,
    ) -> Result<(), IllegalEvent> {
        self.hold(allocation, event)?;
        if let Some(claim) = self.claims.get_mut(&allocation)
            && claim.amount(ResourceId::GPU) > 0
        {
            claim.model = self.models.get(node).cloned();
        }
        Ok(())
    }

    pub(super) fn register(&mut self, node: &Token, capacity: &NodeCapacity) {
        match &capacity.gpu_model {
            Some(model) => drop(self.models.insert(node.clone(), model.clone())),
            None => drop(self.models.remove(node)),
        }
    }

    pub(super) fn treat(&mut self, tenant: &Token, settings: &TenantSettings, now: Millis) {
        let id = self.books.tree.enter(Account::tenant(tenant.clone()));
        let wanted = Settings::of(settings);
        self.books.tree.node_mut(id).settings = Some(wanted).filter(|s| *s != Settings::usual());
        self.books.join(id, settings.cohort.as_ref(), now);
        self.books.tree.prune(id);
    }
}
