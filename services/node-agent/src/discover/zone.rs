//! NUMA zones: which CPUs, memory and devices are close to each other.

use super::{Amounts, DiscoverError, Gpu, memory::field_bytes, text};
use crate::CpuSet;
use serde::Serialize;
use std::{fs, path::Path};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Zone {
    /// The kernel's number.
    pub id: u32,
    /// Those that this process may use.
    pub cpus: CpuSet,
    pub memory_bytes: u64,
    /// Its part of what is allocatable: in proportion to the zones' CPUs and memory, so that the parts sum up.
    pub allocatable: Amounts,
    /// To each zone, in their order; 10 is local. Empty where the kernel does not say.
    pub distances: Vec<u8>,
    /// Indices of the devices that are nearest to it.
    pub gpus: Vec<u32>,
}

/// In the order of their numbers.
pub(super) fn zones(
    root: &Path,
    usable: &CpuSet,
    allocatable: Amounts,
    gpus: &[Gpu],
) -> Result<Vec<Zone>, DiscoverError> {
    let folder = root.join("sys/devices/system/node");
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    let id = |name: &str| name.strip_prefix("node")?.parse::<u32>().ok();
    let mut ids: Vec<_> = entries
        .filter_map(|entry| id(entry.file_name().to_str()?))
        .collect();
    ids.sort_unstable();
    let mut zones = Vec::new();
    for id in ids {
        zones.push(zone(&folder.join(format!("node{id}")), id, usable)?);
    }
    let cpus: Vec<_> = zones.iter().map(|zone| zone.cpus.len() as u64).collect();
    let memory: Vec<_> = zones.iter().map(|zone| zone.memory_bytes).collect();
    let cpu_milli = shares(allocatable.cpu_milli, &cpus);
    let memory_bytes = shares(allocatable.memory_bytes, &memory);
    for (zone, (cpu_milli, memory_bytes)) in zones.iter_mut().zip(cpu_milli.zip(memory_bytes)) {
        zone.allocatable = Amounts {
            cpu_milli,
            memory_bytes,
        };
    }
    for gpu in gpus {
        if let Some(zone) = zones.iter_mut().find(|zone| Some(zone.id) == gpu.zone) {
            zone.gpus.push(gpu.index);
        }
    }
    Ok(zones)
}

fn zone(folder: &Path, id: u32, usable: &CpuSet) -> Result<Zone, DiscoverError> {
    let (path, cpus) = text(folder.join("cpulist"))?;
    let cpus: CpuSet = cpus.parse().map_err(|_| DiscoverError::Content { path })?;
    let (path, memory) = text(folder.join("meminfo"))?;
    let memory_bytes = field_bytes(&memory, "MemTotal:").ok_or(DiscoverError::Content { path })?;
    let distances = fs::read_to_string(folder.join("distance")).unwrap_or_default();
    let distances: Result<_, _> = distances.split_whitespace().map(str::parse).collect();
    Ok(Zone {
        id,
        cpus: cpus.both(usable),
        memory_bytes,
        allocatable: Amounts::default(),
        distances: distances.unwrap_or_default(),
        gpus: Vec::new(),
    })
}

/// Whole numbers in proportion to the weights, whose sum is the total: each is a part of what those before it have left.
fn shares(total: u64, weights: &[u64]) -> impl Iterator<Item = u64> {
    let mut weight_left: u128 = weights.iter().copied().map(u128::from).sum();
    let mut left = total;
    weights.iter().map(move |weight| {
        // Without any weight there is nothing to share out.
        let share = (u128::from(left) * u128::from(*weight)).checked_div(weight_left);
        let share = u64::try_from(share.unwrap_or(0)).unwrap_or(left);
        weight_left -= u128::from(*weight);
        left -= share;
        share
    })
}

