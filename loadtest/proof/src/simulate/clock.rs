//! The manual clock that a seed turns.

use chassis::Steady;
use ledger::{Time, memory::Seeded};
use std::{
    future::{Future, poll_fn},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    task::Poll,
};
use vocab::{
    Millis,
    sabotage::{self, Bug},
};

const NANOS_PER_MS: i128 = 1_000_000;

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

    fn now_ns(&self) -> i128 {
        i128::from(self.now_ms()) * NANOS_PER_MS
    }

    /// How the clock of one process shows it.
    pub fn skewed(&self, skew_ms: i64) -> SimTime {
        let skew_ns = i128::from(skew_ms) * NANOS_PER_MS;
        let steady = Steady::begin(self.now_ns(), self.now_ns() + skew_ns);
        SimTime {
            world: self.clone(),
            skew_ms: Arc::new(AtomicI64::new(skew_ms)),
            steady: Arc::new(Mutex::new(steady)),
        }
    }
}

/// One process's clock: a steady one, on a machine's that may be set.
#[derive(Debug, Clone)]
pub struct SimTime {
    world: WorldClock,
    /// Of the machine's.
    skew_ms: Arc<AtomicI64>,
    steady: Arc<Mutex<Steady>>,
}

impl SimTime {
    /// Sets the machine's clock.
    pub fn set_machine(&self, skew_ms: i64) {
        self.skew_ms.store(skew_ms, Ordering::Relaxed);
    }

    pub fn now_ms(&self) -> i64 {
        let skew_ms = self.skew_ms.load(Ordering::Relaxed);
        if sabotage::armed(Bug::ClockStepAdopted) {
            return self.world.now_ms() + skew_ms;
        }
        let (elapsed, skew) = (self.world.now_ns(), i128::from(skew_ms) * NANOS_PER_MS);
        // Nothing panics while it is held.
        let mut steady = self.steady.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = steady.show(elapsed, elapsed + skew);
        // Between two times of the world.
        shown.div_euclid(NANOS_PER_MS) as i64
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

/// Sets machines' clocks while the world is troubled.
#[derive(Debug)]
pub struct ClockHand {
    pub random: Seeded,
    began_ms: i64,
    /// Per mille of the steps.
    moves: u64,
}

const DAY_MS: u64 = 86_400_000;

impl ClockHand {
    pub fn new(seed: u64, began_ms: i64) -> Self {
        let mut random = Seeded::new(seed ^ 0xc10c);
        let moves = random.below(3) * 5;
        Self {
            random,
            began_ms,
            moves,
        }
    }

    pub fn moves(&mut self) -> bool {
        self.random.chance(self.moves)
    }

    /// As often right as up to a day off.
    pub fn skew_ms(&mut self) -> i64 {
        if self.random.chance(500) {
            return 0;
        }
        self.random.below(2 * DAY_MS) as i64 - DAY_MS as i64
    }

    /// What no process may show more than: a tenth of the time that a clock may have been wrong, and the skew of a machine
    /// that nobody sets.
    pub fn latest_ms(&self, now_ms: i64, skew_ms: i64) -> i64 {
        now_ms + skew_ms + (now_ms - self.began_ms) / 10
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
