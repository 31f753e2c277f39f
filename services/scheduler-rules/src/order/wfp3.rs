//! WFP3 of Tang et al., "Fault-Aware, Utility-Based Job Scheduling on Blue Gene/P Systems", CLUSTER 2009:
//! `-((w / r)^3) n`, with w the wait, r the estimate, n the processors. The long wait of a short or large job weighs most.

use super::{Waiting, log2::log2, signed};

pub fn score(waiting: &Waiting, now_ms: i64) -> i128 {
    let waited_ms = waiting.waited_ms(now_ms);
    let ratio = log2(waited_ms.unsigned_abs()) - log2(waiting.estimate_ms);
    signed(
        waited_ms.saturating_neg(),
        3 * i128::from(ratio) + i128::from(log2(waiting.size)),
    )
}

#[cfg(test)]
mod tests {
    use crate::order::{Order, tests::served};

    fn check(now_s: i64, jobs: &[(i64, u64, u64)], expected: &str) {
        assert_eq!(served(Order::Wfp3, now_s, jobs), expected);
    }

    #[test]
    fn the_cube_of_the_wait_per_run_time_by_size() {
        check(100, &[(50, 10, 1), (0, 10, 1)], "2 1");
        check(100, &[(0, 20, 1), (0, 10, 1)], "2 1");
        // 8 against 7, 9 processors with half the wait.
        check(100, &[(50, 10, 7), (0, 10, 1), (50, 10, 9)], "3 2 1");
        // A wait below the run time is still a wait.
        check(100, &[(100, 1, 1), (99, 1000, 1)], "2 1");
    }

    #[test]
    fn a_negative_wait_turns_it_round() {
        check(-1, &[(9, 10, 1), (99, 10, 1)], "1 2");
        check(-1, &[(99, 10, 1), (99, 100, 1)], "2 1");
        check(-1, &[(99, 10, 1), (99, 10, 9), (-1, 10, 1)], "3 1 2");
    }
}
