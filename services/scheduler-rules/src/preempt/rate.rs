//! How many may be made to go in a minute.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use vocab::Millis;

/// The preemptions of the last minute of the ledger's clock, by their moments.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    log: VecDeque<(Millis, u32)>,
}

const MINUTE_MS: i64 = 60_000;

impl Rate {
    pub fn preempted(&mut self, now: Millis) {
        let past = |at: Millis| at.0.saturating_add(MINUTE_MS) <= now.0;
        while self.log.front().is_some_and(|(at, _)| past(*at)) {
            self.log.pop_front();
        }
        match self.log.back_mut() {
            Some((at, count)) if *at == now => *count = count.saturating_add(1),
            _ => self.log.push_back((now, 1)),
        }
    }

    /// Whether so many may go at once now. In any minute there are no more than `most`; more than that at once, when they
    /// have to go together, only after a minute without any.
    pub fn allows(&self, now: Millis, victims: usize, most: u32) -> bool {
        let recent = self.recent(now).map(|(_, count)| u64::from(*count));
        let recent: u64 = recent.sum();
        recent == 0 || recent + victims as u64 <= u64::from(most)
    }

    /// When more may go than now.
    pub fn again_at(&self, now: Millis) -> Option<Millis> {
        let (first, _) = self.recent(now).next()?;
        Some(Millis(first.0.saturating_add(MINUTE_MS)))
    }

    fn recent(&self, now: Millis) -> impl Iterator<Item = &(Millis, u32)> {
        let recent = move |(at, _): &&(Millis, u32)| at.0.saturating_add(MINUTE_MS) > now.0;
        self.log.iter().filter(recent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_minute_has_more_than_the_limit() {
        let mut rate = Rate::default();
        let check = |rate: &Rate, now, victims, allowed, again_at: Option<i64>| {
            assert_eq!(
                rate.allows(Millis(now), victims, 3),
                allowed,
                "{now} {victims}"
            );
            assert_eq!(rate.again_at(Millis(now)), again_at.map(Millis), "{now}");
        };
        check(&rate, 59_000, 3, true, None);
        // More than the limit go at once only after a minute without any.
        check(&rate, 59_000, 4, true, None);
        rate.preempted(Millis(59_000));
        rate.preempted(Millis(59_000));
        check(&rate, 59_000, 1, true, Some(119_000));
        check(&rate, 59_001, 2, false, Some(119_000));
        check(&rate, 59_001, 4, false, Some(119_000));
        rate.preempted(Millis(100_000));
        // The clock's minute has passed, a minute has not.
        check(&rate, 118_999, 1, false, Some(119_000));
        check(&rate, 119_000, 2, true, Some(160_000));
        check(&rate, 119_000, 3, false, Some(160_000));
        check(&rate, 160_000, 4, true, None);
        rate.preempted(Millis(200_000));
        assert_eq!(rate.log.len(), 1);
    }
}
