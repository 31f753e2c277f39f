//! How long the node may run what it was given. The cell places nothing of this node elsewhere for a lease after a heartbeat that
//! it has answered, so all runs have to be over by then: also when nobody can be reached, and when the agent itself is gone. The
//! agent writes down until when, and each shim looks there when that moment comes.
//!
//! Moments are of the clock that counts from the start of the machine, while it sleeps, too: it is the same for all processes, and
//! nobody can set it. The standard library offers none such.

use crate::processes;
use rustix::time::{ClockId, Timespec, clock_gettime};
use serde::{Deserialize, Serialize};
use std::{fs, io, path::Path, time::Duration};

/// Beside the directories of the runs.
pub(crate) const FILE: &str = "lease";
pub(crate) const PART: &str = ".new-lease";
/// What the clocks of the cell and of the node may differ by over a lease: a 64th of it. Quartz is a hundred times as good.
const DRIFT: u32 = 64;

/// A moment since the start of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Moment(u64);

impl Moment {
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::Boottime);
        let (seconds, nanos) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
        Self(seconds * 1000 + nanos / 1_000_000)
    }

    /// Milliseconds since whatever one counts from.
    pub fn from_ms(ms: u64) -> Self {
        Self(ms)
    }

    pub fn ms(self) -> u64 {
        self.0
    }

    /// Milliseconds since the other one; negative: before it.
    fn since(self, other: Moment) -> i64 {
        self.0.cast_signed().saturating_sub(other.0.cast_signed())
    }

    pub(crate) fn after(self, length: Duration) -> Self {
        let ms = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(ms))
    }

    pub fn is_over(self) -> bool {
        self <= Self::now()
    }

    /// Not before it, and never nothing, which would be no moment for a timer.
    pub(crate) fn timespec(self) -> Timespec {
        let (seconds, ms) = (self.0 / 1000, self.0 % 1000);
        Timespec {
            tv_sec: i64::try_from(seconds).unwrap_or(i64::MAX),
            tv_nsec: (ms * 1_000_000) as i64 + 1,
        }
    }

    pub fn ago(self) -> Duration {
        Duration::from_millis(Self::now().0.saturating_sub(self.0))
    }

    pub fn until(self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(Self::now().0))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// When the runs are asked to stop: two answers are missing then.
    stop: Moment,
    /// How long they may take for it. Then they are killed, and the lease is not over yet.
    grace_ms: u64,
    /// How long it is at all, without what the clocks may differ by.
    length_ms: u64,
    /// By the cell's clock the second was no later than the first, Unix ms. The wall clock of the node may be wrong, and be set
    /// while something runs. None: the cell has not said.
    #[serde(default)]
    cell: Option<(Moment, i64)>,
}

/// Moments mean nothing after the machine has started anew.
#[derive(Serialize, Deserialize)]
struct Written {
    boot_id: String,
    lease: Lease,
}

impl Lease {
    /// By an answer to a heartbeat that was sent at that moment.
    pub fn renewed(sent: Moment, lease_ms: i64) -> Self {
        let whole = Duration::from_millis(u64::try_from(lease_ms).unwrap_or(0));
        let length = whole - whole / DRIFT;
        let ms = |length: Duration| u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        Self {
            stop: sent.after(length * 3 / 4),
            grace_ms: ms(length / 8),
            length_ms: ms(length),
            cell: None,
        }
    }

    /// What the cell's clock showed when the heartbeat came; it was sent at that moment.
    pub fn heard_at(self, sent: Moment, cell_ms: i64) -> Self {
        Self {
            cell: (cell_ms > 0).then_some((sent, cell_ms)),
            ..self
        }
    }

    /// What the cell's clock showed then, Unix ms; later by what the answered heartbeat took on its way.
    pub fn cell_ms(&self, then: Moment) -> Option<i64> {
        let (sent, cell_ms) = self.cell?;
        Some(cell_ms.saturating_add(then.since(sent)))
    }

    pub fn stop(&self) -> Moment {
        self.stop
    }

    /// When they are killed at the latest.
    pub fn kill(&self) -> Moment {
        self.stop.after(self.grace())
    }

    pub fn grace(&self) -> Duration {
        Duration::from_millis(self.grace_ms)
    }

    /// From one heartbeat to the next.
    pub fn beat(&self) -> Duration {
        Duration::from_millis(self.length_ms / 4)
    }

    /// For the shims of the runs in this directory, and for the agent when it starts anew.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        let written = Written {
            boot_id: processes::boot_id(),
            lease: *self,
        };
        let part = dir.join(PART);
        fs::write(&part, serde_json::to_vec(&written)?)?;
        fs::rename(part, dir.join(FILE))
    }

    /// None: there is none that could be read, or the machine has started anew since.
    pub fn read(dir: &Path) -> Option<Self> {
        let written: Written = serde_json::from_slice(&fs::read(dir.join(FILE)).ok()?).ok()?;
        (written.boot_id == processes::boot_id()).then_some(written.lease)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_killed_before_the_lease_is_over() {
        let lease = Lease::renewed(Moment(1000), 64_000);
        assert_eq!(lease.stop(), Moment(48_250));
        assert_eq!(lease.grace(), Duration::from_millis(7875));
        assert!(lease.beat() * 3 <= Duration::from_millis(47_250));
        let killed = lease.kill();
        assert!(killed < Moment(1000 + 63_000), "{killed:?}");
        let none = Lease::renewed(Moment(1000), -1);
        assert_eq!((none.stop(), none.grace()), (Moment(1000), Duration::ZERO));
    }

    #[test]
    fn the_cells_clock_goes_on() {
        let lease = Lease::renewed(Moment(1000), 64_000);
        assert_eq!(lease.cell_ms(Moment(1000)), None);
        let lease = lease.heard_at(Moment(1000), 5_000_000);
        assert_eq!(lease.cell_ms(Moment(1600)), Some(5_000_600));
        assert_eq!(lease.cell_ms(Moment(900)), Some(4_999_900));
        assert_eq!(lease.heard_at(Moment(1), 0).cell_ms(Moment(1)), None);
    }

    #[test]
    fn what_is_written_is_read() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(Lease::read(dir.path()), None);
        let lease = Lease::renewed(Moment::now(), 10_000).heard_at(Moment::now(), 7);
        lease.write(dir.path()).expect("written");
        assert_eq!(Lease::read(dir.path()), Some(lease));
        assert!(lease.stop().until() > Duration::from_secs(6));
        let text = fs::read_to_string(dir.path().join(FILE)).expect("text");
        let another = text.replace(&processes::boot_id(), "of-another-start");
        fs::write(dir.path().join(FILE), another).expect("written");
        assert_eq!(
            Lease::read(dir.path()),
            None,
            "the machine has started anew"
        );
        fs::write(dir.path().join(FILE), "{").expect("written");
        assert_eq!(Lease::read(dir.path()), None);
    }
}
