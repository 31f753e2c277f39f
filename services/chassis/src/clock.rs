//! The one place where real time enters the suite.
//!
//! Deciders take `now` as a parameter and shells take it from a [`Clock`], so months of a recorded workload can run in
//! a minute with every rule and every bill in the recorded time.
//!
//! Real time is a steady clock that runs towards the machine's wall clock: a step of that one is not adopted.
#![allow(
    clippy::disallowed_methods,
    reason = "the only file that reads the machine's clocks"
)]

mod steady;

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ledger::Witnesses;
use tokio::sync::watch;

pub use steady::Steady;
use steady::Witnessed;

/// One sleep never lasts longer than this, so that a clock that runs faster or slower is noticed.
const SLEEP_SLICE_MAX: Duration = Duration::from_secs(30);

const NANOS_PER_MS: i128 = 1_000_000;

/// The recorded clock, in Unix milliseconds. Cheap to clone; all clones show the same time.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    Real(Wall, Scale),
    Manual(watch::Receiver<i64>),
}

/// The steady clock of the machine.
#[derive(Clone, Debug)]
struct Wall {
    started: Instant,
    steady: Arc<Mutex<Steady>>,
}

impl Wall {
    fn start() -> Wall {
        Wall {
            started: Instant::now(),
            steady: Arc::new(Mutex::new(Steady::begin(0, wall_ns()))),
        }
    }

    fn elapsed_ns(&self) -> i128 {
        i128::try_from(self.started.elapsed().as_nanos()).unwrap_or(i128::MAX)
    }

    fn now_ns(&self) -> i128 {
        let mut steady = self.steady();
        steady.show(self.elapsed_ns(), wall_ns())
    }

    fn set(&self, witnesses: Witnessed) {
        let mut steady = self.steady();
        steady.set(self.elapsed_ns(), wall_ns(), witnesses);
    }

    /// Nothing panics while it is held.
    fn steady(&self) -> MutexGuard<'_, Steady> {
        self.steady.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock {
    /// Recorded time is real time.
    pub fn real() -> Clock {
        Clock(Source::Real(Wall::start(), Scale::REAL))
    }

    /// Recorded time was `origin_ms` at the real time `started_ms` and runs `rate` times as fast.
    pub fn scaled(origin_ms: i64, started_ms: i64, rate: NonZeroU32) -> Clock {
        let scale = Scale {
            origin_ms,
            started_ms,
            rate,
        };
        Clock(Source::Real(Wall::start(), scale))
    }

    /// A clock for tests that stands at `now_ms` until its [`ClockHand`] is moved.
    pub fn manual(now_ms: i64) -> (Clock, ClockHand) {
        let (sender, receiver) = watch::channel(now_ms);
        (Clock(Source::Manual(receiver)), ClockHand(sender))
    }

    /// The recorded time in Unix milliseconds. It goes back only where [`Clock::set`] corrects it.
    pub fn now_ms(&self) -> i64 {
        match &self.0 {
            Source::Real(wall, scale) => scale.recorded_ms(wall.now_ns()),
            Source::Manual(now) => *now.borrow(),
        }
    }

    /// Takes over the machine's wall clock as far as the witnesses bear it out, and shows no less than the writer's last
    /// frame. A manual clock stays as it is.
    pub fn set(&self, witnesses: &Witnesses) {
        if let Source::Real(wall, scale) = &self.0 {
            wall.set(Witnessed {
                own_ns: scale.real_ns(witnesses.own.0),
                newest_ns: scale.real_ns(witnesses.newest.0),
                server_ns: witnesses.server.map(|ms| i128::from(ms.0) * NANOS_PER_MS),
            });
        }
    }

    /// Real milliseconds by which the machine's wall clock is ahead of this one; a manual clock knows no other.
    pub fn wall_ahead_ms(&self) -> i64 {
        match &self.0 {
            Source::Real(wall, _) => {
                let shown = wall.now_ns();
                saturate((wall_ns() - shown) / NANOS_PER_MS)
            }
            Source::Manual(_) => 0,
        }
    }

    /// Waits until the recorded time is at least `recorded_ms`; returns at once when it already is.
    pub async fn sleep_until(&self, recorded_ms: i64) {
        if let Source::Manual(now) = &self.0 {
            let mut now = now.clone();
            if now.wait_for(|now_ms| *now_ms >= recorded_ms).await.is_err() {
                // The hand is gone, so this time never comes.
                std::future::pending::<()>().await;
            }
            return;
        }
        while let Some(wait) = self.real_wait(recorded_ms) {
            tokio::time::sleep(wait.min(SLEEP_SLICE_MAX)).await;
        }
    }

    /// The real time left until `recorded_ms`, or nothing when it has come.
    fn real_wait(&self, recorded_ms: i64) -> Option<Duration> {
        let Source::Real(wall, scale) = &self.0 else {
            return None;
        };
        match scale.real_ns(recorded_ms) - wall.now_ns() {
            left if left <= 0 => None,
            left => Some(Duration::from_nanos(
                u64::try_from(left).unwrap_or(u64::MAX),
            )),
        }
    }
}

/// Moves a manual clock and wakes those who sleep on it.
#[derive(Debug)]
pub struct ClockHand(watch::Sender<i64>);

impl ClockHand {
    /// Moves the clock by `ms`; a negative number moves it back, as a stepped wall clock does.
    pub fn advance(&self, ms: i64) {
        self.0
            .send_modify(|now_ms| *now_ms = now_ms.saturating_add(ms));
    }
}

/// The line between real nanoseconds and recorded milliseconds. 128 bits hold every product of the two, so only the
/// last step saturates.
#[derive(Clone, Copy, Debug)]
struct Scale {
    origin_ms: i64,
    started_ms: i64,
    rate: NonZeroU32,
}

impl Scale {
    const REAL: Scale = Scale {
        origin_ms: 0,
        started_ms: 0,
        rate: NonZeroU32::MIN,
    };

