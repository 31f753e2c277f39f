//! How many allocations of a job set, and of a tenant, stand where. Only differences are made: the tables add them up, so nothing of
//! the past is held for it.

use super::{AllocationRow, AllocationState, Written};
use std::collections::BTreeMap;
use vocab::{EndCause, Millis, ResourceKind, Stage, Token};

/// As what an allocation counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Quota has not decided.
    Requested,
    /// For a place or for quota.
    Waiting,
    Placed,
    Running,
    Stopping,
    Finished,
    /// Over for any cause but these.
    Failed,
    Cancelled,
    Denied,
}

impl Standing {
    pub const COUNT: usize = 9;

    pub fn of(state: &AllocationState) -> Self {
        if let AllocationState::Ended { cause, .. } = state {
            return match cause {
                EndCause::Finished => Self::Finished,
                EndCause::Cancelled => Self::Cancelled,
                _ => Self::Failed,
            };
        }
        match state.stage() {
            Stage::Requested if state.waits() => Self::Waiting,
            Stage::Requested => Self::Requested,
            Stage::Queued | Stage::Nominated => Self::Waiting,
            Stage::Held { stop: Some(_), .. } => Self::Stopping,
            Stage::Held { started: false, .. } => Self::Placed,
            Stage::Held { started: true, .. } => Self::Running,
            // With its cause above.
            Stage::Ended => Self::Failed,
            Stage::Denied => Self::Denied,
        }
    }

    /// It has its place on a node.
    fn holds(self) -> bool {
        matches!(self, Self::Placed | Self::Running | Self::Stopping)
    }
}

/// A count for each standing, in their order.
pub type Counts = [i64; Standing::COUNT];

/// What a batch changes of a job set in a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSetTally {
    pub counts: Counts,
    pub first_requested: Millis,
    pub last_change: Millis,
}

/// What a batch changes of a tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TenantTally {
    pub counts: Counts,
    /// What is held on nodes, by kind.
    pub held: [i64; 3],
}

#[derive(Debug, Default)]
pub struct Tallies<'a> {
    /// By tenant, job set and queue.
    pub job_sets: BTreeMap<(&'a Token, &'a Token, &'a Token), JobSetTally>,
    pub tenants: BTreeMap<&'a Token, TenantTally>,
}

