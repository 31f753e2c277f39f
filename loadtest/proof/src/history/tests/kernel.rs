//! The model against the table of behaviour, row by row.

use super::{super::model::Model, BOUNDS, token};
use crate::history::{Answer, Found};
use vocab::{LeaseNo, LeaseState, ResourceAsk, Token};

/// Runs `slot ask -> answer` line by line on one model. Leases are numbered 1, 2, … as they are granted.
fn check(script: &str) {
    let mut model = Model::new(BOUNDS);
    let mut granted = 0;
    for line in script.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let (said, expected) = line.split_once(" -> ").expect("ask -> answer");
        let words: Vec<&str> = said.split_whitespace().collect();
        let answer = run(&mut model, &words, granted + 1);
        granted += u64::from(answer.starts_with("granted "));
        assert_eq!(answer, expected, "{line}\nin\n{script}");
    }
}

fn run(model: &mut Model, words: &[&str], next: u64) -> String {
    let slot = words[0].parse().expect("a slot");
    match words[1..] {
        ["expire", number] => match model.expire(slot, number.parse().expect("a number")) {
            Some((fencing_token, retire_after)) => {
                format!("expired fencing_token={fencing_token} until={retire_after}")
            }
            None => "noop".to_owned(),
        },
        ["look", number] => found(&model.look(slot, number.parse().expect("a number"))),
        _ => {
            let decision = model.ask(slot, &ask(&words[1..]), next);
            let until = decision.retire_after;
            let until = until.map_or_else(String::new, |slot| format!(" until={slot}"));
            format!("{}{until}", told(decision.answer))
        }
    }
}

pub fn ask(words: &[&str]) -> ResourceAsk {
    let number = |text: &str| text.parse().expect("a number");
    let lease = |text: &str| LeaseNo(number(text));
    match *words {
        ["create", name] => ResourceAsk::Create {
            resource: token(name),
        },
        ["acquire", names, holder, ttl] => ResourceAsk::Acquire {
            resources: list(names),
            holder: token(holder),
            ttl_slots: number(ttl),
        },
        ["confirm", no, holder, fencing_token] => ResourceAsk::Confirm {
            lease: lease(no),
            holder: token(holder),
            fencing_token: number(fencing_token),
        },
        ["release", no, holder, fencing_token] => ResourceAsk::Release {
            lease: lease(no),
            holder: token(holder),
            fencing_token: number(fencing_token),
        },
        ["revoke", no] => ResourceAsk::Revoke { lease: lease(no) },
        ["reclaim", no] => ResourceAsk::Reclaim { lease: lease(no) },
        _ => panic!("not an ask: {words:?}"),
    }
}

/// `[]`, `a` or `a,b`.
fn list(names: &str) -> Vec<Token> {
    let names = names.trim_matches(['[', ']']).split(',');
    names.filter(|name| !name.is_empty()).map(token).collect()
}

fn told(answer: Answer) -> String {
    match answer {
        Answer::Created => "created".to_owned(),
        Answer::Granted {
            lease,
            fencing_token,
            deadline,
        } => format!("granted {lease} fencing_token={fencing_token} deadline={deadline}"),
        Answer::Confirmed => "confirmed".to_owned(),
        Answer::Released { fencing_token } => format!("released fencing_token={fencing_token}"),
        Answer::Revoked { fencing_token } => format!("revoked fencing_token={fencing_token}"),
        Answer::Reclaimed => "reclaimed".to_owned(),
        Answer::Refused { rule } => rule.name().to_owned(),
    }
}

fn found(found: &Found) -> String {
    match found {
        Found::Lease {
            state,
            fencing_token,
            holder,
            deadline,
        } => format!(
            "{} fencing_token={fencing_token} {holder} {deadline}",
            state.name()
        ),
        Found::Refused { rule } => rule.name().to_owned(),
    }
}

#[test]
fn row_1_resources_are_created_once_and_only_so_many() {
    check(
        "0 create a -> created
         0 create a -> already_exists
         0 create b -> created
         0 create c -> created
         0 create d -> created
         0 create e -> resource_table_full
         0 create a -> already_exists",
    );
}

#[test]
fn row_2_the_time_to_live_is_looked_at_before_the_resource() {
    check(
        "5 create a -> created
         5 acquire a h 0 -> ttl_out_of_range
         5 acquire a h 17 -> ttl_out_of_range
         5 acquire nothing h 0 -> ttl_out_of_range
         5 acquire a h 16 -> granted 1 fencing_token=1 deadline=21",
    );
}

