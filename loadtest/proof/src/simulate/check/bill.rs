//! The bill: past use keeps its price, unless a correction is stated.
//!
//! All runs are priced again at each change of a rate, by the rates as the contract describes them.

use super::{Demand, Invariant, Place, Violation, fit::value_of};
use schemas::v1::{self, rate_set::Change};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct Bill {
    /// In the order of the ledger.
    rates: Vec<Change>,
    runs: Vec<Run>,
}

#[derive(Debug)]
struct Run {
    no: u64,
    used: Used,
    from: i64,
    until: Option<i64>,
}

/// What a run uses, and the names by which rates apply to it.
#[derive(Debug)]
pub struct Used {
    tenant: String,
    class: String,
    pool: String,
    cluster: String,
    model: String,
    /// By resource.
    amounts: [(&'static str, u64); 3],
}

/// Which names of a rate are set, the one that decides first in front.
type Scope = [bool; 5];

impl Used {
    pub fn of(tenant: &str, demand: &Demand, node: Option<&v1::NodeCapacity>) -> Self {
        let label = |name| value_of(node, name).unwrap_or_default();
        let model = node.map_or("", |node| &node.gpu_model);
        Self {
            tenant: tenant.to_owned(),
            class: demand.class.clone(),
            pool: label("pool"),
            cluster: label("cluster"),
            model: model.to_owned(),
            amounts: [
                ("cpu", demand.cpu_milli),
                ("memory", demand.memory_bytes),
                ("gpu", demand.gpus * demand.gpu_milli),
            ],
        }
    }

    /// Returns the scope of the rate; `None` if it is not for this use.
    fn scope(&self, resource: &str, rate: &Change) -> Option<Scope> {
        let (of, model) = rate
            .resource
            .split_once(':')
            .unwrap_or((&rate.resource, ""));
        let names = [
            (rate.tenant.as_str(), &self.tenant),
            (&rate.priority_class, &self.class),
            (&rate.pool, &self.pool),
            (&rate.cluster, &self.cluster),
            (model, &self.model),
        ];
        let applies = of == resource && names.iter().all(|(of, own)| of.is_empty() || of == own);
        applies.then(|| names.map(|(of, _)| !of.is_empty()))
    }
}

impl Bill {
    pub fn begins(&mut self, no: u64, used: Used, from: i64) {
        let until = None;
        self.runs.push(Run {
            no,
            used,
            from,
            until,
        });
    }

    pub fn ends(&mut self, no: u64, until: i64) {
        let mut runs = self.runs.iter_mut();
        if let Some(run) = runs.find(|run| run.no == no && run.until.is_none()) {
            run.until = Some(until);
        }
    }

    /// Returns the price of a resource at a moment; 0 if no rate is in force.
    fn price(&self, used: &Used, resource: &str, at: i64) -> u64 {
        let mut scopes: BTreeMap<Scope, Vec<(i64, Option<u64>)>> = BTreeMap::new();
        for rate in &self.rates {
            let Some(scope) = used.scope(resource, rate) else {
                continue;
            };
            let prices = scopes.entry(scope).or_default();
            let from = rate.effective_from_ms;
            if rate.withdrawn {
                prices.retain(|(other, _)| *other < from);
            }
            let price = (!rate.withdrawn).then_some(rate.micro_per_unit_hour);
            prices.push((from, price));
        }
        let in_force = scopes.values().rev().find_map(|prices| {
            let begun = prices.iter().filter(|(from, _)| *from <= at);
            // Of two for the same moment the later one counts.
            begun.max_by_key(|(from, _)| *from)?.1
        });
        in_force.unwrap_or(0)
    }

    /// Returns the charge of each run up to a moment, as price times amount times milliseconds.
    fn charges(&self, through: i64) -> Vec<u128> {
        let charge = |run: &Run| {
            let until = run.until.unwrap_or(through).min(through);
            let changes = self.rates.iter().map(|rate| rate.effective_from_ms);
            let changes = changes.filter(|at| (run.from..until).contains(at));
            let mut moments: Vec<i64> = changes.chain([run.from, until.max(run.from)]).collect();
            moments.sort_unstable();
            let spans = moments.windows(2).map(|span| {
                let ms = u128::from(span[1].abs_diff(span[0]));
                let costs = run.used.amounts.iter().map(|(resource, amount)| {
                    let price = self.price(&run.used, resource, span[0]);
                    u128::from(price) * u128::from(*amount)
                });
                costs.sum::<u128>() * ms
            });
            spans.sum()
        };
        self.runs.iter().map(charge).collect()
    }

    /// Takes in a change of a rate. Past use keeps its charge, unless the request states a correction.
    pub fn rate_set(&mut self, at: &Place, rate: Change, corrects: bool) -> Result<(), Violation> {
        let before = self.charges(at.now);
        self.rates.push(rate);
        let after = self.charges(at.now);
        let mut runs = self.runs.iter().zip(before.iter().zip(&after));
        let changed = runs.find(|(_, (before, after))| before != after);
        at.rule(corrects || changed.is_none(), Invariant::Bill, || {
            let rate = self.rates.last();
            format!("{rate:?} changes a charge, (run, (before, after)): {changed:?}")
        })
    }
}
