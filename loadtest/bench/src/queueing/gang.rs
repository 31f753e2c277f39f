//! A GPU cluster with preemption, by the published protocol: at every submission and every completion the cluster is
//! emptied and filled again in the scheduler's order, and whoever does not fit waits.

use super::philly::{GPUS_PER_NODE, Gang, NODES};
use crate::kit::figures::mean;
use scheduler_rules::order::{Order, Waiting, densest, key};

/// What a job pays for being stopped and started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accounting {
    /// Every event costs every running job the overhead of its model, for the cluster is emptied, except that the job that
    /// completes does not pay since the last event: the published simulator's way.
    Published,
    /// A start costs the overhead, and a job that runs before and after an event does not start.
    InPlace,
}

impl Accounting {
    pub fn name(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::InPlace => "in_place",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    By(Order),
    /// The suite's own.
    Densest,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    pub avg_jct_s: f64,
    pub makespan_s: f64,
    pub p99_jct_s: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Node {
    gpus: u64,
    cpus: u64,
    memory_gb: u64,
}

const EMPTY: Node = Node {
    gpus: GPUS_PER_NODE,
    cpus: 92,
    memory_gb: 520,
};
const CPUS_PER_GPU: u64 = 6;
const CPUS_OF_ONE_GPU: u64 = 2;
const MEMORY_GB: u64 = 5;

impl Node {
    fn holds(&self, other: &Self) -> bool {
        self.gpus >= other.gpus && self.cpus >= other.cpus && self.memory_gb >= other.memory_gb
    }

    fn take(&mut self, other: &Self) {
        self.gpus -= other.gpus;
        self.cpus -= other.cpus;
        self.memory_gb -= other.memory_gb;
    }
}

/// Part of a node on the first one with room, whole nodes on the first empty ones.
fn place(nodes: &mut [Node; NODES], gpus: u64) -> bool {
    if gpus > GPUS_PER_NODE {
        let needed = (gpus / GPUS_PER_NODE) as usize;
        let mut empty: Vec<&mut Node> = nodes.iter_mut().filter(|node| **node == EMPTY).collect();
        if empty.len() < needed {
            return false;
        }
        for node in &mut empty[..needed] {
            node.gpus = 0;
        }
        return true;
    }
    let part = Node {
        gpus,
        cpus: if gpus == 1 {
            CPUS_OF_ONE_GPU
        } else {
            CPUS_PER_GPU * gpus
        },
        memory_gb: MEMORY_GB,
    };
    match nodes.iter_mut().find(|node| node.holds(&part)) {
        Some(node) => {
            node.take(&part);
            true
        }
        None => false,
    }
}

struct Live {
    job: usize,
    remaining_us: i64,
    /// What is to be paid before any work is done.
    overhead_us: i64,
    runs: bool,
}

struct Cluster<'a> {
    jobs: &'a [Gang],
    policy: Policy,
    accounting: Accounting,
    now_us: i64,
    /// By submission, the earliest last.
    to_come: Vec<usize>,
    /// Submitted and not complete.
    live: Vec<Live>,
    completed_us: Vec<i64>,
}

pub fn run(jobs: &[Gang], policy: Policy, accounting: Accounting) -> Outcome {
    let mut to_come: Vec<usize> = (0..jobs.len()).collect();
    to_come.sort_by_key(|index| jobs[*index].submitted_us);
    to_come.reverse();
    let mut cluster = Cluster {
        jobs,
        policy,
        accounting,
        now_us: 0,
        to_come,
        live: Vec::new(),
        completed_us: vec![0; jobs.len()],
    };
    while let Some(event_us) = cluster.next_us() {
        cluster.advance(event_us);
        cluster.fill();
    }
    cluster.outcome()
}

impl Cluster<'_> {
    fn ends_us(&self, live: &Live) -> Option<i64> {
        let overhead_us = match self.accounting {
            Accounting::Published => 0,
            Accounting::InPlace => live.overhead_us,
        };
        live.runs
            .then(|| self.now_us + overhead_us + live.remaining_us)
    }

    fn next_us(&self) -> Option<i64> {
        let comes_us = self
            .to_come
            .last()
            .map(|index| self.jobs[*index].submitted_us);
        let ends_us = self.live.iter().filter_map(|live| self.ends_us(live));
        ends_us.chain(comes_us).min()
    }

    fn advance(&mut self, event_us: i64) {
        let elapsed_us = event_us - self.now_us;
        let mut live = std::mem::take(&mut self.live);
        live.retain(|one| {
            let complete = self.ends_us(one) == Some(event_us);
            if complete {
                self.completed_us[one.job] = event_us;
            }
            !complete
        });
        for one in live.iter_mut().filter(|one| one.runs) {
            one.remaining_us -= (elapsed_us - one.overhead_us).max(0);
            if self.accounting == Accounting::InPlace {
                one.overhead_us = (one.overhead_us - elapsed_us).max(0);
            }
        }
        while let Some(job) = self
            .to_come
            .pop_if(|index| self.jobs[*index].submitted_us == event_us)
        {
            live.push(Live {
                job,
                remaining_us: self.jobs[job].work_us,
                overhead_us: self.jobs[job].overhead_us,
                runs: false,
            });
        }
        self.live = live;
        self.now_us = event_us;
    }

