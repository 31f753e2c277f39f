//! Instruments of one service, in a registry of their own: five services fit in one process, tests run side by side.
//!
//! All names are in one namespace, `apportion_`, and every sample has the labels `cell` and `service`. What is measured is
//! declared as a [`Metric`], and `docs/metrics.md` is written from these declarations.

mod process;
mod shown;

pub use ledger::figures::{Figure, Kind, Metric};
pub(crate) use shown::Shown;

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{self, Registry};
use vocab::Level;

/// A gauge of what is no whole number, such as seconds.
pub type Fraction = Gauge<f64, AtomicU64>;

const BUILD_INFO: Metric = Metric::gauge(
    "apportion_build_info",
    "1; the labels say which build it is and up to which feature level it knows the ledger",
)
.by(&["version", "level"]);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Build {
    version: &'static str,
    level: u32,
}

/// What every service exports, whatever it does.
pub const OF_EVERY_SERVICE: &[&Metric] = &[
    &BUILD_INFO,
    &process::CPU_SECONDS,
    &process::RESIDENT_BYTES,
    &process::OPEN_FDS,
    &process::START_TIME,
    &crate::connect::NATS_EVENTS,
    &crate::telemetry::SPANS_LOST,
];

/// What a service exports that reads the ledger.
pub const OF_READERS: &[&Metric] = &[
    &crate::watch::LEDGER_END,
    &crate::watch::BUS_STORES,
    &crate::watch::BUS_STORE_BYTES,
    &crate::watch::BUS_STORE_LIMIT_BYTES,
    &crate::projection::CHANGES,
    &crate::projection::RETRIES,
    &crate::projection::LSN,
    &crate::projection::LAG_SECONDS,
    &crate::query::QUERY_SECONDS,
    &crate::query::QUERIES_DROPPED,
];

pub use crate::deciding::OF_DECIDERS;

/// Registers instruments in the namespace. Register once, keep what comes back.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Mutex<Registry>>);

impl Metrics {
    /// A registry with what every process says of itself. A service finds its own in its context; this is for programs that
    /// are none.
    pub fn new(service: &str, cell: &str) -> Metrics {
        let label = |name, value: &str| (Cow::Borrowed(name), Cow::Owned(value.to_owned()));
        let labels = [label("cell", cell), label("service", service)];
        let metrics = Metrics(Arc::new(Mutex::new(Registry::with_labels(
            labels.into_iter(),
        ))));
        let build = Build {
            version: env!("CARGO_PKG_VERSION"),
            level: Level::KNOWN.0,
        };
        let info: Family<Build, Gauge> = metrics.register(&BUILD_INFO, Family::default());
        info.get_or_create(&build).set(1);
        metrics
            .lock()
            .register_collector(Box::new(process::Process));
        metrics
    }

    /// Registers any instrument and gives it back; its clones count together.
    pub fn register<M: registry::Metric + Clone>(&self, declared: &Metric, metric: M) -> M {
        self.lock()
            .register(declared.family(), declared.help, metric.clone());
        metric
    }

    pub fn counter(&self, declared: &Metric) -> Counter {
        self.register(declared, Counter::default())
    }

    pub fn gauge(&self, declared: &Metric) -> Gauge {
        self.register(declared, Gauge::default())
    }

    pub fn fraction(&self, declared: &Metric) -> Fraction {
        self.register(declared, Fraction::default())
    }

    /// A distribution over the given upper bounds.
    pub fn histogram(&self, declared: &Metric, bounds: &[f64]) -> Histogram {
        self.register(declared, Histogram::new(bounds.iter().copied()))
    }

    /// What a decider's state shows, as it was shown last.
    pub(crate) fn shown(&self) -> Shown {
        let shown = Shown::default();
        self.lock().register_collector(Box::new(shown.clone()));
        shown
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
    use ledger::{Figures, Times};

    const FRAMES: Metric = Metric::counter("apportion_frames_total", "Frames appended");
    const APPEND: Metric = Metric::histogram("apportion_append_seconds", "Publish to ack");
    const WAITING: Metric = Metric::gauge("apportion_waiting", "Who waits").by(&["queue"]);
    const WAIT: Metric = Metric::histogram("apportion_wait_seconds", "How long");

    #[test]
    fn names_are_in_one_namespace_and_samples_say_the_service_and_the_cell() {
        let metrics = Metrics::new("node-heartbeat", "local");
        metrics.counter(&FRAMES).inc_by(3);
        metrics.histogram(&APPEND, &[0.001, 0.01]).observe(0.002);
        let shown = metrics.shown();
        let mut figures = Figures::default();
        figures.milli(&WAITING, &["a"], 1500);
        figures.whole(&WAITING, &["b"], 2);
        let mut times = Times::default();
        times.add(20);
        times.add(90_000_000);
        figures.times(&WAIT, &times);
        shown.set(figures);
        let text = metrics.text().expect("a string takes every write");
        let of = "cell=\"local\",service=\"node-heartbeat\"";
        for line in [
            format!("apportion_frames_total{{{of}}} 3"),
            format!("apportion_append_seconds_bucket{{{of},le=\"0.01\"}} 1"),
            "# HELP apportion_waiting Who waits.".to_owned(),
            format!("apportion_waiting{{{of},queue=\"a\"}} 1.5"),
            format!("apportion_waiting{{{of},queue=\"b\"}} 2.0"),
            format!("apportion_wait_seconds_bucket{{{of},le=\"0.01\"}} 0"),
            format!("apportion_wait_seconds_bucket{{{of},le=\"0.025\"}} 1"),
            format!("apportion_wait_seconds_bucket{{{of},le=\"+Inf\"}} 2"),
            format!("apportion_wait_seconds_count{{{of}}} 2"),
            format!("apportion_wait_seconds_sum{{{of}}} 90000.02"),
            "# EOF".to_owned(),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        for own in ["apportion_build_info", "process_open_fds"] {
            assert!(text.contains(&format!("\n{own}{{{of}")), "{own} in\n{text}");
        }
        shown.set(Figures::default());
        let text = metrics.text().expect("a string takes every write");
        assert!(!text.contains("apportion_waiting"), "{text}");
    }
}
