//! Budgets: exact to the millisecond, by period and rate.

use super::check;

const HOUR: u64 = 3_600_000;

/// `{n}h` stands for so many hours.
fn check_hours(table: &str) {
    let mut text = table.to_owned();
    for hours in (1..200u64).rev() {
        text = text.replace(&format!("{hours}h"), &(hours * HOUR).to_string());
    }
    check(&text);
}

#[test]
fn use_is_counted_from_start_to_end() {
    check_hours(
        "limit a cpu 9, budget a cpu 10 day, ask 1 a cpu=4 => 1 reserved
         at 1h, start 1
         at 3h
         ? forecast a cpu => 8/10 by 24h until 12600000
         at 12599999, ask 2 a cpu=1 => 2 reserved
         at 12600000, ask 3 a cpu=1 => 3 denied budget exhausted: a cpu (limit 10, actual 10)
         ? forecast a cpu => 10/10 by 24h until 12600000
         end 1 => 1 released
         at 5h, ask 4 a cpu=1 => 4 denied budget exhausted: a cpu (limit 10, actual 10)
         at 24h, ask 5 a cpu=1 => 5 reserved
         ? forecast a cpu => 0/10 by 48h until never",
    );
}

#[test]
fn only_what_is_in_the_period_counts() {
    check_hours(
        "limit a memory 9, ask 1 a memory=1, ask 2 a memory=2 => 1 reserved; 2 reserved
         start 1, at 2h, start 2
         at 23h, budget a memory 1000 day
         ? forecast a memory => 65/1000 by 24h until never
         at 30h, requeue 2
         ? forecast a memory => 18/1000 by 48h until never
         at 50h
         ? forecast a memory => 2/1000 by 72h until never
         end 1 => 1 released
         at 60h
         ? forecast a memory => 2/1000 by 72h until never",
    );
}

#[test]
fn a_run_that_is_over_when_the_budget_is_set_does_not_count() {
    check_hours(
        "limit a cpu 9, ask 1 a cpu=4, ask 2 a cpu=1, ask 3 a cpu=2 => 1 reserved; 2 reserved; 3 reserved
         start 1, start 2, start 3, at 1h, end 1, requeue 2, budget a cpu 10 day => 1 released
         ? forecast a cpu => 2/10 by 24h until 5h
         at 4h, ask 4 a cpu=1 => 4 reserved
         end 3 => 3 released
         at 23h, ask 5 a cpu=1 => 5 reserved
         ? forecast a cpu => 8/10 by 24h until never",
    );
}

#[test]
fn who_waits_is_tried_when_the_next_period_begins_or_the_budget_changes() {
    check_hours(
        "tenant a wait, limit a cpu 9, budget a/x cpu 1 hour, ask 1 a/x/n cpu=2 => 1 reserved
         start 1, at 1800000, ask 2 a/x cpu=1 => 2 waits budget exhausted: a/x cpu (limit 1, actual 1)
         ask 3 a/x/m cpu=1, ask 4 a/y cpu=1, ask 5 a/x storage=1 => 3 waits budget exhausted: a/x cpu (limit 1, actual 1); 4 reserved; 5 reserved
         ? wake => 1h
         at 3599999
         at 1h => 2 reserved; 3 reserved
         at 5400000, ask 6 a/x cpu=1 => 6 waits budget exhausted: a/x cpu (limit 1, actual 1)
         budget a/x cpu 2 hour => 6 reserved
         at 2h, at 9000000, budget a/x cpu 1 hour, ask 7 a/x cpu=1 => 7 waits budget exhausted: a/x cpu (limit 1, actual 1)
         budget a/x cpu none => 7 reserved",
    );
}

#[test]
fn a_node_has_a_model_for_its_gpus_alone() {
    check_hours(
        "rate cpu 1000 0, rate gpu 100 0, rate gpu:T4 500 0, node n T4, limit a cpu 9000, limit a gpu 9000
         budget a money 1000000 day, budget a gpu 100000 day
         ask 1 a cpu=1000 gpu=1 => 1 reserved
         place 1 n, start 1, at 1h
         ? forecast a money => 1500/1000000 by 24h until never
         ? forecast a gpu => 1000/100000 by 24h until never",
    );
}

#[test]
fn money_is_by_the_rates_in_force() {
    check_hours(
        "rate cpu 1000 0, rate cpu 3000 2h, rate memory 64 0, limit a cpu 9000, limit a memory 9000000000
         budget a money 100000 day, ask 1 a cpu=2000 memory=2147483648 => 1 reserved
         start 1, at 2h
         ? forecast a money => 4256/100000 by 24h until 63446476
         at 4h, end 1 => 1 released
         ? forecast a money => 16512/100000 by 24h until never",
    );
}

