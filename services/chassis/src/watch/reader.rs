//! Whether the service has read what stands on the ledger. A follower to whom nothing is brought cannot know by itself that
//! there is something, so the bus is asked where the ledger ends.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ledger::Bus;
use ledger_nats::{cell, jetstream::JetStreamBus};
use prometheus_client::metrics::{family::Family, gauge::Gauge};
use tokio::sync::watch::Sender;
use vocab::{Level, Lsn};

use crate::clock::Stopwatch;
use crate::error::Unfit;
use crate::health::ComponentHandle;
use crate::metrics::{Fraction, Metric};
use crate::projection::OfProjection;

pub(crate) const LEDGER_END: Metric = Metric::gauge(
    "apportion_ledger_end",
    "Position of the ledger's last record",
);

/// What was the ledger's end this many real milliseconds ago has been read, or its reader is behind.
const BEHIND_AFTER_MS: u64 = 3000;
/// Real time between looks: whoever watches the service hears within a second that the ledger is gone.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Real time that an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// Looks between two at what others have read.
const LOOKS_AT_OTHERS: u32 = 10;
/// Real time between looks while somebody is behind: who waits for the service wants to know when it is not any more.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What it means for the service when a follower is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Behind {
    /// Decisions and answers go on, tables are old.
    Degraded,
    /// Somebody waits for what it does.
    NotReady,
}

/// One who reads the ledger, as it says itself how far it is.
#[derive(Clone, Debug)]
pub struct Follower(Arc<AtomicU64>);

impl Follower {
    /// Everything up to here has been read. It goes back when a read model does.
    pub fn read(&self, through: Lsn) {
        self.0.store(through.0, Ordering::Relaxed);
    }

