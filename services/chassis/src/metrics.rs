//! Instruments of one service, in a registry of their own: five services fit in one process, tests run side by side.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

/// Registers instruments under `apportion_<service>_` with the cell as a label. Register once, keep what comes back.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Mutex<Registry>>);

impl Metrics {
    /// An empty registry. A service finds its own in its context; this is for programs that are none.
    pub fn new(service: &str, cell: &str) -> Metrics {
        let prefix = format!("apportion_{}", service.replace('-', "_"));
        let cell = (Cow::Borrowed("cell"), Cow::Owned(cell.to_owned()));
        Metrics(Arc::new(Mutex::new(Registry::with_prefix_and_labels(
            prefix,
            [cell].into_iter(),
        ))))
    }

    /// Registers any instrument and gives it back; its clones count together.
    pub fn register<M: Metric + Clone>(
        &self,
        name: &'static str,
        help: &'static str,
        metric: M,
    ) -> M {
        self.lock().register(name, help, metric.clone());
        metric
    }

    /// A number that only grows; `_total` is added to its name.
    pub fn counter(&self, name: &'static str, help: &'static str) -> Counter {
        self.register(name, help, Counter::default())
    }

    /// A number that goes up and down.
    pub fn gauge(&self, name: &'static str, help: &'static str) -> Gauge {
        self.register(name, help, Gauge::default())
    }

    /// A distribution over the given upper bounds.
    pub fn histogram(&self, name: &'static str, help: &'static str, bounds: &[f64]) -> Histogram {
        self.register(name, help, Histogram::new(bounds.iter().copied()))
    }

    /// Everything in the text format that Prometheus reads.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.lock())?;
        Ok(text)
    }

    /// Registering is a push, so a panic elsewhere cannot leave the registry half changed.
    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_carry_the_service_and_samples_the_cell() {
        let metrics = Metrics::new("node-heartbeat", "local");
        metrics.counter("frames", "Frames appended").inc_by(3);
        metrics
            .histogram("append_seconds", "Publish to ack", &[0.001, 0.01])
            .observe(0.002);
        let text = metrics.text().expect("a string takes every write");
        for line in [
            "apportion_node_heartbeat_frames_total{cell=\"local\"} 3",
            "apportion_node_heartbeat_append_seconds_bucket{cell=\"local\",le=\"0.01\"} 1",
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
    }
}
