//! One seed's world: five roles, some nodes, some tenants, and a die that says who goes next and what goes wrong.

mod ends;
mod fleet;
mod foreign;
mod profile;
mod trace;

use super::{
    agents::{Agent, Recorder},
    check::{
        Checker, Fed, Invariant, Limits, Replay, Replays, TurnedAway, Violation, begins_quietly,
        impossible_changes_nothing,
    },
    clock::{ClockHand, WorldClock},
    feed::MemoryFeed,
    process::{Orders, Process, Role, Shared, quietly},
    tenants::{CELL, Known, Tenants},
};
use admission::publish::FeedMessage;
use admission_rules::{Admission, Config as AdmissionConfig, Shares, Turned};
use ledger::{
    Inbox, InboxLimits, InboxMessage, Record,
    memory::{MemoryBus, Seeded},
};
use node_heartbeat_rules::{Config as NodeConfig, Effect, Joining, Nodes};
pub use profile::Rare;
use profile::{AMPLE_BYTES, FaultProfile, began_ms, capacity, faults, limits};
use prost::Message;
use quota_rules::Quota;
use scheduler_rules::{Config as SchedulerConfig, Scheduler};
use schemas::v1;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use trace::{Trace, describe};
use vocab::{CellNo, Level, Token};

/// What came of one seed.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub events: u64,
    pub records: u64,
    pub ledger: Vec<Record>,
    /// Over the whole ledger.
    pub digest: [u8; 32],
    pub violation: Option<Violation>,
    /// The last steps, if asked for.
    pub trace: Vec<String>,
}

/// Processes of one role at the same time: a leader, and others that think that they are.
const OVERLAP_MAX: usize = 3;
/// Rounds after the faults, at most; a round is some milliseconds.
const DRAIN_ROUNDS_MAX: u64 = 3000;
/// Rounds in which the cell may come to rest while nothing ends by itself, before that.
const REST_ROUNDS_MAX: u64 = 1500;
/// Rounds in which the feed has told what was written.
const FEED_ROUNDS: u64 = 100;
/// By then a projector has noticed that the feed was emptied.
const FEED_CHECKED_MS: i64 = 6000;
/// Rounds without a record after which everybody has read everything.
const ROUNDS_TO_READ: u64 = 4;

pub struct World {
    random: Seeded,
    /// Sets machines' clocks, apart from all else.
    clock_hand: ClockHand,
    profile: FaultProfile,
    rare: Rare,
    clock: WorldClock,
    shared: Shared,
    limits: Limits,
    processes: Vec<Process>,
    next_process: u64,
    agents: Vec<Agent>,
    recorder: Recorder,
    tenants: Tenants,
    /// Sent to agents and not arrived; in order per sender, which may be dead by now.
    mail: BTreeMap<u64, VecDeque<Effect>>,
    /// Which agent waits for which answer.
    asked: BTreeMap<u64, usize>,
    checker: Checker,
    replays: Vec<Box<dyn Replay>>,
    read: usize,
    /// Messages of the feed, and replies, that were checked.
    fed: usize,
    replied: usize,
    trace: Option<Trace>,
}

