//! The simulation finds bugs that were put in on purpose, each as the broken invariant that it is.
//! `cargo test -p proof --test it sabotage`
#![cfg(debug_assertions)]

use proof::simulate::{Invariant, run_seed};
use vocab::sabotage::{Bug, arm};

/// Seeds of a bug that is found at least once among them.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=100;
/// The last seed for bugs that show in few worlds.
const SEEDS_MAX: u64 = 6000;
/// Finds of one bug after which its search stops.
const FINDS_MAX: usize = 20;

/// Returns the first violation of each seed, at most `FINDS_MAX`, with at least one of `main` if there is one up to
/// `SEEDS_MAX`. Bugs are armed per thread, as tests run.
fn violations(bug: Bug, main: Invariant) -> Vec<(u64, Invariant)> {
    arm(Some(bug));
    let mut found = Vec::new();
    for seed in *SEEDS.start()..=SEEDS_MAX {
        let main_found = found.iter().any(|(_, invariant)| *invariant == main);
        if main_found && (found.len() >= FINDS_MAX || seed > *SEEDS.end()) {
            break;
        }
        if let Some(violation) = run_seed(seed).violation {
            found.push((seed, violation.invariant));
        }
    }
    arm(None);
    found
}

/// Checks that each seed that fails breaks one of `expected`, and that at least one breaks the first of them.
fn check(bug: Bug, expected: &[Invariant]) {
    let main = expected[0];
    let found = violations(bug, main);
    println!("{bug:?}: {} seeds: {found:?}", found.len());
    assert!(
        found.iter().any(|(_, invariant)| *invariant == main),
        "{bug:?} was not found"
    );
    for (seed, invariant) in found {
        assert!(
            expected.contains(&invariant),
            "{bug:?} shows as {invariant:?} in seed {seed}"
        );
    }
}

#[test]
fn a_missing_fence() {
    check(Bug::NoFence, &[Invariant::Replay]);
}

#[test]
fn a_watermark_off_by_one() {
    check(Bug::WatermarkOffByOne, &[Invariant::Replay]);
}

#[test]
fn a_duplicate_not_recognised() {
    // What is done twice may be more than a process can make sense of.
    check(
        Bug::DuplicateNotRecognised,
        &[Invariant::Operation, Invariant::Breakdown],
    );
}

#[test]
fn a_run_that_outlives_its_lease() {
    check(Bug::LeaseOutlived, &[Invariant::Exclusive]);
}

#[test]
fn a_node_that_is_forgotten_at_once() {
    // Its lease is cut short, or what it runs begins elsewhere.
    check(
        Bug::ForgottenAtOnce,
        &[Invariant::Expiry, Invariant::Exclusive],
    );
}

#[test]
fn an_early_expiry() {
    check(Bug::ExpiryEarly, &[Invariant::Expiry]);
}

#[test]
fn a_fact_above_the_cells_level() {
    check(Bug::LevelIgnored, &[Invariant::Level]);
}

#[test]
fn a_suspect_node_that_is_placed_on() {
    check(Bug::SuspectIgnored, &[Invariant::Fit]);
}

#[test]
fn a_node_that_has_less_than_it_holds_and_takes_more() {
    check(Bug::DebtForgotten, &[Invariant::Exclusive]);
}

#[test]
fn one_that_waits_beyond_its_time() {
    check(Bug::TtlIgnored, &[Invariant::Deadline]);
}

#[test]
fn a_run_beyond_its_time_limit() {
    check(Bug::TimeLimitIgnored, &[Invariant::Deadline]);
}

#[test]
fn a_double_release() {
    check(
        Bug::DoubleRelease,
        &[Invariant::Exclusive, Invariant::Breakdown],
    );
}

#[test]
fn a_feed_fenced_by_sequences_alone() {
    check(Bug::FeedFencedBySequence, &[Invariant::Outcome]);
}

#[test]
fn a_position_of_a_sender_that_is_forgotten() {
    check(
        Bug::AheadForgotten,
        &[Invariant::Outcome, Invariant::Operation, Invariant::Replay],
    );
}

#[test]
fn a_limit_that_holds_at_the_nearest_account_only() {
    check(Bug::OverAtHigherLevel, &[Invariant::Quota]);
}

#[test]
fn more_borrowed_than_is_lent() {
    check(Bug::BorrowedBeyondPool, &[Invariant::Quota]);
}

