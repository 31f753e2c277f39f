//! A small OTLP receiver that keeps the spans it gets, for the driver's trace and for tests.

use chassis::stack::ServerFiles;
use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::{KeyValue, any_value},
    trace::v1::Span as WireSpan,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::{net::TcpListener, task::JoinHandle};
use tonic::{
    Request, Response, Status,
    transport::{Identity, Server, ServerTlsConfig, server::TcpIncoming},
};

/// Spans beyond this many are not kept: a driver samples, and its memory has a bound.
const SPANS_MAX: usize = 100_000;

pub type TraceId = [u8; 16];
pub type SpanId = [u8; 8];

/// A span with the service it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    pub trace_id: TraceId,
    pub span_id: SpanId,
    /// None at the root.
    pub parent: Option<SpanId>,
    /// `service.name` of the resource, without the suite's prefix.
    pub service: String,
    pub name: String,
    /// Unix nanoseconds of the machine's clock.
    pub start_ns: u64,
    pub end_ns: u64,
    pub attributes: BTreeMap<String, String>,
    pub links: Vec<(TraceId, SpanId)>,
}

#[derive(Default)]
struct Kept {
    by_trace: BTreeMap<TraceId, Vec<Span>>,
    spans: usize,
    dropped: usize,
}

/// What arrived so far. Clones share it.
#[derive(Clone, Default)]
pub struct Spans(Arc<Mutex<Kept>>);

impl Spans {
    /// What is locked is only appended to, so a poisoned lock is as good as any.
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, span: Span) {
        let mut kept = self.kept();
        if kept.spans < SPANS_MAX {
            kept.spans += 1;
            kept.by_trace.entry(span.trace_id).or_default().push(span);
        } else {
            kept.dropped += 1;
        }
    }

    /// The spans of one trace, by start.
    pub fn trace(&self, trace_id: TraceId) -> Vec<Span> {
        let mut spans = self
            .kept()
            .by_trace
            .get(&trace_id)
            .cloned()
            .unwrap_or_default();
        spans.sort_by_key(|span| (span.start_ns, span.end_ns));
        spans
    }

    /// The services that took part in each trace.
    pub fn services_by_trace(&self) -> BTreeMap<TraceId, BTreeSet<String>> {
        let kept = self.kept();
        let services = |spans: &Vec<Span>| spans.iter().map(|span| span.service.clone()).collect();
        kept.by_trace
            .iter()
            .map(|(id, spans)| (*id, services(spans)))
            .collect()
    }

    /// Spans received and kept, and received but not kept.
    pub fn counts(&self) -> (usize, usize) {
        let kept = self.kept();
        (kept.spans, kept.dropped)
    }
}

/// Listens until it is dropped.
pub struct Collector {
    pub spans: Spans,
    pub address: SocketAddr,
    scheme: &'static str,
    task: JoinHandle<()>,
}

impl Collector {
    /// With a certificate: by TLS alone.
    pub async fn listen(address: SocketAddr, shown: Option<&ServerFiles>) -> io::Result<Self> {
        let mut server = Server::builder();
        if let Some(files) = shown {
            let (certificate, key) = (fs::read(&files.cert_file)?, fs::read(&files.key_file)?);
            let tls = ServerTlsConfig::new().identity(Identity::from_pem(certificate, key));
            server = server.tls_config(tls).map_err(io::Error::other)?;
        }
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let spans = Spans::default();
        let service = TraceServiceServer::new(Receiver(spans.clone()));
        let task = tokio::spawn(async move {
            let served = server
                .add_service(service)
                .serve_with_incoming(TcpIncoming::from(listener))
                .await;
            if let Err(error) = served {
                tracing::warn!(%error, "the span receiver has ended");
            }
        });
        Ok(Self {
            spans,
            address,
            scheme: if shown.is_some() { "https" } else { "http" },
            task,
        })
    }

    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Receiver(Spans);

#[tonic::async_trait]
impl TraceService for Receiver {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        for batch in request.into_inner().resource_spans {
            let resource = attributes(batch.resource.unwrap_or_default().attributes);
            let name = resource.get("service.name").map_or("", String::as_str);
            let service = name.strip_prefix("apportion-").unwrap_or(name);
            let spans = batch.scope_spans.into_iter().flat_map(|scope| scope.spans);
            for span in spans.filter_map(|span| read(service, span)) {
                self.0.keep(span);
            }
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

/// Nothing when the ids have another length than ids have.
fn read(service: &str, span: WireSpan) -> Option<Span> {
    let links = span.links.iter().filter_map(|link| {
        let trace_id = TraceId::try_from(&link.trace_id[..]).ok()?;
        Some((trace_id, SpanId::try_from(&link.span_id[..]).ok()?))
    });
    Some(Span {
        trace_id: TraceId::try_from(&span.trace_id[..]).ok()?,
        span_id: SpanId::try_from(&span.span_id[..]).ok()?,
        parent: SpanId::try_from(&span.parent_span_id[..]).ok(),
        service: service.to_owned(),
        links: links.collect(),
        name: span.name,
        start_ns: span.start_time_unix_nano,
        end_ns: span.end_time_unix_nano,
        attributes: attributes(span.attributes),
    })
}

fn attributes(pairs: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |pair: KeyValue| {
        let value = match pair.value?.value? {
            any_value::Value::StringValue(text) => text,
            any_value::Value::IntValue(number) => number.to_string(),
            any_value::Value::BoolValue(flag) => flag.to_string(),
            any_value::Value::DoubleValue(number) => number.to_string(),
            _ => return None,
        };
        Some((pair.key, value))
    };
    pairs.into_iter().filter_map(text).collect()
}
