//! What an account may use up in a period: the sum of amount and time over all runs since the budget was set.

use super::{Claim, Quotas, rules::Over, settings};
use schemas::v1;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct Budgets {
    /// By account and what they count.
    set: BTreeMap<(String, String), Budget>,
    runs: Vec<Run>,
}

#[derive(Debug, Clone)]
struct Budget {
    budget: v1::Budget,
    /// What had ended before this position does not count.
    since_lsn: u64,
}

/// One run of an allocation, as far as quota has read.
#[derive(Debug, Clone)]
struct Run {
    no: u64,
    from: i64,
    /// And where on the ledger it says so.
    until: Option<(i64, u64)>,
}

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// When the period began that `now` is in.
fn period_from(period: i32, now: i64) -> i64 {
    match v1::Period::try_from(period) {
        Ok(v1::Period::Hour) => now - now.rem_euclid(HOUR_MS),
        Ok(v1::Period::Day) => now - now.rem_euclid(DAY_MS),
        // The simulation is not in a month's last days, nor in a week's.
        Ok(v1::Period::Week | v1::Period::Month | v1::Period::Unspecified) | Err(_) => 0,
    }
}

impl Budgets {
    pub fn set(&mut self, e: &v1::BudgetSet, lsn: u64) {
        let change = e.change.clone().unwrap_or_default();
        let account = settings::account(&change.tenant, &change.team, &change.namespace);
        let key = (account, change.of);
        let Some(budget) = change.budget else {
            self.set.remove(&key);
            return;
        };
        let before = self.set.get(&key);
        // Another amount for the same period counts on.
        let goes_on = before.filter(|before| before.budget.period == budget.period);
        let since_lsn = goes_on.map_or(lsn, |before| before.since_lsn);
        self.set.insert(key, Budget { budget, since_lsn });
    }

    pub fn begins(&mut self, no: u64, from: i64) {
        let until = None;
        self.runs.push(Run { no, from, until });
    }

    /// The run that is not over, if there is one.
    pub fn ends(&mut self, no: u64, until: i64, lsn: u64) {
        let mut runs = self.runs.iter_mut();
        if let Some(run) = runs.find(|run| run.no == no && run.until.is_none()) {
            run.until = Some((until, lsn));
        }
    }

    /// Amount times milliseconds, in the budget's period up to `now`.
    fn used(&self, claims: &BTreeMap<u64, Claim>, key: (&str, &str), now: i64) -> u128 {
        let Some(set) = self.set.get(&(key.0.to_owned(), key.1.to_owned())) else {
            return 0;
        };
        let period = period_from(set.budget.period, now);
        let runs = self.runs.iter().filter_map(|run| {
            let claim = claims.get(&run.no).filter(|claim| claim.is_below(key.0))?;
            let counts = run.until.is_none_or(|(_, lsn)| lsn > set.since_lsn);
            let until = run.until.map_or(now, |(until, _)| until.min(now));
            let ms = u128::try_from(until - run.from.max(period)).unwrap_or(0);
            counts.then(|| u128::from(claim.amount(key.1)) * ms)
        });
        runs.sum()
    }

    fn of(&self, account: &str) -> impl Iterator<Item = (&str, u64)> {
        let of = self.set.iter().filter(move |(key, _)| key.0 == account);
        of.map(|(key, set)| (key.1.as_str(), set.budget.amount))
    }

    /// Whether a refusal is right: as precisely as can be said where clocks differ.
    pub fn may_be_exhausted(
        &self,
        quotas: &Quotas,
        key: (&str, &str),
        refusal: &v1::Refusal,
        now: i64,
    ) -> bool {
        let amount = self.of(key.0).find(|(of, _)| *of == key.1);
        let Some((_, amount)) = amount else {
            return false;
        };
        // A run may have begun by a clock that is ahead of quota's, and be of the period before by quota's own.
        let used = |now| self.used(&quotas.claims, key, now) / HOUR_MS as u128;
        let used = used(now).max(used(now + CLOCKS_DIFFER_MS));
        refusal.limit == amount && used >= u128::from(amount)
    }
}

/// How far two clocks of a world may lie apart.
const CLOCKS_DIFFER_MS: i64 = 5_000;

impl Quotas {
    /// A budget of the account that is used up and that the claim would use.
    pub(super) fn over_budget(&self, claim: &Claim, account: &str, now: i64) -> Option<Over> {
        self.budgets.of(account).find_map(|(of, amount)| {
            let used = self.budgets.used(&self.claims, (account, of), now) / HOUR_MS as u128;
            let over = claim.amount(of) > 0 && used >= u128::from(amount);
            over.then(|| Over {
                account: account.to_owned(),
                what: format!("budget of {of}"),
                limit: amount,
                actual: used as u64,
            })
        })
    }
}
