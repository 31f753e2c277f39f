//! Spans against a real OTLP receiver, and against none.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use chassis::{
    Attribute, Config, Context, Failure, Journey, Metrics, Service, Shutdown, SpanKind, Stamp,
    TelemetryConfig, TraceParent, run_service,
};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tonic::transport::{Identity, Server, ServerTlsConfig, server::TcpIncoming};
use tonic::{Request, Response, Status};

/// A span with the resource it came from.
type Received = (Vec<KeyValue>, Span);

struct Receiver(mpsc::UnboundedSender<Received>);

#[tonic::async_trait]
impl TraceService for Receiver {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        for batch in request.into_inner().resource_spans {
            let resource = batch.resource.unwrap_or_default().attributes;
            for span in batch.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                self.0
                    .send((resource.clone(), span))
                    .map_err(|_| Status::unavailable("the test is gone"))?;
            }
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

async fn receiver() -> (SocketAddr, mpsc::UnboundedReceiver<Received>) {
    receiver_of(Server::builder()).await
}

async fn receiver_of(mut server: Server) -> (SocketAddr, mpsc::UnboundedReceiver<Received>) {
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("loopback has a free port");
    let address = listener
        .local_addr()
        .expect("a bound listener has an address");
    let (sender, spans) = mpsc::unbounded_channel();
    let service = TraceServiceServer::new(Receiver(sender));
    tokio::spawn(
        server
            .add_service(service)
            .serve_with_incoming(TcpIncoming::from(listener)),
    );
    (address, spans)
}

/// Records three hops, a frame and what must not be recorded, then ends.
struct Traced;

const INBOX: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

impl Service for Traced {
    const NAME: &'static str = "quota";
    type Settings = ();

    async fn run(ctx: Context<()>) -> Result<(), Failure> {
        METRICS
            .lock()
            .map_err(|_| "a test panicked")?
            .insert(ctx.cell.name.clone(), ctx.metrics.clone());
        let journey: &Journey = &ctx.journey;
        let inbox = TraceParent::parse(INBOX).ok_or("a good header")?;
        let unsampled =
            TraceParent::new(inbox.trace_id(), inbox.span_id(), false).ok_or("good ids")?;
        let (start, end) = (
            Stamp::from_unix_ns(1_000_000_001),
            Stamp::from_unix_ns(1_000_000_777),
        );

        let attributes = [
            ("messaging.system", Attribute::from("nats")),
            ("frame", Attribute::from(7_u64)),
        ];
        let decided = journey.span(
            "process reserve",
            SpanKind::Consumer,
            &inbox,
            start,
            end,
            &attributes,
        );
        let publish = journey.open("publish frame", SpanKind::Producer, &decided, start);
        let published = publish.position();
        publish.end(end, &[]);
        journey.batch_span(
            "append",
            SpanKind::Producer,
            &[inbox, unsampled, published],
            start,
            end,
            &[],
        );

        if journey.span("unsampled", SpanKind::Consumer, &unsampled, start, end, &[]) != unsampled {
            return Err("an unsampled parent passes through".into());
        }
        if journey
            .batch_span(
                "unsampled",
                SpanKind::Consumer,
                &[unsampled],
                start,
                end,
                &[],
            )
            .is_some()
        {
            return Err("no sampled message, no span".into());
        }
        let root = journey.open_root("submit", SpanKind::Client, start);
        root.ok_or("a receiver is configured")?.end(end, &[]);
        Ok(())
    }
}

/// Where an instance leaves its metrics for the test, by the name of its cell.
static METRICS: Mutex<BTreeMap<String, Metrics>> = Mutex::new(BTreeMap::new());

fn config(cell: &str, endpoint: &str) -> Config<()> {
    let text = format!(
        r#"
        [cell]
        name = "{cell}"
        number = 1
        [nats]
        url = "nats://127.0.0.1:1"
        creds = {creds:?}
        [http]
        listen = "127.0.0.1:0"
        [telemetry]
        otlp_endpoint = "{endpoint}"
        "#,
        creds = crate::common::creds()
    );
    Config::from_toml(&text).unwrap_or_else(|refusal| panic!("{refusal}"))
}

/// A receiver that shows a certificate of its own making, and the file by which it is believed.
async fn encrypted_receiver(
    name: &str,
) -> (SocketAddr, mpsc::UnboundedReceiver<Received>, PathBuf) {
    let key = rcgen::KeyPair::generate().expect("randomness");
    let params = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).expect("an address");
    let shown = params.self_signed(&key).expect("a sound request").pem();
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("otlp-{name}.pem"));
    std::fs::write(&path, &shown).expect("the target directory is writable");
    let identity = Identity::from_pem(shown, key.serialize_pem());
    let server = Server::builder().tls_config(ServerTlsConfig::new().identity(identity));
    let (address, spans) = receiver_of(server.expect("a whole identity")).await;
    (address, spans, path)
}

