//! The table of behaviour that must hold, row by row. Operations and their table are another module's.

use super::{check, check_with, small};
use crate::space::Bounds;

const FOUR: &str = "
    0 create a -> created
    0 create b -> created
    0 create c -> created
    0 create d -> created
";

/// Four resources are there.
fn check_four(lines: &str) {
    check(&format!("{FOUR}{lines}"));
}

#[test]
fn row_1_create() {
    check_four(
        "
        0 show a    -> available v0
        0 create a  -> already_exists
        0 create e  -> resource_table_full
        9 create d  -> already_exists
        ",
    );
}

#[test]
fn row_2_ttl() {
    check_four(
        "
        3 acquire x ann 0 a     -> ttl_out_of_range
        3 acquire x ann 17 a    -> ttl_out_of_range
        3 acquire x ann end a   -> ttl_out_of_range
        3 acquire x ann 0 none  -> ttl_out_of_range
        3 acquire y ann 16 a    -> until 19
        3 acquire x ann 0 a     -> ttl_out_of_range
        3 acquire z ann 1 b     -> until 4
        ",
    );
}

#[test]
fn row_3_the_resource_is_looked_at_before_the_table() {
    let bounds = Bounds {
        resources_max: 5,
        ..small()
    };
    let lines = "
        0 create e              -> created
        0 acquire w ann 1 a     -> until 1
        0 acquire x ann 2 b     -> until 2
        0 acquire y ann 3 c     -> until 3
        0 acquire z ann 4 d     -> until 4
        0 acquire q ann 5 none  -> resource_not_found
        0 acquire q ann 5 a     -> resource_busy
        0 acquire q ann 5 e     -> lease_table_full
        0 show e                -> available v0
    ";
    check_with(&bounds, None, &format!("{FOUR}{lines}"));
}

#[test]
fn row_4_two_leases_on_one_deadline() {
    check_four(
        "
        0 acquire x ann 5 a  -> until 5
        0 acquire y ann 5 b  -> until 5
        0 acquire z ann 5 c  -> expiration_index_full
        0 show c             -> available v0
        1 acquire z ann 4 c  -> expiration_index_full
        1 acquire z ann 5 c  -> until 6
        1 confirm x ann 1    -> confirmed
        1 acquire q ann 4 d  -> until 5
        ",
    );
}

#[test]
fn row_5_an_ended_one_holds_its_place_until_its_history_is_over() {
    let full = "
        0 acquire w ann 16 a          -> until 16
        0 acquire x ann 16 b          -> until 16
        0 acquire y ann 15 c          -> until 15
        0 acquire z ann 15 d          -> until 15
        10 release w ann 1            -> released 2 until 14
        10 acquire q ann 9 a          -> lease_table_full
    ";
    check_four(&format!("{full} 14 acquire q ann 9 a -> lease_table_full"));
    check_four(&format!("{full} 15 acquire q ann 9 a -> until 24"));
    check_four(&format!(
        "{full}
        14 acquire q ann 9 a -> lease_table_full
        15 acquire r ann 9 a -> until 24
        15 acquire s ann 8 b -> resource_busy"
    ));
}

#[test]
fn row_6_bundles() {
    check_four(
        "
        0 acquire x ann 5             -> bundle_too_large
        0 acquire x ann 5 a b c d     -> bundle_too_large
        0 acquire x ann 0 a b c d     -> bundle_too_large
        0 acquire x ann 0             -> bundle_too_large
        0 acquire x ann 5 b b         -> resource_busy
        0 acquire y ann 5 d           -> until 5
        0 acquire x ann 5 b none d    -> resource_not_found
        0 acquire x ann 5 b d none    -> resource_busy
        0 acquire x ann 5 b b none    -> resource_busy
        0 show b                      -> available v0
        0 acquire z bob 6 c a b       -> until 6
        0 show z                      -> granted bob c a b fencing_token 1
        0 show a                      -> granted v1 z
        0 show b                      -> granted v1 z
        0 show c                      -> granted v1 z
        ",
    );
}

#[test]
fn row_7_confirm() {
    check_four(
        "
        0 acquire x ann 5 a  -> until 5
        0 acquire y ann 5 b  -> until 5
        1 confirm x bob 1    -> holder_mismatch
        1 confirm x bob 9    -> holder_mismatch
        1 confirm x ann 0    -> stale_fencing_token
        1 confirm x ann 2    -> stale_fencing_token
        1 confirm x ann 1    -> confirmed
        1 show a             -> confirmed v2 x
        1 confirm x ann 1    -> invalid_state
        1 confirm x bob 1    -> holder_mismatch
        9 confirm y ann 1    -> confirmed
        9 expire y 5         -> noop
        9 show y             -> confirmed ann b fencing_token 1
        ",
    );
}

