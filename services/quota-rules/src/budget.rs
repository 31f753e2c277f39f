//! Budgets: what an account may use up in every period.

use super::{
    Quota,
    account::AccountId,
    books::Books,
    claim::{Claim, Point, What},
    meter::{Forecast, Meter},
    purse::Purse,
    rates::Rates,
};
use vocab::{Account, Budget, BudgetOf, Millis};

impl Quota {
    /// Counts from now on, with what runs now from its start or the period's; a new amount for the same period counts on.
    pub(super) fn set_budget(
        &mut self,
        account: &Account,
        of: &BudgetOf,
        budget: Option<Budget>,
        now: Millis,
    ) {
        let node = self.books.usage_tree.enter(account.clone());
        let purse = Purse::of(of);
        let meters = &mut self.books.usage_tree.node_mut(node).meters;
        let known = meters.iter().position(|meter| meter.purse == purse);
        match (known, budget) {
            (Some(at), None) => drop(meters.remove(at)),
            (Some(at), Some(budget)) if meters[at].budget.period == budget.period => {
                meters[at].budget = budget;
            }
            (Some(at), Some(budget)) => {
                meters.remove(at);
                self.start_meter(node, purse, budget, now);
            }
            (None, Some(budget)) => self.start_meter(node, purse, budget, now),
            (None, None) => {}
        }
        let what = What::Budget(purse);
        let account = node;
        self.books.marks.point(Point { account, what });
        self.books.usage_tree.prune(node);
    }

    fn start_meter(&mut self, node: AccountId, purse: Purse, budget: Budget, now: Millis) {
        let tenant = self.books.usage_tree.node(node).account.tenant.clone();
        let mut meter = Meter::new(purse, budget, tenant, now);
        for allocation in self.books.usage_tree.youngest(&[node]) {
            let claim = self.claims.get(&allocation);
            // What has ended holds its quota until that is released, and runs no more.
            if let Some((claim, from)) = claim.and_then(|c| Some((c, c.hold()?.running()?))) {
                meter.begin(&self.rates, claim, from);
            }
        }
        let meters = &mut self.books.usage_tree.node_mut(node).meters;
        meters.push(meter);
        meters.sort_by_key(|meter| meter.purse);
    }

    /// None without a budget.
    pub fn forecast(&self, account: &Account, of: &BudgetOf, now: Millis) -> Option<Forecast> {
        let node = self
            .books
            .usage_tree
            .node(self.books.usage_tree.find(account)?);
        let purse = Purse::of(of);
        let meter = node.meters.iter().find(|meter| meter.purse == purse)?;
        Some(meter.forecast(&self.rates, now))
    }
}

impl Books {
    /// Every account of the claim counts its run from here on, or up to here when it began at `began`.
    pub(super) fn count_run(
        &mut self,
        rates: &Rates,
        claim: &Claim,
        began: Option<Millis>,
        at: Millis,
    ) {
        for &account in claim.path.ids() {
            for meter in &mut self.usage_tree.node_mut(account).meters {
                match began {
                    None => meter.begin(rates, claim, at),
                    Some(from) => meter.end(rates, claim, from, at),
                }
            }
        }
    }
}
