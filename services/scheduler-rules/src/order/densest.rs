//! Which jobs to run, where running ones can be stopped and continued.
//!
//! A job that is left alone completes after its remaining time, so the rate at which a set completes is the sum of
//! `1 / remaining`, and the set with the highest rate that fits is a knapsack. SRSF is its greedy solution by value per
//! device; the exact one is better where the last jobs do not fill the pool. As greedy and exact solutions differ only
//! near the brim (the core of Balas and Zemel, 1980), the greedy one goes first while more than a window stays free.

use super::{Order, Waiting, key};
use std::{cmp::Reverse, collections::BTreeMap};

/// Devices that are filled exactly.
const WINDOW: u64 = 64;

/// Indexes of all jobs in the order in which they are to be placed: the set first, largest job first, because what is
/// large is hard to place; then the others by SRSF, for what fragmentation leaves free.
///
/// `n log n` for n jobs, and `w c` for the knapsack: w is [`WINDOW`], or the first job that reaches into it where that
/// is larger, and c of w jobs per size at most.
pub fn densest(jobs: &[Waiting], capacity: u64) -> Vec<usize> {
    let mut by_service: Vec<usize> = (0..jobs.len()).collect();
    by_service.sort_by_cached_key(|index| key(Order::Srsf, &jobs[*index], 0));

    let mut free = capacity;
    let mut chosen: Vec<usize> = Vec::new();
    for index in &by_service {
        let size = jobs[*index].size;
        if free < size.saturating_add(WINDOW) {
            break;
        }
        free -= size;
        chosen.push(*index);
    }
    let (_, rest) = by_service.split_at(chosen.len());
    chosen.extend(knapsack(jobs, rest, free));

    let mut is_chosen = vec![false; jobs.len()];
    for index in &chosen {
        is_chosen[*index] = true;
    }
    // Stable: equal sizes stay in order of service.
    chosen.sort_by_key(|index| Reverse(jobs[*index].size));
    chosen.extend(by_service.iter().filter(|index| !is_chosen[**index]));
    chosen
}

/// Of those in `rest`, which is by service, the set of the highest rate; in order of service.
fn knapsack(jobs: &[Waiting], rest: &[usize], free: u64) -> Vec<usize> {
    let Ok(columns) = usize::try_from(free) else {
        return Vec::new();
    };
    let candidates = candidates(jobs, rest, free);
    // The best rate within each number of devices, and whether it has the candidate of the row.
    let mut best = vec![0u128; columns + 1];
    let mut taken: Vec<Vec<bool>> = Vec::with_capacity(candidates.len());
    for (index, size) in &candidates {
        let rate = rate(&jobs[*index]);
        let mut row = vec![false; columns + 1];
        for devices in (*size..=columns).rev() {
            let with = best[devices - size] + rate;
            if with > best[devices] {
                best[devices] = with;
                row[devices] = true;
            }
        }
        taken.push(row);
    }
    let mut devices = columns;
    let mut set = Vec::new();
    for ((index, size), row) in candidates.iter().zip(&taken).rev() {
        if row[devices] {
            devices -= size;
            set.push(*index);
        }
    }
    set.reverse();
    set
}

/// Of one size only the shortest can be in the best set, and no more than fit; with their sizes.
fn candidates(jobs: &[Waiting], rest: &[usize], free: u64) -> Vec<(usize, usize)> {
    let mut free_by_size: BTreeMap<u64, u64> = BTreeMap::new();
    let mut candidates = Vec::new();
    for index in rest {
        let size = jobs[*index].size.max(1);
        let free = free_by_size.entry(size).or_insert(free);
        if let (true, Ok(columns)) = (size <= *free, usize::try_from(size)) {
            *free -= size;
            candidates.push((*index, columns));
        }
    }
    candidates
}

/// In units of 2^-64 per millisecond.
fn rate(job: &Waiting) -> u128 {
    (1 << 64) / u128::from(job.remaining_ms.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn jobs(of: &[(u64, u64)]) -> Vec<Waiting> {
        of.iter()
            .zip(0..)
            .map(|((remaining_ms, size), number)| Waiting {
                number,
                submitted_ms: 0,
                estimate_ms: *remaining_ms,
                remaining_ms: *remaining_ms,
                size: *size,
            })
            .collect()
    }

    /// Jobs of (remaining, size).
    fn check(capacity: u64, of: &[(u64, u64)], expected: &[usize]) {
        assert_eq!(densest(&jobs(of), capacity), expected);
    }

    #[test]
    fn the_brim_is_filled_exactly() {
        check(8, &[], &[]);
        check(0, &[(10, 1)], &[0]);
        // By service 0 goes first and leaves three devices to nobody.
        check(8, &[(60, 5), (80, 4), (81, 4)], &[1, 2, 0]);
        check(8, &[(10, 5), (80, 4), (81, 4)], &[0, 1, 2]);
        // Largest first, though it has the most to do.
        check(8, &[(10, 1), (10, 1), (100, 6)], &[2, 0, 1]);
        check(8, &[(10, 9), (100, 8)], &[1, 0]);
    }

    #[test]
    fn far_from_the_brim_it_is_by_service() {
        let many: Vec<(u64, u64)> = (1..=300).map(|remaining| (remaining, 1)).collect();
        check(200, &many, &(0..300).collect::<Vec<_>>());
    }

    proptest! {
        #[test]
        fn no_set_within_the_window_is_denser(
            of in prop::collection::vec((1u64..1000, 1u64..9), 0..9),
            capacity in 0u64..24,
        ) {
            let jobs = jobs(&of);
            let size = |set: &[usize]| set.iter().map(|index| jobs[*index].size).sum::<u64>();
            let sum = |set: &[usize]| set.iter().map(|index| rate(&jobs[*index])).sum::<u128>();
            let order = densest(&jobs, capacity);
            let fitting = (0..=order.len()).filter(|length| size(&order[..*length]) <= capacity);
            let found = fitting.map(|length| sum(&order[..length])).max().unwrap_or(0);
            for mask in 0..1usize << jobs.len() {
                let set: Vec<usize> = (0..jobs.len()).filter(|index| mask >> index & 1 == 1).collect();
                prop_assert!(size(&set) > capacity || sum(&set) <= found);
            }
        }
    }
}
