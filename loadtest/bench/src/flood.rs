//! `loadtest flood`: the effect of one tenant's flood on the others, which send at a gentle and fixed rate.
//!
//! Phases alternate in one run, for each kind of flood: quiet, flood without a rate, quiet, flood with the rate that a tenant
//! has unless it is given another one. Each gentle operation has its moment fixed before, and its time is counted from there.

mod flooder;
mod gentle;

use crate::kit::{
    figures::{median, round},
    report::{Measure, Out, ReportError, object},
};
use chassis::{Stopwatch, stack::Stack};
use clap::ValueEnum;
use client::{Client, Failed, SetTenant};
use flooder::{Flood, Flooded, Flooder};
use gentle::{Gentle, Seen};
use hdrhistogram::Histogram;
use replay::{
    command::{Size, block_on, exit},
    drive::{OperatorError, Settings},
    latency::{histogram, quantile_ms},
    reach::{ReachError, connect, operator, plain, tenants},
};
use serde::Serialize;
use std::{collections::BTreeMap, io, path::PathBuf, process::ExitCode, time::Duration};
use vocab::Token;

#[derive(Debug, clap::Args)]
pub struct Options {
    /// The file in which the launcher says how to reach the stack. Its first tenant floods.
    #[arg(long, value_name = "PATH")]
    stack: PathBuf,
    #[command(flatten)]
    out: Out,
    #[command(flatten)]
    size: Size,
    /// Kinds of flood. Default: each, one after the other.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Flood::value_variants().iter().copied())]
    cases: Vec<Flood>,
    /// Seconds of each phase.
    #[arg(long, default_value_t = 5.0, default_value_if("smoke", "true", "0.1"))]
    seconds: f64,
    /// Rounds of all phases.
    #[arg(long, default_value_t = 2, default_value_if("smoke", "true", "1"))]
    rounds: usize,
    /// Operations per second of each gentle tenant.
    #[arg(long, default_value_t = 100, default_value_if("smoke", "true", "20"))]
    gentle_per_s: u32,
}

