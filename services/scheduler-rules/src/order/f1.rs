//! F1 of Carastan-Santos and de Camargo, "Obtaining Dynamic Scheduling Policies with Simulation and Machine Learning",
//! SC 2017: `log10(r) n + 870 log10(s)`, with r the estimate and s the submit time in seconds, n the processors.
//!
//! The weight is fitted to seconds since a log began. Under a calendar clock s hardly changes, and the first term decides.

use super::{Waiting, log2::log2_of_seconds};

const SUBMIT_WEIGHT: i128 = 870;

/// In binary logarithms: a common factor does not change the order.
pub fn score(waiting: &Waiting) -> i128 {
    let submitted_ms = u64::try_from(waiting.submitted_ms).unwrap_or(0);
    i128::from(log2_of_seconds(waiting.estimate_ms)) * i128::from(waiting.size)
        + SUBMIT_WEIGHT * i128::from(log2_of_seconds(submitted_ms))
}

#[cfg(test)]
mod tests {
    use crate::order::{Order, tests::served};

    fn check(jobs: &[(i64, u64, u64)], expected: &str) {
        assert_eq!(served(Order::F1, 0, jobs), expected);
    }

    #[test]
    fn small_first_unless_it_came_much_later() {
        check(&[(1000, 100, 8), (1000, 100, 4)], "2 1");
        check(&[(1000, 100, 8), (1000, 10, 8)], "2 1");
        // 2 * 8 + 870 * 3 = 2626; 2 * 4 + 870 * 3.0043 = 2621.8 and at 1020 s 2625.5, at 1022 s 2626.2.
        check(
            &[
                (1000, 100, 8),
                (1010, 100, 4),
                (1020, 100, 4),
                (1022, 100, 4),
            ],
            "2 3 1 4",
        );
    }
}
