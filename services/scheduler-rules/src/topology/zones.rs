//! Which zones have room for a request: a search over all sets of zones, of which there are at most 255.

use super::{DEVICE_MILLI, DEVICES_MAX, ZoneAsk, ZoneRoom, bits, devices::Devices};
use vocab::Topology;

pub struct Zones<'a> {
    topology: &'a Topology,
    free: &'a [ZoneRoom],
    /// Free thousandths of all devices, by zone.
    gpu_milli: [u64; Topology::ZONES_MAX],
    /// Devices that fit, by zone.
    fitting: [u16; Topology::ZONES_MAX],
    /// What the node has when it is empty.
    total: Room,
}

/// Of several zones.
#[derive(Debug, Clone, Copy, Default)]
struct Room {
    cpu_milli: u64,
    memory_bytes: u64,
    gpu_milli: u64,
}

impl<'a> Zones<'a> {
    /// None when the free amounts are not those of the topology's zones.
    pub fn of(
        topology: &'a Topology,
        free: &'a [ZoneRoom],
        free_milli: &[u16],
        devices: &Devices,
    ) -> Option<Self> {
        let zones = topology.zones.len();
        if zones != free.len() || zones > Topology::ZONES_MAX {
            return None;
        }
        let count = free_milli.len().min(DEVICES_MAX) as u64;
        let mut room = Self {
            topology,
            free,
            gpu_milli: Default::default(),
            fitting: Default::default(),
            total: Room {
                gpu_milli: count * u64::from(DEVICE_MILLI),
                ..Room::default()
            },
        };
        for (at, zone) in topology.zones.iter().enumerate() {
            let here = bits(zone.gpus).filter_map(|device| free_milli.get(usize::from(device)));
            room.gpu_milli[at] = here.map(|milli| u64::from(*milli)).sum();
            room.fitting[at] = zone.gpus & devices.fitting();
            room.total.cpu_milli = room.total.cpu_milli.saturating_add(zone.cpu_milli);
            room.total.memory_bytes = room.total.memory_bytes.saturating_add(zone.memory_bytes);
        }
        Some(room)
    }

    /// Of the zones, those that fit.
    pub fn devices(&self, zones: u8) -> u16 {
        let fitting = bits(zones.into()).map(|zone| self.fitting[usize::from(zone)]);
        fitting.fold(0, |all, devices| all | devices)
    }

    /// Of the devices.
    pub fn zones(&self, devices: u16) -> u8 {
        let zones = self.topology.zones.iter().zip(0..);
        let with = zones.filter(|(zone, _)| zone.gpus & devices != 0);
        with.fold(0, |all, (_, at)| all | 1 << at)
    }

    /// At most so many zones, `with` among them, that have room for all of it: the fewest, then the closest, then those that
    /// it leaves least of, then the lowest mask.
    pub fn best(&self, ask: &ZoneAsk, with: u8, count_max: u32) -> Option<u8> {
        let all = u8::MAX.checked_shr(8 - self.free.len() as u32).unwrap_or(0);
        (1..=count_max).find_map(|count| {
            let sets =
                (1..=all).filter(|zones| zones & with == with && zones.count_ones() == count);
            let costs = sets.filter_map(|zones| {
                let left_ppm = self.left_ppm(ask, zones)?;
                Some((self.apart(zones), left_ppm, zones))
            });
            costs.min().map(|(_, _, zones)| zones)
        })
    }

    /// What the request leaves of the zones if it fits: the sum of what is left of each resource, in millionths of what the
    /// whole node has of it.
    fn left_ppm(&self, ask: &ZoneAsk, zones: u8) -> Option<u64> {
        let mut room = Room::default();
        for zone in bits(zones.into()).map(usize::from) {
            let free = &self.free[zone];
            room.cpu_milli = room.cpu_milli.saturating_add(free.cpu_milli);
            room.memory_bytes = room.memory_bytes.saturating_add(free.memory_bytes);
            room.gpu_milli += self.gpu_milli[zone];
        }
        if self.devices(zones).count_ones() < u32::from(ask.gpus) {
            return None;
        }
        let gpu_milli = u64::from(ask.gpus) * u64::from(ask.gpu_milli);
        let cpu = ppm(
            room.cpu_milli.checked_sub(ask.cpu_milli)?,
            self.total.cpu_milli,
        );
        let memory_bytes = room.memory_bytes.checked_sub(ask.memory_bytes)?;
        let memory = ppm(memory_bytes, self.total.memory_bytes);
        let gpu = ppm(room.gpu_milli.checked_sub(gpu_milli)?, self.total.gpu_milli);
        Some(cpu + memory + gpu)
    }

    /// The sum of the distances of all pairs, both ways.
    fn apart(&self, zones: u8) -> u32 {
        let pairs = bits(zones.into()).flat_map(|a| bits(zones.into()).map(move |b| (a, b)));
        let others = pairs.filter(|(a, b)| a != b);
        others.map(|(a, b)| distance(self.topology, a, b)).sum()
    }
}

/// One way. As far as can be where the topology says nothing.
pub fn distance(topology: &Topology, a: u8, b: u8) -> u32 {
    let at = usize::from(a) * topology.zones.len() + usize::from(b);
    topology
        .distances
        .get(at)
        .copied()
        .unwrap_or(u8::MAX)
        .into()
}

fn ppm(amount: u64, total: u64) -> u64 {
    let scaled = u128::from(amount) * 1_000_000;
    let ppm = scaled.checked_div(total.into()).unwrap_or(0);
    // Of what is left of the node, at most all of it.
    u64::try_from(ppm.min(1_000_000)).unwrap_or(0)
}
