//! What was held in each hour.

use super::*;

/// An hour is 3,600,000 ms.
#[test]
fn an_hour_is_weighed_by_time() {
    // 5 millicores from minute 15 to minute 45.
    let half = "limit t cpu 8, @899998, ask 1 t cpu=5, reserved 1, started 1, @2699999, ended 1, \
                released 1";
    check(
        hours,
        &format!("{half}, @3600000, tick"),
        &["t cpu h0+1 0..5 9000000 in 3600000 reserved 5 of 8"],
    );
    // Up to its last change, until it is over.
    check(
        hours,
        half,
        &["t cpu h0+1 0..5 9000000 in 2700001 reserved 5 of 8"],
    );
}

#[test]
fn idle_hours_have_no_row_and_unchanged_ones_share_one() {
    let long = "ask 1 t cpu=5, reserved 1, started 1, @18000000, tick, @18000009, ended 1, \
                released 1, @30000000, tick";
    check(
        hours,
        long,
        &[
            "t cpu h0+1 0..5 17999985 in 3600000 reserved 5 of none",
            "t cpu h1+4 5..5 72000000 in 14400000 reserved 0 of none",
            "t cpu h5+1 0..5 55 in 3600000 reserved 0 of none",
        ],
    );
    let all = run(long).tables.hours;
    let mut parts = all.values().flat_map(|row| row.each_hour());
    let third = parts.nth(3).unwrap();
    assert_eq!(third.hour.0, 3 * vocab::HOUR_MS);
    assert_eq!((third.used_ms, third.covered_ms), (18_000_000, 3_600_000));
}

#[test]
fn what_is_only_reserved_is_history_too() {
    check(
        hours,
        "ask 1 t/a cpu=5, reserved 1, @3600000, tick, ended 1, released 1, @7200000, tick",
        &[
            "t cpu h0+1 0..0 0 in 3600000 reserved 5 of none",
            "t cpu h1+1 0..0 0 in 3600000 reserved 5 of none",
            "t/a cpu h0+1 0..0 0 in 3600000 reserved 5 of none",
            "t/a cpu h1+1 0..0 0 in 3600000 reserved 5 of none",
        ],
    );
}
