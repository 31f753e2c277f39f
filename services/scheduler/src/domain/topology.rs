//! Which devices and NUMA zones of a node an allocation takes.

use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use vocab::{NumaPolicy, Topology};

/// What of a zone is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneRoom {
    pub cpu_milli: u64,
    pub memory_bytes: u64,
}

/// What an allocation takes of one zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZonePart {
    pub zone: u8,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZoneAsk {
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    /// Devices.
    pub gpus: u16,
    /// Thousandths of each.
    pub gpu_milli: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Sorted.
    pub devices: Vec<u8>,
    /// Bit n: zone n.
    pub zones: u8,
}

const WHOLE: u16 = 1000;

/// All zones, empty.
pub fn empty(topology: &Topology) -> Vec<ZoneRoom> {
    let room = |zone: &vocab::Zone| ZoneRoom {
        cpu_milli: zone.cpu_milli,
        memory_bytes: zone.memory_bytes,
    };
    topology.zones.iter().map(room).collect()
}

/// One node's zones and devices, with one request.
struct Look<'a> {
    topology: &'a Topology,
    rooms: &'a [ZoneRoom],
    /// Free thousandths by device.
    gpu_milli: &'a [u16],
    ask: &'a ZoneAsk,
}

/// Whether one of the zones has room for all of it.
pub fn fits_a_zone(
    topology: &Topology,
    rooms: &[ZoneRoom],
    gpu_milli: &[u16],
    ask: &ZoneAsk,
) -> bool {
    let look = Look {
        topology,
        rooms,
        gpu_milli,
        ask,
    };
    (0..rooms.len()).any(|zone| look.fits(1 << zone))
}

/// Devices and zones by the policy; none when there is no room for it.
///
/// `Single` takes the zone that it leaves least free in. `BestEffort` takes as few zones as possible, then those closest to
/// each other. Devices are taken so that most of them are linked and fewest links to free devices are broken. `None` takes
/// the devices with the least free and the zones that they are in, and others only for what these lack.
pub fn choose(
    topology: &Topology,
    rooms: &[ZoneRoom],
    gpu_milli: &[u16],
    ask: &ZoneAsk,
    policy: NumaPolicy,
) -> Option<Choice> {
    let look = Look {
        topology,
        rooms,
        gpu_milli,
        ask,
    };
    let all = zones_of(u16::MAX >> (16 - rooms.len().min(8)));
    let masks = (1..=all).filter(|zones| zones & !all == 0 && look.fits(*zones));
    let zones = match policy {
        NumaPolicy::None => return look.anywhere(all),
        NumaPolicy::Single => masks
            .filter(|zones| zones.count_ones() == 1)
            .min_by_key(|zones| look.left(*zones)),
        NumaPolicy::BestEffort => {
            masks.min_by_key(|zones| (zones.count_ones(), look.distance(*zones), look.left(*zones)))
        }
    }?;
    Some(Choice {
        devices: look.devices(zones)?,
        zones,
    })
}

/// Zones are at most 8.
fn zones_of(bits: u16) -> u8 {
    bits as u8
}

/// What an allocation takes of each of its zones: of each what is free, from the first on. None when that is not enough.
pub fn parts(
    topology: &Topology,
    rooms: &[ZoneRoom],
    ask: &ZoneAsk,
    zones: u8,
) -> Option<Vec<ZonePart>> {
    let (mut cpu_milli, mut memory_bytes) = (ask.cpu_milli, ask.memory_bytes);
    let mut parts = Vec::new();
    for (room, zone) in rooms.iter().zip(0u8..).take(topology.zones.len()) {
        if zones >> zone & 1 == 0 {
            continue;
        }
        let part = ZonePart {
            zone,
            cpu_milli: cpu_milli.min(room.cpu_milli),
            memory_bytes: memory_bytes.min(room.memory_bytes),
        };
        cpu_milli -= part.cpu_milli;
        memory_bytes -= part.memory_bytes;
        parts.push(part);
    }
    (cpu_milli == 0 && memory_bytes == 0).then_some(parts)
}

