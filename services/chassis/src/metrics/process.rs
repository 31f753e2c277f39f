//! What the operating system says of this process, under the names that all exporters of Prometheus give it. Services in one
//! process say the same.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::Metric;

pub(super) const CPU_SECONDS: Metric = Metric::counter(
    "process_cpu_seconds_total",
    "CPU time of the process, in user and system mode",
);
pub(super) const RESIDENT_BYTES: Metric = Metric::gauge(
    "process_resident_memory_bytes",
    "Memory of the process that is in RAM",
);
pub(super) const OPEN_FDS: Metric = Metric::gauge(
    "process_open_fds",
    "File descriptors that the process has open",
);
pub(super) const START_TIME: Metric = Metric::gauge(
    "process_start_time_seconds",
    "When the process began, in seconds since 1970",
);

/// Looked up at each scrape. Where there is no `/proc`, nothing is said.
#[derive(Debug)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let Ok(found) = found() else {
            return Ok(());
        };
        let mut say = |metric: &Metric, value: &dyn Say| value.say(metric, &mut encoder);
        say(&CPU_SECONDS, &ConstCounter::new(found.cpu_seconds))?;
        say(&RESIDENT_BYTES, &ConstGauge::new(found.resident_bytes))?;
        say(&OPEN_FDS, &ConstGauge::new(found.open_fds))?;
        say(&START_TIME, &ConstGauge::new(found.started))
    }
}

struct Found {
    cpu_seconds: f64,
    resident_bytes: u64,
    open_fds: u64,
    started: f64,
}

fn found() -> procfs::ProcResult<Found> {
    let process = procfs::process::Process::myself()?;
    let stat = process.stat()?;
    let seconds = |ticks: u64| ticks as f64 / procfs::ticks_per_second() as f64;
    Ok(Found {
        cpu_seconds: seconds(stat.utime + stat.stime),
        resident_bytes: stat.rss * procfs::page_size(),
        open_fds: process.fd_count()? as u64,
        started: procfs::boot_time_secs()? as f64 + seconds(stat.starttime),
    })
}

/// A value that is made for one scrape.
trait Say {
    fn say(&self, metric: &Metric, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result;
}

impl<M: EncodeMetric> Say for M {
    fn say(&self, metric: &Metric, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = format!("{}.", metric.help);
        let kind = self.metric_type();
        self.encode(encoder.encode_descriptor(metric.family(), &help, None, kind)?)
    }
}
