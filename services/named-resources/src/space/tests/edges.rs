//! Corners that the conformance table does not name.

use super::{check, check_with, small};
use crate::space::Bounds;
use vocab::LeaseState;

const THREE: &str = "
    0 create a -> created
    0 create b -> created
    0 create c -> created
";

#[test]
fn a_limit_counts_live_ones_and_is_looked_at_before_the_table() {
    let bounds = Bounds {
        leases_max: 2,
        ..small()
    };
    let check = |limit, lines: &str| check_with(&bounds, limit, &format!("{THREE}{lines}"));
    let one = "
        0 acquire x ann 3 a     -> until 3
        0 acquire y ann 3 none  -> resource_not_found
        0 acquire y ann 3 a     -> resource_busy
        0 acquire y ann 3 b     -> quota_exceeded
        0 confirm x ann 1       -> confirmed
        0 revoke x              -> revoked 2
        0 acquire y ann 3 b     -> quota_exceeded
        0 reclaim x             -> reclaimed until 4
        0 acquire y ann 3 b     -> until 3
        0 acquire z ann 3 c     -> quota_exceeded
        0 release y ann 1       -> released 2 until 4
        0 acquire z ann 3 c     -> lease_table_full
        5 acquire z ann 3 c     -> until 8
    ";
    check(Some(1), one);
    check(Some(0), "0 acquire x ann 3 a -> quota_exceeded");
}

#[test]
fn all_members_go_together() {
    check(&format!(
        "{THREE}
        0 acquire x ann 3 c a  -> until 3
        0 acquire y bob 3 b a  -> resource_busy
        0 show b               -> available v0
        1 confirm x ann 1      -> confirmed
        1 show a               -> confirmed v2 x
        1 show c               -> confirmed v2 x
        2 release x ann 1      -> released 2 until 6
        2 acquire y bob 3 b a  -> until 5
        5 expire y 5           -> expired 2 until 9
        5 show a               -> available v5
        5 show b               -> available v2
        5 show c               -> available v3
        5 show x               -> released ann c a fencing_token 2
        "
    ));
}

#[test]
fn whoever_comes_late_is_stale_after_an_expiry_too() {
    check(&format!(
        "{THREE}
        0 acquire x ann 3 a  -> until 3
        3 release x bob 1    -> holder_mismatch
        3 expire x 3         -> expired 2 until 7
        3 confirm x ann 1    -> stale_fencing_token
        3 release x ann 1    -> stale_fencing_token
        3 release x ann 2    -> invalid_state
        3 revoke x           -> invalid_state
        3 reclaim x          -> invalid_state
        7 confirm x bob 2    -> holder_mismatch
        8 confirm x bob 2    -> lease_retired
        "
    ));
}

/// What is refused has been seen all the same: its slot counts.
#[test]
fn a_refused_ask_moves_the_slot_and_retires() {
    check(&format!(
        "{THREE}
        0 acquire x ann 3 a    -> until 3
        1 release x ann 1      -> released 2 until 5
        6 acquire y ann 3 none -> resource_not_found
        5 create d             -> slot_backwards
        6 show x               -> lease_retired
        "
    ));
}

/// Each of the two places at a deadline is free again once its lease is not granted any more.
#[test]
fn places_at_a_deadline_come_back() {
    let begin = "
        0 acquire x ann 3 a -> until 3
        0 acquire y ann 3 b -> until 3
        0 acquire z ann 3 c -> expiration_index_full
    ";
    for leaves in [
        "0 confirm x ann 1 -> confirmed",
        "0 release x ann 1 -> released 2 until 4",
    ] {
        let again = "0 acquire z ann 3 c -> until 3";
        check(&format!("{THREE}{begin}{leaves}\n{again}"));
    }
}

#[test]
fn without_a_history_an_ended_one_is_found_at_its_last_slot_only() {
    let bounds = Bounds {
        history_slots: 0,
        ..small()
    };
    let lines = "
        0 acquire x ann 3 a  -> until 3
        1 release x ann 1    -> released 2 until 1
        1 show x             -> released ann a fencing_token 2
        2 show x             -> lease_retired
        end create d         -> created
        end acquire y ann 1 a -> slot_overflow
    ";
    check_with(&bounds, None, &format!("{THREE}{lines}"));
}

#[test]
fn ended_states_are_the_ended_ones() {
    let ended = LeaseState::ALL.map(LeaseState::has_ended);
    assert_eq!(ended, [false, false, false, true, true, true]);
}
