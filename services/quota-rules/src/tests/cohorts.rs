//! Cohorts: who borrows, who lends, who gets it back.

use super::check;

const TWO: &str = "tenant a cohort=c, tenant b cohort=c, limit a cpu 4, limit b cpu 4
";

fn check_two(table: &str) {
    check(&format!("{TWO}{table}"));
}

#[test]
fn one_behind_another_that_takes_nothing_back_takes_nothing_either() {
    check(
        "tenant a cohort=c, tenant b cohort=c wait lower, limit a cpu 0, limit b cpu 4
         ask 1 a cpu=2 prio=-1, ask 2 a cpu=2 prio=9 => 1 reserved borrowed; 2 reserved borrowed
         ask 3 b cpu=4 => 3 waits quota exceeded: b cpu (limit 0, actual 4)
         ask 4 b cpu=2 => 4 waits quota exceeded: b cpu (limit 0, actual 4)",
    );
}

#[test]
fn one_behind_another_takes_back_its_part_as_well() {
    check(
        "tenant a cohort=c, tenant b cohort=c wait, limit a cpu 0, limit b cpu 4
         ask 1 a cpu=2, ask 2 a cpu=2 => 1 reserved borrowed; 2 reserved borrowed
         ask 3 b cpu=2 => 3 waits quota exceeded: b cpu (limit 0, actual 2); 2 reclaimed by 3
         ask 4 b cpu=2 => 4 waits quota exceeded: b cpu (limit 0, actual 2); 1 reclaimed by 4",
    );
}

#[test]
fn what_others_do_not_use_can_be_borrowed() {
    check_two(
        "ask 1 a cpu=6 => 1 reserved borrowed
         ask 2 a cpu=3 => 2 denied quota exceeded: a cpu (limit 8, actual 9)
         ask 3 a cpu=2 => 3 reserved borrowed
         ask 4 a cpu=1 => 4 denied quota exceeded: a cpu (limit 8, actual 9)
         end 1 => 1 released
         ask 5 b cpu=6 => 5 reserved borrowed
         ask 6 b cpu=9 => 6 denied quota never fits: b cpu (limit 8, actual 9)",
    );
}

#[test]
fn outside_of_a_cohort_nothing_is_borrowed() {
    check(
        "tenant a cohort=c, tenant b cohort=d, limit a cpu 4, limit b cpu 4
         ask 1 a cpu=5 => 1 denied quota never fits: a cpu (limit 4, actual 5)
         tenant b cohort=c
         ask 2 a cpu=5 => 2 reserved borrowed
         tenant b
         ask 3 b cpu=4 => 3 reserved
         ask 4 a cpu=1 => 4 denied quota exceeded: a cpu (limit 4, actual 6)",
    );
}

#[test]
fn one_lends_no_more_than_it_says() {
    check(
        "tenant a cohort=c, tenant b cohort=c, limit a cpu 4, limit b cpu 4 lend=1
         ask 1 a cpu=6 => 1 denied quota never fits: a cpu (limit 5, actual 6)
         ask 2 a cpu=5 => 2 reserved borrowed
         ask 3 b cpu=3 => 3 reserved
         ask 4 b cpu=1 => 4 waits quota exceeded: b cpu (limit 3, actual 4); 2 reclaimed by 4",
    );
}

#[test]
fn one_borrows_no_more_than_it_may() {
    check(
        "tenant a cohort=c, tenant b cohort=c, limit a cpu 4 borrow=2, limit b cpu 4
         ask 1 a cpu=7 => 1 denied quota never fits: a cpu (limit 6, actual 7)
         ask 2 a cpu=6 => 2 reserved borrowed
         ask 3 a cpu=1 => 3 denied quota exceeded: a cpu (limit 6, actual 7)
         ask 4 b cpu=2 => 4 reserved",
    );
}

#[test]
fn who_cannot_be_preempted_cannot_borrow() {
    check(
        "tenant a cohort=c fixed, tenant b cohort=c, limit a cpu 4, limit b cpu 4
         ask 1 a cpu=5 => 1 denied quota never fits: a cpu (limit 4, actual 5)
         ask 2 a cpu=4 => 2 reserved
         ask 3 a cpu=1 => 3 denied quota exceeded: a cpu (limit 4, actual 5)",
    );
}

#[test]
fn the_lender_takes_back_and_the_other_waits_and_comes_back() {
    check_two(
        "ask 1 a cpu=2, ask 2 a cpu=2, ask 3 a cpu=2, ask 4 a cpu=2 => 1 reserved; 2 reserved; 3 reserved borrowed; 4 reserved borrowed
         start 4
         ask 5 b cpu=3 => 5 waits quota exceeded: b cpu (limit 0, actual 3); 4 reclaimed by 5; 3 reclaimed by 5
         off 3 => 3 released; 3 waits quota exceeded: a cpu (limit 5, actual 8)
         requeue 4, off 4 => 4 released; 4 waits quota exceeded: a cpu (limit 5, actual 6); 5 reserved
         ? a cpu => 4/0
         ? b cpu => 3/0
         ask 6 a cpu=1 => 6 denied quota exceeded: a cpu (limit 5, actual 6)
         end 5 => 5 released; 3 reserved borrowed; 4 reserved borrowed
         start 4, end 4 => 4 released",
    );
}

