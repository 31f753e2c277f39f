//! The rows about operations, slots and the inbox.

use super::script::Row;
use crate::e2e::{
    cell::TENANT,
    raw::{field, number},
    suite::id,
};
use client::Operation;
use schemas::v1::{Rule, outcome::Result as Decided};
use vocab::Event;

#[tokio::test]
async fn a11_the_same_operation_has_the_first_result() {
    let mut row = Row::with_resources().await;
    row.check(
        "0 #taken acquire 1 alice 5 -> granted fencing_token=1 deadline=5
         0 #missing acquire 5 alice 5 -> resource_not_found
         other 3 #taken acquire 1 alice 5 -> granted fencing_token=1 deadline=5
         other 3 #taken acquire 2 alice 5 -> operation_conflict
         3 #taken acquire 1 alice 6 -> operation_conflict
         3 #small create 1 -> already_exists
         other 4 #missing acquire 5 alice 5 -> resource_not_found",
    )
    .await;
    row.end().await;

    // A negative result is kept though the same would succeed by now.
    let mut row = Row::start().await;
    row.check(
        "0 #early acquire 1 alice 5 -> resource_not_found
         1 create 1 -> created
         2 #early acquire 1 alice 5 -> resource_not_found
         2 acquire 1 alice 5 -> granted fencing_token=1 deadline=7",
    )
    .await;
    row.end().await;
}

#[tokio::test]
async fn a12_an_operation_is_known_for_its_window_and_after_a_restart() {
    let mut row = Row::with_resources().await;
    row.check(
        "1 #op acquire 1 alice 5 -> granted fencing_token=1 deadline=6
         2 #other acquire 1 bob 5 -> resource_busy",
    )
    .await;
    let before = row.events().await;
    row.cell.kill_admission().await;
    row.cell.kill_scheduler().await;
    row.cell.boot_admission().await;
    row.cell.boot_scheduler().await;
    row.check("2 #op acquire 1 alice 5 -> granted fencing_token=1 deadline=6")
        .await;
    let events = row.cell.suite.events().await;
    let asked = |event: &&(_, Event)| matches!(event.1, Event::ResourceAsked(_));
    assert_eq!(events[before..].iter().filter(asked).count(), 0);
    // Decided anew, it is decided before what is due at its slot expires.
    row.check(
        "25 #op acquire 1 alice 5 -> granted fencing_token=1 deadline=6
         26 #op acquire 1 alice 5 -> resource_busy
         26 #other acquire 1 bob 5 -> resource_busy
         27 #other acquire 1 bob 5 -> granted fencing_token=1 deadline=32",
    )
    .await;
    row.end().await;
}

/// Five operations of the tenant: the operator's for it are not among them.
#[tokio::test]
async fn a13_a_full_table_takes_nothing_new_and_answers_what_it_knows() {
    let mut row = Row::with(5).await;
    row.check(
        "0 #one create 1 -> created
         0 #two create 2 -> created
         0 #three create 3 -> created
         0 #four acquire 1 alice 5 -> granted fencing_token=1 deadline=5
         0 #five acquire 9 alice 5 -> resource_not_found",
    )
    .await;
    let before = row.events().await;
    row.check(
        "0 #six create 4 -> operation_table_full
         0 #seven acquire 2 alice 5 -> operation_table_full
         other 0 #six create 4 -> operation_table_full",
    )
    .await;
    assert_eq!(row.events().await, before);
    row.check(
        "0 #one create 1 -> created
         other 1 #four acquire 1 alice 5 -> granted fencing_token=1 deadline=5
         1 #five acquire 9 alice 5 -> resource_not_found
         25 #six create 4 -> created",
    )
    .await;
    row.end().await;
}

async fn refused(row: &Row, case: &str, payload: Vec<u8>, expected: Rule) {
    let outcome = row.client().call(&Operation::raw(case, payload)).await;
    match outcome.expect("a definite outcome").result {
        Some(Decided::Refused(refused)) => {
            let refusal = refused.refusal.unwrap_or_default();
            assert_eq!(refusal.rule(), expected, "{case}: {refusal:?}");
        }
        other => panic!("{case}: {other:?}"),
    }
}

#[tokio::test]
async fn a15_what_is_no_clients_business_is_refused() {
    let mut row = Row::with_resources().await;
    let with_id = |rest: Vec<u8>| [field(1, id().as_bytes()), rest].concat();
    // The verbs end below 24, and the operators' begin at 30: nobody has one to expire by.
    for verb in [24, 25, 26, 27, 28, 29, 99] {
        let expire = field(verb, &number(1, 1));
        let case = format!("verb {verb}");
        refused(&row, &case, with_id(expire), Rule::UnknownVerb).await;
    }
    // A bundle that says it has 2^28 bytes of names, and a message that ends there.
    let bundle = vec![0x82, 0x01, 0x80, 0x80, 0x80, 0x80, 0x01];
    refused(&row, "count", with_id(bundle), Rule::MalformedMessage).await;
    let name = [vec![0x0a, 0xff, 0xff, 0xff, 0x7f], b"1".to_vec()].concat();
    let bundle = field(17, &name);
    refused(&row, "length", with_id(bundle), Rule::MalformedMessage).await;
    let before = row.events().await;
    row.check(
        "5 a: acquire 1 alice 3 -> granted fencing_token=1 deadline=8
         4 create 1 -> slot_backwards
         7 acquire 1 bob 3 -> resource_busy",
    )
    .await;
    // Two asked, two answered, and nothing of the third.
    assert_eq!(row.events().await, before + 4);
    assert!(row.expired("a").await.is_empty());
    row.check(
        "8 acquire 1 bob 3 -> resource_busy\n 8 acquire 1 bob 3 -> granted fencing_token=1 deadline=11",
    )
    .await;
    assert_eq!(row.expired("a").await, [8]);
    row.end().await;
}

#[tokio::test]
async fn a16_a_slot_whose_window_has_no_end_is_refused() {
    let mut row = Row::with_resources().await;
    let before = row.events().await;
    row.check(
        "max create 1 -> slot_overflow
         max-23 create 1 -> slot_overflow",
    )
    .await;
    assert_eq!(row.events().await, before);
    row.check(
        "max-24 create 1 -> already_exists
         max-24 acquire 1 alice 16 -> granted fencing_token=1 deadline=18446744073709551607",
    )
    .await;
    assert!(
        row.cell
            .suite
            .events()
            .await
            .iter()
            .all(|(_, event)| !matches!(event, Event::LeaseExpired(_))),
        "{TENANT} let nothing expire"
    );
    row.end().await;
}
