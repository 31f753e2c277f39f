//! What a node may say of itself. The limits are those that requests have, so that sums over a node stay far from
//! overflow, and lists are in order, so that the same node is always written in the same way.

use vocab::{AllocationSpec, NodeCapacity, Token, Topology};

pub(super) fn plausible(capacity: &NodeCapacity) -> bool {
    let NodeCapacity {
        cpu_milli,
        memory_bytes,
        gpus,
        gpu_model,
        labels,
        taints,
        extended,
        topology,
    } = capacity;
    *cpu_milli <= AllocationSpec::CPU_MILLI_MAX
        && *memory_bytes <= AllocationSpec::MEMORY_BYTES_MAX
        && u64::from(*gpus) <= AllocationSpec::GPUS_MAX
        && (*gpus > 0 || gpu_model.is_none())
        && labels.len() <= NodeCapacity::LABELS_MAX
        && ordered(labels)
        && taints.len() <= NodeCapacity::TAINTS_MAX
        && extended.len() <= AllocationSpec::EXTENDED_MAX
        && ordered(extended)
        && extended
            .iter()
            .all(|(_, amount)| (1..=AllocationSpec::EXTENDED_AMOUNT_MAX).contains(amount))
        && topology.as_ref().is_none_or(|it| adds_up(it, capacity))
}

/// By name, each once.
fn ordered<V>(named: &[(Token, V)]) -> bool {
    named.is_sorted_by(|(a, _), (b, _)| a < b)
}