impl<'a> Tallies<'a> {
    pub fn of(written: &[&'a Written]) -> Self {
        let mut tallies = Self::default();
        for one in written {
            tallies.changes(&one.row, one.before, Standing::of(&one.row.state));
        }
        tallies
    }

    fn changes(&mut self, row: &'a AllocationRow, before: Option<Standing>, now: Standing) {
        let spec = row.spec.common();
        let key = (&row.tenant, &spec.job_set, row.queue());
        let job_set = self.job_sets.entry(key).or_insert(JobSetTally {
            counts: Counts::default(),
            first_requested: row.requested_at,
            last_change: row.since,
        });
        job_set.first_requested = job_set.first_requested.min(row.requested_at);
        // Also where it stands as the batch before left it: how the ledger was cut into batches must not show.
        job_set.last_change = job_set.last_change.max(row.since);
        if before == Some(now) {
            return;
        }
        let tenant = self.tenants.entry(&row.tenant).or_default();
        for counts in [&mut job_set.counts, &mut tenant.counts] {
            if let Some(before) = before {
                counts[before as usize] -= 1;
            }
            counts[now as usize] += 1;
        }
        let held = match (before.is_some_and(Standing::holds), now.holds()) {
            (false, true) => 1,
            (true, false) => -1,
            (false, false) | (true, true) => return,
        };
        for (sum, kind) in tenant.held.iter_mut().zip(ResourceKind::ALL) {
            // An allocation's amounts are far below 2^63.
            let amount = i64::try_from(spec.amount(kind)).unwrap_or(i64::MAX);
            *sum = sum.saturating_add(held * amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project::Place;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use vocab::{AllocationNo, AllocationSpec, Lsn};

    fn place(started: bool) -> Place {
        Place {
            node: Token::new("n").unwrap(),
            gpus: Default::default(),
            placed_at: Millis(1),
            started_at: started.then_some(Millis(2)),
        }
    }

    /// One for each number below 8; those from 6 on are over.
    fn state(no: u8) -> AllocationState {
        let held = |started, stop| AllocationState::Held {
            place: place(started),
            stop,
        };
        let ended = |cause| AllocationState::Ended {
            place: None,
            cause,
            at: Millis(3),
            exit: None,
        };
        match no {
            0 => AllocationState::default(),
            1 => AllocationState::Queued {
                reason: None,
                pending_group: None,
                since: Millis(1),
                not_before: None,
            },
            2 => AllocationState::Nominated {
                node: Token::new("n").unwrap(),
                since: Millis(1),
            },
            3 => held(false, None),
            4 => held(true, None),
            5 => held(true, Some(crate::project::Stop::ForGood)),
            6 => ended(EndCause::Finished),
            _ => ended(EndCause::NodeLost),
        }
    }

    fn row(no: u64, state: AllocationState) -> AllocationRow {
        let token = |text: String| Token::new(&text).unwrap();
        let job_set = token(format!("j{}", no % 3));
        let mut spec = AllocationSpec::plain(job_set, 100 * no, no);
        spec.queue = no.is_multiple_of(2).then(|| token("q".to_owned()));
        AllocationRow {
            allocation: AllocationNo(no),
            tenant: token(format!("t{}", no % 2)),
            spec: spec.into(),
            requested_at: Millis(no as i64),
            state,
            since: Millis(100 + no as i64),
            attempts: 0,
            last_cause: None,
            past: Vec::new(),
            quota_flags: Default::default(),
            lsn: Lsn(1),
        }
    }

    proptest! {
        /// Batches of moves of ten allocations: what they add up to is what a count of them all says.
        #[test]
        fn differences_add_up_to_the_counts(
            batches in prop::collection::vec(prop::collection::btree_map(1u64..10, 0u8..8, 1..6), 1..20),
        ) {
            let mut last: BTreeMap<u64, Standing> = BTreeMap::new();
            let mut over: Vec<u64> = Vec::new();
            let mut job_sets: BTreeMap<[String; 3], Counts> = BTreeMap::new();
            let mut tenants: BTreeMap<String, TenantTally> = BTreeMap::new();
            for batch in batches {
                let mut written = Vec::new();
                for (no, to) in batch {
                    if over.contains(&no) {
                        continue;
                    }
                    if to >= 6 {
                        over.push(no);
                    }
                    let row = row(no, state(to));
                    let before = last.insert(no, Standing::of(&row.state));
                    written.push(Written { row, before, told: Default::default(), operation: None });
                }
                let written: Vec<&Written> = written.iter().collect();
                let tallies = Tallies::of(&written);
                for ((tenant, job_set, queue), tally) in tallies.job_sets {
                    prop_assert!(tally.first_requested.0 < 10 && tally.last_change.0 > 100);
                    let key = [tenant, job_set, queue].map(Token::to_string);
                    let sums = job_sets.entry(key).or_default();
                    sums.iter_mut().zip(tally.counts).for_each(|(sum, count)| *sum += count);
                }
                for (tenant, tally) in tallies.tenants {
                    let sum = tenants.entry(tenant.to_string()).or_default();
                    sum.counts.iter_mut().zip(tally.counts).for_each(|(sum, count)| *sum += count);
                    sum.held.iter_mut().zip(tally.held).for_each(|(sum, held)| *sum += held);
                }
            }
            let mut expected_sets: BTreeMap<[String; 3], Counts> = BTreeMap::new();
            let mut expected: BTreeMap<String, TenantTally> = BTreeMap::new();
            for (no, standing) in last {
                let row = row(no, AllocationState::default());
                let key = [&row.tenant, &row.spec.common().job_set, row.queue()].map(Token::to_string);
                expected_sets.entry(key).or_default()[standing as usize] += 1;
                let of_tenant = expected.entry(row.tenant.to_string()).or_default();
                of_tenant.counts[standing as usize] += 1;
                if standing.holds() {
                    of_tenant.held[0] += 100 * no as i64;
                    of_tenant.held[1] += no as i64;
                }
            }
            prop_assert_eq!(job_sets, expected_sets);
            prop_assert_eq!(tenants, expected);
        }
    }

    /// What the tables come to: each batch is a list of (number, state), of which a number's last one is written.
    fn tables(batches: &[Vec<(u64, u8)>]) -> BTreeMap<[String; 3], (Counts, Millis, Millis)> {
        let mut last: BTreeMap<u64, Standing> = BTreeMap::new();
        let mut job_sets: BTreeMap<[String; 3], (Counts, Millis, Millis)> = BTreeMap::new();
        let mut now = 0;
        for batch in batches {
            let mut rows = BTreeMap::new();
            for &(no, to) in batch {
                now += 1;
                let mut row = row(no, state(to));
                row.since = Millis(now);
                rows.insert(no, row);
            }
            let written = rows.into_values().map(|row| Written {
                before: last.insert(row.allocation.0, Standing::of(&row.state)),
                row,
                told: Default::default(),
                operation: None,
            });
            let written: Vec<Written> = written.collect();
            let written: Vec<&Written> = written.iter().collect();
            for ((tenant, job_set, queue), tally) in Tallies::of(&written).job_sets {
                let key = [tenant, job_set, queue].map(Token::to_string);
                let new = (Counts::default(), tally.first_requested, tally.last_change);
                let (counts, first, last) = job_sets.entry(key).or_insert(new);
                counts
                    .iter_mut()
                    .zip(tally.counts)
                    .for_each(|(sum, count)| *sum += count);
                *first = tally.first_requested.min(*first);
                *last = tally.last_change.max(*last);
            }
        }
        job_sets
    }

    proptest! {
        #[test]
        fn how_the_ledger_is_cut_into_batches_does_not_show(
            batches in prop::collection::vec(prop::collection::vec((1u64..6, 0u8..6), 1..5), 1..8),
        ) {
            prop_assert_eq!(tables(&batches), tables(&[batches.concat()]));
        }
    }

    #[test]
    fn a_move_within_a_standing_is_a_change_of_its_job_set() {
        let one = Written {
            row: row(1, state(2)),
            before: Some(Standing::Waiting),
            told: Default::default(),
            operation: None,
        };
        let tallies = Tallies::of(&[&one]);
        let job_set = tallies
            .job_sets
            .values()
            .next()
            .map(|it| (it.counts, it.last_change));
        assert_eq!(job_set, Some((Counts::default(), Millis(101))));
        assert!(tallies.tenants.is_empty());
    }
}