#[test]
fn a_reclaimed_one_that_ends_is_given_back_once() {
    check_two(
        "ask 1 a cpu=4, ask 2 a cpu=4 => 1 reserved; 2 reserved borrowed
         start 2, ask 3 b cpu=1 => 3 waits quota exceeded: b cpu (limit 0, actual 1); 2 reclaimed by 3
         end 2 => 2 released; 3 reserved
         ? a cpu => 4/0
         ? live => 2",
    );
}

#[test]
fn an_allocation_larger_than_what_is_borrowed_is_taken_back_if_no_smaller_one_will_do() {
    check_two(
        "ask 1 a cpu=6 => 1 reserved borrowed
         ask 2 b cpu=3 => 2 waits quota exceeded: b cpu (limit 2, actual 3); 1 reclaimed by 2
         off 1 => 1 released; 1 waits quota exceeded: a cpu (limit 5, actual 6); 2 reserved",
    );
    check_two(
        "ask 1 a cpu=3, ask 2 a cpu=1, ask 3 a cpu=1 => 1 reserved; 2 reserved; 3 reserved borrowed
         ask 4 b cpu=4 => 4 waits quota exceeded: b cpu (limit 3, actual 4); 3 reclaimed by 4",
    );
}

#[test]
fn only_lower_priorities_are_taken_back() {
    check(
        "tenant a cohort=c, tenant b cohort=c lower, limit a cpu 4, limit b cpu 4
         ask 1 a cpu=4 prio=9, ask 2 a cpu=2 prio=5, ask 3 a cpu=2 prio=1 => 1 reserved; 2 reserved borrowed; 3 reserved borrowed
         ask 4 b cpu=1 prio=1 => 4 denied quota exceeded: b cpu (limit 0, actual 1)
         ask 5 b cpu=3 prio=2 => 5 denied quota exceeded: b cpu (limit 0, actual 3)
         ask 6 b cpu=2 prio=2 => 6 waits quota exceeded: b cpu (limit 0, actual 2); 3 reclaimed by 6
         ask 7 b cpu=2 prio=6 => 7 waits quota exceeded: b cpu (limit 0, actual 2); 2 reclaimed by 7",
    );
}

#[test]
fn who_never_takes_back_is_refused_or_waits() {
    check(
        "tenant a cohort=c, tenant b cohort=c never, limit a cpu 4, limit b cpu 4
         ask 1 a cpu=4, ask 2 a cpu=4 => 1 reserved; 2 reserved borrowed
         ask 3 b cpu=1 => 3 denied quota exceeded: b cpu (limit 0, actual 1)
         tenant b cohort=c never wait
         ask 4 b cpu=1 => 4 waits quota exceeded: b cpu (limit 0, actual 1)
         end 2 => 2 released; 4 reserved",
    );
}

#[test]
fn just_enough_is_taken_back_and_what_is_on_its_way_counts() {
    check_two(
        "ask 1 a cpu=4, ask 2 a cpu=1, ask 3 a cpu=3 => 1 reserved; 2 reserved borrowed; 3 reserved borrowed
         ask 4 b cpu=2 => 4 waits quota exceeded: b cpu (limit 0, actual 2); 3 reclaimed by 4
         ask 5 b cpu=1 => 5 waits quota exceeded: b cpu (limit 0, actual 2)
         ask 6 b cpu=1 => 6 waits quota exceeded: b cpu (limit 0, actual 2); 2 reclaimed by 6
         off 3 => 3 released; 3 waits quota exceeded: a cpu (limit 4, actual 8); 4 reserved; 5 reserved",
    );
}

#[test]
fn who_turns_out_not_to_be_needed_is_spared() {
    check_two(
        "ask 1 a cpu=4, ask 2 a cpu=3, ask 3 a cpu=1 => 1 reserved; 2 reserved borrowed; 3 reserved borrowed
         ask 4 b cpu=3 => 4 waits quota exceeded: b cpu (limit 0, actual 3); 2 reclaimed by 4",
    );
}

#[test]
fn only_from_those_who_borrow_and_never_below_their_own() {
    check(
        "tenant a cohort=c, tenant b cohort=c, tenant d cohort=c, limit a cpu 4, limit b cpu 4, limit d cpu 4
         ask 1 a cpu=4, ask 2 a cpu=1, ask 3 b cpu=3, ask 4 b cpu=4 prio=-9 => 1 reserved; 2 reserved borrowed; 3 reserved; 4 reserved borrowed
         ask 5 d cpu=1 => 5 waits quota exceeded: d cpu (limit 0, actual 1); 3 reclaimed by 5
         ask 6 d cpu=1 => 6 waits quota exceeded: d cpu (limit 0, actual 1)
         ask 7 d cpu=2 => 7 waits quota exceeded: d cpu (limit 0, actual 1); 2 reclaimed by 7",
    );
}