#[test]
fn row_8_an_expiry_that_comes_too_late_does_nothing() {
    check_four(
        "
        0 acquire x ann 5 a  -> until 5
        0 confirm x ann 1    -> confirmed
        5 expire x 5         -> noop
        5 release x ann 1    -> released 2 until 9
        5 expire x 5         -> noop
        5 acquire y ann 3 a  -> until 8
        8 expire y 7         -> noop
        8 expire y 8         -> expired 2 until 12
        8 show a             -> available v5
        8 expire y 8         -> noop
        8 acquire z ann 1 a  -> until 9
        8 confirm z ann 1    -> confirmed
        8 revoke z           -> revoked 2
        9 expire z 9         -> noop
        9 reclaim z          -> reclaimed until 13
        9 expire z 9         -> noop
        9 expire 999 9       -> noop
        20 expire y 8        -> noop
        ",
    );
}

#[test]
fn row_9_who_comes_late_does_not_touch_the_new_owner() {
    check_four(
        "
        0 acquire x ann 5 a  -> until 5
        1 release x ann 1    -> released 2 until 5
        1 acquire y bob 5 a  -> until 6
        2 confirm x ann 1    -> stale_fencing_token
        2 release x ann 1    -> stale_fencing_token
        2 confirm x ann 2    -> invalid_state
        2 show a             -> granted v3 y
        2 show y             -> granted bob a fencing_token 1
        ",
    );
}

#[test]
fn row_10_revoke_and_reclaim() {
    check_four(
        "
        0 acquire x ann 5 a  -> until 5
        0 revoke x           -> invalid_state
        0 confirm x ann 1    -> confirmed
        1 reclaim x          -> invalid_state
        1 revoke x           -> revoked 2
        1 show a             -> revoking v3 x
        1 acquire y bob 5 a  -> resource_busy
        2 revoke x           -> invalid_state
        2 release x ann 1    -> stale_fencing_token
        2 release x ann 2    -> invalid_state
        2 reclaim x          -> reclaimed until 6
        2 show x             -> revoked ann a fencing_token 2
        2 show a             -> available v4
        2 reclaim x          -> invalid_state
        2 acquire y bob 5 a  -> until 7
        ",
    );
}

#[test]
fn row_14_what_is_retired_and_what_never_was() {
    check_four(
        "
        0 acquire w ann 9 b   -> until 9
        0 acquire x ann 5 a   -> until 5
        1 release x ann 1     -> released 2 until 5
        5 show x              -> released ann a fencing_token 2
        6 show x              -> lease_retired
        6 show 3              -> lease_retired
        6 show 0              -> lease_retired
        6 show 7              -> lease_not_found
        6 show w              -> granted ann b fencing_token 1
        6 confirm x ann 1     -> lease_retired
        6 confirm 3 ann 1     -> lease_retired
        6 revoke 999          -> lease_not_found
        6 reclaim 3           -> lease_retired
        6 confirm w ann 1     -> confirmed
        6 show end            -> lease_not_found
        ",
    );
    check("0 show 0 -> lease_not_found");
}

#[test]
fn row_15_before_the_deadline_nothing_expires_and_no_slot_goes_back() {
    check_four(
        "
        3 acquire x ann 5 a  -> until 8
        7 expire x 8         -> invalid_state
        2 expire x 8         -> slot_backwards
        2 create e           -> slot_backwards
        2 confirm x ann 1    -> slot_backwards
        2 acquire y ann 0    -> slot_backwards
        8 expire x 8         -> expired 2 until 12
        7 show a             -> available v2
        7 revoke x           -> slot_backwards
        ",
    );
}

#[test]
fn row_16_no_slot_lies_beyond_the_last() {
    check_four(
        "
        end acquire x ann 1 a      -> slot_overflow
        end-3 create a             -> slot_overflow
        1 acquire x ann 1 a        -> until 2
        end-4 acquire y ann 5 b    -> slot_overflow
        end-4 acquire y ann 4 b    -> until 18446744073709551615
        end-4 confirm x ann 1      -> confirmed
        end-4 release x ann 1      -> released 2 until 18446744073709551615
        end-3 release y ann 1      -> slot_overflow
        end expire y end           -> slot_overflow
        end-4 show x               -> released ann a fencing_token 2
        end show x                 -> released ann a fencing_token 2
        ",
    );
}
