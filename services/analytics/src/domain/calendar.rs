//! Cuts time for the bill: at full hours, and within an hour where rates begin that may price the use.

use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};
use vocab::{HOUR_MS, Millis, Month, RateKey, RateScope, ResourceKey, ResourceKind, Token};

/// Full hours since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hour(pub i64);

impl Hour {
    pub fn of(at: Millis) -> Self {
        Self(at.0.div_euclid(HOUR_MS))
    }

    pub fn begin(self) -> Millis {
        Millis(self.0.saturating_mul(HOUR_MS))
    }

    /// The first moment of the next one.
    pub fn end(self) -> Millis {
        Self(self.0.saturating_add(1)).begin()
    }
}

/// Names by which rates may price a use.
#[derive(Debug, Clone, Copy)]
pub struct Names<'n> {
    pub tenant: &'n Token,
    pub priority_class: Option<&'n Token>,
    pub pool: Option<&'n Token>,
    pub cluster: Option<&'n Token>,
    pub gpu_model: Option<&'n Token>,
}

impl Names<'_> {
    /// Returns whether a rate fits use of these names, of any resource type.
    fn fit(&self, key: &RateKey) -> bool {
        let RateScope {
            tenant,
            priority_class,
            pool,
            cluster,
        } = &key.scope;
        let all = [
            (tenant, Some(self.tenant)),
            (priority_class, self.priority_class),
            (pool, self.pool),
            (cluster, self.cluster),
            (&key.resource.model, self.gpu_model),
        ];
        let mut all = all.into_iter();
        all.all(|(named, of_use)| named.is_none() || named.as_ref() == of_use)
    }
}

/// Moment at which rates begin, with their keys by tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Cut {
    at: Millis,
    rates: BTreeMap<Option<Token>, BTreeSet<RateKey>>,
}

impl Cut {
    fn fits(&self, names: Names<'_>) -> bool {
        let tenants = [None, Some(names.tenant.clone())];
        let mut rates = tenants.iter().filter_map(|tenant| self.rates.get(tenant));
        rates.any(|rates| rates.iter().any(|key| names.fit(key)))
    }

    /// Returns whether a list price begins, which prices the capacity.
    fn is_of_list(&self) -> bool {
        let of_all = self.rates.get(&None);
        of_all.is_some_and(|rates| rates.iter().any(|key| key.scope.priority_class.is_none()))
    }
}

/// A stretch of one hour in which the rates that fit the use are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    pub hour: Hour,
    /// A moment at or before its beginning, since when no rate began that fits the use; 0: before any rate began.
    pub since: Millis,
    /// Of the bill in which its use stands.
    pub period: Month,
    /// At least one.
    pub ms: i64,
}

/// What is known of time: the ledger's clock, up to when use was accrued, where rates begin, and which months are closed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calendar {
    /// The latest moment that any writer's frame has said.
    clock: Millis,
    /// A full hour. What runs is billed up to here; from here on it is when the hour or the run is over.
    accrued_to: Millis,
    /// In the order of their moments.
    cuts: Vec<Cut>,
    closed_through: Option<Month>,
}

/// The calendar of version 3 of the state, which had the moments of rates without their keys.
#[derive(Debug, Deserialize)]
pub struct CalendarOf3 {
    clock: Millis,
    accrued_to: Millis,
    cuts: Vec<Millis>,
    closed_through: Option<Month>,
}

/// Lets each of its moments cut all use.
impl From<CalendarOf3> for Calendar {
    fn from(before: CalendarOf3) -> Self {
        let of_all = RateKey {
            resource: ResourceKey {
                kind: ResourceKind::Cpu,
                model: None,
            },
            scope: RateScope::default(),
        };
        let cut = |at| Cut {
            at,
            rates: [(None, [of_all.clone()].into())].into(),
        };
        Self {
            clock: before.clock,
            accrued_to: before.accrued_to,
            cuts: before.cuts.into_iter().map(cut).collect(),
            closed_through: before.closed_through,
        }
    }
}

impl Calendar {
    pub fn clock(&self) -> Millis {
        self.clock
    }

    pub fn accrued_to(&self) -> Millis {
        self.accrued_to
    }

    /// The clock is at least there. Gives what is to be accrued, if hours have ended by that.
    pub fn advance(&mut self, now: Millis) -> Option<Range<Millis>> {
        if now <= self.clock {
            return None;
        }
        self.clock = now;
        let before = std::mem::replace(&mut self.accrued_to, Hour::of(now).begin());
        (before < self.accrued_to).then_some(before..self.accrued_to)
    }

