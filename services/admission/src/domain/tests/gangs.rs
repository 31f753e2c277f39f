//! A member's word on its gang.

use super::*;

#[test]
fn a_gang_is_at_most_as_large_as_it_says() {
    let t = Table::new();
    let gang = |name: &str, size, min| {
        Some(GangRequest {
            name: name.into(),
            size,
            min,
            uniform_label: String::new(),
        })
    };
    for (name, size, min, expected) in [
        ("", 2, 1, "name_invalid gang.name"),
        ("g", 0, 0, "quantity_zero gang.size"),
        ("g", -1, 0, "quantity_negative gang.size"),
        ("g", 1025, 0, "quantity_too_large gang.size"),
        ("g", 2, -1, "quantity_negative gang.min"),
        ("g", 2, 3, "gang_invalid gang.min"),
        ("g", 2, i64::MAX, "quantity_too_large gang.min"),
    ] {
        t.broken(|r| r.gang = gang(name, size, min), expected);
    }
    let uniform = |r: &mut SubmitRequest| {
        r.gang = gang("g", 2, 1);
        r.gang.as_mut().unwrap().uniform_label = "a.b".into();
    };
    t.broken(uniform, "name_invalid gang.uniform_label");
    let found = |size, min| t.spec(|r| r.gang = gang("g", size, min)).unwrap().gang;
    let full = found(1024, 0).unwrap();
    assert_eq!((full.size, full.min), (1024, 1024));
    assert_eq!(found(8, 8), found(8, 0));
}
