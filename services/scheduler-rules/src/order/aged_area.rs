//! The default: the smallest area first, and an area shrinks with the slowdown that its job has suffered.
//!
//! `r n / sqrt(S)` with `S = (w + r) / r`; w is the wait, n the processors, r the estimate, of at least ten seconds as in
//! bounded slowdown (Feitelson and Rudolph, 1998). `r n` is Smith's rule for the mean wait where jobs have a width. The
//! divisor is 1 for whoever comes and grows without end while a job waits, so everybody's turn comes; against one of a
//! tenth of the area at the hundredfold slowdown. That is late where far smaller jobs never stop coming: a queue that has
//! to bound its waits is ordered by arrival.

use super::{Waiting, log2::log2};

const RUN_MS_MIN: u64 = 10_000;

/// Twice the logarithm: `3 log2(r) + 2 log2(n) - log2(w + r)`.
pub fn score(waiting: &Waiting, now_ms: i64) -> i128 {
    let run_ms = waiting.estimate_ms.max(RUN_MS_MIN);
    let waited_ms = u64::try_from(waiting.waited_ms(now_ms)).unwrap_or(0);
    3 * i128::from(log2(run_ms)) + 2 * i128::from(log2(waiting.size))
        - i128::from(log2(run_ms.saturating_add(waited_ms)))
}

#[cfg(test)]
mod tests {
    use crate::order::{Order, tests::served};

    fn check(now_s: i64, jobs: &[(i64, u64, u64)], expected: &str) {
        assert_eq!(served(Order::AgedArea, now_s, jobs), expected);
    }

    #[test]
    fn the_smallest_area_goes_first() {
        check(0, &[(0, 100, 8), (0, 100, 4), (0, 300, 1)], "3 2 1");
        // Below ten seconds the run time does not count.
        check(0, &[(0, 9, 1), (0, 1, 1), (0, 1, 2)], "1 2 3");
    }

    #[test]
    fn nine_times_the_slowdown_is_worth_a_third_of_the_area() {
        check(800, &[(0, 100, 8), (800, 100, 3), (800, 100, 2)], "3 1 2");
    }

    #[test]
    fn a_tenth_of_the_area_goes_first_up_to_the_hundredfold_slowdown() {
        let old = (0, 1000, 16);
        check(98_000, &[old, (98_000, 100, 16)], "2 1");
        check(100_000, &[old, (100_000, 100, 16)], "1 2");
    }
}
