//! The rows about resources, leases, holders and what is remembered.

use super::script::Row;

#[tokio::test]
async fn a01_a_resource_is_created_once_and_the_table_fills_up() {
    let mut row = Row::start().await;
    row.check(
        "0 create 1 -> created
         0 create 1 -> already_exists
         0 create 2 -> created
         0 create 3 -> created
         0 create 4 -> created
         0 create 1 -> already_exists
         0 create 5 -> resource_table_full",
    )
    .await;
    row.end().await;
}

#[tokio::test]
async fn a02_the_time_to_live_has_bounds_and_is_looked_at_first() {
    let mut row = Row::with_resources().await;
    row.check(
        "3 acquire 1 alice 0 -> ttl_out_of_range
         3 acquire 1 alice 17 -> ttl_out_of_range
         3 acquire missing alice 0 -> ttl_out_of_range
         3 acquire 1 alice 16 -> granted fencing_token=1 deadline=19",
    )
    .await;
    row.end().await;
}

/// Three resources, one of them held; the fourth place of the table is taken by one that has ended.
#[tokio::test]
async fn a03_what_is_not_there_or_busy_is_said_before_that_there_is_no_room() {
    let mut row = Row::with_resources().await;
    row.check(
        "0 acquire 1 alice 14 -> granted fencing_token=1 deadline=14
         0 acquire 2 alice 15 -> granted fencing_token=1 deadline=15
         0 acquire 3 alice 16 -> granted fencing_token=1 deadline=16
         0 a: acquire 4 alice 16 -> granted fencing_token=1 deadline=16
         0 release $a alice 1 -> released fencing_token=2
         0 acquire missing alice 5 -> resource_not_found
         0 acquire 1 bob 5 -> resource_busy
         0 acquire 4 bob 5 -> lease_table_full",
    )
    .await;
    row.end().await;
}

#[tokio::test]
async fn a04_so_many_may_expire_at_one_deadline() {
    let mut row = Row::with_resources().await;
    row.check(
        "0 acquire 1 alice 5 -> granted fencing_token=1 deadline=5
         0 acquire 2 alice 5 -> granted fencing_token=1 deadline=5
         0 acquire 3 alice 5 -> expiration_index_full
         0 acquire 3 alice 6 -> granted fencing_token=1 deadline=6
         1 acquire 4 alice 4 -> expiration_index_full
         1 acquire 4 alice 6 -> granted fencing_token=1 deadline=7",
    )
    .await;
    row.end().await;
}

#[tokio::test]
async fn a05_a_released_one_keeps_its_place_for_its_history() {
    let mut row = Row::with_resources().await;
    row.check(
        "0 a: acquire 1 alice 5 -> granted fencing_token=1 deadline=5
         0 b: acquire 2 alice 5 -> granted fencing_token=1 deadline=5
         0 c: acquire 3 alice 6 -> granted fencing_token=1 deadline=6
         0 d: acquire 4 alice 6 -> granted fencing_token=1 deadline=6
         0 confirm $a alice 1 -> confirmed
         0 confirm $b alice 1 -> confirmed
         0 confirm $c alice 1 -> confirmed
         3 release $d alice 1 -> released fencing_token=2
         7 acquire 4 bob 5 -> lease_table_full
         8 acquire 4 bob 5 -> granted fencing_token=1 deadline=13",
    )
    .await;
    row.end().await;
}

#[tokio::test]
async fn a06_a_bundle_is_all_or_nothing() {
    let mut row = Row::with_resources().await;
    row.check(
        "0 acquire - alice 5 -> bundle_too_large
         0 acquire 1,2,3,4 alice 5 -> bundle_too_large
         0 acquire 2,2 alice 5 -> resource_busy
         0 acquire 1 bob 9 -> granted fencing_token=1 deadline=9
         0 acquire 2,missing,1 alice 5 -> resource_not_found
         0 acquire 2,1,missing alice 5 -> resource_busy
         0 a: acquire 2,3,4 alice 5 -> granted fencing_token=1 deadline=5
         0 acquire 2 bob 5 -> resource_busy
         0 acquire 3 bob 5 -> resource_busy
         0 acquire 4 bob 5 -> resource_busy
         0 release $a alice 1 -> released fencing_token=2
         0 acquire 2,3 bob 6 -> granted fencing_token=1 deadline=6",
    )
    .await;
    row.end().await;
}

