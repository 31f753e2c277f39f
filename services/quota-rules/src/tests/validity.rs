//! Limits from a moment on, and overrides for a while.

use super::check;

#[test]
fn a_change_begins_when_it_says() {
    check(
        "limit a cpu 4, limit a cpu 8 from=100
         ? wake => 100
         ask 1 a cpu=4 => 1 reserved
         at 99, ask 2 a cpu=1 => 2 denied quota exceeded: a cpu (limit 4, actual 5)
         at 100 => a cpu now 8
         ? wake => never
         ask 3 a cpu=4 => 3 reserved",
    );
}

#[test]
fn an_override_ends_and_what_was_before_holds_again() {
    check(
        "limit a cpu 4, limit a cpu 8 from=100 until=200
         at 100 => a cpu now 8
         ask 1 a cpu=8 => 1 reserved
         ? wake => 200
         at 200 => a cpu now 4
         ? a cpu => 8/0
         ask 2 a cpu=1 => 2 denied quota exceeded: a cpu (limit 4, actual 9)
         limit a cpu none until=300 => a cpu now none
         at 300 => a cpu now 4
         at 400, limit a cpu 9 until=500 => a cpu now 9
         ? wake => 500",
    );
}

#[test]
fn a_base_that_changes_below_an_override_holds_after_it() {
    check(
        "limit a cpu 4, limit a cpu 8 until=200 => a cpu now 8
         at 100, limit a cpu 5 => a cpu now 8
         limit a cpu 6 from=150
         at 160 => a cpu now 8
         at 200 => a cpu now 6",
    );
}

#[test]
fn where_overrides_overlap_the_latest_set_holds() {
    check(
        "limit a cpu 1, limit a cpu 2 from=10 until=50, limit a cpu 3 from=5 until=30
         at 5 => a cpu now 3
         at 10 => a cpu now 3
         at 30 => a cpu now 2
         at 50 => a cpu now 1",
    );
}

#[test]
fn what_was_missed_is_said_once() {
    check(
        "limit a cpu 1, limit a cpu 2 from=10, limit a cpu 3 from=20, limit a cpu 9 from=12 until=15
         at 40 => a cpu now 3
         ? wake => never",
    );
}

#[test]
fn who_waits_goes_on_when_the_limit_rises() {
    check(
        "tenant a wait, limit a cpu 4, limit a cpu 6 from=100
         ask 1 a cpu=4, ask 2 a cpu=2 => 1 reserved; 2 waits quota exceeded: a cpu (limit 4, actual 6)
         at 100 => a cpu now 6; 2 reserved",
    );
}

#[test]
fn limits_that_are_over_leave_nothing_behind() {
    check(
        "limit a/x gpu:T4 4 from=10 until=20
         ? names => 1
         at 10 => a/x gpu:T4 now 4
         at 20 => a/x gpu:T4 now none
         ? names => 0
         ? accounts => 0
         limit a leases 4 from=30
         at 30 => a leases now 4",
    );
}
