//! Our own policy: the node where the least usable GPU is lost.
//!
//! A placement takes two things from those to come, both counted in thousandths of a device:
//!
//! - GPU that they could have used, class by class as in fragmentation gradient descent, but at a price: a class that only
//!   a part of the nodes can serve, because of the model, the CPU or the number of devices, weighs more there. So a request
//!   that may go anywhere keeps off the models that others depend on.
//! - GPU that is stranded: free, but without the CPU or memory that GPU is usually asked for with. So those who need little
//!   beside GPU go where little is left, and those who need much, or no GPU at all, go where there is more than the GPU
//!   needs. The price of a class does not see this in time, since a class fits until the last core is gone.
//!
//! What is lost is rounded to a tenth of a device. Below that, the fixed order of the nodes keeps filling the same ones,
//! and that leaves more room together than the exact difference would.
//!
//! Requests without GPU prefer nodes without, and there the one that they leave least on. As long as nothing is known of
//! what is asked for, it is best fit.

use super::{
    Free, Popularity, Request, best_fit, fragmentation::WHOLE, prices::Prices, tightest,
    usable::Usable,
};

/// Nothing lost.
const NO_LOSS: u32 = 1 << 30;
/// Lost thousandths that count as one.
const STEP: i64 = 100 * WHOLE as i64;

/// Only for a room that it fits in.
pub fn score(popularity: &Popularity, room: &Free, ask: &Request) -> u32 {
    if ask.gpus() == 0 && room.gpu_milli().is_empty() {
        return NO_LOSS + 1 + fullness(room, ask);
    }
    let prices = popularity.prices();
    if prices.scarce.is_empty() {
        return best_fit::score(room, ask);
    }
    let usable = if ask.is_share() {
        best_share(&prices.scarce, room, ask).0
    } else {
        prices.scarce.of(&room.without(ask, &tightest(room, ask)))
    };
    let lost_usable = prices.scarce.of(room) as i64 - usable as i64;
    // At most 16000 thousandths at a thousand times WHOLE: far below 2^62.
    let lost = lost_usable + newly_stranded(prices, room, ask) * WHOLE as i64;
    let steps = (lost + STEP / 2).div_euclid(STEP);
    // Fewer than 2^18 steps.
    (i64::from(NO_LOSS) - steps) as u32
}

/// Only for a room that the share fits in: the device that leaves most usable.
pub fn device(popularity: &Popularity, room: &Free, ask: &Request) -> u16 {
    best_share(&popularity.prices().scarce, room, ask).1
}

/// What is usable afterwards, and the device; the first of equals.
fn best_share(scarce: &Usable, room: &Free, ask: &Request) -> (u64, u16) {
    let each = scarce.after_share(room, ask);
    let each = each.map(|(device, usable)| (usable, device));
    let best = each.reduce(|best, next| if next.0 > best.0 { next } else { best });
    best.unwrap_or_default()
}

/// Thousandths; below 0 when less is stranded than before.
fn newly_stranded(prices: &Prices, room: &Free, ask: &Request) -> i64 {
    let (cpu_milli, memory_bytes) = (room.cpu_milli(), room.memory_bytes());
    let gpu_milli = room.gpu_milli_total();
    let after = prices.stranded(
        cpu_milli - ask.cpu_milli(),
        memory_bytes - ask.memory_bytes(),
        gpu_milli - ask.gpu_milli_total(),
    );
    after as i64 - prices.stranded(cpu_milli, memory_bytes, gpu_milli) as i64
}

/// The less is left, the more; 5 GiB count as a core.
fn fullness(room: &Free, ask: &Request) -> u32 {
    const MOST: u32 = 1 << 29;
    let cores_tenths = (room.cpu_milli() - ask.cpu_milli()) / 100;
    let half_gib = (room.memory_bytes() - ask.memory_bytes()) >> 29;
    MOST - u32::try_from(cores_tenths + half_gib).map_or(MOST, |left| left.min(MOST))
}

#[cfg(test)]
mod tests {
    use crate::scoring::{Policy, Popularity, tests};

    /// All nodes are there from the beginning, and are what is known of the supply.
    #[track_caller]
    fn check(classes: &[&str], nodes: &[&str], ask: &str, expected: &str) {
        let mut popularity = Popularity::known(classes.iter().map(|class| tests::ask(class)));
        nodes
            .iter()
            .for_each(|node| popularity.joined(&tests::room(node)));
        tests::check(Policy::Default, &popularity, nodes, ask, expected);
    }

    #[test]
    fn whole_devices_are_spared() {
        let usual = ["4c 1x1000"];
        check(
            &usual,
            &["64c 1000 1000", "64c 1000 600"],
            "1c 1x300",
            "1 1",
        );
        check(
            &usual,
            &["64c 1000 1000", "64c 1000 600"],
            "1c 1x1000",
            "0 0",
        );
    }

    #[test]
    fn scarce_models_are_spared() {
        let usual = ["4c 1x1000", "4c 1x1000", "4c 1x1000", "4c 1x1000 m1"];
        let nodes = ["64c 1000 m1", "64c 1000 1000 1000 m2"];
        check(&usual, &nodes, "4c 1x1000", "1 0");
        check(&usual, &nodes, "4c 1x1000 m1", "0 0");
    }

    #[test]
    fn no_gpu_is_stranded() {
        let usual = ["8c 1x1000", "16c 1x1000", "8c"];
        // 12 cores for a device are usual.
        let nodes = ["24c 1000 1000", "64c 1000 1000"];
        check(&usual, &nodes, "16c 1x1000", "1 0");
        check(&usual, &nodes, "16c", "1");
        check(&usual, &nodes, "8c 1x1000", "0 0");
    }

    #[test]
    fn without_gpu_to_nodes_without_the_fullest_first() {
        let usual = ["8c 1x1000"];
        check(&usual, &["64c 1000", "32c", "16c"], "8c", "2");
        check(&[], &["64c 1000", "32c", "16c"], "8c", "2");
        check(&usual, &["64c 1000", "4c"], "8c", "0");
    }

    #[test]
    fn best_fit_when_nothing_is_known() {
        check(&[], &["64c 1000 1000", "16c 1000"], "8c 1x500", "1 0");
        check(&["4c"], &["64c 1000 1000", "16c 1000"], "8c", "1");
    }
}
