//! By what is left to do, for queues that preempt.
//!
//! SRTF, shortest remaining time first, is the classical one. SRSF, shortest remaining service first, is the time by the
//! devices: Gu et al., "Tiresias", NSDI 2019.

use super::Waiting;

pub fn srtf(waiting: &Waiting) -> i128 {
    waiting.remaining_ms.into()
}

pub fn srsf(waiting: &Waiting) -> i128 {
    i128::from(waiting.remaining_ms).saturating_mul(waiting.size.into())
}

#[cfg(test)]
mod tests {
    use crate::order::{Order, tests::served};

    fn check(order: Order, jobs: &[(i64, u64, u64)], expected: &str) {
        assert_eq!(served(order, 0, jobs), expected);
    }

    #[test]
    fn size_counts_for_service_only() {
        let jobs = [(0, 300, 1), (0, 100, 8), (0, 200, 2)];
        check(Order::Srtf, &jobs, "2 3 1");
        check(Order::Srsf, &jobs, "1 3 2");
        check(Order::Srsf, &[(2, 100, 2), (1, 200, 1)], "2 1");
    }
}
