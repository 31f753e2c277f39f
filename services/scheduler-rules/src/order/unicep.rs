//! UNICEP of Tang et al., "Fault-Aware, Utility-Based Job Scheduling on Blue Gene/P Systems", CLUSTER 2009:
//! `-w / (log2(n) r)`, with w the wait, r the estimate, n the processors. Small jobs that waited long go first, and before
//! all others those of one processor, of which the formula has no finite score.

use super::{
    Waiting,
    log2::{FRACTION_BITS, log2},
    signed,
};

/// The formula with a logarithm of one that is as small as the number format allows, and not 0.
pub fn score(waiting: &Waiting, now_ms: i64) -> i128 {
    let waited_ms = waiting.waited_ms(now_ms);
    let log2_of_size = log2(waiting.size).unsigned_abs().max(1);
    let quotient = i128::from(log2(waited_ms.unsigned_abs()))
        - i128::from(log2(waiting.estimate_ms))
        - i128::from(log2(log2_of_size))
        + (i128::from(FRACTION_BITS) << FRACTION_BITS);
    signed(waited_ms.saturating_neg(), quotient)
}

#[cfg(test)]
mod tests {
    use crate::order::{Order, tests::served};

    fn check(now_s: i64, jobs: &[(i64, u64, u64)], expected: &str) {
        assert_eq!(served(Order::Unicep, now_s, jobs), expected);
    }

    #[test]
    fn the_wait_per_run_time_and_logarithm_of_size() {
        check(100, &[(50, 10, 4), (0, 10, 4)], "2 1");
        check(100, &[(0, 20, 4), (0, 10, 4)], "2 1");
        // 16 processors count twice as much as 4.
        check(100, &[(0, 10, 16), (40, 10, 4), (60, 10, 4)], "2 1 3");
        check(100, &[(0, 10, 2), (99, 1000, 1)], "2 1");
    }

    #[test]
    fn a_negative_wait_turns_it_round() {
        check(-1, &[(99, 10, 4), (9, 10, 4)], "2 1");
        check(-1, &[(9, 10, 1), (99, 10, 2), (99, 10, 256)], "3 2 1");
    }
}
