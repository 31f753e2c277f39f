//! Any node that fits, any device of it that fits.

use super::{Free, Request, mix};

pub fn score(salt: u64) -> u32 {
    (mix(salt) >> 32) as u32
}

/// Only for a room that the share fits in.
pub fn device(salt: u64, room: &Free, ask: &Request) -> u16 {
    let count = room.fitting(ask.gpu_milli()).count().max(1) as u64;
    // Less than the count, which is at most 16.
    let at = (mix(!salt) % count) as usize;
    room.fitting(ask.gpu_milli())
        .nth(at)
        .map_or(0, |(device, _)| device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scoring::tests::{ask, room};

    #[test]
    fn every_fitting_device_has_its_turn() {
        let mut turns = [0; 4];
        for salt in 0..3000 {
            turns[usize::from(device(
                salt,
                &room("8c 1000 200 500 1000"),
                &ask("1c 1x300"),
            ))] += 1;
        }
        assert_eq!(turns[1], 0);
        assert!(
            turns
                .iter()
                .all(|turns| *turns == 0 || (900..1100).contains(turns)),
            "{turns:?}"
        );
    }

    #[test]
    fn scores_are_spread_over_all_numbers() {
        let low = (0..1000).filter(|salt| score(*salt) < 1 << 30).count();
        assert!((200..300).contains(&low), "{low}");
    }
}
