//! Simulated node agents: they keep the nodes' protocol by the code of the real one, but die, fall silent, repeat themselves and
//! come back late. What runs on their machines is recorded apart, by what really goes on there.

use crate::simulate::check::{Named, PRESSURES};
use ledger::memory::Seeded;
use node_agent::{
    End, Ended, Exit, Lease, Moment, Reason, RunKey, Usage,
    protocol::{Act as Do, Plan, Report as Said},
};
use prost::Message;
use schemas::v1::{
    self, NodeReport, Register, Run, RunExit, RunPhase, RunUsage, Runs, node_report::Report,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use uuid::Uuid;
use vocab::sabotage::{self, Bug};

/// What an agent does, for the world to carry out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// To the nodes' inbox, acknowledged.
    Report(Vec<u8>),
    Heartbeat {
        boot: u64,
        revision: u64,
        /// It waits for an answer that renews its lease.
        asks: bool,
        /// What holds of the node, with the reasons.
        conditions: Named,
    },
    Sync,
}

/// What must never be on the machines.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// An assignment whose device, core or byte something else on the node still uses.
    #[error("{node}/{boot} is to run {run} beside {beside:?}, beyond its capacity")]
    Overcommitted {
        node: String,
        boot: u64,
        run: RunKey,
        beside: Vec<RunKey>,
    },
    #[error("{node} runs {run} while {other} goes on on {there}")]
    Twice {
        node: String,
        run: RunKey,
        other: RunKey,
        there: String,
    },
}

/// What runs on all machines at this moment, whatever anybody says of it.
#[derive(Debug, Default)]
pub struct Recorder(BTreeMap<Uuid, (String, RunKey)>);

impl Recorder {
    fn begins(&mut self, node: &str, run: RunKey) -> Result<(), Wrong> {
        let here = (node.to_owned(), run);
        match self.0.insert(run.allocation, here) {
            Some((there, other)) => Err(Wrong::Twice {
                node: node.to_owned(),
                run,
                other,
                there,
            }),
            None => Ok(()),
        }
    }

    fn ends(&mut self, node: &str, run: RunKey) {
        let here = (node.to_owned(), run);
        if self.0.get(&run.allocation) == Some(&here) {
            self.0.remove(&run.allocation);
        }
    }
}

/// By which an agent keeps its lease.
#[derive(Debug, Clone, Copy)]
pub struct Care {
    /// Millionths by which the machine's clock runs fast.
    pub drift: i64,
}

#[derive(Debug)]
pub struct Agent {
    pub name: String,
    pub capacity: v1::NodeCapacity,
    /// What it may be when it comes back.
    other: v1::NodeCapacity,
    /// The most of each amount that it had in this life, and how often that has changed.
    most: v1::NodeCapacity,
    change: u64,
    plan: Plan,
    registered: bool,
    pub silent: bool,
    /// Dead, and nobody will come to repair it. What runs goes on.
    pub gone: bool,
    /// No run ends by itself.
    pub lasting: bool,
    wants_list: bool,
    /// Its questions for the list, of this life.
    syncing: BTreeSet<u64>,
    /// On the machine.
    runs: BTreeMap<RunKey, Local>,
    /// How those ended that ran in this life, as it stands on the disk.
    ended: BTreeMap<RunKey, End>,
    /// To be started when there is a lease.
    waiting: BTreeMap<RunKey, Box<v1::Assignment>>,
    /// To be said, in this order.
    outbox: VecDeque<Said>,
    /// None: it runs what it is told to, whether it holds a lease or not, as an agent may that runs nothing of worth.
    care: Option<Care>,
    lease: Option<Lease>,
    /// The heartbeats of this life that wait for an answer, and when they were sent.
    beats: BTreeMap<u64, Moment>,
    /// What holds of the machine, whichever life of the agent it is.
    conditions: Named,
    /// Milliseconds by which its wall clock is off.
    wall_ms: i64,
    /// What it has sent, some of which arrives again much later.
    sent: Vec<Vec<u8>>,
    /// Per mille of the moments at which a run goes on that could end.
    slow: u64,
}