#[derive(Debug, thiserror::Error)]
enum FloodError {
    #[error(transparent)]
    Reach(#[from] ReachError),
    #[error(transparent)]
    Operator(#[from] OperatorError),
    #[error("the rate of the flooding tenant: {0}")]
    Rate(#[from] Failed),
    #[error("the stack has fewer than two tenants; start it with --tenants 2")]
    Alone,
    #[error(transparent)]
    Report(#[from] ReportError),
    #[error("the runtime: {0}")]
    Runtime(#[from] io::Error),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Quiet,
    Flood,
    FloodWithRate,
}

/// Connections of the flooding tenant.
const FLOODING: usize = 2;
const PHASES: [Kind; 4] = [Kind::Quiet, Kind::Flood, Kind::Quiet, Kind::FloodWithRate];

#[derive(Debug, Serialize)]
struct Cases {
    gentle_tenants: usize,
    gentle_per_s: u32,
    cases: BTreeMap<Flood, Case>,
}

#[derive(Debug, Serialize)]
struct Case {
    /// Of the gentle tenants: p99 with the flood over p99 without.
    p99_ratio: f64,
    p99_ratio_with_rate: f64,
    phases: BTreeMap<Kind, Figures>,
}

impl Case {
    fn of(sums: &BTreeMap<Kind, Sum>) -> Self {
        let phases: BTreeMap<Kind, Figures> =
            sums.iter().map(|(k, sum)| (*k, sum.figures())).collect();
        let p99 = |kind| phases.get(&kind).map_or(0.0, |figures| figures.p99_ms);
        let ratio = |kind| round(p99(kind) / p99(Kind::Quiet), 2);
        Self {
            p99_ratio: ratio(Kind::Flood),
            p99_ratio_with_rate: ratio(Kind::FloodWithRate),
            phases,
        }
    }
}

#[derive(Debug, Serialize)]
struct Figures {
    p50_ms: f64,
    /// The median of the phases' own.
    p99_ms: f64,
    p99_ms_of_phases: Vec<f64>,
    max_ms: f64,
    sent: u64,
    /// Without an outcome within the client's patience.
    unanswered: u64,
    /// With an outcome other than that the resource is created.
    not_created: u64,
    /// Operations per second that the inbox has taken of who floods.
    flood_ops_per_s: u64,
    /// After the flood, until the inbox was empty again.
    drain_s: f64,
}

pub fn main(options: &Options) -> ExitCode {
    exit("flood", block_on(run(options)))
}

async fn run(options: &Options) -> Result<(), FloodError> {
    let measure = Measure::begin("flood", options.size);
    let stack = Stack::read(&options.stack).map_err(ReachError::from)?;
    let scene = Scene::prepare(&stack, options).await?;
    let mut sums: BTreeMap<Flood, BTreeMap<Kind, Sum>> = BTreeMap::new();
    for _ in 0..options.rounds {
        for flood in &options.cases {
            let sums = sums.entry(*flood).or_default();
            for kind in PHASES {
                let sum = sums.entry(kind).or_default();
                scene.phase(*flood, kind, sum).await?;
            }
        }
    }
    scene.set_rate(None).await?;
    let cases = Cases {
        gentle_tenants: scene.gentle.len(),
        gentle_per_s: options.gentle_per_s,
        cases: sums
            .iter()
            .map(|(of, sums)| (*of, Case::of(sums)))
            .collect(),
    };
    let text = object(&measure.end(cases))?;
    chassis::output::text(&text);
    Ok(options.out.write(&text)?)
}

struct Scene {
    operator: Client,
    flooder: Token,
    flooding: Flooder,
    gentle: Vec<Gentle>,
    window: Duration,
}

/// All phases of one kind.
struct Sum {
    micros: Histogram<u64>,
    p99_ms: Vec<f64>,
    unanswered: u64,
    not_created: u64,
    flooded: Flooded,
}

impl Default for Sum {
    fn default() -> Self {
        Self {
            micros: histogram(),
            p99_ms: Vec::new(),
            unanswered: 0,
            not_created: 0,
            flooded: Flooded::default(),
        }
    }
}

impl Scene {
    async fn prepare(stack: &Stack, options: &Options) -> Result<Self, FloodError> {
        let settings = Settings {
            tenants: tenants(stack),
            ..Settings::default()
        };
        let operator = operator(stack).await?;
        settings.apply(&operator).await?;
        let mut tenants = settings.tenants.into_iter();
        let flooder = tenants.next().ok_or(FloodError::Alone)?;
        let flooding = flooding(stack, &flooder).await?;
        let period = Duration::from_secs(1) / options.gentle_per_s.max(1);
        let mut gentle = Vec::new();
        for tenant in tenants {
            let connections = connect(stack, &tenant, 1, None).await?;
            gentle.extend(connections.into_iter().map(|one| Gentle::new(one, period)));
        }
        if gentle.is_empty() {
            return Err(FloodError::Alone);
        }
        Ok(Self {
            operator,
            flooder,
            flooding,
            gentle,
            window: Duration::from_secs_f64(options.seconds),
        })
    }

    async fn phase(&self, flood: Flood, kind: Kind, sum: &mut Sum) -> Result<(), FloodError> {
        self.set_rate(match kind {
            Kind::FloodWithRate => None,
            Kind::Quiet | Kind::Flood => Some(0),
        })
        .await?;
        let all = self.gentle.iter().map(|one| one.run(self.window));
        let all = futures::future::join_all(all);
        let (seen, flooded) = match kind {
            Kind::Quiet => (all.await, Flooded::default()),
            Kind::Flood | Kind::FloodWithRate => {
                tokio::join!(all, self.flooding.run(flood, self.window))
            }
        };
        let since = Stopwatch::start();
        self.flooding.drained().await;
        sum.flooded.add(&flooded, since.elapsed());
        sum.add(&seen);
        Ok(())
    }

    /// None: the one that a tenant has unless it is given another.
    async fn set_rate(&self, rate_milli: Option<i64>) -> Result<(), FloodError> {
        let change = SetTenant {
            tenant: self.flooder.to_string(),
            rate_milli,
            ..SetTenant::default()
        };
        let id = client::Operation::fresh_id();
        self.operator.set_tenant(change, id).await?;
        Ok(())
    }
}

impl Sum {
    /// What the gentle ones have seen in one phase.
    fn add(&mut self, seen: &[Seen]) {
        let mut phase = histogram();
        for micros in seen.iter().flat_map(|one| &one.micros) {
            phase.saturating_record(*micros);
            self.micros.saturating_record(*micros);
        }
        self.p99_ms.push(quantile_ms(&phase, 0.99));
        self.unanswered += seen.iter().map(|one| one.unanswered).sum::<u64>();
        self.not_created += seen.iter().map(|one| one.not_created).sum::<u64>();
    }

    fn figures(&self) -> Figures {
        Figures {
            p50_ms: quantile_ms(&self.micros, 0.5),
            p99_ms: median(&self.p99_ms),
            p99_ms_of_phases: self.p99_ms.clone(),
            max_ms: quantile_ms(&self.micros, 1.0),
            sent: self.micros.len(),
            unanswered: self.unanswered,
            not_created: self.not_created,
            flood_ops_per_s: self.flooded.ops_per_s(),
            drain_s: self.flooded.drain_s(),
        }
    }
}

/// Two connections that flood, and one that is answered.
async fn flooding(stack: &Stack, tenant: &Token) -> Result<Flooder, ReachError> {
    let mut connections = Vec::new();
    for _ in 0..FLOODING {
        connections.push(plain(stack, &format!("tenant:{tenant}")).await?);
    }
    let clients = connect(stack, tenant, 1, None).await?;
    let client = clients.into_iter().next();
    Ok(Flooder::new(
        connections,
        (stack, tenant),
        client.ok_or(ReachError::NoTenant)?,
    ))
}
