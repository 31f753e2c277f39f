//! What is spent of a budget: what the running allocations of an account use up in a period, exactly, in a few sums.

use super::{claim::Claim, purse::Purse, rates::Rates, resource::ResourceId};
use serde::{Deserialize, Serialize};
use vocab::{Budget, HOUR_MS, Millis, RateKey, RateScope, ResourceKey, ResourceKind, Token};

/// A budget, and what was spent of it in the present period.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Meter {
    pub purse: Purse,
    pub budget: Budget,
    /// Whose account it is of.
    tenant: Token,
    period: (Millis, Millis),
    lanes: Vec<Lane>,
}

/// What runs at one price.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Lane {
    /// What its price depends on, where it is money; of other purses the resource type alone.
    used: RateKey,
    /// In the resource's unit.
    running: u64,
    /// Amount × milliseconds, and × the rate where it is money, up to `until`.
    done: u128,
    until: Millis,
}

/// What a budget will come to if all goes on as now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forecast {
    pub budget: Budget,
    pub as_of: Millis,
    /// The period that `as_of` is in: the beginning, and the beginning of the next.
    pub period: (Millis, Millis),
    /// In the budget's unit.
    pub spent: u64,
    /// What an hour takes of it.
    pub burn: u128,
    /// When nothing is left; none: not in this period.
    pub exhausted_at: Option<Millis>,
}

const HOUR: u128 = HOUR_MS as u128;
/// A common multiple of all billed units: sums are whole numbers in such small parts that nothing is rounded before it is said.
const UNITS: u128 = 125 << 30;

impl Meter {
    pub fn new(purse: Purse, budget: Budget, tenant: Token, now: Millis) -> Self {
        Self {
            purse,
            budget,
            tenant,
            period: budget.period.around(now),
            lanes: Vec::new(),
        }
    }

    pub fn period_end(&self, now: Millis) -> Millis {
        self.budget.period.around(now.max(self.period.0)).1
    }

    /// What one unit costs in `[from, to)`.
    fn price(&self, rates: &Rates, lane: &Lane, from: Millis, to: Millis) -> u128 {
        match self.purse {
            Purse::Money => rates.over(&lane.used, from, to),
            Purse::Cpu | Purse::Memory | Purse::Gpu => {
                u128::try_from(to.0.saturating_sub(from.0)).unwrap_or(0)
            }
        }
    }

    /// A lane's sum up to `now`, of the period that `now` is in.
    fn sum(&self, rates: &Rates, lane: &Lane, now: Millis) -> u128 {
        let (done, from) = if now < self.period.1 {
            (lane.done, lane.until)
        } else {
            (0, self.budget.period.around(now).0)
        };
        let more = u128::from(lane.running).saturating_mul(self.price(rates, lane, from, now));
        done.saturating_add(more)
    }

    /// How many parts make one unit of the budget.
    fn parts(&self) -> u128 {
        match self.purse {
            Purse::Money => UNITS * HOUR,
            Purse::Cpu | Purse::Memory | Purse::Gpu => HOUR,
        }
    }

    /// How many of them one of a lane's sum is.
    fn share(&self, lane: &Lane) -> u128 {
        match self.purse {
            Purse::Money => UNITS / u128::from(lane.used.resource.kind.per_billed_unit()),
            Purse::Cpu | Purse::Memory | Purse::Gpu => 1,
        }
    }

    fn spent_parts(&self, rates: &Rates, now: Millis) -> u128 {
        self.lanes.iter().fold(0, |spent: u128, lane| {
            let sum = self.sum(rates, lane, now);
            spent.saturating_add(sum.saturating_mul(self.share(lane)))
        })
    }

    /// In the budget's unit, whole ones.
    pub fn spent(&self, rates: &Rates, now: Millis) -> u64 {
        let spent = self.spent_parts(rates, now.max(self.period.0)) / self.parts();
        u64::try_from(spent).unwrap_or(u64::MAX)
    }

    /// Folds every lane up to `now`, into the period that it is in.
    fn fold(&mut self, rates: &Rates, now: Millis) {
        let now = now.max(self.period.0);
        let done: Vec<u128> = self.lanes.iter().map(|l| self.sum(rates, l, now)).collect();
        for (lane, done) in self.lanes.iter_mut().zip(done) {
            lane.done = done;
            lane.until = lane.until.max(now);
        }
        if now >= self.period.1 {
            self.period = self.budget.period.around(now);
        }
        // Whatever neither runs nor has cost anything need not be counted.
        self.lanes.retain(|lane| lane.running > 0 || lane.done > 0);
    }

