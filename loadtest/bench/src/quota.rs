//! `loadtest quota`: how fast quota's domain decides, alone in one thread, without bus or stores.
//!
//! A tree of 10 tenants × 50 teams × 20 namespaces with limits on every account for cpu, memory, gpu, pods and storage.
//! One operation is one of: a request with its reservation, a start, an end with its release. All of it is timed: what
//! comes in is observed, what is decided is applied and encoded. Making up the events is not.

use crate::kit::{
    figures::{median, per_s, spread},
    report::{Measure, Out, ReportError, object},
};
use ::quota_rules::{Config, Quota};
use chassis::Stopwatch;
use ledger::{Decider, Draft, Poison, memory::Seeded};
use replay::command::{Size, exit};
use serde::Serialize;
use std::{process::ExitCode, time::Duration};
use vocab::fact::{
    AllocationEnded, AllocationRequested, AllocationStarted, QuotaReserved, QuotaSet, TenantSet,
};
use vocab::{
    Account, AdminChange, AllocationNo, AllocationSpec, At, EndCause, Event, EventNo, GpuRequest,
    Limits, Lsn, Millis, Operation, QuotaResource, TenantSettings, Token, Validity,
};

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Operations in each run.
    #[arg(
        long,
        default_value_t = 1_500_000,
        default_value_if("smoke", "true", "6000")
    )]
    operations: u64,
    /// Allocations that hold quota at any time.
    #[arg(
        long,
        default_value_t = 50_000,
        default_value_if("smoke", "true", "500")
    )]
    held: u64,
    /// Requests, starts or ends between two decisions.
    #[arg(long, default_value_t = 64)]
    batch: u64,
    #[arg(long, default_value_t = 5, default_value_if("smoke", "true", "1"))]
    runs: u32,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    out: Out,
    #[command(flatten)]
    size: Size,
}