fn encrypted(cell: &str, address: SocketAddr, ca_file: PathBuf) -> Config<()> {
    let mut config = config(cell, &format!("http://{address}"));
    config.telemetry = Some(TelemetryConfig {
        otlp_endpoint: format!("https://{address}"),
        ca_file: Some(ca_file),
    });
    config
}

#[tokio::test]
async fn spans_go_by_tls_to_whom_the_authority_vouches_for_and_to_nobody_else() {
    let (address, mut spans, believed) = encrypted_receiver("believed").await;
    let (_, _, other) = encrypted_receiver("other").await;
    for (cell, ca_file, arrived) in [("misled", other, 0), ("believing", believed, 4)] {
        let config = encrypted(cell, address, ca_file);
        run_service::<Traced>(config, Shutdown::new())
            .await
            .expect("the service ends well");
        let received = std::iter::from_fn(|| spans.try_recv().ok());
        assert_eq!(received.count(), arrived, "{cell}");
    }
}

fn text(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        any_value::Value::StringValue(text) => Some(text.clone()),
        other => Some(format!("{other:?}")),
    }
}

#[tokio::test]
async fn a_journey_arrives_whole_by_the_end_of_the_service() {
    let (address, mut spans) = receiver().await;
    run_service::<Traced>(
        config("present", &format!("http://{address}")),
        Shutdown::new(),
    )
    .await
    .expect("the service ends well");

    // The service's end is the flush: nothing is waited for here.
    let received: Vec<Received> = std::iter::from_fn(|| spans.try_recv().ok()).collect();
    let [(resource, decided), (_, published), (_, frame), (_, root)] = &received[..] else {
        panic!("four spans in the order they ended, not {received:#?}");
    };
    assert_eq!(
        text(resource, "service.name").as_deref(),
        Some("apportion-quota")
    );
    assert_eq!(
        text(resource, "service.namespace").as_deref(),
        Some("apportion")
    );
    assert_eq!(text(resource, "apportion.cell").as_deref(), Some("present"));
    assert_eq!(
        text(resource, "service.instance.id"),
        Some(chassis::instance())
    );

    let inbox = TraceParent::parse(INBOX).expect("a good header");
    assert_eq!(decided.name, "process reserve");
    assert_eq!(decided.kind, 5, "consumer");
    assert_eq!(decided.trace_id, inbox.trace_id());
    assert_eq!(decided.parent_span_id, inbox.span_id());
    assert_eq!(
        (decided.start_time_unix_nano, decided.end_time_unix_nano),
        (1_000_000_001, 1_000_000_777)
    );
    assert_eq!(
        text(&decided.attributes, "messaging.system").as_deref(),
        Some("nats")
    );
    let seven = Some(AnyValue {
        value: Some(any_value::Value::IntValue(7)),
    });
    assert!(
        decided
            .attributes
            .iter()
            .any(|attribute| attribute.key == "frame" && attribute.value == seven)
    );

    assert_eq!(published.name, "publish frame");
    assert_eq!(published.trace_id, inbox.trace_id());
    assert_eq!(published.parent_span_id, decided.span_id);

    assert_eq!(frame.name, "append");
    assert_ne!(frame.trace_id, inbox.trace_id());
    assert!(frame.parent_span_id.is_empty());
    let linked: Vec<_> = frame.links.iter().map(|link| &link.span_id[..]).collect();
    assert_eq!(linked, [&inbox.span_id()[..], &published.span_id[..]]);

    assert_eq!(root.name, "submit");
    assert!(root.parent_span_id.is_empty());
}

#[tokio::test]
async fn an_absent_receiver_costs_the_spans_and_nothing_else() {
    run_service::<Traced>(config("absent", "http://127.0.0.1:1"), Shutdown::new())
        .await
        .expect("the service ends well");
    let metrics = METRICS
        .lock()
        .expect("no test panics while it holds this")
        .remove("absent")
        .expect("it ran");
    let text = metrics.text().expect("a string takes every write");
    assert!(
        text.contains("apportion_spans_lost_total{cell=\"absent\",service=\"quota\"} 4"),
        "{text}"
    );
}

#[tokio::test]
async fn without_a_receiver_everything_passes_through() {
    let journey = Journey::disabled();
    let inbox = TraceParent::parse(INBOX).expect("a good header");
    let now = Stamp::now();
    assert!(!journey.enabled());
    assert_eq!(
        journey.span("process", SpanKind::Consumer, &inbox, now, now, &[]),
        inbox
    );
    assert_eq!(
        journey.batch_span("append", SpanKind::Producer, &[inbox], now, now, &[]),
        None
    );
    assert!(journey.open_root("submit", SpanKind::Client, now).is_none());
    journey.close(Duration::ZERO).await;
}