    fn lane_mut(&mut self, used: RateKey) -> usize {
        let is = |lane: &Lane| lane.used == used;
        self.lanes.iter().position(is).unwrap_or_else(|| {
            self.lanes.push(Lane {
                used,
                running: 0,
                done: 0,
                until: self.period.0,
            });
            self.lanes.len() - 1
        })
    }

    /// The amounts that it counts, and at which price: all of them for money, else the one.
    fn lanes_of(&self, rates: &Rates, claim: &Claim) -> Vec<(RateKey, u64)> {
        let money = self.purse == Purse::Money;
        let scope = match money {
            true => RateScope {
                tenant: Some(self.tenant.clone()),
                ..rates.scope(claim.scope)
            },
            false => RateScope::default(),
        };
        let kinds = ResourceKind::ALL.into_iter();
        let kinds = kinds.filter(|kind| money || self.purse.kind() == Some(*kind));
        let amounts = kinds.map(|kind| (kind, claim.amount(ResourceId::of(kind))));
        let some = amounts.filter(|(_, amount)| *amount > 0);
        some.map(|(kind, amount)| {
            let gpu = kind == ResourceKind::Gpu && money;
            let model = claim.model.as_ref().filter(|_| gpu).cloned();
            let resource = ResourceKey { kind, model };
            let scope = scope.clone();
            (RateKey { resource, scope }, amount)
        })
        .collect()
    }

    /// The claim's run begins at `from`; of an earlier period only what is in this one counts.
    pub fn begin(&mut self, rates: &Rates, claim: &Claim, from: Millis) {
        self.fold(rates, from);
        for (used, amount) in self.lanes_of(rates, claim) {
            let at = self.lane_mut(used);
            let lane = &self.lanes[at];
            // A lane that was made just now stands at the period's beginning, and nothing runs in it.
            let until = if lane.running == 0 {
                lane.until.max(from)
            } else {
                lane.until
            };
            let late = self.price(rates, lane, from.max(self.period.0), until);
            let lane = &mut self.lanes[at];
            lane.until = until;
            lane.running = lane.running.saturating_add(amount);
            lane.done = lane
                .done
                .saturating_add(u128::from(amount).saturating_mul(late));
        }
    }

    /// The claim's run, which began at `from`, ends at `to`.
    pub fn end(&mut self, rates: &Rates, claim: &Claim, from: Millis, to: Millis) {
        let to = to.max(from);
        self.fold(rates, to);
        for (used, amount) in self.lanes_of(rates, claim) {
            let at = self.lane_mut(used);
            let lane = &self.lanes[at];
            let early = self.price(rates, lane, to.max(self.period.0), lane.until);
            let lane = &mut self.lanes[at];
            lane.running = lane.running.saturating_sub(amount);
            lane.done = lane
                .done
                .saturating_sub(u128::from(amount).saturating_mul(early));
        }
    }

    pub fn forecast(&self, rates: &Rates, now: Millis) -> Forecast {
        let now = now.max(self.period.0);
        let (parts, period) = (self.parts(), self.budget.period.around(now));
        let amount = u128::from(self.budget.amount).saturating_mul(parts);
        let left = amount.saturating_sub(self.spent_parts(rates, now));
        let per_ms = self.lanes.iter().fold(0, |sum: u128, lane| {
            let rate = match self.purse {
                Purse::Money => rates.at(&lane.used, now).into(),
                Purse::Cpu | Purse::Memory | Purse::Gpu => 1,
            };
            let more = u128::from(lane.running).saturating_mul(rate);
            sum.saturating_add(more.saturating_mul(self.share(lane)))
        });
        let lasts = match (left, per_ms) {
            (0, _) => Some(0),
            (_, 0) => None,
            (left, per_ms) => i64::try_from(left.div_ceil(per_ms)).ok(),
        };
        let exhausted_at = lasts.map(|ms| now.plus(ms)).filter(|at| *at < period.1);
        Forecast {
            budget: self.budget,
            as_of: now,
            period,
            spent: self.spent(rates, now),
            burn: per_ms.saturating_mul(HOUR) / parts,
            exhausted_at,
        }
    }
}
