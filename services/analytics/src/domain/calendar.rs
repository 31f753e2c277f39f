//! How time is cut for the bill: at the full hours, and wherever a rate begins.

use serde::{Deserialize, Serialize};
use std::ops::Range;
use vocab::{HOUR_MS, Millis, Month};

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

/// A stretch of one hour in which all rates are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    pub hour: Hour,
    /// When the newest rate began that is in force in it; 0: before any began.
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
    /// Where rates begin, in order.
    cuts: Vec<Millis>,
    closed_through: Option<Month>,
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
    pub fn rate_begins(&mut self, effective_from: Millis) -> Millis {
        if effective_from <= Millis(0) {
            return Millis(0);
        }
        let at = effective_from.max(self.clock);
        if let Err(place) = self.cuts.binary_search(&at) {
            self.cuts.insert(place, at);
        }
        at
    }

    /// Whether a rate begins within the hour, and not with it.
    pub fn is_cut(&self, hour: Hour) -> bool {
        let begun = self.cuts.partition_point(|cut| *cut <= hour.begin());
        let next = self.cuts.get(begun);
        next.is_some_and(|cut| *cut < hour.end())
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

    /// When the newest rate began that is in force then.
    pub fn since(&self, at: Millis) -> Millis {
        let begun = self.cuts.partition_point(|cut| *cut <= at);
        begun
            .checked_sub(1)
            .map_or(Millis(0), |newest| self.cuts[newest])
    }

    /// Cuts `[from, to)`; empty when it is.
    pub fn slices(&self, from: Millis, to: Millis) -> impl Iterator<Item = Slice> {
        let mut at = from;
        std::iter::from_fn(move || {
            if at >= to {
                return None;
            }
            let hour = Hour::of(at);
            let begun = self.cuts.partition_point(|cut| *cut <= at);
            let next = self.cuts.get(begun).copied().unwrap_or(to);
            let end = to.min(hour.end()).min(next);
            let slice = Slice {
                hour,
                since: self.since(at),
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

    #[track_caller]
    fn check(calendar: &Calendar, from: i64, to: i64, expected: &[(i64, i64, i64)]) {
        let slices = calendar.slices(Millis(from), Millis(to));
        let found: Vec<_> = slices.map(|s| (s.hour.0, s.since.0, s.ms)).collect();
        assert_eq!(found, expected, "[{from}, {to})");
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
            calendar.rate_begins(Millis(at));
        }
        check(&calendar, 0, 30, &[(0, 0, 7), (0, 7, 13), (0, 20, 10)]);
        check(&calendar, 7, 20, &[(0, 7, 13)]);
        check(&calendar, 20, 21, &[(0, 20, 1)]);
        // What was folded before is not cut any more.
        calendar.advance(Millis(50));
        assert_eq!(calendar.rate_begins(Millis(40)), Millis(50));
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
            let slices = calendar.slices(month.begin(), month.begin().plus(1));
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
