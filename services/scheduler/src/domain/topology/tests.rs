//! Devices and zones as a table.

use super::*;
use proptest::prelude::*;
use vocab::Zone;

const GIB: u64 = 1 << 30;

/// Zones of (cores, GiB, devices), neighbours at 20, others at 30.
fn topology(zones: &[(u64, u64, u16)], links: &[(u8, u8)]) -> Topology {
    let distance = |a: usize, b: usize| match a.abs_diff(b) {
        0 => 10,
        1 => 20,
        _ => 30,
    };
    let count = zones.len();
    Topology {
        zones: zones
            .iter()
            .map(|(cores, gib, gpus)| Zone {
                cpu_milli: cores * 1000,
                memory_bytes: gib * GIB,
                gpus: *gpus,
            })
            .collect(),
        distances: (0..count * count)
            .map(|at| distance(at / count, at % count))
            .collect(),
        links: links.to_vec(),
    }
}

/// Two sockets of 16 cores, 64 GiB and four devices; devices are linked in pairs.
fn pairs() -> Topology {
    topology(
        &[(16, 64, 0x0f), (16, 64, 0xf0)],
        &[(0, 1), (2, 3), (4, 5), (6, 7)],
    )
}

/// Four zones of 8 cores and 32 GiB with two devices each; all eight linked.
fn mesh() -> Topology {
    let all = (0..8u8)
        .flat_map(|a| (a + 1..8).map(move |b| (a, b)))
        .collect::<Vec<_>>();
    topology(
        &[
            (8, 32, 0b11),
            (8, 32, 0b1100),
            (8, 32, 0b11_0000),
            (8, 32, 0b1100_0000),
        ],
        &all,
    )
}

/// `taken`: cores of each zone that are not free. Expected: devices, then zones, or `none`.
fn check(
    topology: &Topology,
    taken: &[u64],
    gpu_milli: &[u16],
    (cores, gib, gpus, milli): (u64, u64, u16, u16),
    policy: NumaPolicy,
    expected: &str,
) {
    let mut rooms = empty(topology);
    for (room, cores) in rooms.iter_mut().zip(taken) {
        room.cpu_milli -= cores * 1000;
    }
    let ask = ZoneAsk {
        cpu_milli: cores * 1000,
        memory_bytes: gib * GIB,
        gpus,
        gpu_milli: milli,
    };
    let found = match choose(topology, &rooms, gpu_milli, &ask, policy) {
        None => "none".to_owned(),
        Some(choice) => {
            assert!(parts(topology, &rooms, &ask, choice.zones).is_some());
            let zones: Vec<_> = bits(choice.zones.into()).collect();
            format!("{:?} in {:?}", choice.devices, zones)
        }
    };
    assert_eq!(
        found, expected,
        "{cores} cores, {gib} GiB, {gpus} x {milli}, {policy:?}, {gpu_milli:?}"
    );
}

#[test]
fn two_sockets_with_four_devices_each() {
    use NumaPolicy::{BestEffort, None, Single};
    let t = pairs();
    let free = [1000; 8];
    let c = |taken: &[u64], gpus: &[u16], ask, policy, expected| {
        check(&t, taken, gpus, ask, policy, expected)
    };
    // One device: its pair is broken only where no other is.
    c(&[0, 0], &free, (1, 1, 1, 1000), Single, "[0] in [0]");
    c(
        &[0, 0],
        &[1000, 0, 1000, 1000, 1000, 1000, 1000, 1000],
        (1, 1, 1, 1000),
        Single,
        "[0] in [0]",
    );
    c(
        &[0, 0],
        &[0, 1000, 1000, 1000, 1000, 1000, 1000, 1000],
        (1, 1, 1, 1000),
        BestEffort,
        "[1] in [0]",
    );
    // The fuller socket first.
    c(&[0, 8], &free, (1, 1, 1, 1000), Single, "[4] in [1]");
    c(
        &[0, 0],
        &[1000, 1000, 1000, 1000, 0, 1000, 1000, 1000],
        (1, 1, 1, 1000),
        Single,
        "[5] in [1]",
    );
    // Two: a pair.
    c(&[0, 0], &free, (1, 1, 2, 1000), Single, "[0, 1] in [0]");
    c(
        &[0, 0],
        &[0, 1000, 1000, 1000, 1000, 1000, 1000, 1000],
        (1, 1, 2, 1000),
        Single,
        "[2, 3] in [0]",
    );
    c(
        &[0, 0],
        &[0, 1000, 0, 1000, 1000, 1000, 1000, 1000],
        (1, 1, 2, 1000),
        Single,
        "[1, 3] in [0]",
    );
    c(
        &[0, 0],
        &[0, 1000, 0, 0, 0, 1000, 0, 1000],
        (1, 1, 2, 1000),
        Single,
        "[5, 7] in [1]",
    );
    // Three: a pair and one whose pair is broken already.
    c(
        &[0, 0],
        &[1000, 1000, 0, 1000, 1000, 1000, 1000, 1000],
        (1, 1, 3, 1000),
        Single,
        "[0, 1, 3] in [0]",
    );
    c(
        &[0, 0],
        &free,
        (1, 1, 4, 1000),
        Single,
        "[0, 1, 2, 3] in [0]",
    );
    // More than a socket has.
    c(&[0, 0], &free, (1, 1, 5, 1000), Single, "none");
    c(
        &[0, 0],
        &free,
        (1, 1, 5, 1000),
        BestEffort,
        "[0, 1, 2, 3, 4] in [0, 1]",
    );
    c(
        &[0, 0],
        &free,
        (1, 1, 8, 1000),
        BestEffort,
        "[0, 1, 2, 3, 4, 5, 6, 7] in [0, 1]",
    );
    c(&[0, 0], &free, (1, 1, 9, 1000), BestEffort, "none");
    c(
        &[0, 0],
        &[0, 0, 1000, 1000, 1000, 1000, 0, 0],
        (1, 1, 4, 1000),
        BestEffort,
        "[2, 3, 4, 5] in [0, 1]",
    );
    c(
        &[0, 0],
        &[0, 0, 1000, 1000, 1000, 1000, 0, 0],
        (1, 1, 4, 1000),
        Single,
        "none",
    );
    // Cores and memory bind, too.
    c(&[10, 0], &free, (8, 1, 1, 1000), Single, "[4] in [1]");
    c(&[10, 10], &free, (8, 1, 1, 1000), Single, "none");
    c(
        &[10, 10],
        &free,
        (8, 1, 1, 1000),
        BestEffort,
        "[0] in [0, 1]",
    );
    c(&[0, 0], &free, (1, 65, 0, 0), Single, "none");
    c(&[0, 0], &free, (1, 65, 0, 0), BestEffort, "[] in [0, 1]");
    c(&[0, 0], &free, (33, 1, 0, 0), BestEffort, "none");
    // Shares: the device with the least that fits; no pair is broken when another will do.
    c(
        &[0, 0],
        &[1000, 1000, 300, 1000, 1000, 1000, 1000, 1000],
        (1, 1, 1, 200),
        Single,
        "[2] in [0]",
    );
    c(
        &[0, 0],
        &[1000, 1000, 1000, 0, 1000, 1000, 1000, 1000],
        (1, 1, 1, 200),
        Single,
        "[2] in [0]",
    );
    // Regardless of zones.
    c(&[0, 0], &free, (1, 1, 2, 1000), None, "[0, 1] in [0]");
    c(&[15, 0], &free, (8, 1, 1, 1000), None, "[0] in [0, 1]");
    c(
        &[0, 0],
        &[0, 0, 0, 1000, 1000, 0, 0, 0],
        (1, 1, 2, 1000),
        None,
        "[3, 4] in [0, 1]",
    );
}

