//! What use costs, line by line, of the rows that the tables have: the rule that the views `chargeback_hourly` and `run_costs`
//! have in SQL, for an answer that cannot wait until a server has read them. Time is cut by the calendar that made the rows.

use super::{
    calendar::{Calendar, Hour, Names},
    change::{Clock, Payer, Running, Site},
    meter::key,
};
use std::{collections::BTreeMap, sync::Arc};
use vocab::{
    AllocationNo, HOUR_MS, Millis, Month, RateKey, RateList, RatePrice, RateScope, ResourceKey,
    ResourceKind, Token,
};

/// Whose use it is, and where: beside the resource, what a line of the bill tells apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Whose {
    pub tenant: Token,
    pub team: Option<Token>,
    pub namespace: Option<Token>,
    pub queue: Token,
    pub job_set: Token,
    pub priority_class: Option<Token>,
    pub cluster: Option<Token>,
    pub pool: Option<Token>,
}

impl Whose {
    pub fn of(payer: &Payer, site: &Site) -> Self {
        Self {
            tenant: payer.tenant.clone(),
            team: payer.team.clone(),
            namespace: payer.namespace.clone(),
            queue: payer.queue.clone(),
            job_set: payer.job_set.clone(),
            priority_class: payer.priority_class.clone(),
            cluster: site.cluster.clone(),
            pool: site.pool.clone(),
        }
    }

    fn used(&self, resource: &ResourceKey) -> RateKey {
        let scope = RateScope {
            tenant: Some(self.tenant.clone()),
            priority_class: self.priority_class.clone(),
            pool: self.pool.clone(),
            cluster: self.cluster.clone(),
        };
        RateKey {
            resource: resource.clone(),
            scope,
        }
    }
}

/// Which line of the bill.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LineKey {
    pub whose: Arc<Whose>,
    pub resource: ResourceKey,
    pub hour: Hour,
    /// In whose bill it stands.
    pub period: Month,
    /// Millionths of the currency per billed unit and hour; none: no rate was in force.
    pub price: Option<u64>,
}

/// A line of the bill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charge {
    pub key: LineKey,
    /// Unit-milliseconds; less than 0 takes something back.
    pub quantity: i128,
    pub amount_micro: i128,
}

/// A row of `usage_hourly`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HourlyUse {
    pub whose: Arc<Whose>,
    pub resource: ResourceKey,
    pub hour: Hour,
    pub period: Month,
    pub since: Millis,
    pub quantity: i128,
    pub ms: i64,
}

/// A run, over or not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunUse {
    pub allocation: AllocationNo,
    pub whose: Arc<Whose>,
    pub gpu_model: Option<Token>,
    pub amounts: [(ResourceKind, u64); ResourceKind::ALL.len()],
    pub started_at: Millis,
    /// None: it runs.
    pub ended_at: Option<Millis>,
}

impl RunUse {
    pub fn of(run: &Running, whose: Arc<Whose>) -> Self {
        let amount = |kind| {
            // As far as the tables' numbers reach.
            let amount = run.moved.amounts.get(kind).clamp(0, i64::MAX.into());
            (kind, amount as u64)
        };
        Self {
            allocation: run.allocation,
            whose,
            gpu_model: run.moved.site.gpu_model.clone(),
            amounts: ResourceKind::ALL.map(amount),
            started_at: run.started_at,
            ended_at: None,
        }
    }

    fn names(&self) -> Names<'_> {
        Names {
            tenant: &self.whose.tenant,
            priority_class: self.whose.priority_class.as_ref(),
            pool: self.whose.pool.as_ref(),
            cluster: self.whose.cluster.as_ref(),
            gpu_model: self.gpu_model.as_ref(),
        }
    }

    fn each(&self) -> impl Iterator<Item = (ResourceKey, i128)> {
        let some = self.amounts.into_iter();
        let some = some.filter(|(_, amount)| *amount != 0);
        some.map(|(kind, amount)| (key(kind, self.gpu_model.as_ref()), amount.into()))
    }
}

/// What is known of prices and time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// Up to here everything is in the tables, and what runs is billed.
    pub through: Millis,
    /// A full hour: what runs is in `usage_hourly` up to here.
    pub accrued_to: Millis,
    pub closed_through: Option<Month>,
    pub prices: Arc<Prices>,
}

/// Rates as the tables have them, and where they cut time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prices {
    rates: RateList,
    calendar: Calendar,
}

impl Prices {
    /// In the ledger's order, each with the moment from which it counts.
    pub fn of(rates: impl IntoIterator<Item = (RateKey, Millis, RatePrice)>) -> Self {
        let mut all = Self::default();
        for (key, from, price) in rates {
            all.calendar.rate_begins(&key, from);
            all.rates.set(key, from, price);
        }
        all
    }
}

impl Known {
    /// The same for rows of a position of which this is known.
    pub fn at(&self, clock: Clock) -> Self {
        Self {
            through: self.through.max(clock.clock),
            accrued_to: clock.accrued_to,
            ..self.clone()
        }
    }

    /// Whether the bill of a month is final.
    pub fn is_closed(&self, month: Month) -> bool {
        self.closed_through.is_some_and(|closed| month <= closed)
    }