    /// A rate that is to begin at `effective_from`. Gives when it does: what was folded before it was known keeps its price.
    /// One from the beginning of time on is of a resource that had no price.
    pub fn rate_begins(&mut self, key: &RateKey, effective_from: Millis) -> Millis {
        if effective_from <= Millis(0) {
            return Millis(0);
        }
        let at = effective_from.max(self.clock);
        let place = self.cuts.binary_search_by_key(&at, |cut| cut.at);
        let place = place.unwrap_or_else(|place| {
            let rates = BTreeMap::new();
            self.cuts.insert(place, Cut { at, rates });
            place
        });
        let of_tenant = self.cuts[place].rates.entry(key.scope.tenant.clone());
        of_tenant.or_default().insert(key.clone());
        at
    }

    /// Whether a rate begins within the hour, and not with it.
    pub fn is_cut(&self, hour: Hour) -> bool {
        let begun = self.cuts.partition_point(|cut| cut.at <= hour.begin());
        let next = self.cuts.get(begun);
        next.is_some_and(|cut| cut.at < hour.end())
    }

    pub fn close(&mut self, month: Month) {
        self.closed_through = self.closed_through.max(Some(month));
    }

    /// In whose bill stands what becomes known now of an hour: its month's, or, if that is closed, the first open one's.
    pub fn period(&self, hour: Hour) -> Month {
        let month = Month::of(hour.begin());
        match self.closed_through {
            Some(closed) if month <= closed => closed.next(),
            _ => month,
        }
    }

    /// Returns the moment of the last cut that is not after `at`: within the hour of the last that fits, and before it of any, so that
    /// rows of an hour in which no rate begins have one moment.
    fn since(&self, at: Millis, fits: impl Fn(&Cut) -> bool) -> Millis {
        let begin = Hour::of(at).begin();
        let begun = self.cuts.partition_point(|cut| cut.at <= at);
        let mut newest_first = self.cuts[..begun].iter().rev();
        let newest = newest_first.find(|cut| cut.at <= begin || fits(cut));
        newest.map_or(Millis(0), |cut| cut.at)
    }

    /// Returns the same for the books of the capacity, which list prices cut.
    pub fn since_of_capacity(&self, at: Millis) -> Millis {
        self.since(at, Cut::is_of_list)
    }

