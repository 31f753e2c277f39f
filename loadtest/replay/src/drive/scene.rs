//! What all parts of a drive share.

use super::{desk::Desk, witness::Witness};
use crate::workload::Workload;
use chassis::{Clock, Journey};
use client::{Client, Position};
use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use vocab::Token;

/// A feed that does not answer is asked again after this.
const FEED_PAUSE: Duration = Duration::from_millis(200);

pub struct Scene {
    pub workload: Workload,
    pub clients: BTreeMap<Token, Client>,
    pub clock: Clock,
    /// Recorded milliseconds per real one.
    pub rate: u32,
    pub journey: Journey,
    /// One in so many submits is traced.
    pub trace_one_in: usize,
    pub submitted: AtomicUsize,
    desk: Mutex<Desk>,
    witness: Mutex<Witness>,
}

impl Scene {
    pub fn new(
        workload: Workload,
        clients: BTreeMap<Token, Client>,
        clock: Clock,
        rate: u32,
        journey: Journey,
        trace_one_in: usize,
    ) -> Self {
        Self {
            workload,
            clients,
            clock,
            rate,
            journey,
            trace_one_in,
            submitted: AtomicUsize::new(0),
            desk: Mutex::default(),
            witness: Mutex::default(),
        }
    }

    /// Every change to the book is whole, so a poisoned lock is as good as any; never held across an await.
    pub fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As with the desk.
    pub fn witness(&self) -> MutexGuard<'_, Witness> {
        self.witness.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn submitted(&self) -> usize {
        self.submitted.load(Ordering::Relaxed)
    }

    /// A stretch of recorded time in real time.
    pub fn real(&self, recorded_ms: i64) -> Duration {
        let us =
            u64::try_from(recorded_ms).unwrap_or(0).saturating_mul(1000) / u64::from(self.rate);
        Duration::from_micros(us)
    }

    /// Reads one tenant's feed for as long as the drive lasts. A feed that is away is waited for: whether all was seen
    /// is judged at the end, by what is missing.
    pub async fn read_feed(&self, tenant: &Token, client: &Client) {
        let mut follower = loop {
            match client.follow(Position::default(), None).await {
                Ok(follower) => break follower,
                Err(error) => {
                    tracing::debug!(%tenant, %error, "feed");
                    tokio::time::sleep(FEED_PAUSE).await;
                }
            }
        };
        loop {
            match follower.next_page().await {
                Ok(events) => {
                    let mut witness = self.witness();
                    for event in &events {
                        witness.see(tenant, event);
                    }
                }
                Err(error) => {
                    tracing::debug!(%tenant, %error, "feed");
                    tokio::time::sleep(FEED_PAUSE).await;
                }
            }
        }
    }
}