    /// What a run cost up to now, by resource: rounded once for all of it. Nothing where it took no time.
    pub fn cost(&self, run: &RunUse) -> Vec<(ResourceKey, i128, i128)> {
        let ends = run.ended_at.unwrap_or(self.through);
        let Prices { rates, calendar } = &*self.prices;
        let costs = run.each().map(|(resource, amount)| {
            let used = run.whose.used(&resource);
            let (mut quantity, mut cost) = (0, 0_i128);
            for slice in calendar.slices(run.started_at, ends, run.names()) {
                let of_slice = amount.saturating_mul(slice.ms.into());
                let micro = rates.at(&used, slice.since).unwrap_or(0);
                quantity += of_slice;
                cost = cost.saturating_add(of_slice.saturating_mul(micro.into()));
            }
            let amount_micro = rounded(cost, 1, resource.kind);
            (resource, quantity, amount_micro)
        });
        let costs = costs.filter(|_| run.started_at < ends);
        costs.collect()
    }

    pub fn charges(&self) -> Charges<'_> {
        Charges {
            known: self,
            open: BTreeMap::new(),
        }
    }
}

/// Lines of the bill in the making. Of an hour that is over and in which no rate begins, a row is a line; the other rows, and
/// what runs, are added up first.
pub struct Charges<'k> {
    known: &'k Known,
    /// A line has one list price, too.
    open: BTreeMap<(LineKey, u64), (i128, i64)>,
}

impl Charges<'_> {
    fn price(&self, whose: &Whose, resource: &ResourceKey, since: Millis) -> Option<u64> {
        self.known.prices.rates.at(&whose.used(resource), since)
    }

    /// By the rates that name neither a tenant nor a priority class; 0: there are none.
    fn list_price(&self, whose: &Whose, resource: &ResourceKey, since: Millis) -> u64 {
        let mut used = whose.used(resource);
        used.scope.tenant = None;
        used.scope.priority_class = None;
        self.known.prices.rates.at(&used, since).unwrap_or(0)
    }

    /// No other row has the same key.
    pub fn hourly(&mut self, row: HourlyUse) -> Option<Charge> {
        let key = LineKey {
            price: self.price(&row.whose, &row.resource, row.since),
            whose: row.whose,
            resource: row.resource,
            hour: row.hour,
            period: row.period,
        };
        let calendar = &self.known.prices.calendar;
        if key.hour.begin() < self.known.accrued_to && !calendar.is_cut(key.hour) {
            return charge(key, row.quantity, row.ms);
        }
        self.add(key, row.since, row.quantity, row.ms);
        None
    }

    /// What it has used since it was last in `usage_hourly`.
    pub fn running(&mut self, run: &RunUse) {
        let known = self.known;
        let from = run.started_at.max(known.accrued_to);
        for slice in known
            .prices
            .calendar
            .slices(from, known.through, run.names())
        {
            for (resource, amount) in run.each() {
                let key = LineKey {
                    price: self.price(&run.whose, &resource, slice.since),
                    whose: run.whose.clone(),
                    resource,
                    hour: slice.hour,
                    period: slice.period,
                };
                let quantity = amount.saturating_mul(slice.ms.into());
                self.add(key, slice.since, quantity, slice.ms);
            }
        }
    }

    fn add(&mut self, key: LineKey, since: Millis, quantity: i128, ms: i64) {
        let list = self.list_price(&key.whose, &key.resource, since);
        let (all, all_ms) = self.open.entry((key, list)).or_default();
        *all = all.saturating_add(quantity);
        *all_ms = all_ms.saturating_add(ms);
    }

    /// The lines that were not given yet.
    pub fn finish(self) -> impl Iterator<Item = Charge> {
        let open = self.open.into_iter();
        open.filter_map(|((key, _), (quantity, ms))| charge(key, quantity, ms))
    }
}

fn charge(key: LineKey, quantity: i128, ms: i64) -> Option<Charge> {
    let price = key.price.unwrap_or(0);
    let amount_micro = rounded(quantity, price, key.resource.kind);
    (quantity != 0 || ms != 0).then_some(Charge {
        key,
        quantity,
        amount_micro,
    })
}

/// Times the price, by the billed unit and hour; rounded half up, away from zero.
fn rounded(quantity: i128, price: u64, kind: ResourceKind) -> i128 {
    let per_unit_hour = u128::from(kind.per_billed_unit()) * u128::from(HOUR_MS.unsigned_abs());
    let (all, price) = (quantity.unsigned_abs(), u128::from(price));
    // Below 2^52, so that what follows fits.
    let rest = all % per_unit_hour;
    let rest = (rest * price * 2 + per_unit_hour) / (per_unit_hour * 2);
    let whole = (all / per_unit_hour).saturating_mul(price);
    let amount = i128::try_from(whole.saturating_add(rest)).unwrap_or(i128::MAX);
    if quantity < 0 { -amount } else { amount }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(quantity: i128, price: u64, kind: ResourceKind, expected: i128) {
        assert_eq!(rounded(quantity, price, kind), expected);
        assert_eq!(rounded(-quantity, price, kind), -expected);
    }

    #[test]
    fn an_amount_is_rounded_half_up_away_from_zero() {
        let core_hour = 3_600_000_000;
        check(core_hour, 31_611, ResourceKind::Cpu, 31_611);
        check(core_hour / 2, 1, ResourceKind::Cpu, 1);
        check(core_hour / 2 - 1, 1, ResourceKind::Cpu, 0);
        check(core_hour * 3 / 2, 1, ResourceKind::Gpu, 2);
        check(3_600_000 << 30, 4_237, ResourceKind::Memory, 4_237);
        check(1 << 120, 1 << 60, ResourceKind::Cpu, i128::MAX);
        check(0, u64::MAX, ResourceKind::Cpu, 0);
    }
}
