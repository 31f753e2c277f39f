//! What kind of world a seed makes: how wild, how tight, how large.

use crate::{
    history::Bounds,
    simulate::{agents::Care, check::Limits, tenants::CELL},
};
use ledger::memory::{Faults, Seeded};
use schemas::v1;

const GIB: u64 = 1 << 30;

/// How wild this seed is.
#[derive(Debug)]
pub struct FaultProfile {
    pub operations: u64,
    pub snapshot_every: u64,
    /// Polls in a row.
    pub burst: u64,
    /// Per mille of the steps.
    pub crash: u64,
    pub overlap: u64,
    /// Of these, somebody is asked to end.
    pub resign: u64,
    /// Of these, an operator empties the feed.
    pub empties: u64,
    pub heartbeat_lost: u64,
    pub effect_lost: u64,
    pub troubled_agents: bool,
    pub skew_ms: u64,
}

impl FaultProfile {
    pub fn new(random: &mut Seeded) -> Self {
        let wild = random.below(3);
        Self {
            operations: 20 + random.below(61),
            // Half of the worlds have one behind each frame, whatever it costs.
            snapshot_every: random.below(2) * (3 + random.below(18)),
            burst: 1 + random.below(6),
            crash: random.below(4) * wild,
            overlap: random.below(4) * wild,
            resign: random.below(4) * wild,
            empties: random.below(3) * random.below(2),
            heartbeat_lost: random.below(300),
            effect_lost: random.below(300),
            troubled_agents: random.chance(800),
            skew_ms: random.below(2) * random.below(400),
        }
    }
}

/// What happens in some worlds only, apart from all else.
#[derive(Debug)]
pub struct Rare {
    pub random: Seeded,
    /// Per mille of the clients' messages in which one tenant asks as much as it can.
    pub flood: u64,
    /// Names are so long that they take room.
    pub long_names: bool,
    /// Operations after which something stands on the ledger that no writer has written there.
    pub foreign_after: Option<u64>,
    /// The cell begins at the first feature level, and is raised to the newest after so many operations, or never.
    pub raised_after: Option<u64>,
    /// Agents keep their leases, which are longer by so much; none: they run what they are told to.
    careful_ms: Option<i64>,
    agents: Seeded,
    own_bytes: u64,
    shared_bytes_max: u64,
}

/// What an operation with a short name takes.
const OPERATION_BYTES: u64 = 470;
/// More than any world takes.
pub const AMPLE_BYTES: u64 = 1 << 40;

impl Rare {
    pub fn new(seed: u64) -> Self {
        let mut random = Seeded::new(seed ^ 0x4a4e);
        let mut level = Seeded::new(seed ^ 0x1e7e1);
        let mut agents = Seeded::new(seed ^ 0xca9e);
        let careful = agents.chance(500);
        let careful_ms = careful.then(|| 400 + agents.below(2500) as i64);
        let foreign_after = match random.chance(40) {
            true => Some(random.below(50)),
            false => None,
        };
        let floods = random.chance(150);
        let (flood, own_bytes, shared_bytes_max) = match floods {
            true => (
                300 + random.below(600),
                OPERATION_BYTES * (1 + random.below(8)) + random.below(OPERATION_BYTES),
                OPERATION_BYTES * random.below(2) * random.below(30),
            ),
            false => (0, AMPLE_BYTES, 0),
        };
        Self {
            flood,
            long_names: floods && random.chance(300),
            foreign_after,
            careful_ms,
            agents,
            raised_after: level.chance(400).then(|| level.below(100)),
            own_bytes,
            shared_bytes_max,
            random,
        }
    }
}

/// What a lease leaves for the difference of the clocks, in millionths.
const DRIFT_MAX: u64 = 1_000_000 / 64;
/// By so much an agent's wall clock may be off, milliseconds.
const WALL_MAX: u64 = 600_000;

impl Rare {
    /// How an agent keeps its lease, and by how much its wall clock is off: by nothing much, or by minutes.
    pub fn agent(&mut self) -> (Option<Care>, i64) {
        let random = &mut self.agents;
        let care = self.careful_ms.map(|_| Care {
            drift: random.below(2 * DRIFT_MAX) as i64 - DRIFT_MAX as i64,
        });
        let wall_ms = match random.chance(300) {
            true => random.below(2 * WALL_MAX) as i64 - WALL_MAX as i64,
            false => 0,
        };
        (care, wall_ms)
    }
}

