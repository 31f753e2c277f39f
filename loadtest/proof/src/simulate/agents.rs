//! Simulated node agents: they keep the nodes' protocol, but die, fall silent, repeat themselves and come back late.

use ledger::memory::Seeded;
use prost::Message;
use schemas::v1::{self, NodeReport, Register, Run, RunPhase, Runs, node_report::Report};
use std::collections::{BTreeMap, BTreeSet};

/// What an agent does, for the world to carry out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// To the nodes' inbox, acknowledged.
    Report(Vec<u8>),
    Heartbeat {
        boot: u64,
        revision: u64,
    },
    Sync,
}

/// An assignment whose device, core or byte something else on the node still uses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{node}/{boot} is to run {allocation} beside {beside:?}, beyond its capacity")]
pub struct Overcommitted {
    node: String,
    boot: u64,
    allocation: String,
    beside: Vec<String>,
}

#[derive(Debug)]
pub struct Agent {
    pub name: String,
    pub capacity: v1::NodeCapacity,
    /// What it may be when it comes back.
    other: v1::NodeCapacity,
    boot: u64,
    revision: u64,
    registered: bool,
    pub silent: bool,
    /// Dead, and nobody will come to repair it.
    pub gone: bool,
    /// No run ends by itself.
    pub lasting: bool,
    wants_list: bool,
    runs: BTreeMap<String, Local>,
    /// Over in this life, by this agent's own word, as of the revision that it had seen: a later one is of another run.
    done: BTreeMap<String, u64>,
    /// What it has sent, some of which arrives again much later.
    sent: Vec<Vec<u8>>,
    /// Per mille of the moments at which a run goes on that could end.
    slow: u64,
}

#[derive(Debug, Clone)]
struct Local {
    demand: v1::AllocationSpec,
    gpus: Vec<v1::GpuShare>,
    /// Of the last change of it.
    revision: u64,
    placed_ms: i64,
    started: bool,
    stop: bool,
}

impl Agent {
    pub fn new(
        name: String,
        capacity: v1::NodeCapacity,
        other: v1::NodeCapacity,
        slow: u64,
    ) -> Self {
        Self {
            name,
            capacity,
            other,
            boot: 1,
            revision: 0,
            registered: false,
            silent: false,
            gone: false,
            lasting: false,
            wants_list: false,
            runs: BTreeMap::new(),
            done: BTreeMap::new(),
            sent: Vec::new(),
            slow,
        }
    }

    pub fn idle(&self) -> bool {
        let goes_on = |run: &Local| self.lasting && run.started && !run.stop;
        self.gone || (self.registered && self.runs.values().all(goes_on) && !self.wants_list)
    }

    fn report(&mut self, report: Report) -> Act {
        let message = NodeReport {
            boot: self.boot,
            report: Some(report),
        };
        let bytes = message.encode_to_vec();
        self.sent.push(bytes.clone());
        Act::Report(bytes)
    }

    fn register(&mut self) -> Act {
        self.registered = true;
        let capacity = Some(self.capacity.clone());
        self.report(Report::Register(Register { capacity }))
    }

    fn heartbeat(&self) -> Act {
        Act::Heartbeat {
            boot: self.boot,
            revision: self.revision,
        }
    }

    /// A new life with nothing running, now and then as another machine.
    fn restart(&mut self, random: &mut Seeded) {
        if random.chance(300) {
            std::mem::swap(&mut self.capacity, &mut self.other);
        }
        self.boot += 1 + random.below(2);
        self.registered = false;
        self.wants_list = false;
        self.runs.clear();
        self.done.clear();
        self.revision = 0;
    }

