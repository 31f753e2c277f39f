//! What is measured, as declarations, and what a decider's state shows of it, as readings. Pure: the shell exports both.

/// A metric as it is exported, without the labels `cell` and `service` that all have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Whole, with the unit behind what it measures; that of a counter ends in `_total`.
    pub name: &'static str,
    pub kind: Kind,
    pub labels: &'static [&'static str],
    /// What it says, and how many values its labels may have where that is not plain.
    pub help: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

impl Metric {
    /// A number that only grows.
    pub const fn counter(name: &'static str, help: &'static str) -> Self {
        Self::of(Kind::Counter, name, help)
    }

    /// A number that goes up and down.
    pub const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self::of(Kind::Gauge, name, help)
    }

    /// A distribution.
    pub const fn histogram(name: &'static str, help: &'static str) -> Self {
        Self::of(Kind::Histogram, name, help)
    }

    const fn of(kind: Kind, name: &'static str, help: &'static str) -> Self {
        Self {
            name,
            kind,
            labels: &[],
            help,
        }
    }

    /// One sample for each of these.
    pub const fn by(self, labels: &'static [&'static str]) -> Self {
        Self { labels, ..self }
    }

    /// Without what OpenMetrics puts behind a counter's name by itself.
    pub fn family(&self) -> &'static str {
        self.name.strip_suffix("_total").unwrap_or(self.name)
    }

    /// Its unit, by its name; empty: it counts things.
    pub fn unit(&self) -> &'static str {
        let family = self.family();
        let units = ["seconds", "bytes", "ratio"];
        let last = family.rsplit('_').next().unwrap_or_default();
        units.into_iter().find(|unit| *unit == last).unwrap_or("")
    }
}

/// What one sample of a metric says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figure {
    pub metric: &'static Metric,
    /// In the order of the metric's labels.
    pub labels: Vec<String>,
    pub value: Value,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Thousandths of the metric's unit.
    Milli(u64),
    Times(Times),
}

/// What a state shows at a moment. Samples of one metric stand together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures(Vec<Figure>);

impl Figures {
    pub fn whole(&mut self, metric: &'static Metric, labels: &[&str], value: u64) {
        self.milli(metric, labels, value.saturating_mul(1000));
    }

    /// In thousandths.
    pub fn milli(&mut self, metric: &'static Metric, labels: &[&str], value: u64) {
        self.add(metric, labels, Value::Milli(value));
    }

    pub fn times(&mut self, metric: &'static Metric, times: &Times) {
        self.add(metric, &[], Value::Times(times.clone()));
    }

    fn add(&mut self, metric: &'static Metric, labels: &[&str], value: Value) {
        self.0.push(Figure {
            metric,
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
            value,
        });
    }

    pub fn all(&self) -> &[Figure] {
        &self.0
    }
}

/// How long something took, counted by how long: of what this leader has decided since it began to lead.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Times {
    /// For each bound those up to it and above the one before, and last those above all.
    counts: [u64; Self::BOUNDS_MS.len() + 1],
    sum_ms: u64,
}

impl Times {
    /// From a decision at once to a day of waiting.
    pub const BOUNDS_MS: [u64; 14] = [
        10, 25, 100, 250, 1000, 2500, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000,
        14_400_000, 86_400_000,
    ];

    pub fn add(&mut self, ms: u64) {
        // There is one count more than there are bounds.
        self.counts[Self::BOUNDS_MS.partition_point(|bound| *bound < ms)] += 1;
        self.sum_ms = self.sum_ms.saturating_add(ms);
    }

    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub fn sum_ms(&self) -> u64 {
        self.sum_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_counts_at_the_first_bound_that_is_not_below_it() {
        let table = [
            (0, 0),
            (10, 0),
            (11, 1),
            (1000, 4),
            (86_400_000, 13),
            (86_400_001, 14),
            (u64::MAX, 14),
        ];
        for (ms, at) in table {
            let mut times = Times::default();
            times.add(ms);
            assert_eq!(
                times.counts().iter().position(|count| *count == 1),
                Some(at),
                "{ms}"
            );
            assert_eq!((times.count(), times.sum_ms()), (1, ms));
        }
    }

    #[test]
    fn a_unit_is_the_last_word_of_the_name() {
        for (name, unit) in [
            ("apportion_append_seconds", "seconds"),
            ("process_cpu_seconds_total", "seconds"),
            ("apportion_bus_store_limit_bytes", "bytes"),
            ("apportion_quota_used_ratio", "ratio"),
            ("apportion_frames_total", ""),
        ] {
            assert_eq!(Metric::gauge(name, "").unit(), unit, "{name}");
        }
    }
}
