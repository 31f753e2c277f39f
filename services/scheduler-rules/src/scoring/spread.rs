//! The least allocated node first, and the least allocated device of it.

use super::{Free, Request, free::DEVICE_MILLI};

/// What stays free, in thousandths of the capacity, as the mean over what the node has. Only for a room that it fits in.
pub fn score(room: &Free, ask: &Request) -> u32 {
    let gpu_milli_capacity = room.gpu_milli().len() as u64 * u64::from(DEVICE_MILLI);
    let amounts = [
        (
            room.cpu_milli() - ask.cpu_milli(),
            room.cpu_milli_capacity(),
        ),
        (
            room.memory_bytes() - ask.memory_bytes(),
            room.memory_bytes_capacity(),
        ),
        (
            room.gpu_milli_total() - ask.gpu_milli_total(),
            gpu_milli_capacity,
        ),
    ];
    let parts = amounts.into_iter().filter(|(_, capacity)| *capacity > 0);
    let parts = parts.map(|(free, capacity)| u128::from(free) * 1000 / u128::from(capacity));
    let (sum, count) = parts.fold((0, 0), |(sum, count), part| (sum + part, count + 1));
    // At most 1000.
    (sum / count.max(1)) as u32
}

/// Only for a room that the share fits in.
pub fn device(room: &Free, ask: &Request) -> u16 {
    let fitting = room.fitting(ask.gpu_milli());
    let most = fitting.max_by_key(|(device, free)| (*free, std::cmp::Reverse(*device)));
    most.map_or(0, |(device, _)| device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scoring::{
        Policy, Popularity,
        tests::{self, ask, room},
    };

    #[test]
    fn the_emptiest_wins() {
        let check = |nodes: &[&str], ask, expected| {
            tests::check(Policy::Spread, &Popularity::default(), nodes, ask, expected);
        };
        check(&["8c 1000 300", "8c 1000 400"], "4c 1x300", "1 0");
        check(&["8c 300 1000 1000"], "4c 1x300", "0 1");
        check(&["8c", "9c"], "4c", "1");
        check(&["0c", "0c"], "0c", "0");
    }

    #[test]
    fn a_score_is_what_stays_free() {
        assert_eq!(
            score(&room("8c 1000 400"), &ask("2c 1x200")),
            (750 + 750 + 600) / 3
        );
        let mut half = room("8c");
        half.take(4000, 0, &[]).unwrap();
        assert_eq!(score(&half, &ask("2c")), (250 + 750) / 2);
    }
}
