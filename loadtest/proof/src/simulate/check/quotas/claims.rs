//! What an allocation asks of quota.

use super::super::{Demand, settings};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Its account, and those above it.
    pub path: Vec<String>,
    /// By resource type.
    parts: BTreeMap<String, u64>,
    /// The models of which any will do; empty: any at all. None: it has no choice.
    pub choice: Option<BTreeSet<String>>,
    counts_on: CountsOn,
    /// After a run it asks again.
    pub by_model: bool,
    pub priority: i32,
    /// Name and size.
    pub wants_gang: Option<(String, u64)>,
    /// The first member of its gang.
    pub gang: Option<u64>,
    /// What had not ended when it asked.
    pub depends_on: Vec<u64>,
    /// It was told last that it waits for those.
    pub told_of_others: bool,
    /// It held quota before.
    pub again: bool,
    pub stage: Stage,
}

/// What it counts on of its choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CountsOn {
    AllThatAreLimited,
    Models(BTreeSet<String>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Asked,
    Waits,
    Holds(Hold),
    /// Ended, or denied.
    Over,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hold {
    /// It has to give back what it holds.
    pub reclaimed: bool,
    /// It is to be released.
    pub leaves: Option<Leaves>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaves {
    Ended,
    Stopped,
}

impl Claim {
    pub fn of(tenant: &str, demand: &Demand) -> Self {
        let mut path = vec![settings::account(tenant, &demand.team, &demand.namespace)];
        while let Some((above, _)) = path.last().and_then(|last| last.rsplit_once('/')) {
            path.push(above.to_owned());
        }
        let gpu = demand.gpus * demand.gpu_milli;
        let own = [
            ("cpu", demand.cpu_milli),
            ("memory", demand.memory_bytes),
            ("gpu", gpu),
            ("pods", 1),
        ];
        let own = own.map(|(name, amount)| (name.to_owned(), amount));
        let model = demand.models.first().filter(|_| demand.models.len() == 1);
        let model = model.map(|it| (format!("gpu:{it}"), gpu));
        let chooses = gpu > 0 && model.is_none();
        let extended = demand.extended.iter().map(|(name, amount)| {
            let named = match name.as_str() {
                "storage" => name.clone(),
                other => format!("extended:{other}"),
            };
            (named, *amount)
        });
        let parts = own.into_iter().chain(model).chain(extended);
        Self {
            path,
            parts: parts.filter(|(_, amount)| *amount > 0).collect(),
            choice: chooses.then(|| demand.models.clone()),
            counts_on: CountsOn::Models(BTreeSet::new()),
            by_model: false,
            priority: demand.priority,
            wants_gang: demand.gang.as_ref().map(|it| (it.name.clone(), it.size)),
            gang: None,
            depends_on: demand.depends_on.keys().copied().collect(),
            told_of_others: false,
            again: false,
            stage: Stage::Asked,
        }
    }

    pub fn tenant(&self) -> &str {
        // A path has an account at least.
        self.path.last().map_or("", String::as_str)
    }

    pub fn is_below(&self, account: &str) -> bool {
        self.path.iter().any(|it| it == account)
    }

    /// What it counts on a resource type.
    pub fn amount(&self, resource: &str) -> u64 {
        if let Some(amount) = self.parts.get(resource) {
            return *amount;
        }
        let counts = self.choice.is_some()
            && resource
                .strip_prefix("gpu:")
                .is_some_and(|model| match &self.counts_on {
                    CountsOn::AllThatAreLimited => true,
                    CountsOn::Models(models) => models.contains(model),
                });
        if counts { self.amount("gpu") } else { 0 }
    }

    /// What it may come to count on a resource type.
    pub fn wants(&self, resource: &str) -> u64 {
        match resource.strip_prefix("gpu:") {
            Some(model) if self.chooses(model) => self.amount("gpu"),
            _ => self.parts.get(resource).copied().unwrap_or(0),
        }
    }

    pub fn chooses(&self, model: &str) -> bool {
        let choice = self.choice.as_ref();
        choice.is_some_and(|models| models.is_empty() || models.contains(model))
    }

    pub fn resources(&self) -> impl Iterator<Item = &str> {
        self.parts.keys().map(String::as_str)
    }

    /// The same where it counts on these of its choice.
    pub fn counting(&self, counts_on: CountsOn) -> Self {
        Self {
            counts_on,
            ..self.clone()
        }
    }

    /// What it counts on when nothing that it may run on is limited.
    pub fn unbound(&self) -> CountsOn {
        match &self.choice {
            Some(models) if !models.is_empty() => CountsOn::Models(models.clone()),
            Some(_) | None => CountsOn::AllThatAreLimited,
        }
    }

    pub fn holds_nothing(&mut self) {
        self.counts_on = CountsOn::Models(BTreeSet::new());
        self.by_model = false;
    }

    pub fn holds(&self) -> Option<&Hold> {
        match &self.stage {
            Stage::Holds(hold) => Some(hold),
            Stage::Asked | Stage::Waits | Stage::Over => None,
        }
    }
}
