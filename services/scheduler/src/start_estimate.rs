//! When one that waits may expect a node, by how long others have waited. Pure.

use vocab::Millis;

/// Fewer placements than that say nothing.
const PLACEMENTS_MIN: usize = 10;
/// So many of twenty are left out at each end: nine of ten are within.
const OUTSIDE: usize = 20;

/// Nine of ten that waited at least as long had their node within such a time of their request. It promises nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartEstimate {
    pub earliest: Millis,
    pub latest: Millis,
    /// How many placements it is derived from.
    pub placements: u32,
}

impl StartEstimate {
    /// `waits`: from the request to the placement, in ms. Those that were shorter than it has waited already say nothing of
    /// one that still waits. None: too few are left.
    pub fn of(mut waits: Vec<u64>, requested: Millis, now: Millis) -> Option<Self> {
        let waited = now.0.saturating_sub(requested.0).max(0).unsigned_abs();
        waits.retain(|wait| *wait >= waited);
        if waits.len() < PLACEMENTS_MIN {
            return None;
        }
        waits.sort_unstable();
        let outside = waits.len() / OUTSIDE;
        let at = |place: usize| {
            let wait = waits.get(place).copied().unwrap_or(0);
            requested.plus(i64::try_from(wait).unwrap_or(i64::MAX))
        };
        Some(Self {
            earliest: at(outside),
            latest: at(waits.len() - 1 - outside),
            placements: u32::try_from(waits.len()).unwrap_or(u32::MAX),
        })
    }

    /// Leaves out the time before `free_from`, when running allocations make room; `None` if nothing is left.
    pub fn not_before(self, free_from: Millis) -> Option<Self> {
        (self.latest >= free_from).then(|| Self {
            earliest: self.earliest.max(free_from),
            ..self
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn running_allocations_bound_the_estimate() {
        let estimate = StartEstimate {
            earliest: Millis(10),
            latest: Millis(20),
            placements: 9,
        };
        let check = |free_from: i64, expected: Option<i64>| {
            let found = estimate.not_before(Millis(free_from));
            assert_eq!(found.map(|it| it.earliest.0), expected, "{free_from}");
            assert!(found.is_none_or(|it| it.latest == estimate.latest));
        };
        check(5, Some(10));
        check(15, Some(15));
        check(20, Some(20));
        check(21, None);
    }

    fn check(waits: &[u64], waited: i64, expected: Option<(i64, i64, u32)>) {
        let requested = Millis(1000);
        let found = StartEstimate::of(waits.to_vec(), requested, requested.plus(waited));
        let found = found.map(|it| (it.earliest.0, it.latest.0, it.placements));
        assert_eq!(found, expected, "{waits:?} after {waited}");
    }

    #[test]
    fn it_is_by_those_that_waited_as_long() {
        let tens: Vec<u64> = (1..=20).map(|n| n * 10).collect();
        check(&tens, 0, Some((1020, 1190, 20)));
        // Eleven waited a hundred and more: no whole one of them is outside.
        check(&tens, 100, Some((1100, 1200, 11)));
        check(&tens, 111, None);
        check(&[], 0, None);
        check(&[5; 10], 5, Some((1005, 1005, 10)));
        check(&[5; 10], 6, None);
        // A clock that is behind has waited for nothing.
        check(&[5; 10], -50, Some((1005, 1005, 10)));
    }

    proptest! {
        #[test]
        fn what_it_says_is_not_past_and_has_most_of_them_within(
            waits in prop::collection::vec(0u64..10_000, 0..200),
            waited in 0i64..10_000,
        ) {
            let (requested, now) = (Millis(77), Millis(77 + waited));
            let longer: Vec<u64> = waits.iter().copied().filter(|it| *it >= waited.unsigned_abs()).collect();
            let Some(found) = StartEstimate::of(waits, requested, now) else {
                prop_assert!(longer.len() < PLACEMENTS_MIN);
                return Ok(());
            };
            prop_assert!(now <= found.earliest && found.earliest <= found.latest);
            let within = longer.iter().map(|wait| requested.0 + *wait as i64);
            let within = within.filter(|at| (found.earliest.0..=found.latest.0).contains(at)).count();
            prop_assert!(within * 10 >= longer.len() * 9, "{} of {}", within, longer.len());
        }
    }
}
