//! What an answer looks like, as text in the server's form.

use std::fmt;

/// One value of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    Text(String),
    /// A float that the query has rounded to so many decimals.
    About(f64, i32),
}

pub type Row = Vec<Cell>;

impl Cell {
    /// A float is right up to the rounding of its last decimal; all else is the same text.
    pub fn is(&self, found: &str) -> bool {
        match self {
            Self::Text(text) => text == found,
            Self::About(number, decimals) => {
                let tolerance = 0.51 * 10f64.powi(-decimals);
                let found = found.parse::<f64>();
                found.is_ok_and(|found| (found - number).abs() <= tolerance)
            }
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::About(number, decimals) => write!(f, "~{number:.*}", *decimals as usize),
        }
    }
}

macro_rules! texts {
    ($($ty:ty)*) => {$(
        impl From<$ty> for Cell {
            fn from(value: $ty) -> Self {
                Self::Text(value.to_string())
            }
        }
    )*};
}

texts!(&str &&str String &String bool i32 u32 i64 u64 usize i128);

impl<C: Into<Cell>> From<Option<C>> for Cell {
    fn from(value: Option<C>) -> Self {
        value.map_or_else(|| Self::Text("\\N".to_owned()), Into::into)
    }
}

/// A row of an answer.
#[macro_export]
macro_rules! row {
    ($($cell:expr),* $(,)?) => { vec![$($crate::questions::answer::Cell::from($cell)),*] };
}

/// A row for each item.
pub fn rows<I: IntoIterator>(items: I, row: impl FnMut(I::Item) -> Row) -> Vec<Row> {
    items.into_iter().map(row).collect()
}

/// Hours or units, to three decimals.
pub fn hours(number: f64) -> Cell {
    Cell::About(number, 3)
}

/// Of what a percentage is, to two decimals.
pub fn percent(part: i128, whole: i128) -> Cell {
    Cell::About(100.0 * part as f64 / whole as f64, 2)
}

/// Milliseconds as hours.
pub fn ms_hours(ms: i64) -> Cell {
    hours(ms as f64 / 3_600_000.0)
}

/// Milli-unit-milliseconds as unit-hours.
pub fn milli_hours(quantity: i128) -> Cell {
    hours(quantity as f64 / 3.6e9)
}

/// A whole number of `10^-places`, without zeros at its end.
pub fn decimal(number: i128, places: usize) -> String {
    let digits = format!("{:0>width$}", number.unsigned_abs(), width = places + 1);
    let (whole, rest) = digits.split_at(digits.len() - places);
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{whole}.{rest}")
        .trim_end_matches('0')
        .trim_end_matches('.')
        .to_owned()
}

/// Micro-units as the currency.
pub fn money(micro: i128) -> String {
    decimal(micro, 6)
}

/// Moments of the history, which is in autumn 2026, by counting days.
pub mod when {
    use super::decimal;
    use vocab::{DAY_MS, HOUR_MS};

    /// 2026-09-01 00:00 UTC, a Tuesday.
    pub const SEPTEMBER: i64 = 1_788_220_800_000;
    pub const OCTOBER: i64 = SEPTEMBER + 30 * DAY_MS;
    pub const NOVEMBER: i64 = OCTOBER + 31 * DAY_MS;
    pub const DECEMBER: i64 = NOVEMBER + 30 * DAY_MS;

    /// Its first moment.
    pub fn month(at: i64) -> i64 {
        match at {
            ..OCTOBER => SEPTEMBER,
            OCTOBER..NOVEMBER => OCTOBER,
            NOVEMBER..DECEMBER => NOVEMBER,
            _ => DECEMBER,
        }
    }

    pub fn hour(at: i64) -> i64 {
        at / HOUR_MS * HOUR_MS
    }

    pub fn date(at: i64) -> String {
        if at == 0 {
            return "1970-01-01".to_owned();
        }
        let number = match month(at) {
            SEPTEMBER => "09",
            OCTOBER => "10",
            NOVEMBER => "11",
            _ => "12",
        };
        format!("2026-{number}-{:02}", (at - month(at)) / DAY_MS + 1)
    }

    pub fn seconds(at: i64) -> String {
        let ms = at % DAY_MS;
        let (hour, minute, second) = (ms / HOUR_MS, ms / 60_000 % 60, ms / 1000 % 60);
        format!("{} {hour:02}:{minute:02}:{second:02}", date(at))
    }

    pub fn millis(at: i64) -> String {
        format!("{}.{:03}", seconds(at), at % 1000)
    }

    /// On a Saturday or Sunday.
    pub fn at_weekend(at: i64) -> bool {
        // The first Saturday is the 5th.
        ((at - SEPTEMBER) / DAY_MS + 3) % 7 < 2
    }

    #[test]
    fn moments_are_written_as_the_server_does() {
        assert_eq!(
            millis(1_793_491_200_000 + 3_661_007),
            "2026-11-01 01:01:01.007"
        );
        assert_eq!(seconds(OCTOBER - 1), "2026-09-30 23:59:59");
        // 2026-11-01 was a Sunday.
        assert!(at_weekend(NOVEMBER) && at_weekend(NOVEMBER - 1) && !at_weekend(NOVEMBER + DAY_MS));
        assert_eq!(decimal(-1_050_000, 6), "-1.05");
        assert_eq!(decimal(3, 3), "0.003");
    }
}
