//! Gangs: all or none.

use super::check;

#[test]
fn all_are_granted_when_all_are_there() {
    check(
        "limit a cpu 6
         ask 1 a cpu=2 gang=g/3 => 1 waits incomplete gang: gang (limit 3, actual 1)
         ask 2 a/x cpu=2 gang=g/3 => 2 waits incomplete gang: gang (limit 3, actual 2)
         ? a cpu => 0/0
         ask 3 a/y cpu=2 gang=g/3 => 1 reserved; 2 reserved; 3 reserved
         ask 4 a cpu=1 gang=g/3 => 4 waits incomplete gang: gang (limit 3, actual 1)
         end 1, ask 5 a cpu=1 gang=g/3 => 1 released; 5 waits incomplete gang: gang (limit 3, actual 2)
         end 2, ask 6 a cpu=1 gang=g/3 => 2 released; 4 reserved; 5 reserved; 6 reserved",
    );
}

#[test]
fn none_is_granted_when_the_sum_does_not_fit() {
    check(
        "limit a cpu 6, ask 1 a cpu=3 => 1 reserved
         ask 2 a cpu=2 gang=g/2, ask 3 a cpu=2 gang=g/2 => 2 waits incomplete gang: gang (limit 2, actual 1); 2 denied quota exceeded: a cpu (limit 6, actual 7); 3 denied quota exceeded: a cpu (limit 6, actual 7)
         ask 4 a cpu=4 gang=g/2, ask 5 a cpu=4 gang=g/2 => 4 waits incomplete gang: gang (limit 2, actual 1); 4 denied quota never fits: a cpu (limit 6, actual 8); 5 denied quota never fits: a cpu (limit 6, actual 8)
         ? live => 1",
    );
}

#[test]
fn all_are_denied_by_what_one_of_them_can_never_have() {
    check(
        "tenant a wait, limit a memory 20, limit a/x/n memory 4
         ask 1 a/x memory=7 gang=g/2, ask 2 a/x/n memory=5 gang=g/2 => 1 waits incomplete gang: gang (limit 2, actual 1); 1 denied quota never fits: a/x/n memory (limit 4, actual 5); 2 denied quota never fits: a/x/n memory (limit 4, actual 5)
         ask 3 a/x memory=7 gang=g/2, ask 4 a/x/n memory=3 gang=g/2 => 3 waits incomplete gang: gang (limit 2, actual 1); 3 reserved; 4 reserved
         ask 5 a/x/n memory=2 gang=g/2, ask 6 a/x/n memory=5 gang=g/2 => 5 waits incomplete gang: gang (limit 2, actual 1); 5 denied quota never fits: a/x/n memory (limit 4, actual 7); 6 denied quota never fits: a/x/n memory (limit 4, actual 7)",
    );
}

#[test]
fn they_wait_together_in_the_place_of_the_first() {
    check(
        "tenant a wait, limit a cpu 6, ask 1 a cpu=3 => 1 reserved
         ask 2 a cpu=2 gang=g/2, ask 3 a cpu=2 gang=g/2 => 2 waits incomplete gang: gang (limit 2, actual 1); 2 waits quota exceeded: a cpu (limit 6, actual 7); 3 waits quota exceeded: a cpu (limit 6, actual 7)
         ask 4 a cpu=1 => 4 waits quota exceeded: a cpu (limit 6, actual 7)
         ask 5 a cpu=1 gang=g/2 => 5 waits incomplete gang: gang (limit 2, actual 1)
         end 1 => 1 released; 2 reserved; 3 reserved; 4 reserved",
    );
}

#[test]
fn who_leaves_makes_the_others_wait_for_another() {
    check(
        "tenant a wait, limit a cpu 6, ask 1 a cpu=3 => 1 reserved
         ask 2 a cpu=2 gang=g/2, ask 3 a cpu=2 gang=g/2 => 2 waits incomplete gang: gang (limit 2, actual 1); 2 waits quota exceeded: a cpu (limit 6, actual 7); 3 waits quota exceeded: a cpu (limit 6, actual 7)
         end 2 => 3 waits incomplete gang: gang (limit 2, actual 1)
         ask 4 a cpu=1 gang=g/2 => 3 reserved; 4 reserved
         tenant b wait, limit b cpu 1, ask 5 b gang=h/2, ask 6 b gang=h/2 => 5 waits incomplete gang: gang (limit 2, actual 1); 5 reserved; 6 reserved
         ask 7 b gang=i/2 => 7 waits incomplete gang: gang (limit 2, actual 1)
         end 7
         ? live => 5",
    );
}

#[test]
fn a_gang_takes_back_what_its_tenant_lent() {
    check(
        "tenant a cohort=c, tenant b cohort=c, limit a cpu 4, limit b cpu 4
         ask 1 b cpu=3, ask 2 b cpu=2, ask 3 b cpu=3 => 1 reserved; 2 reserved borrowed; 3 reserved borrowed
         ask 4 a cpu=2 gang=g/2, ask 5 a cpu=1 gang=g/2 => 4 waits incomplete gang: gang (limit 2, actual 1); 4 waits quota exceeded: a cpu (limit 0, actual 3); 5 waits quota exceeded: a cpu (limit 0, actual 3); 3 reclaimed by 4
         off 3 => 3 released; 3 waits quota exceeded: b cpu (limit 5, actual 8); 4 reserved; 5 reserved",
    );
}

#[test]
fn a_name_used_again_while_a_member_lives_is_another_gang() {
    check(
        "tenant a wait, limit a cpu 4
         ask 1 a cpu=1 gang=g/2, ask 2 a cpu=1 gang=g/2, end 2, ask 3 a cpu=1 gang=g/2 => 1 waits incomplete gang: gang (limit 2, actual 1); 1 reserved; 3 reserved
         place 1 n, place 3 n, end 3 => 3 released
         ask 4 a cpu=2 gang=g/2, ask 5 a cpu=2 gang=h/2 => 4 waits incomplete gang: gang (limit 2, actual 1); 5 waits incomplete gang: gang (limit 2, actual 1)
         ? a cpu => 1/0
         ask 6 a cpu=1 gang=g/2, ask 7 a cpu=1 gang=h/2 => 4 reserved; 6 reserved; 5 waits quota exceeded: a cpu (limit 4, actual 7); 7 waits quota exceeded: a cpu (limit 4, actual 7)
         end 1, end 4, end 6 => 1 released; 4 released; 6 released; 5 reserved; 7 reserved",
    );
}

#[test]
fn one_who_ended_before_its_gang_was_known_to_hold_quota_is_replaced() {
    check(
        "tenant a wait, limit a cpu 4
         ask 1 a cpu=1 gang=g/2, ask 2 a cpu=1 gang=g/2 => 1 waits incomplete gang: gang (limit 2, actual 1); 1 reserved; 2 reserved
         end 2, lacks 1 => 2 released
         ask 3 a cpu=1 gang=g/2 => 3 reserved
         place 1 n, place 3 n, end 3, ask 4 a cpu=1 gang=g/2 => 3 released; 4 waits incomplete gang: gang (limit 2, actual 1)",
    );
}

#[test]
fn a_member_that_depends_on_a_fellow_holds_up_nobody_else() {
    check(
        "tenant a wait, limit a cpu 4
         ask 1 a cpu=2 gang=g/2, ask 2 a cpu=2 gang=g/2 after=1 => 1 waits incomplete gang: gang (limit 2, actual 1); 2 waits dependency pending: dependencies
         ask 3 a cpu=4 => 3 reserved
         end 1, end 2, end 3 => 3 released
         ? live => 0",
    );
}
