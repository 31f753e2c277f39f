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
         node n T4, tenant b wait, limit b gpu 9000, limit b/x gpu:T4 1000, ask 3 b/x gpu=1:T4, ask 4 b/x gpu=1 => 3 reserved; 4 waits quota exceeded: b gpu:* (limit 1000, actual 2000)
         ask 5 b/x gpu=1:T4 => 5 waits quota exceeded: b/x gpu:T4 (limit 1000, actual 2000)
         limit b/x gpu:T4 none => 4 reserved; 5 reserved",
    );
}

#[test]
fn what_a_lowered_limit_makes_impossible_stands_aside_until_it_is_raised() {
    check(
        "tenant a wait, limit a cpu 16, ask 1 a cpu=8, ask 2 a cpu=12 => 1 reserved; 2 waits quota exceeded: a cpu (limit 16, actual 20)
         limit a cpu 8, end 1 => 1 released; 2 waits quota never fits: a cpu (limit 8, actual 12)
         ask 3 a cpu=6 => 3 reserved
         ask 4 a cpu=6, tenant a => 4 denied quota exceeded: a cpu (limit 8, actual 12)
         ask 5 a cpu=12 => 5 denied quota never fits: a cpu (limit 8, actual 12)
         limit a cpu 11
         limit a cpu 13 => 2 waits quota exceeded: a cpu (limit 13, actual 18)
         end 3 => 3 released; 2 reserved",
    );
}

#[test]
fn what_is_impossible_elsewhere_makes_way_where_it_waits() {
    check(
        "tenant a wait, limit a cpu 8, ask 1 a cpu=6, ask 2 a/x cpu=4 memory=4 => 1 reserved; 2 denied quota never fits: a memory (limit 0, actual 4)
         limit a memory 8, ask 3 a/x cpu=4 memory=4, ask 4 a cpu=2 => 3 waits quota exceeded: a cpu (limit 8, actual 10); 4 waits quota exceeded: a cpu (limit 8, actual 10)
         limit a/x memory 3 => 3 waits quota never fits: a/x memory (limit 3, actual 4); 4 reserved
         limit a/x memory none => 3 waits quota exceeded: a cpu (limit 8, actual 12)
         end 1 => 1 released; 3 reserved",
    );
}

#[test]
fn what_can_never_fit_is_denied_before_others_are_granted() {
    check(
        "tenant a wait, limit a cpu 8, ask 1 a cpu=8, ask 2 a cpu=8 => 1 reserved; 2 waits quota exceeded: a cpu (limit 8, actual 16)
         end 1, ask 3 a cpu=9 => 1 released; 3 denied quota never fits: a cpu (limit 8, actual 9); 2 reserved",
    );
}

#[test]
fn what_fits_in_a_burst_only_stands_aside_while_none_may_begin() {
    check(
        "tenant a wait, limit a cpu 8 burst=12/100, ask 1 a cpu=9 => 1 reserved burst
         ask 2 a cpu=12 => 2 waits quota exceeded: a cpu (limit 12, actual 21)
         ask 3 a cpu=5 => 3 waits quota exceeded: a cpu (limit 12, actual 21)
         at 10, end 1 => 1 released; 2 waits burst over: a cpu (limit 8, actual 12); 3 reserved
         ask 4 a cpu=2 => 4 reserved
         at 109
         at 110 => 2 waits quota exceeded: a cpu (limit 12, actual 19)
         ask 5 a cpu=1 => 5 waits quota exceeded: a cpu (limit 12, actual 19)
         end 3, end 4 => 3 released; 4 released; 2 reserved burst",
    );
}

#[test]
fn what_held_quota_before_stands_aside_and_is_not_denied() {
    check(
        "tenant a cohort=c, tenant b cohort=c, limit a cpu 2, limit b cpu 4
         ask 1 a cpu=2, ask 2 a cpu=4 => 1 reserved; 2 reserved borrowed
         ask 3 b cpu=4 => 3 waits quota exceeded: b cpu (limit 0, actual 4); 2 reclaimed by 3
         off 2 => 2 released; 2 waits quota exceeded: a cpu (limit 2, actual 6); 3 reserved
         tenant b => 2 waits quota never fits: a cpu (limit 2, actual 4)
         end 1, ask 4 a cpu=2 => 1 released; 4 reserved
         end 4, limit a cpu 4 => 4 released; 2 reserved",
    );
}

#[test]
fn who_depends_on_others_asks_when_they_have_ended() {
    check(
        "tenant a wait, limit a cpu 8, ask 1 a cpu=8, ask 2 a cpu=8 => 1 reserved; 2 waits quota exceeded: a cpu (limit 8, actual 16)
         ask 3 a cpu=8 prio=1 after=2 => 3 waits dependency pending: dependencies
         ask 4 a cpu=9 after=1:3 => 4 denied quota never fits: a cpu (limit 8, actual 9)
         end 1 => 1 released; 2 reserved
         end 2 => 2 released; 3 reserved
         ask 5 a cpu=1 after=1:2:3:7 => 5 waits dependency pending: dependencies
         end 5, end 3 => 3 released",
    );
}

#[test]
fn who_depends_on_others_holds_nothing_that_they_need() {
    check(
        "tenant a wait, limit a cpu 8, limit a memory 8, ask 1 a memory=8 => 1 reserved
         ask 2 a cpu=1 memory=8 => 2 waits quota exceeded: a memory (limit 8, actual 16)
         ask 3 a cpu=8 after=2 => 3 waits dependency pending: dependencies
         end 1 => 1 released; 2 reserved
         place 2 n, start 2, requeue 2
         end 2 => 2 released; 3 reserved",
    );
}

#[test]
fn what_others_depend_on_may_be_denied() {
    check(
        "limit a cpu 8, ask 1 a cpu=8 => 1 reserved
         ask 2 a cpu=8, ask 3 a cpu=8 after=2 => 2 denied quota exceeded: a cpu (limit 8, actual 16); 3 denied quota exceeded: a cpu (limit 8, actual 16)
         ask 4 a cpu=8 after=1 => 4 waits dependency pending: dependencies
         end 1, ask 5 a cpu=1 => 1 released; 4 reserved; 5 denied quota exceeded: a cpu (limit 8, actual 9)",
    );
}
