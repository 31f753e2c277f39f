//! One seed's world: five roles, some nodes, some tenants, and a die that says who goes next and what goes wrong.

use super::{
    agents::{Act, Agent},
    check::{Checker, Heartbeat, Invariant, Limits, Replay, Replays, Violation},
    clock::WorldClock,
    process::{Process, Role, Shared},
    sink::MemorySink,
    tenants::{CELL, Tenants},
};
use admission::domain::{Admission, Rules as AdmissionRules};
use ledger::{
    Door, DoorRecord,
    memory::{Faults, MemoryBus, Seeded},
};
use node_heartbeat::domain::{Command, Effect, Nodes, Rules as NodeRules};
use prost::Message;
use quota::domain::Quota;
use scheduler::domain::Scheduler;
use schemas::v1;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use vocab::{CellNo, Token};

/// What came of one seed.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub events: u64,
    pub records: u64,
    /// Over the whole ledger.
    pub digest: [u8; 32],
    pub violation: Option<Violation>,
    /// The last steps, if asked for.
    pub trace: VecDeque<String>,
}

const TRACE_MAX: usize = 80;
/// Processes of one role at the same time: a leader, and others that think that they are.
const OVERLAP_MAX: usize = 3;
const GIB: u64 = 1 << 30;
/// Rounds after the faults, at most; a round is some milliseconds.
const DRAIN_ROUNDS_MAX: u64 = 3000;

/// How wild this seed is.
#[derive(Debug)]
struct Temper {
    operations: u64,
    snapshot_every: u64,
    /// Polls in a row.
    burst: u64,
    /// Per mille of the steps.
    crash: u64,
    overlap: u64,
    heartbeat_lost: u64,
    effect_lost: u64,
    troubled_agents: bool,
    skew_ms: u64,
}

pub struct World {
    random: Seeded,
    temper: Temper,
    clock: WorldClock,
    shared: Shared,
    limits: Limits,
    processes: Vec<Process>,
    next_process: u64,
    agents: Vec<Agent>,
    tenants: Tenants,
    /// Sent to agents and not arrived; in order per sender, which may be dead by now.
    mail: BTreeMap<u64, VecDeque<Effect>>,
    /// Which agent waits for which list.
    asked: BTreeMap<u64, usize>,
    checker: Checker,
    replays: Vec<Box<dyn Replay>>,
    read: usize,
    told: usize,
    trace: Option<VecDeque<String>>,
}

/// Rates of a calm, a usual and a wild seed.
fn faults(random: &mut Seeded) -> Faults {
    let wild = match random.below(4) {
        0 => 0,
        1 | 2 => 1,
        _ => 4,
    };
    let mut rate = |most: u64| random.below(most * wild + 1);
    Faults {
        lost_ack: rate(60),
        lost_append: rate(60),
        late_append: rate(60),
        lost_read: rate(20),
        bad_snapshot: rate(100),
        lost_tail: rate(20),
        duplicate: rate(100),
        delay: rate(200),
    }
}

