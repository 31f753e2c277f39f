//! Crowds: so many queues, or so many different requests, wait where others may be made to go that looking at all of them
//! is work. What is timed is a frame: one `decide` into one draft, as a leader calls it.

use super::{
    cluster::token,
    measure::{MeasureError, histogram, operation},
};
use crate::kit::figures::per_s;
use chassis::Stopwatch;
use clap::ValueEnum;
use hdrhistogram::Histogram;
use ledger::{Decider, Draft, Poison, memory::Seeded};
use replay::command::Size;
use scheduler_rules::{Config, Scheduler};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};
use vocab::fact::{
    AllocationPlaced, AllocationRequested, AllocationStopping, NodeRegistered, PriorityClassSet,
    QuotaReserved, RunReported, SchedulingSet,
};
use vocab::{
    AdminChange, AllocationNo, AllocationSpec, At, Event, EventNo, Lsn, Millis, NodeCapacity,
    PriorityClass, QuotaFlags, RunState, SchedulingPolicy, Token,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Crowd {
    /// 100 nodes are one queue's, and 10,000 queues come, each with two requests.
    Queues,
    /// 500 nodes, most of what is on them preemptible, and 2,000 requests come that preempt, each another.
    Shapes,
    /// 300 queues hold 156 nodes and want more; then one more queue comes.
    Late,
    /// 10,000 nodes are one queue's, and 10,000 queues come.
    Both,
}

impl Crowd {
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// At full size.
    fn nodes(self) -> u32 {
        match self {
            Self::Queues => 100,
            Self::Shapes => 500,
            Self::Late => 156,
            Self::Both => 10_000,
        }
    }
}

/// Times are of one thread. A decision is a placement or a preemption.
#[derive(Debug, Serialize, Deserialize)]
pub struct Frames {
    measure: String,
    pub case: String,
    pub nodes: u32,
    pub queues: u64,
    /// When the crowd had come, before anything was decided for it.
    pub waiting: u64,
    pub frames: u64,
    pub p50_ms: f64,
    pub p999_ms: f64,
    pub longest_ms: f64,
    pub decisions_per_s: u64,
    pub placed: u64,
    pub preempted: u64,
    /// Whether decisions came to an end before the time that was given them.
    pub rest: bool,
    /// What the queue that came last holds in the end, in cores, and what it is due.
    pub late_cores: Option<u64>,
    pub late_due: Option<u64>,
}

const CORES: u64 = 64;
/// The smallest size is this part of the full one.
const SMOKE_PART: u64 = 50;
const GIB: u64 = 1 << 30;
/// Queues that come at once; different requests that come at once; queues that wait before one more comes, and requests of
/// each of these.
const QUEUES: u64 = 10_000;
const SHAPES: u64 = 2000;
const LATE_QUEUES: u64 = 300;
const LATE_EACH: u64 = 100;
/// Of the ledger's clock, between two frames.
const FRAME_MS: i64 = 1;
/// Who sleeps longer than this has nothing to go on with.
const SLEEP_MS: i64 = 1000;
/// So many sleeps without a decision, and all is at rest.
const SLEEPS: u32 = 3;
/// Runs that end one by one after the crowd has come to rest.
const ENDS: u32 = 300;

struct Cell {
    nodes: u32,
    /// The size is this part of the full one.
    part: u64,
    state: Scheduler,
    now: Millis,
    next_input: u64,
    next_own: u64,
    /// Whose they are, and where.
    running: BTreeMap<AllocationNo, (Token, Token)>,
    specs: BTreeMap<AllocationNo, (Token, AllocationSpec)>,
    /// Agents have not yet said that they have started, or stopped.
    starting: Vec<AllocationNo>,
    stopping: Vec<AllocationNo>,
    frames: Histogram<u64>,
    deciding: Duration,
    placed: u64,
    preempted: u64,
}

/// What came of one frame.
struct Frame {
    decisions: u64,
    empty: bool,
}

/// Goes on until all is at rest, but for no longer than `budget` of deciding in each of the two stretches.
pub fn measure(
    crowd: Crowd,
    size: Size,
    seed: u64,
    budget: Duration,
) -> Result<Frames, MeasureError> {
    let mut random = Seeded::new(seed);
    let mut cell = Cell::new(crowd, size.pick(1, SMOKE_PART));
    cell.set_up()?;
    cell.fill(crowd, &mut random)?;
    cell.run_until_rest(Duration::MAX)?;
    cell.frames = histogram();
    (cell.deciding, cell.placed, cell.preempted) = Default::default();

    let queues = cell.crowd_comes(crowd, &mut random)?;
    let waiting = cell.state.waiting() as u64;
    let mut rest = cell.run_until_rest(budget)?;
    let late_cores = (crowd == Crowd::Late).then(|| cell.cores_of(&late()));
    if rest {
        rest = cell.churn(&mut random, budget + cell.deciding)?;
    }
    let ms = |ns: u64| ns as f64 / 1e6;
    let decisions = cell.placed + cell.preempted;
    Ok(Frames {
        measure: "crowd".to_owned(),
        case: crowd.name(),
        nodes: cell.nodes,
        queues,
        waiting,
        frames: cell.frames.len(),
        p50_ms: ms(cell.frames.value_at_quantile(0.5)),
        p999_ms: ms(cell.frames.value_at_quantile(0.999)),
        longest_ms: ms(cell.frames.max()),
        decisions_per_s: per_s(decisions, cell.deciding),
        placed: cell.placed,
        preempted: cell.preempted,
        rest,
        late_cores,
        late_due: late_cores.map(|_| u64::from(cell.nodes) * CORES / queues),
    })
}

fn late() -> Token {
    token("late")
}

fn ask(class: &str, cores_milli: u64, memory_bytes: u64) -> AllocationSpec {
    let mut spec = AllocationSpec::plain(token("load"), cores_milli, memory_bytes);
    if !class.is_empty() {
        spec.priority_class = Some(token(class));
        spec.priority = if class == "high" { 10 } else { 0 };
    }
    spec
}

fn cores(class: &str, cores: u64) -> AllocationSpec {
    ask(class, cores * 1000, cores * GIB)
}

impl Cell {
    fn new(crowd: Crowd, part: u64) -> Self {
        // At most as many as at full size, so it fits.
        let nodes = u64::from(crowd.nodes()).div_ceil(part) as u32;
        Self {
            nodes,
            part,
            state: Scheduler::default(),
            now: Millis(1_000_000),
            next_input: 1,
            next_own: 1,
            running: BTreeMap::new(),
            specs: BTreeMap::new(),
            starting: Vec::new(),
            stopping: Vec::new(),
            frames: histogram(),
            deciding: Duration::ZERO,
            placed: 0,
            preempted: 0,
        }
    }

    fn observe(&mut self, event: &Event) -> Result<AllocationNo, Poison> {
        let at = At {
            lsn: Lsn(0),
            index: 0,
            no: EventNo(self.next_input),
            now: self.now,
        };
        self.next_input += 1;
        self.state.observe_event(&at, event)?;
        Ok(AllocationNo(at.no.0))
    }

    fn set(&mut self, change: AdminChange) -> Result<(), Poison> {
        self.observe(&change.applied(operation(&token("_operator")), 1).into())?;
        Ok(())
    }

    fn set_up(&mut self) -> Result<(), Poison> {
        self.set(AdminChange::Scheduling(SchedulingSet {
            policy: SchedulingPolicy {
                preemptions_per_minute: 1_000_000,
                ..SchedulingPolicy::default()
            },
        }))?;
        for (class, value) in [("low", 0), ("high", 10)] {
            let settings = PriorityClass {
                value,
                preemptible: class == "low",
                preempts: class == "high",
                grace_ms: 1000,
                placement: None,
            };
            let class = token(class);
            self.set(AdminChange::PriorityClass(PriorityClassSet {
                class,
                closed: false,
                settings,
            }))?;
        }
        for number in 0..self.nodes {
            self.observe(&Event::NodeRegistered(NodeRegistered {
                node: token(&format!("n{number:05}")),
                incarnation: 1,
                boot: 1,
                capacity: NodeCapacity {
                    cpu_milli: CORES * 1000,
                    memory_bytes: 256 * GIB,
                    ..NodeCapacity::default()
                },
            }))?;
        }
        Ok(())
    }

    fn submit(&mut self, queue: &Token, spec: AllocationSpec) -> Result<(), Poison> {
        let allocation = self.observe(&Event::AllocationRequested(AllocationRequested {
            operation: operation(queue),
            spec: spec.clone(),
        }))?;
        self.specs.insert(allocation, (queue.clone(), spec));
        let flags = QuotaFlags::default();
        self.observe(&Event::QuotaReserved(QuotaReserved {
            allocation,
            flags,
            models: None,
        }))?;
        Ok(())
    }

    /// What is there before the crowd.
    fn fill(&mut self, crowd: Crowd, random: &mut Seeded) -> Result<(), Poison> {
        let all = u64::from(self.nodes) * CORES;
        match crowd {
            Crowd::Queues => {
                for _ in 0..all {
                    self.submit(&token("hog"), cores("low", 1))?;
                }
            }
            Crowd::Both => {
                for _ in 0..all / 8 {
                    self.submit(&token("hog"), cores("low", 8))?;
                }
            }
            Crowd::Shapes => {
                for no in 0..all {
                    let class = if random.chance(700) { "low" } else { "" };
                    self.submit(&token(&format!("holder-{}", no % 20)), cores(class, 1))?;
                }
            }
            Crowd::Late => {
                let queues = LATE_QUEUES / self.part;
                for no in 0..queues * LATE_EACH {
                    let queue = token(&format!("backlog-{}", no % queues));
                    self.submit(&queue, cores("low", 1))?;
                }
            }
        }
        Ok(())
    }

    /// Who comes then; how many queues there are with them.
    fn crowd_comes(&mut self, crowd: Crowd, random: &mut Seeded) -> Result<u64, Poison> {
        match crowd {
            Crowd::Queues | Crowd::Both => {
                let queues = QUEUES / self.part;
                for no in 0..queues {
                    for _ in 0..2 {
                        let many = match crowd {
                            Crowd::Both => 8,
                            _ => [1, 2, 4][random.below(3) as usize],
                        };
                        self.submit(&token(&format!("q{no}")), cores("low", many))?;
                    }
                }
                Ok(queues + 1)
            }
            Crowd::Shapes => {
                for no in 0..SHAPES / self.part {
                    let cores_milli = 1000 * (1 + random.below(16)) + no;
                    let memory_bytes = GIB * (1 + random.below(8)) + no;
                    let spec = ask("high", cores_milli, memory_bytes);
                    self.submit(&token(&format!("urgent-{}", no % 20)), spec)?;
                }
                Ok(40)
            }
            Crowd::Late => {
                for _ in 0..LATE_EACH {
                    self.submit(&late(), cores("low", 1))?;
                }
                Ok(LATE_QUEUES / self.part + 1)
            }
        }
    }

    /// One round of decisions, and what the agents say to it.
    fn frame(&mut self) -> Result<Frame, Poison> {
        for no in std::mem::take(&mut self.starting) {
            self.report(no, RunState::Started)?;
        }
        for no in std::mem::take(&mut self.stopping) {
            self.report(no, RunState::Finished)?;
        }
        self.now.0 += FRAME_MS;
        let mut draft = Draft::new(self.now, EventNo(self.next_own));
        let began = Stopwatch::start();
        self.state.decide(&Config::default(), &mut draft);
        let took = began.elapsed();
        if let Some(poison) = draft.poison() {
            return Err(poison.clone());
        }
        self.deciding += took;
        self.frames
            .saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        self.next_own = draft.next_no().0;
        let before = self.placed + self.preempted;
        for event in draft.events() {
            match event {
                Event::AllocationPlaced(AllocationPlaced {
                    allocation, node, ..
                }) => {
                    let queue = self.specs.get(allocation).map(|(queue, _)| queue.clone());
                    let queue = queue.unwrap_or_else(late);
                    self.running.insert(*allocation, (queue, node.clone()));
                    self.starting.push(*allocation);
                    self.placed += 1;
                }
                Event::AllocationStopping(AllocationStopping { allocation, .. }) => {
                    self.stopping.push(*allocation);
                    self.preempted += 1;
                }
                _ => {}
            }
        }
        Ok(Frame {
            decisions: self.placed + self.preempted - before,
            empty: draft.is_empty(),
        })
    }

    fn report(&mut self, allocation: AllocationNo, state: RunState) -> Result<(), Poison> {
        let known = match state {
            RunState::Started => self.running.get(&allocation).cloned(),
            _ => self.running.remove(&allocation),
        };
        let Some((_, node)) = known else {
            return Ok(());
        };
        let at = self.now;
        self.observe(&Event::RunReported(RunReported {
            allocation,
            node,
            state,
            at,
            exit: None,
        }))?;
        Ok(())
    }

    /// Frames until nothing is left to decide, or `budget` of deciding is used up. Whether all is at rest.
    fn run_until_rest(&mut self, budget: Duration) -> Result<bool, Poison> {
        let mut sleeps = 0;
        while self.deciding < budget {
            let frame = self.frame()?;
            if frame.decisions > 0 {
                sleeps = 0;
            }
            if !frame.empty {
                continue;
            }
            let Some(at) = self.state.wake_at() else {
                return Ok(true);
            };
            if at.0 - self.now.0 > SLEEP_MS {
                sleeps += 1;
                if sleeps > SLEEPS {
                    return Ok(true);
                }
            }
            self.now = self.now.max(at);
        }
        Ok(false)
    }

    /// Runs end one by one, and who had them asks for another.
    fn churn(&mut self, random: &mut Seeded, until: Duration) -> Result<bool, Poison> {
        for _ in 0..ENDS {
            if self.deciding >= until {
                return Ok(false);
            }
            let at = random.below(self.running.len().max(1) as u64) as usize;
            let Some(no) = self.running.keys().nth(at).copied() else {
                return Ok(true);
            };
            if let Some((queue, spec)) = self.specs.get(&no).cloned() {
                self.submit(&queue, spec)?;
            }
            self.report(no, RunState::Finished)?;
            while !self.frame()?.empty && self.deciding < until {}
        }
        Ok(true)
    }

    fn cores_of(&self, queue: &Token) -> u64 {
        let milli = self
            .running
            .iter()
            .filter(|(_, (of, _))| of == queue)
            .filter_map(|(no, _)| self.specs.get(no));
        milli.map(|(_, spec)| spec.cpu_milli).sum::<u64>() / 1000
    }
}
