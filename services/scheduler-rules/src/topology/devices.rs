//! Which devices of a set: a search over its subsets that tries only one of several that come to the same, and stops where
//! the best so far is out of reach.

use super::{DEVICE_MILLI, DEVICES_MAX, ZoneAsk, bits, zones::distance};
use vocab::Topology;

pub struct Devices<'a> {
    topology: &'a Topology,
    free_milli: &'a [u16],
    count: u32,
    fitting: u16,
    /// Devices that nobody has a part of.
    whole: u16,
    /// By device.
    zone: [u8; DEVICES_MAX],
    /// By device: those that it has a link to.
    links: [u16; DEVICES_MAX],
}

/// The less the better, the first field first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    /// Pairs without a link.
    unlinked: u32,
    distance: u32,
    free_milli: u32,
    /// Links to whole devices that stay.
    broken: u32,
}

impl<'a> Devices<'a> {
    pub fn of(topology: &'a Topology, free_milli: &'a [u16], ask: &ZoneAsk) -> Self {
        let free_milli = &free_milli[..free_milli.len().min(DEVICES_MAX)];
        let with = |milli| {
            let with = free_milli
                .iter()
                .zip(0..)
                .filter(|(free, _)| **free >= milli);
            with.fold(0, |all, (_, device)| all | 1 << device)
        };
        let mut devices = Self {
            topology,
            free_milli,
            count: ask.gpus.into(),
            fitting: 0,
            whole: with(DEVICE_MILLI),
            zone: Default::default(),
            links: Default::default(),
        };
        for (zone, at) in topology.zones.iter().zip(0..) {
            devices.fitting |= zone.gpus & with(ask.gpu_milli);
            for device in bits(zone.gpus) {
                devices.zone[usize::from(device)] = at;
            }
        }
        for (a, b) in &topology.links {
            if usize::from(*a.max(b)) < free_milli.len() {
                devices.links[usize::from(*a)] |= 1 << b;
                devices.links[usize::from(*b)] |= 1 << a;
            }
        }
        devices
    }

    /// Those that have the thousandths and are in a zone.
    pub fn fitting(&self) -> u16 {
        self.fitting
    }

    /// As many as are asked for, those with the least free; none if there are too few.
    pub fn least_free(&self) -> Option<u16> {
        let mut left = self.fitting;
        let mut chosen = 0;
        for _ in 0..self.count {
            let least = bits(left).min_by_key(|device| self.free_milli[usize::from(*device)])?;
            left ^= 1 << least;
            chosen |= 1 << least;
        }
        Some(chosen)
    }

    /// As many of these fitting ones as are asked for, those that are best together; none if there are too few.
    pub fn closest(&self, of: u16) -> Option<u16> {
        let mut best = None;
        self.extend(of, 0, Cost::default(), &mut best);
        best.map(|(_, chosen)| chosen)
    }

    /// Adds devices of `left` to the chosen in all ways that may be better than the best. The lowest are tried first.
    fn extend(&self, left: u16, chosen: u16, cost: Cost, best: &mut Option<(Cost, u16)>) {
        let missing = self.count - chosen.count_ones();
        // With more devices the cost only grows.
        if left.count_ones() < missing || best.is_some_and(|(least, _)| cost >= least) {
            return;
        }
        if missing == 0 {
            let stay = self.whole & !chosen;
            let broken = bits(chosen).map(|device| self.links(device) & stay);
            let broken = broken.map(u16::count_ones).sum();
            let cost = Cost { broken, ..cost };
            if best.is_none_or(|(least, _)| cost < least) {
                *best = Some((cost, chosen));
            }
            return;
        }
        let Some(device) = bits(left).next() else {
            return;
        };
        let unlinked = chosen & !self.links(device);
        let distance = bits(chosen).map(|peer| self.distance(device, peer));
        let with = Cost {
            unlinked: cost.unlinked + unlinked.count_ones(),
            distance: cost.distance + distance.sum::<u32>(),
            free_milli: cost.free_milli + u32::from(self.free_milli[usize::from(device)]),
            broken: 0,
        };
        let rest = left & !(1 << device);
        self.extend(rest, chosen | 1 << device, with, best);
        // Without it, one just like it is no better.
        let others = bits(rest).filter(|other| !self.alike(device, *other));
        let others = others.fold(0, |all, other| all | 1 << other);
        self.extend(others, chosen, cost, best);
    }

    /// One can stand for the other in any choice.
    fn alike(&self, a: u8, b: u8) -> bool {
        let but_each_other = !(1 << a | 1 << b);
        let of = |device: u8| {
            let at = usize::from(device);
            (
                self.zone[at],
                self.free_milli[at],
                self.links[at] & but_each_other,
            )
        };
        of(a) == of(b)
    }

    fn links(&self, device: u8) -> u16 {
        self.links[usize::from(device)]
    }

    /// There and back.
    fn distance(&self, a: u8, b: u8) -> u32 {
        let [a, b] = [a, b].map(|device| self.zone[usize::from(device)]);
        distance(self.topology, a, b) + distance(self.topology, b, a)
    }
}