    fn at(&self) -> Lsn {
        Lsn(self.0.load(Ordering::Relaxed))
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Followers {
    watched: Arc<Mutex<Vec<Watched>>>,
    /// How far projections have applied what they read.
    projections: Arc<Mutex<Vec<(&'static str, Follower)>>>,
}

#[derive(Debug)]
struct Watched {
    name: &'static str,
    behind: Behind,
    read: Follower,
    lag: Lag,
}

impl Followers {
    pub fn register(&self, name: &'static str, behind: Behind) -> Follower {
        let read = Follower(Arc::default());
        self.lock().push(Watched {
            name,
            behind,
            read: read.clone(),
            lag: Lag::default(),
        });
        read
    }

    /// The worst one that is behind, the first of equals.
    fn look(&self, at_ms: u64, end: Lsn) -> Option<(Behind, &'static str)> {
        let mut worst = None;
        for follower in self.lock().iter_mut() {
            let read = follower.read.at();
            let found = (follower.behind, follower.name);
            if follower.lag.is_behind(at_ms, read, end)
                && worst.is_none_or(|(behind, _)| behind < found.0)
            {
                worst = Some(found);
            }
        }
        worst
    }

    /// One whose lag is measured.
    pub fn projection(&self, name: &'static str) -> Follower {
        let applied = Follower(Arc::default());
        let mut projections = lock(&self.projections);
        projections.push((name, applied.clone()));
        applied
    }

    /// What each projection has applied.
    fn applied(&self) -> Vec<(&'static str, Lsn)> {
        let projections = lock(&self.projections);
        let applied = |(name, of): &(&'static str, Follower)| (*name, of.at());
        projections.iter().map(applied).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Watched>> {
        lock(&self.watched)
    }
}

/// Each follower stands for itself, so a panic elsewhere leaves nothing half done.
fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the ledger ended when: each end that was seen, and when first, that not all have applied. The oldest of them stays;
/// of the others every other one is forgotten when they are many, so a lag that is not the longest may be told as less.
#[derive(Clone, Debug, Default)]
struct Ends(VecDeque<(Lsn, u64)>);

impl Ends {
    const MOST: usize = 1024;

    fn saw(&mut self, at_ms: u64, end: Lsn, applied_by_all: Lsn) {
        while self
            .0
            .pop_front_if(|(end, _)| *end <= applied_by_all)
            .is_some()
        {}
        if end > applied_by_all && self.0.back().is_none_or(|(last, _)| *last < end) {
            self.0.push_back((end, at_ms));
        }
        if self.0.len() > Self::MOST {
            let mut even = false;
            self.0.retain(|_| {
                even = !even;
                even
            });
        }
    }

    /// For how long there has been an end beyond `applied`.
    fn lag_ms(&self, at_ms: u64, applied: Lsn) -> u64 {
        let first = self.0.partition_point(|(end, _)| *end <= applied);
        self.0.get(first).map_or(0, |(_, since)| at_ms - since)
    }
}

/// What is told of it.
pub(super) struct Gauges {
    pub ledger_end: Gauge,
    pub lag_seconds: Family<OfProjection, Fraction>,
}

/// The oldest end of the ledger that is not known to be read, and since when it was the end.
#[derive(Clone, Copy, Debug, Default)]
struct Lag {
    due: Lsn,
    since_ms: u64,
}

impl Lag {
    fn is_behind(&mut self, at_ms: u64, read: Lsn, end: Lsn) -> bool {
        if read >= self.due {
            (self.due, self.since_ms) = (end, at_ms);
        }
        at_ms - self.since_ms >= BEHIND_AFTER_MS
    }
}

pub(super) async fn watch(
    bus: JetStreamBus,
    followers: Followers,
    component: ComponentHandle,
    gauges: Gauges,
    unfit: Sender<Option<Unfit>>,
) {
    let clock = Stopwatch::start();
    let mut heard_ms = 0;
    let mut pause = Duration::ZERO;
    let mut ledger = None;
    let mut ends = Ends::default();
    let (mut looks, mut held) = (0_u32, Vec::new());
    loop {
        tokio::time::sleep(pause).await;
        pause = LOOK_EVERY;
        let stands = tokio::time::timeout(ANSWER_MAX, bus.stands()).await;
        let at_ms = u64::try_from(clock.elapsed().as_millis()).unwrap_or(u64::MAX);
        let Ok(Ok(stands)) = stands else {
            if at_ms - heard_ms >= BEHIND_AFTER_MS {
                component.not_ready("the bus does not say where the ledger ends");
            }
            continue;
        };
        heard_ms = at_ms;
        let Some((id, end)) = stands else {
            component.not_ready("the ledger is gone: its stream is not there");
            continue;
        };
        // What this process knows is of the one that it has read.
        if *ledger.get_or_insert(id) != id {
            component.not_ready("another ledger stands in the place of the one that was read");
            unfit.send_replace(Some(Unfit::Replaced));
            return;
        }
        if let Err(too_old) = cell::check_level(bus.level(), Level::KNOWN) {
            component.not_ready(too_old.to_string());
            unfit.send_replace(Some(too_old.into()));
            return;
        }
        looks = looks.wrapping_add(1);
        if looks.is_multiple_of(LOOKS_AT_OTHERS)
            && let Err(error) = bus.bears_out_all(id, &mut held).await
            && error.is_fatal()
        {
            tracing::error!(%error, "somebody has read another ledger");
            component.not_ready(error.to_string());
            unfit.send_replace(Some(Unfit::Replaced));
            return;
        }
        gauges
            .ledger_end
            .set(i64::try_from(end.0).unwrap_or(i64::MAX));
        let applied = followers.applied();
        let by_all = applied.iter().map(|(_, applied)| *applied).min();
        ends.saw(at_ms, end, by_all.unwrap_or(end));
        for (projection, applied) in applied {
            let lag = gauges
                .lag_seconds
                .get_or_create(&OfProjection { projection });
            lag.set(ends.lag_ms(at_ms, applied) as f64 / 1000.0);
        }
        match followers.look(at_ms, end) {
            None => component.ready(),
            Some((Behind::NotReady, name)) => {
                component.not_ready(format!("{name} is behind the ledger"));
                pause = LOOK_AGAIN;
            }
            Some((Behind::Degraded, name)) => {
                component.degraded(format!("{name} is behind the ledger"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_is_who_has_not_read_in_time_what_was_the_end() {
        // Looks at (ms, read, end), and whether the follower is behind then.
        type Looks<'a> = &'a [(u64, u64, u64, bool)];
        let table: [(&str, Looks); 6] = [
            ("an empty ledger", &[(0, 0, 0, false), (9000, 0, 0, false)]),
            (
                "nothing new for long",
                &[(0, 7, 7, false), (9000, 7, 7, false), (18_000, 7, 7, false)],
            ),
            (
                "nothing is brought",
                &[
                    (0, 7, 7, false),
                    (1000, 7, 8, false),
                    (2000, 7, 8, false),
                    (3999, 7, 9, false),
                    (4000, 7, 9, true),
                    (5000, 9, 9, false),
                ],
            ),
            (
                "always a little behind the end, which moves",
                &[
                    (0, 0, 10, false),
                    (1000, 9, 20, false),
                    (2000, 19, 30, false),
                    (3000, 29, 40, false),
                    (4000, 39, 50, false),
                    (5000, 49, 60, false),
                ],
            ),
            (
                "reads, but not fast enough",
                &[
                    (0, 0, 100, false),
                    (1000, 10, 200, false),
                    (2000, 20, 300, false),
                    (3000, 30, 400, true),
                    (4000, 100, 500, false),
                ],
            ),
            (
                "begins anew",
                &[(0, 9, 9, false), (1000, 0, 9, false), (4000, 0, 9, true)],
            ),
        ];
        for (case, looks) in table {
            let mut lag = Lag::default();
            for (at_ms, read, end, behind) in looks {
                assert_eq!(
                    lag.is_behind(*at_ms, Lsn(*read), Lsn(*end)),
                    *behind,
                    "{case} at {at_ms}"
                );
            }
        }
    }

    #[test]
    fn lag_is_the_age_of_the_first_end_that_is_not_applied() {
        let mut ends = Ends::default();
        // Sees at (ms, end), and the lags then of who has applied 0, 7 and 9.
        let table = [
            (0, 0, [0, 0, 0]),
            (500, 7, [0, 0, 0]),
            (1000, 7, [500, 0, 0]),
            (1500, 9, [1000, 0, 0]),
            (4000, 9, [3500, 2500, 0]),
            (4500, 12, [4000, 3000, 0]),
            (5000, 12, [4500, 3500, 500]),
        ];
        for (at_ms, end, lags) in table {
            ends.saw(at_ms, Lsn(end), Lsn(0));
            let found = [0, 7, 9].map(|applied| ends.lag_ms(at_ms, Lsn(applied)));
            assert_eq!(found, lags, "at {at_ms}");
        }
    }

    #[test]
    fn a_lag_of_a_day_is_remembered_in_little() {
        let mut ends = Ends::default();
        let day_ms = 86_400_000;
        for look in 0..=day_ms / 500 {
            ends.saw(look * 500, Lsn(look), Lsn(0));
        }
        assert!(ends.0.len() <= Ends::MOST);
        assert_eq!(ends.lag_ms(day_ms, Lsn(0)), day_ms - 500);
        ends.saw(day_ms, Lsn(day_ms / 500), Lsn(day_ms / 500));
        assert!(ends.0.is_empty());
    }

    #[test]
    fn the_worst_follower_is_named() {
        let followers = Followers::default();
        let (table, leader) = (
            followers.register("warm", Behind::Degraded),
            followers.register("leader", Behind::NotReady),
        );
        assert_eq!(followers.look(0, Lsn(5)), None);
        assert_eq!(followers.look(1000, Lsn(5)), None);
        let late = 1000 + BEHIND_AFTER_MS;
        assert_eq!(
            followers.look(late, Lsn(5)),
            Some((Behind::NotReady, "leader"))
        );
        leader.read(Lsn(5));
        assert_eq!(
            followers.look(late, Lsn(5)),
            Some((Behind::Degraded, "warm"))
        );
        table.read(Lsn(5));
        assert_eq!(followers.look(late, Lsn(5)), None);
    }
}
