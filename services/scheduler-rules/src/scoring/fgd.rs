//! Fragmentation gradient descent: the node whose fragmentation grows least.
//!
//! Published as `100 sigmoid((F_before - F_after) / 1000)`, truncated, with F in milli-GPU: see `fragmentation`. A share is
//! tried on every device that it fits on, and goes to the first of the best.

use super::{Free, Popularity, Request, fragmentation::WHOLE, tightest};

/// `1000 ln(k / (100 - k))` for k from 51 to 99, in millionths of a device: from here on the score is k.
const STEPS: [i64; 49] = [
    40_005, 80_043, 120_144, 160_343, 200_671, 241_162, 281_851, 322_773, 363_965, 405_465,
    447_312, 489_548, 532_217, 575_364, 619_039, 663_294, 708_185, 753_772, 800_119, 847_298,
    895_384, 944_462, 994_623, 1_045_969, 1_098_612, 1_152_680, 1_208_311, 1_265_666, 1_324_925,
    1_386_294, 1_450_010, 1_516_347, 1_585_627, 1_658_228, 1_734_601, 1_815_290, 1_900_959,
    1_992_430, 2_090_741, 2_197_225, 2_313_635, 2_442_347, 2_586_689, 2_751_535, 2_944_439,
    3_178_054, 3_476_099, 3_891_820, 4_595_120,
];

/// Only for a room that it fits in.
pub fn score(popularity: &Popularity, room: &Free, ask: &Request) -> u32 {
    if ask.is_share() {
        best_share(popularity, room, ask).0
    } else {
        let usable = popularity.usable();
        let after = usable.of(&room.without(ask, &tightest(room, ask)));
        squash(gain(ask, usable.of(room), after))
    }
}

/// Only for a room that the share fits in.
pub fn device(popularity: &Popularity, room: &Free, ask: &Request) -> u16 {
    best_share(popularity, room, ask).1
}

fn best_share(popularity: &Popularity, room: &Free, ask: &Request) -> (u32, u16) {
    let usable = popularity.usable();
    let before = usable.of(room);
    let each = usable.after_share(room, ask);
    let scored = each.map(|(device, after)| (squash(gain(ask, before, after)), device));
    scored
        .reduce(|best, next| if next.0 > best.0 { next } else { best })
        .unwrap_or_default()
}

/// By how much less is fragmented afterwards, in parts of `WHOLE`: what is not usable is, and what is taken was free.
fn gain(ask: &Request, usable_before: u64, usable_after: u64) -> i64 {
    // Each far below 2^62.
    (ask.gpu_milli_total() * WHOLE + usable_after) as i64 - usable_before as i64
}

/// 100 times the sigmoid, truncated.
fn squash(gain: i64) -> u32 {
    const UNIT: i64 = WHOLE as i64 / 1000;
    let steps = |over: &dyn Fn(i64) -> bool| STEPS.partition_point(|step| over(*step)) as u32;
    if gain >= 0 {
        50 + steps(&|step| gain >= step * UNIT)
    } else {
        // Truncated downwards: just below a step is the score below it.
        49 - steps(&|step| -gain > step * UNIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scoring::{Policy, tests};

    #[track_caller]
    fn check(classes: &[&str], nodes: &[&str], ask: &str, expected: &str) {
        let popularity = Popularity::known(classes.iter().map(|class| tests::ask(class)));
        tests::check(Policy::Fgd, &popularity, nodes, ask, expected);
    }

    #[test]
    fn the_sigmoid_is_truncated() {
        for gain in (-8000..8000).step_by(7) {
            let expected = (100.0 / (1.0 + (-f64::from(gain) / 1000.0).exp())) as u32;
            assert_eq!(squash(i64::from(gain) * WHOLE as i64), expected, "{gain}");
        }
        assert_eq!((squash(0), squash(-1)), (50, 49));
        assert_eq!((squash(i64::MAX / 4), squash(i64::MIN / 4)), (99, 0));
    }

    #[test]
    fn what_is_usable_is_spared() {
        // Whole devices are popular: a share goes where none is left whole.
        check(
            &["1c 1x1000"],
            &["8c 1000 1000", "8c 1000 600"],
            "1c 1x300",
            "1 1",
        );
        // Another model is of no use to them, so it costs nothing.
        check(
            &["1c 1x1000 m1"],
            &["8c 1000 m1", "8c 1000 m2"],
            "1c 1x1000",
            "1 0",
        );
        // A step is about 40 thousandths: below it, the first.
        check(
            &["1c 1x1000", "1c 1x980"],
            &["8c 990 1000"],
            "1c 1x10",
            "0 0",
        );
    }
}
