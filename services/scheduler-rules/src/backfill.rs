//! Backfilling: a job that waits may start before the one at the head of the queue if by all estimates it does not delay
//! it.
//!
//! The head has one reservation, at the earliest moment at which by estimates enough of what runs has ended: EASY, of
//! Mu'alem and Feitelson, "Utilization, Predictability, Workloads, and User Runtime Estimates in Scheduling the IBM SP2
//! with Backfilling", IEEE TPDS 2001. Capacity is a vector, because a job needs all of its resources at once. A
//! reservation is for a whole pool: which node, and whether a job fits now, is the placement's matter.

/// One that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Running<const N: usize> {
    /// By its estimate.
    pub ends_ms: i64,
    pub amount: [u64; N],
}

/// When one behind the head may go before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// If it ends before the head's start: the rule of Zhang et al., "RLScheduler", SC 2020.
    EndsBefore,
    /// If it ends by the head's start, or takes what is spare then: the rule of EASY.
    Spare,
}

/// For the job at the head of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation<const N: usize> {
    start_ms: i64,
    spare: [u64; N],
}

impl<const N: usize> Reservation<N> {
    /// None if the head does not fit even when all has ended. What runs past its estimate is taken to end next.
    /// `n log n` for n that run.
    pub fn of_head(
        now_ms: i64,
        free: [u64; N],
        running: &[Running<N>],
        head: [u64; N],
    ) -> Option<Self> {
        let next_ms = now_ms.saturating_add(1);
        let mut ends: Vec<(i64, [u64; N])> = running
            .iter()
            .map(|running| (running.ends_ms.max(next_ms), running.amount))
            .collect();
        ends.sort_unstable();
        let mut ends = ends.into_iter().peekable();
        let mut free = free;
        let mut start_ms = now_ms;
        loop {
            if let Some(spare) = less(free, head) {
                return Some(Self { start_ms, spare });
            }
            start_ms = ends.peek()?.0;
            // All that ends at that moment, or what is spare then would be too little.
            while let Some((_, amount)) = ends.next_if(|(ends_ms, _)| *ends_ms == start_ms) {
                free = more(free, amount);
            }
        }
    }

    /// When the head starts by estimates.
    pub fn start_ms(&self) -> i64 {
        self.start_ms
    }

    /// What is left beside the head when it starts.
    pub fn spare(&self) -> [u64; N] {
        self.spare
    }

    /// Whether one that fits now may start now; if so, what it takes from the spare is taken.
    pub fn admit(&mut self, rule: Rule, now_ms: i64, estimate_ms: u64, amount: [u64; N]) -> bool {
        let ends_ms = now_ms.saturating_add_unsigned(estimate_ms);
        match rule {
            Rule::EndsBefore => ends_ms < self.start_ms,
            Rule::Spare if ends_ms <= self.start_ms => true,
            Rule::Spare => match less(self.spare, amount) {
                Some(spare) => {
                    self.spare = spare;
                    true
                }
                None => false,
            },
        }
    }
}

fn more<const N: usize>(a: [u64; N], b: [u64; N]) -> [u64; N] {
    std::array::from_fn(|index| a[index].saturating_add(b[index]))
}

/// None if there is less than `b` of anything.
fn less<const N: usize>(a: [u64; N], b: [u64; N]) -> Option<[u64; N]> {
    let fits = a.iter().zip(&b).all(|(a, b)| a >= b);
    fits.then(|| std::array::from_fn(|index| a[index] - b[index]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW_MS: i64 = 100;

    fn running(of: &[(i64, [u64; 2])]) -> Vec<Running<2>> {
        of.iter()
            .map(|&(ends_ms, amount)| Running { ends_ms, amount })
            .collect()
    }

    /// What is expected: the start, and what is spare.
    fn check(free: [u64; 2], of: &[(i64, [u64; 2])], head: [u64; 2], expected: &str) {
        let found = match Reservation::of_head(NOW_MS, free, &running(of), head) {
            Some(Reservation { start_ms, spare }) => format!("{start_ms} {spare:?}"),
            None => "never".to_owned(),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn the_head_starts_when_enough_has_ended() {
        let of = [(300, [2, 0]), (200, [2, 8]), (200, [1, 0]), (50, [1, 1])];
        check([4, 4], &of, [4, 3], "100 [0, 1]");
        check([0, 0], &of, [1, 1], "101 [0, 0]");
        check([0, 0], &of, [2, 0], "200 [2, 9]");
        check([0, 0], &of, [4, 9], "200 [0, 0]");
        check([0, 0], &of, [5, 0], "300 [1, 9]");
        check([0, 0], &of, [7, 0], "never");
        check([9, 0], &of, [0, 10], "never");
    }

    #[test]
    fn a_candidate_must_not_delay_the_head() {
        // The head starts at 200 beside a spare of [2, 1].
        let held = Reservation::of_head(NOW_MS, [2, 2], &running(&[(200, [4, 0])]), [4, 1]);
        let held = held.expect("it fits when all has ended");
        let admitted = |rule, of: &[(u64, [u64; 2])]| {
            let mut held = held;
            let admit = of.iter().map(|&(estimate_ms, amount)| {
                if held.admit(rule, NOW_MS, estimate_ms, amount) {
                    'y'
                } else {
                    'n'
                }
            });
            admit.collect::<String>()
        };
        let of = [
            (99, [9, 9]),
            (100, [9, 9]),
            (101, [1, 1]),
            (101, [1, 1]),
            (101, [1, 0]),
        ];
        assert_eq!(admitted(Rule::EndsBefore, &of), "ynnnn");
        assert_eq!(admitted(Rule::Spare, &of), "yyyny");
        assert_eq!(
            admitted(Rule::Spare, &[(u64::MAX, [2, 1]), (u64::MAX, [0, 1])]),
            "yn"
        );
    }

    /// The earliest moment at which the head fits, by looking at each.
    fn naive(free: [u64; 2], running: &[Running<2>], head: [u64; 2]) -> Option<i64> {
        (NOW_MS..=NOW_MS + 60).find(|moment_ms| {
            (0..2).all(|kind| {
                let ended = running.iter().filter(|one| one.ends_ms <= *moment_ms);
                free[kind] + ended.map(|one| one.amount[kind]).sum::<u64>() >= head[kind]
            })
        })
    }

    proptest! {
        #[test]
        fn backfilling_never_delays_the_head(
            free in prop::array::uniform2(0u64..8),
            of in prop::collection::vec((NOW_MS + 1..NOW_MS + 20, prop::array::uniform2(0u64..4)), 0..6),
            head in prop::array::uniform2(0u64..12),
            candidates in prop::collection::vec((1u64..40, prop::array::uniform2(0u64..4)), 0..8),
            spare in any::<bool>(),
        ) {
            let mut running = running(&of);
            let held = Reservation::of_head(NOW_MS, free, &running, head);
            prop_assert_eq!(held.map(|held| held.start_ms()), naive(free, &running, head));
            let Some(mut held) = held else { return Ok(()) };
            let start_ms = held.start_ms();
            let rule = if spare { Rule::Spare } else { Rule::EndsBefore };
            let mut free = free;
            for (estimate_ms, amount) in candidates {
                // At the head's turn nobody is asked.
                let Some(left) = less(free, amount).filter(|_| start_ms > NOW_MS) else { continue };
                if held.admit(rule, NOW_MS, estimate_ms, amount) {
                    free = left;
                    running.push(Running { ends_ms: NOW_MS.saturating_add_unsigned(estimate_ms), amount });
                }
            }
            prop_assert_eq!(naive(free, &running, head), Some(start_ms));
        }
    }
}
