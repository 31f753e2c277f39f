//! The manual clock that a seed turns.

use ledger::Time;
use std::{
    future::{Future, poll_fn},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    task::Poll,
};
use vocab::Millis;

/// The true time of one simulated world. Only its world moves it, between two polls.
#[derive(Debug, Clone)]
pub struct WorldClock(Arc<AtomicI64>);

impl WorldClock {
    pub fn new(now_ms: i64) -> Self {
        Self(Arc::new(AtomicI64::new(now_ms)))
    }

    pub fn now_ms(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn advance(&self, ms: i64) {
        self.0.fetch_add(ms, Ordering::Relaxed);
    }

    /// How the clock of one process shows it.
    pub fn skewed(&self, skew_ms: i64) -> SimTime {
        SimTime {
            world: self.clone(),
            skew_ms,
        }
    }
}

/// One process's clock.
#[derive(Debug, Clone)]
pub struct SimTime {
    world: WorldClock,
    skew_ms: i64,
}

impl SimTime {
    pub fn now_ms(&self) -> i64 {
        self.world.now_ms() + self.skew_ms
    }
}

impl Time for SimTime {
    fn now(&self) -> Millis {
        Millis(self.now_ms())
    }

    fn sleep_until(&self, at: Millis) -> impl Future<Output = ()> + Send {
        let clock = self.clone();
        poll_fn(move |_| {
            if clock.now_ms() >= at.0 {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
    }

    fn pause(&self, real_ms: u64) -> impl Future<Output = ()> + Send {
        let ms = i64::try_from(real_ms).unwrap_or(i64::MAX);
        self.sleep_until(Millis(self.now_ms().saturating_add(ms)))
    }
}

/// Pending once: somebody else may go first.
pub async fn give_way() {
    let mut given = false;
    poll_fn(|_| {
        if std::mem::replace(&mut given, true) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}
