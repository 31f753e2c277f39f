//! Many clients, services that die and connections that break: what the clients saw fits what stands on the ledger.

use crate::e2e::{
    cell::{BOUNDS, Cell, TENANT},
    proxy::Proxy,
    suite::{Outcome, eventually, token},
};
use ledger::memory::Seeded;
use proof::history::{
    Entry, Seen, check,
    drive::{Connection, Driver, Names, Slots},
    wire::Entries,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use vocab::Token;

const CLIENTS: u64 = 12;
const CONNECTIONS: usize = 4;
/// Answers between two faults.
const BETWEEN_FAULTS: u64 = 100;
const FAULTS: u64 = 10;
/// Far more operations than are ever remembered at once.
const PLENTY: u64 = 100_000;
/// Too short for an answer while something is broken, and now and then when nothing is.
const PATIENCE: Duration = Duration::from_millis(150);

fn names() -> Names {
    let tokens = |prefix: &str, count: usize| -> Vec<Token> {
        (0..count)
            .map(|no| token(&format!("{prefix}{no}")))
            .collect()
    };
    Names {
        resources: tokens("r", BOUNDS.resources_max + 1),
        holders: tokens("h", 3),
        ttl_slots_max: BOUNDS.ttl_slots_max,
        members_max: BOUNDS.members_max,
    }
}

/// Half of the connections lead through the proxy.
async fn driver(cell: &Cell, proxy: &Proxy) -> Driver {
    let mut connections = Vec::new();
    for no in 0..CONNECTIONS {
        let url = match no % 2 {
            0 => proxy.url(),
            _ => cell.suite.servers.nats.url.clone(),
        };
        connections.push(Connection {
            name: token(&format!("c{no}")),
            client: cell.client_by(&url, PATIENCE).await,
        });
    }
    let slots = Slots::Requests(AtomicU64::new(0));
    let (tenant, number) = (token(TENANT), cell.suite.cell_no());
    Driver::new(tenant, number, connections, names(), slots)
}

/// Breaks something after every so many answers, and mends it.
async fn faults(cell: &mut Cell, proxy: &Proxy, driver: &Driver, random: &mut Seeded) {
    for fault in 1..=FAULTS {
        let enough = fault * BETWEEN_FAULTS;
        eventually("more answers", || async {
            (driver.answered() >= enough).then_some(())
        })
        .await;
        match random.below(4) {
            0 => {
                cell.kill_scheduler().await;
                cell.boot_scheduler().await;
            }
            1 => {
                cell.kill_admission().await;
                cell.boot_admission().await;
            }
            2 => {
                cell.kill_admission().await;
                cell.kill_scheduler().await;
                cell.boot_scheduler().await;
                cell.boot_admission().await;
            }
            _ => {}
        }
        proxy.cut();
    }
}

/// What stands on the ledger about the tenant, once nothing is left to decide.
async fn ledger(cell: &Cell) -> Vec<Entry> {
    eventually("all that was asked decided", || async {
        let mut entries = Entries::default();
        let events = cell.suite.events().await;
        let all = events
            .iter()
            .filter_map(|(at, event)| entries.entry(at, event));
        let own: Vec<Entry> = all
            .filter(|entry| entry.tenant.as_str() == TENANT)
            .collect();
        (entries.open() == 0).then_some(own)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_clients_saw_is_strictly_serializable_whatever_breaks() -> Outcome {
    let mut cell = Cell::start(PLENTY).await;
    let proxy = Proxy::to(&cell.suite.servers.nats.url).await;
    let driver = Arc::new(driver(&cell, &proxy).await);
    let going_on = Arc::new(AtomicBool::new(true));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|seed| {
            let (driver, going_on) = (driver.clone(), going_on.clone());
            tokio::spawn(async move {
                driver
                    .client(seed + 1, || going_on.load(Ordering::Relaxed))
                    .await;
            })
        })
        .collect();
    faults(&mut cell, &proxy, &driver, &mut Seeded::new(7)).await;
    going_on.store(false, Ordering::Relaxed);
    for client in clients {
        client.await?;
    }

    let mut history = driver.recorder().history(BOUNDS, ledger(&cell).await);
    let summary = check(&history)?;
    assert!(
        summary.answered as u64 >= FAULTS * BETWEEN_FAULTS,
        "{summary:?}"
    );
    // Whether a cut takes a request or its answer is up to chance.
    let lost = summary.indefinite + summary.unwritten;
    assert!(lost > 0, "nothing was ever lost: {summary:?}");

    // The checker is not blind: an answer that was not given is found, and a decision that is taken away.
    let answered = |seen: &Seen| matches!(seen, Seen::Answered { .. });
    let calls = &mut history.calls;
    let last = calls.iter().rposition(|call| answered(&call.seen));
    let last = last.expect("many were answered");
    let lsn = match &mut calls[last].seen {
        Seen::Answered { lsn, .. } => lsn,
        _ => unreachable!("it was answered"),
    };
    *lsn += 1_000_000;
    let violation = check(&history).expect_err("a lost write");
    assert_eq!(violation.broken.name(), "lost_write", "{violation}");
    let mut history = driver.recorder().history(BOUNDS, ledger(&cell).await);
    // Of those that were answered; nobody misses another one.
    let lsns: Vec<u64> = history
        .calls
        .iter()
        .filter_map(|call| Some(call.answered()?.1))
        .collect();
    let middle = lsns[lsns.len() / 2];
    history.ledger.retain(|entry| entry.lsn != middle);
    check(&history).expect_err("a hole in the ledger");
    drop(driver);
    cell.close().await;
    Ok(())
}