#[test]
fn a_burst_without_an_end() {
    check(Bug::BurstForever, &[Invariant::Quota]);
}

#[test]
fn a_lease_that_ends_early() {
    check(Bug::LeaseEarly, &[Invariant::Expiry, Invariant::Lease]);
}

#[test]
fn a_step_of_a_clock() {
    // Behind a step forward all who wait for a time stand still, until somebody with a right clock begins to lead: who waits
    // for an answer gets none, and who waits for its next try does not see that the ledger has lost its end. What is granted
    // for a time, such as a burst, is over, or goes on, at the wrong time.
    check(
        Bug::ClockStepAdopted,
        &[
            Invariant::Expiry,
            Invariant::Outcome,
            Invariant::Memory,
            Invariant::Quota,
            Invariant::Replay,
        ],
    );
}

#[test]
fn authority_that_was_withdrawn() {
    check(Bug::StaleFencingTokenAccepted, &[Invariant::Lease]);
}

#[test]
fn room_made_beyond_a_queues_limit() {
    check(Bug::PreemptOverQueueLimit, &[Invariant::QueueLimit]);
}

#[test]
fn a_nominee_on_a_node_that_has_changed() {
    // Limits are among what it does not look at, and where it cannot be placed it stays nominated.
    check(
        Bug::NomineeIgnoresFilters,
        &[Invariant::Fit, Invariant::QueueLimit, Invariant::Progress],
    );
}

#[test]
fn placed_and_preempted_at_once() {
    check(Bug::PlacedAndPreempted, &[Invariant::Waste]);
}

#[test]
fn a_finished_run_that_runs_again() {
    check(
        Bug::FinishedRunsAgain,
        &[Invariant::Waste, Invariant::Terminal],
    );
}

#[test]
fn a_lost_wake_up() {
    check(Bug::WakeUpLost, &[Invariant::Memory, Invariant::Progress]);
}

#[test]
fn preemption_without_an_end() {
    // Who takes and gives back without end decides about others by how often it was looked at.
    check(
        Bug::EndlessPreemption,
        &[Invariant::Rest, Invariant::Isolation],
    );
}

#[test]
fn a_model_without_quota() {
    check(Bug::ExceptedModelUsed, &[Invariant::Fit]);
}

#[test]
fn quota_of_a_model_that_is_kept() {
    // It goes on without having asked.
    check(
        Bug::ModelQuotaKept,
        &[Invariant::Terminal, Invariant::Replay],
    );
}

#[test]
fn impossible_demand_that_counts() {
    check(Bug::ImpossibleDemandCounts, &[Invariant::Isolation]);
}

#[test]
fn a_lost_end_that_is_ignored() {
    check(Bug::LostEndIgnored, &[Invariant::Replay]);
}

#[test]
fn a_digest_that_is_ignored() {
    // A leader that goes on from records that were lost may also speak of runs that nobody has.
    check(
        Bug::DigestIgnored,
        &[Invariant::Replay, Invariant::Exclusive],
    );
}

#[test]
fn own_room_that_others_can_take() {
    check(Bug::OwnRoomShared, &[Invariant::Outcome]);
}

#[test]
fn members_that_ask_for_different_gangs() {
    check(Bug::GangTermsIgnored, &[Invariant::Outcome]);
}

#[test]
fn a_team_that_the_tenant_has_not() {
    check(Bug::TeamsIgnored, &[Invariant::Outcome]);
}

#[test]
fn a_rate_for_the_past() {
    // A second rate that states a correction, or no moment, changes no charge.
    check(
        Bug::PastRateAccepted,
        &[Invariant::Bill, Invariant::Outcome],
    );
}

#[test]
fn a_damaged_snapshot_that_is_taken() {
    // Who begins with it has another state, or another history, or cannot make sense of what comes.
    check(
        Bug::DamagedSnapshotTaken,
        &[
            Invariant::Replay,
            Invariant::Breakdown,
            Invariant::Exclusive,
            Invariant::Operation,
            Invariant::Outcome,
            Invariant::Terminal,
            Invariant::Expiry,
            Invariant::Fit,
        ],
    );
}

#[test]
fn a_foreign_record_that_is_skipped() {
    check(Bug::ForeignSkipped, &[Invariant::Replay]);
}
