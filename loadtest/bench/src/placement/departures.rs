//! Pods come and go at the recorded times. One that finds no place when it comes does not come again.

use super::{
    cluster::{Cluster, Place},
    lists::{Lists, Pod},
};
use scheduler_rules::scoring::Policy;
use std::{collections::BTreeMap, time::Duration};

/// What came of one run. Means are over the time from the first arrival to the last departure, in percent.
#[derive(Debug, Default)]
pub struct Visited {
    pub allocated_mean: f64,
    pub allocated_peak: f64,
    pub frag_amount_mean: f64,
    /// Of the mean of what was free.
    pub frag_ratio_mean: f64,
    pub placed: u64,
    pub failed: u64,
    /// Of the failed, those that do not even fit in the empty cluster.
    pub never: u64,
    pub decisions: u64,
    pub deciding: Duration,
}

pub fn run(lists: &Lists, policy: Policy, seed: u64) -> Visited {
    let mut pods: Vec<(i64, i64, &Pod)> = lists
        .pods
        .iter()
        .filter_map(|pod| pod.times.map(|(created, deleted)| (created, deleted, pod)))
        .collect();
    // Stable: pods of the same second stay in the list's order.
    pods.sort_by_key(|(created, ..)| *created);
    let mut visit = Visit {
        cluster: Cluster::new(lists, policy, seed),
        staying: BTreeMap::new(),
        now: pods.first().map_or(0, |(created, ..)| *created),
        seconds: 0.0,
        result: Visited::default(),
    };
    for (number, (created, deleted, pod)) in pods.into_iter().enumerate() {
        visit.leave_until(created);
        visit.pass(created);
        match visit.cluster.arrive(&pod.ask) {
            Some(place) => {
                visit.result.placed += 1;
                visit.staying.insert((deleted, number), (pod, place));
            }
            None => {
                visit.result.failed += 1;
                visit.result.never += u64::from(!Cluster::could_ever(lists, &pod.ask));
            }
        }
        let peak = &mut visit.result.allocated_peak;
        *peak = peak.max(visit.cluster.allocated_pct());
    }
    visit.leave_until(i64::MAX);
    visit.finish()
}

struct Visit<'a> {
    cluster: Cluster,
    /// By the time of departure.
    staying: BTreeMap<(i64, usize), (&'a Pod, Place)>,
    now: i64,
    seconds: f64,
    /// Means are sums until the end.
    result: Visited,
}

impl Visit<'_> {
    /// Departures go before the arrivals of the same second.
    fn leave_until(&mut self, until: i64) {
        while let Some(first) = self.staying.first_entry()
            && first.key().0 <= until
        {
            let ((deleted, _), (pod, place)) = first.remove_entry();
            self.pass(deleted);
            self.cluster.leave(&pod.ask, &place);
        }
    }

    fn pass(&mut self, to: i64) {
        let seconds = (to - self.now) as f64;
        self.now = to;
        self.seconds += seconds;
        self.result.allocated_mean += seconds * self.cluster.allocated_pct();
        self.result.frag_amount_mean += seconds * self.cluster.frag_amount_pct();
    }

    fn finish(self) -> Visited {
        let seconds = self.seconds.max(1.0);
        let allocated_mean = self.result.allocated_mean / seconds;
        let frag_amount_mean = self.result.frag_amount_mean / seconds;
        Visited {
            allocated_mean,
            frag_amount_mean,
            frag_ratio_mean: 100.0 * frag_amount_mean / (100.0 - allocated_mean).max(0.001),
            decisions: self.cluster.decisions,
            deciding: self.cluster.deciding,
            ..self.result
        }
    }
}