#[derive(Debug, Clone)]
struct Local {
    demand: v1::AllocationSpec,
    gpus: Vec<v1::GpuShare>,
    stop: bool,
}

impl Agent {
    pub fn new(
        name: String,
        (capacity, other): (v1::NodeCapacity, v1::NodeCapacity),
        slow: u64,
        care: Option<Care>,
        wall_ms: i64,
    ) -> Self {
        Self {
            name,
            most: capacity.clone(),
            change: 0,
            capacity,
            other,
            plan: Plan::new(1),
            registered: false,
            silent: false,
            gone: false,
            lasting: false,
            wants_list: false,
            syncing: BTreeSet::new(),
            runs: BTreeMap::new(),
            ended: BTreeMap::new(),
            waiting: BTreeMap::new(),
            outbox: VecDeque::new(),
            care,
            lease: None,
            beats: BTreeMap::new(),
            conditions: Named::new(),
            wall_ms,
            sent: Vec::new(),
            slow,
        }
    }

    /// The life that it is in, what it names as conditions of the node, and what it has.
    pub fn says(&self) -> (u64, &Named, &v1::NodeCapacity) {
        (self.plan.boot(), &self.conditions, &self.capacity)
    }

    pub fn idle(&self) -> bool {
        let goes_on = |run: &Local| self.lasting && !run.stop;
        let quiet = self.outbox.is_empty() && self.waiting.is_empty() && !self.wants_list;
        self.gone || (self.registered && quiet && self.runs.values().all(goes_on))
    }

    /// The machine's clock, which nobody sets.
    fn moment(&self, now_ms: i64) -> Moment {
        let drift = self.care.map_or(0, |care| care.drift);
        let now = i128::from(now_ms);
        let shown = now + now * i128::from(drift) / 1_000_000;
        Moment::from_ms(u64::try_from(shown).unwrap_or(0))
    }

    fn report(&mut self, report: Report) -> Act {
        let message = NodeReport {
            boot: self.plan.boot(),
            report: Some(report),
        };
        let bytes = message.encode_to_vec();
        self.sent.push(bytes.clone());
        Act::Report(bytes)
    }

    fn register(&mut self) -> Act {
        self.registered = true;
        self.tell(self.capacity.clone(), self.change)
    }

    fn tell(&mut self, capacity: v1::NodeCapacity, change: u64) -> Act {
        let capacity = Some(capacity);
        self.report(Report::Register(Register { capacity, change }))
    }

    /// It has other amounts, and what runs goes on.
    fn resize(&mut self, random: &mut Seeded) -> Act {
        let it = &mut self.capacity;
        it.cpu_milli = 1000 * (1 + random.below(12));
        it.memory_bytes = (1 + random.below(16)) << 31;
        it.max_runs = match random.below(4) {
            0 => 1 + random.below(6) as u32,
            _ => 0,
        };
        if let Some(fpga) = it.extended.first_mut() {
            fpga.amount = 1 + random.below(5);
        } else if random.chance(200) {
            let name = "fpga".to_owned();
            it.extended.push(v1::ExtendedAmount { name, amount: 2 });
        }
        if let Some([one, other]) = it.topology.as_mut().map(|it| &mut it.zones[..]) {
            one.cpu_milli = it.cpu_milli / 1000 * random.below(1001);
            other.cpu_milli = it.cpu_milli - one.cpu_milli;
            one.memory_bytes = it.memory_bytes / 2;
            other.memory_bytes = it.memory_bytes - one.memory_bytes;
        }
        let most = &mut self.most;
        most.cpu_milli = most.cpu_milli.max(it.cpu_milli);
        most.memory_bytes = most.memory_bytes.max(it.memory_bytes);
        for own in &it.extended {
            match most.extended.iter_mut().find(|it| it.name == own.name) {
                Some(known) => known.amount = known.amount.max(own.amount),
                None => most.extended.push(own.clone()),
            }
        }
        self.change += 1;
        self.tell(self.capacity.clone(), self.change)
    }

