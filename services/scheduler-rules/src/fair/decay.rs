//! Past use, forgiven by half in each half-life.
//!
//! The user priority of HTCondor's negotiator: with a priority A and a use of B, after the time t the priority is
//! `B + (A - B) * 2^(-t / H)`. The lower goes first.

use serde::{Deserialize, Serialize};

/// Binary places of `t / H` below one. With 54, a step changes the power by more than all that its computation loses, which
/// keeps it falling.
const PLACES: usize = 54;

/// `2^(-1/2)`, `2^(-1/4)`, and so on, each the root of the one before, in units of 2^-64; at most 3 units too low.
const ROOTS: [u128; PLACES] = {
    let mut roots = [0; PLACES];
    let mut last: u128 = 1 << 63;
    let mut at = 0;
    while at < PLACES {
        last = (last << 64).isqrt();
        roots[at] = last;
        at += 1;
    }
    roots
};

/// What is left of a difference after some time: `2^(-t / H)`, to be applied to several amounts.
///
/// Exact when t is a multiple of H, otherwise off by less than 2^-53 of itself; falls with t, or stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    halvings: u32,
    /// More than a half, in units of 2^-64.
    part: u128,
}

impl Kept {
    /// A half-life of 0 keeps nothing.
    pub fn after(elapsed_ms: u64, half_life_ms: u64) -> Self {
        let Some(halvings) = elapsed_ms.checked_div(half_life_ms) else {
            return Self {
                halvings: u128::BITS,
                part: 1 << 64,
            };
        };
        let rest = u128::from(elapsed_ms % half_life_ms);
        let digits = (rest << PLACES) / u128::from(half_life_ms);
        let mut part = 1 << 64;
        for (root, place) in ROOTS.iter().zip((0..PLACES).rev()) {
            if digits >> place & 1 == 1 {
                part = (part * root) >> 64;
            }
        }
        Self {
            halvings: u32::try_from(halvings).unwrap_or(u32::MAX),
            part,
        }
    }

    fn of(self, difference: u128) -> u128 {
        let (high, low) = (difference >> 64, difference & u128::from(u64::MAX));
        let part = high * self.part + ((low * self.part) >> 64);
        part.checked_shr(self.halvings).unwrap_or(0)
    }
}

/// An amount as it is remembered, in units of 2^-64: so fine that moving it on a thousand times a second loses nothing.
///
/// Each step is off by less than 2^-53 of the difference and one unit. So moving on by a and then by b is less than 2^-52 of
/// the difference and 3 units from moving on by both at once.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Remembered(u128);

impl Remembered {
    pub fn of(amount: u64) -> Self {
        Self(u128::from(amount) << 64)
    }

    /// Rounded half up.
    pub fn amount(self) -> u64 {
        u64::try_from(self.0.saturating_add(1 << 63) >> 64).unwrap_or(u64::MAX)
    }

