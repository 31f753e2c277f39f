//! One request, one trace: from the client through every service to the bill.

use crate::suite::{Outcome, Setup, Suite, eventually, small};
use chassis::{Journey, Metrics, SpanKind, Stamp, TelemetryConfig};
use client::Operation;
use replay::otlp::{Collector, Span};
use schemas::v1::{outcome::Result as Decided, request::Verb};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};

/// Every durable event of a run that ended by itself, as a span of the service that decided it.
const EXPECTED: [(&str, &str); 9] = [
    ("admission", "allocation_requested"),
    ("quota", "quota_reserved"),
    ("scheduler", "allocation_placed"),
    ("node-heartbeat", "run_reported"),
    ("scheduler", "allocation_started"),
    ("node-heartbeat", "run_reported"),
    ("scheduler", "allocation_ended"),
    ("quota", "quota_released"),
    ("analytics", "bill allocation"),
];

#[tokio::test]
async fn one_request_is_one_trace() -> Outcome {
    let collector = Collector::listen(SocketAddr::from(([127, 0, 0, 1], 0)), None).await?;
    let suite = Suite::with(Setup {
        otlp: Some(collector.address),
        ..Setup::default()
    })
    .await;
    let mut agent = suite.node("n1").await;
    let tenant = suite.tenant("tenant-a").await;

    let config = TelemetryConfig {
        otlp_endpoint: collector.url(),
        ca_file: None,
    };
    let cell = suite.subjects.cell();
    let journey = Journey::start("client", cell, Some(&config), &Metrics::new("client", cell))?;
    let root = journey
        .open_root("submit", SpanKind::Producer, Stamp::now())
        .expect("spans go somewhere");
    let position = root.position();
    let operation =
        Operation::new("traced", Verb::Submit(small("traced"))).traced(Some(position.to_string()));
    let outcome = tenant.call(&operation).await?;
    root.end(Stamp::now(), &[("apportion.operation", "traced".into())]);
    let Some(Decided::Submitted(submitted)) = outcome.result else {
        panic!("{outcome:?}");
    };
    // Another request, whose sender does not sample: of it there is nothing to be seen.
    let unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
    let operation = Operation::new("unsampled", Verb::Submit(small("unsampled")))
        .traced(Some(unsampled.to_owned()));
    tenant.call(&operation).await?;
    agent.run(&submitted.allocation_id, 5).await;

    journey.close(Duration::from_secs(10)).await;
    let spans = eventually("the whole trace", || async {
        let spans = collector.spans.trace(position.trace_id());
        (spans.len() > EXPECTED.len()).then_some(spans)
    })
    .await;

    let of_services = spans.iter().filter(|span| span.service != "client");
    let mut found: Vec<_> = of_services
        .clone()
        .map(|span| (span.service.as_str(), span.name.as_str()))
        .collect();
    let mut expected = EXPECTED.to_vec();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);

    let roots: Vec<&Span> = spans
        .iter()
        .filter(|span| span.service == "client")
        .collect();
    assert_eq!(roots.len(), 1);
    let root = roots[0];
    assert_eq!(
        (root.name.as_str(), root.parent, root.span_id),
        ("submit", None, position.span_id())
    );
    for span in of_services.clone() {
        assert_eq!(span.parent, Some(root.span_id), "{span:?}");
        assert!(span.start_ns <= span.end_ns, "{span:?}");
        assert!(span.end_ns >= root.start_ns, "{span:?}");
        assert_eq!(
            span.attributes.get("messaging.system").map(String::as_str),
            Some("nats")
        );
        assert_eq!(
            span.attributes.get("apportion.service"),
            Some(&span.service)
        );
    }
    let ids: BTreeSet<_> = spans.iter().map(|span| span.span_id).collect();
    assert_eq!(ids.len(), spans.len());

    // Nothing else was sampled, so nothing else was sent: no service begins a trace of its own.
    let traces: BTreeMap<_, _> = collector.spans.services_by_trace();
    assert_eq!(traces.keys().collect::<Vec<_>>(), [&position.trace_id()]);
    suite.close().await;
    assert_eq!(collector.spans.counts(), (EXPECTED.len() + 1, 0));
    Ok(())
}
