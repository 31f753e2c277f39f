//! A part of a whole as an exact-enough integer, and the dominant one of several resources.
//!
//! The dominant share is that of Ghodsi et al., "Dominant Resource Fairness", NSDI 2011: the largest of the parts that are
//! used of each resource.

use serde::{Deserialize, Serialize};

/// The weight of a queue of which nothing special was said.
pub const WEIGHT_MILLI_ONE: u32 = 1000;

/// A part of a whole in units of 2^-64, rounded down; may be more than the whole.
///
/// Equal fractions are equal shares, and a larger fraction never is a smaller share. Fractions that are closer to each other
/// than 2^-64 may become equal.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Share(pub u128);

impl Share {
    pub const ZERO: Self = Self(0);
    pub const ONE: Self = Self(1 << 64);
    /// Of something that there is nothing of.
    pub const MAX: Self = Self(u128::MAX);

    pub fn of(amount: u64, total: u64) -> Self {
        match (amount, total) {
            (0, _) => Self::ZERO,
            (_, 0) => Self::MAX,
            _ => Self((u128::from(amount) << 64) / u128::from(total)),
        }
    }

    /// The largest share of one resource; the amounts and totals are of the same resources in the same order.
    pub fn dominant(amounts: &[u64], totals: &[u64]) -> Self {
        let shares = amounts.iter().zip(totals).map(|(a, t)| Self::of(*a, *t));
        shares.max().unwrap_or(Self::ZERO)
    }

    /// The share for each unit of weight. A weight of 0 counts as 1 thousandth.
    pub fn cost(self, weight_milli: u32) -> Cost {
        if weight_milli == WEIGHT_MILLI_ONE {
            return Cost(self.0);
        }
        let weight = u128::from(weight_milli.max(1));
        // `share * 1000 / weight` without the product.
        let (whole, rest) = (self.0 / weight, self.0 % weight);
        Cost(
            whole
                .saturating_mul(1000)
                .saturating_add(rest * 1000 / weight),
        )
    }

    /// So many thousandths of it, rounded down.
    pub fn part(self, milli: u32) -> Self {
        let (whole, rest) = (self.0 / 1000, self.0 % 1000 * u128::from(milli) / 1000);
        Self(whole.saturating_mul(milli.into()).saturating_add(rest))
    }

    /// Millionths, rounded half up, for showing.
    pub fn ppm(self) -> u32 {
        let scaled = self.0.saturating_mul(1_000_000).saturating_add(1 << 63);
        u32::try_from(scaled >> 64).unwrap_or(u32::MAX)
    }
}

/// What a queue's use counts for against its siblings, in units of 2^-64 of the whole at weight one, rounded down; the
/// queue with the least goes first. Anything above 2^64 wholes is equal.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Cost(pub u128);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shares() {
        fn check(amounts: &[u64], totals: &[u64], ppm: u32) {
            assert_eq!(Share::dominant(amounts, totals).ppm(), ppm, "{amounts:?}");
        }
        check(&[], &[], 0);
        check(&[0, 0, 0], &[0, 0, 0], 0);
        check(&[1, 0, 0], &[0, 0, 0], u32::MAX);
        check(&[0, 0, 8], &[100, 100, 8], 1_000_000);
        check(&[1, 0, 0], &[100, 100, 8], 10_000);
        check(&[16, 64, 0], &[32, 256, 0], 500_000);
        // A job of 1 cpu and 16 GiB on 32 cpu and 256 GiB is about memory.
        check(&[1, 16, 0], &[32, 256, 0], 62_500);
        check(&[3, 0, 0], &[2, 1, 1], 1_500_000);
        check(&[u64::MAX], &[1], u32::MAX);
        check(&[u64::MAX], &[u64::MAX], 1_000_000);
    }

    #[test]
    fn parts() {
        assert_eq!(Share::ONE.part(500), Share(1 << 63));
        assert_eq!(Share(7).part(500), Share(3));
        assert_eq!(Share(1007).part(2001), Share(2015));
        assert_eq!(Share::MAX.part(1000), Share::MAX);
        assert_eq!(Share::MAX.part(2000), Share::MAX);
        assert_eq!(Share::ONE.part(0), Share::ZERO);
    }

    #[test]
    fn costs() {
        fn check(share: Share, weight_milli: u32, cost: u128) {
            assert_eq!(
                share.cost(weight_milli),
                Cost(cost),
                "{share:?} {weight_milli}"
            );
        }
        check(Share::ZERO, 1, 0);
        check(Share::ONE, 1000, 1 << 64);
        check(Share::ONE, 500, 1 << 65);
        check(Share::ONE, 4000, 1 << 62);
        check(Share(7), 3000, 2);
        check(Share(7), 0, 7000);
        check(Share::MAX, 1, u128::MAX);
        check(Share::MAX, 1000, u128::MAX / 1000 * 1000 + u128::MAX % 1000);
    }

    proptest! {
        #[test]
        fn equal_fractions_are_equal_and_order_is_kept(
            a in 0..1u64 << 32, b in 1..1u64 << 32, c in 0..1u64 << 32, d in 1..1u64 << 32, times in 1..1u64 << 31,
        ) {
            prop_assert_eq!(Share::of(a, b), Share::of(a * times, b * times));
            let exact = (u128::from(a) * u128::from(d)).cmp(&(u128::from(c) * u128::from(b)));
            // Fractions with denominators below 2^32 that differ are further apart than 2^-64.
            prop_assert_eq!(Share::of(a, b).cmp(&Share::of(c, d)), exact);
        }

        #[test]
        fn cost_is_the_exact_quotient(share in 0..1u128 << 100, weight in 1..u32::MAX) {
            prop_assert_eq!(Share(share).cost(weight).0, share * 1000 / u128::from(weight));
            prop_assert!(Share(share).cost(weight) <= Share(share + 1).cost(weight));
        }
    }
}
