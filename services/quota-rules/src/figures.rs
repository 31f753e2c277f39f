//! What quota's state shows: how full limits and budgets are.

use super::{Quota, usage_tree::UsageTree};
use ledger::{Figures, Metric};
use std::cmp::Reverse;
use vocab::Millis;

/// Limits and budgets that are told: the fullest. There may be a few for each of thousands of tenants.
const TOLD_MAX: usize = 200;

const QUOTA_USED: Metric = Metric::gauge(
    "apportion_quota_used_ratio",
    "What a tenant holds of its hard limit: above 1 it borrows or bursts, or the limit was lowered. The 200 fullest of all \
     tenants' limits",
)
.by(&["tenant", "resource"]);
const BUDGET_SPENT: Metric = Metric::gauge(
    "apportion_budget_spent_ratio",
    "What a tenant has spent of its budget in the present period; `of` is money, cpu, memory or gpu. The 200 fullest of all \
     tenants' budgets",
)
.by(&["tenant", "of"]);
const CLAIMS: Metric = Metric::gauge(
    "apportion_quota_claims",
    "Allocations that hold quota or want it. `state` is waiting (or a gang, as one) or all",
)
.by(&["state"]);

/// What this service exports beside what all do.
pub const METRICS: &[&Metric] = &[&QUOTA_USED, &BUDGET_SPENT, &CLAIMS];

impl Quota {
    /// One pass over the tenants.
    pub(super) fn figures(&self, now: Millis, figures: &mut Figures) {
        let (mut limits, mut budgets) = (Vec::new(), Vec::new());
        let tree: &UsageTree = &self.books.usage_tree;
        for node in tree.tenants() {
            let tenant = node.account.tenant.as_str();
            for cell in &node.cells {
                let Some(limited) = &cell.limited else {
                    continue;
                };
                let held = node.taken(cell.resource).held();
                let filled = per_mille(held, limited.limits.hard);
                let resource = self.books.names.resource(cell.resource);
                limits.push((Reverse(filled), tenant, resource));
            }
            for meter in &node.meters {
                let spent = meter.spent(&self.rates, now);
                let filled = per_mille(spent, meter.budget.amount);
                budgets.push((Reverse(filled), tenant, meter.purse.budget_of().name()));
            }
        }
        limits.sort_unstable();
        for (Reverse(filled), tenant, resource) in limits.into_iter().take(TOLD_MAX) {
            figures.milli(&QUOTA_USED, &[tenant, &resource.to_string()], filled);
        }
        budgets.sort_unstable();
        for (Reverse(filled), tenant, of) in budgets.into_iter().take(TOLD_MAX) {
            figures.milli(&BUDGET_SPENT, &[tenant, of], filled);
        }
        figures.whole(&CLAIMS, &["all"], self.live() as u64);
        figures.whole(&CLAIMS, &["waiting"], self.waiting() as u64);
    }
}

/// Of nothing, nothing is empty and anything is full.
fn per_mille(part: u64, of: u64) -> u64 {
    match (part, of) {
        (0, _) => 0,
        (_, 0) => 1000,
        (part, of) => {
            let filled = u128::from(part) * 1000 / u128::from(of);
            u64::try_from(filled).unwrap_or(u64::MAX)
        }
    }
}
