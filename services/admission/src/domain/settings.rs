//! What operators have set: versions of everything, and the values that requests are checked against.

use ledger::IllegalEvent;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};
use vocab::fact::{
    Applied, BudgetSet, CordonSet, NodeSet, PeriodClosed, PriorityClassSet, QueueSet, QuotaSet,
    RateSet, ReservationSet, SchedulingSet, TaintsSet, TenantSet,
};
use vocab::{
    Account, AdminChange, BudgetOf, QuotaResource, RateKey, ResourceKey, TenantSettings, Token,
};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Settings {
    pub tenants: BTreeMap<Token, TenantSettings>,
    pub queues: BTreeMap<Token, Queue>,
    /// The values of the priority classes.
    pub classes: BTreeMap<Token, i32>,
    /// How often each was set.
    versions: BTreeMap<Setting, u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Queue {
    pub parent: Option<Token>,
    /// Who may submit to it beside the tenant of its name; sorted.
    pub tenants: Vec<Token>,
}

/// What counts versions of its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Setting {
    Tenant(Token),
    Quota(Account, QuotaResource),
    Budget(Account, BudgetOf),
    Rate(ResourceKey),
    Queue(Token),
    PriorityClass(Token),
    Scheduling,
    Cordon(Token),
    Reservation(Token),
    Node(Token),
    Period,
    // What comes later stands last: it is serialised by its place.
    ScopedRate(RateKey),
    Taints(Token),
}

impl Setting {
    /// A rate without a scope was of a resource alone before there were scopes.
    fn rate(key: RateKey) -> Self {
        match key.scope.is_all() {
            true => Self::Rate(key.resource),
            false => Self::ScopedRate(key),
        }
    }
}

/// A change of a setting.
pub(super) trait Sets {
    fn setting(&self) -> Setting;
}

macro_rules! sets {
    ($($change:ident => $set:ident: |$it:ident| $setting:expr,)*) => {
        $(
            impl Sets for $set {
                fn setting(&self) -> Setting {
                    let $it = self;
                    $setting
                }
            }
        )*

        impl Sets for AdminChange {
            fn setting(&self) -> Setting {
                match self { $(Self::$change(change) => change.setting(),)* }
            }
        }
    };
}

sets! {
    Tenant => TenantSet: |it| Setting::Tenant(it.tenant.clone()),
    Quota => QuotaSet: |it| Setting::Quota(it.account.clone(), it.resource.clone()),
    Budget => BudgetSet: |it| Setting::Budget(it.account.clone(), it.of.clone()),
    Rate => RateSet: |it| Setting::rate(it.key()),
    Queue => QueueSet: |it| Setting::Queue(it.queue.clone()),
    PriorityClass => PriorityClassSet: |it| Setting::PriorityClass(it.class.clone()),
    Scheduling => SchedulingSet: |_it| Setting::Scheduling,
    Cordon => CordonSet: |it| Setting::Cordon(it.node.clone()),
    Taints => TaintsSet: |it| Setting::Taints(it.node.clone()),
    Reservation => ReservationSet: |it| Setting::Reservation(it.reservation.clone()),
    Node => NodeSet: |it| Setting::Node(it.node.clone()),
    Period => PeriodClosed: |_it| Setting::Period,
}

impl Settings {
    pub fn knows_tenant(&self, tenant: &Token) -> bool {
        self.tenants.contains_key(tenant)
    }

    /// The version that is in force; 0 for what was never set.
    pub fn version(&self, setting: &Setting) -> u64 {
        self.versions.get(setting).copied().unwrap_or(0)
    }

    pub fn rate_was_set(&self, key: &RateKey) -> bool {
        self.versions.contains_key(&Setting::rate(key.clone()))
    }

    /// Counts a version.
    pub fn apply<C: Sets + fmt::Debug>(
        &mut self,
        applied: &Applied<C>,
    ) -> Result<(), IllegalEvent> {
        let setting = applied.change.setting();
        if applied.version != self.version(&setting) + 1 {
            return Err(IllegalEvent::new("another version", applied));
        }
        self.versions.insert(setting, applied.version);
        Ok(())
    }

    pub fn set_tenant(&mut self, set: &TenantSet) {
        self.tenants
            .insert(set.tenant.clone(), set.settings.clone());
    }

    pub fn set_queue(&mut self, set: &QueueSet) {
        let known = Queue {
            parent: set.settings.parent.clone(),
            tenants: set.settings.tenants.clone(),
        };
        self.queues.insert(set.queue.clone(), known);
    }

    pub fn set_class(&mut self, set: &PriorityClassSet) {
        self.classes.insert(set.class.clone(), set.settings.value);
    }
}
