//! From the nodes' heartbeats to the table of samples, beside the projection: neither waits for the other.

use crate::{
    metrics::{Instruments, TableRows},
    store::{SampleRow, Store, StoreError},
    wire,
};
use chassis::{Clock, Context, Failure, Heard, Wanted};
use futures::{FutureExt, future::BoxFuture};
use prometheus_client::metrics::counter::Counter;
use std::{collections::BTreeMap, future::pending, time::Duration};
use vocab::{Millis, Token, subjects::Subjects};

/// Of several processes of the service, each heartbeat reaches one.
const GROUP: &str = "samples";
const INSERT_EVERY: Duration = Duration::from_secs(5);
/// Nodes whose samples wait for the next INSERT. Of each it is the last sample, so that no node crowds out others.
const NODES_MAX: usize = 100_000;

pub struct Samples {
    store: Store,
    clock: Clock,
    subjects: Subjects,
    waiting: Waiting,
    rows: TableRows,
    dropped: Counter,
}

impl Samples {
    pub fn new<T>(ctx: &Context<T>, store: Store, instruments: &Instruments) -> Self {
        Self {
            store,
            clock: ctx.clock.clone(),
            subjects: ctx.subjects(),
            waiting: Waiting::default(),
            rows: instruments.rows.clone(),
            dropped: instruments.samples_dropped.clone(),
        }
    }

    /// Until shutdown.
    pub async fn serve<T>(mut self, ctx: &Context<T>) -> Result<(), Failure> {
        let heartbeats = Wanted::shared(self.subjects.node("*", "heartbeat"), GROUP);
        let mut hearing = ctx.hear("samples", vec![heartbeats]).await?;
        let mut due = tokio::time::interval(INSERT_EVERY);
        due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut inserting: Option<BoxFuture<'static, Inserted>> = None;
        loop {
            tokio::select! {
                heard = hearing.next() => match heard {
                    Some(heard) => self.hear(&heard),
                    None => return Ok(()),
                },
                inserted = done(&mut inserting) => {
                    inserting = None;
                    self.inserted(inserted);
                }
                _ = due.tick(), if inserting.is_none() => {
                    inserting = self.waiting.take().map(|rows| insert(self.store.clone(), rows).boxed());
                }
            }
        }
    }

    fn hear(&mut self, heard: &Heard) {
        let node = self.subjects.token(&heard.subject, 1);
        let Some(node) = node.and_then(|name| Token::new(name).ok()) else {
            return;
        };
        let at = Millis(self.clock.now_ms());
        if let Some(row) = wire::sample(node, at, &heard.payload)
            && !self.waiting.add(row)
        {
            self.dropped.inc();
        }
    }

    fn inserted(&self, (count, outcome): Inserted) {
        match outcome {
            Ok(()) => self.rows.inserted(SampleRow::NAME, count),
            Err(error) => {
                self.dropped.inc_by(count as u64);
                tracing::warn!(%error, count, "samples dropped");
            }
        }
    }
}

/// How many rows, and whether they are in the table.
type Inserted = (usize, Result<(), StoreError>);

async fn done<T>(under_way: &mut Option<BoxFuture<'static, T>>) -> T {
    match under_way {
        Some(future) => future.await,
        None => pending().await,
    }
}

async fn insert(store: Store, rows: Vec<SampleRow>) -> Inserted {
    let outcome = store.insert_samples(&rows).await;
    (rows.len(), outcome)
}

/// The last sample of each node since the INSERT before.
#[derive(Default)]
struct Waiting(BTreeMap<Token, SampleRow>);

impl Waiting {
    /// Whether there is room for it.
    fn add(&mut self, row: SampleRow) -> bool {
        let room = self.0.len() < NODES_MAX || self.0.contains_key(&row.node);
        if room {
            self.0.insert(row.node.clone(), row);
        }
        room
    }

    /// None: there is nothing.
    fn take(&mut self) -> Option<Vec<SampleRow>> {
        let rows = std::mem::take(&mut self.0);
        (!rows.is_empty()).then(|| rows.into_values().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::slot;

    fn row(node: &str, cpu_milli: u64) -> SampleRow {
        let at = Millis(0);
        SampleRow {
            at,
            slot: slot(at),
            node: Token::new(node).expect("a token"),
            samples: 1,
            cpu_milli,
            memory_bytes: 0,
            gpus: 0,
            gpu_busy_milli: 0,
            gpu_memory_bytes: 0,
            disk_used_bytes: 0,
            disk_free_bytes: 0,
            network_received_bytes: 0,
            network_sent_bytes: 0,
            load_milli: 0,
            oom_kills: 0,
            runs: 0,
        }
    }

    #[test]
    fn the_last_sample_of_each_node_waits() {
        let mut waiting = Waiting::default();
        assert_eq!(waiting.take(), None);
        for (node, cpu_milli) in [("n2", 1), ("n1", 2), ("n2", 3)] {
            assert!(waiting.add(row(node, cpu_milli)));
        }
        assert_eq!(waiting.take(), Some(vec![row("n1", 2), row("n2", 3)]));
        assert_eq!(waiting.take(), None);
    }

    #[test]
    fn nodes_beyond_the_bound_wait_for_the_next_time() {
        let mut waiting = Waiting::default();
        for node in 0..NODES_MAX {
            assert!(waiting.add(row(&format!("n{node}"), 1)));
        }
        assert!(!waiting.add(row("more", 1)));
        assert!(waiting.add(row("n7", 2)));
        assert_eq!(waiting.take().map(|rows| rows.len()), Some(NODES_MAX));
        assert!(waiting.add(row("more", 1)));
    }
}