    /// Moves towards what was held meanwhile; what is left of the difference is rounded towards nothing.
    pub fn towards(self, held: u64, kept: Kept) -> Self {
        let goal = Self::of(held).0;
        Self(if self.0 >= goal {
            goal + kept.of(self.0 - goal)
        } else {
            goal - kept.of(goal - self.0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decay(used: u64, held: u64, elapsed_ms: u64, half_life_ms: u64) -> u64 {
        let kept = Kept::after(elapsed_ms, half_life_ms);
        Remembered::of(used).towards(held, kept).amount()
    }

    const HOUR: u64 = 3_600_000;
    const YEAR: u64 = 366 * 24 * HOUR;

    #[test]
    fn half_of_the_difference_goes_in_each_half_life() {
        fn check(used: u64, held: u64, elapsed_ms: u64, half_life_ms: u64, expected: u64) {
            let found = decay(used, held, elapsed_ms, half_life_ms);
            assert_eq!(found, expected, "{used} {held} {elapsed_ms} {half_life_ms}");
        }
        check(100, 0, 0, HOUR, 100);
        check(100, 0, HOUR, HOUR, 50);
        check(0, 100, HOUR, HOUR, 50);
        check(100, 20, HOUR, HOUR, 60);
        check(20, 100, 2 * HOUR, HOUR, 80);
        check(100, 0, 3 * HOUR, HOUR, 13); // 12.5
        check(0, 101, HOUR, HOUR, 51); // 50.5
        check(70, 70, 12_345, HOUR, 70);
        // 2^-0.5 and 2^-1.5.
        check(1_000_000, 0, HOUR / 2, HOUR, 707_107);
        check(1_000_000, 0, 3 * HOUR / 2, HOUR, 353_553);
        check(1_000_000, 0, 1, HOUR, 1_000_000);
        // It never counts.
        check(100, 7, 0, 0, 7);
        check(100, 7, u64::MAX, 0, 7);
        // Times and amounts at the end of their ranges.
        check(u64::MAX, 0, u64::MAX, 1, 0);
        check(u64::MAX, 0, 1, u64::MAX, u64::MAX);
        check(u64::MAX, 0, 1, 1, 1 << 63);
        check(0, u64::MAX, 1, 1, 1 << 63);
        check(0, u64::MAX, u64::MAX, u64::MAX, 1 << 63);
        check(u64::MAX, u64::MAX, 5, 7, u64::MAX);
        check(0, 1, 200 * HOUR, HOUR, 1);
        check(1, 0, 200 * HOUR, HOUR, 0);
    }

    #[test]
    fn moving_on_often_loses_nothing() {
        let mut often = Remembered::of(8000);
        for _ in 0..1_000_000 {
            often = often.towards(1000, Kept::after(1, YEAR));
        }
        let once = Remembered::of(8000).towards(1000, Kept::after(1_000_000, YEAR));
        // A million steps, each off by 2^-53 of 7000.
        assert!(often.0.abs_diff(once.0) < (7000 << 11) * 1_000_000);
        assert_ne!(often, Remembered::of(8000));
    }

    #[test]
    fn the_power_falls_from_step_to_step() {
        let part = |elapsed_ms| Kept::after(elapsed_ms, 1 << PLACES).part;
        for around in [1u64 << 20, 1 << 40, 1 << 53, 3 << 52, (1 << 54) - 1100] {
            for elapsed_ms in around - 1000..around + 1000 {
                assert!(part(elapsed_ms) > part(elapsed_ms + 1), "{elapsed_ms}");
            }
        }
        assert!(part((1 << PLACES) - 1) > 1 << 63);
    }

    proptest! {
        #[test]
        fn it_moves_towards_what_is_held(
            used in any::<u64>(), held in any::<u64>(), elapsed in any::<u64>(), more in any::<u64>(), half_life in any::<u64>(),
        ) {
            let now = decay(used, held, elapsed, half_life);
            let later = decay(used, held, elapsed.saturating_add(more), half_life);
            prop_assert!(used.min(held) <= now && now <= used.max(held));
            prop_assert!(later.abs_diff(held) <= now.abs_diff(held));
            prop_assert!(now <= decay(used.saturating_add(more), held, elapsed, half_life));
            prop_assert!(now <= decay(used, held.saturating_add(more), elapsed, half_life));
        }

        #[test]
        fn in_two_steps_or_one(
            used in any::<u64>(), held in any::<u64>(), a in 0..2 * YEAR, b in 0..2 * YEAR, half_life in 1..YEAR,
        ) {
            let kept = |elapsed| Kept::after(elapsed, half_life);
            let twice = Remembered::of(used).towards(held, kept(a)).towards(held, kept(b));
            let once = Remembered::of(used).towards(held, kept(a + b));
            let difference = u128::from(used.abs_diff(held)) << 64;
            prop_assert!(twice.0.abs_diff(once.0) <= (difference >> 52) + 3);
        }

        #[test]
        fn multiples_of_the_half_life_are_exact(used in any::<u64>(), times in 0..70u32, half_life in 1..YEAR) {
            let found = Remembered::of(used).towards(0, Kept::after(u64::from(times) * half_life, half_life));
            prop_assert_eq!(found.0, (u128::from(used) << 64) >> times);
        }
    }
}