#[tokio::test]
async fn a07_only_the_holder_confirms_and_only_once() {
    let mut row = Row::with_resources().await;
    row.check(
        "0 a: acquire 1 alice 5 -> granted fencing_token=1 deadline=5
         0 b: acquire 2 alice 5 -> granted fencing_token=1 deadline=5
         0 confirm $a bob 1 -> holder_mismatch
         0 confirm $a bob 7 -> holder_mismatch
         0 confirm $a alice 2 -> stale_fencing_token
         0 confirm $a alice 1 -> confirmed
         0 confirm $a alice 1 -> invalid_state
         7 confirm $b alice 1 -> confirmed",
    )
    .await;
    assert!(row.expired("b").await.is_empty());
    row.end().await;
}

/// Each has its deadline behind it when the slot moves on; only the one that is still granted expires.
#[tokio::test]
async fn a08_only_what_is_granted_expires_and_only_once() {
    let mut row = Row::with_resources().await;
    row.check(
        "0 confirmed: acquire 1 alice 2 -> granted fencing_token=1 deadline=2
         0 released: acquire 2 alice 2 -> granted fencing_token=1 deadline=2
         0 revoked: acquire 3 alice 3 -> granted fencing_token=1 deadline=3
         0 expired: acquire 4 alice 3 -> granted fencing_token=1 deadline=3
         0 confirm $confirmed alice 1 -> confirmed
         0 release $released alice 1 -> released fencing_token=2
         0 confirm $revoked alice 1 -> confirmed
         0 revoke $revoked -> revoked fencing_token=2
         0 reclaim $revoked -> reclaimed
         3 create 1 -> already_exists
         4 create 1 -> already_exists
         4 confirm $expired alice 2 -> invalid_state
         12 create 1 -> already_exists",
    )
    .await;
    assert_eq!(row.expired("expired").await, [3]);
    for name in ["confirmed", "released", "revoked"] {
        assert!(row.expired(name).await.is_empty(), "{name}");
    }
    row.end().await;
}

#[tokio::test]
async fn a09_who_comes_late_does_not_touch_the_new_owner() {
    let mut row = Row::with_resources().await;
    row.check(
        "0 a: acquire 1 alice 5 -> granted fencing_token=1 deadline=5
         0 release $a alice 1 -> released fencing_token=2
         1 b: acquire 1 bob 5 -> granted fencing_token=1 deadline=6
         1 confirm $a alice 1 -> stale_fencing_token
         1 acquire 1 alice 5 -> resource_busy
         1 confirm $b bob 1 -> confirmed",
    )
    .await;
    row.end().await;
}

#[tokio::test]
async fn a10_what_is_revoked_is_not_free_before_it_is_reclaimed() {
    let mut row = Row::with_resources().await;
    row.check(
        "0 a: acquire 1 alice 5 -> granted fencing_token=1 deadline=5
         0 revoke $a -> invalid_state
         0 confirm $a alice 1 -> confirmed
         0 reclaim $a -> invalid_state
         0 revoke $a -> revoked fencing_token=2
         0 acquire 1 bob 5 -> resource_busy
         0 release $a alice 1 -> stale_fencing_token
         0 reclaim $a -> reclaimed
         0 confirm $a alice 2 -> invalid_state
         0 acquire 1 bob 5 -> granted fencing_token=1 deadline=5",
    )
    .await;
    row.end().await;
}

/// Revoking tells where a lease stands: it is found, retired, or was never there.
#[tokio::test]
async fn a14_what_has_ended_is_found_until_its_history_is_over() {
    let mut row = Row::with_resources().await;
    row.check(
        "0 a: acquire 1 alice 5 -> granted fencing_token=1 deadline=5
         2 release $a alice 1 -> released fencing_token=2
         6 revoke $a -> invalid_state
         6 revoke $a+1 -> lease_not_found
         7 revoke $a -> lease_retired
         7 revoke 1 -> lease_retired
         7 revoke $a+1 -> lease_not_found
         7 revoke $a+100 -> lease_not_found",
    )
    .await;
    row.end().await;
}
