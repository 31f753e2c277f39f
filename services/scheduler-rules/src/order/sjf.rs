//! Shortest job first, by estimate.

use super::Waiting;

pub fn score(waiting: &Waiting) -> i128 {
    waiting.estimate_ms.into()
}

#[cfg(test)]
mod tests {
    use crate::order::{Order, tests::served};

    fn check(jobs: &[(i64, u64, u64)], expected: &str) {
        assert_eq!(served(Order::Sjf, 100, jobs), expected);
    }

    #[test]
    fn by_estimate_then_arrival() {
        check(&[(1, 30, 1), (2, 20, 64), (3, 10, 1)], "3 2 1");
        check(&[(2, 20, 1), (1, 20, 64), (3, 20, 1)], "2 1 3");
    }
}
