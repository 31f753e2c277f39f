//! Nodes in a few words, requests, and what they take.

use super::*;
use vocab::Zone;

/// A node and what is free of it.
struct Node {
    topology: Topology,
    free: Vec<ZoneRoom>,
    free_milli: Vec<u16>,
}

/// So many equal zones with cpu, memory and devices each; 10 within a zone, 20 to a neighbour in the same half, 30 beyond.
fn node(zones: u8, cpu: u64, memory: u64, gpus: u16, links: &[(u8, u8)]) -> Node {
    let zone = |at: u8| Zone {
        cpu_milli: cpu,
        memory_bytes: memory,
        gpus: ((1 << gpus) - 1) << (u16::from(at) * gpus),
    };
    let distance = |a: u8, b: u8| match (a == b, 2 * a / zones == 2 * b / zones) {
        (true, _) => 10,
        (false, true) => 20,
        (false, false) => 30,
    };
    let distances = (0..zones).flat_map(|a| (0..zones).map(move |b| distance(a, b)));
    let topology = Topology {
        zones: (0..zones).map(zone).collect(),
        distances: distances.collect(),
        links: links.to_vec(),
    };
    Node {
        free: empty(&topology),
        free_milli: vec![1000; usize::from(gpus) * usize::from(zones)],
        topology,
    }
}

/// Two sockets of 4 devices; 0-1, 2-3, 4-5 and 6-7 are linked.
fn pairs() -> Node {
    node(2, 32, 256, 4, &[(0, 1), (2, 3), (4, 5), (6, 7)])
}

/// Two sockets of 4 devices, each linked to each.
fn mesh() -> Node {
    let all = (0..8).flat_map(|a| (a + 1..8).map(move |b| (a, b)));
    node(2, 32, 256, 4, &all.collect::<Vec<_>>())
}

/// Four zones of 2 devices, linked as 0-4, 1-5, 2-6, 3-7: across, not within.
fn four() -> Node {
    node(4, 16, 64, 2, &[(0, 4), (1, 5), (2, 6), (3, 7)])
}

fn no_gpus() -> Node {
    node(2, 32, 256, 0, &[])
}

impl Node {
    /// Devices with so much left, the others keep what they have.
    fn gpus(mut self, left: &[(usize, u16)]) -> Self {
        for (device, milli) in left {
            self.free_milli[*device] = *milli;
        }
        self
    }

    /// A zone with so much cpu and memory left.
    fn zone(mut self, zone: usize, cpu_milli: u64, memory_bytes: u64) -> Self {
        self.free[zone] = ZoneRoom {
            cpu_milli,
            memory_bytes,
        };
        self
    }

    /// `devices | zone:cpu/memory…`, or `-`.
    fn check(&self, policy: NumaPolicy, ask: (u64, u64, u16, u16), expected: &str) {
        let ask = ZoneAsk {
            cpu_milli: ask.0,
            memory_bytes: ask.1,
            gpus: ask.2,
            gpu_milli: ask.3,
        };
        let choice = choose(&self.topology, &self.free, &self.free_milli, &ask, policy);
        let found = choice.map_or_else(
            || "-".to_owned(),
            |choice| {
                let again = parts(&self.topology, &self.free, &ask, choice.zones());
                assert_eq!(again.as_deref(), Some(choice.parts()));
                let devices = choice.devices().iter().map(|device| format!("{device} "));
                let part = |p: &ZonePart| format!(" {}:{}/{}", p.zone, p.cpu_milli, p.memory_bytes);
                let parts = choice.parts().iter().map(part);
                format!(
                    "{}|{}",
                    devices.collect::<String>(),
                    parts.collect::<String>()
                )
            },
        );
        assert_eq!(found, expected, "{policy:?} {ask:?}");
    }
}

