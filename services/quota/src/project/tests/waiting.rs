//! What waits for quota.

use super::*;

const EXCEEDED: &str = "for quota exceeded: t gpu (limit 8000, actual 9)";

#[test]
fn it_waits_from_the_first_time_on_until_it_is_decided() {
    let waits = "ask 1 t/a gpu=4 priority=5, waits 1 9";
    let row = format!("1 of t/a priority 5 since 2 {EXCEEDED}");
    check(waiting, waits, &[&row]);
    check(waiting, &format!("{waits}, waits 1 9"), &[&row]);
    for end in ["reserved 1", "denied 1", "ended 1"] {
        check(waiting, &format!("{waits}, {end}"), &[]);
    }
    check(
        waiting,
        &format!("{waits}, priority 1 7"),
        &[&format!("1 of t/a priority 7 since 2 {EXCEEDED}")],
    );
}

#[test]
fn what_is_taken_back_waits_when_it_is_given_back() {
    let held = "ask 1 t gpu=4, reserved 1, started 1";
    check(waiting, &format!("{held}, reclaimed 1 7"), &[]);
    let back = format!("{held}, reclaimed 1 7, requeued 1, off 1, released 1");
    check(
        waiting,
        &back,
        &["1 of t priority 0 since 7 reclaimed by 7"],
    );
    check(
        waiting,
        &format!("{back}, waits 1 9"),
        &[&format!(
            "1 of t priority 0 since 7 {EXCEEDED} reclaimed by 7"
        )],
    );
    check(
        waiting,
        &format!("{held}, reclaimed 1, requeued 1, off 1, released 1"),
        &["1 of t priority 0 since 7 reclaimed"],
    );
    check(waiting, &format!("{back}, reserved 1"), &[]);
    check(
        waiting,
        &format!("{held}, reclaimed 1 7, ended 1, released 1"),
        &[],
    );
}
