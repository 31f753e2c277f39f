//! Which of the operators asked.

use super::*;

#[test]
fn what_is_recorded_names_the_operator() {
    let mut t = Table::new();
    t.by = Some("alice");
    t.admin("t2", set_tenant("a"), "applied 2 by alice");
    t.admin("t3", set_tenant("_x"), "name_invalid tenant by alice");
    t.by = Some("bob");
    t.admin("t4", set_tenant("a"), "applied 3 by bob");
    t.by = None;
    t.admin("t5", set_tenant("a"), "applied 4");
}

/// They are one party: who sends another's operation again gets its outcome, and sets nothing.
#[test]
fn an_operation_id_is_one_for_all_operators() {
    let mut t = Table::new();
    t.by = Some("alice");
    t.admin("t2", set_tenant("a"), "applied 2 by alice");
    let no = t.next - 1;
    for by in [Some("bob"), None, Some("alice")] {
        t.by = by;
        t.admin("t2", set_tenant("a"), &format!("repeated {no}"));
    }
    t.by = Some("bob");
    let other = t.ask("_operator", "t2", 1, Ok(set_tenant("b")));
    assert_eq!(other, "operation_conflict operation_id by bob");
}

#[test]
fn the_name_is_of_a_feature_level_and_left_away_below_it() {
    let mut t = Table::new();
    t.by = Some("alice");
    t.level = vocab::Level(vocab::Level::NAMED_OPERATORS.0 - 1);
    t.admin("t2", set_tenant("a"), "applied 2");
    t.admin("t3", set_tenant("_x"), "name_invalid tenant");
    t.level = vocab::Level::NAMED_OPERATORS;
    t.admin("t4", set_tenant("a"), "applied 3 by alice");
}