#[test]
fn single() {
    let check = |node: Node, ask, expected| node.check(NumaPolicy::Single, ask, expected);
    check(pairs(), (8, 64, 0, 0), "| 0:8/64");
    check(pairs(), (8, 64, 1, 1000), "0 | 0:8/64");
    check(pairs(), (8, 64, 2, 1000), "0 1 | 0:8/64");
    check(pairs(), (8, 64, 3, 1000), "0 1 2 | 0:8/64");
    check(pairs(), (32, 256, 4, 1000), "0 1 2 3 | 0:32/256");
    // The zone that is left with least.
    check(pairs().zone(1, 16, 256), (8, 64, 0, 0), "| 1:8/64");
    check(pairs().zone(1, 16, 256), (20, 64, 0, 0), "| 0:20/64");
    check(pairs().gpus(&[(5, 0), (6, 0)]), (8, 64, 0, 0), "| 1:8/64");
    // A pair is not broken while there is a single one; a linked pair is preferred.
    check(pairs().gpus(&[(2, 0)]), (8, 64, 1, 1000), "3 | 0:8/64");
    check(pairs().gpus(&[(0, 0)]), (8, 64, 2, 1000), "2 3 | 0:8/64");
    check(
        pairs().gpus(&[(0, 0), (2, 0)]),
        (8, 64, 2, 1000),
        "1 3 | 0:8/64",
    );
    check(pairs().gpus(&[(0, 500)]), (8, 64, 1, 1000), "1 | 0:8/64");
    // Shares go where the least is free.
    check(
        pairs().gpus(&[(3, 400), (1, 600)]),
        (1, 1, 1, 300),
        "3 | 0:1/1",
    );
    check(
        pairs().gpus(&[(3, 400), (1, 600)]),
        (1, 1, 1, 500),
        "1 | 0:1/1",
    );
    check(
        pairs().gpus(&[(0, 0), (6, 0), (7, 0)]),
        (1, 1, 1, 500),
        "4 | 1:1/1",
    );
    // There is room on the node, but not in one zone.
    check(pairs(), (33, 1, 0, 0), "-");
    check(pairs(), (1, 257, 0, 0), "-");
    check(pairs(), (1, 1, 5, 1000), "-");
    check(pairs().gpus(&[(0, 0), (4, 0)]), (1, 1, 4, 1000), "-");
    check(
        pairs().zone(0, 2, 256).gpus(&[(4, 0)]),
        (4, 1, 4, 1000),
        "-",
    );
    check(pairs().zone(1, 32, 10), (8, 11, 0, 0), "| 0:8/11");
    check(mesh(), (8, 8, 3, 1000), "0 1 2 | 0:8/8");
    check(four(), (8, 8, 2, 1000), "0 1 | 0:8/8");
    check(no_gpus(), (32, 1, 0, 0), "| 0:32/1");
    check(no_gpus(), (1, 1, 1, 1000), "-");
    check(no_gpus(), (0, 0, 0, 0), "|");
}