impl World {
    pub fn new(seed: u64, traced: bool) -> Self {
        let mut random = Seeded::new(seed ^ 0x5eed_0f_a11_0ca7e);
        let faults = faults(&mut random);
        let small = random.chance(150);
        let limits = Limits {
            cell: CELL,
            lease_ms: 100 + random.below(500) as i64,
            window_ms: 100 + random.below(1500) as i64,
            operations_max: if small { 6 + random.below(10) } else { 10_000 },
            allocations_max: if small { 2 + random.below(10) } else { 10_000 },
        };
        let wild = random.below(3);
        let temper = Temper {
            operations: 20 + random.below(61),
            snapshot_every: 3 + random.below(18),
            burst: 1 + random.below(6),
            crash: random.below(4) * wild,
            overlap: random.below(4) * wild,
            heartbeat_lost: random.below(300),
            effect_lost: random.below(300),
            troubled_agents: random.chance(800),
            skew_ms: random.below(2) * random.below(400),
        };
        let cell = CellNo(CELL);
        let clock = WorldClock::new(1_700_000_000_000);
        let sink_lost = random.below(2) * random.below(100);
        let shared = Shared {
            bus: MemoryBus::new(random.draw(), faults),
            sink: MemorySink::new(random.draw(), sink_lost),
            cell,
            admission: AdmissionRules {
                cell,
                operation_window_ms: limits.window_ms,
                operations_max: limits.operations_max,
                allocations_max: limits.allocations_max,
            },
            nodes: NodeRules {
                lease_ms: limits.lease_ms,
            },
            takeover_after_ms: 50 + random.below(300),
            step: Arc::new(AtomicU64::new(0)),
        };
        let agents = (0..1 + random.below(6))
            .map(|index| Agent::new(format!("node-{index}"), capacity(&mut random)))
            .collect();
        let mut world = Self {
            tenants: Tenants::new(&mut random),
            random,
            temper,
            clock,
            shared,
            limits,
            processes: Vec::new(),
            next_process: 1,
            agents,
            mail: BTreeMap::new(),
            asked: BTreeMap::new(),
            checker: Checker::new(limits),
            replays: vec![
                Box::new(Replays::<Admission>::default()),
                Box::new(Replays::<Quota>::default()),
                Box::new(Replays::<Scheduler>::default()),
                Box::new(Replays::<Nodes>::default()),
            ],
            read: 0,
            told: 0,
            trace: traced.then(VecDeque::new),
        };
        world.note(|w| format!("{:?} {:?} {faults:?}", w.temper, w.limits));
        world
    }

    /// Lives through the whole seed.
    pub fn run(mut self) -> Outcome {
        let violation = self.live().err();
        Outcome {
            events: self.checker.events(),
            records: self.read as u64,
            digest: self.checker.digest(),
            violation,
            trace: self.trace.unwrap_or_default(),
        }
    }

    fn live(&mut self) -> Result<(), Violation> {
        for role in Role::ALL {
            self.start(role);
        }
        let mut left = self.temper.operations;
        while left > 0 {
            left -= u64::from(self.step()?);
        }
        self.drain()?;
        self.replays.iter().try_for_each(|replay| replay.restore(&self.shared.bus))?;
        self.checker.finish()
    }

    fn note(&mut self, text: impl FnOnce(&Self) -> String) {
        if self.trace.is_none() {
            return;
        }
        let step = self.shared.step.load(Ordering::Relaxed);
        let line = format!("{step:>6} {:>6} ms  {}", self.clock.now_ms() % 1_000_000, text(self));
        if let Some(trace) = &mut self.trace {
            trace.push_back(line);
            if trace.len() > TRACE_MAX {
                trace.pop_front();
            }
        }
    }

