//! Sends spans to an OTLP receiver and takes its absence calmly.

use std::fs;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use opentelemetry_otlp::{RetryPolicy, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanExporter};
use prometheus_client::metrics::counter::Counter;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

use crate::clock::Stopwatch;
use crate::config::TelemetryConfig;
use crate::error::Failure;
use crate::metrics::{Metric, Metrics};

/// Spans leave at least this often.
const EXPORT_INTERVAL: Duration = Duration::from_millis(500);
/// Spans beyond this many are dropped while the receiver is slow; nobody waits for it.
const QUEUE_SPANS_MAX: usize = 8_192;
const BATCH_SPANS_MAX: usize = 512;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

pub(crate) const SPANS_LOST: Metric = Metric::counter(
    "apportion_spans_lost_total",
    "Spans of traces that the receiver did not take",
);

/// The processor has a thread of its own for encoding and waiting; the connection itself lives on the current runtime.
pub(super) fn batch_processor(
    config: &TelemetryConfig,
    metrics: &Metrics,
) -> Result<BatchSpanProcessor, Failure> {
    let mut endpoint = Endpoint::from_shared(config.otlp_endpoint.clone())?
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(REQUEST_TIMEOUT);
    if let Some(path) = &config.ca_file {
        let authority = Certificate::from_pem(fs::read(path)?);
        endpoint = endpoint.tls_config(ClientTlsConfig::new().ca_certificate(authority))?;
    }
    let channel = endpoint.connect_lazy();
    let otlp = opentelemetry_otlp::SpanExporter::builder()
        .with_tonic()
        .with_channel(channel)
        // One more try outlives a connection that the receiver closed in the meantime.
        .with_retry_policy(RetryPolicy::recommended().with_max_retries(1))
        .build()?;
    let lost = metrics.counter(&SPANS_LOST);
    let batching = BatchConfigBuilder::default()
        .with_scheduled_delay(EXPORT_INTERVAL)
        .with_max_queue_size(QUEUE_SPANS_MAX)
        .with_max_export_batch_size(BATCH_SPANS_MAX)
        .build();
    let calm = Calm {
        inner: otlp,
        lost,
        warnings: Mutex::new(Warnings::default()),
        age: Stopwatch::start(),
    };
    Ok(BatchSpanProcessor::builder(calm)
        .with_batch_config(batching)
        .build())
}

/// Counts what is lost and warns seldom.
#[derive(Debug)]
struct Calm<E> {
    inner: E,
    lost: Counter,
    warnings: Mutex<Warnings>,
    age: Stopwatch,
}

impl<E: SpanExporter> SpanExporter for Calm<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let outcome = self.inner.export(batch).await;
        if let Err(error) = &outcome {
            self.lost.inc_by(u64::try_from(spans).unwrap_or(u64::MAX));
            let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(unsaid) = warnings.due(self.age.elapsed()) {
                tracing::warn!(%error, spans, unsaid, "spans lost");
            }
        }
        outcome
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

/// Lets one warning per interval through.
#[derive(Debug, Default)]
struct Warnings {
    last: Option<Duration>,
    unsaid: u64,
}

impl Warnings {
    /// At `age` of the exporter: the number of failures that went unsaid, if it is time to say something.
    fn due(&mut self, age: Duration) -> Option<u64> {
        if self
            .last
            .is_some_and(|last| age.saturating_sub(last) < WARNING_INTERVAL)
        {
            self.unsaid += 1;
            return None;
        }
        self.last = Some(age);
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_warning_per_interval() {
        let mut warnings = Warnings::default();
        let said: Vec<_> = [0, 1, 59, 60, 61, 119, 200]
            .map(|s| warnings.due(Duration::from_secs(s)))
            .into();
        assert_eq!(said, [Some(0), None, None, Some(2), None, None, Some(2)]);
    }
}
