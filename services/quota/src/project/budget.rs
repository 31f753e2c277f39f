//! Budgets: what is spent in the current period, how fast, and when nothing is left at this rate.
//!
//! Sums are whole numbers in such small parts of the budget's unit that nothing is rounded before it is shown. What
//! nobody could spend, beyond 2^128 of these parts, saturates.

use super::{Change, price::Prices};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vocab::{Account, Budget, BudgetOf, HOUR_MS, Millis, ResourceKey, ResourceKind};

/// A budget as of a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetState {
    pub budget: Budget,
    pub version: u64,
    /// The period that `as_of` is in: its beginning, and the beginning of the next.
    pub period: (Millis, Millis),
    /// Up to `as_of`, rounded down.
    pub spent: u128,
    pub as_of: Millis,
    /// What an hour takes of it, by what runs at `as_of`; rounded down.
    pub burn: u128,
    /// When nothing is left of it, or has been since; none: it lasts for the period.
    pub exhausted_at: Option<Millis>,
}

type Running = BTreeMap<ResourceKey, u128>;

#[derive(Debug, Serialize, Deserialize)]
struct Meter {
    of: BudgetOf,
    budget: Budget,
    version: u64,
    as_of: Millis,
    /// In `parts` of the unit.
    spent: u128,
    running: Running,
    exhausted_at: Option<Millis>,
}

/// A common multiple of all billed units.
const UNITS: u128 = 125 << 30;

/// How many parts make one unit of the budget.
fn parts(of: &BudgetOf) -> u128 {
    match of {
        BudgetOf::Money => UNITS * HOUR_MS as u128,
        BudgetOf::Use(_) => HOUR_MS as u128,
    }
}

/// What an amount takes in a millisecond, in parts.
fn per_ms(of: &BudgetOf, key: &ResourceKey, amount: u128, prices: &Prices, at: Millis) -> u128 {
    match of {
        BudgetOf::Use(kind) if key.kind == *kind => amount,
        BudgetOf::Use(_) => 0,
        BudgetOf::Money => {
            let share = UNITS / u128::from(key.kind.per_billed_unit());
            let micro = u128::from(prices.at(key, at));
            amount.saturating_mul(micro).saturating_mul(share)
        }
    }
}

impl Meter {
    fn new(of: &BudgetOf, budget: Budget, now: Millis) -> Self {
        Self {
            of: of.clone(),
            budget,
            version: 0,
            as_of: now,
            spent: 0,
            running: Running::new(),
            exhausted_at: None,
        }
    }

    fn period(&self) -> (Millis, Millis) {
        self.budget.period.around(self.as_of)
    }

    fn rate<'a>(
        &self,
        amounts: impl Iterator<Item = (&'a ResourceKey, u128)>,
        prices: &Prices,
        at: Millis,
    ) -> u128 {
        amounts.fold(0, |sum: u128, (key, amount)| {
            sum.saturating_add(per_ms(&self.of, key, amount, prices, at))
        })
    }

    fn cost<'a>(
        &self,
        amounts: impl Iterator<Item = (&'a ResourceKey, u128)> + Clone,
        (from, to): (Millis, Millis),
        prices: &Prices,
    ) -> u128 {
        let stretches = prices.stretches(from, to).into_iter();
        stretches.fold(0, |sum: u128, (from, to)| {
            let rate = self.rate(amounts.clone(), prices, from);
            sum.saturating_add(rate.saturating_mul((to.0 - from.0).unsigned_abs().into()))
        })
    }

    fn running(&self) -> impl Iterator<Item = (&ResourceKey, u128)> + Clone {
        self.running.iter().map(|(key, amount)| (key, *amount))
    }

    /// Counts what runs up to now.
    fn settle(&mut self, now: Millis, prices: &Prices) {
        let (start, _) = self.budget.period.around(now);
        if self.as_of < start {
            (self.as_of, self.spent, self.exhausted_at) = (start, 0, None);
        }
        let cost = self.cost(self.running(), (self.as_of, now), prices);
        self.spent = self.spent.saturating_add(cost);
        self.as_of = self.as_of.max(now);
    }

    /// What a run takes between a moment that is already counted and now.
    fn since(&self, amounts: &[(ResourceKey, u64)], since: Millis, prices: &Prices) -> u128 {
        let from = since.max(self.period().0);
        let amounts = amounts
            .iter()
            .map(|(key, amount)| (key, u128::from(*amount)));
        self.cost(amounts, (from, self.as_of), prices)
    }

    fn begin(&mut self, amounts: &[(ResourceKey, u64)], since: Millis, prices: &Prices) {
        self.spent = self
            .spent
            .saturating_add(self.since(amounts, since, prices));
        for (key, amount) in amounts {
            *self.running.entry(key.clone()).or_default() += u128::from(*amount);
        }
    }

    fn end(&mut self, amounts: &[(ResourceKey, u64)], over: Millis, prices: &Prices) {
        self.spent = self.spent.saturating_sub(self.since(amounts, over, prices));
        for (key, amount) in amounts {
            if let Some(left) = self.running.get_mut(key) {
                *left = left.saturating_sub(u128::from(*amount));
                if *left == 0 {
                    self.running.remove(key);
                }
            }
        }
    }

