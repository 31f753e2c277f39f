//! The spans of a request's way through the services.

use std::time::Duration;

use opentelemetry::trace::{
    Link, Span, SpanBuilder, SpanContext, SpanId, SpanKind, TraceContextExt, TraceFlags, TraceId,
    TraceState, TracerProvider,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{
    IdGenerator, RandomIdGenerator, Sampler, SdkTracer, SdkTracerProvider,
};
use std::cell::Cell;

use super::TraceParent;
use super::exporter::batch_processor;
use crate::clock::Stamp;
use crate::config::TelemetryConfig;
use crate::error::BootError;
use crate::metrics::Metrics;

/// A frame links at most this many of its messages; only the sampled ones, so a full frame of them is rare.
const LINKS_MAX: u32 = 1_024;

/// Records spans for one service. Whether a request is recorded is decided once, at the inbox, and travels with it: an
/// unsampled parent makes no span and costs one branch. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Journey(Option<Recorder>);

#[derive(Clone, Debug)]
struct Recorder {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

thread_local! {
    /// The id of the span that this thread makes next.
    static GIVEN: Cell<Option<SpanId>> = const { Cell::new(None) };
}

/// Random ids, but for spans whose id is given.
#[derive(Debug, Default)]
struct Ids(RandomIdGenerator);

impl IdGenerator for Ids {
    fn new_trace_id(&self) -> TraceId {
        self.0.new_trace_id()
    }

    fn new_span_id(&self) -> SpanId {
        GIVEN.take().unwrap_or_else(|| self.0.new_span_id())
    }
}

/// A value of a span's attribute, borrowed until a span is really made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribute<'a> {
    /// A name, an id, a subject.
    Text(&'a str),
    /// A count, a size, a position.
    Int(i64),
}

impl<'a> From<&'a str> for Attribute<'a> {
    fn from(text: &'a str) -> Attribute<'a> {
        Attribute::Text(text)
    }
}

impl From<i64> for Attribute<'_> {
    fn from(number: i64) -> Self {
        Attribute::Int(number)
    }
}

impl From<u64> for Attribute<'_> {
    /// Positions in a stream never come near the limit, so saturating loses nothing.
    fn from(number: u64) -> Self {
        Attribute::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl Journey {
    /// Records nothing.
    pub fn disabled() -> Journey {
        Journey(None)
    }

    /// Sends spans to the receiver in `config`, or records nothing without one. Needs a runtime to be entered.
    pub fn start(
        service: &str,
        (cell, instance): (&str, &str),
        config: Option<&TelemetryConfig>,
        metrics: &Metrics,
    ) -> Result<Journey, BootError> {
        let Some(config) = config else {
            return Ok(Journey::disabled());
        };
        let processor =
            batch_processor(config, metrics).map_err(|source| BootError::Telemetry {
                endpoint: config.otlp_endpoint.clone(),
                source,
            })?;
        let resource = Resource::builder_empty().with_attributes([
            KeyValue::new("service.name", format!("apportion-{service}")),
            KeyValue::new("service.namespace", "apportion"),
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("service.instance.id", instance.to_owned()),
            KeyValue::new("apportion.cell", cell.to_owned()),
        ]);
        let provider = SdkTracerProvider::builder()
            .with_resource(resource.build())
            .with_sampler(Sampler::AlwaysOn)
            .with_id_generator(Ids::default())
            .with_max_links_per_span(LINKS_MAX)
            .with_span_processor(processor)
            .build();
        let tracer = provider.tracer("apportion");
        Ok(Journey(Some(Recorder { provider, tracer })))
    }

    /// Whether spans go anywhere.
    pub fn enabled(&self) -> bool {
        self.0.is_some()
    }

    /// Records a finished piece of a sampled journey and gives the position below which the next piece hangs. Without
    /// a span that is the parent itself, so the journey passes through.
    pub fn span(
        &self,
        name: &'static str,
        kind: SpanKind,
        parent: &TraceParent,
        start: Stamp,
        end: Stamp,
        attributes: &[(&'static str, Attribute<'_>)],
    ) -> TraceParent {
        let open = self.open(name, kind, parent, start);
        let position = open.position();
        open.end(end, attributes);
        position
    }

    /// Records a finished piece as the span at `position`, which its parent's trace knows by then: for what others hang below
    /// without being told.
    pub fn span_at(
        &self,
        name: &'static str,
        kind: SpanKind,
        (position, parent): (&TraceParent, &TraceParent),
        (start, end): (Stamp, Stamp),
        attributes: &[(&'static str, Attribute<'_>)],
    ) {
        if self.enabled() && parent.sampled() {
            GIVEN.set(Some(SpanId::from_bytes(position.span_id())));
            self.span(name, kind, parent, start, end, attributes);
        }
    }

    /// Begins a piece whose position must travel before it is finished: the span of a publish, of a request.
    pub fn open(
        &self,
        name: &'static str,
        kind: SpanKind,
        parent: &TraceParent,
        start: Stamp,
    ) -> OpenSpan {
        match &self.0 {
            Some(recorder) if parent.sampled() => {
                let below = Context::new().with_remote_span_context(span_context(parent));
                let span = builder(name, kind, start).start_with_context(&recorder.tracer, &below);
                OpenSpan {
                    position: position(&span).unwrap_or(*parent),
                    span: Some(span),
                }
            }
            _ => OpenSpan {
                position: *parent,
                span: None,
            },
        }
    }

    /// Begins a journey that is recorded, for the inbox that decided to sample it. Nothing when spans go nowhere.
    pub fn open_root(&self, name: &'static str, kind: SpanKind, start: Stamp) -> Option<OpenSpan> {
        let recorder = self.0.as_ref()?;
        let span = builder(name, kind, start).start_with_context(&recorder.tracer, &Context::new());
        Some(OpenSpan {
            position: position(&span)?,
            span: Some(span),
        })
    }

    /// Records what was done once for many messages, as a trace of its own that links the sampled ones. Nothing when
    /// none of them is sampled.
    pub fn batch_span(
        &self,
        name: &'static str,
        kind: SpanKind,
        links: &[TraceParent],
        start: Stamp,
        end: Stamp,
        attributes: &[(&'static str, Attribute<'_>)],
    ) -> Option<TraceParent> {
        let recorder = self.0.as_ref()?;
        let sampled = links.iter().filter(|link| link.sampled());
        let links: Vec<Link> = sampled
            .map(|link| Link::with_context(span_context(link)))
            .collect();
        if links.is_empty() {
            return None;
        }
        let builder = builder(name, kind, start).with_links(links);
        let span = builder.start_with_context(&recorder.tracer, &Context::new());
        let position = position(&span)?;
        OpenSpan {
            position,
            span: Some(span),
        }
        .end(end, attributes);
        Some(position)
    }

    /// Sends what is recorded and records nothing more. Gives up at the deadline: a receiver that is away must not hold
    /// up the end of a process. The waiting is done off the runtime, which has to keep the connection going meanwhile.
    pub async fn close(&self, deadline: Duration) {
        let Some(recorder) = &self.0 else {
            return;
        };
        let provider = recorder.provider.clone();
        let closing = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(deadline));
        if let Ok(Err(error)) = closing.await {
            tracing::warn!(%error, "spans not flushed");
        }
    }
}

/// A span that has begun. Its position may travel already; dropping it ends it now and without attributes.
#[derive(Debug)]
#[must_use = "a span is recorded when it ends"]
pub struct OpenSpan {
    position: TraceParent,
    span: Option<opentelemetry_sdk::trace::Span>,
}

impl OpenSpan {
    /// Where the next piece of the journey hangs.
    pub fn position(&self) -> TraceParent {
        self.position
    }

    /// Finishes and records it.
    pub fn end(self, end: Stamp, attributes: &[(&'static str, Attribute<'_>)]) {
        let Some(mut span) = self.span else {
            return;
        };
        span.set_attributes(attributes.iter().map(|(key, value)| match value {
            Attribute::Text(text) => KeyValue::new(*key, (*text).to_owned()),
            Attribute::Int(number) => KeyValue::new(*key, *number),
        }));
        span.end_with_timestamp(end.system_time());
    }
}

fn builder(name: &'static str, kind: SpanKind, start: Stamp) -> SpanBuilder {
    SpanBuilder::from_name(name)
        .with_kind(kind)
        .with_start_time(start.system_time())
}

/// Nothing after the recorder was closed: its spans have no ids then.
fn position(span: &opentelemetry_sdk::trace::Span) -> Option<TraceParent> {
    let context = span.span_context();
    TraceParent::new(
        context.trace_id().to_bytes(),
        context.span_id().to_bytes(),
        context.is_sampled(),
    )
}

fn span_context(parent: &TraceParent) -> SpanContext {
    SpanContext::new(
        TraceId::from_bytes(parent.trace_id()),
        SpanId::from_bytes(parent.span_id()),
        if parent.sampled() {
            TraceFlags::SAMPLED
        } else {
            TraceFlags::default()
        },
        true,
        TraceState::NONE,
    )
}
