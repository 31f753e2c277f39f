//! The bus connection against a server that speaks just enough of the protocol to be away, to refuse and to come back.

use chassis::BootError;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufStream};
use tokio::net::{TcpListener, TcpStream};

use crate::common::{config, get, start};

const INFO: &str = concat!(
    r#"INFO {"server_id":"t","server_name":"t","version":"2.15.1","go":"","host":"127.0.0.1","port":1,"#,
    r#""max_payload":1048576,"proto":1,"client_id":1,"headers":true,"auth_required":true}"#,
    "\r\n"
);

/// Accepts one client, reads its greeting and answers it. Gives the CONNECT line and the open connection.
async fn greet(listener: &TcpListener, answer: &str) -> (String, BufStream<TcpStream>) {
    let (stream, _) = listener.accept().await.expect("loopback accepts");
    let mut stream = BufStream::new(stream);
    stream
        .write_all(INFO.as_bytes())
        .await
        .expect("the client reads");
    stream.flush().await.expect("the client reads");
    let mut connect = String::new();
    let mut line = String::new();
    while line != "PING\r\n" {
        line.clear();
        let read = stream
            .read_line(&mut line)
            .await
            .expect("the client writes UTF-8");
        assert!(read > 0, "the client left early");
        if line.starts_with("CONNECT ") {
            connect.clone_from(&line);
        }
    }
    stream
        .write_all(answer.as_bytes())
        .await
        .expect("the client reads");
    stream.flush().await.expect("the client reads");
    (connect, stream)
}

#[tokio::test]
async fn the_bus_may_come_late_and_go_away() {
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("loopback has a free port");
    let mut config = config("");
    config.nats.url = format!(
        "nats://{}",
        listener
            .local_addr()
            .expect("a bound listener has an address")
    );
    let running = start(config).await;
    let inbox = running.context.http_address;

    let server = async {
        drop(listener.accept().await.expect("loopback accepts"));
        greet(&listener, "PONG\r\n").await
    };
    let (client, (connect, open)) = tokio::join!(running.context.nats(), server);
    let client = client.expect("the second attempt gets through");
    for part in [r#""jwt":"none""#, r#""sig":""#, r#""name":"tiny-service""#] {
        assert!(connect.contains(part), "{part} in {connect}");
    }
    assert!(
        client.new_inbox().starts_with("_INBOX.tiny-service."),
        "{}",
        client.new_inbox()
    );
    while get(inbox, "/readyz").await.0 != 200 {}

    drop(open);
    while get(inbox, "/readyz").await.0 != 503 {}
    let (_, _open) = greet(&listener, "PONG\r\n").await;
    while get(inbox, "/readyz").await.0 != 200 {}
    let metrics = get(inbox, "/metrics").await.1;
    let counted = r#"apportion_nats_events_total{cell="test",service="tiny-service",connection="nats",event="disconnected"} 1"#;
    assert!(metrics.contains(counted), "{metrics}");
}

#[tokio::test]
async fn refused_credentials_are_not_tried_again() {
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("loopback has a free port");
    let mut config = config("");
    let held = config.nats.creds.clone();
    config.nats.url = format!(
        "nats://{}",
        listener
            .local_addr()
            .expect("a bound listener has an address")
    );
    let running = start(config).await;
    let server = greet(&listener, "-ERR 'Authorization Violation'\r\n");
    let (client, _) = tokio::join!(running.context.nats(), server);
    let refusal = client.expect_err("the server refuses");
    assert!(
        matches!(&refusal, BootError::NatsRefused { creds, .. } if *creds == held),
        "{refusal:?}"
    );
}

#[tokio::test]
async fn creds_are_read_again_at_every_connection() {
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("loopback has a free port");
    let mut config = config("");
    let address = listener.local_addr();
    config.nats.url = format!(
        "nats://{}",
        address.expect("a bound listener has an address")
    );
    config.nats.creds = config.nats.creds.with_file_name("replaced.creds");
    let path = config.nats.creds.clone();
    let write = |token: &str| {
        let creds = identity::Creds::new(token.to_owned(), nkeys::KeyPair::new_user());
        let text = creds.text().expect("the key is new");
        std::fs::write(&path, text).expect("the target directory is writable");
    };
    write("first");
    let running = start(config).await;
    let server = greet(&listener, "PONG\r\n");
    let (client, (connect, open)) = tokio::join!(running.context.nats(), server);
    client.expect("the server takes anybody");
    assert!(connect.contains(r#""jwt":"first""#), "{connect}");
    write("second");
    drop(open);
    let (connect, _open) = greet(&listener, "PONG\r\n").await;
    assert!(connect.contains(r#""jwt":"second""#), "{connect}");
}

#[tokio::test]
async fn a_stop_ends_the_wait_for_the_bus() {
    let running = start(config("")).await;
    let (client, ()) = tokio::join!(running.context.nats(), async { running.shutdown.trigger() });
    assert!(matches!(client, Err(BootError::Stopped)), "{client:?}");
    running
        .end
        .await
        .expect("no panic")
        .expect("a stop while starting is a clean end");
}