    /// Cuts `[from, to)` for a use of these names; empty when it is.
    pub fn slices(
        &self,
        from: Millis,
        to: Millis,
        names: Names<'_>,
    ) -> impl Iterator<Item = Slice> {
        let mut at = from;
        std::iter::from_fn(move || {
            if at >= to {
                return None;
            }
            let hour = Hour::of(at);
            let ends = to.min(hour.end());
            let begun = self.cuts.partition_point(|cut| cut.at <= at);
            let mut next = self.cuts[begun..].iter().take_while(|cut| cut.at < ends);
            let end = next.find(|cut| cut.fits(names)).map_or(ends, |cut| cut.at);
            let slice = Slice {
                hour,
                since: self.since(at, |cut| cut.fits(names)),
                period: self.period(hour),
                ms: end.0 - at.0,
            };
            at = end;
            Some(slice)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*, sample::select};

    fn some(name: &str) -> Option<Token> {
        (!name.is_empty()).then(|| Token::new(name).unwrap())
    }

    /// Tenant, priority class, pool, cluster and GPU model; empty: all.
    fn key([tenant, class, pool, cluster, model]: [&str; 5]) -> RateKey {
        let kind = match model {
            "" => ResourceKind::Memory,
            _ => ResourceKind::Gpu,
        };
        RateKey {
            resource: ResourceKey {
                kind,
                model: some(model),
            },
            scope: RateScope {
                tenant: some(tenant),
                priority_class: some(class),
                pool: some(pool),
                cluster: some(cluster),
            },
        }
    }

    #[track_caller]
    fn check(calendar: &Calendar, from: i64, to: i64, expected: &[(i64, i64, i64)]) {
        check_of(["t", "", "", "", ""], calendar, from, to, expected);
    }

    #[track_caller]
    fn check_of(
        names: [&str; 5],
        calendar: &Calendar,
        from: i64,
        to: i64,
        expected: &[(i64, i64, i64)],
    ) {
        let of = names.map(some);
        let slices = calendar.slices(Millis(from), Millis(to), names_of(&of));
        let found: Vec<_> = slices.map(|s| (s.hour.0, s.since.0, s.ms)).collect();
        assert_eq!(found, expected, "[{from}, {to})");
    }

    fn names_of(
        [tenant, priority_class, pool, cluster, gpu_model]: &[Option<Token>; 5],
    ) -> Names<'_> {
        Names {
            tenant: tenant.as_ref().expect("use has a tenant"),
            priority_class: priority_class.as_ref(),
            pool: pool.as_ref(),
            cluster: cluster.as_ref(),
            gpu_model: gpu_model.as_ref(),
        }
    }

    #[test]
    fn rates_of_other_names_cut_nothing() {
        let mut calendar = Calendar::default();
        let all = [
            (7, ["other", "", "", "", ""]),
            (20, ["t", "", "", "", ""]),
            (30, ["", "k", "", "", ""]),
            (HOUR_MS + 5, ["other", "", "", "", ""]),
            (2 * HOUR_MS + 5, ["", "", "", "", "M"]),
        ];
        for (at, names) in all {
            calendar.rate_begins(&key(names), Millis(at));
        }
        let (first, second) = ((0, 0, 20), (0, 20, HOUR_MS - 20));
        // Before the hour, a rate of other names serves as well.
        let third = (1, 30, HOUR_MS);
        let of_plain = [first, second, third, (2, HOUR_MS + 5, 9)];
        check(&calendar, 0, 2 * HOUR_MS + 9, &of_plain);
        let cut_by_class = [(0, 20, 10), (0, 30, 1)];
        check_of(["t", "k", "", "", ""], &calendar, 20, 31, &cut_by_class);
        let cut_by_model = [(2, HOUR_MS + 5, 5), (2, 2 * HOUR_MS + 5, 4)];
        let (from, to) = (2 * HOUR_MS, 2 * HOUR_MS + 9);
        check_of(["t", "", "", "", "M"], &calendar, from, to, &cut_by_model);
        // The list prices are that of the model alone.
        let since = |at| calendar.since_of_capacity(Millis(at)).0;
        let moments = [31, HOUR_MS + 6, 2 * HOUR_MS + 6];
        assert_eq!(moments.map(since), [0, 30, 2 * HOUR_MS + 5]);
    }

    #[test]
    fn moments_of_a_state_without_keys_cut_all_use() {
        let before = (
            Millis(9),
            Millis(0),
            vec![Millis(7), Millis(8)],
            None::<Month>,
        );
        let snapshot = ledger::Snapshot::of(3, Default::default(), &before);
        let before: CalendarOf3 = snapshot.state(3).expect("the shape of version 3");
        let mut calendar = Calendar::from(before);
        let other = key(["other", "", "", "", ""]);
        assert_eq!(calendar.rate_begins(&other, Millis(5)), Millis(9));
        check(&calendar, 0, 12, &[(0, 0, 7), (0, 7, 1), (0, 8, 4)]);
        check_of(
            ["other", "", "", "", ""],
            &calendar,
            8,
            12,
            &[(0, 8, 1), (0, 9, 3)],
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Slices come to the whole stretch, and between the moment and the end of each no rate begins that fits.
        #[test]
        fn no_rate_that_fits_begins_within_a_slice(
            rates in vec((select(vec!["", "t", "u"]), select(vec!["", "k"]), select(vec!["", "p", "q"]), select(vec!["", "M"]), 1..9 * HOUR_MS), 0..30),
            (tenant, class, pool, model) in (select(vec!["t", "u"]), select(vec!["", "k"]), select(vec!["", "p"]), select(vec!["", "M"])),
            (one, other) in (0..9 * HOUR_MS, 0..9 * HOUR_MS),
        ) {
            let mut calendar = Calendar::default();
            for (tenant, class, pool, model, at) in &rates {
                calendar.rate_begins(&key([tenant, class, pool, "", model]), Millis(*at));
            }
            let fits = |named: &str, of: &str| named.is_empty() || named == of;
            let cuts = rates.iter().filter(|(t, k, p, m, _)| {
                fits(t, tenant) && fits(k, class) && fits(p, pool) && fits(m, model)
            });
            let cuts: Vec<i64> = cuts.map(|(.., at)| *at).collect();
            let of = [tenant, class, pool, "", model].map(some);
            let (from, to) = (one.min(other), one.max(other));
            let mut at = from;
            for slice in calendar.slices(Millis(from), Millis(to), names_of(&of)) {
                let end = at + slice.ms;
                prop_assert!(slice.ms > 0 && slice.hour == Hour::of(Millis(at)) && end <= slice.hour.end().0);
                prop_assert!(slice.since.0 <= at);
                prop_assert!(!cuts.iter().any(|cut| (slice.since.0 + 1..end).contains(cut)), "{:?} {:?}", slice, cuts);
                if !calendar.is_cut(slice.hour) {
                    let whole = slice.hour.begin().0.max(from)..slice.hour.end().0.min(to);
                    prop_assert_eq!(at..end, whole);
                    let newest = rates.iter().map(|(.., at)| *at).filter(|cut| *cut <= slice.hour.begin().0).max();
                    prop_assert_eq!(slice.since.0, newest.unwrap_or(0));
                }
                at = end;
            }
            prop_assert_eq!(at, to);
        }
    }

    #[test]
    fn a_run_is_cut_at_the_full_hours() {
        let plain = Calendar::default();
        check(&plain, 5, 5, &[]);
        check(&plain, 6, 5, &[]);
        check(&plain, 0, 1, &[(0, 0, 1)]);
        check(&plain, 0, HOUR_MS, &[(0, 0, HOUR_MS)]);
        check(&plain, HOUR_MS - 1, HOUR_MS + 1, &[(0, 0, 1), (1, 0, 1)]);
        let (first, last) = ((0, 0, HOUR_MS - 5), (2, 0, 7));
        check(&plain, 5, 2 * HOUR_MS + 7, &[first, (1, 0, HOUR_MS), last]);
        // Before 1970, which no clock should say.
        check(&plain, -1, 1, &[(-1, 0, 1), (0, 0, 1)]);
        check(
            &plain,
            i64::MAX - 1,
            i64::MAX,
            &[(i64::MAX / HOUR_MS, 0, 1)],
        );
    }

    #[test]
    fn a_run_is_cut_where_a_rate_begins() {
        let mut calendar = Calendar::default();
        for at in [0, 20, 7, 20] {
            calendar.rate_begins(&key([""; 5]), Millis(at));
        }
        check(&calendar, 0, 30, &[(0, 0, 7), (0, 7, 13), (0, 20, 10)]);
        check(&calendar, 7, 20, &[(0, 7, 13)]);
        check(&calendar, 20, 21, &[(0, 20, 1)]);
        // What was folded before is not cut any more.
        calendar.advance(Millis(50));
        assert_eq!(calendar.rate_begins(&key([""; 5]), Millis(40)), Millis(50));
        check(&calendar, 39, 51, &[(0, 20, 11), (0, 50, 1)]);
    }

    #[test]
    fn an_hour_is_over_once_and_never_again() {
        let mut calendar = Calendar::default();
        let mut check = |now: i64, expected: Option<(i64, i64)>| {
            let due = calendar
                .advance(Millis(now))
                .map(|due| (due.start.0, due.end.0));
            assert_eq!(due, expected, "{now}");
        };
        check(HOUR_MS - 1, None);
        check(HOUR_MS, Some((0, HOUR_MS)));
        check(HOUR_MS - 1, None);
        check(HOUR_MS, None);
        check(4 * HOUR_MS + 1, Some((HOUR_MS, 4 * HOUR_MS)));
    }

    #[test]
    fn what_comes_late_is_in_the_first_open_month() {
        let mut calendar = Calendar::default();
        let (october, november) = (Month(202_610), Month(202_611));
        let period = |calendar: &Calendar, month: Month| {
            let of = ["t", "", "", "", ""].map(some);
            let end = month.begin().plus(1);
            let slices = calendar.slices(month.begin(), end, names_of(&of));
            slices.map(|slice| slice.period.0).collect::<Vec<_>>()
        };
        assert_eq!(period(&calendar, october), [202_610]);
        calendar.close(october);
        assert_eq!(period(&calendar, Month(202_001)), [202_611]);
        assert_eq!(period(&calendar, october), [202_611]);
        assert_eq!(period(&calendar, november), [202_611]);
        calendar.close(Month(202_612));
        assert_eq!(period(&calendar, november), [202_701]);
    }
}
