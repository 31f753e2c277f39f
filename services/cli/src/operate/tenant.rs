//! Tenants.

use super::{
    named,
    patch::{Flags, Patch, given},
};
use crate::amount;
use clap::{ArgAction, Args};
use schemas::v1::{self, setting_view::Change};
use vocab::{OnExceed, ReclaimFrom, Team};

/// Sets a tenant: one that there is keeps what is not given.
#[derive(Args)]
pub struct Tenant {
    /// The tenant's name.
    tenant: String,
    /// Tenants of one cohort lend each other what they do not use.
    #[arg(long)]
    cohort: Option<String>,
    /// Weight of the tenant's own queue (3, or thousandths as 500m); 1 where nothing is said of it.
    #[arg(long, value_parser = amount::thousandths)]
    weight: Option<i64>,
    /// Whether the lender may take back what it borrows; if not, it cannot borrow. True where nothing is said of it.
    #[arg(long, action = ArgAction::Set, value_name = "true|false")]
    preemptible: Option<bool>,
    /// What becomes of a request beyond a limit: refuse or wait.
    #[arg(long, value_parser = on_exceed)]
    on_exceed: Option<i32>,
    /// From whom it takes back what it has lent: any, lower-priority or never.
    #[arg(long, value_parser = reclaim)]
    reclaim: Option<i32>,
    /// Requests per second (20, or thousandths as 500m), 0 for any number; 1,000 where nothing is said of it.
    #[arg(long, value_parser = amount::thousandths)]
    rate: Option<i64>,
    /// Requests that may come at once after a pause; cleared, a second's worth. 10,000 where nothing is said of it and the rate.
    #[arg(long)]
    burst: Option<i64>,
    /// Allocations that have not ended; 0: as many as the cell takes.
    #[arg(long)]
    backlog: Option<i64>,
    /// A priority class that it may use, and no other; may be repeated, and takes the place of all that were said before. Any where nothing is said of it.
    #[arg(long = "class", value_name = "CLASS")]
    classes: Vec<String>,
    /// The highest priority that it may ask for without a class.
    #[arg(long, value_parser = amount::priority)]
    priority_max: Option<i32>,
    /// Cores (4, or 1500m) that a request asks for which names none; 0: it has to name some.
    #[arg(long, value_parser = amount::cpu_milli)]
    default_cpu: Option<i64>,
    /// Memory (16GiB), in the same way.
    #[arg(long, value_parser = amount::bytes)]
    default_memory: Option<i64>,
    /// Accept nothing new of it; what was accepted goes on. Of feature level 8.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "true|false")]
    closed: Option<bool>,
    /// A team that its allocations, limits and budgets may be of (ml, with all of its namespaces, or ml/train), and no other; may be
    /// repeated, and takes the place of all that were said before. Any where nothing is said of it. Of feature level 10.
    #[arg(long = "team", value_name = "TEAM[/NAMESPACE]", value_parser = amount::team)]
    teams: Vec<Team>,
    #[command(flatten)]
    patch: Patch,
}

fn on_exceed(text: &str) -> Result<i32, String> {
    let all = OnExceed::ALL.map(|one| (one.name(), one as i32));
    named(&all, text)
}

fn reclaim(text: &str) -> Result<i32, String> {
    let all = ReclaimFrom::ALL.map(|one| (one.name(), one as i32));
    named(&all, text)
}

impl Flags for Tenant {
    fn title(&self) -> String {
        format!("tenant {}", self.tenant)
    }

    fn whole(&self) -> Result<Change, String> {
        Ok(Change::Tenant(v1::SetTenant {
            tenant: self.tenant.clone(),
            expected_version: self.patch.expected.expected_version,
            cohort: self.cohort.clone().unwrap_or_default(),
            weight_milli: self.weight,
            preemptible: self.preemptible,
            on_exceed: self.on_exceed.unwrap_or(0),
            reclaim: self.reclaim.unwrap_or(0),
            rate_milli: self.rate,
            rate_burst: self.burst.unwrap_or(0),
            allocations_max: self.backlog.unwrap_or(0),
            priority_classes: self.classes.clone(),
            priority_max: self.priority_max,
            default_cpu_milli: self.default_cpu.unwrap_or(0),
            default_memory_bytes: self.default_memory.unwrap_or(0),
            closed: self.closed.unwrap_or(false),
            teams: self.teams.iter().map(Team::to_string).collect(),
        }))
    }

    fn given(&self) -> Vec<&'static str> {
        given([
            ("cohort", self.cohort.is_some()),
            ("weight", self.weight.is_some()),
            ("preemptible", self.preemptible.is_some()),
            ("on_exceed", self.on_exceed.is_some()),
            ("reclaim", self.reclaim.is_some()),
            ("rate", self.rate.is_some()),
            ("burst", self.burst.is_some()),
            ("backlog", self.backlog.is_some()),
            ("classes", !self.classes.is_empty()),
            ("priority_max", self.priority_max.is_some()),
            ("default_cpu", self.default_cpu.is_some()),
            ("default_memory", self.default_memory.is_some()),
            ("closed", self.closed.is_some()),
            ("teams", !self.teams.is_empty()),
        ])
    }

    fn patch(&self) -> &Patch {
        &self.patch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_the_contracts_numbers() {
        assert_eq!(on_exceed("wait"), Ok(v1::OnExceed::Wait as i32));
        let lower = v1::ReclaimFrom::LowerPriority as i32;
        assert_eq!(reclaim("lower-priority"), Ok(lower));
        assert_eq!(
            reclaim("all"),
            Err("all: write any, lower-priority, never".into())
        );
    }
}
