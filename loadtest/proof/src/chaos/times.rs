//! How long after each fault the first outcome came, from the times of all submits. Pure.

use super::plan::{Fault, Kind};
use hdrhistogram::Histogram;
use replay::latency::{histogram, micros};
use serde::Serialize;
use std::time::Duration;

/// A fault as it was done. Times are since the beginning.
#[derive(Debug, Clone, Serialize)]
pub struct Done {
    pub no: usize,
    #[serde(flatten)]
    pub fault: Fault,
    #[serde(serialize_with = "as_ms")]
    pub injected_ms: Duration,
    /// Nothing is broken by it any more, as far as this side knows: what the launcher restarts may be starting still.
    #[serde(serialize_with = "as_ms")]
    pub healed_ms: Duration,
    /// Where the bus was away: when it took connections again.
    #[serde(serialize_with = "as_ms_or_null")]
    pub back_ms: Option<Duration>,
    /// From then to the first outcome of a submit.
    #[serde(serialize_with = "as_ms_or_null")]
    pub back_to_outcome_ms: Option<Duration>,
    /// From the injection to the first outcome of a submit that was sent after it; none came before the end.
    #[serde(serialize_with = "as_ms_or_null")]
    pub first_outcome_ms: Option<Duration>,
    /// The longest time without any outcome of a submit, until the next fault.
    #[serde(serialize_with = "as_ms")]
    pub gap_ms: Duration,
}

fn as_ms<S: serde::Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u128(time.as_millis())
}

fn as_ms_or_null<S: serde::Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => as_ms(time, to),
        None => to.serialize_none(),
    }
}

/// A row of the table, in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    pub kind: Kind,
    pub count: usize,
    pub p50_ms: u64,
    pub p99_ms: u64,
    pub max_ms: u64,
    /// Beyond how long the fault lasted by the plan: what the stack took to be itself again.
    pub beyond_p50_ms: u64,
    pub beyond_max_ms: u64,
    pub gap_max_ms: u64,
    /// From when the bus took connections again to the first outcome.
    pub back_p50_ms: Option<u64>,
    pub back_max_ms: Option<u64>,
    /// Faults after which no outcome came.
    pub without: usize,
}

/// Fills in what the submits' times say: `(sent, answered)`, in any order.
pub fn measure(faults: &mut [Done], submits: &[(Duration, Duration)], end: Duration) {
    let mut by_sent = submits.to_vec();
    by_sent.sort();
    // The first answer among all that were sent at or after each.
    let mut first = vec![Duration::MAX; by_sent.len() + 1];
    for (at, (_, answered)) in by_sent.iter().enumerate().rev() {
        first[at] = first[at + 1].min(*answered);
    }
    let mut answers: Vec<Duration> = submits.iter().map(|(_, answered)| *answered).collect();
    answers.sort();
    let injected: Vec<Duration> = faults.iter().map(|fault| fault.injected_ms).collect();
    for (at, fault) in faults.iter_mut().enumerate() {
        let from = fault.injected_ms;
        let after = by_sent.partition_point(|(sent, _)| *sent < from);
        let came = Some(first[after]).filter(|came| *came < Duration::MAX);
        fault.first_outcome_ms = came.map(|came| came.saturating_sub(from));
        fault.back_to_outcome_ms = fault.back_ms.and_then(|back| {
            let first = answers.partition_point(|answered| *answered < back);
            Some(answers.get(first)?.saturating_sub(back))
        });
        let until = injected.get(at + 1).copied().unwrap_or(end);
        fault.gap_ms = longest_gap(&answers, from, until);
    }
}

/// Between neighbours among the moments, as far as they lie in the window.
fn longest_gap(sorted: &[Duration], from: Duration, until: Duration) -> Duration {
    let first = sorted.partition_point(|moment| *moment <= from);
    let mut before = from;
    let mut longest = Duration::ZERO;
    for moment in sorted[first..].iter().take_while(|moment| **moment < until) {
        longest = longest.max(moment.saturating_sub(before));
        before = *moment;
    }
    longest.max(until.saturating_sub(before))
}

pub fn table(faults: &[Done], kinds: &[Kind]) -> Vec<Row> {
    let of = |kind: &Kind| -> Vec<&Done> {
        let those = faults.iter().filter(|done| done.fault.kind == *kind);
        those.collect()
    };
    let rows = kinds.iter().map(|kind| row(*kind, &of(kind)));
    rows.filter(|row| row.count > 0).collect()
}

