//! The node whose free amounts are least alike the request's.
//!
//! Published as `100 (1 - (C c / 128000^2 + U g / 8000^2) / 2)`, truncated, with C and U the node's free millicores and
//! milli-GPU before, c and g the request. Counted down from 1000, as in best fit.

use super::{Free, Request, best_fit::SCORE_MAX};

/// 128000^2, which is 256 times 8000^2.
const CPU_SQUARE: u128 = 128_000 * 128_000;

/// Only for a room that it fits in.
pub fn score(room: &Free, ask: &Request) -> u32 {
    let product = |free: u64, wanted: u64| u128::from(free) * u128::from(wanted);
    let cpu = product(room.cpu_milli(), ask.cpu_milli());
    let gpu = product(room.gpu_milli_total(), ask.gpu_milli_total());
    let steps = (100 * (cpu + 256 * gpu)).div_ceil(2 * CPU_SQUARE);
    SCORE_MAX.saturating_sub(u32::try_from(steps).unwrap_or(SCORE_MAX))
}

#[cfg(test)]
mod tests {
    use crate::scoring::{Policy, Popularity, tests};

    #[track_caller]
    fn check(nodes: &[&str], ask: &str, expected: &str) {
        tests::check(
            Policy::DotProduct,
            &Popularity::default(),
            nodes,
            ask,
            expected,
        );
    }

    #[test]
    fn the_least_alike_wins() {
        check(
            &["96c 1000 1000 1000 1000", "96c 1000 1000"],
            "8c 1x1000",
            "1 0",
        );
        check(&["96c 1000 1000", "32c 1000 1000 1000"], "32c 1x100", "1 0");
        check(&["8c 300 200", "8c 200 200"], "8c 1x300", "0 0");
    }
}
