//! The bus goes away and comes back on the same port with the same store, while somebody waits for it.
//!
//! Time stands still meanwhile: no time-out, no heartbeat and no pause ever ends, so whatever goes on does so because it was
//! told that the connection broke. What is lost without a word is waited for in vain.

use bytes::Bytes;
use ledger::{AppendError, Bus, BusError, Inbox, Tail};
use ledger_nats::{
    cell,
    jetstream::{JetStreamBus, Link, Readers},
};
use std::{fs::File, path::PathBuf, sync::mpsc, time::Duration};
use testkit::NatsServer;
use tokio::select;
use vocab::{Lsn, Writer, subjects::Subjects};

/// Real time after which a test is given up, in place of hanging for ever. It says nothing of how long anything may take.
const GIVEN_UP: Duration = Duration::from_secs(120);

/// Returns the path of the ledger's only block.
fn block(server: &NatsServer) -> PathBuf {
    let block = "jetstream/$G/streams/APPORTION_c1_LEDGER/msgs/1.blk";
    server.store().join(block)
}

/// Restarts the server without the bytes behind `bytes`, and without its index.
fn restart_cut(server: &mut NatsServer, bytes: u64) {
    server.kill();
    let block = block(server);
    let opened = File::options().write(true).open(&block).unwrap();
    opened.set_len(bytes).unwrap();
    // The server writes it from time to time.
    let _ = std::fs::remove_file(block.with_file_name("index.db"));
    server.start_again();
}

/// Options that report a broken connection to `link`, and never wait between two attempts.
fn options(link: &Link) -> async_nats::ConnectOptions {
    let link = link.clone();
    async_nats::ConnectOptions::new()
        .reconnect_delay_callback(|_| Duration::ZERO)
        .event_callback(move |event| {
            link.note(&event);
            std::future::ready(())
        })
}

/// Creates a cell on the server.
async fn cell(server: &NatsServer) -> JetStreamBus {
    let link = Link::default();
    let client = options(&link).connect(server.url()).await.unwrap();
    let subjects = Subjects::new("c1");
    let jetstream = async_nats::jetstream::new(client.clone());
    cell::init(&jetstream, &subjects, cell::Chosen::default())
        .await
        .unwrap();
    JetStreamBus::open_among(client, &link, subjects, &Readers::default())
        .await
        .unwrap()
}

/// Runs `work` with a separate server, on a paused clock: a blocking task keeps the clock from running ahead while all wait
/// for the server.
async fn standing_still(work: impl AsyncFnOnce(&mut NatsServer)) {
    let mut server = NatsServer::start(None);
    let log = server.log();
    let (done, until) = mpsc::channel::<()>();
    let given_up = tokio::task::spawn_blocking(move || {
        // It is dropped when the work is done.
        let _ = until.recv_timeout(GIVEN_UP);
    });
    select! {
        () = work(&mut server) => drop(done),
        _ = given_up => {
            let log = std::fs::read_to_string(log).unwrap();
            panic!("what was lost is waited for in vain\n{log}");
        }
    }
}

/// Until it is acknowledged. Its retry finds a frame that had landed and is refused.
async fn put(bus: &JetStreamBus, expected: u64) {
    loop {
        let frame = Bytes::from_static(b"x");
        if bus
            .append(Writer::Quota, Lsn(expected), Lsn(0), frame.into())
            .await
            .is_ok()
        {
            return;
        }
        match bus.last(Writer::Quota).await {
            Ok(Some(last)) if last.lsn > Lsn(expected) => return,
            _ => {}
        }
    }
}

/// The next record. A reader sees nothing of what happens to the connection.
async fn next(tail: &mut <JetStreamBus as Bus>::Records, lsn: u64) {
    assert_eq!(tail.recv().await.unwrap().lsn, Lsn(lsn));
}

