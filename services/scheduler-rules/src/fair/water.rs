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
    /// What it has and cannot be made to give up; not above the demand.
    pub floor: Share,
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
/// No share is above its demand or below its floor, and the total is not above the whole unless the floors' is. A share that
/// is below its demand is rounded down, so that the total may miss the whole by as many units of 2^-64 as there are claims.
/// The order of the claims does not matter.
pub fn fair_shares(claims: &[Claim], whole: Share) -> Vec<Share> {
    let mut order: Vec<usize> = (0..claims.len()).collect();
    order.sort_unstable_by(|a, b| claims[*a].cmp_level(&claims[*b]));
    let mut shares = vec![Share::ZERO; claims.len()];
    let mut left = whole.0;
    loop {
        fill(claims, &order, left, &mut shares);
        // Whoever gets less than its floor has the floor, which leaves less to the others, so that is settled for good.
        let below = |at: &usize| shares[*at] < claims[*at].floor;
        let (floored, rest): (Vec<_>, Vec<_>) = order.iter().copied().partition(below);
        if floored.is_empty() {
            return shares;
        }
        for at in floored {
            shares[at] = claims[at].floor;
            left = left.saturating_sub(claims[at].floor.0);
        }
        order = rest;
    }
}

/// Shares `left` out among the claims in `order`, floors left aside.
fn fill(claims: &[Claim], order: &[usize], mut left: u128, shares: &mut [Share]) {
    let mut weights: u64 = order.iter().map(|at| claims[*at].weight()).sum();
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
            floor: Share::ZERO,
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
            Claim { weight_milli, demand: Share(demand), floor: Share::ZERO }
        }
    }

    #[test]
    fn what_cannot_be_taken_is_left_to_whoever_has_it() {
        fn check(claims: &[(u64, u64)], expected: &[u32]) {
            let claims: Vec<_> = claims
                .iter()
                .map(|(demand, floor)| Claim {
                    weight_milli: 1000,
                    demand: Share::of(*demand, 100),
                    floor: Share::of(*floor, 100),
                })
                .collect();
            let shares = fair_shares(&claims, Share::ONE);
            let found: Vec<_> = shares.iter().map(|share| share.ppm()).collect();
            assert_eq!(found, expected, "{claims:?}");
        }
        check(&[(100, 0), (100, 0)], &[500_000, 500_000]);
        check(&[(100, 0), (100, 50)], &[500_000, 500_000]);
        check(&[(100, 0), (100, 70)], &[300_000, 700_000]);
        check(&[(30, 0), (72, 72), (3, 0)], &[250_000, 720_000, 30_000]);
        // One floor pushes another below its floor.
        check(
            &[(100, 60), (100, 25), (100, 0)],
            &[600_000, 250_000, 150_000],
        );
        // More than there is.
        check(&[(80, 80), (80, 80), (9, 0)], &[800_000, 800_000, 0]);
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
        fn nobody_is_below_its_floor_and_the_others_are_level(
            claims in prop::collection::vec((any_claim(), 0..4u128), 1..9), whole in 0..1u128 << 66,
        ) {
            let claims: Vec<_> = claims
                .into_iter()
                .map(|(claim, part)| Claim { floor: Share(claim.demand.0 / 4 * part), ..claim })
                .collect();
            let shares = fair_shares(&claims, Share(whole));
            let floors = claims.iter().fold(0u128, |sum, claim| sum.saturating_add(claim.floor.0));
            let given = shares.iter().fold(0u128, |sum, share| sum.saturating_add(share.0));
            prop_assert!(given <= whole.max(floors));
            for (claim, share) in claims.iter().zip(&shares) {
                prop_assert!(claim.floor <= *share && *share <= claim.demand);
            }
            // Whoever is above its floor is not above one who wants more.
            for (claim, share) in claims.iter().zip(&shares).filter(|(c, s)| **s < c.demand) {
                for (other, others) in claims.iter().zip(&shares).filter(|(c, s)| **s > c.floor) {
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
