//! What came of a case, as it is written down.

use super::{
    BenchError,
    audit::{AuditError, Audited},
    case::Case,
    rate::RateFigures,
    traces::TracingFigures,
};
use chassis::stack::Stack;
use replay::{machine::Machine, reach::plain};
use serde::{Deserialize, Serialize};
use sqlx::{Connection, PgConnection};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CaseFigures {
    pub case: Case,
    /// Whole lives; 0: none of the rates was sustained.
    pub highest_tasks_per_s: f64,
    /// What a closed loop reached.
    pub probe_tasks_per_s: Option<f64>,
    /// At the highest rate.
    pub cpu_us_per_task: Option<f64>,
    pub services_us_per_task: Option<f64>,
    pub ledger_bytes_per_task: Option<f64>,
    pub ledger_bytes_per_request: Option<f64>,
    pub inbox_bytes_per_task: Option<f64>,
    pub frame_bytes: Option<f64>,
    /// At half of the highest rate.
    pub p50_ms_at_half: Option<f64>,
    pub p99_ms_at_half: Option<f64>,
    pub p999_ms_at_half: Option<f64>,
    pub p99_ms_at_1k: Option<f64>,
    pub tracing: Option<TracingFigures>,
    /// Requests that waited all the time, for nothing.
    pub waiting: u64,
    pub rates: Vec<RateFigures>,
    #[serde(flatten)]
    pub audited: Audited,
    pub machine: Machine,
    pub versions: Versions,
}

/// Rates are as good as equal within this part.
const EQUAL: f64 = 0.02;
pub const LOW_PER_S: f64 = 1000.0;

impl CaseFigures {
    pub fn highest(&self) -> Option<&RateFigures> {
        highest(&self.rates)
    }

    /// `rates` in any order.
    pub fn of(
        case: Case,
        mut rates: Vec<RateFigures>,
        (audited, machine, versions): (Audited, Machine, Versions),
    ) -> Self {
        rates.sort_by(|a, b| a.offered_per_s.total_cmp(&b.offered_per_s));
        let highest = highest(&rates);
        let per_s = highest.map_or(0.0, |rate| rate.offered_per_s);
        let half = at(&rates, per_s / 2.0);
        Self {
            case,
            highest_tasks_per_s: per_s,
            probe_tasks_per_s: None,
            cpu_us_per_task: highest.map(|rate| rate.cpu_us_per_task),
            services_us_per_task: highest.map(|rate| rate.services_us_per_task),
            ledger_bytes_per_task: highest.map(|rate| rate.ledger_bytes_per_task),
            ledger_bytes_per_request: highest.map(|rate| rate.ledger_bytes_per_request),
            inbox_bytes_per_task: highest.map(|rate| rate.inbox_bytes_per_task),
            frame_bytes: highest.map(|rate| rate.frame_bytes),
            p50_ms_at_half: half.map(|rate| rate.p50_ms),
            p99_ms_at_half: half.map(|rate| rate.p99_ms),
            p999_ms_at_half: half.map(|rate| rate.p999_ms),
            p99_ms_at_1k: at(&rates, LOW_PER_S).map(|rate| rate.p99_ms),
            tracing: None,
            waiting: 0,
            audited,
            machine,
            versions,
            rates,
        }
    }
}

/// The highest that was sustained, in whatever order they were tried.
pub fn highest(rates: &[RateFigures]) -> Option<&RateFigures> {
    let sustained = rates.iter().filter(|rate| rate.sustained);
    sustained.max_by(|a, b| a.offered_per_s.total_cmp(&b.offered_per_s))
}

/// The one that was wanted, if it was measured.
pub fn at(rates: &[RateFigures], wanted: f64) -> Option<&RateFigures> {
    let equal = |rate: &&RateFigures| (rate.offered_per_s - wanted).abs() <= wanted * EQUAL;
    rates.iter().find(equal)
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Versions {
    pub apportion: String,
    pub nats: String,
    pub postgres: String,
    pub clickhouse: String,
}

impl Versions {
    /// A server that does not say is of no version.
    pub async fn ask(stack: &Stack) -> Self {
        let nats = plain(stack, "operator").await;
        let nats = nats.map(|nats| nats.server_info().version);
        Self {
            apportion: env!("CARGO_PKG_VERSION").to_owned(),
            nats: nats.unwrap_or_default(),
            postgres: postgres(stack).await.unwrap_or_default(),
            clickhouse: bill(stack).await.unwrap_or_default(),
        }
    }
}

async fn bill(stack: &Stack) -> Result<String, BenchError> {
    let version = stack.bill()?.query("SELECT version()").fetch_one();
    Ok(version.await.map_err(AuditError::from)?)
}

async fn postgres(stack: &Stack) -> Result<String, sqlx::Error> {
    let mut postgres = PgConnection::connect(&stack.postgres.url).await?;
    let version = sqlx::query_scalar("SHOW server_version");
    version.fetch_one(&mut postgres).await
}