#[tokio::test(start_paused = true)]
async fn the_first_request_on_a_new_connection_is_answered() {
    standing_still(async |server| {
        // It listens.
        let bus = cell(server).await;
        let link = Link::default();
        let client = options(&link).connect(server.url()).await.unwrap();
        let (subjects, readers) = (bus.subjects().clone(), Readers::default());
        let new = JetStreamBus::open_among(client, &link, subjects, &readers)
            .await
            .unwrap();
        assert_eq!(new.end().await, Ok(Lsn(0)));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn followers_that_wait_go_on_as_soon_as_the_connection_is_back() {
    standing_still(async |server| {
        let bus = cell(server).await;
        put(&bus, 0).await;
        let mut first = bus.follow(Lsn(1)).await.unwrap();
        next(&mut first, 1).await;
        let mut second = bus.follow(Lsn(2)).await.unwrap();
        for lsn in 2..=4 {
            server.restart();
            let appended = async {
                // Both wait while there is nobody.
                tokio::task::yield_now().await;
                put(&bus, lsn - 1).await;
            };
            tokio::join!(appended, next(&mut first, lsn), next(&mut second, lsn));
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_inbox_that_waits_goes_on_as_soon_as_the_connection_is_back() {
    standing_still(async |server| {
        let bus = cell(server).await;
        let mut inbox = bus.inbox(Inbox::Ingress, 1).await.unwrap();
        let mut read = 0;
        for _ in 0..3 {
            server.restart();
            // What is sent to the dead server is lost, so it is sent until something is there.
            let published = async {
                loop {
                    let admin = bus.subjects().admin();
                    let client = bus.context().client();
                    client.publish(admin, "x".into()).await.unwrap();
                    match bus.inbox_end(Inbox::Ingress).await {
                        Ok(end) if end > read => return,
                        _ => {}
                    }
                }
            };
            let brought = async { inbox.recv().await.unwrap().seq };
            let ((), seq) = tokio::join!(published, brought);
            assert_eq!(seq, read + 1);
            read = bus.inbox_end(Inbox::Ingress).await.unwrap();
            for more in seq + 1..=read {
                assert_eq!(inbox.recv().await.unwrap().seq, more);
            }
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_append_whose_acknowledgement_is_lost_is_given_up_as_soon_as_the_connection_breaks() {
    standing_still(async |server| {
        let bus = cell(server).await;
        put(&bus, 0).await;
        // Sent to a server that is dead, of which the client does not know yet.
        let mut append = Box::pin(bus.append(
            Writer::Quota,
            Lsn(1),
            Lsn(0),
            Bytes::from_static(b"y").into(),
        ));
        server.kill();
        assert!(futures::poll!(&mut append).is_pending());
        // Nobody knows whether it has landed.
        assert!(matches!(append.await, Err(AppendError::Unknown(_))));
        server.restart();
        put(&bus, 1).await;
        assert_eq!(bus.end().await, Ok(Lsn(2)));
    })
    .await;
}

/// The server says nothing of it. A reader that only waited would be sent what others write there later.
#[tokio::test(start_paused = true)]
async fn who_has_read_more_than_a_server_comes_back_with_says_so_and_appends_nothing() {
    standing_still(async |server| {
        let bus = cell(server).await;
        put(&bus, 0).await;
        let bytes = std::fs::metadata(block(server)).unwrap().len();
        put(&bus, 1).await;
        put(&bus, 2).await;
        let mut read = bus.follow(Lsn(1)).await.unwrap();
        for lsn in 1..=3 {
            next(&mut read, lsn).await;
        }
        restart_cut(server, bytes);
        let shortened = read.recv().await.unwrap_err();
        let is_it = matches!(
            shortened,
            BusError::Shortened {
                end: Lsn(1),
                read: Lsn(3),
                ..
            }
        );
        assert!(is_it, "{shortened}");
        let frame = || Bytes::from_static(b"late");
        let append = loop {
            match bus
                .append(Writer::Scheduler, Lsn(0), Lsn(3), frame().into())
                .await
            {
                // The connection is not back.
                Err(AppendError::Unknown(_)) => {}
                append => break append,
            }
        };
        assert_eq!(append, Err(AppendError::Shortened(Lsn(1))));
        assert_eq!(bus.end().await, Ok(Lsn(1)));
    })
    .await;
}