#[test]
fn four_zones_in_a_mesh_and_none_with_devices() {
    use NumaPolicy::{BestEffort, Single};
    let t = mesh();
    let free = [1000; 8];
    check(&t, &[0; 4], &free, (1, 1, 2, 1000), Single, "[0, 1] in [0]");
    check(&t, &[0; 4], &free, (1, 1, 3, 1000), Single, "none");
    check(
        &t,
        &[0; 4],
        &free,
        (1, 1, 4, 1000),
        BestEffort,
        "[0, 1, 2, 3] in [0, 1]",
    );
    // The last two zones are neighbours, the first and the third are not.
    let some = [1000, 1000, 0, 0, 1000, 1000, 1000, 0];
    check(
        &t,
        &[0; 4],
        &some,
        (1, 1, 3, 1000),
        BestEffort,
        "[4, 5, 6] in [2, 3]",
    );
    check(
        &t,
        &[8, 0, 0, 8],
        &free,
        (10, 1, 1, 1000),
        BestEffort,
        "[2] in [1, 2]",
    );
    let bare = topology(&[(8, 32, 0), (8, 32, 0)], &[]);
    check(&bare, &[0, 0], &[], (8, 1, 0, 0), Single, "[] in [0]");
    check(&bare, &[0, 2], &[], (6, 1, 0, 0), Single, "[] in [1]");
    check(&bare, &[0, 0], &[], (1, 1, 1, 1000), BestEffort, "none");
}

proptest! {
    #[test]
    fn nothing_is_taken_that_is_not_there(
        taken in prop::collection::vec(0u64..=16, 2),
        gpu_milli in prop::collection::vec(prop::sample::select(vec![0u16, 300, 700, 1000]), 8),
        cores in 1u64..20,
        gib in 1u64..100,
        gpus in 0u16..6,
        share in any::<bool>(),
    ) {
        let t = pairs();
        let mut rooms = empty(&t);
        for (room, cores) in rooms.iter_mut().zip(&taken) {
            room.cpu_milli -= cores * 1000;
        }
        let gpu_milli_asked = if share && gpus == 1 { 400 } else { 1000 };
        let ask = ZoneAsk { cpu_milli: cores * 1000, memory_bytes: gib * GIB, gpus, gpu_milli: gpu_milli_asked };
        let devices = gpu_milli.iter().filter(|free| **free >= gpu_milli_asked).count();
        let cpu: u64 = rooms.iter().map(|room| room.cpu_milli).sum();
        let fits = cpu >= ask.cpu_milli && gib <= 128 && devices >= usize::from(gpus);
        for policy in NumaPolicy::ALL {
            let choice = choose(&t, &rooms, &gpu_milli, &ask, policy);
            match policy {
                NumaPolicy::Single => prop_assert_eq!(choice.is_some(), fits_a_zone(&t, &rooms, &gpu_milli, &ask)),
                _ => prop_assert_eq!(choice.is_some(), fits),
            }
            let Some(choice) = choice else { continue };
            prop_assert_eq!(choice.devices.len(), usize::from(gpus));
            prop_assert!(policy != NumaPolicy::Single || choice.zones.count_ones() == 1);
            for device in &choice.devices {
                prop_assert!(gpu_milli[usize::from(*device)] >= gpu_milli_asked);
                prop_assert!(choice.zones >> (device / 4) & 1 == 1);
            }
            let parts = parts(&t, &rooms, &ask, choice.zones).unwrap();
            prop_assert_eq!(parts.iter().map(|part| part.cpu_milli).sum::<u64>(), ask.cpu_milli);
            for part in &parts {
                let room = rooms[usize::from(part.zone)];
                prop_assert!(part.cpu_milli <= room.cpu_milli && part.memory_bytes <= room.memory_bytes);
            }
        }
    }
}
