//! Bounds of time: nothing that was not placed in time waits on, and no run goes on for longer than it may.

use super::{
    Checker, Invariant, Place, Violation,
    allocations::{Allocation, Hold},
};

impl Allocation {
    /// When it expires; none if it has no such bound, or was placed.
    pub fn expiry(&self) -> Option<i64> {
        let waits = self.demand.ttl_ms > 0 && !self.was_placed;
        waits.then(|| {
            self.requested_ms
                .saturating_add_unsigned(self.demand.ttl_ms)
        })
    }

    /// When its run has gone on for as long as it may.
    pub fn limit(&self, hold: &Hold) -> Option<i64> {
        let started = hold.started.filter(|_| self.demand.time_limit_ms > 0)?;
        Some(started.saturating_add_unsigned(self.demand.time_limit_ms))
    }
}

impl Checker {
    /// What was due by the frame's clock has been decided in it, at the latest.
    pub(super) fn deadlines_are_kept(&self, frame: &Place) -> Result<(), Violation> {
        for (no, a) in self.allocations.open() {
            let due = match &a.hold {
                Some(hold) => a.limit(hold).filter(|_| hold.stop.is_none()),
                // What quota has denied waits for nothing.
                None if a.denied(frame) => None,
                None => a.expiry().filter(|_| frame.saw(a.requested_lsn)),
            };
            let kept = due.is_none_or(|due| due > frame.now);
            frame.rule(kept, Invariant::Deadline, || {
                format!(
                    "{no} goes on at {}, and was due at {due:?}: {a:?}",
                    frame.now
                )
            })?;
        }
        Ok(())
    }
}
