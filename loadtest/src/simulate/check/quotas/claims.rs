//! What an allocation asks of quota.

use super::super::{Demand, settings};
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Its account, and those above it.
    pub path: Vec<String>,
    /// By resource type.
    parts: BTreeMap<String, u64>,
    /// GPUs that may be of any model.
    any_model: u64,
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
        let models = demand.models.iter().map(|it| (format!("gpu:{it}"), gpu));
        let extended = demand.extended.iter().map(|(name, amount)| {
            let named = match name.as_str() {
                "storage" => name.clone(),
                other => format!("extended:{other}"),
            };
            (named, *amount)
        });
        let parts = own.into_iter().chain(models).chain(extended);
        Self {
            path,
            parts: parts.filter(|(_, amount)| *amount > 0).collect(),
            any_model: if demand.models.is_empty() { gpu } else { 0 },
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

    /// What it counts on a resource type: what may run on any model counts on each.
    pub fn amount(&self, resource: &str) -> u64 {
        let any = if resource.starts_with("gpu:") {
            self.any_model
        } else {
            0
        };
        self.parts.get(resource).copied().unwrap_or(any)
    }

    pub fn resources(&self) -> impl Iterator<Item = &str> {
        self.parts.keys().map(String::as_str)
    }

    pub fn holds(&self) -> Option<&Hold> {
        match &self.stage {
            Stage::Holds(hold) => Some(hold),
            Stage::Asked | Stage::Waits | Stage::Over => None,
        }
    }
}
