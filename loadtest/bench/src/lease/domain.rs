//! The kernel and the decider alone, in one thread, without a bus: a small space and a large one side by side.

mod decider;
mod space;

use super::workload::Workload;
use crate::kit::figures::{median, per_s, round, spread};
use chassis::Stopwatch;
use ledger::{IllegalEvent, Poison};
use replay::command::Size;
use serde::Serialize;
use std::{fs, time::Duration};
use vocab::{LeaseNo, ResourceAnswer, ResourceAsk, Slot};

#[derive(Debug, thiserror::Error)]
pub enum DomainError {
    #[error(transparent)]
    Illegal(#[from] IllegalEvent),
    #[error(transparent)]
    Poison(#[from] Poison),
    #[error("the kernel refuses its own decision: {0}")]
    Unfit(&'static str),
}

/// Chains of acquire, confirm and release between two reads of the clock.
const CHAINS: usize = 2048;
/// Chains in one slot: ended leases are forgotten during the measure.
const CHAINS_PER_SLOT: u64 = 100;
const CREATES: usize = 8192;

/// Length of the measure.
#[derive(Debug, Clone, Copy)]
pub struct Length {
    repetitions: usize,
    /// Chunks of each space in one repetition.
    rounds: usize,
    /// Resources of the two spaces that are compared.
    resources: [u64; 2],
    /// Before that, until the first leases that have ended are forgotten.
    warm_up: bool,
}

impl Length {
    pub fn new(repetitions: usize, size: Size) -> Self {
        Self {
            repetitions,
            rounds: size.pick(120, 2),
            resources: size.pick([65_536, 1_048_576], [256, 4096]),
            warm_up: !size.smoke,
        }
    }
}

/// The measured code: decides requests one after the other.
trait Subject: Sized {
    fn new() -> Self;
    /// Decides all of them at a slot and says what came of each, in their order.
    fn decide(
        &mut self,
        slot: Slot,
        asks: &[ResourceAsk],
    ) -> Result<Vec<(LeaseNo, ResourceAnswer)>, DomainError>;
    /// Work that is no part of deciding, such as making messages.
    fn prepare(&mut self, slot: Slot, asks: &[ResourceAsk]);
}

/// Times are of one thread.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// Asks to acquire, confirm and release per second of the kernel, with 65,536 resources.
    pub domain_ops_per_s: u64,
    /// With 1,048,576.
    pub domain_ops_per_s_1m: u64,
    /// Slowdown of the large space.
    pub slower_1m_percent: f64,
    /// The same by the CPU time that the thread had: what other processes take does not count.
    pub domain_ops_per_cpu_s: u64,
    pub domain_ops_per_cpu_s_1m: u64,
    pub slower_1m_cpu_percent: f64,
    /// Lowest and highest of the repetitions.
    pub domain_spread: [u64; 2],
    pub domain_spread_1m: [u64; 2],
    /// Through the scheduler as decider: a `ResourceAsked` observed, a `ResourceDecided` emitted and encoded.
    pub decider_ops_per_s: u64,
    pub decider_ops_per_s_1m: u64,
    pub decider_ops_per_cpu_s: u64,
    pub decider_spread: [u64; 2],
    /// Of all operations, how many were refused because another client held the resource.
    pub refused_percent: f64,
    pub repetitions: usize,
}

pub fn measure(length: Length) -> Result<Figures, DomainError> {
    let kernel = compare::<space::Kernel>(length)?;
    let decider = compare::<decider::Deciding>(length)?;
    let ([small, large], [by_decider, by_decider_1m]) = (&kernel, &decider);
    Ok(Figures {
        domain_ops_per_s: small.wall(),
        domain_ops_per_s_1m: large.wall(),
        slower_1m_percent: slower_percent(small.wall(), large.wall()),
        domain_ops_per_cpu_s: small.cpu(),
        domain_ops_per_cpu_s_1m: large.cpu(),
        slower_1m_cpu_percent: slower_percent(small.cpu(), large.cpu()),
        domain_spread: small.spread(),
        domain_spread_1m: large.spread(),
        decider_ops_per_s: by_decider.wall(),
        decider_ops_per_s_1m: by_decider_1m.wall(),
        decider_ops_per_cpu_s: by_decider.cpu(),
        decider_spread: by_decider.spread(),
        refused_percent: small.refused_percent,
        repetitions: length.repetitions,
    })
}

/// One figure per repetition.
#[derive(Debug, Default)]
struct Rates {
    wall: Vec<u64>,
    cpu: Vec<u64>,
    refused_percent: f64,
}

impl Rates {
    fn wall(&self) -> u64 {
        median(&self.wall)
    }

    fn cpu(&self) -> u64 {
        median(&self.cpu)
    }

    fn spread(&self) -> [u64; 2] {
        spread(&self.wall)
    }
}

/// Chunk by chunk in turns, so that whatever else the machine does hits both alike.
fn compare<S: Subject>(length: Length) -> Result<[Rates; 2], DomainError> {
    let mut rates = [Rates::default(), Rates::default()];
    for repetition in 0..length.repetitions {
        let seed = repetition as u64 + 1;
        let [small, large] = length.resources;
        let mut benches = [Bench::<S>::new(small, seed)?, Bench::new(large, seed)?];
        let warm_up = if length.warm_up { warm_up_rounds() } else { 0 };
        for _ in 0..warm_up {
            for bench in &mut benches {
                bench.chunk()?;
            }
        }
        benches.iter_mut().for_each(Bench::forget);
        for _ in 0..length.rounds {
            for bench in &mut benches {
                bench.chunk()?;
            }
        }
        for (bench, rates) in benches.iter().zip(&mut rates) {
            rates.wall.push(median(&bench.per_s));
            rates.cpu.push(per_s(bench.timed.ops, bench.timed.cpu));
            let refused = bench.workload.refused() as f64;
            rates.refused_percent = 100.0 * refused / bench.ops as f64;
        }
    }
    Ok(rates)
}

/// Until the first leases that have ended are forgotten.
fn warm_up_rounds() -> u64 {
    let history = scheduler_rules::Bounds::default().history_slots;
    (history + 100) * CHAINS_PER_SLOT / CHAINS as u64
}

struct Bench<S> {
    subject: S,
    workload: Workload,
    chains: u64,
    ops: u64,
    timed: Timed,
    /// Operations per second, of each chunk.
    per_s: Vec<u64>,
}

/// Of all chunks together: the kernel counts CPU time by its ticks, which is too coarse for one.
#[derive(Debug, Default)]
struct Timed {
    ops: u64,
    cpu: Duration,
}

impl<S: Subject> Bench<S> {
    fn new(resources: u64, seed: u64) -> Result<Self, DomainError> {
        let mut subject = S::new();
        let workload = Workload::new(resources, seed);
        for creates in workload.creates().chunks(CREATES) {
            subject.prepare(0, creates);
            subject.decide(0, creates)?;
        }
        Ok(Self {
            subject,
            workload,
            chains: 0,
            ops: 0,
            timed: Timed::default(),
            per_s: Vec::new(),
        })
    }

    fn forget(&mut self) {
        self.per_s.clear();
        self.timed = Timed::default();
    }

    fn chunk(&mut self) -> Result<(), DomainError> {
        let slot = self.chains / CHAINS_PER_SLOT;
        self.chains += CHAINS as u64;
        let asks = self.workload.asks(CHAINS);
        self.subject.prepare(slot, &asks);
        let (began, cpu_before) = (Stopwatch::start(), cpu());
        let answers = self.subject.decide(slot, &asks)?;
        let (took, cpu) = (began.elapsed(), cpu().saturating_sub(cpu_before));
        let ops = asks.len() as u64;
        self.ops += ops;
        self.timed.ops += ops;
        self.timed.cpu += cpu;
        self.per_s.push(per_s(ops, took));
        for ((no, answer), ask) in answers.iter().zip(asks) {
            self.workload.told(*no, ask, answer);
        }
        Ok(())
    }
}

fn slower_percent(small: u64, large: u64) -> f64 {
    round(100.0 * (1.0 - large as f64 / small.max(1) as f64), 1)
}

/// What this thread, the process's first, has had of a core.
fn cpu() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = text.split(' ').next();
    Duration::from_nanos(first.and_then(|ns| ns.parse().ok()).unwrap_or(0))
}
