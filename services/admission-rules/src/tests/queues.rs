//! Queues and priority classes: what operators set, and who may name it.

use super::*;
use vocab::QueueSettings;
use wire::Open;

fn queue(name: &str, change: impl FnOnce(&mut QueueRequest)) -> ChangeRequest {
    let mut request = QueueRequest {
        queue: name.into(),
        ..QueueRequest::default()
    };
    change(&mut request);
    ChangeRequest::SetQueue(request)
}

fn below(name: &str, parent: &str) -> ChangeRequest {
    queue(name, |q| q.parent = parent.into())
}

#[test]
fn a_queue_has_its_ranges() {
    let mut t = Table::new().roomy();
    let limits = |pairs: &[(&str, i64)]| -> Vec<(String, i64)> {
        pairs.iter().map(|&(name, n)| (name.into(), n)).collect()
    };
    t.set(queue("q", |_| {}), "applied 1");
    t.set(queue("a", |_| {}), "applied 1");
    for name in ["_q", "", "q.r"] {
        t.set(queue(name, |_| {}), "name_invalid queue");
    }
    t.set(below("q", "q.r"), "name_invalid parent");
    t.set(
        queue("q", |q| q.weight_milli = Some(0)),
        "quantity_zero weight_milli",
    );
    t.set(
        queue("q", |q| q.weight_milli = Some(1_000_001)),
        "quantity_too_large weight_milli",
    );
    t.set(
        queue("q", |q| q.limits = limits(&[("disk", 1)])),
        "resource_unknown limits",
    );
    t.set(
        queue("q", |q| q.limits = limits(&[("gpu", -1)])),
        "quantity_negative limits",
    );
    t.set(
        queue("q", |q| q.limits = limits(&[("gpu", 1), ("gpu", 2)])),
        "name_repeated limits",
    );
    t.set(
        queue("q", |q| q.tenants = vec!["b".into()]),
        "unrecorded tenant_unknown tenants",
    );
    t.set(
        queue("q", |q| q.tenants = vec!["a".into(); 257]),
        "too_many_elements tenants",
    );
    t.set(
        queue("q", |q| q.order = Open::Unknown(3)),
        "setting_invalid order",
    );
    t.set(
        queue("q", |q| q.placement = Some(Open::Unknown(-1))),
        "setting_invalid placement",
    );
    t.set(queue("q", |q| q.tenants = vec!["a".into(); 2]), "applied 2");
}

#[test]
fn queues_are_a_forest_of_bounded_depth() {
    let mut t = Table::new().roomy();
    let wrong = "queue_tree_invalid parent";
    t.set(below("q1", "q0"), wrong);
    t.set(below("q0", "q0"), wrong);
    t.set(queue("q0", |_| {}), "applied 1");
    let depth = QueueSettings::DEPTH_MAX;
    for i in 1..=depth {
        t.set(below(&format!("q{i}"), &format!("q{}", i - 1)), "applied 1");
    }
    t.set(below("deeper", &format!("q{depth}")), wrong);
    for i in 0..=depth {
        t.set(below("q0", &format!("q{i}")), wrong);
    }
    // All below it come along.
    t.set(queue("root", |_| {}), "applied 1");
    t.set(below("q0", "root"), wrong);
    t.set(queue(&format!("q{depth}"), |_| {}), "applied 2");
    t.set(below("q0", "root"), "applied 2");
    t.set(below("root", "q0"), wrong);
}

#[test]
fn only_ones_own_queue_needs_no_operator() {
    let mut t = Table::new().roomy();
    t.admin("b", set_tenant("b"), "applied 1");
    t.broken(|r| r.queue = "b".into(), "queue_unknown queue");
    t.broken(|r| r.queue = "q.r".into(), "name_invalid queue");
    t.set(queue("b", |_| {}), "applied 1");
    t.broken(|r| r.queue = "b".into(), "queue_forbidden queue");
    t.set(queue("b", |q| q.tenants = vec!["a".into()]), "applied 2");
    let found = |name: &str| t.spec(|r| r.queue = name.into()).unwrap().queue;
    assert_eq!(found("b"), Some(token("b")));
    // Named or not, it is the same request.
    assert_eq!((found("a"), found("")), (None, None));
}

#[test]
fn a_class_is_where_the_priority_comes_from() {
    let mut t = Table::new().roomy();
    t.broken(
        |r| r.priority_class = "high".into(),
        "priority_class_unknown priority_class",
    );
    t.broken(
        |r| r.priority_class = "hi gh".into(),
        "name_invalid priority_class",
    );
    let high = |value| {
        ChangeRequest::SetPriorityClass(ClassRequest {
            class: "high".into(),
            value,
            ..ClassRequest::default()
        })
    };
    t.set(high(70), "applied 1");
    t.set(high(80), "applied 2");
    t.broken(
        |r| (r.priority_class, r.priority) = ("high".into(), 80),
        "setting_invalid priority",
    );
    let spec = t.spec(|r| r.priority_class = "high".into()).unwrap();
    assert_eq!(
        (spec.priority_class, spec.priority),
        (Some(token("high")), 80)
    );
}