#[test]
fn best_effort() {
    let check = |node: Node, ask, expected| node.check(NumaPolicy::BestEffort, ask, expected);
    // As single where that is possible.
    check(pairs(), (8, 64, 2, 1000), "0 1 | 0:8/64");
    check(pairs().zone(1, 16, 256), (8, 64, 0, 0), "| 1:8/64");
    check(
        pairs().gpus(&[(0, 0), (1, 0), (2, 0)]),
        (8, 8, 2, 1000),
        "4 5 | 1:8/8",
    );
    // Over two zones: the lowest gives what it has.
    check(pairs(), (33, 1, 0, 0), "| 0:32/1 1:1/0");
    check(pairs(), (1, 257, 0, 0), "| 0:1/256 1:0/1");
    check(
        pairs(),
        (64, 512, 8, 1000),
        "0 1 2 3 4 5 6 7 | 0:32/256 1:32/256",
    );
    check(pairs(), (65, 1, 0, 0), "-");
    check(pairs(), (1, 1, 9, 1000), "-");
    check(pairs().gpus(&[(7, 0)]), (1, 1, 8, 1000), "-");
    // Most links first; among equals, the most in one zone.
    check(pairs(), (8, 8, 6, 1000), "0 1 2 3 4 5 | 0:8/8");
    check(
        pairs().gpus(&[(0, 0), (4, 0)]),
        (8, 8, 4, 1000),
        "2 3 6 7 | 0:8/8",
    );
    check(
        mesh().gpus(&[(0, 0), (4, 0), (5, 0)]),
        (8, 8, 4, 1000),
        "1 2 3 6 | 0:8/8",
    );
    // Memory is in one zone, devices are in the other.
    check(pairs().zone(0, 32, 0), (8, 8, 4, 1000), "4 5 6 7 | 1:8/8");
    check(
        pairs().zone(0, 32, 0).gpus(&[(4, 0)]),
        (8, 8, 4, 1000),
        "0 1 2 3 | 0:8/0 1:0/8",
    );
    // Neighbours first, then the two that are left with least.
    check(four(), (20, 64, 0, 0), "| 0:16/64 1:4/0");
    check(four().zone(2, 10, 64), (20, 64, 0, 0), "| 2:10/64 3:10/0");
    check(
        four().zone(0, 1, 64).zone(3, 2, 64),
        (20, 64, 0, 0),
        "| 1:16/64 2:4/0",
    );
    check(four(), (1, 1, 4, 1000), "0 1 2 3 | 0:1/1");
    check(four(), (1, 1, 5, 1000), "0 1 2 4 5 | 0:1/1");
    check(
        four(),
        (64, 256, 8, 1000),
        "0 1 2 3 4 5 6 7 | 0:16/64 1:16/64 2:16/64 3:16/64",
    );
    check(
        four().gpus(&[(0, 0), (1, 0), (6, 0)]),
        (1, 1, 2, 1000),
        "2 3 | 1:1/1",
    );
    check(no_gpus(), (40, 300, 0, 0), "| 0:32/256 1:8/44");
}

#[test]
fn none() {
    let check = |node: Node, ask, expected| node.check(NumaPolicy::None, ask, expected);
    check(pairs(), (8, 64, 0, 0), "| 0:8/64");
    check(pairs(), (8, 64, 2, 1000), "0 1 | 0:8/64");
    // The devices with the least free, wherever they are.
    check(
        pairs().gpus(&[(6, 300), (1, 400)]),
        (8, 8, 1, 200),
        "6 | 1:8/8",
    );
    check(
        pairs().gpus(&[(6, 300), (1, 400)]),
        (8, 8, 1, 400),
        "1 | 0:8/8",
    );
    check(
        pairs().gpus(&[(1, 0), (2, 0), (3, 0)]),
        (8, 8, 2, 1000),
        "0 4 | 0:8/8",
    );
    // Their zones first, then others.
    check(
        pairs().gpus(&[(6, 300)]),
        (40, 8, 1, 200),
        "6 | 0:32/8 1:8/0",
    );
    check(
        pairs().gpus(&[(6, 300)]).zone(1, 0, 0),
        (4, 8, 1, 200),
        "6 | 0:4/8",
    );
    check(
        four().gpus(&[(4, 300)]),
        (20, 8, 1, 200),
        "4 | 2:16/8 3:4/0",
    );
    check(pairs(), (65, 8, 0, 0), "-");
    check(pairs(), (8, 8, 9, 1000), "-");
    check(pairs().gpus(&[(0, 900)]), (8, 8, 8, 1000), "-");
    check(no_gpus(), (33, 1, 0, 0), "| 0:32/1 1:1/0");
}

#[test]
fn what_does_not_belong_together_finds_nothing() {
    let Node {
        topology,
        free,
        free_milli,
    } = pairs();
    let ask = ZoneAsk::default();
    let single = NumaPolicy::Single;
    assert_eq!(
        choose(&topology, &free[1..], &free_milli, &ask, single),
        None
    );
    assert_eq!(parts(&topology, &free, &ask, 0b100), None);
    assert_eq!(parts(&topology, &free[1..], &ask, 0b10), None);
    assert_eq!(parts(&topology, &free, &ask, 0), Some(vec![]));
    let gpu = ZoneAsk {
        gpus: 5,
        gpu_milli: 1,
        ..ask
    };
    // Devices that the node does not have are not there.
    assert_eq!(
        choose(&topology, &free, &free_milli[..4], &gpu, NumaPolicy::None),
        None
    );
}