/// The zone next to a device of the PCI bus. On a machine with one zone the kernel may say -1: none.
pub(super) fn of_device(root: &Path, pci_address: &str) -> Option<u32> {
    let folder = root.join("sys/bus/pci/devices").join(pci_address);
    let text = fs::read_to_string(folder.join("numa_node")).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::machine_of;

    const NODES: [(&str, &str); 7] = [
        ("sys/devices/system/node/node0/cpulist", "0-1\n"),
        (
            "sys/devices/system/node/node0/meminfo",
            "Node 0 MemTotal: 3 kB\n",
        ),
        ("sys/devices/system/node/node0/distance", "10 21\n"),
        ("sys/devices/system/node/node1/cpulist", "2-3\n"),
        (
            "sys/devices/system/node/node1/meminfo",
            "Node 1 MemTotal: 1 kB\n",
        ),
        ("sys/devices/system/node/node1/distance", "21 10\n"),
        ("sys/devices/system/node/online", "0-1\n"),
    ];

    fn gpu(index: u32, zone: Option<u32>) -> Gpu {
        Gpu {
            index,
            uuid: String::new(),
            model: "A100".to_owned(),
            memory_bytes: 1,
            pci_address: String::new(),
            zone,
        }
    }

    #[test]
    fn zones_have_what_is_near_and_their_parts_sum_up() {
        let root = machine_of(&NODES);
        let usable = [0, 1, 2].into_iter().collect();
        let allocatable = Amounts {
            cpu_milli: 2500,
            memory_bytes: 4001,
        };
        let gpus = [
            gpu(0, Some(1)),
            gpu(1, Some(0)),
            gpu(2, Some(1)),
            gpu(3, None),
        ];
        let zones = zones(root.path(), &usable, allocatable, &gpus).expect("read");
        let found: Vec<_> = zones
            .iter()
            .map(|zone| {
                let part = zone.allocatable;
                let near = (
                    zone.cpus.to_string(),
                    zone.gpus.clone(),
                    zone.distances.clone(),
                );
                (near, part.cpu_milli, part.memory_bytes)
            })
            .collect();
        let first = ("0-1".to_owned(), vec![1], vec![10, 21]);
        let second = ("2".to_owned(), vec![0, 2], vec![21, 10]);
        assert_eq!(found, [(first, 1666, 3000), (second, 834, 1001)]);
    }

    #[test]
    fn parts_sum_up_to_the_whole() {
        let check = |total, weights: &[u64], expected: &[u64]| {
            let shares: Vec<_> = shares(total, weights).collect();
            assert_eq!(shares, expected);
        };
        check(10, &[1, 1, 1], &[3, 3, 4]);
        check(10, &[0, 5], &[0, 10]);
        check(
            u64::MAX,
            &[u64::MAX, u64::MAX],
            &[u64::MAX / 2, u64::MAX / 2 + 1],
        );
        check(10, &[0, 0], &[0, 0]);
        check(10, &[], &[]);
    }

    #[test]
    fn a_machine_without_zones_has_none_and_garbage_is_refused() {
        let none = machine_of(&[]);
        let read = |root: &Path| zones(root, &CpuSet::default(), Amounts::default(), &[]);
        assert_eq!(read(none.path()).expect("read"), []);
        let mut files = NODES;
        files[3].1 = "two\n";
        assert!(read(machine_of(&files).path()).is_err());
        let mut files = NODES;
        files[4].1 = "Node 1 MemTotal: much\n";
        assert!(read(machine_of(&files).path()).is_err());
    }

    #[test]
    fn a_device_is_near_a_zone_if_the_kernel_knows_one() {
        let check = |text: &str, expected| {
            let root = machine_of(&[("sys/bus/pci/devices/0000:3b:00.0/numa_node", text)]);
            assert_eq!(of_device(root.path(), "0000:3b:00.0"), expected);
        };
        check("1\n", Some(1));
        check("-1\n", None);
        assert_eq!(of_device(Path::new("/nowhere"), "0000:3b:00.0"), None);
    }
}