    /// Something that a node cannot become while it lives.
    fn another(&mut self, random: &mut Seeded) -> Act {
        let mut other = self.capacity.clone();
        match random.below(3) {
            0 => other.labels.clear(),
            1 => other.taints.push(v1::Taint::default()),
            _ => other.gpus = 16 - other.gpus,
        }
        self.tell(other, self.change + 1)
    }

    fn heartbeat(&self) -> Act {
        Act::Heartbeat {
            boot: self.plan.boot(),
            revision: self.plan.revision(),
            asks: self.care.is_some(),
            conditions: self.conditions.clone(),
        }
    }

    /// Its heartbeat is on its way, or its question for the list.
    pub fn asked(&mut self, act: &Act, request: u64, now_ms: i64) {
        match act {
            Act::Heartbeat { .. } => {
                self.beats.insert(request, self.moment(now_ms));
            }
            Act::Sync => {
                self.syncing.insert(request);
            }
            Act::Report(_) => {}
        }
    }

    /// A new life of the agent. All that ran is over.
    fn begin_life(&mut self, random: &mut Seeded, recorder: &mut Recorder) {
        for run in self.runs.keys() {
            recorder.ends(&self.name, *run);
        }
        self.runs.clear();
        self.ended.clear();
        self.plan = Plan::new(self.plan.boot() + 1 + random.below(2));
        self.most = self.capacity.clone();
        self.change = 0;
        self.registered = false;
        self.wants_list = false;
        self.syncing.clear();
        self.waiting.clear();
        self.outbox.clear();
        self.beats.clear();
        self.lease = None;
    }

    /// The machine starts anew, now and then as another one.
    fn restart(&mut self, random: &mut Seeded, recorder: &mut Recorder) {
        if random.chance(300) {
            std::mem::swap(&mut self.capacity, &mut self.other);
        }
        self.begin_life(random, recorder);
    }

    /// The agent alone starts anew, and finds on the disk what runs and what has ended.
    fn resume(&mut self) {
        if !self.registered {
            return;
        }
        let ended = self.ended.iter();
        let ended = ended.map(|(key, end)| Ended {
            key: *key,
            end: *end,
        });
        self.plan = Plan::resumed(self.plan.boot(), self.runs.keys().copied(), ended);
        self.outbox.clear();
        self.waiting.clear();
        self.beats.clear();
        self.syncing.clear();
        self.wants_list = true;
    }

    /// What the shims do, whether the agent lives or not: nothing runs beyond its lease.
    pub fn lapse(&mut self, now_ms: i64, random: &mut Seeded, recorder: &mut Recorder) {
        let now = self.moment(now_ms);
        let over = self.lease.is_some_and(|lease| lease.kill() <= now);
        if over && !sabotage::armed(Bug::LeaseOutlived) {
            self.begin_life(random, recorder);
        }
    }

    /// A heartbeat was answered.
    pub fn renewed(
        &mut self,
        request: u64,
        (boot, lease_ms, cell_ms): (u64, i64, i64),
        now_ms: i64,
        random: &mut Seeded,
        recorder: &mut Recorder,
    ) -> Result<(), Wrong> {
        let Some(sent) = self.beats.remove(&request) else {
            return Ok(());
        };
        // What was sent before is no news.
        self.beats.retain(|_, other| *other > sent);
        let lease = Lease::renewed(sent, lease_ms).heard_at(sent, cell_ms);
        if boot != self.plan.boot() || lease.kill() <= self.moment(now_ms) {
            return Ok(());
        }
        self.lease = Some(lease);
        for (run, assignment) in std::mem::take(&mut self.waiting) {
            self.start(run, assignment, now_ms, random, recorder)?;
        }
        Ok(())
    }

