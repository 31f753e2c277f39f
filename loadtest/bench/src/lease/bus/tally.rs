//! What was answered, and how fast.

use hdrhistogram::Histogram;
use proof::history::Answer;
use replay::latency::{histogram, micros, quantile_ms};
use std::{collections::BTreeMap, time::Duration};

#[derive(Debug)]
pub struct Tally {
    /// Microseconds of one operation.
    operations: Histogram<u64>,
    /// Microseconds of a whole chain.
    chains: Histogram<u64>,
    outcomes: BTreeMap<&'static str, u64>,
    in_window: u64,
    again: u64,
    lost: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            operations: histogram(),
            chains: histogram(),
            outcomes: BTreeMap::new(),
            in_window: 0,
            again: 0,
            lost: 0,
        }
    }
}

impl Tally {
    /// It was answered; within the window or after it.
    pub fn operation(&mut self, took: Duration, in_window: bool) {
        self.operations.saturating_record(micros(took));
        self.in_window += u64::from(in_window);
    }

    pub fn chain(&mut self, took: Duration) {
        self.chains.saturating_record(micros(took));
    }

    pub fn outcome(&mut self, answer: Option<Answer>, lsn: u64) {
        let name = match answer {
            Some(Answer::Created) => "created",
            Some(Answer::Granted { .. }) => "granted",
            Some(Answer::Confirmed) => "confirmed",
            Some(Answer::Released { .. }) => "released",
            Some(Answer::Revoked { .. }) => "revoked",
            Some(Answer::Reclaimed) => "reclaimed",
            Some(Answer::Refused { rule }) if lsn > 0 => rule.name(),
            Some(Answer::Refused { .. }) => "refused_unwritten",
            None => "unknown",
        };
        *self.outcomes.entry(name).or_default() += 1;
    }

    /// It was sent again, because nobody knew what had become of it.
    pub fn again(&mut self) {
        self.again += 1;
    }

    /// It will never have an outcome.
    pub fn lost(&mut self) {
        self.lost += 1;
    }

    /// Definite outcomes within the window.
    pub fn answered(&self) -> u64 {
        self.in_window
    }

    pub fn sent_again(&self) -> u64 {
        self.again
    }

    pub fn never_answered(&self) -> u64 {
        self.lost
    }

    pub fn outcomes(&self) -> &BTreeMap<&'static str, u64> {
        &self.outcomes
    }

    pub fn operation_ms(&self, quantile: f64) -> f64 {
        quantile_ms(&self.operations, quantile)
    }

    pub fn chain_ms(&self, quantile: f64) -> f64 {
        quantile_ms(&self.chains, quantile)
    }
}