#[test]
fn rows_3_4_and_5_tables_are_full_last_and_endings_hold_their_place() {
    check(
        "0 create a -> created
         0 create b -> created
         0 create c -> created
         0 create d -> created
         0 acquire a h 4 -> granted 1 fencing_token=1 deadline=4
         0 acquire b h 4 -> granted 2 fencing_token=1 deadline=4
         0 acquire c h 4 -> expiration_index_full
         0 acquire c h 5 -> granted 3 fencing_token=1 deadline=5
         0 release 1 h 1 -> released fencing_token=2 until=4
         0 acquire d h 9 -> granted 4 fencing_token=1 deadline=9
         0 acquire a h 9 -> lease_table_full
         0 acquire b h 9 -> resource_busy
         0 acquire nothing h 9 -> resource_not_found
         4 acquire a h 9 -> lease_table_full
         5 acquire a h 9 -> granted 5 fencing_token=1 deadline=14",
    );
}

#[test]
fn row_6_a_bundle_is_taken_as_a_whole_or_not() {
    check(
        "0 create a -> created
         0 create b -> created
         0 create busy -> created
         0 acquire busy h 9 -> granted 1 fencing_token=1 deadline=9
         0 acquire [] h 9 -> bundle_too_large
         0 acquire a,b,busy,c h 9 -> bundle_too_large
         0 acquire b,b h 9 -> resource_busy
         0 acquire b,missing,busy h 9 -> resource_not_found
         0 acquire b,busy,missing h 9 -> resource_busy
         0 acquire a,b h 9 -> granted 2 fencing_token=1 deadline=9
         0 acquire b h 9 -> resource_busy",
    );
}

#[test]
fn rows_7_and_9_holders_and_epochs_are_looked_at_before_the_state() {
    check(
        "0 create a -> created
         0 acquire a h 2 -> granted 1 fencing_token=1 deadline=2
         0 confirm 1 other 7 -> holder_mismatch
         0 confirm 1 h 7 -> stale_fencing_token
         3 confirm 1 h 1 -> confirmed
         3 confirm 1 h 1 -> invalid_state
         3 release 1 h 1 -> released fencing_token=2 until=7
         3 acquire a new 9 -> granted 2 fencing_token=1 deadline=12
         3 confirm 1 h 1 -> stale_fencing_token
         3 look 2 -> granted fencing_token=1 new 12",
    );
}

#[test]
fn row_8_only_what_is_granted_expires_and_not_early() {
    check(
        "0 create a -> created
         0 create b -> created
         0 acquire a h 2 -> granted 1 fencing_token=1 deadline=2
         0 acquire b h 2 -> granted 2 fencing_token=1 deadline=2
         0 confirm 1 h 1 -> confirmed
         2 expire 1 -> noop
         1 expire 2 -> noop
         2 expire 2 -> expired fencing_token=2 until=6
         2 expire 2 -> noop
         2 acquire b h 1 -> granted 3 fencing_token=1 deadline=3",
    );
}

#[test]
fn row_10_what_is_revoked_stays_blocked_until_it_is_reclaimed() {
    check(
        "0 create a -> created
         0 acquire a h 2 -> granted 1 fencing_token=1 deadline=2
         0 revoke 1 -> invalid_state
         0 confirm 1 h 1 -> confirmed
         0 reclaim 1 -> invalid_state
         0 revoke 1 -> revoked fencing_token=2
         0 acquire a h 2 -> resource_busy
         0 release 1 h 1 -> stale_fencing_token
         1 reclaim 1 -> reclaimed until=5
         1 look 1 -> revoked fencing_token=2 h 2
         1 acquire a h 2 -> granted 2 fencing_token=1 deadline=3",
    );
}

#[test]
fn row_14_history_ends_and_the_watermark_stays() {
    check(
        "0 create a -> created
         0 acquire a h 2 -> granted 1 fencing_token=1 deadline=2
         0 release 1 h 1 -> released fencing_token=2 until=4
         4 look 1 -> released fencing_token=2 h 2
         5 look 1 -> lease_retired
         5 look 2 -> lease_not_found
         4 confirm 1 h 2 -> invalid_state
         5 confirm 1 h 2 -> lease_retired
         5 confirm 2 h 1 -> lease_not_found",
    );
}

#[test]
fn rows_15_and_16_slots_go_neither_back_nor_beyond_the_last() {
    let last = u64::MAX;
    check(&format!(
        "9 create a -> created
         8 create b -> slot_backwards
         {last} create b -> slot_overflow
         {} acquire a h 16 -> slot_overflow
         9 acquire a h 16 -> granted 1 fencing_token=1 deadline=25",
        last - 5
    ));
}

#[test]
fn ended_states_are_the_ended_ones() {
    let ended = LeaseState::ALL.map(LeaseState::has_ended);
    assert_eq!(ended, [false, false, false, true, true, true]);
}