    /// Something that an agent may do at any time.
    pub fn act(&mut self, random: &mut Seeded, now_ms: i64, troubled: bool) -> Vec<Act> {
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
            let mut acts = vec![self.heartbeat()];
            acts.extend(self.wants_list.then_some(Act::Sync));
            acts.extend(self.work(random, now_ms, false));
            return acts;
        }
        match random.below(100) {
            0..=2 => {
                self.silent = true;
                return Vec::new();
            }
            3..=4 => {
                self.restart(random);
                return Vec::new();
            }
            // A late message of this life or a former one.
            5..=12 => return self.again(random),
            13 => return vec![self.stray(random, now_ms)],
            _ => {}
        }
        if self.wants_list && random.chance(500) {
            return vec![Act::Sync];
        }
        match random.below(10) {
            0..=4 => vec![self.heartbeat()],
            _ => self.work(random, now_ms, troubled),
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

    /// A report of what there never was, or from another life.
    fn stray(&mut self, random: &mut Seeded, now_ms: i64) -> Act {
        let number = random.below(40) + 1;
        if random.chance(300) {
            let nothing = uuid_text(1, 1000 + number);
            return self.report(Report::Run(phase(&nothing, RunPhase::Started, now_ms, 0)));
        }
        self.boot -= 1;
        let run = phase(&uuid_text(1, number), RunPhase::FinishedOk, now_ms, 0);
        let act = self.report(Report::Run(run));
        self.boot += 1;
        act
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

    /// Moves one run on, or a few, and says so in one message.
    fn work(&mut self, random: &mut Seeded, now_ms: i64, troubled: bool) -> Vec<Act> {
        let Some(first) = self.move_on(random, now_ms, troubled) else {
            return Vec::new();
        };
        let mut runs = vec![first];
        while random.chance(300) {
            runs.extend(self.move_on(random, now_ms, troubled));
        }
        let report = match <[Run; 1]>::try_from(runs) {
            Ok([run]) => Report::Run(run),
            Err(runs) => Report::Runs(Runs { runs }),
        };
        self.twice(random, troubled, |agent| agent.report(report))
    }

    fn move_on(&mut self, random: &mut Seeded, now_ms: i64, troubled: bool) -> Option<Run> {
        let lasting = self.lasting;
        let ends = |run: &Local| !lasting || !run.started || run.stop;
        let movable = self.runs.values().filter(|run| ends(run)).count();
        let index = random.below(movable.max(1) as u64) as usize;
        let mut movable = self.runs.iter_mut().filter(|(_, run)| ends(run));
        let (allocation, run) = movable.nth(index)?;
        let allocation = allocation.clone();
        // An agent's clock is its own.
        let at_ms = now_ms + random.below(200) as i64 - 100;
        let revision = run.revision;
        if run.started && !run.stop && troubled && random.chance(self.slow) {
            return None;
        }
        let moved = match (run.started, run.stop) {
            (false, false) if !lasting && random.chance(60) => RunPhase::Rejected,
            (false, false) => RunPhase::Started,
            (_, true) => RunPhase::FinishedOk,
            (true, false) if random.chance(150) => RunPhase::FailedRun,
            (true, false) => RunPhase::FinishedOk,
        };
        if moved == RunPhase::Started {
            run.started = true;
        } else {
            self.runs.remove(&allocation);
            self.done.insert(allocation.clone(), revision);
        }
        Some(phase(&allocation, moved, at_ms, revision))
    }

    /// One pushed change.
    pub fn assigned(
        &mut self,
        change: &v1::Assignment,
        random: &mut Seeded,
    ) -> Result<(), Overcommitted> {
        if change.boot != self.boot {
            return Ok(());
        }
        if change.register_again {
            if self.registered && !self.silent {
                self.restart(random);
            }
            return Ok(());
        }
        if change.revision == self.revision + 1 {
            self.revision += 1;
            return self.run(change);
        }
        if change.revision > self.revision {
            self.wants_list = true;
        }
        Ok(())
    }

    /// All that is to run here.
    pub fn listed(
        &mut self,
        boot: u64,
        revision: u64,
        assignments: &[v1::Assignment],
    ) -> Result<(), Overcommitted> {
        if boot != self.boot || revision < self.revision {
            return Ok(());
        }
        self.wants_list = false;
        self.revision = revision;
        let listed: BTreeSet<&str> = assignments
            .iter()
            .map(|a| a.allocation_id.as_str())
            .collect();
        self.runs
            .retain(|allocation, _| listed.contains(allocation.as_str()));
        for change in assignments {
            self.run(change)?;
        }
        Ok(())
    }

    fn run(&mut self, change: &v1::Assignment) -> Result<(), Overcommitted> {
        let id = &change.allocation_id;
        if self
            .done
            .get(id)
            .is_some_and(|seen| change.revision <= *seen)
        {
            return Ok(());
        }
        match self.runs.get_mut(id) {
            Some(run) if change.placed_ms == run.placed_ms => {
                run.revision = run.revision.max(change.revision);
                run.stop |= change.stop;
                return Ok(());
            }
            // That one goes on here, and nobody has said otherwise.
            Some(run) if run.started || !run.stop => return Err(self.overcommitted(id)),
            // Nothing but a late stop of a run that is over.
            Some(_) | None => {}
        }
        let run = Local {
            demand: change.spec.clone().unwrap_or_default(),
            gpus: change.gpus.clone(),
            revision: change.revision,
            placed_ms: change.placed_ms,
            started: false,
            stop: change.stop,
        };
        self.runs.insert(id.clone(), run);
        if self.fits() {
            return Ok(());
        }
        Err(self.overcommitted(id))
    }

    fn overcommitted(&self, allocation: &str) -> Overcommitted {
        Overcommitted {
            node: self.name.clone(),
            boot: self.boot,
            allocation: allocation.to_owned(),
            beside: self.runs.keys().cloned().collect(),
        }
    }

    fn fits(&self) -> bool {
        // What is to be stopped before it has started never will.
        let using = || self.runs.values().filter(|run| run.started || !run.stop);
        let cpu: u64 = using().map(|run| run.demand.cpu_milli).sum();
        let memory: u64 = using().map(|run| run.demand.memory_bytes).sum();
        let mut devices: BTreeMap<u32, u32> = BTreeMap::new();
        for share in using().flat_map(|run| &run.gpus) {
            *devices.entry(share.device).or_default() += share.milli;
        }
        let mut extended: BTreeMap<&str, u64> = BTreeMap::new();
        for used in using().flat_map(|run| &run.demand.extended) {
            *extended.entry(&used.name).or_default() += used.amount;
        }
        let has = |(name, used): (&&str, &u64)| {
            let own = self.capacity.extended.iter().find(|own| own.name == **name);
            own.is_some_and(|own| *used <= own.amount)
        };
        cpu <= self.capacity.cpu_milli
            && memory <= self.capacity.memory_bytes
            && devices.values().all(|milli| *milli <= 1000)
            && extended.iter().all(has)
    }
}

fn phase(allocation: &str, phase: RunPhase, at_ms: i64, revision: u64) -> Run {
    Run {
        allocation_id: allocation.to_owned(),
        phase: phase.into(),
        at_ms,
        revision,
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
