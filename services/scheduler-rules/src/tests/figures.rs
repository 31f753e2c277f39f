//! Metrics of a state.

use super::*;
use ledger::figures::{Figures, Value};

/// Returns the gauges as `name{labels} value`, without those of value 0.
fn shown(w: &World) -> Vec<String> {
    let mut figures = Figures::default();
    w.state.show(w.now, &mut figures);
    let gauges = figures.all().iter().filter_map(|it| match &it.value {
        Value::Milli(0) | Value::Times(_) => None,
        Value::Milli(milli) => {
            let name = it.metric.name.trim_start_matches("apportion_");
            let (whole, rest) = (milli / 1000, milli % 1000);
            let labels = it.labels.join(",");
            Some(format!("{name}{{{labels}}} {whole}.{rest:03}"))
        }
    });
    gauges.collect()
}

/// Returns count and sum of the two distributions.
fn times(w: &World) -> Vec<(u64, u64)> {
    let mut figures = Figures::default();
    w.state.show(w.now, &mut figures);
    let times = figures.all().iter().filter_map(|it| match &it.value {
        Value::Times(times) => Some((times.count(), times.sum_ms())),
        Value::Milli(_) => None,
    });
    times.collect()
}

#[test]
fn nodes_and_gpus_are_shown_by_state() {
    let mut w = World::new();
    w.node("n1", 1, capacity(8, 64, 2));
    w.node("n2", 1, capacity(8, 64, 4));
    w.node("n3", 1, capacity(8, 64, 8));
    w.nodes(&["n4", "n5"]);
    let jobs = w.submit("t", 2, gpus(job(1, 1), 1, 500));
    w.settle();
    assert_eq!(w.on_nodes(&jobs), 2);
    let on = w.node_of(jobs[0]).unwrap();
    assert_eq!(w.node_of(jobs[1]), Some(on.clone()));
    assert_eq!(
        shown(&w),
        [
            "allocations{placed} 2.000",
            "nodes{ready} 5.000",
            "gpus{T4,allocated} 1.000",
            "gpus{T4,idle} 13.000"
        ]
    );
    w.suspect("n5");
    w.lose("n4");
    for (name, lost) in [("n1", 2), ("n2", 4), ("n3", 8)] {
        let mut w = w.clone();
        w.admin(AdminChange::Cordon(CordonSet {
            node: token(name),
            cordoned: true,
            drain: false,
            at_once: 0,
        }));
        let held = u64::from(name == on);
        let [idle, closed] = [14 - lost - (1 - held), lost - held];
        assert_eq!(
            shown(&w),
            [
                "allocations{placed} 2.000".to_owned(),
                "nodes{ready} 2.000".to_owned(),
                "nodes{cordoned} 1.000".to_owned(),
                "nodes{suspected} 1.000".to_owned(),
                "nodes{lost} 1.000".to_owned(),
                "gpus{T4,allocated} 1.000".to_owned(),
                format!("gpus{{T4,idle}} {idle}.000"),
                format!("gpus{{T4,closed}} {closed}.000"),
            ]
        );
        if name != on {
            w.lose(name);
            let shown = shown(&w);
            let [idle, all] = [14 - lost - 1, lost];
            let expected = [
                "gpus{T4,allocated} 1.000".to_owned(),
                format!("gpus{{T4,idle}} {idle}.000"),
                format!("gpus{{T4,lost}} {all}.000"),
            ];
            assert_eq!(shown[shown.len() - 3..], expected);
        }
    }
}

#[test]
fn pending_allocations_are_shown_by_queue_and_reason() {
    let mut w = World::new();
    w.nodes(&["n"]);
    let first = w.request("a", job(1, 1));
    w.now = w.now.plus(1000);
    w.request("a", job(1, 1));
    w.now = w.now.plus(1000);
    let large = w.submit("b", 3, job(20, 1));
    w.settle();
    assert_eq!(w.on_nodes(&large), 1);
    let asked = Millis(1_000_000);
    let age = |ms: i64| {
        let age = w.now.since(asked.plus(ms));
        format!("{}.{:03}", age / 1000, age % 1000)
    };
    assert_eq!(
        shown(&w),
        [
            "pending{a,quota} 2.000".to_owned(),
            "pending{b,no_room_now} 2.000".to_owned(),
            format!("pending_oldest_seconds{{a,quota}} {}", age(0)),
            format!("pending_oldest_seconds{{b,no_room_now}} {}", age(2000)),
            "allocations{pending} 4.000".to_owned(),
            "allocations{placed} 1.000".to_owned(),
            "nodes{ready} 1.000".to_owned(),
        ]
    );
    w.report(large[0], "n", RunState::Started);
    w.grant(first);
    w.settle();
    w.cancel(large[0]);
    w.decide();
    let shown = shown(&w);
    let states = shown.iter().filter(|it| it.starts_with("allocations"));
    let states: Vec<&String> = states.collect();
    assert_eq!(
        states,
        [
            "allocations{pending} 3.000",
            "allocations{placed} 1.000",
            "allocations{stopping} 1.000"
        ]
    );
}

#[test]
fn queues_beyond_50_are_shown_together() {
    let mut w = World::new();
    for no in 0..52 {
        let queue = format!("q{no:02}");
        // The last two have the fewest.
        for _ in 0..if no < 50 { 2 } else { 1 } {
            w.request(&queue, job(1, 1));
        }
    }
    let shown = shown(&w);
    let pending = shown.iter().filter(|it| it.starts_with("pending{"));
    let pending: Vec<&String> = pending.collect();
    assert_eq!(pending.len(), 51);
    assert_eq!(pending[0], "pending{q00,quota} 2.000");
    assert_eq!(pending[50], "pending{(others),quota} 2.000");
}

#[test]
fn models_beyond_50_are_shown_together() {
    let mut w = World::new();
    for no in 0..52 {
        let gpu_model = Some(token(&format!("m{no:02}")));
        let count = if no < 50 { 2 } else { 1 };
        let capacity = NodeCapacity {
            gpu_model,
            ..capacity(8, 64, count)
        };
        w.node(&format!("n{no}"), 1, capacity);
    }
    let shown = shown(&w);
    let gpus = shown.iter().filter(|it| it.starts_with("gpus{"));
    let gpus: Vec<&String> = gpus.collect();
    assert_eq!(gpus.len(), 51);
    assert_eq!(gpus[49], "gpus{m49,idle} 2.000");
    assert_eq!(gpus[50], "gpus{(others),idle} 2.000");
}

#[test]
fn times_count_from_the_request_of_what_this_leader_decides() {
    let mut w = World::new();
    w.nodes(&["n"]);
    let asked = w.now;
    let job = w.submit("a", 1, job(1, 1));
    w.now = w.now.plus(500);
    w.decide();
    let placed = w.now.since(asked) as u64;
    assert_eq!(times(&w), [(1, placed), (0, 0)]);
    w.now = w.now.plus(1000);
    w.report(job[0], "n", RunState::Started);
    let started = w.now.since(asked) as u64;
    w.decide();
    assert_eq!(times(&w), [(1, placed), (1, started)]);
    // Placements that are read from a snapshot do not count.
    w.state = again(&w.state);
    assert_eq!(times(&w), [(0, 0), (0, 0)]);
}
