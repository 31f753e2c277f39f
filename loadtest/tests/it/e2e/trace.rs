//! One request, one trace: from the client through every service to the bill.

use crate::e2e::suite::{DEADLINE, Outcome, Setup, Suite, eventually, small};
use chassis::{Journey, Metrics, SpanKind, Stamp, TelemetryConfig};
use client::Operation;
use replay::otlp::{Collector, Span};
use schemas::v1::{outcome::Result as Decided, request::Verb};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

/// Every durable event of a run that ended by itself, as a span of the service that decided it, and what no event says.
const EXPECTED: [(&str, &str); 10] = [
    ("admission", "allocation_requested"),
    ("quota", "quota_reserved"),
    ("scheduler", "allocation_placed"),
    ("node-heartbeat", "assign run"),
    ("node-heartbeat", "run_reported"),
    ("scheduler", "allocation_started"),
    ("node-heartbeat", "run_reported"),
    ("scheduler", "allocation_ended"),
    ("quota", "quota_released"),
    ("analytics", "bill allocation"),
];

/// From the root to a leaf: each below the one before, whatever stands between them.
const LINES: [&[&str]; 3] = [
    &[
        "submit",
        "allocation_requested",
        "quota_reserved",
        "allocation_placed",
        "assign run",
        "run_reported",
        "allocation_started",
    ],
    &[
        "submit",
        "assign run",
        "run_reported",
        "allocation_ended",
        "bill allocation",
    ],
    &["submit", "allocation_ended", "quota_released"],
];

/// The names on the way from the root to the span.
fn line<'s>(spans: &'s [Span], mut span: &'s Span) -> Vec<&'s str> {
    let mut names = vec![span.name.as_str()];
    while let Some(parent) = span.parent {
        let above = spans.iter().find(|span| span.span_id == parent);
        span = above.unwrap_or_else(|| panic!("no span above {span:?}"));
        names.push(&span.name);
        assert!(names.len() <= spans.len(), "a circle: {names:?}");
    }
    names.reverse();
    names
}

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
    let metrics = Metrics::new("client", cell);
    let journey = Journey::start("client", (cell, "the test"), Some(&config), &metrics)?;
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

    journey.close(DEADLINE).await;
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
        assert!(span.parent.is_some(), "{span:?}");
        assert!(span.start_ns <= span.end_ns, "{span:?}");
        assert!(span.end_ns >= root.start_ns, "{span:?}");
        let said = |name: &str| span.attributes.get(name).map(String::as_str);
        assert_eq!(said("messaging.system"), Some("nats"));
        assert_eq!(said("apportion.service"), Some(span.service.as_str()));
        assert_eq!(said("apportion.tenant"), Some("tenant-a"));
        let id = Some(submitted.allocation_id.as_str());
        assert_eq!(said("apportion.allocation.id"), id);
        let kind = match span.name.as_str() {
            "bill allocation" => "process",
            _ => "send",
        };
        assert_eq!(said("messaging.operation.type"), Some(kind), "{span:?}");
        assert!(said("messaging.operation.name").is_some(), "{span:?}");
        let destination = said("messaging.destination.name").unwrap_or_default();
        assert!(destination.contains(&format!(".{cell}.")), "{span:?}");
    }
    let found: Vec<_> = spans.iter().map(|span| line(&spans, span)).collect();
    for wanted in LINES {
        let holds = |names: &Vec<&str>| {
            let mut names = names.iter();
            wanted.iter().all(|name| names.any(|found| found == name))
        };
        assert!(found.iter().any(holds), "no {wanted:?} in {found:#?}");
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