#[test]
fn the_models_own_rate_goes_before_that_of_gpus() {
    check_hours(
        "rate gpu 1000 0, rate gpu:T4 500 0, rate gpu 2000 1h, rate gpu:V100 9000 1h
         node n T4, node m V100, limit a gpu 9000, budget a money 1000000 day
         ask 1 a gpu=1, ask 2 a gpu=1, ask 3 a gpu=1 => 1 reserved; 2 reserved; 3 reserved
         place 1 n, start 1, place 2 m, start 2, start 3
         at 1h
         ? forecast a money => 2500/1000000 by 24h until never
         at 2h
         ? forecast a money => 14000/1000000 by 24h until never
         requeue 2, place 2 n, start 2
         at 3h
         ? forecast a money => 17000/1000000 by 24h until never",
    );
}

#[test]
fn a_rate_may_be_of_a_pool_a_cluster_a_priority_class_or_a_tenant() {
    check_hours(
        "rate cpu 1000 0, rate cpu 10 0 pool=spot, rate cpu 3 0 pool=spot cluster=west, rate cpu 200 0 class=low
         rate cpu 7 5h tenant=b, rate cpu 100000 0 cluster=west
         node n T4 pool=spot cluster=east, node m T4 cluster=west pool=spot, node o T4
         limit a cpu 9000, limit b cpu 9000, budget a money 1000000 day, budget b money 1000000 day
         ask 1 a cpu=1000, ask 2 a cpu=1000, ask 3 a cpu=1000, ask 4 a cpu=1000 class=low, ask 5 b cpu=1000 class=low => 1 reserved; 2 reserved; 3 reserved; 4 reserved; 5 reserved
         place 1 n, start 1, at 1h, end 1 => 1 released
         ? forecast a money => 10/1000000 by 24h until never
         place 2 m, start 2, at 2h, end 2 => 2 released
         ? forecast a money => 13/1000000 by 24h until never
         place 3 o, start 3, at 3h, end 3 => 3 released
         ? forecast a money => 1013/1000000 by 24h until never
         place 4 n, start 4, place 5 o, start 5, at 4h
         ? forecast a money => 1213/1000000 by 24h until never
         ? forecast b money => 200/1000000 by 24h until never
         at 6h
         ? forecast b money => 407/1000000 by 24h until never",
    );
}

#[test]
fn a_rate_that_is_taken_back_leaves_the_wider_one_or_none() {
    check_hours(
        "rate cpu 1000 0, rate cpu 10 0 pool=spot, node n T4 pool=spot, limit a cpu 9000, budget a money 1000000 day
         rate cpu 77 4h pool=spot, ask 1 a cpu=1000 => 1 reserved
         place 1 n, start 1, rate cpu none 1h pool=spot, at 2h
         ? forecast a money => 1010/1000000 by 24h until never
         rate cpu none 3h, at 6h
         ? forecast a money => 2010/1000000 by 24h until never
         rate cpu 5 7h pool=spot, at 9h, end 1 => 1 released
         ? forecast a money => 2020/1000000 by 24h until never",
    );
}

#[test]
fn who_runs_again_elsewhere_pays_what_it_costs_there() {
    check_hours(
        "rate cpu 1000 0, rate cpu 10 0 pool=spot, node n T4 pool=spot, node m T4
         limit a cpu 9000, budget a money 1000000 day, ask 1 a cpu=1000 => 1 reserved
         place 1 n, start 1, at 1h, requeue 1, place 1 m, start 1, at 2h
         ? forecast a money => 1010/1000000 by 24h until never
         node m T4 pool=spot, at 3h
         ? forecast a money => 2010/1000000 by 24h until never
         requeue 1, place 1 m, start 1, at 4h
         ? forecast a money => 2020/1000000 by 24h until never",
    );
}

#[test]
fn money_across_a_period_and_a_rate() {
    check_hours(
        "rate cpu 1000 0, rate cpu 2000 25h, limit a cpu 9000, budget a money 5000 day, ask 1 a cpu=1000 => 1 reserved
         at 23h, start 1
         at 24h
         ? forecast a money => 0/5000 by 48h until 29h
         at 26h
         ? forecast a money => 3000/5000 by 48h until 27h
         at 27h, ask 2 a cpu=1 => 2 denied budget exhausted: a money (limit 5000, actual 5000)
         ask 3 a storage=1 => 3 reserved",
    );
}

#[test]
fn every_level_has_its_budget() {
    check_hours(
        "limit a gpu 9000, limit a pods 9, budget a gpu 4000 day, budget a/x gpu 1000 day
         ask 1 a/x gpu=1, ask 2 a/y gpu=3 => 1 reserved; 2 reserved
         start 1, start 2, at 1h
         ask 3 a/x gpu=1 => 3 denied budget exhausted: a/x gpu (limit 1000, actual 1000)
         ask 4 a/y gpu=1 => 4 denied budget exhausted: a gpu (limit 4000, actual 4000)
         ask 5 a/y => 5 reserved
         end 1, end 2, end 5 => 1 released; 2 released; 5 released
         budget a gpu none, budget a/x gpu none, limit a gpu none, limit a pods none
         ? accounts => 0",
    );
}