impl World {
    pub fn new(seed: u64, traced: bool) -> Self {
        let mut random = Seeded::new(seed ^ 0x5eed_a110_ca7e);
        let faults = faults(&mut random);
        let mut rare = Rare::new(seed);
        let limits = limits(&mut random, &rare);
        let profile = FaultProfile::new(&mut random);
        let cell = CellNo(CELL);
        let clock = WorldClock::new(began_ms(&mut random));
        let clock_hand = ClockHand::new(seed, clock.now_ms());
        let feed_lost = random.below(2) * random.below(100);
        // In half of the worlds hardly a message has room where it waits.
        let (backlog, says_after) = match random.chance(500) {
            true => {
                let says_after = 1 + random.below(10);
                let unread = says_after + 1 + random.below(10);
                let limits = InboxLimits {
                    bytes: 200,
                    fetched: 1 + random.below(3) as usize,
                    unread: unread as usize,
                    unread_of_many: (unread / 2) as usize,
                };
                (limits, says_after)
            }
            false => (InboxLimits::default(), u64::MAX),
        };
        let orders = Orders::default();
        let shared = Shared {
            bus: MemoryBus::new(random.draw(), faults),
            feed: MemoryFeed::new(random.draw(), feed_lost),
            cell,
            admission: AdmissionConfig {
                cell,
                operation_window_ms: limits.window_ms,
                operations_max: limits.operations_max,
                allocations_max: limits.allocations_max,
                room: Shares {
                    operations_own_bytes: limits.own_bytes,
                    // No world fills it.
                    allocations_own_bytes: AMPLE_BYTES,
                    shared_bytes_max: limits.shared_bytes_max,
                },
                slot_ms: limits.slot_ms,
                window_slots: limits.bounds.window_slots,
            },
            scheduler: SchedulerConfig {
                leases: limits.bounds.into(),
                slot_ms: limits.slot_ms,
            },
            nodes: NodeConfig {
                lease_ms: limits.lease_ms,
                joining: Joining::Open,
            },
            takeover_after_ms: 50 + random.below(300),
            backlog,
            says_after,
            orders: orders.clone(),
            trials: true,
            step: Arc::new(AtomicU64::new(0)),
        };
        // In some worlds hardly a run ends before all is over.
        let slow = [0, 450, 900, 990][random.below(4) as usize];
        let nodes = 1 + random.below(6);
        let mut agent = |index| {
            let (first, other) = (capacity(&mut random), capacity(&mut random));
            let (care, wall_ms) = rare.agent();
            Agent::new(format!("node-{index}"), (first, other), slow, care, wall_ms)
        };
        let agents = (0..nodes).map(&mut agent).collect();
        let mut world = Self {
            tenants: Tenants::new(limits.slot_ms, &rare, &mut random),
            random,
            clock_hand,
            profile,
            rare,
            clock,
            shared,
            limits,
            processes: Vec::new(),
            next_process: 1,
            agents,
            recorder: Recorder::default(),
            mail: BTreeMap::new(),
            asked: BTreeMap::new(),
            checker: Checker::new(limits, orders),
            replays: vec![
                Box::new(Replays::<Admission>::default()),
                Box::new(Replays::<Quota>::default()),
                Box::new(Replays::<Scheduler>::default()),
                Box::new(Replays::<Nodes>::default()),
            ],
            read: 0,
            fed: 0,
            replied: 0,
            trace: traced.then(Trace::default),
        };
        world.note(|w| format!("{:?} {:?} {:?} {faults:?}", w.profile, w.rare, w.limits));
        if world.rare.raised_after.is_some() {
            world.shared.bus.set_level(Level::FIRST);
            world.checker.is_of_first_level();
        }
        world
    }

    /// Lives through the whole seed.
    pub fn run(mut self) -> Outcome {
        // What a replay cannot make sense of breaks down here, and not in a process.
        let lived = quietly(|| self.live());
        let violation = match lived {
            Ok(lived) => lived.err(),
            Err(text) => Some(self.breakdown(text)),
        };
        Outcome {
            events: self.checker.events(),
            records: self.read as u64,
            ledger: self.shared.bus.records(),
            digest: self.checker.digest(),
            violation,
            trace: self.trace.map(Trace::lines).unwrap_or_default(),
        }
    }

    fn breakdown(&self, text: String) -> Violation {
        Violation {
            invariant: Invariant::Breakdown,
            lsn: self.read as u64,
            text,
        }
    }

    fn live(&mut self) -> Result<(), Violation> {
        for role in Role::ALL {
            self.start(role);
        }
        let mut asked = 0;
        while asked < self.profile.operations {
            asked += u64::from(self.step()?);
            if self
                .rare
                .raised_after
                .take_if(|after| asked > *after)
                .is_some()
            {
                self.note(|_| "the cell's feature level is raised".to_owned());
                self.checker.raised(self.shared.bus.records().len() as u64);
                self.shared.bus.set_level(Level::KNOWN);
            }
            if self.rare.foreign_after.is_some_and(|after| asked > after) {
                return self.meets_foreign();
            }
        }
        self.drain()?;
        self.replays
            .iter()
            .try_for_each(|replay| replay.restore(&self.shared.bus))?;
        self.checker.finish()?;
        self.loses_its_end()
    }

    fn note(&mut self, text: impl FnOnce(&Self) -> String) {
        if self.trace.is_none() {
            return;
        }
        let step = self.shared.step.load(Ordering::Relaxed);
        let line = format!(
            "{step:>6} {:>6} ms  {}",
            self.clock.now_ms() % 1_000_000,
            text(self)
        );
        if let Some(trace) = &mut self.trace {
            trace.push(line);
        }
    }

