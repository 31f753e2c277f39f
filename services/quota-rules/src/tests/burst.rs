//! Bursts: above the limit for a while, then never until it has rested.

use super::check;

#[test]
fn a_burst_lasts_from_its_first_grant() {
    check(
        "limit a cpu 4 burst=6/1000, ask 1 a cpu=4 => 1 reserved
         at 100, ask 2 a cpu=1 => 2 reserved burst
         ? wake => 1100
         at 1099, ask 3 a cpu=1 => 3 reserved burst
         ask 4 a cpu=1 => 4 denied quota exceeded: a cpu (limit 6, actual 7)
         start 2
         at 1100 => 3 reclaimed; 2 reclaimed
         ask 5 a cpu=1 => 5 denied quota exceeded: a cpu (limit 4, actual 7)
         off 3 => 3 released; 3 waits quota exceeded: a cpu (limit 4, actual 6)
         ? wake => never
         requeue 2, off 2 => 2 released; 2 waits quota exceeded: a cpu (limit 4, actual 5)
         ? a cpu => 4/0",
    );
}

#[test]
fn another_one_begins_after_a_rest() {
    check(
        "tenant a wait, limit a cpu 4 burst=6/1000, ask 1 a cpu=4 => 1 reserved
         ask 2 a cpu=2 => 2 reserved burst
         at 500, end 2 => 2 released
         ask 3 a cpu=2 => 3 waits quota exceeded: a cpu (limit 4, actual 6)
         ? wake => 1500
         at 1499
         at 1500 => 3 reserved burst
         ? wake => 2500",
    );
}

#[test]
fn who_needs_a_burst_stands_aside_when_that_of_another_is_over() {
    check(
        "tenant a wait, limit a cpu 4 burst=6/1000, ask 1 a cpu=3 => 1 reserved
         ask 2 a cpu=5 => 2 waits quota exceeded: a cpu (limit 6, actual 8)
         ask 3 a cpu=2 prio=1 => 3 reserved burst
         ? wake => 1000
         at 1000 => 1 reclaimed; 2 waits burst over: a cpu (limit 4, actual 5)
         end 1 => 1 released",
    );
}

#[test]
fn what_was_taken_back_once_is_not_on_its_way_any_more() {
    check(
        "limit a cpu 4 burst=6/1000, ask 1 a cpu=4, ask 2 a cpu=2 => 1 reserved; 2 reserved burst
         at 1000 => 2 reclaimed
         end 2 => 2 released
         at 2000, ask 3 a cpu=2 => 3 reserved burst
         ? wake => 3000
         at 3000 => 3 reclaimed",
    );
}

#[test]
fn who_goes_is_of_the_lowest_priority_and_the_youngest() {
    check(
        "limit a/x cpu 4 burst=9/1000, limit a cpu 100
         ask 1 a/x/n cpu=2 prio=1, ask 2 a/x/m cpu=2, ask 3 a/x cpu=2 prio=2, ask 4 a/y cpu=9 prio=-9, ask 5 a/x cpu=1 => 1 reserved; 2 reserved; 3 reserved burst; 4 reserved; 5 reserved burst
         at 1000 => 5 reclaimed; 2 reclaimed
         end 5, end 2 => 2 released; 5 released
         ? a/x cpu => 4/0",
    );
}

#[test]
fn what_was_above_already_is_taken_back_too_but_a_lowered_limit_alone_takes_nothing() {
    check(
        "limit a cpu 8, ask 1 a cpu=4, ask 2 a cpu=2 => 1 reserved; 2 reserved
         limit a cpu 4 burst=8/1000
         at 5000
         ask 3 a cpu=1 => 3 reserved burst
         at 6000 => 3 reclaimed; 2 reclaimed",
    );
}

#[test]
fn no_burst_limit_no_burst() {
    check(
        "limit a cpu 4 burst=8/1000, ask 1 a cpu=6 => 1 reserved burst
         limit a cpu 4
         at 1000
         limit a cpu 4 burst=8/10, ask 2 a cpu=1 => 2 reserved burst
         limit a cpu 7 burst=8/10
         at 1011, ask 3 a cpu=1 => 3 reserved burst
         at 1021 => 3 reclaimed",
    );
}

#[test]
fn in_a_cohort_a_tenant_borrows_instead() {
    check(
        "limit a cpu 4 burst=8/1000, limit a/x cpu 1 burst=2/1000, tenant a cohort=c
         ask 1 a cpu=4 => 1 reserved
         ask 2 a cpu=1 => 2 denied quota exceeded: a cpu (limit 4, actual 5)
         end 1 => 1 released",
    );
}
