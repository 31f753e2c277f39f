//! A moment, as Unix milliseconds of the cell's clock, and the months of the calendar.

use serde::{Deserialize, Serialize};
use std::fmt;

pub const HOUR_MS: i64 = 3_600_000;
pub const DAY_MS: i64 = 24 * HOUR_MS;

/// Unix milliseconds of the cell's clock, which may be a recorded one.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    wire::Wire,
)]
#[wire(transparent)]
pub struct Millis(pub i64);

impl Millis {
    pub fn plus(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Returns the milliseconds from `earlier` to this moment, saturating at the bounds of an `i64`.
    pub fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The moment, moved into `[low, high]`; `high` wins where the two cross.
    pub fn between(self, low: Self, high: Self) -> Self {
        self.max(low).min(high)
    }
}

/// A month of the calendar, in UTC: 202611 is November 2026. What a bill is for.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    wire::Wire,
)]
#[wire(transparent)]
pub struct Month(pub u32);

impl Month {
    pub const FIRST: Self = Self(197_001);
    /// So far a moment of a table reaches.
    pub const LAST: Self = Self(219_912);

    /// The month that a moment is in; what lies before the first or behind the last one is taken as in it.
    pub fn of(at: Millis) -> Self {
        let (year, month) = year_and_month(at.0.div_euclid(DAY_MS));
        let year = u32::try_from(year.clamp(0, 9999)).unwrap_or(0);
        // 1..=12.
        Self(year * 100 + month.unsigned_abs() as u32).clamp(Self::FIRST, Self::LAST)
    }

    /// `2026-11`.
    pub fn parse(text: &str) -> Option<Self> {
        let (year, month) = text.split_once('-')?;
        let digits = |text: &str, count| {
            let plain = text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
            plain.then(|| text.parse::<u32>().ok()).flatten()
        };
        Self(digits(year, 4)? * 100 + digits(month, 2)?).checked()
    }

    /// None if there is no such month.
    pub fn checked(self) -> Option<Self> {
        let there = (1..=12).contains(&(self.0 % 100));
        (there && (Self::FIRST..=Self::LAST).contains(&self)).then_some(self)
    }

    /// Its first moment.
    pub fn begin(self) -> Millis {
        let (year, month) = (i64::from(self.0 / 100), i64::from(self.0 % 100));
        Millis(days_before(year, month) * DAY_MS)
    }

    /// The first moment that is not in it any more.
    pub fn end(self) -> Millis {
        self.next().begin()
    }

    pub fn next(self) -> Self {
        Self(match self.0 % 100 {
            12 => self.0 + 89,
            _ => self.0 + 1,
        })
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.0 / 100, self.0 % 100)
    }
}

/// Days from 1970-01-01 to the first of a month, in the proleptic Gregorian calendar. The year is counted from March, so
/// that the leap day is its last (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn days_before(year: i64, month: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5;
    let day_of_era = of_era * 365 + of_era / 4 - of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

fn year_and_month(days: i64) -> (i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * of_era + of_era / 4 - of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = of_era + era * 400 + i64::from(month <= 2);
    (year, month)
}

/// Of a day since 1970-01-01: the year, the month (1 to 12) and the day of the month (from 1).
pub fn date(days: i64) -> (i64, i64, i64) {
    let (year, month) = year_and_month(days);
    (year, month, days - days_before(year, month) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, begin: &str, next: &str) {
        let month = Month::parse(text).expect("a month");
        let begin: i64 = begin.parse().expect("a moment");
        assert_eq!((month.begin().0, month.to_string().as_str()), (begin, text));
        assert_eq!(month.next().to_string(), next);
        for at in [month.begin(), Millis(month.end().0 - 1)] {
            assert_eq!(Month::of(at), month);
        }
        assert_eq!(Month::of(month.end()), month.next());
    }

    #[test]
    fn months_are_those_of_the_calendar() {
        check("1970-01", "0", "1970-02");
        check("2024-02", "1706745600000", "2024-03");
        check("2026-11", "1793491200000", "2026-12");
        check("2026-12", "1796083200000", "2027-01");
        for text in [
            "2026-13", "2026-00", "2026-1", "1969-12", "2200-01", "26-11", "2026-+1", "",
        ] {
            assert_eq!(Month::parse(text), None, "{text}");
        }
        assert_eq!(Month::of(Millis(i64::MIN)), Month::FIRST);
        assert_eq!(Month::of(Millis(i64::MAX)), Month::LAST);
    }
}