pub fn limits(random: &mut Seeded, rare: &Rare) -> Limits {
    let small = random.chance(150);
    Limits {
        cell: CELL,
        lease_ms: 100 + random.below(500) as i64 + rare.careful_ms.unwrap_or(0),
        window_ms: 100 + random.below(1500) as i64,
        operations_max: if small { 6 + random.below(10) } else { 10_000 },
        allocations_max: if small { 2 + random.below(10) } else { 10_000 },
        own_bytes: rare.own_bytes,
        shared_bytes_max: rare.shared_bytes_max,
        // So long that what is asked in it may still expire in the same world; or as requests say.
        slot_ms: match random.below(3) {
            0 => 0,
            1 => 500,
            _ => 100,
        },
        bounds: bounds(random),
    }
}

/// Small, so that everything is full at times.
fn bounds(random: &mut Seeded) -> Bounds {
    let ttl_slots_max = 4 + random.below(13);
    Bounds {
        resources_max: 2 + random.below(4) as usize,
        leases_max: 2 + random.below(5) as usize,
        members_max: 1 + random.below(3) as usize,
        ttl_slots_max,
        window_slots: ttl_slots_max + random.below(9),
        history_slots: 1 + random.below(4),
        expirations_max: 1 + random.below(2) as usize,
    }
}

/// When a world begins; some see the hour change.
pub fn began_ms(random: &mut Seeded) -> i64 {
    const BEFORE_FULL_HOUR: i64 = 1_700_002_800_000;
    match random.below(3) {
        0 => BEFORE_FULL_HOUR - random.below(4000) as i64,
        _ => 1_700_000_000_000,
    }
}

/// Rates of a calm, a usual and a wild seed.
pub fn faults(random: &mut Seeded) -> Faults {
    let wild = match random.below(4) {
        0 => 0,
        1 | 2 => 1,
        _ => 4,
    };
    let mut rate = |most: u64| random.below(most * wild + 1);
    Faults {
        lost_ack: rate(60),
        lost_append: rate(60),
        late_append: rate(60),
        lost_read: rate(20),
        bad_snapshot: rate(100),
        lost_tail: rate(20),
        duplicate: rate(100),
        delay: rate(200),
    }
}

pub fn capacity(random: &mut Seeded) -> v1::NodeCapacity {
    let gpus = match random.below(4) {
        0 => 0,
        1 => 8,
        _ => random.below(9) as u32,
    };
    let mut capacity = v1::NodeCapacity {
        cpu_milli: 2000 * (1 + random.below(8)),
        memory_bytes: 4 * GIB * (1 + random.below(8)),
        gpus,
        gpu_model: match random.below(3) {
            _ if gpus == 0 => String::new(),
            0 => String::new(),
            1 => "t4".to_owned(),
            _ => "a100".to_owned(),
        },
        ..v1::NodeCapacity::default()
    };
    if random.chance(400) {
        capacity.labels.push(label("disk", "ssd"));
    }
    if random.chance(700) {
        let zone = ["z1", "z2"][random.below(2) as usize];
        capacity.labels.push(label("zone", zone));
    }
    if random.chance(100) {
        capacity.taints.push(v1::Taint {
            key: "maintenance".to_owned(),
            value: String::new(),
            effect: random.below(3) as i32,
        });
    }
    if random.chance(200) {
        capacity.extended.push(v1::ExtendedAmount {
            name: "fpga".to_owned(),
            amount: 1 + random.below(4),
        });
    }
    capacity.topology = random.chance(300).then(|| halves(&capacity));
    // Of what is drawn already, so that the worlds without it are as before.
    if capacity.cpu_milli == 16_000 {
        capacity.max_runs = 1 + capacity.gpus;
    }
    capacity
}

fn label(name: &str, value: &str) -> v1::Label {
    v1::Label {
        name: name.to_owned(),
        value: value.to_owned(),
    }
}

/// Two zones; the second has the odd device.
fn halves(capacity: &v1::NodeCapacity) -> v1::Topology {
    let all = (1u32 << capacity.gpus) - 1;
    let low = (1u32 << (capacity.gpus / 2)) - 1;
    let zone = |gpus| v1::Zone {
        cpu_milli: capacity.cpu_milli / 2,
        memory_bytes: capacity.memory_bytes / 2,
        gpus,
    };
    let link = |high| v1::DeviceLink {
        low: high - 1,
        high,
    };
    v1::Topology {
        zones: vec![zone(low), zone(all & !low)],
        distances: vec![10, 21, 21, 10],
        links: (1..capacity.gpus).step_by(2).map(link).collect(),
    }
}