impl Look<'_> {
    fn in_zones(&self, zones: u8) -> impl Iterator<Item = (&vocab::Zone, &ZoneRoom)> {
        let all = self.topology.zones.iter().zip(self.rooms).zip(0u8..);
        all.filter(move |(_, zone)| zones >> zone & 1 == 1)
            .map(|(pair, _)| pair)
    }

    /// Devices of the zones, as bits.
    fn gpus_of(&self, zones: u8) -> u16 {
        self.in_zones(zones)
            .fold(0, |gpus, (zone, _)| gpus | zone.gpus)
    }

    /// Of these devices, those that the request would fit on.
    fn fitting(&self, gpus: u16) -> impl Iterator<Item = (u8, u16)> {
        let all = (0u8..).zip(self.gpu_milli.iter().copied());
        let milli = self.ask.gpu_milli;
        all.filter(move |(device, free)| gpus >> device & 1 == 1 && *free >= milli)
    }

    fn free(&self, zones: u8) -> (u64, u64) {
        self.in_zones(zones)
            .fold((0, 0), |(cpu, memory), (_, room)| {
                (cpu + room.cpu_milli, memory + room.memory_bytes)
            })
    }

    fn fits(&self, zones: u8) -> bool {
        let (cpu, memory) = self.free(zones);
        cpu >= self.ask.cpu_milli
            && memory >= self.ask.memory_bytes
            && self.fitting(self.gpus_of(zones)).count() >= usize::from(self.ask.gpus)
    }

    /// What would be left: devices first, as they are what is scarce.
    fn left(&self, zones: u8) -> (u64, u64, u64) {
        let (cpu, memory) = self.free(zones);
        let gpus = self.gpus_of(zones);
        let gpu = (0..)
            .zip(self.gpu_milli)
            .filter(|(device, _)| gpus >> *device & 1 == 1);
        (
            gpu.map(|(_, free): (u8, _)| u64::from(*free)).sum(),
            cpu,
            memory,
        )
    }

    /// The sum of the distances between any two of the zones.
    fn distance(&self, zones: u8) -> u64 {
        let count = self.topology.zones.len();
        let those = || (0..count).filter(move |zone| zones >> zone & 1 == 1);
        let pairs = those().flat_map(|a| those().map(move |b| (a, b)));
        let distance = |(a, b): (usize, usize)| self.topology.distances.get(a * count + b);
        pairs
            .filter(|(a, b)| a < b)
            .filter_map(distance)
            .map(|d| u64::from(*d))
            .sum()
    }

    fn zone_of(&self, device: u8) -> usize {
        let of = |zone: &vocab::Zone| zone.gpus >> device & 1 == 1;
        self.topology.zones.iter().position(of).unwrap_or(0)
    }

    /// The best devices within the zones.
    fn devices(&self, zones: u8) -> Option<Vec<u8>> {
        let mut fitting: Vec<_> = self.fitting(self.gpus_of(zones)).collect();
        let count = usize::from(self.ask.gpus);
        if fitting.len() < count {
            return None;
        }
        let free_whole: u16 = self
            .gpu_milli
            .iter()
            .zip(0..)
            .filter(|(free, _)| **free >= WHOLE)
            .fold(0, |bits, (_, device)| bits | 1 << device);
        if self.ask.gpu_milli < WHOLE {
            fitting.sort_by_key(|(device, free)| {
                (
                    *free,
                    self.links(1 << device, free_whole & !(1 << device)),
                    *device,
                )
            });
            return Some(
                fitting
                    .iter()
                    .take(count)
                    .map(|(device, _)| *device)
                    .collect(),
            );
        }
        let among = fitting
            .iter()
            .fold(0u16, |bits, (device, _)| bits | 1 << device);
        let best = subsets(among, count as u32).min_by_key(|chosen| {
            let inside = self.links(*chosen, *chosen);
            let broken = self.links(*chosen, free_whole & !chosen);
            let used = bits(*chosen).fold(0u8, |zones, device| zones | 1 << self.zone_of(device));
            (Reverse(inside), broken, self.distance(used), *chosen)
        })?;
        Some(bits(best).collect())
    }

    /// Links from one of `a` to one of `b`.
    fn links(&self, a: u16, b: u16) -> usize {
        let joins = |(x, y): &&(u8, u8)| {
            (a >> x & 1 == 1 && b >> y & 1 == 1) || (b >> x & 1 == 1 && a >> y & 1 == 1)
        };
        self.topology.links.iter().filter(joins).count()
    }

    /// Without regard to zones.
    fn anywhere(&self, all: u8) -> Option<Choice> {
        if !self.fits(all) {
            return None;
        }
        let mut fitting: Vec<_> = self
            .fitting(self.gpus_of(all))
            .map(|(device, free)| (free, device))
            .collect();
        fitting.sort_unstable();
        let mut devices: Vec<u8> = fitting
            .iter()
            .take(self.ask.gpus.into())
            .map(|(_, device)| *device)
            .collect();
        devices.sort_unstable();
        let mut zones = devices
            .iter()
            .fold(0u8, |zones, device| zones | 1 << self.zone_of(*device));
        let enough = |zones: u8| {
            let (cpu, memory) = self.free(zones);
            cpu >= self.ask.cpu_milli && memory >= self.ask.memory_bytes
        };
        let mut others: Vec<usize> = (0..self.rooms.len())
            .filter(|zone| zones >> zone & 1 == 0)
            .collect();
        others.sort_by_key(|zone| (Reverse(self.rooms[*zone].cpu_milli), *zone));
        for zone in others {
            if enough(zones) {
                break;
            }
            zones |= 1 << zone;
        }
        enough(zones).then_some(Choice { devices, zones })
    }
}

fn bits(of: u16) -> impl Iterator<Item = u8> {
    (0u8..16).filter(move |bit| of >> bit & 1 == 1)
}

/// All subsets with so many members, at most 12,870.
fn subsets(of: u16, count: u32) -> impl Iterator<Item = u16> {
    // The next larger number within the bits of `of`, beginning with none of them.
    let next = move |subset: &u16| {
        let next = (subset | !of).wrapping_add(1) & of;
        (next != 0).then_some(next)
    };
    std::iter::successors(Some(0), next).filter(move |subset| subset.count_ones() == count)
}

#[cfg(test)]
mod tests;
