//! First come, first served.

use super::Waiting;

pub fn score(waiting: &Waiting) -> i128 {
    waiting.submitted_ms.into()
}

#[cfg(test)]
mod tests {
    use crate::order::{Order, tests::served};

    fn check(jobs: &[(i64, u64, u64)], expected: &str) {
        assert_eq!(served(Order::Fcfs, 100, jobs), expected);
    }

    #[test]
    fn by_arrival() {
        check(&[], "");
        check(&[(5, 1, 1), (3, 9, 9), (4, 1, 1)], "2 3 1");
        check(&[(5, 9, 9), (5, 1, 1)], "1 2");
    }
}