    /// Something that an agent may do at any time.
    pub fn act(
        &mut self,
        random: &mut Seeded,
        recorder: &mut Recorder,
        now_ms: i64,
        troubled: bool,
    ) -> Vec<Act> {
        if self.gone {
            return Vec::new();
        }
        if self.silent {
            if random.chance(60) {
                self.silent = false;
            }
            // It does not know that nobody hears it: what it runs goes on, and ends.
            return Vec::new();
        }
        if !self.registered {
            return self.twice(random, troubled, Self::register);
        }
        if !troubled {
            self.conditions.remove(PRESSURES[0]);
            let mut acts = vec![self.heartbeat()];
            acts.extend(self.wants_list.then_some(Act::Sync));
            acts.extend(self.work(random, recorder, now_ms, false));
            return acts;
        }
        match random.below(100) {
            0..=2 => {
                self.silent = true;
                return Vec::new();
            }
            3 => {
                self.restart(random, recorder);
                return Vec::new();
            }
            4 => {
                self.resume();
                return Vec::new();
            }
            // A late message of this life or a former one.
            5..=12 => return self.again(random),
            13 => return vec![self.stray(random, now_ms)],
            14 => self.change_condition(random),
            15 => return vec![self.resize(random)],
            16 => return vec![self.another(random)],
            _ => {}
        }
        if self.wants_list && random.chance(500) {
            return vec![Act::Sync];
        }
        match random.below(10) {
            0..=4 => vec![self.heartbeat()],
            _ => self.work(random, recorder, now_ms, troubled),
        }
    }

    fn twice(
        &mut self,
        random: &mut Seeded,
        troubled: bool,
        act: impl FnOnce(&mut Self) -> Act,
    ) -> Vec<Act> {
        let act = act(self);
        if troubled && random.chance(200) {
            return vec![act.clone(), act];
        }
        vec![act]
    }

    fn change_condition(&mut self, random: &mut Seeded) {
        let names = [PRESSURES[0], PRESSURES[1], "GpuXid"];
        let name = names[random.below(3) as usize];
        if self.conditions.remove(name).is_none() || random.chance(300) {
            let reason = ["", "bad", "worse"][random.below(3) as usize];
            self.conditions.insert(name.to_owned(), reason.to_owned());
        }
    }

    /// A report of what there never was, or from another life.
    fn stray(&mut self, random: &mut Seeded, now_ms: i64) -> Act {
        let number = random.below(40) + 1;
        if random.chance(300) {
            let nothing = uuid_text(1, 1000 + number);
            return self.report(Report::Run(phase(&nothing, RunPhase::Started, now_ms, 0)));
        }
        let run = phase(&uuid_text(1, number), RunPhase::FinishedOk, now_ms, 0);
        let message = NodeReport {
            boot: self.plan.boot() - 1,
            report: Some(Report::Run(run)),
        };
        let bytes = message.encode_to_vec();
        self.sent.push(bytes.clone());
        Act::Report(bytes)
    }

    fn again(&mut self, random: &mut Seeded) -> Vec<Act> {
        // A repetition comes soon, a stray one whenever.
        let from = match random.below(2) {
            0 => self.sent.len().saturating_sub(6),
            _ => 0,
        };
        let index = from + random.below((self.sent.len() - from).max(1) as u64) as usize;
        let late = self.sent.get(index).cloned();
        late.into_iter().map(Act::Report).collect()
    }

    /// Says what there is to say, or moves one run on and says that; a few in one message.
    fn work(
        &mut self,
        random: &mut Seeded,
        recorder: &mut Recorder,
        now_ms: i64,
        troubled: bool,
    ) -> Vec<Act> {
        if self.outbox.is_empty() || random.chance(300) {
            self.move_on(random, recorder, now_ms, troubled);
        }
        let mut runs = Vec::new();
        while let Some(said) = self.outbox.pop_front() {
            // An agent's clock is its own.
            let shown = now_ms + self.wall_ms + random.below(200) as i64 - 100;
            runs.push(run(&said, self.shown(&said, shown)));
            if said.phase != RunPhase::Started {
                self.plan.told(said.key);
            }
            if !random.chance(300) {
                break;
            }
        }
        if runs.is_empty() {
            return Vec::new();
        }
        let report = match <[Run; 1]>::try_from(runs) {
            Ok([run]) => Report::Run(run),
            Err(runs) => Report::Runs(Runs { runs }),
        };
        self.twice(random, troubled, |agent| agent.report(report))
    }