#[test]
fn of_two_who_borrow_the_lowest_priority_goes_first() {
    check(
        "tenant a cohort=c, tenant b cohort=c, tenant d cohort=c, limit a cpu 2, limit b cpu 2, limit d cpu 4
         ask 1 a cpu=2, ask 2 a cpu=2 prio=1, ask 3 b cpu=2, ask 4 b cpu=1, ask 5 b cpu=1 prio=-1 => 1 reserved; 2 reserved borrowed; 3 reserved; 4 reserved borrowed; 5 reserved borrowed
         ask 6 d cpu=2 => 6 waits quota exceeded: d cpu (limit 0, actual 2); 5 reclaimed by 6; 4 reclaimed by 6
         ask 7 d cpu=2 => 7 waits quota exceeded: d cpu (limit 0, actual 2); 1 reclaimed by 7",
    );
}

#[test]
fn whoever_borrows_leaves_what_a_lender_is_getting_back() {
    check(
        "tenant a cohort=c, tenant b cohort=c, tenant d cohort=c wait, limit a cpu 4, limit b cpu 4, limit d cpu 0
         ask 1 a cpu=4, ask 2 a cpu=2, ask 3 a cpu=2 => 1 reserved; 2 reserved borrowed; 3 reserved borrowed
         ask 4 b cpu=3 => 4 waits quota exceeded: b cpu (limit 0, actual 3); 3 reclaimed by 4; 2 reclaimed by 4
         off 3, ask 5 d cpu=1 => 3 released; 3 waits quota exceeded: a cpu (limit 5, actual 8); 5 waits quota exceeded: d cpu (limit 0, actual 1)
         off 2 => 2 released; 2 waits quota exceeded: a cpu (limit 5, actual 6); 4 reserved; 5 reserved borrowed",
    );
}

#[test]
fn several_resources_are_taken_back_together() {
    check(
        "tenant a cohort=c, tenant b cohort=c, limit a cpu 4, limit b cpu 4, limit a gpu 2000, limit b gpu 2000
         ask 1 a cpu=4 gpu=2, ask 2 a cpu=4, ask 3 a gpu=1, ask 4 a gpu=1 => 1 reserved; 2 reserved borrowed; 3 reserved borrowed; 4 reserved borrowed
         ask 5 b cpu=1 gpu=1 => 5 waits quota exceeded: b cpu (limit 0, actual 1); 4 reclaimed by 5; 2 reclaimed by 5
         off 2, off 4 => 2 released; 4 released; 2 waits quota exceeded: a cpu (limit 7, actual 8); 4 waits quota exceeded: a gpu (limit 3000, actual 4000); 5 reserved",
    );
}

#[test]
fn nothing_is_taken_back_when_it_would_not_be_enough() {
    check(
        "tenant a cohort=c, tenant b cohort=c wait lower, limit a cpu 4, limit b cpu 4
         ask 1 a cpu=7 prio=9, ask 2 a cpu=1 => 1 reserved borrowed; 2 reserved borrowed
         ask 3 b cpu=2 prio=5 => 3 waits quota exceeded: b cpu (limit 0, actual 2)
         end 1 => 1 released; 3 reserved",
    );
}

#[test]
fn a_team_may_be_in_the_way_of_what_the_tenant_may_borrow() {
    check_two(
        "limit a/x cpu 5
         ask 1 a/x cpu=6 => 1 denied quota never fits: a/x cpu (limit 5, actual 6)
         ask 2 a/x cpu=5 => 2 reserved borrowed",
    );
}

#[test]
fn a_lowered_limit_takes_the_guaranteed_from_nobody() {
    check(
        "tenant a cohort=c, tenant b cohort=c, limit a cpu 4 lend=0, limit b cpu 4, tenant d cohort=c, limit d cpu 0
         ask 1 d cpu=4 => 1 reserved borrowed
         limit b cpu 1
         ask 2 a cpu=4 => 2 reserved
         ask 3 b cpu=1 => 3 waits quota exceeded: b cpu (limit 0, actual 1); 1 reclaimed by 3
         ask 4 d cpu=1 => 4 denied quota exceeded: d cpu (limit 0, actual 5)",
    );
}

#[test]
fn a_tenant_without_limits_in_a_cohort_has_nothing() {
    check(
        "tenant a cohort=c, tenant b cohort=c, limit b cpu 4
         ask 1 a cpu=1 => 1 denied quota never fits: a cpu (limit 0, actual 1)
         limit a cpu 0, ask 2 a cpu=1 => 2 reserved borrowed",
    );
}

#[test]
fn one_who_waits_takes_back_as_soon_as_there_is_somebody() {
    check(
        "tenant a cohort=c, tenant b cohort=c lower wait, limit a cpu 4, limit b cpu 4
         ask 1 a cpu=4 prio=9, ask 2 a cpu=4 prio=9 => 1 reserved; 2 reserved borrowed
         ask 3 b cpu=1 prio=5 => 3 waits quota exceeded: b cpu (limit 0, actual 1)
         prio 2 1 => 2 reclaimed by 3",
    );
}
