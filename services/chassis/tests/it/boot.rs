//! A service runs, answers for itself on a real port, and stops.

use std::net::TcpListener;

use chassis::{BootError, Metric, Shutdown, run_service};

use crate::common::{Tiny, config, get, start};

const FRAMES: Metric = Metric::counter("apportion_frames_total", "Frames");

#[tokio::test]
async fn health_tells_how_the_components_stand() {
    let running = start(config("")).await;
    let address = running.context.http_address;
    assert_eq!(
        get(address, "/readyz").await.0,
        503,
        "nothing has registered yet"
    );

    let ledger = running.context.health.component("ledger");
    let (status, body) = get(address, "/readyz").await;
    assert_eq!(
        (status, body.trim()),
        (
            503,
            r#"{"ok":false,"components":{"ledger":{"state":"not_ready","why":"starting"}}}"#
        )
    );

    ledger.ready();
    running
        .context
        .health
        .component("projection")
        .degraded("behind");
    assert_eq!(get(address, "/readyz").await.0, 200);
    assert_eq!(get(address, "/healthz").await.0, 200);

    ledger.failed("chain broken");
    let (status, body) = get(address, "/healthz").await;
    assert_eq!(status, 503);
    assert!(body.contains("chain broken"), "{body}");

    running.context.metrics.counter(&FRAMES).inc();
    let (status, body) = get(address, "/metrics").await;
    assert_eq!(status, 200);
    assert!(
        body.contains("apportion_frames_total{cell=\"test\",service=\"tiny-service\"} 1"),
        "{body}"
    );

    let (status, body) = get(address, "/").await;
    let about = format!(
        r#"{{"name":"tiny-service","version":"{}","cell":"test"}}"#,
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!((status, body.trim()), (200, about.as_str()));
    assert_eq!(get(address, "/other").await.0, 404);
}

#[tokio::test]
async fn a_stop_ends_the_service_and_frees_its_address() {
    let running = start(config("")).await;
    let address = running.context.http_address;
    let open = tokio::net::TcpStream::connect(address)
        .await
        .expect("the inbox is open");
    running.shutdown.trigger();
    running
        .end
        .await
        .expect("no panic")
        .expect("a requested stop is a clean end");
    drop(open);
    assert!(
        tokio::net::TcpStream::connect(address).await.is_err(),
        "the inbox is closed"
    );
}

#[tokio::test]
async fn a_service_can_stop_itself_without_stopping_its_neighbours() {
    let (first, second) = tokio::join!(start(config("")), start(config("")));
    first.context.shutdown.trigger();
    first
        .end
        .await
        .expect("no panic")
        .expect("an early end is a clean one");
    assert!(!first.shutdown.is_requested());
    let address = second.context.http_address;
    assert_eq!(get(address, "/healthz").await.0, 200);
    second.shutdown.trigger();
    second
        .end
        .await
        .expect("no panic")
        .expect("a requested stop is a clean end");
}

#[tokio::test]
async fn a_taken_address_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = taken.local_addr().expect("a bound listener has an address");
    let mut config = config("");
    config.http.listen = address;
    let refusal = run_service::<Tiny>(config, Shutdown::new())
        .await
        .expect_err("the port is taken");
    assert!(matches!(refusal, BootError::Listen { .. }), "{refusal:?}");
    assert_eq!(refusal.to_string(), format!("cannot listen on {address}"));
}

#[tokio::test]
async fn a_failure_keeps_its_reason() {
    let config = config("[service]\nfail = \"no snapshot\"");
    let refusal = run_service::<Tiny>(config, Shutdown::new())
        .await
        .expect_err("the service fails");
    let BootError::Service {
        service: "tiny-service",
        source,
    } = refusal
    else {
        panic!("{refusal:?}")
    };
    assert_eq!(source.to_string(), "no snapshot");
}

#[tokio::test]
async fn databases_may_be_away_at_the_start() {
    let more = r#"
        [postgres]
        url = "postgres://tiny:pw@127.0.0.1:1/apportion"
        schema = "tiny"
        [clickhouse]
        url = "http://127.0.0.1:1"
        user = "tiny"
        password = "pw"
        database = "apportion"
        "#;
    let running = start(config(more)).await;
    let pool = running.context.postgres().expect("a pool needs no server");
    assert_eq!(pool.size(), 0);
    running
        .context
        .clickhouse()
        .expect("a client needs no server");

    let without = start(config("")).await;
    for (table, refusal) in [
        ("postgres", without.context.postgres().err()),
        ("clickhouse", without.context.clickhouse().err()),
    ] {
        let text = refusal.expect("the table is missing").to_string();
        assert!(text.contains(&format!("{table}]`")), "{text}");
    }
}
