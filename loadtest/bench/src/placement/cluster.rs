//! The nodes under one policy: who goes where, and how fast that is decided.

use super::lists::Lists;
use scheduler_rules::scoring::{
    self, Free, Policy, Popularity, Request, WHOLE, devices, fragmentation, rank, score,
};
use std::{collections::HashMap, time::Duration};
use vocab::GpuShares;

/// A place on a node.
#[derive(Debug)]
pub struct Place {
    node: usize,
    gpus: GpuShares,
}

pub struct Cluster {
    policy: Policy,
    /// What the policy knows.
    known: Popularity,
    /// What fragmentation is measured by.
    listed: Popularity,
    /// The highest rank first: ties go to the first.
    nodes: Vec<Node>,
    /// Scores of each class of requests by node.
    scores: HashMap<Request, Scores>,
    capacity_milli: u64,
    free_milli: u64,
    /// Thousandths times `WHOLE`.
    fragmented: u128,
    pub decisions: u64,
    pub deciding: Duration,
}

struct Node {
    rank: u64,
    room: Free,
    /// Grows with each change.
    version: u32,
    fragmented: u64,
}

struct Scores {
    popularity: u64,
    /// The node's version and its score then.
    nodes: Vec<(u32, Option<u32>)>,
}

impl Cluster {
    /// The seed is part of the nodes' names, which decide their order.
    pub fn new(lists: &Lists, policy: Policy, seed: u64) -> Self {
        let listed = Popularity::known(lists.pods.iter().map(|pod| pod.ask));
        let mut known = match policy {
            Policy::Fgd => listed.clone(),
            _ => Popularity::default(),
        };
        if policy == Policy::Default {
            lists
                .nodes
                .iter()
                .for_each(|node| known.joined(&node.empty));
        }
        let node = |node: &super::lists::Node| Node {
            rank: rank(&format!("{seed}-{}", node.name)),
            room: node.empty.clone(),
            version: 1,
            fragmented: fragmentation(&listed, &node.empty),
        };
        let mut nodes: Vec<_> = lists.nodes.iter().map(node).collect();
        nodes.sort_by_key(|node| std::cmp::Reverse(node.rank));
        let capacity_milli = lists.gpu_capacity_milli();
        Self {
            policy,
            known,
            fragmented: nodes.iter().map(|node| u128::from(node.fragmented)).sum(),
            listed,
            nodes,
            scores: HashMap::new(),
            capacity_milli,
            free_milli: capacity_milli,
            decisions: 0,
            deciding: Duration::ZERO,
        }
    }

    /// One request arrives and is placed, or is not.
    pub fn arrive(&mut self, ask: &Request) -> Option<Place> {
        let watch = chassis::Stopwatch::start();
        if self.policy == Policy::Default {
            self.known.arrived(ask);
        }
        let chosen = match self.policy {
            Policy::Random { .. } => self.draw(ask),
            policy => self.best(ask).map(|node| (node, policy)),
        };
        let place = chosen.and_then(|(node, policy)| {
            let gpus = devices(policy, &self.known, &self.nodes[node].room, ask)?;
            Some(Place { node, gpus })
        });
        self.decisions += 1;
        self.deciding += watch.elapsed();
        if let Some(Place { node, gpus }) = &place {
            self.change(*node, |room| {
                let taken = room.take(ask.cpu_milli(), ask.memory_bytes(), gpus);
                // The policy chose from this room.
                debug_assert_eq!(taken, Ok(()));
            });
        }
        place
    }

    pub fn leave(&mut self, ask: &Request, place: &Place) {
        self.change(place.node, |room| {
            room.give_back(ask.cpu_milli(), ask.memory_bytes(), &place.gpus);
        });
    }

    fn change(&mut self, node: usize, change: impl FnOnce(&mut Free)) {
        let node = &mut self.nodes[node];
        self.free_milli -= node.room.gpu_milli_total();
        self.fragmented -= u128::from(node.fragmented);
        change(&mut node.room);
        node.version += 1;
        node.fragmented = fragmentation(&self.listed, &node.room);
        self.free_milli += node.room.gpu_milli_total();
        self.fragmented += u128::from(node.fragmented);
    }

    /// The first of the best nodes. Only those that have changed are scored again.
    fn best(&mut self, ask: &Request) -> Option<usize> {
        let scores = self.scores.entry(*ask).or_insert_with(|| Scores {
            popularity: 0,
            nodes: vec![(0, None); self.nodes.len()],
        });
        if scores.popularity != self.known.version() {
            scores.popularity = self.known.version();
            scores.nodes.fill((0, None));
        }
        let mut best = None;
        for (at, (node, cached)) in self.nodes.iter().zip(&mut scores.nodes).enumerate() {
            if cached.0 != node.version {
                *cached = (
                    node.version,
                    score(self.policy, &self.known, &node.room, ask),
                );
            }
            if cached.1 > best.map(|(score, _)| score) {
                best = cached.1.map(|score| (score, at));
            }
        }
        best.map(|(_, at)| at)
    }

    /// A node, and the policy with the salt that chose it.
    fn draw(&self, ask: &Request) -> Option<(usize, Policy)> {
        let salted = |node: &Node| Policy::Random {
            salt: node.rank ^ self.decisions.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        };
        let scored = self.nodes.iter().enumerate().filter_map(|(at, node)| {
            let policy = salted(node);
            Some((score(policy, &self.known, &node.room, ask)?, at, policy))
        });
        let (_, at, policy) = scored.max_by_key(|(score, ..)| *score)?;
        Some((at, policy))
    }

    pub fn allocated_pct(&self) -> f64 {
        100.0 * (self.capacity_milli - self.free_milli) as f64 / self.capacity_milli as f64
    }

    /// Of the capacity.
    pub fn frag_amount_pct(&self) -> f64 {
        100.0 * self.fragmented as f64 / WHOLE as f64 / self.capacity_milli as f64
    }

    /// Of what is free; none when nothing is.
    pub fn frag_ratio_pct(&self) -> Option<f64> {
        let free = self.free_milli as f64;
        (self.free_milli > 0).then(|| 100.0 * self.fragmented as f64 / WHOLE as f64 / free)
    }

    /// Whether an empty cluster could take the request.
    pub fn could_ever(lists: &Lists, ask: &Request) -> bool {
        lists
            .nodes
            .iter()
            .any(|node| scoring::fits(&node.empty, ask))
    }
}
