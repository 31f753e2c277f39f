//! What operators have set: versions of everything, and the values that requests are checked against.

use ledger::IllegalEvent;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};
use vocab::fact::{
    Applied, BudgetSet, CordonSet, NodeSet, PeriodClosed, PriorityClassSet, QueueSet, QuotaSet,
    RateSet, ReservationSet, SchedulingSet, TaintsSet, TenantSet,
};
use vocab::{
    Account, AdminChange, BudgetOf, QuotaResource, RateKey, Refusal, ResourceKey, Rule, Team,
    TenantSettings, Token,
    sabotage::{self, Bug},
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

/// What an operator has closed: it accepts nothing new.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Closed(BTreeSet<Closable>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Closable {
    Tenant(Token),
    Queue(Token),
    PriorityClass(Token),
}

impl Closable {
    /// The field by which a request names it.
    fn field(&self) -> &'static str {
        match self {
            Self::Tenant(_) => "tenant",
            Self::Queue(_) => "queue",
            Self::PriorityClass(_) => "priority_class",
        }
    }
}

impl Closed {
    pub fn set(&mut self, one: Closable, closed: bool) {
        match closed {
            true => self.0.insert(one),
            false => self.0.remove(&one),
        };
    }

    pub fn check(&self, one: Closable) -> Result<(), Refusal> {
        match self.0.contains(&one) {
            true => Err(Refusal::new(Rule::Closed, one.field())),
            false => Ok(()),
        }
    }
}

/// The teams and namespaces that a tenant has, sorted; a tenant that is not there may use any.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Teams(BTreeMap<Token, Vec<Team>>);

impl Teams {
    pub fn set(&mut self, set: &TenantSet) {
        match set.teams.is_empty() {
            true => self.0.remove(&set.tenant),
            false => self.0.insert(set.tenant.clone(), set.teams.clone()),
        };
    }

    pub fn check(
        &self,
        tenant: &Token,
        team: Option<&Token>,
        namespace: Option<&Token>,
    ) -> Result<(), Refusal> {
        let (Some(listed), Some(team)) = (self.0.get(tenant), team) else {
            return Ok(());
        };
        if sabotage::armed(Bug::TeamsIgnored) {
            return Ok(());
        }
        let known = |namespace| listed.iter().any(|it| it.covers(team, namespace));
        match (known(None), known(namespace)) {
            (false, _) => Err(Refusal::new(Rule::TeamUnknown, "team")),
            (true, false) => Err(Refusal::new(Rule::TeamUnknown, "namespace")),
            (true, true) => Ok(()),
        }
    }
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

/// The names of the settings, in the order in which they are listed.
pub const SETTINGS: [&str; 12] = [
    "budget",
    "cordon",
    "node",
    "period",
    "priority_class",
    "quota",
    "queue",
    "rate",
    "reservation",
    "scheduling",
    "taints",
    "tenant",
];

/// What a change is of: the setting's name, and which one of them, as `team-a/ml gpu`. Limits for a time are beside those for
/// good.
pub fn named(change: &AdminChange) -> (&'static str, String) {
    match change {
        AdminChange::Tenant(set) => ("tenant", set.tenant.to_string()),
        AdminChange::Quota(set) => {
            let mut key = format!("{} {}", set.account, set.resource);
            let times = [("from", set.validity.from), ("until", set.validity.until)];
            for (word, at) in times {
                if let Some(at) = at {
                    key.push_str(&format!(" {word} {}", at.0));
                }
            }
            ("quota", key)
        }
        AdminChange::Budget(set) => ("budget", format!("{} {}", set.account, set.of.name())),
        AdminChange::Rate(set) => ("rate", rate_name(&set.key())),
        AdminChange::Queue(set) => ("queue", set.queue.to_string()),
        AdminChange::PriorityClass(set) => ("priority_class", set.class.to_string()),
        // There is one of each.
        AdminChange::Scheduling(_) => ("scheduling", "cell".to_owned()),
        AdminChange::Period(_) => ("period", "cell".to_owned()),
        AdminChange::Cordon(set) => ("cordon", set.node.to_string()),
        AdminChange::Taints(set) => ("taints", set.node.to_string()),
        AdminChange::Reservation(set) => ("reservation", set.reservation.to_string()),
        AdminChange::Node(set) => ("node", set.node.to_string()),
    }
}

/// As `gpu:A100 tenant=team-a`.
pub(super) fn rate_name(key: &RateKey) -> String {
    let RateKey { resource, scope } = key;
    let names = [
        ("tenant", &scope.tenant),
        ("priority_class", &scope.priority_class),
        ("pool", &scope.pool),
        ("cluster", &scope.cluster),
    ];
    let mut text = resource.to_string();
    for (word, name) in names {
        if let Some(name) = name {
            text.push_str(&format!(" {word}={name}"));
        }
    }
    text
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

    /// Takes over the version of a setting; of several limits of one account and resource, the newest.
    pub fn stands(&mut self, change: &AdminChange, version: u64) {
        let known = self.versions.entry(change.setting()).or_default();
        *known = version.max(*known);
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
