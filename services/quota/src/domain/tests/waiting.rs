//! Who waits, for what, and who goes first.

use super::check;

#[test]
fn the_higher_priority_then_the_older_goes_first() {
    check(
        "tenant a wait, limit a cpu 4, ask 1 a cpu=4 => 1 reserved
         ask 2 a cpu=2 => 2 waits quota exceeded: a cpu (limit 4, actual 6)
         ask 3 a cpu=2 => 3 waits quota exceeded: a cpu (limit 4, actual 6)
         ask 4 a cpu=2 prio=5 => 4 waits quota exceeded: a cpu (limit 4, actual 6)
         end 1 => 1 released; 4 reserved; 2 reserved
         end 4 => 4 released; 3 reserved",
    );
}

#[test]
fn nobody_overtakes_where_one_ahead_is_blocked_and_others_go_on() {
    check(
        "tenant a wait, limit a cpu 10, limit a/x cpu 4, ask 1 a/x cpu=3 => 1 reserved
         ask 2 a/x cpu=2 => 2 waits quota exceeded: a/x cpu (limit 4, actual 5)
         ask 3 a/x/n cpu=1 => 3 waits quota exceeded: a/x cpu (limit 4, actual 5)
         ask 4 a/y cpu=1 => 4 reserved
         ask 5 a/x storage=1 => 5 reserved
         ask 6 a/x/n cpu=1 prio=1 => 6 reserved
         end 1 => 1 released; 2 reserved; 3 reserved",
    );
}

#[test]
fn one_who_waits_elsewhere_now_is_told_once() {
    check(
        "tenant a wait, limit a cpu 8, limit a/x cpu 4, ask 1 a/x cpu=4, ask 2 a cpu=4 => 1 reserved; 2 reserved
         ask 3 a/x cpu=2 => 3 waits quota exceeded: a/x cpu (limit 4, actual 6)
         ask 4 a/y cpu=1 => 4 waits quota exceeded: a cpu (limit 8, actual 9)
         limit a/x cpu 5
         limit a/x cpu 6 => 3 waits quota exceeded: a cpu (limit 8, actual 10)
         limit a/x cpu 7
         end 2 => 2 released; 3 reserved; 4 reserved",
    );
}

#[test]
fn a_new_priority_is_a_new_place() {
    check(
        "tenant a wait, limit a cpu 4, ask 1 a cpu=3, ask 2 a cpu=3, ask 3 a cpu=1 => 1 reserved; 2 waits quota exceeded: a cpu (limit 4, actual 6); 3 waits quota exceeded: a cpu (limit 4, actual 6)
         prio 3 1 => 3 reserved
         prio 9 1
         prio 2 -1, ask 4 a cpu=1 => 4 waits quota exceeded: a cpu (limit 4, actual 5)
         end 3 => 3 released; 4 reserved",
    );
}

#[test]
fn one_that_ends_makes_way() {
    check(
        "tenant a wait, limit a cpu 4, ask 1 a cpu=3, ask 2 a cpu=2, ask 3 a cpu=1 => 1 reserved; 2 waits quota exceeded: a cpu (limit 4, actual 5); 3 waits quota exceeded: a cpu (limit 4, actual 5)
         end 2 => 3 reserved
         ? live => 2",
    );
}

#[test]
fn with_a_limit_taken_away_who_waits_goes_on() {
    check(
        "tenant a wait, limit a cpu 9, limit a/x cpu 1, ask 1 a/x cpu=1, ask 2 a/x cpu=1 => 1 reserved; 2 waits quota exceeded: a/x cpu (limit 1, actual 2)
         limit a/x cpu none => 2 reserved
         tenant b wait, limit b gpu 9000, limit b/x gpu:T4 1000, ask 3 b/x gpu=1:T4, ask 4 b/x gpu=1 => 3 reserved; 4 waits quota exceeded: b/x gpu:T4 (limit 1000, actual 2000)
         ask 5 b/x gpu=1:T4 => 5 waits quota exceeded: b/x gpu:T4 (limit 1000, actual 2000)
         limit b/x gpu:T4 none => 4 reserved; 5 reserved",
    );
}

#[test]
fn what_was_told_to_wait_waits_even_if_it_never_fits_now() {
    check(
        "tenant a wait, limit a cpu 4, ask 1 a cpu=4, ask 2 a cpu=3 => 1 reserved; 2 waits quota exceeded: a cpu (limit 4, actual 7)
         limit a cpu 2, end 1 => 1 released
         tenant a, limit a cpu 3 => 2 reserved",
    );
}
