//! What became of the capacity.

use super::{percent, used};
use crate::print::{Sheet, column, moment, plain};
use analytics::store::CapacityLine;
use std::collections::{BTreeMap, BTreeSet};

/// The states of capacity, in the order in which they are shown.
pub const STATES: [&str; 5] = ["allocated", "reserved", "idle", "cordoned", "unavailable"];

/// Quantities in the order of `STATES`.
pub type States = [i128; 5];

pub fn states(line: &CapacityLine) -> States {
    [
        line.allocated,
        line.reserved,
        line.idle,
        line.cordoned,
        line.unavailable,
    ]
}

/// Sums by whatever the lines are told apart by, in its order.
pub fn summed<K: Ord>(
    lines: &[CapacityLine],
    key: impl Fn(&CapacityLine) -> K,
) -> BTreeMap<K, States> {
    let mut sums: BTreeMap<K, States> = BTreeMap::new();
    for line in lines {
        let sum = sums.entry(key(line)).or_default();
        for (sum, quantity) in sum.iter_mut().zip(states(line)) {
            *sum += quantity;
        }
    }
    sums
}

/// Of the whole stretch: each resource's states, and all of them together.
pub fn utilization(lines: &[CapacityLine]) -> Sheet {
    let mut rows = Vec::new();
    for (resource, states) in summed(lines, |line| line.resource.clone()) {
        let capacity = states.iter().sum();
        let all = STATES.into_iter().zip(states);
        rows.extend(
            all.chain([("capacity", capacity)])
                .map(|(state, quantity)| {
                    vec![
                        plain(&resource),
                        plain(state),
                        used(&resource, quantity),
                        percent(quantity, capacity),
                    ]
                }),
        );
    }
    let columns = vec![
        column("resource", "resource"),
        column("state", "state"),
        column("quantity", "time"),
        column("percent", "of capacity"),
    ];
    Sheet::new(columns, 2, rows)
}

/// One resource by hour or day.
pub fn over_time(resource: &str, buckets: &BTreeMap<i64, States>) -> Sheet {
    let row = |(begins, states): (&i64, &States)| {
        let begins = moment(*begins);
        let states = states.iter().map(|quantity| used(resource, *quantity));
        [begins].into_iter().chain(states).collect()
    };
    let states = STATES.map(|state| column(state, state));
    let columns = [column("begins_ms", "begins")].into_iter().chain(states);
    Sheet::new(columns.collect(), 1, buckets.iter().map(row).collect())
}

/// Which part of each resource was idle in which hour of the day.
pub fn idle_by_hour(resources: &BTreeSet<String>, hours_of_day: &IdleByHour) -> Sheet {
    let mut rows = Vec::new();
    for resource in resources {
        for hour in 0..24 {
            let states = hours_of_day.get(&(resource.clone(), hour));
            let states = states.copied().unwrap_or_default();
            let capacity = states.iter().sum();
            if capacity > 0 {
                rows.push(vec![
                    plain(resource),
                    plain(format!("{hour:02}:00")),
                    used(resource, states[2]),
                    percent(states[2], capacity),
                ]);
            }
        }
    }
    let columns = vec![
        column("resource", "resource"),
        column("hour_of_day", "hour of the day, UTC"),
        column("idle", "idle"),
        column("percent", "of capacity"),
    ];
    Sheet::new(columns, 2, rows)
}

/// By resource and hour of the day.
pub type IdleByHour = BTreeMap<(String, i64), States>;
