//! The driver's book of operations: what was sent, what was answered, how long it took.

use client::Outcome;
use hdrhistogram::Histogram;
use schemas::v1::{outcome::Result as Decided, submitted::State};
use std::{collections::BTreeMap, time::Duration};
use vocab::Rule;

/// Latencies beyond this are recorded as this.
const LATENCY_MAX_US: u64 = 3_600_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Submit,
    Cancel,
}

#[derive(Debug)]
struct Entry {
    verb: Verb,
    pod: usize,
    decided: Option<Decided>,
    contradicted: bool,
}

/// Every operation of the replay, by its id.
#[derive(Debug)]
pub struct Desk {
    entries: BTreeMap<String, Entry>,
    /// Allocations and the pods they are for.
    allocations: BTreeMap<String, usize>,
    /// An allocation that answers two operations.
    shared_allocations: u64,
    latency_us: Histogram<u64>,
    pub retries: u64,
    /// Why operations have no outcome, for those that were given up.
    pub given_up: Vec<String>,
}

/// Sums over the book.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tally {
    pub requests: u64,
    pub outcomes: u64,
    /// Operations with two outcomes that differ, and allocations that answer two operations.
    pub contradicted: u64,
    pub submits: u64,
    pub accepted: u64,
    /// Placed, waiting or ended at the first scheduling decision.
    pub first_state: BTreeMap<&'static str, u64>,
    pub refused: BTreeMap<&'static str, u64>,
    pub cancels: u64,
    pub cancels_accepted: u64,
    pub cancels_refused: BTreeMap<&'static str, u64>,
    pub retries: u64,
}

/// Milliseconds from the moment an operation was due to its outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct Latency {
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
}

impl Default for Desk {
    fn default() -> Self {
        let latency_us = Histogram::new_with_bounds(1, LATENCY_MAX_US, 3);
        Self {
            entries: BTreeMap::new(),
            allocations: BTreeMap::new(),
            shared_allocations: 0,
            latency_us: latency_us.expect("the bounds are in order and three digits are allowed"),
            retries: 0,
            given_up: Vec::new(),
        }
    }
}

impl Desk {
    /// An operation is about to be sent for the first time.
    pub fn sent(&mut self, id: &str, verb: Verb, pod: usize) {
        self.entries.entry(id.to_owned()).or_insert(Entry {
            verb,
            pod,
            decided: None,
            contradicted: false,
        });
    }

    /// An outcome arrived, for the first time or again. Later ones must say the same.
    pub fn answered(&mut self, outcome: &Outcome) {
        let Some(entry) = self.entries.get_mut(&outcome.operation_id) else {
            return;
        };
        match (&entry.decided, &outcome.result) {
            (None, Some(decided)) => {
                if let Decided::Submitted(submitted) = decided {
                    let before = self
                        .allocations
                        .insert(submitted.allocation_id.clone(), entry.pod);
                    self.shared_allocations += u64::from(before.is_some());
                }
                entry.decided = Some(decided.clone());
            }
            (first, again) => entry.contradicted |= first != again,
        }
    }

    pub fn took(&mut self, latency: Duration) {
        let us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.latency_us
            .saturating_record(us.clamp(1, LATENCY_MAX_US));
    }

    /// Allocations that were accepted.
    pub fn allocations(&self) -> impl Iterator<Item = &str> {
        self.allocations.keys().map(String::as_str)
    }

    /// Operations without an outcome.
    pub fn open(&self) -> impl Iterator<Item = &str> {
        let open = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.decided.is_none());
        open.map(|(id, _)| id.as_str())
    }

    pub fn latency(&self) -> Latency {
        let at = |quantile| self.latency_us.value_at_quantile(quantile) as f64 / 1000.0;
        Latency {
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            max_ms: self.latency_us.max() as f64 / 1000.0,
        }
    }

    pub fn tally(&self) -> Tally {
        let mut tally = Tally {
            requests: self.entries.len() as u64,
            contradicted: self.shared_allocations,
            retries: self.retries,
            ..Tally::default()
        };
        for entry in self.entries.values() {
            tally.contradicted += u64::from(entry.contradicted);
            tally.outcomes += u64::from(entry.decided.is_some());
            match entry.verb {
                Verb::Submit => tally.submits += 1,
                Verb::Cancel => tally.cancels += 1,
            }
            match (entry.verb, &entry.decided) {
                (_, None) => {}
                (Verb::Submit, Some(Decided::Submitted(submitted))) => {
                    tally.accepted += 1;
                    *tally
                        .first_state
                        .entry(state_name(submitted.state.as_ref()))
                        .or_default() += 1;
                }
                (Verb::Cancel, Some(Decided::Cancelled(_))) => tally.cancels_accepted += 1,
                (verb, Some(Decided::Refused(refused))) => {
                    let rule = refused
                        .refusal
                        .as_ref()
                        .and_then(|refusal| Rule::from_number(refusal.rule));
                    let name = rule.map_or("unknown_rule", Rule::name);
                    let by_reason = match verb {
                        Verb::Submit => &mut tally.refused,
                        Verb::Cancel => &mut tally.cancels_refused,
                    };
                    *by_reason.entry(name).or_default() += 1;
                }
                // The outcome of another verb.
                (Verb::Submit | Verb::Cancel, Some(_)) => tally.contradicted += 1,
            }
        }
        tally
    }
}

