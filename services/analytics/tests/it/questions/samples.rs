//! What the nodes are said to have measured, and the answers about it.

use crate::questions::{
    Answer,
    answer::{Cell, hours, rows, when},
    common::token,
    plan::{END, PLACES},
    truth::Truth,
};
use crate::row;
use analytics::store::{SampleRow, slot};
use std::collections::BTreeMap;
use vocab::{DAY_MS, HOUR_MS, Millis};

/// The hour of most of the samples.
const FROM: i64 = when::NOVEMBER + 5 * DAY_MS + 10 * HOUR_MS;
const UNTIL: i64 = FROM + HOUR_MS;
const HOUR: &[(&str, &str)] = &[
    ("from", "2026-11-06 10:00:00"),
    ("until", "2026-11-06 11:00:00"),
];

struct Sample {
    node: &'static str,
    at: i64,
    /// How many were made one.
    samples: u32,
    cpu_milli: u64,
    oom_kills: u64,
}

const fn sample(
    node: &'static str,
    at: i64,
    samples: u32,
    cpu_milli: u64,
    oom_kills: u64,
) -> Sample {
    Sample {
        node,
        at,
        samples,
        cpu_milli,
        oom_kills,
    }
}

const SAMPLES: [Sample; 13] = [
    sample("h1", FROM - 1, 1, 90_000, 9),
    sample("h1", FROM, 1, 10_000, 1),
    sample("h1", FROM + 300_000, 5, 40_000, 3),
    sample("h1", UNTIL - 1, 1, 20_000, 3),
    sample("h1", UNTIL, 1, 90_000, 7),
    // Started again in between.
    sample("c1", FROM + 1, 1, 1_000, 5),
    sample("c1", FROM + 2, 1, 3_000, 6),
    sample("c1", FROM + 3, 1, 5_000, 4),
    // Kills from before stay.
    sample("n1", FROM + 7, 1, 16_000, 8),
    // Long before the others of that time.
    sample("l1", END - 60_000, 1, 7, 0),
    sample("h2", END - 59_000, 1, 8, 0),
    sample("h2", END, 1, 1_500, 0),
    sample("x1", END - 1, 1, 1_501, 0),
];

impl Sample {
    /// The other figures follow from the one.
    fn row(&self) -> SampleRow {
        let at = Millis(self.at);
        let place = PLACES.iter().find(|place| place.name == self.node);
        SampleRow {
            at,
            slot: slot(at),
            node: token(self.node),
            samples: self.samples,
            cpu_milli: self.cpu_milli,
            memory_bytes: self.cpu_milli << 20,
            gpus: place.map_or(0, |place| place.gpus as u32),
            gpu_busy_milli: self.cpu_milli / 10,
            gpu_memory_bytes: 5,
            disk_used_bytes: 100,
            disk_free_bytes: 200 + self.cpu_milli,
            network_received_bytes: 1,
            network_sent_bytes: 2,
            load_milli: self.cpu_milli + 1,
            oom_kills: self.oom_kills,
            runs: 3,
        }
    }
}

pub fn all() -> Vec<SampleRow> {
    SAMPLES.iter().map(Sample::row).collect()
}

fn in_hour() -> impl Iterator<Item = &'static Sample> {
    SAMPLES.iter().filter(|it| (FROM..UNTIL).contains(&it.at))
}

/// Of cpu, memory and GPUs, by node.
fn used() -> BTreeMap<&'static str, [f64; 3]> {
    let mut sums: BTreeMap<&str, (f64, [f64; 3])> = BTreeMap::new();
    for sample in in_hour() {
        let row = sample.row();
        let amounts = [row.cpu_milli, row.memory_bytes, row.gpu_busy_milli];
        let (count, sum) = sums.entry(sample.node).or_default();
        *count += f64::from(row.samples);
        for (sum, amount) in sum.iter_mut().zip(amounts) {
            *sum += f64::from(row.samples) * amount as f64;
        }
    }
    let means = sums.into_iter();
    let mean = |(node, (count, sum)): (_, (f64, [f64; 3]))| (node, sum.map(|sum| sum / count));
    means.map(mean).collect()
}

fn against_allocated(truth: &Truth) -> Vec<Vec<Cell>> {
    let unit = [1000.0, 1_073_741_824.0, 1000.0];
    rows(used(), |(node, used)| {
        let mut held = [0; 3];
        for span in truth.within(FROM, UNTIL) {
            if PLACES[span.place].name == node {
                (0..3).for_each(|kind| held[kind] += span.allocated[kind] * span.ms());
            }
        }
        let mut row = row![node];
        for kind in 0..3 {
            row.push(hours(held[kind] as f64 / HOUR_MS as f64 / unit[kind]));
            row.push(hours(used[kind] / unit[kind]));
        }
        row
    })
}

pub const ANSWERS: &[Answer] = &[
    Answer {
        question: "Which nodes are busiest now?",
        with: &[],
        expect: |_| {
            let last = [("x1", END - 1, 1_501, 4), ("h2", END, 1_500, 8)];
            rows(last, |(node, at, cpu, gpus)| {
                let at = when::millis(at);
                row![
                    node,
                    at,
                    cpu,
                    cpu + 1,
                    cpu << 20,
                    gpus,
                    cpu / 10,
                    200 + cpu,
                    3
                ]
            })
        },
    },
    Answer {
        question: "How much of what is allocated on each node is used?",
        with: HOUR,
        expect: against_allocated,
    },
    Answer {
        question: "On which nodes has the kernel killed processes for want of memory?",
        with: HOUR,
        expect: |_| rows([("c1", 5), ("h1", 2)], |(node, killed)| row![node, killed]),
    },
];
