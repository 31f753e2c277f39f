//! What the state shows.

use super::*;
use ledger::figures::{Figure, Value};

/// The samples of a metric: its labels, and thousandths.
fn check(w: &World, metric: &str, expected: &[&str]) {
    let mut figures = Figures::default();
    w.state.show(w.now, &mut figures);
    let of_metric = figures.all().iter().filter(|it| it.metric.name == metric);
    let found: Vec<String> = of_metric.map(line).collect();
    assert_eq!(found, expected, "{metric}");
}

fn line(figure: &Figure) -> String {
    assert_eq!(figure.labels.len(), figure.metric.labels.len());
    let labels = figure.labels.iter().map(|label| format!("{label} "));
    let value = match &figure.value {
        Value::Milli(milli) => milli.to_string(),
        Value::Times(times) => format!("{} in {} ms", times.count(), times.sum_ms()),
    };
    labels.chain([value]).collect()
}

#[test]
fn who_waits_is_told_by_queue_and_reason_with_the_oldest() {
    let mut w = World::new();
    w.node("n", 1, capacity(4, 64, 0));
    w.submit("b", 2, job(8, 1));
    w.now.0 += 1500;
    w.request("a", job(1, 1));
    w.submit("b", 1, job(3, 1));
    w.decide();
    w.now.0 += 1000;
    let expected = ["b larger_than_any_node 2000", "a quota 1000"];
    check(&w, "apportion_pending", &expected);
    let expected = ["b larger_than_any_node 2500", "a quota 1000"];
    check(&w, "apportion_pending_oldest_seconds", &expected);
    let expected = ["pending 3000", "placed 1000", "running 0", "stopping 0"];
    check(&w, "apportion_allocations", &expected);
}

#[test]
fn queues_beyond_the_fiftieth_are_told_together() {
    let mut w = World::new();
    for queue in 0..60 {
        for _ in 0..=u32::from(queue < 50) {
            w.request(&format!("q{queue}"), job(1, 1));
        }
    }
    let mut expected: Vec<String> = (0..50)
        .map(|queue| format!("q{queue} quota 2000"))
        .collect();
    expected.push("(others) quota 10000".to_owned());
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    check(&w, "apportion_pending", &expected);
}

#[test]
fn gpus_are_told_by_model_and_what_is_with_them() {
    let mut w = World::new();
    for name in ["idle", "lost", "closed"] {
        w.node(name, 1, capacity(4, 64, 2));
    }
    w.node("bare", 1, capacity(4, 64, 0));
    w.lose("lost");
    let jobs = w.submit("t", 1, gpus(job(1, 1), 1, 300));
    w.decide();
    w.suspect("closed");
    let on_closed = w.node_of(jobs[0]).as_deref() == Some("closed");
    let free_of_closed = if on_closed { 1700 } else { 2000 };
    let idle = 3700 - free_of_closed;
    let expected = [
        "T4 allocated 300".to_owned(),
        format!("T4 idle {idle}"),
        format!("T4 closed {free_of_closed}"),
        "T4 lost 2000".to_owned(),
    ];
    check(
        &w,
        "apportion_gpus",
        &expected.each_ref().map(String::as_str),
    );
    let expected = ["ready 2000", "cordoned 0", "suspected 1000", "lost 1000"];
    check(&w, "apportion_nodes", &expected);
}

#[test]
fn times_are_of_decisions_and_not_of_what_is_read_again() {
    let mut w = World::new();
    w.node("n", 1, capacity(4, 64, 0));
    let jobs = w.submit("t", 1, job(1, 1));
    w.now.0 += 40;
    w.decide();
    check(&w, "apportion_placement_seconds", &["1 in 40 ms"]);
    check(&w, "apportion_wait_seconds", &["0 in 0 ms"]);
    w.now.0 += 10;
    w.report(jobs[0], "n", RunState::Started);
    w.decide();
    check(&w, "apportion_wait_seconds", &["1 in 50 ms"]);
    // The state of a process that begins with the snapshot of this one, and reads the placement of another leader.
    w.state = again(&w.state);
    check(&w, "apportion_placement_seconds", &["0 in 0 ms"]);
    let jobs = w.submit("t", 1, job(1, 1));
    let mut leader = w.clone();
    let placed = leader.decide();
    let at = At {
        lsn: Lsn(7),
        index: 0,
        no: EventNo(1),
        now: w.now,
    };
    for event in &placed {
        w.state.evolve_event(&at, event).unwrap();
    }
    assert_eq!(w.node_of(jobs[0]).as_deref(), Some("n"));
    check(&w, "apportion_placement_seconds", &["0 in 0 ms"]);
}