fn state_name(state: Option<&State>) -> &'static str {
    match state {
        Some(State::Placed(_)) => "placed",
        Some(State::Waiting(_)) => "waiting",
        Some(State::Ended(_)) => "ended",
        None => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::v1::{Cancelled, Refusal, Refused, Submitted, Waiting};

    fn outcome(id: &str, decided: Decided) -> Outcome {
        Outcome {
            operation_id: id.to_owned(),
            lsn: 1,
            result: Some(decided),
        }
    }

    fn submitted(allocation: &str) -> Decided {
        Decided::Submitted(Submitted {
            allocation_id: allocation.to_owned(),
            state: Some(State::Waiting(Waiting::default())),
        })
    }

    fn refused(rule: Rule) -> Decided {
        Decided::Refused(Refused {
            refusal: Some(Refusal {
                rule: rule.number(),
                ..Refusal::default()
            }),
            ..Refused::default()
        })
    }

    #[test]
    fn an_operation_counts_once_however_often_it_is_sent_and_answered() {
        let mut desk = Desk::default();
        for _ in 0..2 {
            desk.sent("a", Verb::Submit, 0);
            desk.answered(&outcome("a", submitted("x")));
        }
        desk.sent("b", Verb::Submit, 1);
        desk.sent("c", Verb::Submit, 2);
        desk.answered(&outcome("c", refused(Rule::QuotaExceeded)));
        desk.sent("d", Verb::Cancel, 0);
        desk.answered(&outcome("d", Decided::Cancelled(Cancelled::default())));
        desk.answered(&outcome("of somebody else", submitted("y")));
        let tally = desk.tally();
        assert_eq!(
            (tally.requests, tally.outcomes, tally.contradicted),
            (4, 3, 0)
        );
        assert_eq!(
            (tally.submits, tally.accepted, tally.cancels_accepted),
            (3, 1, 1)
        );
        assert_eq!(tally.refused, BTreeMap::from([("quota_exceeded", 1)]));
        assert_eq!(tally.first_state, BTreeMap::from([("waiting", 1)]));
        assert_eq!(desk.open().collect::<Vec<_>>(), ["b"]);
        assert_eq!(desk.allocations().collect::<Vec<_>>(), ["x"]);
    }

    #[test]
    fn another_answer_to_the_same_operation_is_found() {
        let contradicted = |first: (&str, Decided), second: (&str, Decided)| {
            let mut desk = Desk::default();
            desk.sent("a", Verb::Submit, 0);
            desk.sent("b", Verb::Submit, 1);
            desk.answered(&outcome(first.0, first.1));
            desk.answered(&outcome(second.0, second.1));
            desk.tally().contradicted
        };
        assert_eq!(
            contradicted(("a", submitted("x")), ("a", refused(Rule::QuotaExceeded))),
            1
        );
        assert_eq!(
            contradicted(("a", submitted("x")), ("a", submitted("y"))),
            1
        );
        assert_eq!(
            contradicted(("a", submitted("x")), ("b", submitted("x"))),
            1,
            "one allocation for two"
        );
        assert_eq!(
            contradicted(("a", submitted("x")), ("b", submitted("y"))),
            0
        );
    }

    #[test]
    fn latencies_have_quantiles() {
        let mut desk = Desk::default();
        for ms in 1..=1000 {
            desk.took(Duration::from_millis(ms));
        }
        let latency = desk.latency();
        let near = |value: f64, expected: f64| (value - expected).abs() <= expected / 500.0;
        assert!(
            near(latency.p50_ms, 500.0) && near(latency.p99_ms, 990.0),
            "{latency:?}"
        );
        assert!(near(latency.max_ms, 1000.0));
    }
}