    /// When something happened, by the cell's clock if it has said what that shows; else by the machine's wall clock.
    fn shown(&self, said: &Said, now_ms: i64) -> i64 {
        let Some(at) = said.at else {
            return now_ms;
        };
        let by_cell = self.lease.and_then(|lease| lease.cell_ms(at));
        by_cell.unwrap_or(at.ms().cast_signed() + self.wall_ms)
    }

    /// A run ends, by itself or as it was told to.
    fn move_on(
        &mut self,
        random: &mut Seeded,
        recorder: &mut Recorder,
        now_ms: i64,
        troubled: bool,
    ) {
        let ends = |run: &Local| !self.lasting || run.stop;
        let movable = self.runs.values().filter(|run| ends(run)).count();
        let index = random.below(movable.max(1) as u64) as usize;
        let mut movable = self.runs.iter().filter(|(_, run)| ends(run));
        let Some((key, local)) = movable.nth(index) else {
            return;
        };
        let (key, stop) = (*key, local.stop);
        if !stop && troubled && random.chance(self.slow) {
            return;
        }
        let failed = !stop && random.chance(150);
        // Some code and use of its own, so that a decision that takes another run's is found.
        let code = match failed {
            true => 1 + (key.revision % 200) as u8,
            false => 0,
        };
        let exit = Exit {
            code,
            signal: 0,
            reason: Reason::None,
        };
        let usage = Usage {
            cpu_us: key.revision,
            ..Usage::default()
        };
        self.runs.remove(&key);
        recorder.ends(&self.name, key);
        let ended_ms = now_ms + self.wall_ms + random.below(200) as i64 - 100;
        let end = End {
            exit,
            usage,
            started_ms: 0,
            ended_ms,
            ended_at: Some(self.moment(now_ms)),
        };
        self.ended.insert(key, end);
        let acts = self.plan.ended(&Ended { key, end });
        self.say(acts);
    }

    fn say(&mut self, acts: Vec<Do>) {
        let said = acts.into_iter().filter_map(|act| match act {
            Do::Report(said) => Some(said),
            Do::Start { .. } | Do::Stop { .. } | Do::Sync | Do::RegisterAnew => None,
        });
        self.outbox.extend(said);
    }

    /// One pushed change.
    pub fn assigned(
        &mut self,
        change: v1::Assignment,
        now_ms: i64,
        random: &mut Seeded,
        recorder: &mut Recorder,
    ) -> Result<(), Wrong> {
        if change.register_again && (!self.registered || self.silent) {
            return Ok(());
        }
        let acts = self.plan.assigned(change);
        self.perform(acts, now_ms, random, recorder)
    }

    /// All that is to run here, as it was asked for by this life.
    pub fn listed(
        &mut self,
        request: u64,
        list: v1::AssignmentList,
        now_ms: i64,
        random: &mut Seeded,
        recorder: &mut Recorder,
    ) -> Result<(), Wrong> {
        if !self.syncing.remove(&request) {
            return Ok(());
        }
        self.wants_list = false;
        let acts = self.plan.listed(list);
        self.perform(acts, now_ms, random, recorder)
    }

