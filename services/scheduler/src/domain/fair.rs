//! What each is due: shares of the whole, their cost, fair shares, and past use that is forgiven with time.

use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

/// A part of the whole with 64 binary digits, rounded down: equal fractions are equal, and larger ones never smaller.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Share(pub u128);

/// A share for its weight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost(u128);

/// The weight of one.
pub const WEIGHT_MILLI_ONE: u32 = 1000;

impl Share {
    pub const ONE: Self = Self(1 << 64);
    /// Of something that the whole has nothing of.
    const BEYOND: u128 = 1 << 96;

    /// The largest of the shares of the resource types: dominant resource fairness (Ghodsi et al., NSDI 2011).
    pub fn dominant(amounts: &[u64], totals: &[u64]) -> Self {
        let share = |(amount, total): (&u64, &u64)| match (*amount, *total) {
            (0, _) => 0,
            (_, 0) => Self::BEYOND,
            (amount, total) => (u128::from(amount) << 64) / u128::from(total),
        };
        Self(amounts.iter().zip(totals).map(share).max().unwrap_or(0))
    }

    pub fn cost(self, weight_milli: u32) -> Cost {
        // Shares are below 2^96 + 2^64 + …, so the product is below 2^107.
        Cost(self.0 * u128::from(WEIGHT_MILLI_ONE) / u128::from(weight_milli.max(1)))
    }

    /// So many thousandths of it.
    pub fn part(self, milli: u32) -> Self {
        Self(self.0 * u128::from(milli) / 1000)
    }

    /// In millionths.
    pub fn ppm(self) -> u32 {
        u32::try_from((self.0 * 1_000_000) >> 64).unwrap_or(u32::MAX)
    }
}

/// One that shares in a whole.
#[derive(Debug, Clone, Copy)]
pub struct Claim {
    /// At least 1.
    pub weight_milli: u32,
    /// It gets no more than this.
    pub demand: Share,
}

/// Divides `whole` by weight among those who want more, after everybody who wants less than that got what they want. Does
/// not depend on the order of the claims; each is rounded down by less than 2^-64 for each of them.
pub fn fair_shares(claims: &[Claim], whole: Share) -> Vec<Share> {
    let mut shares = vec![Share::default(); claims.len()];
    let mut order: Vec<usize> = (0..claims.len()).collect();
    // By demand per weight: whoever is first to have enough comes first. Compared crosswise, so without rounding.
    order.sort_by(|a, b| {
        let (a, b) = (&claims[*a], &claims[*b]);
        let of = |claim: &Claim, weight: u32| claim.demand.0 * u128::from(weight.max(1));
        of(a, b.weight_milli).cmp(&of(b, a.weight_milli))
    });
    let mut left = whole.0;
    let mut weights: u128 = claims
        .iter()
        .map(|claim| u128::from(claim.weight_milli.max(1)))
        .sum();
    for at in order {
        let claim = &claims[at];
        let weight = u128::from(claim.weight_milli.max(1));
        // Below 2^65 · 2^20.
        let by_weight = left.min(Share::ONE.0) * weight / weights;
        match claim.demand.0.cmp(&by_weight) {
            Ordering::Less | Ordering::Equal => {
                shares[at] = claim.demand;
                left -= claim.demand.0;
                weights -= weight;
            }
            // From here on everybody wants more than there is: all get by weight, of what is left now.
            Ordering::Greater => shares[at] = Share(by_weight),
        }
    }
    shares
}

/// 2^-(1/2), 2^-(1/4), 2^-(1/8) and so on, times 2^64, rounded to the nearest.
const ROOTS: [u64; 32] = [
    0xb504f333f9de6484,
    0xd744fccad69d6af4,
    0xeac0c6e7dd24392f,
    0xf5257d152486cc2c,
    0xfa83b2db722a033a,
    0xfd3e0c0cf486c175,
    0xfe9e115c7b8f884c,
    0xff4ecb59511ec8a5,
    0xffa756521c8daed2,
    0xffd3a751c0f7e10c,
    0xffe9d2b2f7db2756,
    0xfff4e91bff1b8c3e,
    0xfffa747ea0040664,
    0xfffd3a3b7814eb54,
    0xfffe9d1cc60ddab1,
    0xffff4e8e25879bfa,
    0xffffa7470363f451,
    0xffffd3a37dda0313,
    0xffffe9d1bdf703af,
    0xfffff4e8debe025e,
    0xfffffa746f4fa150,
    0xfffffd3a37a3f8b0,
    0xfffffe9d1bd1065a,
    0xffffff4e8de845ae,
    0xffffffa746f41377,
    0xffffffd3a37a05e4,
    0xffffffe9d1bd01fc,
    0xfffffff4e8de80c0,
    0xfffffffa746f4051,
    0xfffffffd3a37a025,
    0xfffffffe9d1bd011,
    0xffffffff4e8de808,
];