    /// Goes on from here in a straight line.
    fn forecast(&self, rate: u128) -> Option<Millis> {
        let amount = u128::from(self.budget.amount).saturating_mul(parts(&self.of));
        if self.spent >= amount {
            // What was forecast has come true, and says when.
            let came_true = self.exhausted_at.filter(|at| *at <= self.as_of);
            return Some(came_true.unwrap_or(self.as_of));
        }
        let ms = (amount - self.spent).div_ceil(rate.max(1));
        let at = self.as_of.plus(i64::try_from(ms).unwrap_or(i64::MAX));
        (rate > 0 && at < self.period().1).then_some(at)
    }

    fn row(&mut self, prices: &Prices) -> Box<BudgetState> {
        let rate = self.rate(self.running(), prices, self.as_of);
        self.exhausted_at = self.forecast(rate);
        let parts = parts(&self.of);
        Box::new(BudgetState {
            budget: self.budget,
            version: self.version,
            period: self.period(),
            spent: self.spent / parts,
            as_of: self.as_of,
            burn: rate.saturating_mul(HOUR_MS as u128) / parts,
            exhausted_at: self.exhausted_at,
        })
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Budgets {
    meters: BTreeMap<(Account, BudgetOf), Meter>,
    prices: Prices,
}

impl Budgets {
    /// Counts from now on, with what runs now from its start or the period's; a new amount for the same period counts on.
    pub fn set(
        &mut self,
        key: (Account, BudgetOf),
        (budget, version): (Option<Budget>, u64),
        runs: &[(Vec<(ResourceKey, u64)>, Millis)],
        now: Millis,
        out: &mut Vec<Change>,
    ) {
        let Some(budget) = budget else {
            self.meters.remove(&key);
            out.push(Change::Budget(key, None));
            return;
        };
        let before = self.meters.remove(&key);
        let same = before.filter(|meter| meter.budget.period == budget.period);
        let mut meter = same.unwrap_or_else(|| {
            let mut meter = Meter::new(&key.1, budget, now);
            for (amounts, since) in runs {
                meter.begin(amounts, *since, &self.prices);
            }
            meter
        });
        meter.settle(now, &self.prices);
        (meter.budget, meter.version) = (budget, version);
        let row = meter.row(&self.prices);
        out.push(Change::Budget(key.clone(), Some(row)));
        self.meters.insert(key, meter);
    }

    /// What was counted up to now keeps its price.
    pub fn set_price(
        &mut self,
        key: &ResourceKey,
        (micro, from): (u64, Millis),
        now: Millis,
        out: &mut Vec<Change>,
    ) {
        for meter in self.meters.values_mut() {
            meter.settle(now, &self.prices);
        }
        self.prices.set(key, micro, from);
        for (key, meter) in &mut self.meters {
            if key.1 == BudgetOf::Money {
                let row = meter.row(&self.prices);
                out.push(Change::Budget(key.clone(), Some(row)));
            }
        }
    }

    pub fn begun(
        &mut self,
        account: &Account,
        amounts: &[(ResourceKey, u64)],
        since: Millis,
        now: Millis,
        out: &mut Vec<Change>,
    ) {
        self.turn(account, now, out, |meter, prices| {
            meter.begin(amounts, since, prices);
        });
    }

    pub fn over(
        &mut self,
        account: &Account,
        amounts: &[(ResourceKey, u64)],
        over: Millis,
        now: Millis,
        out: &mut Vec<Change>,
    ) {
        self.turn(account, now, out, |meter, prices| {
            meter.end(amounts, over, prices);
        });
    }

    /// In the account's budgets and in those above it.
    fn turn(
        &mut self,
        account: &Account,
        now: Millis,
        out: &mut Vec<Change>,
        turn: impl Fn(&mut Meter, &Prices),
    ) {
        if self.meters.is_empty() {
            return;
        }
        let all = ResourceKind::ALL.map(BudgetOf::Use);
        let all = all.into_iter().chain([BudgetOf::Money]);
        for account in std::iter::successors(Some(account.clone()), Account::parent) {
            for of in all.clone() {
                let key = (account.clone(), of);
                let Some(meter) = self.meters.get_mut(&key) else {
                    continue;
                };
                meter.settle(now, &self.prices);
                turn(meter, &self.prices);
                let row = meter.row(&self.prices);
                out.push(Change::Budget(key, Some(row)));
            }
        }
    }

    /// Hourly: what runs has gone on, and periods are over.
    pub fn roll(&mut self, now: Millis, out: &mut Vec<Change>) {
        for (key, meter) in &mut self.meters {
            let over = meter.period().1 <= now;
            if over || !meter.running.is_empty() {
                meter.settle(now, &self.prices);
                let row = meter.row(&self.prices);
                out.push(Change::Budget(key.clone(), Some(row)));
            }
        }
    }
}
