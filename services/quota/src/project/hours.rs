//! What was held in each hour, for trends.

use super::{Change, Key};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use vocab::{HOUR_MS, Millis};

/// One hour of an account and a resource type; or several, in which nothing changed and nothing else happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HourRow {
    pub hour: Millis,
    pub hours: u32,
    pub used_min: u64,
    pub used_max: u64,
    /// The sum of what was in use, times the milliseconds that it was.
    pub used_ms: u128,
    /// The milliseconds that the row speaks of, from the hour's beginning on.
    pub covered_ms: u64,
    pub reserved_max: u64,
    /// The limit at the end of what the row speaks of.
    pub hard: Option<u64>,
}

impl HourRow {
    /// A row for each of its hours.
    pub fn each_hour(self) -> impl Iterator<Item = Self> {
        let hours = i64::from(self.hours);
        let part = move |hour: i64| Self {
            hour: self.hour.plus(hour * HOUR_MS),
            hours: 1,
            used_ms: self.used_ms / u128::from(self.hours),
            covered_ms: self.covered_ms / u64::from(self.hours),
            ..self
        };
        (0..hours).map(part)
    }
}

/// The current hour of an account that holds something, or has in this hour.
#[derive(Debug, Serialize, Deserialize)]
struct Open {
    start: Millis,
    settled: Millis,
    reserved: u64,
    used: u64,
    used_min: u64,
    used_max: u64,
    used_ms: u128,
    reserved_max: u64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Hours {
    open: BTreeMap<Key, Open>,
    /// Of the current hour.
    end: Millis,
    /// Whose current hours this batch has to write.
    #[serde(skip)]
    changed: BTreeSet<Key>,
}

impl Open {
    fn new(start: Millis, (reserved, used): (u64, u64)) -> Self {
        Self {
            start,
            settled: start,
            reserved,
            used,
            used_min: used,
            used_max: used,
            used_ms: 0,
            reserved_max: reserved,
        }
    }

    fn settle(&mut self, now: Millis) {
        let passed = length(self.settled, now);
        self.used_ms += u128::from(self.used) * u128::from(passed);
        self.settled = self.settled.max(now);
    }

    fn change(&mut self, (reserved, used): (u64, u64), now: Millis) {
        self.settle(now);
        (self.reserved, self.used) = (reserved, used);
        self.used_min = self.used_min.min(used);
        self.used_max = self.used_max.max(used);
        self.reserved_max = self.reserved_max.max(reserved);
    }

    fn row(&self, hard: Option<u64>) -> HourRow {
        HourRow {
            hour: self.start,
            hours: 1,
            used_min: self.used_min,
            used_max: self.used_max,
            used_ms: self.used_ms,
            covered_ms: length(self.start, self.settled),
            reserved_max: self.reserved_max,
            hard,
        }
    }

    /// From one full hour to another, as it stands.
    fn stretch(&self, from: Millis, to: Millis, hard: Option<u64>) -> Option<HourRow> {
        let covered_ms = length(from, to);
        let hours = u32::try_from(covered_ms / HOUR_MS as u64).unwrap_or(u32::MAX);
        (hours > 0).then_some(HourRow {
            hour: from,
            hours,
            used_min: self.used,
            used_max: self.used,
            used_ms: u128::from(self.used) * u128::from(covered_ms),
            covered_ms,
            reserved_max: self.reserved,
            hard,
        })
    }
}

impl Hours {
    /// Whether its current hour has a row.
    pub fn is_open(&self, key: &Key) -> bool {
        self.open.contains_key(key)
    }

    /// Takes in what is held from now on, `(reserved, used)`.
    pub fn changed(&mut self, key: &Key, held: (u64, u64), now: Millis) {
        match self.open.get_mut(key) {
            Some(open) => open.change(held, now),
            None => {
                // What was not held before this was idle from the hour's beginning on.
                let mut open = Open::new(hour_of(now), (0, 0));
                open.change(held, now);
                self.open.insert(key.clone(), open);
            }
        }
        if !self.changed.contains(key) {
            self.changed.insert(key.clone());
        }
    }

    /// The current hours that have changed since the last time.
    pub fn rows(&mut self, hard: impl Fn(&Key) -> Option<u64>, out: &mut Vec<Change>) {
        for key in std::mem::take(&mut self.changed) {
            if let Some(open) = self.open.get(&key) {
                let row = open.row(hard(&key));
                out.push(Change::Hour(key, Box::new(row)));
            }
        }
    }

    /// Ends the hours that are over; whether there were any.
    pub fn roll(
        &mut self,
        now: Millis,
        hard: impl Fn(&Key) -> Option<u64>,
        out: &mut Vec<Change>,
    ) -> bool {
        if now < self.end {
            return false;
        }
        let (ended, current) = (self.end, hour_of(now));
        self.end = current.plus(HOUR_MS);
        self.changed.clear();
        self.open.retain(|key, open| {
            open.settle(ended);
            let hard = hard(key);
            out.push(Change::Hour(key.clone(), Box::new(open.row(hard))));
            if (open.reserved, open.used) == (0, 0) {
                return false;
            }
            let between = open.stretch(ended, current, hard);
            out.extend(between.map(|row| Change::Hour(key.clone(), Box::new(row))));
            *open = Open::new(current, (open.reserved, open.used));
            true
        });
        true
    }
}

fn hour_of(now: Millis) -> Millis {
    Millis(now.0.div_euclid(HOUR_MS) * HOUR_MS)
}

fn length(from: Millis, to: Millis) -> u64 {
    u64::try_from(to.0.saturating_sub(from.0)).unwrap_or(0)
}
