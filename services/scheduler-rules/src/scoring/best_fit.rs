//! The node that it leaves least free.
//!
//! Published as `100 (1 - (C - c) / 256000 - (U - g) / 16000)`, truncated, with C and U the node's free millicores and
//! milli-GPU before, c and g the request. Here it is counted down from 1000, which is the same order and also has places
//! for nodes larger than the published ones.

use super::{Free, Request};

pub const SCORE_MAX: u32 = 1000;

/// Only for a room that it fits in.
pub fn score(room: &Free, ask: &Request) -> u32 {
    let cpu_milli = room.cpu_milli() - ask.cpu_milli();
    let gpu_milli = room.gpu_milli_total() - ask.gpu_milli_total();
    let left = (cpu_milli + 16 * gpu_milli).div_ceil(2560);
    SCORE_MAX.saturating_sub(u32::try_from(left).unwrap_or(SCORE_MAX))
}

#[cfg(test)]
mod tests {
    use crate::scoring::{Policy, Popularity, tests};

    #[track_caller]
    fn check(nodes: &[&str], ask: &str, expected: &str) {
        tests::check(
            Policy::BestFit,
            &Popularity::default(),
            nodes,
            ask,
            expected,
        );
    }

    #[test]
    fn the_tightest_node_and_device_win() {
        let nodes = ["64c 1000 1000 1000", "8c 1000 300 500"];
        check(&nodes, "4c", "1");
        check(&nodes, "4c 1x400", "1 2");
        check(&nodes, "4c 1x1000", "1 0");
        check(&nodes, "4c 2x1000", "0 0 1");
        check(&nodes, "32c", "0");
        check(&nodes, "65c", "none");
    }

    #[test]
    fn a_step_is_256_hundredths_of_a_core() {
        check(&["10c", "8c"], "8c", "1");
        check(&["40c 1000", "25c"], "8c", "1");
        // Both leave one step.
        check(&["10c", "9c"], "8c", "0");
    }
}