    fn fill(&mut self) {
        let waiting: Vec<Waiting> = self.live.iter().map(|live| self.known(live)).collect();
        let order = match self.policy {
            Policy::By(order) => {
                let mut by_key: Vec<usize> = (0..waiting.len()).collect();
                by_key.sort_by_cached_key(|index| key(order, &waiting[*index], self.now_us / 1000));
                by_key
            }
            Policy::Densest => densest(&waiting, GPUS_PER_NODE * NODES as u64),
        };
        let mut nodes = [EMPTY; NODES];
        for index in order {
            let live = &mut self.live[index];
            let ran = live.runs;
            live.runs = place(&mut nodes, self.jobs[live.job].gpus);
            if live.runs && !ran {
                live.overhead_us = self.jobs[live.job].overhead_us;
            }
        }
    }

    fn known(&self, live: &Live) -> Waiting {
        let job = &self.jobs[live.job];
        let ms = |us: i64| us.unsigned_abs() / 1000;
        Waiting {
            number: live.job as u64,
            submitted_ms: job.submitted_us / 1000,
            estimate_ms: ms(job.work_us),
            remaining_ms: ms(live.remaining_us),
            size: job.gpus,
        }
    }

    fn outcome(&self) -> Outcome {
        let completed = || self.completed_us.iter().zip(self.jobs);
        let mut jct_us: Vec<i64> = completed()
            .map(|(completed_us, job)| completed_us - job.submitted_us)
            .collect();
        jct_us.sort_unstable();
        let jct_s: Vec<f64> = jct_us.into_iter().map(seconds).collect();
        Outcome {
            avg_jct_s: mean(&jct_s),
            makespan_s: seconds(self.completed_us.iter().copied().max().unwrap_or(0)),
            p99_jct_s: jct_s.get(jct_s.len() * 99 / 100).copied().unwrap_or(0.0),
        }
    }
}

fn seconds(us: i64) -> f64 {
    us as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Jobs of (GPUs, submitted s, work s), with an overhead of 10 s; the completion times in seconds.
    fn check(policy: Policy, accounting: Accounting, of: &[(u64, i64, i64)], expected: &[i64]) {
        let jobs: Vec<Gang> = of
            .iter()
            .map(|(gpus, submitted_s, work_s)| Gang {
                gpus: *gpus,
                submitted_us: submitted_s * 1_000_000,
                work_us: work_s * 1_000_000,
                overhead_us: 10_000_000,
            })
            .collect();
        let outcome = run(&jobs, policy, accounting);
        let jct_s = expected.iter().zip(of).map(|(end, of)| (end - of.1) as f64);
        assert_eq!(outcome.avg_jct_s, mean(&jct_s.collect::<Vec<_>>()));
        assert_eq!(outcome.makespan_s, *expected.iter().max().unwrap() as f64);
    }

    #[test]
    fn every_event_costs_by_the_published_accounting() {
        let (srtf, srsf) = (Policy::By(Order::Srtf), Policy::By(Order::Srsf));
        let (published, in_place) = (Accounting::Published, Accounting::InPlace);
        check(srtf, published, &[(8, 0, 100)], &[100]);
        check(srtf, in_place, &[(8, 0, 100)], &[110]);
        // The second comes when the first has done 40 of 100, and both have room.
        check(srtf, published, &[(8, 0, 100), (8, 50, 500)], &[110, 560]);
        check(srtf, in_place, &[(8, 0, 100), (8, 50, 500)], &[110, 560]);
        // Half of the cluster for 100 s, or all of it for 60 s: less time and more service.
        let rivals = [(64, 0, 60), (32, 0, 100)];
        check(srtf, published, &rivals, &[60, 160]);
        check(srsf, published, &rivals, &[160, 100]);
    }

    #[test]
    fn the_densest_set_runs() {
        // By service the first runs alone; the others have room beside each other, and run at a higher rate.
        let of = [(40, 0, 60), (32, 0, 80), (32, 0, 81)];
        let by_service = Policy::By(Order::Srsf);
        check(by_service, Accounting::InPlace, &of, &[70, 160, 161]);
        check(Policy::Densest, Accounting::InPlace, &of, &[161, 90, 91]);
    }

    #[test]
    fn parts_and_whole_nodes_are_placed() {
        let mut nodes = [EMPTY; NODES];
        assert!(place(&mut nodes, 1));
        assert!(!place(&mut nodes, 64));
        assert!(place(&mut nodes, 56));
        assert!(!place(&mut nodes, 8));
        assert!(place(&mut nodes, 4));
        assert!(place(&mut nodes, 2));
        assert!(!place(&mut nodes, 2));
        assert!(place(&mut nodes, 1));
        assert!(!place(&mut nodes, 1));
    }
}
