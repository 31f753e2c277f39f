//! Requests of one kind together: shares, and one, two, four, eight devices.
//!
//! Published as: without GPU 0; else `25 (8000 - U) / 8000`, U being the node's free milli-GPU before, plus 75 when the
//! node has only requests of this kind, 50 when also others, 25 when none with GPU, 0 when only others; truncated.

use super::{Free, GpuKind, Request};

/// Only for a room that it fits in.
pub fn score(room: &Free, ask: &Request) -> u32 {
    let Some(kind) = ask.kind() else {
        return 0;
    };
    let others = GpuKind::ALL
        .into_iter()
        .any(|other| other != kind && room.hosts(other));
    let company = match (room.hosts(kind), others) {
        (true, false) => 75,
        (true, true) => 50,
        (false, false) => 25,
        (false, true) => 0,
    };
    // At most 25.
    company + (25 * 8000u64.saturating_sub(room.gpu_milli_total()) / 8000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scoring::{
        Policy, Popularity, devices,
        tests::{ask, room},
    };

    /// The score once the others are there.
    #[track_caller]
    fn check(node: &str, others: &[&str], of: &str, expected: u32) {
        let mut room = room(node);
        for other in others {
            let other = ask(other);
            let gpus = devices(Policy::GpuClustering, &Popularity::default(), &room, &other);
            room.take(other.cpu_milli(), other.memory_bytes(), &gpus.unwrap())
                .unwrap();
        }
        assert_eq!(score(&room, &ask(of)), expected);
    }

    #[test]
    fn as_published() {
        let node = "8c 1000 1000 1000 1000";
        check(node, &[], "1c", 0);
        check(node, &[], "1c 1x500", 25 + 12);
        check(node, &["1c 1x1000"], "1c 1x500", 15);
        check(node, &["1c 1x100"], "1c 1x500", 75 + 12);
        check(node, &["1c 1x100", "1c 1x1000", "1c"], "1c 1x500", 50 + 15);
        check(node, &["1c 2x1000"], "1c 2x1000", 75 + 18);
    }
}
