//! The GPU of a node that the usual request cannot use.
//!
//! F_n(M) of Weng et al., "Beware of Fragmentation", USENIX ATC 2023: the sum over the classes m of p_m F_n(m), where
//! F_n(m) is all free GPU when the class does not fit, or needs none, and else what is free on devices that are too small.

use super::{Free, Popularity};

/// A popularity of 1, and the unit of `fragmentation`: this much is one thousandth of a device.
pub const WHOLE: u64 = 1_000_000_000;

/// Free GPU that is fragmented, in thousandths of a device times `WHOLE`.
pub fn fragmentation(popularity: &Popularity, room: &Free) -> u64 {
    if popularity.is_empty() {
        return 0;
    }
    room.gpu_milli_total() * WHOLE - popularity.usable().of(room)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scoring::tests::{ask, room};

    /// The classes are of equal popularity; the result is in thousandths of a device.
    #[track_caller]
    fn check(classes: &[&str], of: &str, expected: u64) {
        let popularity = Popularity::known(classes.iter().map(|class| ask(class)));
        assert_eq!(fragmentation(&popularity, &room(of)) / WHOLE, expected);
    }

    #[test]
    fn the_cases_of_the_paper() {
        // Fits: what is too small.
        check(&["1c 1x500"], "8c 1000 400", 400);
        check(&["1c 1x300"], "8c 1000 400", 0);
        // Too little CPU, too few devices, both.
        check(&["9c 1x500"], "8c 1000 400", 1400);
        check(&["1c 2x1000"], "8c 1000 400", 1400);
        check(&["9c 2x1000"], "8c 1000 400", 1400);
        // No GPU wanted; another model.
        check(&["1c"], "8c 1000 400", 1400);
        check(&["1c 1x500 m1"], "8c 1000 400 m2", 1400);
        check(&["1c 1x500 m2"], "8c 1000 400 m2", 400);
        // Half of each.
        check(&["1c 1x500", "9c 1x500"], "8c 1000 400", 900);
        check(&["1c 1x500"], "8c", 0);
        check(&[], "8c 1000 400", 0);
    }
}