    /// One throw of the die. True if a client has published.
    fn step(&mut self) -> Result<bool, Violation> {
        self.shared.step.fetch_add(1, Ordering::Relaxed);
        if self.random.chance(self.temper.crash) {
            self.crash();
        }
        if self.random.chance(self.temper.overlap) {
            self.overlap();
        }
        match self.random.below(1000) {
            0..=649 => {
                let index = self.random.below(self.processes.len() as u64) as usize;
                for _ in 0..=self.random.below(self.temper.burst) {
                    self.poll(index)?;
                }
            }
            650..=759 => {
                let index = self.random.below(self.agents.len() as u64) as usize;
                self.agent_acts(index, self.temper.troubled_agents);
            }
            760..=859 => self.deliver(self.temper.effect_lost)?,
            860..=964 => {
                let ms = match self.random.below(30) {
                    0 => self.limits.lease_ms as u64,
                    _ => self.random.below(25),
                };
                self.clock.advance(ms as i64);
            }
            965..=974 => {
                let index = self.random.below(4) as usize;
                self.replays[index].restore(&self.shared.bus)?;
            }
            _ => {
                self.client_asks();
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn start(&mut self, role: Role) {
        let id = self.next_process;
        self.next_process += 1;
        let skew = self.temper.skew_ms;
        let skew_ms = self.random.below(2 * skew + 1) as i64 - skew as i64;
        let time = self.clock.skewed(skew_ms);
        let every = self.temper.snapshot_every;
        let process = Process::start(id, role, &self.shared, time, every);
        let clock_ms = process.time.now_ms();
        self.checker.began(id, clock_ms, process.drafted.clone());
        self.note(|_| format!("{process} starts, clock off by {skew_ms} ms"));
        self.processes.push(process);
    }

    fn alive(&self, role: Role) -> usize {
        self.processes.iter().filter(|p| p.role == role).count()
    }

    /// Drops a process where it stands. Another one starts at once, or when somebody notices.
    fn crash(&mut self) {
        let index = self.random.below(self.processes.len() as u64) as usize;
        let process = self.processes.remove(index);
        self.note(|_| format!("{process} dies"));
        if self.alive(process.role) == 0 {
            self.start(process.role);
        }
    }

    /// Another process of a role that has one. The old one does not know.
    fn overlap(&mut self) {
        let role = Role::ALL[self.random.below(5) as usize];
        if self.alive(role) < OVERLAP_MAX {
            self.start(role);
        }
    }

    fn poll(&mut self, index: usize) -> Result<(), Violation> {
        let process = &mut self.processes[index];
        if let Err(ended) = process.poll() {
            let text = format!("{process} {ended}");
            // Its last words may be the consequence of what stands on the ledger.
            self.look()?;
            return Err(Violation {
                invariant: Invariant::Breakdown,
                lsn: self.read as u64,
                text,
            });
        }
        let (id, effects) = (process.id, process.take_effects());
        if !effects.is_empty() {
            self.mail.entry(id).or_default().extend(effects);
        }
        self.look()
    }

    /// Checks what is new.
    fn look(&mut self) -> Result<(), Violation> {
        let step = self.shared.step.load(Ordering::Relaxed);
        for record in self.shared.bus.records_from(self.read) {
            self.read += 1;
            self.note(|_| describe(&record));
            self.checker.record(&record, step)?;
            for replay in &mut self.replays {
                replay.record(&record)?;
            }
        }
        for replay in &mut self.replays {
            replay.snapshots(&self.shared.bus)?;
        }
        for told in self.shared.sink.told_from(self.told) {
            self.told += 1;
            self.checker.told(&told)?;
        }
        match &self.shared.sink.lock().changed {
            None => Ok(()),
            Some(text) => Err(Violation {
                invariant: Invariant::Outcome,
                lsn: self.read as u64,
                text: format!("the feed's repeat differs: {text}"),
            }),
        }
    }

    fn client_asks(&mut self) {
        let allocations: Vec<(u64, String)> = self
            .checker
            .allocations()
            .map(|(no, tenant)| (no, tenant.to_owned()))
            .collect();
        let ask = self.tenants.next(&allocations, &mut self.random);
        let message = DoorRecord {
            seq: 0,
            sender: token(&ask.tenant),
            reply_to: ask.reply_to.as_deref().map(token),
            trace: None,
            payload: ask.payload.clone().into(),
        };
        self.note(|_| {
            let request = v1::Request::decode(&ask.payload[..]);
            format!("{} asks {request:?} -> {:?}", ask.tenant, ask.reply_to)
        });
        self.checker.asked(ask);
        self.shared.bus.publish(Door::Ingress, message);
    }

    fn agent_acts(&mut self, index: usize, troubled: bool) {
        let now_ms = self.clock.now_ms();
        let acts = self.agents[index].act(&mut self.random, now_ms, troubled);
        self.perform(index, acts);
    }

    fn perform(&mut self, index: usize, acts: Vec<Act>) {
        for act in acts {
            let name = self.agents[index].name.clone();
            match act {
                Act::Report(payload) => {
                    self.note(|_| {
                        let report = v1::NodeReport::decode(&payload[..]);
                        format!("{name} reports {report:?}")
                    });
                    self.checker.reported(&name, &payload);
                    let message = DoorRecord {
                        seq: 0,
                        sender: token(&name),
                        reply_to: None,
                        trace: None,
                        payload: payload.into(),
                    };
                    self.shared.bus.publish(Door::Report, message);
                }
                Act::Heartbeat {
                    incarnation,
                    revision,
                } => self.heartbeat(&name, incarnation, revision),
                Act::Sync => {
                    let request = self.asked.len() as u64;
                    self.asked.insert(request, index);
                    let node = token(&name);
                    self.to_leaders(|_| Command::Sync {
                        node: node.clone(),
                        request,
                    });
                }
            }
        }
    }

    fn heartbeat(&mut self, name: &str, incarnation: u64, revision: u64) {
        let step = self.shared.step.load(Ordering::Relaxed);
        let node = token(name);
        let reached = self.to_leaders(|_| Command::Heartbeat {
            node: node.clone(),
            incarnation,
            revision,
        });
        for (process, clock_ms) in reached {
            self.checker.heard(Heartbeat {
                process,
                node: name.to_owned(),
                incarnation,
                step,
                clock_ms,
            });
        }
    }

    /// Whom it reaches: every process that serves the nodes hears everything, unless it gets lost.
    fn to_leaders(&mut self, command: impl Fn(u64) -> Command) -> Vec<(u64, i64)> {
        let mut reached = Vec::new();
        for process in &self.processes {
            let Some(commands) = &process.commands else {
                continue;
            };
            if self.random.chance(self.temper.heartbeat_lost) {
                continue;
            }
            if commands.try_send(command(process.id)).is_ok() {
                reached.push((process.id, process.time.now_ms()));
            }
        }
        reached
    }

    /// The oldest message of some sender arrives, or not.
    fn deliver(&mut self, lost: u64) -> Result<(), Violation> {
        let senders: Vec<u64> = self.mail.keys().copied().collect();
        if senders.is_empty() {
            return Ok(());
        }
        let sender = senders[self.random.below(senders.len() as u64) as usize];
        let Some(queue) = self.mail.get_mut(&sender) else {
            return Ok(());
        };
        let effect = queue.pop_front();
        if queue.is_empty() {
            self.mail.remove(&sender);
        }
        if let Some(effect) = effect
            && !self.random.chance(lost)
        {
            self.arrives(effect)?;
        }
        Ok(())
    }

    fn arrives(&mut self, effect: Effect) -> Result<(), Violation> {
        self.note(|_| format!("arrives {effect:?}"));
        let read = self.read as u64;
        let overcommitted = |error: super::agents::Overcommitted| Violation {
            invariant: Invariant::Exclusive,
            lsn: read,
            text: error.to_string(),
        };
        let cell = self.shared.cell;
        match effect {
            Effect::Assign {
                node,
                incarnation,
                assignment,
            } => {
                let bytes = node_heartbeat::assignment(&assignment, incarnation, cell);
                let change = v1::Assignment::decode(&bytes[..]).unwrap_or_default();
                let random = &mut self.random;
                let agent = self.agents.iter_mut().find(|a| a.name == node.as_str());
                agent.map_or(Ok(()), |agent| agent.assigned(&change, random)).map_err(overcommitted)
            }
            Effect::RegisterAgain { node, incarnation } => {
                let change = v1::Assignment {
                    register_again: true,
                    incarnation,
                    ..Default::default()
                };
                let random = &mut self.random;
                let agent = self.agents.iter_mut().find(|a| a.name == node.as_str());
                agent.map_or(Ok(()), |agent| agent.assigned(&change, random)).map_err(overcommitted)
            }
            Effect::Synced {
                request,
                incarnation,
                revision,
                assignments,
            } => {
                let Some(index) = self.asked.get(&request).copied() else {
                    return Ok(());
                };
                let list: Vec<v1::Assignment> = assignments
                    .iter()
                    .map(|a| node_heartbeat::assignment(a, incarnation, cell))
                    .map(|bytes| v1::Assignment::decode(&bytes[..]).unwrap_or_default())
                    .collect();
                self.agents[index]
                    .listed(incarnation, revision, &list)
                    .map_err(overcommitted)
            }
        }
    }

    /// Nothing goes wrong any more; whatever is under way comes to its end.
    fn drain(&mut self) -> Result<(), Violation> {
        self.note(|_| "heals".to_owned());
        self.shared.bus.heal();
        self.shared.sink.lock().lost = 0;
        self.temper.heartbeat_lost = 0;
        // Some of the leaders that are too many die, and it may be the one that leads.
        for _ in 0..self.random.below(4) {
            let index = self.random.below(self.processes.len() as u64) as usize;
            if self.alive(self.processes[index].role) > 1 {
                let process = self.processes.remove(index);
                self.note(|_| format!("{process} dies"));
            }
        }
        self.note(|w| {
            let alive: Vec<String> = w.processes.iter().map(ToString::to_string).collect();
            format!("alive: {alive:?}")
        });
        for agent in &mut self.agents {
            agent.silent = false;
            agent.gone = self.random.chance(200);
        }
        let patience = 2 * self.shared.takeover_after_ms as i64 + 2 * self.limits.lease_ms + 600;
        let mut quiet_since = self.clock.now_ms();
        for _ in 0..DRAIN_ROUNDS_MAX {
            self.shared.step.fetch_add(1, Ordering::Relaxed);
            let before = self.read;
            for index in 0..self.agents.len() {
                self.agent_acts(index, false);
            }
            while !self.mail.is_empty() {
                self.deliver(0)?;
            }
            for index in 0..self.processes.len() {
                for _ in 0..6 {
                    self.poll(index)?;
                }
            }
            if self.read > before || !self.agents.iter().all(Agent::idle) {
                quiet_since = self.clock.now_ms();
            }
            if self.clock.now_ms() - quiet_since > patience {
                return Ok(());
            }
            self.clock.advance(10 + self.random.below(20) as i64);
        }
        let text = format!("no quiet in {DRAIN_ROUNDS_MAX} rounds: {:?}", self.agents);
        Err(Violation {
            invariant: Invariant::Outcome,
            lsn: self.read as u64,
            text,
        })
    }
}

fn capacity(random: &mut Seeded) -> v1::NodeCapacity {
    let gpus = match random.below(4) {
        0 => 0,
        1 => 8,
        _ => random.below(9) as u32,
    };
    v1::NodeCapacity {
        cpu_milli: 2000 * (1 + random.below(8)),
        memory_bytes: 4 * GIB * (1 + random.below(8)),
        gpus,
        gpu_model: match random.below(3) {
            _ if gpus == 0 => String::new(),
            0 => String::new(),
            1 => "t4".to_owned(),
            _ => "a100".to_owned(),
        },
    }
}

/// The world's own names are tokens.
fn token(text: &str) -> Token {
    Token::new(text).unwrap_or_else(|_| unreachable!("{text} is a token"))
}

fn describe(record: &ledger::Record) -> String {
    let (lsn, writer) = (record.lsn.0, record.writer.name());
    match v1::Frame::decode(&record.frame[..]) {
        Err(error) => format!("lsn {lsn} {writer}: {error}"),
        Ok(frame) => {
            let kinds = frame.events.iter().filter_map(|event| event.kind.as_ref());
            let kinds: Vec<String> = kinds.map(|kind| format!("{kind:?}")).collect();
            let (epoch, through) = (frame.epoch, frame.through_lsn);
            let door = frame.through_door;
            format!("lsn {lsn} {writer} epoch {epoch} through {through} door {door}: {}", kinds.join(", "))
        }
    }
}
