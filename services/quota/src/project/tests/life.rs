//! What an allocation takes, from its request to its end.

use super::*;

#[test]
fn what_is_reserved_is_used_and_given_back() {
    check(
        accounts,
        "limit t gpu 8000, ask 1 t gpu=4",
        &["t gpu [8000] 0/0 -"],
    );
    check(
        accounts,
        "ask 1 t gpu=4, reserved 1",
        &["t gpu [none] 4000/0 -"],
    );
    check(
        accounts,
        "ask 1 t gpu=4, reserved 1, started 1, ended 1",
        &["t gpu [none] 0/4000 4000@3"],
    );
    check(
        accounts,
        "ask 1 t gpu=4, reserved 1, started 1, ended 1, released 1",
        &["t gpu [none] 0/0 4000@3"],
    );
    check(
        accounts,
        "ask 1 t gpu=2, ask 2 t gpu=3, reserved 1, reserved 2, started 2, ended 2, released 2",
        &["t gpu [none] 2000/0 3000@5"],
    );
    // Never used, so nothing to remember.
    check(
        accounts,
        "ask 1 t gpu=4, reserved 1, ended 1, released 1",
        &[],
    );
    check(
        live,
        "ask 1 t gpu=4, reserved 1, ended 1, released 1",
        &["live 0"],
    );
    check(live, "ask 1 t gpu=4, denied 1", &["live 0"]);
}

#[test]
fn what_waits_again_stays_reserved() {
    let reserved = ["t gpu [none] 4000/0 -"];
    check(accounts, "ask 1 t gpu=4, reserved 1, requeued 1", &reserved);
    let begin = "ask 1 t gpu=4, reserved 1, started 1, requeued 1";
    check(accounts, begin, &["t gpu [none] 4000/0 4000@3"]);
    check(
        accounts,
        &format!("{begin}, started 1, requeued 1, requeued 1, ended 1, released 1"),
        &["t gpu [none] 0/0 4000@3"],
    );
    check(
        accounts,
        &format!("{begin}, started 1, ended 1, released 1"),
        &["t gpu [none] 0/0 4000@3"],
    );
}

#[test]
fn the_end_may_come_before_the_decision() {
    check(live, "ask 1 t gpu=4, ended 1", &["live 1"]);
    check(
        accounts,
        "ask 1 t gpu=4, ended 1, reserved 1",
        &["t gpu [none] 4000/0 -"],
    );
    check(
        live,
        "ask 1 t gpu=4, ended 1, reserved 1, released 1",
        &["live 0"],
    );
    check(live, "ask 1 t gpu=4, ended 1, denied 1", &["live 0"]);
    check(live, "ask 1 t gpu=4, denied 1, ended 1", &["live 0"]);
    check(
        live,
        "ask 1 t gpu=4, waits 1 9, ended 1, reserved 1, released 1",
        &["live 0"],
    );
    check(
        live,
        "ask 1 t gpu=4, waits 1 9, ended 1, denied 1",
        &["live 0"],
    );
}

/// Whether quota may still decide on what has ended follows from what it has seen, whatever the numbers are.
#[test]
fn what_quota_has_seen_ending_is_forgotten() {
    // The decision on 2 shows that quota has read the ends before it was asked for.
    check(
        live,
        "ask 1 t gpu=4, ended 1, ask 2 t gpu=1, reserved 2",
        &["live 1"],
    );
    check(
        live,
        "ask 9 t gpu=4, ended 9, ask 2 t gpu=1, denied 2",
        &["live 0"],
    );
    check(
        live,
        "ask 1 t gpu=4, ended 1, ask 2 t gpu=1, waits 2 9",
        &["live 1"],
    );
    // Or does not, when they came after it.
    let later = "ask 1 t gpu=4, ask 2 t gpu=1, ended 1, reserved 2";
    check(live, later, &["live 2"]);
    check(live, &format!("{later}, reserved 1"), &["live 2"]);
    check(live, &format!("{later}, ended 2, released 2"), &["live 0"]);
    check(
        live,
        &format!("{later}, ended 2, released 2, reserved 1"),
        &["live 0", "illegal: not asked"],
    );
    // One that waited and was passed over.
    check(
        live,
        "ask 1 t gpu=4, waits 1 9, ask 2 t gpu=1, reserved 2, ended 1, ask 3 t gpu=1, reserved 3",
        &["live 2"],
    );
}

#[test]
fn what_is_taken_back_may_be_granted_anew() {
    let back = "ask 1 t gpu=4, reserved 1, started 1, reclaimed 1 7, requeued 1, released 1";
    check(accounts, back, &["t gpu [none] 0/0 4000@3"]);
    check(live, back, &["live 1"]);
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
    check(
        live,
        &format!("{back}, ended 1, ask 2 t gpu=1, denied 2"),
        &["live 0"],
    );
    check(live, &format!("{back}, denied 1"), &["live 0"]);
}

/// It stopped because it was taken back, and ended; quota has read only as far as the stop.
#[test]
fn what_has_ended_may_be_made_to_wait_again() {
    let stopped = "ask 1 t gpu=4, reserved 1, reclaimed 1 7, ended 1, released 1";
    check(live, stopped, &["live 1"]);
    check(live, &format!("{stopped}, waits 1 9"), &["live 1"]);
    let again = format!("{stopped}, waits 1 9, reserved 1");
    check(accounts, &again, &["t gpu [none] 4000/0 -"]);
    check(live, &format!("{again}, released 1"), &["live 0"]);
    check(
        live,
        &format!("{stopped}, ask 2 t gpu=1, denied 2"),
        &["live 0"],
    );
}

#[test]
fn what_cannot_be_is_refused() {
    check(live, "reserved 1", &["live 0", "illegal: not asked"]);
    check(live, "waits 1 9", &["live 0", "illegal: not asked"]);
    let asked = "ask 1 t gpu=4";
    for step in ["started 1", "requeued 1", "reclaimed 1"] {
        let expected = ["live 1", "illegal: no quota reserved"];
        check(live, &format!("{asked}, {step}"), &expected);
    }
    let expected = ["live 1", "illegal: nothing held"];
    check(live, &format!("{asked}, released 1"), &expected);
    for step in ["reserved 1", "denied 1", "waits 1 9"] {
        let expected = ["live 1", "illegal: not asked"];
        check(live, &format!("{asked}, reserved 1, {step}"), &expected);
    }
    check(
        live,
        &format!("{asked}, reserved 1, started 1, started 1"),
        &["live 1", "illegal: started already"],
    );
}