    /// One throw of the die. True if a client has published.
    fn step(&mut self) -> Result<bool, Violation> {
        self.shared.step.fetch_add(1, Ordering::Relaxed);
        if self.random.chance(self.profile.crash) {
            self.crash();
        }
        if self.random.chance(self.profile.resign) {
            let index = self.random.below(self.processes.len() as u64) as usize;
            self.note(|w| format!("{} is to end", w.processes[index]));
            self.processes[index].resign();
        }
        if self.random.chance(self.profile.overlap) {
            self.overlap();
        }
        if self.clock_hand.moves() {
            self.set_machine();
        }
        if self.random.chance(self.profile.empties) {
            self.note(|_| "an operator empties the feed".to_owned());
            self.shared.feed.emptied();
        }
        match self.random.below(1000) {
            0..=649 => {
                let index = self.random.below(self.processes.len() as u64) as usize;
                for _ in 0..=self.random.below(self.profile.burst) {
                    self.poll(index)?;
                }
            }
            650..=759 => {
                let index = self.random.below(self.agents.len() as u64) as usize;
                self.agent_acts(index, self.profile.troubled_agents);
            }
            760..=859 => self.deliver(self.profile.effect_lost)?,
            860..=964 => {
                let ms = match self.random.below(30) {
                    0 => self.limits.lease_ms as u64,
                    _ => self.random.below(25),
                };
                self.clock.advance(ms as i64);
                self.leases_lapse();
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
        let skew = self.profile.skew_ms;
        let skew_ms = self.random.below(2 * skew + 1) as i64 - skew as i64;
        let time = self.clock.skewed(skew_ms);
        let every = self.profile.snapshot_every;
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

    /// Somebody sets the clock of a machine, or sets it right.
    fn set_machine(&mut self) {
        let index = self.clock_hand.random.below(self.processes.len() as u64) as usize;
        let skew_ms = self.clock_hand.skew_ms();
        let process = &self.processes[index];
        process.time.set_machine(skew_ms);
        self.note(|w| format!("{}'s clock is set, off by {skew_ms} ms", w.processes[index]));
    }

    /// Another process of a role that has one. The old one does not know.
    fn overlap(&mut self) {
        let role = Role::ALL[self.random.below(5) as usize];
        if self.alive(role) < OVERLAP_MAX {
            self.start(role);
        }
    }

    /// A process that has ended as it was asked to leaves its place to another.
    fn poll(&mut self, index: usize) -> Result<(), Violation> {
        let Some(process) = self.processes.get_mut(index) else {
            return Ok(());
        };
        let ended = match process.poll() {
            Ok(ended) => ended,
            Err(ended) => {
                let text = format!("{process} {ended}");
                // Its last words may be the consequence of what stands on the ledger.
                self.look()?;
                return Err(self.breakdown(text));
            }
        };
        let (id, effects) = (process.id, process.take_effects());
        let turned = process.take_turned();
        if !effects.is_empty() {
            self.mail.entry(id).or_default().extend(effects);
        }
        if ended {
            let process = self.processes.swap_remove(index);
            self.note(|_| format!("{process} ends"));
            if self.alive(process.role) == 0 {
                self.start(process.role);
            }
        }
        self.look()?;
        turned.iter().try_for_each(|turned| {
            self.note(|_| format!("turned away: {turned:?}"));
            match turned_away(turned) {
                Some(away) => self.checker.turned(&away),
                None => Ok(()),
            }
        })
    }

    /// Checks what is new.
    fn look(&mut self) -> Result<(), Violation> {
        let step = self.shared.step.load(Ordering::Relaxed);
        let now_ms = self.clock.now_ms();
        let latest_ms = self
            .clock_hand
            .latest_ms(now_ms, self.profile.skew_ms as i64);
        for record in self.shared.bus.records_from(self.read) {
            self.read += 1;
            self.note(|_| describe(&record));
            self.checker.record(&record, step, latest_ms)?;
            for replay in &mut self.replays {
                replay.record(&record)?;
            }
        }
        for replay in &mut self.replays {
            replay.snapshots(&self.shared.bus)?;
        }
        for message in self.shared.feed.messages_from(self.fed) {
            self.fed += 1;
            self.checker.fed(fed(message))?;
        }
        for reply in self.shared.feed.replies_from(self.replied) {
            self.replied += 1;
            let (tenant, token) = (reply.tenant.as_str(), reply.token.as_str());
            self.checker.reply(tenant, token, &reply.payload)?;
        }
        Ok(())
    }

    fn client_asks(&mut self) {
        let allocations = self.checker.allocations();
        let known = Known {
            allocations: allocations
                .map(|(no, tenant)| (no, tenant.to_owned()))
                .collect(),
            granted: self.checker.granted(),
            now_ms: self.clock.now_ms(),
        };
        let ask = self.tenants.next(&known, &mut self.random);
        let message = InboxMessage {
            seq: 0,
            sender: token(&ask.tenant),
            reply_to: ask.reply_to.as_deref().map(token),
            trace: None,
            by: ask.by.as_deref().map(token).map(Box::new),
            reserved_header: false,
            payload: ask.payload.clone().into(),
        };
        self.note(|_| {
            let request = v1::Request::decode(&ask.payload[..]);
            let by = ask.by.as_deref().unwrap_or_default();
            format!("{} {by} asks {request:?} -> {:?}", ask.tenant, ask.reply_to)
        });
        self.checker.asked(ask);
        self.shared.bus.publish(Inbox::Ingress, message);
    }

    /// Nothing goes wrong any more. First nothing ends by itself and whoever finds no room waits; then whatever is under way
    /// comes to its end.
    fn drain(&mut self) -> Result<(), Violation> {
        self.note(|_| "heals".to_owned());
        self.shared.bus.heal();
        self.shared.feed.lock().lost = 0;
        self.profile.heartbeat_lost = 0;
        for process in &self.processes {
            process.time.set_machine(0);
        }
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
            agent.lasting = true;
        }
        // Quota that comes and goes with bursts may never let it rest.
        if self.quiet(REST_ROUNDS_MAX)? {
            self.note(|_| "rests".to_owned());
            self.at_rest()?;
        }
        for agent in &mut self.agents {
            agent.lasting = false;
        }
        if self.quiet(DRAIN_ROUNDS_MAX)? {
            self.at_rest()?;
            return self.feed_catches_up();
        }
        let text = format!("no quiet in {DRAIN_ROUNDS_MAX} rounds: {:?}", self.agents);
        Err(Violation {
            invariant: Invariant::Outcome,
            lsn: self.read as u64,
            text,
        })
    }

    /// A projector may be in a pause before its next try, for longer than it takes others to write again.
    fn feed_catches_up(&mut self) -> Result<(), Violation> {
        for _ in 0..FEED_ROUNDS {
            for index in 0..self.processes.len() {
                if self.processes[index].role == Role::Feed {
                    self.poll(index)?;
                }
            }
            self.clock.advance(10);
        }
        Ok(())
    }

    /// What holds in any quiet state.
    fn at_rest(&self) -> Result<(), Violation> {
        begins_quietly(&self.shared.bus, &self.shared.scheduler)?;
        impossible_changes_nothing(&self.shared.bus, &self.shared.scheduler)?;
        for agent in self.agents.iter().filter(|agent| !agent.gone) {
            self.checker.said_at_rest(&agent.name, agent.says())?;
        }
        // A pause is over when it is by the clock of whoever leads.
        let schedulers = self.processes.iter().filter(|p| p.role == Role::Scheduler);
        let clocks = schedulers.map(|process| process.time.now_ms());
        let now_ms = clocks.min().unwrap_or(self.clock.now_ms());
        self.checker.at_rest(now_ms)
    }

    /// Records but for those by which a leader proves that it leads.
    fn said(&self) -> u64 {
        self.read as u64 - self.checker.proofs()
    }

    /// Goes on until nothing has happened for a while; whether that was so within so many rounds.
    fn quiet(&mut self, rounds: u64) -> Result<bool, Violation> {
        // Longer than any burst, and what is waited for after it.
        let mut patience =
            2 * self.shared.takeover_after_ms as i64 + 2 * self.limits.lease_ms + 1200;
        if self.profile.empties > 0 {
            patience = patience.max(FEED_CHECKED_MS);
        }
        let mut quiet_since = self.clock.now_ms();
        let mut rounds_without_record = 0;
        for _ in 0..rounds {
            self.shared.step.fetch_add(1, Ordering::Relaxed);
            let before = (self.said(), self.checker.moves());
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
            let silent = self.said() == before.0;
            rounds_without_record = if silent { rounds_without_record + 1 } else { 0 };
            let still = self.checker.moves() == before.1;
            if !still || !self.agents.iter().all(Agent::idle) {
                quiet_since = self.clock.now_ms();
            }
            let patient = self.clock.now_ms() - quiet_since > patience;
            let read = rounds_without_record > ROUNDS_TO_READ && self.checker.settled();
            if patient && read {
                return Ok(true);
            }
            self.clock.advance(10 + self.random.below(20) as i64);
            self.leases_lapse();
        }
        Ok(false)
    }
}

/// The world's own names are tokens.
pub(super) fn token(text: &str) -> Token {
    Token::new(text).unwrap_or_else(|_| unreachable!("{text} is a token"))
}

/// In the checker's words.
fn fed(message: FeedMessage) -> Fed {
    let FeedMessage {
        part, of, payload, ..
    } = message;
    Fed {
        after: part.after.0,
        to: part.to.0,
        number: part.number,
        count: part.count,
        tenant: of.0.to_string(),
        job_set: of.1.to_string(),
        payload: payload.to_vec(),
    }
}

/// In the checker's words; none: nobody tries anything there.
fn turned_away(turned: &Turned) -> Option<TurnedAway> {
    let refusal = turned.answer.as_ref().err()?;
    Some(TurnedAway {
        tenant: turned.tenant.to_string(),
        operation_id: turned.operation_id.as_ref().map(ToString::to_string),
        reply_to: turned.reply_to.to_string(),
        rule: refusal.rule.number(),
    })
}
