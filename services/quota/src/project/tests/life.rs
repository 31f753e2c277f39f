//! What an allocation takes, from its request to its end.

use super::*;

#[test]
fn what_is_reserved_is_used_and_given_back() {
    check(
        accounts,
        "limit t gpu 8000, ask 1 t gpu=4",
        &["t gpu [8000] 0/0 -"],
    );
    let reserved = "ask 1 t gpu=4, reserved 1";
    check(accounts, reserved, &["t gpu [none] 4000/0 -"]);
    let started = format!("{reserved}, started 1");
    check(accounts, &started, &["t gpu [none] 0/4000 4000@3"]);
    let ended = format!("{started}, ended 1");
    check(accounts, &ended, &["t gpu [none] 0/4000 4000@3"]);
    let released = format!("{ended}, released 1");
    check(accounts, &released, &["t gpu [none] 0/0 4000@3"]);
    check(
        accounts,
        "ask 1 t gpu=2, ask 2 t gpu=3, reserved 1, reserved 2, started 2, ended 2, released 2",
        &["t gpu [none] 2000/0 3000@5"],
    );
    // Never used, so nothing to remember.
    check(accounts, &format!("{reserved}, ended 1, released 1"), &[]);
}

#[test]
fn what_waits_again_stays_reserved() {
    let reserved = ["t gpu [none] 4000/0 -"];
    check(accounts, "ask 1 t gpu=4, reserved 1, requeued 1", &reserved);
    let begin = "ask 1 t gpu=4, reserved 1, started 1, requeued 1";
    check(accounts, begin, &["t gpu [none] 4000/0 4000@3"]);
    let over = ["t gpu [none] 0/0 4000@3"];
    for end in [
        "started 1, requeued 1, requeued 1, ended 1, released 1",
        "started 1, ended 1, released 1",
    ] {
        check(accounts, &format!("{begin}, {end}"), &over);
    }
}

#[test]
fn what_is_taken_back_may_be_granted_anew() {
    let back = "ask 1 t gpu=4, reserved 1, started 1, reclaimed 1, requeued 1, off 1, released 1";
    check(accounts, back, &["t gpu [none] 0/0 4000@3"]);
    check(
        accounts,
        &format!("{back}, reserved 1"),
        &["t gpu [none] 4000/0 4000@3"],
    );
    check(
        accounts,
        &format!("{back}, waits 1 9, reserved 1, started 1, ended 1, released 1"),
        &["t gpu [none] 0/0 4000@3"],
    );
}

#[test]
fn what_quota_could_not_have_decided_is_refused() {
    check(accounts, "reserved 1", &["illegal: not asked"]);
    let held = "ask 1 t gpu=4, reserved 1";
    let row = "t gpu [none] 4000/0 -";
    check(
        accounts,
        &format!("{held}, released 1"),
        &[row, "illegal: neither ended nor stopped"],
    );
}