/// Whether the zones make up the node.
fn adds_up(topology: &Topology, capacity: &NodeCapacity) -> bool {
    let Topology {
        zones,
        distances,
        links,
    } = topology;
    let sum = |part: fn(&vocab::Zone) -> u64| -> u128 {
        zones.iter().map(|zone| u128::from(part(zone))).sum()
    };
    // Sums of bits are the bits themselves only if none is in two zones.
    let devices: u32 = zones.iter().map(|zone| u32::from(zone.gpus)).sum();
    (1..=Topology::ZONES_MAX).contains(&zones.len())
        && distances.len() == zones.len() * zones.len()
        && sum(|zone| zone.cpu_milli) == u128::from(capacity.cpu_milli)
        && sum(|zone| zone.memory_bytes) == u128::from(capacity.memory_bytes)
        && devices == (1u32 << capacity.gpus) - 1
        && zones
            .iter()
            .fold(0, |all, zone| all | zone.gpus)
            .count_ones()
            == devices.count_ones()
        && links.len() <= Topology::LINKS_MAX
        && links
            .iter()
            .all(|(low, high)| low < high && u16::from(*high) < capacity.gpus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vocab::{Taint, Zone};

    fn token(text: &str) -> Token {
        Token::new(text).unwrap()
    }

    fn zone(cpu_milli: u64, memory_bytes: u64, gpus: u16) -> Zone {
        Zone {
            cpu_milli,
            memory_bytes,
            gpus,
        }
    }

    /// Two zones with two devices each, and one of everything else.
    fn node() -> NodeCapacity {
        NodeCapacity {
            cpu_milli: 8000,
            memory_bytes: 64,
            gpus: 4,
            gpu_model: Some(token("A100")),
            labels: vec![(token("rack"), token("r1")), (token("zone"), token("z1"))],
            taints: vec![Taint {
                key: token("maintenance"),
                value: None,
            }],
            extended: vec![(token("fpga"), 2), (token("licence"), 1 << 40)],
            topology: Some(Box::new(Topology {
                zones: vec![zone(5000, 32, 0b0011), zone(3000, 32, 0b1100)],
                distances: vec![10, 21, 21, 10],
                links: vec![(0, 1), (2, 3)],
            })),
        }
    }

    #[track_caller]
    fn check(expected: bool, what: &str, change: impl FnOnce(&mut NodeCapacity)) {
        let mut capacity = node();
        change(&mut capacity);
        assert_eq!(plausible(&capacity), expected, "{what}");
    }

    #[track_caller]
    fn check_topology(expected: bool, what: &str, change: impl FnOnce(&mut Topology)) {
        check(expected, what, |c| {
            change(c.topology.as_mut().expect("it has one"));
        });
    }

    #[test]
    fn a_node_is_what_it_may_be() {
        check(true, "as it is", |_| {});
        check(true, "nothing", |c| *c = NodeCapacity::default());
        check(false, "cpu", |c| c.cpu_milli = u64::MAX);
        check(false, "memory", |c| c.memory_bytes = u64::MAX);
        check(false, "gpus", |c| c.gpus = 17);
        check(true, "no model", |c| c.gpu_model = None);
        let full = |count: usize| -> Vec<(Token, Token)> {
            (0..count)
                .map(|i| (token(&format!("l{i:02}")), token("v")))
                .collect()
        };
        check(true, "64 labels", |c| c.labels = full(64));
        check(false, "65 labels", |c| c.labels = full(65));
        check(false, "labels out of order", |c| c.labels.reverse());
        check(false, "a label twice", |c| {
            c.labels[1] = c.labels[0].clone()
        });
        check(true, "16 taints", |c| {
            c.taints = vec![c.taints[0].clone(); 16]
        });
        check(false, "17 taints", |c| {
            c.taints = vec![c.taints[0].clone(); 17]
        });
        let some = |count: usize| -> Vec<(Token, u64)> {
            (0..count).map(|i| (token(&format!("e{i}")), 1)).collect()
        };
        check(true, "8 extended", |c| c.extended = some(8));
        check(false, "9 extended", |c| c.extended = some(9));
        check(false, "extended out of order", |c| c.extended.reverse());
        check(false, "none of it", |c| c.extended[0].1 = 0);
        check(false, "too much of it", |c| c.extended[1].1 += 1);
    }

    #[test]
    fn zones_make_up_their_node() {
        check(false, "the node is larger", |c| c.cpu_milli += 1);
        check(false, "a device is nowhere", |c| c.gpus = 5);
        check(false, "a model without devices", |c| c.gpus = 0);
        check(true, "no topology", |c| c.topology = None);
        check_topology(false, "no zones", |t| t.zones.clear());
        check_topology(false, "cpu", |t| t.zones[0].cpu_milli -= 1);
        check_topology(false, "cpu overflows", |t| {
            t.zones[0].cpu_milli = u64::MAX - 2999;
            t.zones[1].cpu_milli = 11_000;
        });
        check_topology(false, "memory", |t| t.zones[1].memory_bytes += 1);
        check_topology(false, "a device twice", |t| t.zones[1].gpus = 0b1101);
        // 0b0011 + 0b0011 + 0b1001 is as much as 0b1111.
        check_topology(false, "devices by their sum", |t| {
            t.zones = vec![zone(5000, 32, 3), zone(3000, 32, 3), zone(0, 0, 9)];
            t.distances = vec![10; 9];
        });
        check_topology(false, "a device beyond", |t| t.zones[1].gpus = 0b1_1100);
        check_topology(false, "too few distances", |t| {
            t.distances.pop();
        });
        check_topology(false, "a link to itself", |t| t.links[0] = (1, 1));
        check_topology(false, "a link backwards", |t| t.links[0] = (1, 0));
        check_topology(false, "a link beyond", |t| t.links[0] = (0, 4));
        check_topology(true, "120 links", |t| t.links = vec![(0, 1); 120]);
        check_topology(false, "121 links", |t| t.links = vec![(0, 1); 121]);
        let split = |t: &mut Topology, count: usize| {
            t.zones.resize(count, zone(0, 0, 0));
            t.distances = vec![10; count * count];
        };
        check_topology(true, "8 zones", |t| split(t, 8));
        check_topology(false, "9 zones", |t| split(t, 9));
    }
}
