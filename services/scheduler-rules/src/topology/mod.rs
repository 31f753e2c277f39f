//! Which devices and NUMA zones of a node an allocation takes.
//!
//! A choice is made once; devices and a mask of zones are what is recorded of it, and [`parts`] splits cpu and memory over
//! the mask again from these. Sets of devices and zones are bits, the lowest for number 0.

mod devices;
mod zones;

use devices::Devices;
use serde::{Deserialize, Serialize};
use vocab::{NumaPolicy, Topology};
use zones::Zones;

/// Free amounts of a zone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ZoneRoom {
    pub cpu_milli: u64,
    pub memory_bytes: u64,
}

/// What is to be placed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ZoneAsk {
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    /// Devices.
    pub gpus: u16,
    /// Thousandths of each of them.
    pub gpu_milli: u16,
}

/// What is taken from one zone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ZonePart {
    pub zone: u8,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    devices: [u8; DEVICES_MAX],
    device_count: usize,
    zones: u8,
    parts: Parts,
}

impl Choice {
    /// In rising order.
    pub fn devices(&self) -> &[u8] {
        &self.devices[..self.device_count]
    }

    /// Bit n: zone n. All zones that a device or a part is of.
    pub fn zones(&self) -> u8 {
        self.zones
    }

    /// In the order of the zones; none of them empty. The same as [`parts`] finds.
    pub fn parts(&self) -> &[ZonePart] {
        self.parts.as_slice()
    }
}

const DEVICES_MAX: usize = 16;
pub const DEVICE_MILLI: u16 = 1000;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Parts {
    of: [ZonePart; Topology::ZONES_MAX],
    count: usize,
}

impl Parts {
    fn as_slice(&self) -> &[ZonePart] {
        &self.of[..self.count]
    }
}

/// The zones of a node that nothing runs on.
pub fn empty(topology: &Topology) -> Vec<ZoneRoom> {
    let room = topology.zones.iter().map(|zone| ZoneRoom {
        cpu_milli: zone.cpu_milli,
        memory_bytes: zone.memory_bytes,
    });
    room.collect()
}

/// The devices and zones by the policy, or none when there is no room for all of it. `free` is by zone, `free_milli` by
/// device.
///
/// - Single: the one zone that it leaves least of, then the lowest.
/// - BestEffort: the fewest zones, then those closest to each other, then those that it leaves least of, then the lowest mask.
/// - None: the devices with the least free, then the lowest; their zones and, where these are too small, as few others as
///   with BestEffort.
///
/// Inside the zones that Single and BestEffort chose, the devices with the most links among each other, then the closest,
/// then those with the least free, then those with the fewest links to free devices that stay, then the lowest.
pub fn choose(
    topology: &Topology,
    free: &[ZoneRoom],
    free_milli: &[u16],
    ask: &ZoneAsk,
    policy: NumaPolicy,
) -> Option<Choice> {
    let devices = Devices::of(topology, free_milli, ask);
    let room = Zones::of(topology, free, free_milli, &devices)?;
    let (zones, chosen) = match policy {
        NumaPolicy::Single => {
            let zones = room.best(ask, 0, 1)?;
            (zones, devices.closest(room.devices(zones))?)
        }
        NumaPolicy::BestEffort => {
            let zones = room.best(ask, 0, Topology::ZONES_MAX as u32)?;
            (zones, devices.closest(room.devices(zones))?)
        }
        NumaPolicy::None => {
            let chosen = devices.least_free()?;
            let with = room.zones(chosen);
            (room.best(ask, with, Topology::ZONES_MAX as u32)?, chosen)
        }
    };
    let mut choice = Choice {
        devices: [0; DEVICES_MAX],
        device_count: 0,
        zones,
        parts: split(free, ask, zones)?,
    };
    for device in bits(chosen) {
        choice.devices[choice.device_count] = device;
        choice.device_count += 1;
    }
    Some(choice)
}

/// Whether one of the zones has room for all of it.
pub fn fits_a_zone(
    topology: &Topology,
    free: &[ZoneRoom],
    free_milli: &[u16],
    ask: &ZoneAsk,
) -> bool {
    let devices = Devices::of(topology, free_milli, ask);
    let room = Zones::of(topology, free, free_milli, &devices);
    room.is_some_and(|room| room.best(ask, 0, 1).is_some())
}

/// Returns an upper bound of such asks that fit within zones of an empty node.
pub fn most_in_zones(topology: &Topology, ask: &ZoneAsk) -> u64 {
    let zones = topology.zones.iter().map(|zone| {
        let shares = u64::from(DEVICE_MILLI / ask.gpu_milli.max(1));
        let by_gpu = match ask.gpus {
            0 => u64::MAX,
            gpus => u64::from(zone.gpus.count_ones()) * shares / u64::from(gpus),
        };
        let by_cpu = zone.cpu_milli / ask.cpu_milli.max(1);
        let by_memory = zone.memory_bytes / ask.memory_bytes.max(1);
        by_gpu.min(by_cpu).min(by_memory)
    });
    zones.fold(0, u64::saturating_add)
}

/// What each zone of the mask gives: the lowest zone all that it has, and what is missing the next. Cpu and memory each on
/// their own; zones that give nothing are left out. None when there is no room for all of it.
pub fn parts(
    topology: &Topology,
    free: &[ZoneRoom],
    ask: &ZoneAsk,
    zones: u8,
) -> Option<Vec<ZonePart>> {
    let known = topology.zones.len().min(free.len());
    if bits(zones.into()).any(|zone| usize::from(zone) >= known) {
        return None;
    }
    split(free, ask, zones).map(|parts| parts.as_slice().to_vec())
}

fn split(free: &[ZoneRoom], ask: &ZoneAsk, zones: u8) -> Option<Parts> {
    let (mut cpu_milli, mut memory_bytes) = (ask.cpu_milli, ask.memory_bytes);
    let mut parts = Parts::default();
    for zone in bits(zones.into()) {
        let room = free.get(usize::from(zone))?;
        let part = ZonePart {
            zone,
            cpu_milli: cpu_milli.min(room.cpu_milli),
            memory_bytes: memory_bytes.min(room.memory_bytes),
        };
        cpu_milli -= part.cpu_milli;
        memory_bytes -= part.memory_bytes;
        if part.cpu_milli > 0 || part.memory_bytes > 0 {
            parts.of[parts.count] = part;
            parts.count += 1;
        }
    }
    (cpu_milli == 0 && memory_bytes == 0).then_some(parts)
}

/// The numbers of the bits that are set, rising.
fn bits(set: u16) -> impl Iterator<Item = u8> {
    (0..16).filter(move |bit| set >> bit & 1 == 1)
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
