//! Devices in use first, then free devices of nodes in use, then free nodes, the smaller ones first.
//!
//! Published as: without GPU 0; with all n devices of the node free `max(33 - n, n)`; else, with f free ones among the
//! chosen devices, `max(50 - f, 33)`; with none, `max(100 - p / 10, 50)`, p being what percentage of the chosen is free.

use super::{Free, Request, free::DEVICE_MILLI, tightest};

/// Only for a room that it fits in.
pub fn score(room: &Free, ask: &Request) -> u32 {
    if ask.gpus() == 0 {
        return 0;
    }
    let free = room.gpu_milli();
    if free.iter().all(|free| *free == DEVICE_MILLI) {
        // At most 16.
        let count = free.len() as u32;
        return (33 - count).max(count);
    }
    let chosen = tightest(room, ask);
    let free_of = |device: u16| u32::from(free[usize::from(device)]);
    let whole = |device: u16| free_of(device) == u32::from(DEVICE_MILLI);
    let wholes = chosen.iter().filter(|share| whole(share.device)).count() as u32;
    if wholes > 0 {
        return 50u32.saturating_sub(wholes).max(33);
    }
    let milli: u32 = chosen.iter().map(|share| free_of(share.device)).sum();
    100u32.saturating_sub(milli.div_ceil(100)).max(50)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scoring::tests::{ask, room};

    #[track_caller]
    fn check(node: &str, of: &str, expected: u32) {
        assert_eq!(score(&room(node), &ask(of)), expected);
    }

    #[test]
    fn as_published() {
        check("8c 1000 1000", "1c", 0);
        check("8c 1000 1000", "1c 1x500", 31);
        check(
            "8c 1000 1000 1000 1000 1000 1000 1000 1000",
            "1c 8x1000",
            25,
        );
        check("8c 1000 1000 500", "1c 1x1000", 49);
        check("8c 1000 1000 500", "1c 2x1000", 48);
        check("8c 1000 500", "1c 1x500", 95);
        check("8c 1000 505", "1c 1x500", 94);
        check("8c 1000 900", "1c 1x500", 91);
    }
}
