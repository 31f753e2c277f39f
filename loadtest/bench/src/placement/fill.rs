//! The published experiment: pods come in random order and stay, until more was asked for than there is.

use super::{cluster::Cluster, lists::Lists};
use ledger::memory::Seeded;
use scheduler_rules::scoring::{Policy, Request};
use std::time::Duration;

/// GPU that is asked for in the end, in percent of the capacity.
const DEMAND_PCT: u64 = 130;
/// Where the figures are taken, in percent of the capacity.
const LOAD_PCT: u64 = 100;
/// Drawn pods at most: where next to no pod asks for GPU, the demand is never reached.
const DRAWN_MAX: usize = 1 << 20;

/// What came of one run.
#[derive(Debug)]
pub struct Filled {
    /// None when the load was not reached.
    pub full: Option<Full>,
    /// Percent, rounded.
    pub last_load_pct: u64,
    pub decisions: u64,
    pub deciding: Duration,
}

/// Means over the pods at full load, in percent.
#[derive(Debug, Default)]
pub struct Full {
    pub unallocated: f64,
    pub frag_amount: f64,
    pub frag_ratio: f64,
}

pub fn run(lists: &Lists, policy: Policy, draws: &mut Seeded, seed: u64) -> Filled {
    let capacity_milli = lists.gpu_capacity_milli();
    let mut cluster = Cluster::new(lists, policy, seed);
    let (mut sums, mut pods, mut arrived_milli, mut last_load_pct) = (Full::default(), 0, 0, 0);
    for ask in sequence(lists, draws) {
        cluster.arrive(&ask);
        arrived_milli += ask.gpu_milli_total();
        let load_pct = (200 * arrived_milli + capacity_milli) / (2 * capacity_milli);
        last_load_pct = load_pct;
        if load_pct == LOAD_PCT {
            pods += 1;
            sums.unallocated += 100.0 - cluster.allocated_pct();
            sums.frag_amount += cluster.frag_amount_pct();
            sums.frag_ratio += cluster.frag_ratio_pct().unwrap_or(0.0);
        }
    }
    let mean = |sum: f64| sum / f64::from(pods);
    Filled {
        full: (pods > 0).then(|| Full {
            unallocated: mean(sums.unallocated),
            frag_amount: mean(sums.frag_amount),
            frag_ratio: mean(sums.frag_ratio),
        }),
        last_load_pct,
        decisions: cluster.decisions,
        deciding: cluster.deciding,
    }
}

/// All pods of the list in random order, then drawn ones; or fewer, when the list asks for too much.
pub fn sequence(lists: &Lists, draws: &mut Seeded) -> Vec<Request> {
    let most_milli = lists.gpu_capacity_milli() * DEMAND_PCT / 100;
    let listed: Vec<Request> = lists.pods.iter().map(|pod| pod.ask).collect();
    let mut sequence = listed.clone();
    for last in (1..sequence.len()).rev() {
        sequence.swap(last, index(draws, last + 1));
    }
    let mut sum: u64 = sequence.iter().map(Request::gpu_milli_total).sum();
    while sum > most_milli {
        let gone = sequence.swap_remove(index(draws, sequence.len()));
        sum -= gone.gpu_milli_total();
    }
    if sum == 0 {
        return sequence;
    }
    for _ in 0..DRAWN_MAX {
        let drawn = listed[index(draws, listed.len())];
        sum += drawn.gpu_milli_total();
        if sum > most_milli {
            break;
        }
        sequence.push(drawn);
    }
    sequence
}

/// Below the bound, which is not 0: lists are not empty.
fn index(draws: &mut Seeded, bound: usize) -> usize {
    draws.below(bound as u64) as usize
}
