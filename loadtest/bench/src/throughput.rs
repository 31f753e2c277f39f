//! `loadtest bench`: how many tasks a second a running stack takes through their whole life, how fast it answers, and
//! what that costs.
//!
//! A task is submitted by a tenant through the client's library, placed on a simulated node, reported as started and
//! finished by the node's agent, and over when its end is in the read models and on the bill. Each case ends with an
//! audit: every task once, everywhere.

mod aims;
pub(crate) mod audit;
pub(crate) mod case;
pub(crate) mod counts;
mod error;
mod figures;
mod live;
pub(crate) mod load;
pub(crate) mod observer;
mod options;
mod plot;
mod rate;
mod report;
pub(crate) mod scene;
mod search;
pub(crate) mod task;
mod traces;
mod verdict;

pub(crate) use error::BenchError;
pub use options::Options;
pub(crate) use options::{Length, SMOKE_PER_S};

use crate::kit::report::{object, write};
use case::Case;
use chassis::{Stopwatch, stack::Stack};
use counts::Counts;
use figures::{CaseFigures, LOW_PER_S, Versions, at, highest};
use load::{Load, Pace};
use observer::Observer;
use rate::RateFigures;
use replay::{
    command::{block_on, exit},
    machine::Machine,
};
use report::Report;
use scene::Scene;
use search::Search;
use std::{fs, path::Path, process::ExitCode, time::Duration};
use task::Tasks;

const PROBE: Duration = Duration::from_secs(8);

pub fn main(options: &Options) -> ExitCode {
    let done = match &options.stack {
        Some(stack) => block_on(run(stack, options)),
        None => report(options),
    };
    exit("bench", done)
}

fn report(options: &Options) -> Result<(), BenchError> {
    let report = Report::read(&options.out, options.length.size)?;
    let page = options.out.join("bench.html");
    write(&page, &plot::page(&report.cases))?;
    chassis::out!("{report}\nLatency against load: {}", page.display());
    Ok(())
}

async fn run(stack: &Path, options: &Options) -> Result<(), BenchError> {
    let stack = Stack::read(stack)?;
    fs::create_dir_all(&options.out)?;
    for case in &options.case {
        chassis::out!("{}", case.name());
        let text = match case {
            Case::Live => {
                let (live, length) = (options.live, &options.length);
                object(&live::measure(&stack, live, length.batch, length.size).await?)?
            }
            _ => object(&measure(&stack, *case, &options.length).await?)?,
        };
        write(&Report::file(&options.out, *case), &text)?;
    }
    Ok(())
}

/// The batched case, for comparison with others on the same machine. The stack has tenants and nothing else; it may be
/// measured again.
pub(crate) async fn sustained(stack: &Stack, length: &Length) -> Result<CaseFigures, BenchError> {
    measure(stack, Case::Batched, length).await
}

async fn measure(stack: &Stack, case: Case, length: &Length) -> Result<CaseFigures, BenchError> {
    let machine = Machine::look();
    let observer = Observer::open(stack).await?;
    let scene = Scene::set(stack, case, length.size).await?;
    let since = Stopwatch::start();
    observer
        .settled(since, &Counts::default(), |_| true)
        .await?;
    let held = audit::held_cores(stack).await?;
    let batch = if case.batched() { length.batch } else { 1 };
    let waiting = if case == Case::Deep {
        length.waiting
    } else {
        0
    };
    let behind = Load::new(&scene, Tasks::waiting(&scene.run), length.batch);
    behind.all(waiting).await;
    let since = Stopwatch::start();
    observer.settled(since, &behind.counts, |_| true).await?;

    let load = Load::new(&scene, Tasks::new(&scene.run), batch);
    let bench = Bench {
        stack,
        observer: &observer,
        load: &load,
        length,
        case,
    };
    let mut rates = Vec::new();
    let mut probe = None;
    if length.rate.is_empty() {
        if !length.highest_only && !length.size.smoke {
            // Before there is anything that higher rates have left to be forgotten.
            rates.push(bench.rate(LOW_PER_S).await?);
        }
        let guess = bench.probe().await?;
        probe = Some(guess.round());
        let guess = length.size.pick(guess, SMOKE_PER_S);
        bench.search(guess, &mut rates).await?;
        if !length.highest_only {
            bench.beside(&mut rates).await?;
        }
    }
    let mut traced = None;
    if case == Case::Batched
        && length.rate.is_empty()
        && !length.highest_only
        && let Some(highest) = bench.highest(&rates)
    {
        chassis::out!("  with sampled traces, in turns:");
        traced = Some(traces::measure(&bench, highest).await?);
    }
    for per_s in &length.rate {
        rates.push(bench.rate(*per_s).await?);
    }
    let counts = (load.counts.accepted(), held + behind.counts.accepted());
    let audited = audit::audit(stack, load.tasks.job_set(), counts).await?;
    let versions = Versions::ask(stack).await;
    Ok(CaseFigures {
        probe_tasks_per_s: probe,
        tracing: traced,
        waiting: behind.counts.accepted(),
        ..CaseFigures::of(case, rates, (audited, machine.and_after(), versions))
    })
}

struct Bench<'b> {
    stack: &'b Stack,
    observer: &'b Observer<'b>,
    load: &'b Load<'b>,
    length: &'b Length,
    case: Case,
}

impl Bench<'_> {
    async fn rate(&self, per_s: f64) -> Result<RateFigures, BenchError> {
        let (warm_up, window) = self.length.times(self.case);
        let pace = Pace {
            per_s,
            warm_up,
            window,
        };
        let figures = rate::measure(self.stack, self.observer, self.load, pace).await?;
        chassis::out!("  {}", report::line(&figures));
        Ok(figures)
    }

    /// Whole lives per second in a closed loop, from the first request until the last task was drained.
    async fn probe(&self) -> Result<f64, BenchError> {
        let since = Stopwatch::start();
        let size = self.length.size;
        let tasks_max = self.case.probe_tasks(size);
        let window = size.pick(PROBE, Duration::from_millis(300));
        self.load.bounded(tasks_max, window).await;
        let drained = self.observer.drained(since, self.load).await?;
        let per_s = drained.accepted as f64 / drained.at.as_secs_f64();
        chassis::out!("  closed loop: {per_s:.0} tasks/s");
        Ok(per_s)
    }

    async fn search(&self, guess: f64, rates: &mut Vec<RateFigures>) -> Result<(), BenchError> {
        let mut search = Search::around(guess, self.length.steps(self.case));
        while let Some(per_s) = search.next() {
            let figures = self.rate(per_s).await?;
            search.tried(per_s, figures.sustained);
            rates.push(figures);
        }
        Ok(())
    }

    /// The highest sustained rate; at the smallest size, which judges none, the last one.
    fn highest(&self, rates: &[RateFigures]) -> Option<f64> {
        let last = || rates.last().filter(|_| self.length.size.smoke);
        highest(rates).or_else(last).map(|rate| rate.offered_per_s)
    }

    /// Parts of the highest rate: half of it in any case.
    async fn beside(&self, rates: &mut Vec<RateFigures>) -> Result<(), BenchError> {
        let Some(highest) = self.highest(rates) else {
            return Ok(());
        };
        for part in self.case.sweep(self.length.size) {
            if at(rates, highest * part).is_none() {
                rates.push(self.rate(highest * part).await?);
            }
        }
        Ok(())
    }
}
