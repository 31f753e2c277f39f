//! What the state shows.

use super::{World, step_on};
use ledger::{
    Decider, Figures,
    figures::{Figure, Value},
};

fn line(figure: &Figure) -> String {
    let Value::Milli(milli) = figure.value else {
        panic!("{figure:?}");
    };
    assert_eq!(figure.labels.len(), figure.metric.labels.len());
    format!("{} {milli}", figure.labels.join(" "))
}

/// After these steps the metric has these samples: labels, and thousandths.
fn check(steps: &[&str], metric: &str, expected: &[&str]) {
    let mut world = World::new();
    for step in steps {
        step_on(&mut world, step);
        world.decide();
    }
    let mut figures = Figures::default();
    world.state.show(world.now, &mut figures);
    let of_metric = figures.all().iter().filter(|it| it.metric.name == metric);
    let found: Vec<String> = of_metric.map(line).collect();
    assert_eq!(found, expected, "{metric}");
}

#[test]
fn the_fullest_limits_come_first() {
    let used = "apportion_quota_used_ratio";
    let limits = [
        "limit a cpu 9",
        "limit a memory 4",
        "limit b cpu 0",
        "limit a/x cpu 1",
    ];
    check(&limits, used, &["a cpu 0", "a memory 0", "b cpu 0"]);
    let asked = [&limits[..], &["ask 1 a cpu=3 memory=3"]].concat();
    check(&asked, used, &["a memory 750", "a cpu 333", "b cpu 0"]);
    let lowered = [&asked[..], &["limit a cpu 2"]].concat();
    check(&lowered, used, &["a cpu 1500", "a memory 750", "b cpu 0"]);
}

#[test]
fn no_more_than_two_hundred_limits_are_told() {
    let limits: Vec<String> = (0..250).map(|no| format!("limit t{no} cpu 9")).collect();
    let mut world = World::new();
    for step in &limits {
        step_on(&mut world, step);
    }
    let mut figures = Figures::default();
    world.state.show(world.now, &mut figures);
    let told = figures.all().iter();
    let told = told.filter(|it| it.metric.name == "apportion_quota_used_ratio");
    assert_eq!(told.count(), 200);
}

#[test]
fn a_budget_fills_with_time() {
    let steps = [
        "limit a cpu 9",
        "budget a cpu 10 day",
        "ask 1 a cpu=4",
        "at 3600000",
        "start 1",
        "at 10800000",
    ];
    check(&steps, "apportion_budget_spent_ratio", &["a cpu 800"]);
    check(&steps, "apportion_quota_claims", &["all 1000", "waiting 0"]);
}
