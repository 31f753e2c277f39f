//! Placement rules: terms that cannot be, and the one form of those that can.

use super::*;
use vocab::{NumaPolicy, Operator, Requirement};
use wire::Open;

fn requirement(label: &str, operator: i32, values: &[&str]) -> RequirementRequest {
    RequirementRequest {
        label: label.into(),
        operator: Operator::from_number(operator).map_or(Open::Unknown(operator), Open::Known),
        values: values.iter().map(|&value| value.into()).collect(),
    }
}

fn toleration(key: &str, value: &str) -> TolerationRequest {
    TolerationRequest {
        key: key.into(),
        value: value.into(),
    }
}

fn term(group: &str, domain: &str) -> TermRequest {
    TermRequest {
        group: group.into(),
        topology_key: domain.into(),
    }
}

fn spread(domain: &str, max_skew: u32) -> SpreadRequest {
    SpreadRequest {
        topology_key: domain.into(),
        max_skew,
    }
}

#[track_caller]
fn broken(change: impl FnOnce(&mut PlacementRequest), expected: &str) {
    let mut rules = PlacementRequest::default();
    change(&mut rules);
    Table::new().broken(|r| r.rules = Some(rules.into()), expected);
}

#[test]
fn a_selector_says_something_that_can_be() {
    let wrong = "placement_rule_invalid rules.selector";
    for bad in [
        requirement("l", 0, &[]),
        requirement("l", 5, &[]),
        requirement("l", 1, &[]),
        requirement("l", 2, &[]),
        requirement("l", 3, &["v"]),
        requirement("l", 4, &["v"]),
    ] {
        broken(|r| r.selector = vec![bad], wrong);
    }
    for bad in [
        requirement("", 3, &[]),
        requirement("l.m", 3, &[]),
        requirement("l", 1, &[""]),
    ] {
        broken(|r| r.selector = vec![bad], "name_invalid rules.selector");
    }
    let many = "too_many_elements rules.selector";
    broken(|r| r.selector = vec![requirement("l", 3, &[]); 17], many);
    let values = requirement("l", 1, &["v"; 33]);
    broken(|r| r.selector = vec![values], many);
}

#[test]
fn every_broken_term_is_named() {
    broken(
        |r| r.tolerations = vec![toleration("", "v")],
        "placement_rule_invalid rules.tolerations",
    );
    broken(
        |r| r.tolerations = vec![toleration("k.k", "")],
        "name_invalid rules.tolerations",
    );
    broken(
        |r| r.tolerations = vec![toleration("k", ""); 17],
        "too_many_elements rules.tolerations",
    );
    broken(|r| r.group = "a b".into(), "name_invalid rules.group");
    broken(
        |r| r.affinity = vec![term("", "l")],
        "name_invalid rules.affinity",
    );
    broken(
        |r| r.affinity = vec![term("g", "l"); 9],
        "too_many_elements rules.affinity",
    );
    broken(
        |r| r.anti_affinity = vec![term("g", "l.m")],
        "name_invalid rules.anti_affinity",
    );
    broken(
        |r| {
            (r.affinity, r.anti_affinity) =
                (vec![term("g", "l")], vec![term("h", ""), term("g", "l")])
        },
        "placement_rule_invalid rules.anti_affinity",
    );
    broken(
        |r| r.spread = vec![spread("l", 1)],
        "placement_rule_invalid rules.group",
    );
    broken(
        |r| (r.group, r.spread) = ("g".into(), vec![spread("l", 0)]),
        "placement_rule_invalid rules.spread",
    );
    broken(
        |r| (r.group, r.spread) = ("g".into(), vec![spread("l", 1), spread("l", 2)]),
        "name_repeated rules.spread",
    );
    broken(
        |r| (r.group, r.spread) = ("g".into(), vec![spread("l", 1); 9]),
        "too_many_elements rules.spread",
    );
    broken(
        |r| r.numa = Open::Unknown(3),
        "placement_rule_invalid rules.numa",
    );
    broken(
        |r| r.preferred = vec![requirement("disk", 1, &[])],
        "placement_rule_invalid rules.preferred",
    );
    broken(
        |r| r.preferred = vec![requirement("disk", 3, &[]); 9],
        "too_many_elements rules.preferred",
    );
}

#[test]
fn equal_rules_are_written_equally() {
    let t = Table::new();
    let found = |rules: PlacementRequest| t.spec(|r| r.rules = Some(rules.into())).unwrap().rules;
    assert_eq!(found(PlacementRequest::default()), None);
    let one = found(PlacementRequest {
        selector: vec![
            requirement("rack", 4, &[]),
            requirement("disk", 1, &["ssd", "nvme", "ssd"]),
        ],
        tolerations: vec![toleration("k", "v"), toleration("", "")],
        group: "g".into(),
        affinity: vec![term("h", "zone"), term("h", "rack")],
        anti_affinity: vec![term("g", "")],
        spread: vec![spread("zone", 2), spread("", 1)],
        numa: Open::Known(NumaPolicy::Single),
        preferred: vec![requirement("rack", 3, &[]), requirement("disk", 3, &[])],
    });
    let other = found(PlacementRequest {
        selector: vec![
            requirement("disk", 1, &["nvme", "ssd"]),
            requirement("rack", 4, &[]),
            requirement("rack", 4, &[]),
        ],
        tolerations: vec![toleration("", ""), toleration("k", "v")],
        group: "g".into(),
        affinity: vec![term("h", "rack"), term("h", "zone")],
        anti_affinity: vec![term("g", ""), term("g", "")],
        spread: vec![spread("", 1), spread("zone", 2)],
        numa: Open::Known(NumaPolicy::Single),
        preferred: vec![requirement("disk", 3, &[]), requirement("rack", 3, &[])],
    });
    assert_eq!(one, other);
    let rules = one.unwrap();
    assert_eq!(rules.numa, NumaPolicy::Single);
    let disk = Requirement {
        label: token("disk"),
        operator: Operator::In,
        values: vec![token("nvme"), token("ssd")],
    };
    assert_eq!(rules.selector[0], disk);
}