#[derive(Debug, thiserror::Error)]
pub enum QuotaError {
    #[error(transparent)]
    Poison(#[from] Poison),
    #[error("{0} of the requests in a run were not granted")]
    NotGranted(u64),
    #[error(transparent)]
    Report(#[from] ReportError),
}

/// Operations per second of one thread; the median of the runs, and how far they lie apart.
#[derive(Debug, Serialize)]
pub struct Figures {
    pub case: String,
    pub ops_per_s: u64,
    pub ops_per_s_min: u64,
    pub ops_per_s_max: u64,
    pub runs: Vec<u64>,
    /// Medians of the kinds of operations by themselves.
    pub reserves_per_s: u64,
    pub converts_per_s: u64,
    pub returns_per_s: u64,
}

#[derive(Debug, Serialize)]
pub struct Cases {
    /// Of the tree, the median of its runs.
    pub ops_per_s: u64,
    pub tenants: u64,
    pub namespaces: u64,
    pub resource_types: u64,
    pub held: u64,
    pub batch: u64,
    pub operations: u64,
    pub cases: Vec<Figures>,
}

pub fn main(options: &Options) -> ExitCode {
    exit("quota", run(options))
}

const TENANTS: u64 = 10;
const TEAMS: u64 = 50;
const NAMESPACES: u64 = 20;
const RESOURCES: [QuotaResource; 5] = [
    QuotaResource::Cpu,
    QuotaResource::Memory,
    QuotaResource::Gpu,
    QuotaResource::Pods,
    QuotaResource::Storage,
];

/// The cases: tenants by themselves, and all in one cohort in which most of them borrow.
fn run(options: &Options) -> Result<(), QuotaError> {
    let measure = Measure::begin("quota", options.size);
    let mut cases: Vec<Figures> = Vec::new();
    for cohort in [false, true] {
        let mut runs = Vec::new();
        for no in 0..options.runs.max(1) {
            runs.push(one_run(options, cohort, u64::from(no))?);
        }
        let case = if cohort { "cohort" } else { "tree" };
        cases.push(figures(case, &runs));
    }
    let cases = Cases {
        ops_per_s: cases.first().map_or(0, |tree| tree.ops_per_s),
        tenants: TENANTS,
        namespaces: TENANTS * TEAMS * NAMESPACES,
        resource_types: RESOURCES.len() as u64,
        held: options.held,
        batch: options.batch,
        operations: options.operations,
        cases,
    };
    chassis::output::text(&table(&cases));
    Ok(options.out.write(&object(&measure.end(cases))?)?)
}

/// How long each kind of operation took, and how many there were.
#[derive(Debug, Clone, Copy, Default)]
struct Took {
    reserve: (Duration, u64),
    convert: (Duration, u64),
    give_back: (Duration, u64),
}

fn figures(case: &str, runs: &[Took]) -> Figures {
    let each = |of: fn(&Took) -> (Duration, u64)| {
        let rate = |took| {
            let (time, count) = of(took);
            per_s(count, time)
        };
        Vec::from_iter(runs.iter().map(rate))
    };
    let all = each(|took| {
        let (a, b, c) = (took.reserve, took.convert, took.give_back);
        (a.0 + b.0 + c.0, a.1 + b.1 + c.1)
    });
    let [least, most] = spread(&all);
    Figures {
        case: case.to_owned(),
        ops_per_s: median(&all),
        ops_per_s_min: least,
        ops_per_s_max: most,
        runs: all,
        reserves_per_s: median(&each(|took| took.reserve)),
        converts_per_s: median(&each(|took| took.convert)),
        returns_per_s: median(&each(|took| took.give_back)),
    }
}

fn table(report: &Cases) -> String {
    let mut text = format!(
        "\n{:>8} {:>10} {:>10} {:>10} {:>12} {:>12} {:>12}\n",
        "case", "ops/s", "min", "max", "reserves/s", "converts/s", "returns/s"
    );
    for f in &report.cases {
        text += &format!(
            "{:>8} {:>10} {:>10} {:>10} {:>12} {:>12} {:>12}\n",
            f.case,
            f.ops_per_s,
            f.ops_per_s_min,
            f.ops_per_s_max,
            f.reserves_per_s,
            f.converts_per_s,
            f.returns_per_s
        );
    }
    text
}

struct Bench {
    state: Quota,
    random: Seeded,
    leaves: Vec<Account>,
    next_input: u64,
    next_own: u64,
    /// Granted, not started; and running.
    reserved: Vec<AllocationNo>,
    running: Vec<AllocationNo>,
    denied: u64,
    took: Took,
}

fn one_run(options: &Options, cohort: bool, no: u64) -> Result<Took, QuotaError> {
    let mut bench = Bench::new(options, cohort, no)?;
    let batch = options.batch.max(1);
    while (bench.running.len() as u64) < options.held {
        bench.reserve(batch)?;
        bench.convert(batch)?;
    }
    bench.took = Took::default();
    // A round is three operations for each of the batch.
    for _ in 0..options.operations / batch / 3 {
        bench.reserve(batch)?;
        bench.convert(batch)?;
        bench.give_back(batch)?;
    }
    match bench.denied {
        0 => Ok(bench.took),
        denied => Err(QuotaError::NotGranted(denied)),
    }
}

impl Bench {
    fn new(options: &Options, cohort: bool, no: u64) -> Result<Self, QuotaError> {
        let mut bench = Self {
            state: Quota::default(),
            random: Seeded::new(options.seed ^ (no << 32)),
            leaves: Vec::new(),
            next_input: 1,
            next_own: 1,
            reserved: Vec::new(),
            running: Vec::new(),
            denied: 0,
            took: Took::default(),
        };
        // In a cohort every other tenant has next to nothing of its own, and borrows it.
        let hard = |tenant: u64, part: u64| match (cohort, tenant % 2) {
            (true, 1) => 1,
            _ => Limits::MAX / part,
        };
        for t in 0..TENANTS {
            let tenant = Account::tenant(token(&format!("t{t}")));
            if cohort {
                let settings = TenantSettings {
                    cohort: Some(token("c")),
                    ..TenantSettings::default()
                };
                let tenant = tenant.tenant.clone();
                bench.admin(AdminChange::Tenant(TenantSet {
                    tenant,
                    settings,
                    closed: false,
                    teams: Vec::new(),
                }))?;
            }
            bench.limit(&tenant, hard(t, 1))?;
            for x in 0..TEAMS {
                let mut team = tenant.clone();
                team.team = Some(token(&format!("x{x}")));
                bench.limit(&team, Limits::MAX / 2)?;
                for n in 0..NAMESPACES {
                    let mut leaf = team.clone();
                    leaf.namespace = Some(token(&format!("n{n}")));
                    bench.limit(&leaf, Limits::MAX / 4)?;
                    bench.leaves.push(leaf);
                }
            }
        }
        Ok(bench)
    }

    fn observe(&mut self, events: &[Event]) -> Result<(), Poison> {
        for event in events {
            let at = At {
                lsn: Lsn(0),
                index: 0,
                no: EventNo(self.next_input),
                now: Millis(1),
            };
            self.next_input += 1;
            self.state.observe_event(&at, event)?;
        }
        Ok(())
    }

    fn admin(&mut self, change: AdminChange) -> Result<(), Poison> {
        let operation = operation(&token("_operator"));
        self.observe(&[change.applied(operation, 1).into()])
    }

    fn limit(&mut self, account: &Account, hard: u64) -> Result<(), Poison> {
        RESOURCES.into_iter().try_for_each(|resource| {
            self.admin(AdminChange::Quota(QuotaSet {
                account: account.clone(),
                resource,
                limits: Some(Limits::hard(hard)),
                validity: Validity::default(),
            }))
        })
    }

    /// Observes and decides, and says how long that took.
    fn time(&mut self, events: &[Event]) -> Result<(Duration, Vec<Draft>), Poison> {
        let mut drafts = Vec::new();
        let began = Stopwatch::start();
        self.observe(events)?;
        loop {
            let mut draft = Draft::new(Millis(1), EventNo(self.next_own));
            self.state.decide(&Config::default(), &mut draft);
            self.next_own = draft.next_no().0;
            let full = draft.full();
            drafts.push(draft);
            if !full {
                break;
            }
        }
        let took = began.elapsed();
        match drafts.iter().find_map(Draft::poison) {
            Some(poison) => Err(poison.clone()),
            None => Ok((took, drafts)),
        }
    }

    fn reserve(&mut self, batch: u64) -> Result<(), Poison> {
        let requests: Vec<Event> = (0..batch).map(|_| self.request()).collect();
        let (took, drafts) = self.time(&requests)?;
        add(&mut self.took.reserve, took, batch);
        for event in drafts.iter().flat_map(Draft::events) {
            match event {
                Event::QuotaReserved(QuotaReserved { allocation, .. }) => {
                    self.reserved.push(*allocation)
                }
                _ => self.denied += 1,
            }
        }
        Ok(())
    }

    fn convert(&mut self, batch: u64) -> Result<(), Poison> {
        let started = std::mem::take(&mut self.reserved);
        let starts: Vec<Event> = started
            .iter()
            .map(|allocation| {
                Event::AllocationStarted(AllocationStarted {
                    allocation: *allocation,
                    at: Millis(1),
                })
            })
            .collect();
        let (took, _) = self.time(&starts)?;
        add(&mut self.took.convert, took, batch);
        self.running.extend(started);
        Ok(())
    }

    fn give_back(&mut self, batch: u64) -> Result<(), Poison> {
        let mut ends = Vec::new();
        for _ in 0..batch.min(self.running.len() as u64) {
            let at = self.random.below(self.running.len() as u64) as usize;
            ends.push(Event::AllocationEnded(AllocationEnded {
                allocation: self.running.swap_remove(at),
                cause: EndCause::Finished,
                at: Millis(2),
                exit: None,
            }));
        }
        let (took, _) = self.time(&ends)?;
        add(&mut self.took.give_back, took, batch);
        Ok(())
    }

    fn request(&mut self) -> Event {
        // Below the number of leaves, which is a few thousand.
        let leaf = &self.leaves[self.random.below(self.leaves.len() as u64) as usize];
        let mut spec = AllocationSpec::plain(token("load"), 4000, 16 << 30);
        (spec.team, spec.namespace) = (leaf.team.clone(), leaf.namespace.clone());
        spec.gpu = Some(GpuRequest {
            count: 1,
            milli: 500,
            models: Vec::new(),
        });
        spec.extended = vec![(token(QuotaResource::STORAGE), 10)];
        let operation = operation(&leaf.tenant);
        Event::AllocationRequested(AllocationRequested { operation, spec })
    }
}

fn add(sum: &mut (Duration, u64), took: Duration, count: u64) {
    sum.0 += took;
    sum.1 += count;
}

fn token(text: &str) -> Token {
    Token::new(text)
        .unwrap_or_else(|_| unreachable!("{text} is made of letters, digits and dashes"))
}

fn operation(tenant: &Token) -> Operation {
    Operation {
        tenant: tenant.clone(),
        operation_id: None,
        digest: [0; 16],
        reply_to: None,
        trace: None,
        by: None,
    }
}
