//! What came of it, as it is written down.

use super::{Load, Phase, audit::Audited, tally::Tally};
use crate::kit::usage::Used;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Serialize)]
pub struct Figures {
    /// Definite outcomes per second, with all clients asking as fast as they are answered.
    pub ops_per_s: u64,
    /// One operation at half of that rate, from the moment that it was due.
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub connections: usize,
    pub clients: usize,
    pub saturated: PhaseFigures,
    pub paced: PhaseFigures,
    pub used_saturated: Used,
    pub used_paced: Used,
    /// Operations that share one synced write.
    pub ops_per_frame: BTreeMap<&'static str, u64>,
    #[serde(flatten)]
    pub audited: Audited,
}

#[derive(Debug, Serialize)]
pub struct PhaseFigures {
    pub ops_per_s: u64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
    pub chain_p50_ms: f64,
    pub chain_p99_ms: f64,
    pub outcomes: BTreeMap<&'static str, u64>,
    pub sent_again: u64,
    pub never_answered: u64,
}

impl Figures {
    pub fn of(load: &Load, fast: (Phase, Used), paced: (Phase, Used), audited: Audited) -> Self {
        let (saturated, of_paced) = (PhaseFigures::of(&fast.0), PhaseFigures::of(&paced.0));
        let answered = fast.0.answered();
        let per_frame = |(name, frames): (&&'static str, &u64)| (*name, answered / frames.max(&1));
        Self {
            ops_per_s: saturated.ops_per_s,
            p50_ms: of_paced.p50_ms,
            p99_ms: of_paced.p99_ms,
            p999_ms: of_paced.p999_ms,
            connections: load.connections,
            clients: load.clients,
            ops_per_frame: fast.1.frames.iter().map(per_frame).collect(),
            saturated,
            paced: of_paced,
            used_saturated: fast.1,
            used_paced: paced.1,
            audited,
        }
    }
}

impl PhaseFigures {
    fn of(phase: &Phase) -> Self {
        let tally: &Tally = &phase.tally;
        Self {
            ops_per_s: (phase.answered() as f64 / phase.took.as_secs_f64()) as u64,
            p50_ms: tally.operation_ms(0.5),
            p99_ms: tally.operation_ms(0.99),
            p999_ms: tally.operation_ms(0.999),
            max_ms: tally.operation_ms(1.0),
            chain_p50_ms: tally.chain_ms(0.5),
            chain_p99_ms: tally.chain_ms(0.99),
            outcomes: tally.outcomes().clone(),
            sent_again: tally.sent_again(),
            never_answered: tally.never_answered(),
        }
    }
}
