//! What the node registers: the machine, as the contract describes a node. It may have other amounts later, by another
//! configuration or another machine; the agent's file of what it has told last counts that.

use super::Settings;
use crate::discover::Machine;
use identity::files::{self, FileError};
use prost::Message;
use schemas::v1;
use std::{collections::BTreeMap, path::Path};
use vocab::Work;

const TOLD: &str = "capacity";

/// What is to be told in a new life.
pub fn first(dir: &Path, capacity: v1::NodeCapacity) -> Result<v1::Register, FileError> {
    written(dir, capacity, 0)
}

/// What is to be told in a life that goes on: what was told before, unless the capacity is another one by now. One that was told
/// by an agent that wrote nothing down counts as another one, and is none for the cell if it is the same.
pub fn next(dir: &Path, capacity: v1::NodeCapacity) -> Result<v1::Register, FileError> {
    let before = files::read_bytes(&dir.join(TOLD)).ok();
    let before = before.and_then(|bytes| v1::Register::decode(&*bytes).ok());
    match before {
        Some(told) if told.capacity.as_ref() == Some(&capacity) => Ok(told),
        before => {
            let change = before.map_or(0, |told| told.change);
            written(dir, capacity, change.saturating_add(1))
        }
    }
}

fn written(dir: &Path, capacity: v1::NodeCapacity, change: u64) -> Result<v1::Register, FileError> {
    let capacity = Some(capacity);
    let told = v1::Register { capacity, change };
    files::write(&dir.join(TOLD), told.encode_to_vec())?;
    Ok(told)
}

/// More zones than this the contract does not know.
const ZONES_MAX: usize = 8;

/// The labels are the site's own, which go before those of the machine.
pub fn capacity(machine: &Machine, settings: &Settings) -> v1::NodeCapacity {
    let mut all = match settings.machine_labels {
        true => machine.labels.clone(),
        false => BTreeMap::new(),
    };
    all.extend(settings.labels.clone());
    let how = match settings.exec_plugin.is_some() {
        true => Work::BY_PLUGIN,
        false => Work::BY_PROCESS,
    };
    all.insert(Work::NODE_LABEL.to_owned(), how.to_owned());
    v1::NodeCapacity {
        cpu_milli: machine.allocatable.cpu_milli,
        memory_bytes: machine.allocatable.memory_bytes,
        gpus: machine.gpus.len().try_into().unwrap_or(u32::MAX),
        // A node has devices of one model: where they differ, the first one's name would promise too much.
        gpu_model: match machine.gpus.first() {
            Some(first) if machine.gpus.iter().all(|gpu| gpu.model == first.model) => {
                first.model.clone()
            }
            _ => String::new(),
        },
        labels: all
            .into_iter()
            .map(|(name, value)| v1::Label { name, value })
            .collect(),
        taints: Vec::new(),
        extended: Vec::new(),
        topology: topology(machine),
        max_runs: settings.max_runs,
    }
}

/// None: the machine is one zone, or what it says of them does not fit together.
fn topology(machine: &Machine) -> Option<v1::Topology> {
    let zones = &machine.zones;
    let whole = (2..=ZONES_MAX).contains(&zones.len())
        && zones.iter().all(|zone| zone.distances.len() == zones.len())
        && machine.gpus.iter().all(|gpu| gpu.zone.is_some());
    whole.then(|| v1::Topology {
        zones: zones
            .iter()
            .map(|zone| v1::Zone {
                cpu_milli: zone.allocatable.cpu_milli,
                memory_bytes: zone.allocatable.memory_bytes,
                gpus: zone
                    .gpus
                    .iter()
                    .fold(0, |bits, gpu| bits | 1 << gpu.min(&31)),
            })
            .collect(),
        distances: zones
            .iter()
            .flat_map(|zone| zone.distances.iter().copied().map(u32::from))
            .collect(),
        links: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        CpuSet,
        discover::{Amounts, Gpu, Zone},
    };

    fn machine(models: &[&str], zones: usize) -> Machine {
        let amounts = Amounts {
            cpu_milli: 4000,
            memory_bytes: 8 << 30,
        };
        let gpu = |(index, model): (usize, &&str)| Gpu {
            index: index as u32,
            uuid: String::new(),
            model: model.to_string(),
            memory_bytes: 0,
            pci_address: String::new(),
            zone: Some(0),
        };
        Machine {
            hostname: "h".into(),
            kernel: "6".into(),
            labels: BTreeMap::from([("arch".into(), "x".into()), ("os".into(), "linux".into())]),
            capacity: amounts,
            allocatable: amounts,
            cpus: "0-3".parse::<CpuSet>().expect("a list of CPUs"),
            zones: (0..zones)
                .map(|id| Zone {
                    id: id as u32,
                    cpus: format!("{}-{}", 2 * id, 2 * id + 1).parse().expect("CPUs"),
                    memory_bytes: 4 << 30,
                    allocatable: Amounts {
                        cpu_milli: 2000,
                        memory_bytes: 4 << 30,
                    },
                    distances: vec![10; zones],
                    gpus: if id == 0 { vec![0, 1] } else { Vec::new() },
                })
                .collect(),
            gpus: models.iter().enumerate().map(gpu).collect(),
        }
    }

    #[test]
    fn a_machine_becomes_a_node() {
        let mut settings = Settings {
            labels: BTreeMap::from([("os".into(), "ours".into()), ("zone".into(), "z1".into())]),
            machine_labels: true,
            ..Settings::default()
        };
        let node = capacity(&machine(&["A100", "A100"], 2), &settings);
        assert_eq!((node.cpu_milli, node.memory_bytes), (4000, 8 << 30));
        assert_eq!((node.gpus, node.gpu_model.as_str()), (2, "A100"));
        let labels = |node: &v1::NodeCapacity| -> Vec<String> {
            let labels = node.labels.iter();
            labels.map(|l| format!("{}={}", l.name, l.value)).collect()
        };
        assert_eq!(
            labels(&node),
            ["_commands=process", "arch=x", "os=ours", "zone=z1"]
        );
        settings.machine_labels = false;
        let plain = capacity(&machine(&[], 1), &settings);
        assert_eq!(labels(&plain), ["_commands=process", "os=ours", "zone=z1"]);
        let topology = node.topology.expect("two zones");
        let zones: Vec<_> = topology
            .zones
            .iter()
            .map(|z| (z.cpu_milli, z.gpus))
            .collect();
        assert_eq!(zones, [(2000, 3), (2000, 0)]);
        assert_eq!(topology.distances, [10; 4]);
    }

    #[test]
    fn what_is_not_sure_is_not_said() {
        assert_eq!(
            capacity(&machine(&["A100", "T4"], 1), &Settings::default()).gpu_model,
            ""
        );
        assert_eq!(topology(&machine(&[], 1)), None);
        assert_eq!(topology(&machine(&[], 9)), None);
        let mut odd = machine(&[], 2);
        odd.zones[1].distances.clear();
        assert_eq!(topology(&odd), None);
    }
}
