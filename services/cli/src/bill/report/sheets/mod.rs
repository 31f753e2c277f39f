//! The tables of a report, made of what the store says.

mod capacity;
mod forecast;
mod money;
mod runs;

pub use capacity::{IdleByHour, STATES, States, idle_by_hour, over_time, summed, utilization};
pub use forecast::{budgets_ahead, month_ahead};
pub use money::{
    Charge, OneBudget, budgets, charged, charges, costs, reconciled, shares, spender_name,
    spent_part, top,
};
pub use runs::{ends, longest, size, sizes, waits};

use super::super::{money, used};
use crate::{
    amount,
    print::{Cell, counted},
};

/// Hundredths of a percent, rounded towards zero; 0 of nothing.
pub fn basis_points(part: i128, whole: i128) -> i128 {
    part.saturating_mul(10_000)
        .checked_div(whole)
        .unwrap_or_default()
}

fn percent(part: i128, whole: i128) -> Cell {
    let points = basis_points(part, whole);
    let sign = if points < 0 { "-" } else { "" };
    let points = points.unsigned_abs();
    let number = format!("{sign}{}.{:02}", points / 100, points % 100);
    counted(format!("{number} %"), number)
}

/// `350ms`, or in the two largest units.
fn waited(ms: i64) -> Cell {
    let text = match ms {
        0..1000 => format!("{ms}ms"),
        _ => amount::age(ms),
    };
    counted(text, ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(cell: Cell) -> String {
        cell.text
    }

    #[test]
    fn parts_are_rounded_towards_zero() {
        let check = |part, whole, expected: &str| {
            assert_eq!(text(percent(part, whole)), expected, "{part} of {whole}");
        };
        check(1, 3, "33.33 %");
        check(-1, 200, "-0.50 %");
        check(5, 0, "0.00 %");
        check(2, 2, "100.00 %");
    }

    #[test]
    fn short_waits_are_in_milliseconds() {
        let check = |ms, expected: &str| assert_eq!(text(waited(ms)), expected);
        check(0, "0ms");
        check(999, "999ms");
        check(61_500, "1m1s");
    }
}
