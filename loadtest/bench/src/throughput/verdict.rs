//! Whether a rate is sustained: everything that was due is decided, nothing piles up, and the read models keep up.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Seconds' worth of load that may be without outcome when the window ends.
const OPEN_OUTCOMES_S_MAX: f64 = 1.0;
/// Seconds' worth of load that may not be on the bill when the window ends.
const OPEN_TASKS_S_MAX: f64 = 2.0;
/// The way to the bill takes a moment at any rate: the tables are written in batches that wait for more.
pub const LAG: Duration = Duration::from_secs(1);
/// Of the tasks that were due in the window until a [`LAG`] ago, at least so many are over.
const FINISHED_SHARE_MIN: f64 = 0.95;
/// What may be under way at any rate: a few messages.
const OPEN_MIN: f64 = 100.0;
/// From the window's end until every read model has everything.
const DRAIN_S_MAX: f64 = 3.0;

/// What was seen of one rate.
#[derive(Debug, Clone, Copy)]
pub struct Evidence {
    pub per_s: f64,
    pub refused: u64,
    /// Without a definite outcome, however often they were sent.
    pub lost: u64,
    /// Due and not answered, when the window ended.
    pub open_outcomes: f64,
    /// Accepted and not on the bill, when the window ended.
    pub open_tasks: f64,
    /// Part of the tasks that were due in the window until a [`LAG`] ago which was on the bill, at the best look of the
    /// window's last [`LAG`]: the bill is written in lumps.
    pub finished_share: f64,
    pub drain_s: f64,
}

/// Why a rate is not sustained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shortfall {
    Refusals,
    IndefiniteOutcomes,
    OutcomesPileUp,
    TasksPileUp,
    /// Too few of the window's tasks were over in it.
    TasksUnfinished,
    SlowToDrain,
}

pub fn shortfalls(seen: &Evidence) -> Vec<Shortfall> {
    let piles = |open: f64, seconds: f64| open > (seen.per_s * seconds).max(OPEN_MIN);
    let outcomes = piles(seen.open_outcomes, OPEN_OUTCOMES_S_MAX);
    [
        (seen.refused > 0, Shortfall::Refusals),
        (seen.lost > 0, Shortfall::IndefiniteOutcomes),
        (outcomes, Shortfall::OutcomesPileUp),
        (
            piles(seen.open_tasks, OPEN_TASKS_S_MAX),
            Shortfall::TasksPileUp,
        ),
        (
            seen.finished_share < FINISHED_SHARE_MIN,
            Shortfall::TasksUnfinished,
        ),
        (seen.drain_s > DRAIN_S_MAX, Shortfall::SlowToDrain),
    ]
    .into_iter()
    .filter_map(|(is, what)| is.then_some(what))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: Evidence = Evidence {
        per_s: 10_000.0,
        refused: 0,
        lost: 0,
        open_outcomes: 9_000.0,
        open_tasks: 19_000.0,
        finished_share: 0.951,
        drain_s: 2.9,
    };

    fn check(seen: Evidence, expected: &[Shortfall]) {
        assert_eq!(shortfalls(&seen), expected, "{seen:?}");
    }

    #[test]
    fn each_rule_has_its_name() {
        use Shortfall::*;
        check(FINE, &[]);
        check(Evidence { refused: 1, ..FINE }, &[Refusals]);
        check(Evidence { lost: 1, ..FINE }, &[IndefiniteOutcomes]);
        let open_outcomes = 11_000.0;
        check(
            Evidence {
                open_outcomes,
                ..FINE
            },
            &[OutcomesPileUp],
        );
        let open_tasks = 21_000.0;
        check(Evidence { open_tasks, ..FINE }, &[TasksPileUp]);
        let finished_share = 0.949;
        check(
            Evidence {
                finished_share,
                ..FINE
            },
            &[TasksUnfinished],
        );
        check(
            Evidence {
                drain_s: 3.1,
                ..FINE
            },
            &[SlowToDrain],
        );
    }

    #[test]
    fn a_little_load_may_be_in_a_few_messages() {
        let little = Evidence {
            per_s: 10.0,
            open_outcomes: 90.0,
            open_tasks: 90.0,
            ..FINE
        };
        check(little, &[]);
        // What is but a few messages is not a window's worth of tasks that never end.
        let finished_share = 0.1;
        check(
            Evidence {
                finished_share,
                ..little
            },
            &[Shortfall::TasksUnfinished],
        );
    }
}