/// Remembered use after `elapsed_ms` of holding `held`: the difference halves with each half-life,
/// `held + (used - held) · 2^(-elapsed / half-life)`. The difference is rounded down, so it is exact after a whole number of
/// half-lives up to that, and off by less than 2^-31 of the difference otherwise.
pub fn decay(used: u64, held: u64, elapsed_ms: u64, half_life_ms: u64) -> u64 {
    let (Some(halvings), Some(rest)) = (
        elapsed_ms.checked_div(half_life_ms),
        elapsed_ms.checked_rem(half_life_ms),
    ) else {
        return held;
    };
    if halvings >= 64 {
        return held;
    }
    // The part of a half-life that is left over, in 32 binary digits.
    let part = (u128::from(rest) << 32) / u128::from(half_life_ms);
    let mut difference = used.abs_diff(held) >> halvings;
    for (bit, root) in ROOTS.iter().enumerate() {
        if part >> (31 - bit) & 1 == 1 {
            difference = ((u128::from(difference) * u128::from(*root)) >> 64) as u64;
        }
    }
    if used > held {
        held + difference
    } else {
        held - difference
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Demands in hundredths with weights; shares in ppm.
    fn check(claims: &[(u64, u32)], expected: &[u32]) {
        let claims: Vec<_> = claims
            .iter()
            .map(|(demand, weight_milli)| Claim {
                weight_milli: *weight_milli,
                demand: Share::dominant(&[*demand], &[100]),
            })
            .collect();
        let found: Vec<_> = fair_shares(&claims, Share::ONE)
            .iter()
            .map(|s| s.ppm())
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn what_one_does_not_want_the_others_share() {
        check(
            &[(1, 1000), (40, 1000), (1000, 1000)],
            &[9_999, 399_999, 590_000],
        );
        check(&[(1000, 1000), (1, 3000)], &[990_000, 9_999]);
        check(&[(96, 1000), (96, 500)], &[666_666, 333_333]);
        check(&[(1000, 1000); 3], &[333_333; 3]);
        check(&[(10, 1000), (10, 1)], &[99_999, 99_999]);
        check(&[(0, 1000), (500, 1)], &[0, 1_000_000]);
        check(&[], &[]);
    }

    #[test]
    fn the_dominant_resource_counts() {
        let ppm = |amounts: &[u64], totals: &[u64]| Share::dominant(amounts, totals).ppm();
        assert_eq!(ppm(&[1, 16, 0], &[32, 256, 0]), 62_500);
        assert_eq!(ppm(&[0, 0, 0], &[0, 0, 0]), 0);
        assert_eq!(ppm(&[1, 0, 0], &[0, 1, 1]), u32::MAX);
        assert!(Share::ONE.cost(500) > Share::ONE.cost(1000));
        assert_eq!(Share::ONE.cost(500), Cost(2 << 64));
    }

    #[test]
    fn half_of_the_difference_is_forgiven_in_a_half_life() {
        let check = |used, held, elapsed, expected| {
            assert_eq!(decay(used, held, elapsed, 1000), expected);
        };
        check(1000, 0, 0, 1000);
        check(1000, 0, 1000, 500);
        check(1000, 0, 3000, 125);
        check(0, 1000, 1000, 500);
        check(1_000_000, 0, 500, 707_106);
        check(100, 40, 1000, 70);
        check(u64::MAX, 0, u64::MAX, 0);
        assert_eq!(decay(7, 9, 5, 0), 9);
    }

    proptest! {
        #[test]
        fn shares_are_fair(
            claims in prop::collection::vec((0u64..200, 1u32..5000), 1..12),
            turn in any::<prop::sample::Index>(),
        ) {
            let claim = |(demand, weight_milli): &(u64, u32)| Claim {
                weight_milli: *weight_milli,
                demand: Share::dominant(&[*demand], &[100]),
            };
            let all: Vec<_> = claims.iter().map(claim).collect();
            let shares = fair_shares(&all, Share::ONE);
            let sum: u128 = shares.iter().map(|share| share.0).sum();
            let wanted: u128 = all.iter().map(|claim| claim.demand.0).sum();
            prop_assert!(sum <= Share::ONE.0);
            // Nothing is kept back but what rounding takes.
            prop_assert!(sum + all.len() as u128 >= wanted.min(Share::ONE.0));
            let weights: u128 = all.iter().map(|claim| u128::from(claim.weight_milli)).sum();
            for (claim, share) in all.iter().zip(&shares) {
                prop_assert!(*share <= claim.demand);
                let entitled = Share::ONE.0 * u128::from(claim.weight_milli) / weights;
                prop_assert!(share.0 + 1 >= claim.demand.0.min(entitled));
            }
            let at = turn.index(claims.len());
            let mut turned = all.clone();
            turned.rotate_left(at);
            let mut expected = shares;
            expected.rotate_left(at);
            prop_assert_eq!(fair_shares(&turned, Share::ONE), expected);
        }

        #[test]
        fn decay_goes_one_way_and_does_not_depend_on_how_often_it_is_looked_at(
            used in 0u64..1 << 50,
            held in 0u64..1 << 50,
            first in 0u64..5_000,
            then in 0u64..5_000,
        ) {
            let at_once = decay(used, held, first + then, 1000);
            let midway = decay(used, held, first, 1000);
            let in_steps = decay(midway, held, then, 1000);
            let rounding = 80 + (used.abs_diff(held) >> 30);
            prop_assert!(at_once.abs_diff(in_steps) <= rounding);
            prop_assert!(at_once.abs_diff(held) <= midway.abs_diff(held) + rounding);
            prop_assert!(at_once.abs_diff(held) <= used.abs_diff(held));
        }
    }
}
