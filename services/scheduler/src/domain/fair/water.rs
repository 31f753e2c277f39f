//! What each is due of a whole: by weight, but no more than it asks for, and what that leaves goes to the others.
//!
//! Weighted max-min fairness by progressive filling (Bertsekas and Gallager, "Data Networks", 6.5.2): claims are met in
//! order of demand for each unit of weight, until the rest cannot all be met; these share what is left by weight.

use super::Share;
use std::cmp::Ordering;

/// What one of several asks of the whole. A weight of 0 counts as 1 thousandth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    pub weight_milli: u32,
    pub demand: Share,
}

impl Claim {
    fn weight(&self) -> u64 {
        self.weight_milli.max(1).into()
    }

    /// By demand for each unit of weight, exactly: whole parts first, then the fractions cross-multiplied.
    fn cmp_level(&self, other: &Self) -> Ordering {
        let (weight, other_weight) = (u128::from(self.weight()), u128::from(other.weight()));
        let whole = (self.demand.0 / weight).cmp(&(other.demand.0 / other_weight));
        whole.then_with(|| {
            let fraction = self.demand.0 % weight * other_weight;
            fraction.cmp(&(other.demand.0 % other_weight * weight))
        })
    }
}

/// The share of each claim, in the order of the claims; of `whole`, which for the children of a queue is what the queue
/// itself was due.
///
/// No share is above its demand, and the total is not above the whole. A share that is below its demand is rounded down, so
/// that the total may miss the whole by as many units of 2^-64 as there are claims. The order of the claims does not matter.
pub fn fair_shares(claims: &[Claim], whole: Share) -> Vec<Share> {
    let mut order: Vec<usize> = (0..claims.len()).collect();
    order.sort_unstable_by(|a, b| claims[*a].cmp_level(&claims[*b]));
    let mut shares = vec![Share::ZERO; claims.len()];
    let mut left = whole.0;
    let mut weights: u64 = claims.iter().map(Claim::weight).sum();
    for (met, at) in order.iter().enumerate() {
        let claim = &claims[*at];
        if claim.demand.0 > part(left, claim.weight(), weights) {
            for at in &order[met..] {
                shares[*at] = Share(part(left, claims[*at].weight(), weights));
            }
            break;
        }
        shares[*at] = claim.demand;
        left -= claim.demand.0;
        weights -= claim.weight();
    }
    shares
}

/// `amount * weight / weights`, rounded down, of a weight that is among the weights.
fn part(amount: u128, weight: u64, weights: u64) -> u128 {
    let (weight, weights) = (u128::from(weight), u128::from(weights));
    amount / weights * weight + amount % weights * weight / weights
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Claims as (weight, demand of a hundred), shares in millionths of the whole.
    fn check(whole: Share, claims: &[(u32, u64)], expected: &[u32]) -> Vec<Share> {
        let claim = |(weight_milli, demand): &(u32, u64)| Claim {
            weight_milli: *weight_milli,
            demand: Share::of(*demand, 100),
        };
        let claims: Vec<_> = claims.iter().map(claim).collect();
        let shares = fair_shares(&claims, whole);
        let found: Vec<_> = shares.iter().map(|share| share.ppm()).collect();
        assert_eq!(found, expected, "{claims:?}");
        shares
    }

    #[test]
    fn what_one_does_not_want_goes_to_the_others() {
        let check = |claims, expected| {
            check(Share::ONE, claims, expected);
        };
        check(&[], &[]);
        check(&[(1000, 0)], &[0]);
        check(&[(1000, 40)], &[400_000]);
        check(&[(1000, 1000)], &[1_000_000]);
        check(
            &[(1000, 1), (1000, 40), (1000, 1000)],
            &[10_000, 400_000, 590_000],
        );
        check(
            &[(1000, 1000), (1000, 1), (1000, 40)],
            &[590_000, 10_000, 400_000],
        );
        check(&[(1000, 1000), (3000, 1)], &[990_000, 10_000]);
        check(&[(1000, 1000), (3000, 1000)], &[250_000, 750_000]);
        check(
            &[(1000, 1000), (1000, 1000), (1000, 1000)],
            &[333_333, 333_333, 333_333],
        );
        check(&[(1000, 1000), (500, 1000)], &[666_667, 333_333]);
        check(&[(1000, 30), (1000, 30)], &[300_000, 300_000]);
        check(&[(1000, 50), (1000, 50)], &[500_000, 500_000]);
        check(
            &[(4000, 20), (1000, 100), (1000, 100)],
            &[200_000, 400_000, 400_000],
        );
        check(&[(1, 1000), (1_000_000, 1000)], &[1, 999_999]);
        check(&[(0, 1000), (999, 1000)], &[1000, 999_000]);
    }

    #[test]
    fn children_share_what_the_parent_got() {
        let parents = check(
            Share::ONE,
            &[(1000, 1000), (3000, 1000)],
            &[250_000, 750_000],
        );
        check(parents[0], &[(1000, 5), (1000, 1000)], &[50_000, 200_000]);
        check(
            parents[1],
            &[(1000, 1000), (2000, 1000)],
            &[250_000, 500_000],
        );
        check(Share::ZERO, &[(1000, 1000)], &[0]);
        check(
            Share::MAX,
            &[(1000, 1000), (1000, 300)],
            &[10_000_000, 3_000_000],
        );
    }

    prop_compose! {
        fn any_claim()(weight_milli in prop_oneof![0..4u32, 1..2000u32, any::<u32>()],
            demand in prop_oneof![0..100u128, 0..1u128 << 65, any::<u128>()]) -> Claim {
            Claim { weight_milli, demand: Share(demand) }
        }
    }

    proptest! {
        #[test]
        fn shares_are_fair(
            claims in prop::collection::vec(any_claim(), 0..12),
            whole in prop_oneof![0..1000u128, Just(1u128 << 64), any::<u128>()],
        ) {
            let shares = fair_shares(&claims, Share(whole));
            let weights: u64 = claims.iter().map(Claim::weight).sum();
            let mut left = whole;
            let mut wanted = 0u128;
            for (claim, share) in claims.iter().zip(&shares) {
                prop_assert!(share.0 <= left, "the total is above the whole");
                left -= share.0;
                wanted = wanted.saturating_add(claim.demand.0);
                prop_assert!(*share <= claim.demand);
                let due = part(whole, claim.weight(), weights).min(claim.demand.0);
                prop_assert!(share.0 >= due, "below its weight's share");
            }
            let given = whole - left;
            prop_assert!(given + claims.len() as u128 >= whole.min(wanted), "some is not given away");
            // Who has less than it asks for has as much for its weight as anyone.
            for (claim, share) in claims.iter().zip(&shares).filter(|(c, s)| **s < c.demand) {
                for (other, others) in claims.iter().zip(&shares) {
                    let level = |share: u128, claim: &Claim| share / u128::from(claim.weight());
                    prop_assert!(level(others.0, other) <= level(share.0 + 1, claim));
                }
            }
        }

        #[test]
        fn their_order_does_not_matter(
            claims in prop::collection::vec(any_claim(), 1..10), whole in any::<u128>(), turn in 0..10usize,
        ) {
            let shares = fair_shares(&claims, Share(whole));
            let together: Vec<_> = claims.iter().copied().zip(shares).collect();
            let mut other = together.clone();
            other.rotate_left(turn % claims.len());
            other.reverse();
            let moved: Vec<_> = other.iter().map(|(claim, _)| *claim).collect();
            let expected: Vec<_> = other.iter().map(|(_, share)| *share).collect();
            prop_assert_eq!(fair_shares(&moved, Share(whole)), expected);
        }
    }
}