    fn recorded_ms(&self, real_ns: i128) -> i64 {
        let elapsed_ns = real_ns - i128::from(self.started_ms) * NANOS_PER_MS;
        let recorded_ns = elapsed_ns * i128::from(self.rate.get());
        // Floor, not truncation: before `started_ms` time runs up to the origin as it runs away from it afterwards.
        saturate(i128::from(self.origin_ms) + recorded_ns.div_euclid(NANOS_PER_MS))
    }

    /// The first real nanosecond at which `recorded_ms` is shown.
    fn real_ns(&self, recorded_ms: i64) -> i128 {
        let rate = i128::from(self.rate.get());
        let recorded_ns = (i128::from(recorded_ms) - i128::from(self.origin_ms)) * NANOS_PER_MS;
        // Ceiling by the floor of the negated dividend.
        i128::from(self.started_ms) * NANOS_PER_MS - (-recorded_ns).div_euclid(rate)
    }
}

/// A moment of real time for a span: spans show what the machine did, also when the recorded clock is scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(SystemTime);

impl Stamp {
    /// The machine's wall clock now.
    pub fn now() -> Stamp {
        Stamp(SystemTime::now())
    }

    /// A moment some other process wrote down. Nothing before 1970 was ever traced.
    pub fn from_unix_ns(unix_ns: u64) -> Stamp {
        Stamp(UNIX_EPOCH + Duration::from_nanos(unix_ns))
    }

    /// The moment as it travels to another process.
    pub fn unix_ns(self) -> u64 {
        let since = self.0.duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    pub(crate) fn system_time(self) -> SystemTime {
        self.0
    }
}

/// Measures a latency on the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts measuring.
    pub fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    /// Real time since the start.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// The machine's wall clock, which anybody may set.
fn wall_ns() -> i128 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => i128::try_from(since.as_nanos()).unwrap_or(i128::MAX),
        Err(before) => -i128::try_from(before.duration().as_nanos()).unwrap_or(i128::MAX),
    }
}

fn saturate(ms: i128) -> i64 {
    i64::try_from(ms).unwrap_or(if ms < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(origin_ms: i64, started_ms: i64, rate: u32) -> Scale {
        Scale {
            origin_ms,
            started_ms,
            rate: NonZeroU32::new(rate).expect("a rate of the table is positive"),
        }
    }

    #[test]
    fn recorded_time_follows_the_line() {
        let table = [
            // (origin, started, rate, real ns, recorded ms)
            (0, 0, 1, 0, 0),
            (0, 0, 1, 1_999_999, 1),
            (0, 0, 1, -1, -1),
            (5_000, 1_000, 1, 1_000_000_000, 5_000),
            (5_000, 1_000, 100, 1_002_500_000, 5_250),
            (5_000, 1_000, 100, 999_000_000, 4_900),
            (5_000, 1_000, 100, 999_999_999, 4_999),
            (5_000, 1_000, 3, 1_000_333_333, 5_000),
            (5_000, 1_000, 3, 1_000_333_334, 5_001),
            (i64::MAX - 1, 0, u32::MAX, 1_000_000_000, i64::MAX),
            (i64::MIN + 1, 0, u32::MAX, -1_000_000_000, i64::MIN),
            (
                0,
                i64::MIN,
                u32::MAX,
                i128::from(i64::MAX) * NANOS_PER_MS,
                i64::MAX,
            ),
        ];
        for (origin, started, rate, real_ns, recorded) in table {
            assert_eq!(
                scale(origin, started, rate).recorded_ms(real_ns),
                recorded,
                "{origin} {started} {rate} {real_ns}"
            );
        }
    }

    #[test]
    fn a_sleeper_wakes_at_the_first_nanosecond_that_shows_the_time() {
        for rate in [1, 3, 7, 1000, u32::MAX] {
            for recorded in [-5_001, -1, 0, 1, 4_999, 5_000, 5_001, 1_000_003] {
                let line = scale(5_000, 1_000, rate);
                let due_ns = line.real_ns(recorded);
                assert!(
                    line.recorded_ms(due_ns) >= recorded,
                    "rate {rate} recorded {recorded}"
                );
                assert!(
                    line.recorded_ms(due_ns - 1) < recorded,
                    "rate {rate} recorded {recorded}"
                );
            }
        }
    }

    #[tokio::test]
    async fn the_hand_of_a_manual_clock_wakes_sleepers() {
        let (clock, hand) = Clock::manual(10);
        clock.sleep_until(10).await;
        let sleeper = tokio::spawn({
            let clock = clock.clone();
            async move {
                clock.sleep_until(30).await;
                clock.now_ms()
            }
        });
        hand.advance(19);
        tokio::task::yield_now().await;
        assert!(!sleeper.is_finished());
        hand.advance(1);
        assert_eq!(sleeper.await.expect("the sleeper does not panic"), 30);
        hand.advance(-25);
        assert_eq!(clock.now_ms(), 5);
    }

    #[tokio::test]
    async fn past_times_do_not_wait() {
        Clock::real().sleep_until(0).await;
        Clock::scaled(1_000_000, 0, NonZeroU32::MAX)
            .sleep_until(1_000_000)
            .await;
        assert_eq!(Stamp::from_unix_ns(1_234_567_890).unix_ns(), 1_234_567_890);
    }
}