fn row(kind: Kind, faults: &[&Done]) -> Row {
    let first = faults.iter().filter_map(|done| done.first_outcome_ms);
    let beyond = faults.iter().filter_map(|done| {
        let first = done.first_outcome_ms?;
        Some(first.saturating_sub(done.fault.length()))
    });
    let (first, beyond) = (Spread::of(first), Spread::of(beyond));
    let gaps = faults.iter().map(|done| done.gap_ms);
    let back = Spread::of(faults.iter().filter_map(|done| done.back_to_outcome_ms));
    let was_away = !back.times.is_empty();
    Row {
        kind,
        count: faults.len(),
        p50_ms: first.at(0.5),
        p99_ms: first.at(0.99),
        max_ms: first.max.as_millis() as u64,
        beyond_p50_ms: beyond.at(0.5),
        beyond_max_ms: beyond.max.as_millis() as u64,
        gap_max_ms: gaps.max().unwrap_or_default().as_millis() as u64,
        back_p50_ms: was_away.then(|| back.at(0.5)),
        back_max_ms: was_away.then_some(back.max.as_millis() as u64),
        without: faults.len() - first.times.len() as usize,
    }
}

struct Spread {
    times: Histogram<u64>,
    max: Duration,
}

impl Spread {
    fn of(all: impl Iterator<Item = Duration>) -> Self {
        let (mut times, mut max) = (histogram(), Duration::ZERO);
        for time in all {
            times.saturating_record(micros(time));
            max = max.max(time);
        }
        Self { times, max }
    }

    /// In milliseconds. A bucket of the histogram may end beyond all that is in it.
    fn at(&self, quantile: f64) -> u64 {
        let found = Duration::from_micros(self.times.value_at_quantile(quantile));
        found.min(self.max).as_millis() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn done(kind: Kind, injected: u64) -> Done {
        Done {
            no: 0,
            fault: Fault {
                kind,
                services: &[],
                length_ms: 0,
                clock_ahead_ms: 0,
                then_ms: 0,
            },
            injected_ms: ms(injected),
            healed_ms: ms(injected),
            back_ms: None,
            back_to_outcome_ms: None,
            first_outcome_ms: None,
            gap_ms: Duration::ZERO,
        }
    }

    #[test]
    fn the_first_outcome_is_of_what_was_sent_after_the_fault() {
        // Submits every 100 ms, answered after 10, but for those sent from 450 on, which wait until 900.
        let answer = |sent: u64| match sent {
            450..900 => 900,
            _ => sent + 10,
        };
        let submits: Vec<_> = (0..15)
            .map(|no| (ms(no * 100), ms(answer(no * 100))))
            .collect();
        let kind = Kind::RestartedAgent;
        let mut faults = [done(kind, 50), done(kind, 420), done(kind, 2_000)];
        faults[1].fault.length_ms = 100;
        // The submit that is answered at 900 was sent before.
        faults[1].back_ms = Some(ms(700));
        faults[2].back_ms = Some(ms(2_000));
        measure(&mut faults, &submits, ms(2_100));
        let first: Vec<_> = faults.iter().map(|fault| fault.first_outcome_ms).collect();
        assert_eq!(first, [Some(ms(60)), Some(ms(480)), None]);
        let gaps: Vec<_> = faults.iter().map(|fault| fault.gap_ms).collect();
        // The second one's longest is the last, when nobody asked any more; the third has nothing but a gap.
        assert_eq!(gaps, [ms(100), ms(590), ms(100)]);
        let back: Vec<_> = faults
            .iter()
            .map(|fault| fault.back_to_outcome_ms)
            .collect();
        assert_eq!(back, [None, Some(ms(200)), None]);
        let rows = table(&faults, &[Kind::KillTwo, kind]);
        assert_eq!(rows.len(), 1, "kinds that did not occur have no row");
        assert_eq!((rows[0].count, rows[0].without), (3, 1));
        assert_eq!((rows[0].p50_ms, rows[0].max_ms), (60, 480));
        assert_eq!((rows[0].beyond_p50_ms, rows[0].beyond_max_ms), (60, 380));
        assert_eq!(rows[0].gap_max_ms, 590);
        assert_eq!(
            (rows[0].back_p50_ms, rows[0].back_max_ms),
            (Some(200), Some(200))
        );
    }
}
