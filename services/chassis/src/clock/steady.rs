//! Real time as decisions see it: it never stands still, never goes back and never jumps, whatever is done to the
//! machine's wall clock.
//!
//! Between two readings it advances by what has passed on the monotonic clock, and by at most a tenth of that more or less,
//! towards the wall clock. So a wall clock that is wrong for an hour moves it by six minutes, and these are made up for in
//! the hour after. Pure: readings come in as numbers, all in nanoseconds, so that the simulation has the same clock.

/// What decisions are made by. Copies go their own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steady {
    shown_ns: i128,
    /// On the monotonic clock, when it showed that.
    elapsed_ns: i128,
}

/// The part of the time passed by which the steady clock may run fast or slow.
const SLEW: i128 = 10;
/// How far ahead of all witnesses a wall clock is believed: what machines that nobody looks after differ by.
const TRUST_NS: i128 = 60_000_000_000;

impl Steady {
    /// Shows what the wall clock shows.
    pub fn begin(elapsed_ns: i128, wall_ns: i128) -> Steady {
        Steady {
            shown_ns: wall_ns,
            elapsed_ns,
        }
    }

    /// What the clock shows at these readings of the monotonic and of the wall clock.
    pub fn show(&mut self, elapsed_ns: i128, wall_ns: i128) -> i128 {
        // Of readings that overtook each other, the older one tells nothing new.
        let passed = (elapsed_ns - self.elapsed_ns).max(0);
        let alone = self.shown_ns + passed;
        let most = passed / SLEW;
        self.shown_ns = alone + (wall_ns - alone).clamp(-most, most);
        self.elapsed_ns += passed;
        self.shown_ns
    }

    /// Before a leader leads: takes over the wall clock as far as others bear it out, and stays where the writer's last
    /// frame is.
    pub(super) fn set(&mut self, elapsed_ns: i128, wall_ns: i128, witnesses: Witnessed) {
        *self = Steady::begin(elapsed_ns, witnesses.bear_out(wall_ns));
    }
}

/// What others say of real time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Witnessed {
    /// The writer's last frame.
    pub own_ns: i128,
    /// The newest frame of any writer.
    pub newest_ns: i128,
    /// The bus.
    pub server_ns: Option<i128>,
}

impl Witnessed {
    /// A wall clock ahead of the ledger alone is what every long outage looks like; one that is ahead of the bus's as well
    /// is doubted.
    fn bear_out(self, wall_ns: i128) -> i128 {
        let believed = match self.server_ns {
            Some(server) => wall_ns.min(server.max(self.newest_ns) + TRUST_NS),
            None => wall_ns,
        };
        believed.max(self.own_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: i128 = 1_000_000_000;
    const MINUTE: i128 = 60 * SECOND;
    const HOUR: i128 = 60 * MINUTE;
    const DAY: i128 = 24 * HOUR;

    #[test]
    fn a_step_is_followed_by_a_tenth_of_the_time_that_passes() {
        let table = [
            // (passed, wall minus true time, shown minus true time)
            ("no step", HOUR, 0, 0),
            ("forward by a day", HOUR, DAY, 6 * MINUTE),
            ("forward by a day, at once", 0, DAY, 0),
            ("back by a day", HOUR, -DAY, -6 * MINUTE),
            ("drift is followed", HOUR, SECOND, SECOND),
            ("backward drift too", HOUR, -SECOND, -SECOND),
        ];
        for (case, passed, off, shown) in table {
            let mut clock = Steady::begin(0, DAY);
            assert_eq!(
                clock.show(passed, DAY + passed + off),
                DAY + passed + shown,
                "{case}"
            );
        }
    }

    #[test]
    fn before_it_leads_the_wall_clock_is_believed_as_far_as_others_bear_it_out() {
        let now = 1_000 * DAY;
        let table = [
            // (wall, own, newest, server, shown)
            ("all agree", now, now, now, Some(now), now),
            (
                "after a long outage",
                now,
                now - DAY,
                now - DAY,
                Some(now),
                now,
            ),
            (
                "a first start",
                now,
                i128::MIN / 2,
                i128::MIN / 2,
                Some(now),
                now,
            ),
            (
                "ahead of the bus and of the ledger",
                now + DAY,
                now - HOUR,
                now - MINUTE,
                Some(now),
                now + TRUST_NS,
            ),
            (
                "ahead of a bus whose clock is behind, with the ledger",
                now,
                now - HOUR,
                now - SECOND,
                Some(now - DAY),
                now,
            ),
            (
                "a minute is nothing",
                now + MINUTE,
                now,
                now,
                Some(now),
                now + MINUTE,
            ),
            (
                "behind the bus",
                now - DAY,
                now - 2 * DAY,
                now,
                Some(now),
                now - DAY,
            ),
            (
                "behind the own frames",
                now,
                now + DAY,
                now + DAY,
                Some(now),
                now + DAY,
            ),
            (
                "a bus without a clock",
                now + DAY,
                now,
                now,
                None,
                now + DAY,
            ),
        ];
        for (case, wall, own_ns, newest_ns, server_ns, shown) in table {
            let mut clock = Steady::begin(0, 0);
            let witnesses = Witnessed {
                own_ns,
                newest_ns,
                server_ns,
            };
            clock.set(5, wall, witnesses);
            assert_eq!(clock.show(5, wall), shown, "{case}");
        }
    }

    proptest! {
        /// Whatever the wall clock does, time passes, and not by more than a tenth faster or slower than it does.
        #[test]
        fn time_neither_stands_still_nor_jumps(
            readings in prop::collection::vec((0..HOUR, -2 * DAY..2 * DAY), 1..20),
        ) {
            let mut clock = Steady::begin(0, 0);
            let (mut elapsed, mut before) = (0, 0);
            for (passed, wall) in readings {
                elapsed += passed;
                let shown = clock.show(elapsed, wall);
                let went = shown - before;
                prop_assert!(went * 10 >= passed * 9 && went * 10 <= passed * 11, "{went} in {passed}");
                before = shown;
            }
        }

        /// A wall clock that was wrong for a while, by whatever, is forgotten after as long.
        #[test]
        fn what_a_wrong_clock_has_done_is_undone_in_as_long(
            off in -400 * DAY..400 * DAY,
            wrong in 1..DAY,
            looks in 1..20_i128,
        ) {
            let mut clock = Steady::begin(0, 0);
            for look in 1..=looks {
                let elapsed = wrong * look / looks;
                let shown = clock.show(elapsed, elapsed + off);
                prop_assert!((shown - elapsed).abs() * 10 <= elapsed);
            }
            for look in 1..=looks {
                let elapsed = wrong + wrong * look / looks;
                clock.show(elapsed, elapsed);
            }
            // Each look may give away a part of a nanosecond.
            prop_assert!((clock.shown_ns - 2 * wrong).abs() <= 2 * looks);
        }

        /// A leader begins behind its last frame, and never further ahead of all others than is believed.
        #[test]
        fn a_leader_begins_between_its_last_frame_and_what_is_believed(
            wall in -DAY..DAY, own in -DAY..DAY, newer in 0..DAY, server in -DAY..DAY,
        ) {
            let newest = own + newer;
            let mut clock = Steady::begin(0, 0);
            clock.set(0, wall, Witnessed { own_ns: own, newest_ns: newest, server_ns: Some(server) });
            let shown = clock.shown_ns;
            prop_assert!(shown >= own);
            prop_assert!(shown <= newest.max(server) + TRUST_NS);
            prop_assert!(shown <= wall.max(own));
        }
    }
}
