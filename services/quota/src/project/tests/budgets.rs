//! What is spent, how fast, and when nothing is left.

use super::*;

/// Started at 1,000,000 and looked at half an hour later.
const RUN: &str = "node n T4, ask 1 t/a cpu=4000 gpu=2, reserved 1, placed 1 n, @1000000, \
                   started 1 1000000";

#[test]
fn use_counts_from_the_start_to_the_end_as_the_agent_says_them() {
    let begin = format!("budget t cpu 8000 day, {RUN}");
    check(
        budgets,
        &begin,
        &["t cpu 0/8000 per day @1000001 burns 4000 until@8200000"],
    );
    // An hour and a half of 4 cores.
    check(
        budgets,
        &format!("{begin}, @6399999, ended 1 6400000"),
        &["t cpu 6000/8000 per day @6400000 burns 0"],
    );
    // The end is heard of late: what was counted meanwhile goes back.
    check(
        budgets,
        &format!("{begin}, @7199999, tick, @7299999, ended 1 6400000"),
        &["t cpu 6000/8000 per day @7300000 burns 0"],
    );
    check(
        budgets,
        &format!("{begin}, @6399999, requeued 1 4600000"),
        &["t cpu 4000/8000 per day @6400000 burns 0"],
    );
}

#[test]
fn money_goes_by_the_rate_of_the_hour_and_the_model() {
    let prices = "rate cpu 100, rate gpu 1000, rate gpu:T4 600, rate gpu:T4 1200 from=7200000";
    // Each hour: 4 cores at 100, 2 T4 at 600, and at 1200 from the second hour on.
    let begin = format!("{prices}, budget t money 10000 day, {RUN}, @7199999, tick");
    check(
        budgets,
        &begin,
        &["t money 2755/10000 per day @7200000 burns 2800 until@16514286"],
    );
    check(
        budgets,
        &format!("{begin}, @10800000, tick"),
        &["t money 5555/10000 per day @10800001 burns 2800 until@16514286"],
    );
    // On a node without a model the rate of all of them counts.
    let plain = "rate gpu 1000, budget t money 10000 day, ask 1 t gpu=1, reserved 1, placed 1 n, \
                 started 1, @3600005, tick";
    check(
        budgets,
        plain,
        &["t money 1000/10000 per day @3600006 burns 1000 until@36000006"],
    );
    // Nothing has a rate.
    check(
        budgets,
        &format!("budget t money 10 day, {RUN}"),
        &["t money 0/10 per day @1000001 burns 0"],
    );
}

#[test]
fn every_level_has_its_own_budget() {
    check(
        budgets,
        &format!("budget t gpu 2000 hour, budget t/a gpu 1000 day, budget t/b gpu 1 day, {RUN}"),
        &[
            "t gpu 0/2000 per hour @1000001 burns 2000",
            "t/a gpu 0/1000 per day @1000001 burns 2000 until@2800000",
            "t/b gpu 0/1 per day @3 burns 0",
        ],
    );
}

#[test]
fn a_period_begins_at_nothing() {
    let begin = format!("budget t cpu 2000 hour, {RUN}");
    check(
        budgets,
        &format!("{begin}, @3599999, tick"),
        &["t cpu 0/2000 per hour @3600000 burns 4000 until@5400000"],
    );
    // Used up: it says since when.
    check(
        budgets,
        &format!("{begin}, @3499999, ended 1 3500000"),
        &["t cpu 2777/2000 per hour @3500000 burns 0 until@2800000"],
    );
    // What ended before this hour did takes nothing of it.
    check(
        budgets,
        &format!("{begin}, @3600999, ended 1 3500000"),
        &["t cpu 0/2000 per hour @3601000 burns 0"],
    );
    check(
        budgets,
        &format!("{begin}, ended 1, @90000000, tick"),
        &["t cpu 0/2000 per hour @90000001 burns 0"],
    );
}

#[test]
fn a_budget_counts_what_runs_from_its_start() {
    let set = format!("{RUN}, @4599999, budget t cpu 8000 day");
    let row = ["t cpu 4000/8000 per day @4600000 burns 4000 until@8200000"];
    check(budgets, &set, &row);
    check(
        budgets,
        &format!("{RUN}, @4599999, budget t cpu 8000 hour"),
        &["t cpu 1111/8000 per hour @4600000 burns 4000"],
    );
    check(
        budgets,
        &format!("{set}, @6399999, budget t cpu 9000 day v=2"),
        &["t cpu 6000/9000 per day @6400000 burns 4000 until@9100000"],
    );
    check(
        budgets,
        &format!("{set}, @6399999, ended 1, budget t cpu 9000 week v=2"),
        &["t cpu 0/9000 per week @6400001 burns 0"],
    );
    check(budgets, &format!("{set}, budget t cpu none"), &[]);
    check(
        budgets,
        &format!("{set}, budget t cpu 0 day v=2"),
        &["t cpu 4000/0 per day @4600001 burns 4000 until@4600001"],
    );
}