    fn perform(
        &mut self,
        acts: Vec<Do>,
        now_ms: i64,
        random: &mut Seeded,
        recorder: &mut Recorder,
    ) -> Result<(), Wrong> {
        for act in acts {
            match act {
                Do::Start { key, assignment } => {
                    self.start(key, assignment, now_ms, random, recorder)?;
                }
                Do::Stop { key, .. } => self.stop(key),
                Do::Report(said) => self.outbox.push_back(said),
                Do::Sync => self.wants_list = true,
                Do::RegisterAnew => {
                    self.restart(random, recorder);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn start(
        &mut self,
        key: RunKey,
        assignment: Box<v1::Assignment>,
        now_ms: i64,
        random: &mut Seeded,
        recorder: &mut Recorder,
    ) -> Result<(), Wrong> {
        self.fits(key, &assignment)?;
        let holds = |lease: Lease| lease.stop() > self.moment(now_ms);
        if self.care.is_some() && !self.lease.is_some_and(holds) {
            self.waiting.insert(key, assignment);
            return Ok(());
        }
        if !self.lasting && random.chance(60) {
            let acts = self.plan.not_begun(key, RunPhase::Rejected, None);
            self.say(acts);
            return Ok(());
        }
        if self.care.is_some() {
            recorder.begins(&self.name, key)?;
        }
        let local = Local {
            demand: assignment.spec.unwrap_or_default(),
            gpus: assignment.gpus,
            stop: false,
        };
        self.runs.insert(key, local);
        let acts = self.plan.begun(key);
        self.say(acts);
        Ok(())
    }

    fn stop(&mut self, key: RunKey) {
        if self.waiting.remove(&key).is_some() {
            let acts = self.plan.let_go(key);
            self.say(acts);
        } else if let Some(run) = self.runs.get_mut(&key) {
            run.stop = true;
        }
    }

    /// Whether there is room beside what runs and what is to.
    fn fits(&self, key: RunKey, assignment: &v1::Assignment) -> Result<(), Wrong> {
        let of = |it: &'_ v1::Assignment| it.spec.clone().unwrap_or_default();
        let waiting = self.waiting.values().map(|it| (of(it), it.gpus.clone()));
        let running = self
            .runs
            .values()
            .map(|it| (it.demand.clone(), it.gpus.clone()));
        let asked = std::iter::once((of(assignment), assignment.gpus.clone()));
        let using: Vec<_> = running.chain(waiting).chain(asked).collect();
        let cpu: u64 = using.iter().map(|(demand, _)| demand.cpu_milli).sum();
        let memory: u64 = using.iter().map(|(demand, _)| demand.memory_bytes).sum();
        let mut devices: BTreeMap<u32, u32> = BTreeMap::new();
        for share in using.iter().flat_map(|(_, gpus)| gpus) {
            *devices.entry(share.device).or_default() += share.milli;
        }
        let mut extended: BTreeMap<&str, u64> = BTreeMap::new();
        for used in using.iter().flat_map(|(demand, _)| &demand.extended) {
            *extended.entry(&used.name).or_default() += used.amount;
        }
        let has = |(name, used): (&&str, &u64)| {
            let own = self.most.extended.iter().find(|own| own.name == **name);
            own.is_some_and(|own| *used <= own.amount)
        };
        let fits = cpu <= self.most.cpu_milli
            && memory <= self.most.memory_bytes
            && devices.values().all(|milli| *milli <= 1000)
            && extended.iter().all(has);
        match fits {
            true => Ok(()),
            false => Err(Wrong::Overcommitted {
                node: self.name.clone(),
                boot: self.plan.boot(),
                run: key,
                beside: self
                    .runs
                    .keys()
                    .chain(self.waiting.keys())
                    .copied()
                    .collect(),
            }),
        }
    }
}

fn run(said: &Said, shown_ms: i64) -> Run {
    let exit = said.exit.map(|exit| RunExit {
        code: exit.code.into(),
        signal: exit.signal.into(),
        reason: 0,
        usage: said.usage.map(|usage| RunUsage {
            cpu_us: usage.cpu_us,
            ..RunUsage::default()
        }),
    });
    Run {
        exit,
        ..phase(
            &said.key.allocation.to_string(),
            said.phase,
            shown_ms,
            said.revision,
        )
    }
}

fn phase(allocation: &str, phase: RunPhase, at_ms: i64, revision: u64) -> Run {
    Run {
        allocation_id: allocation.to_owned(),
        phase: phase.into(),
        at_ms,
        revision,
        exit: None,
    }
}

/// `(cell << 64) | number` as the contract writes it.
pub fn uuid_text(cell: u64, number: u64) -> String {
    let hex = format!("{cell:016x}{number:016x}");
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    parts.join("-")
}
