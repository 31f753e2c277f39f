//! Options of the measure.

use super::case::Case;
use replay::command::Size;
use std::{path::PathBuf, time::Duration};

#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// The file in which the launcher says how to reach the stack, which has tenants and nothing else. Without it nothing
    /// is measured, and the figures that are there are reported.
    #[arg(long, value_name = "PATH")]
    pub stack: Option<PathBuf>,
    /// Directory for the figures, a file for each case.
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    pub out: PathBuf,
    /// Which cases.
    #[arg(
        long,
        value_name = "CASES",
        value_delimiter = ',',
        default_value = "batched"
    )]
    pub case: Vec<Case>,
    /// Allocations that run in the case `live`.
    #[arg(
        long,
        default_value_t = 200_000,
        default_value_if("smoke", "true", "50")
    )]
    pub live: u64,
    #[command(flatten)]
    pub length: Length,
}

#[derive(Debug, Clone, clap::Args)]
pub struct Length {
    /// Only these rates, in tasks per second, instead of a search for the highest.
    #[arg(long, value_name = "RATES", value_delimiter = ',')]
    pub rate: Vec<f64>,
    /// Requests in one message, where there are many.
    #[arg(
        long,
        default_value_t = 500,
        default_value_if("smoke", "true", "20"),
        value_parser = clap::value_parser!(u64).range(2..=1000)
    )]
    pub batch: u64,
    /// Seconds for which each rate is measured.
    #[arg(long, default_value_t = 8.0, default_value_if("smoke", "true", "0.3"))]
    window_s: f64,
    /// Seconds for which each rate warms up before.
    #[arg(long, default_value_t = 3.0, default_value_if("smoke", "true", "0"))]
    warm_up_s: f64,
    /// Rates that the search may try.
    #[arg(long, default_value_t = 5, default_value_if("smoke", "true", "1"))]
    steps: u32,
    /// Short windows, for a first look.
    #[arg(long, conflicts_with = "smoke")]
    quick: bool,
    /// Requests that wait for nothing in the case `deep`.
    #[arg(
        long,
        default_value_t = 200_000,
        default_value_if("smoke", "true", "50")
    )]
    pub waiting: u64,
    /// Nothing but the highest rate.
    #[arg(skip)]
    pub highest_only: bool,
    #[command(flatten)]
    pub size: Size,
}

/// The rate at the smallest size, in tasks per second: several in a message.
pub const SMOKE_PER_S: f64 = 200.0;

/// Around a rate that was found before.
const AROUND: [f64; 3] = [0.85, 1.0, 1.15];

impl Length {
    /// Only the highest rate, within a minute.
    pub fn brief(found: Option<f64>, size: Size) -> Self {
        let around = |found: f64| AROUND.map(|part| part * found).to_vec();
        Self {
            rate: size.pick(found.map(around).unwrap_or_default(), vec![SMOKE_PER_S]),
            window_s: size.pick(5.0, 0.3),
            warm_up_s: size.pick(2.0, 0.0),
            batch: size.pick(500, 20),
            size,
            steps: 4,
            highest_only: true,
            ..Self::default()
        }
    }

    /// Rates that the search may try.
    pub fn steps(&self, case: Case) -> u32 {
        match case.at_length() {
            true => self.steps,
            false => self.steps.min(4),
        }
    }

    /// Warm-up and window.
    pub fn times(&self, case: Case) -> (Duration, Duration) {
        let (warm_up, window) = match (self.quick, case.at_length()) {
            (true, _) => (1.0, 3.0),
            (false, true) => (self.warm_up_s, self.window_s),
            (false, false) => (self.warm_up_s.min(2.0), self.window_s.min(5.0)),
        };
        (
            Duration::from_secs_f64(warm_up),
            Duration::from_secs_f64(window),
        )
    }
}

impl Default for Length {
    fn default() -> Self {
        Self {
            rate: Vec::new(),
            batch: 500,
            window_s: 8.0,
            warm_up_s: 3.0,
            steps: 5,
            quick: false,
            waiting: 200_000,
            highest_only: false,
            size: Size::default(),
        }
    }
}
