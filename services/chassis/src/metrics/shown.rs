//! What a decider's state shows, as samples. They are written from what was shown last, so a queue that is gone leaves none.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ledger::Figures;
use ledger::figures::{Figure, Kind, Times, Value};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

#[derive(Clone, Debug, Default)]
pub(crate) struct Shown(Arc<Mutex<Figures>>);

impl Shown {
    pub fn set(&self, figures: Figures) {
        *self.lock() = figures;
    }

    /// It is replaced whole.
    fn lock(&self) -> MutexGuard<'_, Figures> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collector for Shown {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let figures = self.lock();
        for samples in figures
            .all()
            .chunk_by(|one, next| one.metric == next.metric)
        {
            // A chunk has at least one.
            let metric = samples[0].metric;
            let kind = match metric.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let help = format!("{}.", metric.help);
            let mut family = encoder.encode_descriptor(metric.family(), &help, None, kind)?;
            for sample in samples {
                one(&mut family, sample)?;
            }
        }
        Ok(())
    }
}

fn one(family: &mut MetricEncoder<'_>, sample: &Figure) -> fmt::Result {
    if sample.labels.is_empty() {
        return value(family, &sample.value);
    }
    let names = sample.metric.labels.iter().copied();
    let labels: Vec<(&str, &str)> = names
        .zip(sample.labels.iter().map(String::as_str))
        .collect();
    value(&mut family.encode_family(&labels)?, &sample.value)
}

fn value(encoder: &mut MetricEncoder<'_>, value: &Value) -> fmt::Result {
    match value {
        Value::Milli(milli) => encoder.encode_gauge(&of_milli(*milli)),
        Value::Times(times) => {
            let bounds = Times::BOUNDS_MS.iter().map(|ms| of_milli(*ms));
            let bounds = bounds.chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(times.counts().iter().copied()).collect();
            let (sum, count) = (of_milli(times.sum_ms()), times.count());
            encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
        }
    }
}

fn of_milli(milli: u64) -> f64 {
    milli as f64 / 1000.0
}
