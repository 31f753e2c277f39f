//! Named resources at the inbox: slots, windows, ids.

use super::*;

fn create(resource: &str, slot: impl Into<Option<u64>>) -> Verb {
    Verb::Resource(ResourceRequest::CreateResource {
        resource: resource.into(),
        slot: slot.into(),
    })
}

fn revoke(lease_id: &str, slot: u64) -> Verb {
    Verb::Resource(ResourceRequest::Revoke {
        lease_id: lease_id.into(),
        slot: Some(slot),
    })
}

#[test]
fn an_operation_is_remembered_for_a_window_of_slots() {
    let mut t = Table::new();
    t.check("x", 1, create("r", 5), "asked in 5");
    // From another client and later, it is the same operation.
    t.check("x", 1, create("r", 29), "repeated 2");
    t.check("x", 2, create("s", 29), "operation_conflict operation_id");
    t.check("y", 1, create("s", 7), "asked in 7");
    t.check("x", 1, create("r", 30), "a forgotten 2, asked in 30");
    t.check("y", 1, create("s", 31), "repeated 5");
    t.check("y", 1, create("s", 32), "a forgotten 5, asked in 32");
    // The clock's window is another matter.
    t.tick(WINDOW + 1, &["forgotten 1"]);
    t.check("y", 1, create("s", 33), "repeated 10");
}

#[test]
fn what_is_not_recorded_forgets_nothing() {
    let mut t = Table::new().roomy();
    let mut request = TenantRequest {
        tenant: "a".into(),
        ..TenantRequest::default()
    };
    request.rate_milli = Some(1);
    t.set(ChangeRequest::SetTenant(request), "applied 2");
    t.check("x", 1, create("r", 5), "asked in 5");
    t.check(
        "y",
        1,
        create("s", 30),
        "unrecorded rate_limited rate_milli",
    );
    // Not known in that slot, and not let in; known where it was asked.
    t.check(
        "x",
        1,
        create("r", 30),
        "unrecorded rate_limited rate_milli",
    );
    t.check("x", 1, create("r", 6), "repeated 3");
}

#[test]
fn slots_do_not_go_back_and_have_an_end() {
    let mut t = Table::new();
    t.admin("b", set_tenant("b"), "applied 1");
    t.check("1", 1, create("r", 9), "asked in 9");
    t.check("2", 1, create("s", 8), "unrecorded slot_backwards slot");
    t.check("3", 1, create("s", 9), "asked in 9");
    let foreign = t.ask("b", "1", 1, Ok(create("r", 1)));
    assert_eq!(foreign, "asked in 1");
    let last = u64::MAX - 24;
    t.check(
        "4",
        1,
        create("t", last + 1),
        "unrecorded slot_overflow slot",
    );
    t.check(
        "4",
        1,
        create("t", u64::MAX),
        "unrecorded slot_overflow slot",
    );
    // What was refused so has left nothing behind, not even the slot.
    t.check("4", 1, create("t", 9), "asked in 9");
    t.check("5", 1, create("u", None), "setting_invalid slot");
    t.check(
        "6",
        1,
        create("u", last),
        "a forgotten 6, asked in 18446744073709551591",
    );
}

#[test]
fn by_the_clock_no_request_says_a_slot() {
    let mut t = Table::new();
    t.config.slot_ms = 10;
    t.now = 59;
    t.check("1", 1, create("r", None), "asked in 5");
    t.check("2", 1, create("r", 5), "setting_invalid slot");
    // Remembered by the clock, like all others.
    t.tick(59 + WINDOW, &["forgotten 1"]);
    t.check("1", 1, create("r", None), "repeated 2");
    t.tick(60 + WINDOW, &["forgotten 3"]);
    t.check("1", 1, create("r", None), "asked in 16");
}

#[test]
fn what_is_over_is_no_part_of_the_table_once_a_refusal_has_its_place() {
    let mut t = Table::new();
    t.check("x", 1, create("r", 5), "asked in 5");
    t.check("x", 2, create("no name", 30), "name_invalid resource");
    t.tick(WINDOW + 1, &["forgotten 3"]);
    t.check("y", 1, create("r", 31), "a forgotten 2, asked in 31");
}

#[test]
fn a_full_table_says_so_before_anything_is_recorded() {
    let mut t = Table::new();
    t.config.operations_max = 2;
    t.check("1", 1, create("r", 0), "asked in 0");
    t.check("2", 1, create("s", 0), "asked in 0");
    t.check(
        "3",
        1,
        create("t", 0),
        "unrecorded operation_table_full operations",
    );
    t.check("1", 1, create("r", 1), "repeated 2");
    t.check("3", 1, create("t", 25), "a forgotten 3, asked in 25");
}

#[test]
fn a_tenant_whose_slot_stands_still_keeps_nobody_else_out() {
    let mut t = Table::new();
    t.config.operations_max = 3;
    t.admin("b", set_tenant("b"), "applied 1");
    for id in ["1", "2", "3"] {
        t.check(id, 1, create(id, 7), "asked in 7");
    }
    let full = "unrecorded operation_table_full operations";
    t.check("4", 1, create("4", 7), full);
    // Its slot never comes to an end; the clock does not matter.
    t.tick(1000 * WINDOW, &["forgotten 2"]);
    t.check("4", 1, create("4", 7), full);
    for id in ["1", "2", "3"] {
        let asked = t.ask("b", id, 1, Ok(create(id, 0)));
        assert_eq!(asked, "asked in 0");
    }
    assert_eq!(t.ask("b", "4", 1, Ok(create("4", 0))), full);
    t.admin("c", set_tenant("c"), "applied 1");
    // Its own way out is a later slot.
    t.check("4", 1, create("4", 32), "a forgotten 5, asked in 32");
}

#[test]
fn names_and_ids_are_checked() {
    let mut t = Table::new();
    t.check("1", 1, create("a.b", 0), "name_invalid resource");
    t.check("2", 1, revoke("7", 0), "lease_id_invalid lease_id");
    let elsewhere = AllocationNo(3).id(CellNo(2)).to_string();
    t.check("3", 1, revoke(&elsewhere, 0), "lease_not_found lease_id");
    t.check("4", 1, revoke(&id(3), 0), "asked in 0");
    let many = Verb::Resource(ResourceRequest::AcquireBundle {
        resources: vec!["r".into(); 1025],
        holder: "h".into(),
        ttl_slots: 1,
        slot: Some(0),
    });
    t.check("5", 1, many, "too_many_elements resources");
    let operators = t.ask("_operator", "6", 1, Ok(create("r", 0)));
    assert_eq!(operators, "unknown_verb verb");
}
