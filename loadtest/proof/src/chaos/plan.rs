//! The plan of faults: kinds, order and lengths follow from the seed.

use ledger::memory::Seeded;
use serde::{Serialize, Serializer};
use std::{collections::VecDeque, fmt, ops::Range, time::Duration};

pub const SERVICES: [&str; 5] = [
    "admission",
    "quota",
    "scheduler",
    "node-heartbeat",
    "analytics",
];
pub const BUS: &str = "nats";
pub const SERVERS: [&str; 3] = [BUS, "postgres", "clickhouse"];

/// Kinds of flood of the inbox by one tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flood {
    Submits,
    /// Messages up to the inbox's bound and beyond the request's.
    Large,
    /// Batches of cancels of what is not there.
    Cancels,
    Connections,
}

/// A row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Kill(&'static str),
    Pause(&'static str),
    Restart(&'static str),
    KillTwo,
    ClockStep,
    /// Of the server of that name.
    DiskFull(&'static str),
    Flood(Flood),
    SilentAgent,
    RestartedAgent,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill(process) => write!(f, "kill -9 {process}"),
            Self::Pause(process) => write!(f, "pause {process}"),
            Self::Restart(process) => write!(f, "restart {process}"),
            Self::KillTwo => f.write_str("kill -9 two services"),
            Self::ClockStep => f.write_str("clock step of a service"),
            Self::DiskFull(BUS) => f.write_str("disk of the bus full"),
            Self::DiskFull(server) => write!(f, "disk of {server} full"),
            Self::Flood(Flood::Submits) => f.write_str("flood of submits"),
            Self::Flood(Flood::Large) => f.write_str("flood of large messages"),
            Self::Flood(Flood::Cancels) => f.write_str("flood of bad cancels"),
            Self::Flood(Flood::Connections) => f.write_str("flood of connections"),
            Self::SilentAgent => f.write_str("agent silent beyond its lease"),
            Self::RestartedAgent => f.write_str("agent restarted"),
        }
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// One fault, with all that was drawn for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Fault {
    pub kind: Kind,
    /// The services that it hits, where the kind does not say: two are killed, the clock of one is set wrong.
    #[serde(skip_serializing_if = "<[&str]>::is_empty")]
    pub services: &'static [&'static str],
    /// How long it lasts: until what was paused goes on, what was stopped is started, what was set wrong is right again.
    pub length_ms: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub clock_ahead_ms: i64,
    /// Quiet time after it.
    pub then_ms: u64,
}

fn is_zero(ms: &i64) -> bool {
    *ms == 0
}

impl Fault {
    pub fn length(&self) -> Duration {
        Duration::from_millis(self.length_ms)
    }

    pub fn then(&self) -> Duration {
        Duration::from_millis(self.then_ms)
    }
}

/// Faults that this stack on this machine supports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Supported {
    pub clocks: bool,
    /// Servers whose data is on a file system of its own, which the launcher can fill.
    pub disks: Vec<&'static str>,
}

impl Supported {
    pub fn all() -> Self {
        Self {
            clocks: true,
            disks: SERVERS.to_vec(),
        }
    }
}

/// Every kind that is supported, once.
pub fn kinds(supported: &Supported) -> Vec<Kind> {
    let processes = || SERVICES.into_iter().chain(SERVERS);
    let mut kinds: Vec<Kind> = processes().map(Kind::Kill).collect();
    kinds.extend(SERVICES.into_iter().map(Kind::Pause));
    kinds.extend(processes().map(Kind::Restart));
    kinds.push(Kind::KillTwo);
    kinds.extend(supported.clocks.then_some(Kind::ClockStep));
    kinds.extend(supported.disks.iter().copied().map(Kind::DiskFull));
    let floods = [
        Flood::Submits,
        Flood::Large,
        Flood::Cancels,
        Flood::Connections,
    ];
    kinds.extend(floods.map(Kind::Flood));
    kinds.extend([Kind::SilentAgent, Kind::RestartedAgent]);
    kinds
}

/// Each way to break something once, on one process.
pub fn one_of_each_way(supported: &Supported) -> Vec<Kind> {
    let wanted = [
        Kind::Kill(BUS),
        Kind::Pause("quota"),
        // The longest one, which lasts while others do: the first by seed 1.
        Kind::SilentAgent,
        Kind::KillTwo,
        Kind::ClockStep,
        Kind::DiskFull(BUS),
        Kind::Flood(Flood::Cancels),
        Kind::Restart("postgres"),
        Kind::RestartedAgent,
    ];
    let there = kinds(supported);
    wanted
        .into_iter()
        .filter(|kind| there.contains(kind))
        .collect()
}

/// Faults that make a standby of each service take over.
pub fn takeovers() -> Vec<Kind> {
    let of = |service| {
        [
            Kind::Kill(service),
            Kind::Pause(service),
            Kind::Restart(service),
        ]
    };
    SERVICES.into_iter().flat_map(of).collect()
}

/// Milliseconds of a pause: longer than a standby's patience or not.
pub const PAUSES_MS: Range<u64> = 500..10_000;
/// Always beyond it.
pub const LONG_PAUSES_MS: Range<u64> = 4_000..6_000;

/// At the smallest size.
pub const SHORT_PAUSES_MS: Range<u64> = 500..1_000;

const PAIRS: [[&str; 2]; 6] = [
    ["admission", "quota"],
    ["admission", "scheduler"],
    ["quota", "scheduler"],
    ["scheduler", "node-heartbeat"],
    ["quota", "node-heartbeat"],
    ["scheduler", "analytics"],
];

/// Faults without end. Each round has every kind once, in an order of its own, so that rare ones come as often as others.
pub struct Plan {
    dice: Seeded,
    kinds: Vec<Kind>,
    pauses_ms: Range<u64>,
    round: VecDeque<Kind>,
}

impl Plan {
    pub fn new(seed: u64, kinds: Vec<Kind>, pauses_ms: Range<u64>) -> Self {
        Self {
            dice: Seeded::new(seed),
            kinds,
            pauses_ms,
            round: VecDeque::new(),
        }
    }

    fn between(&mut self, from: u64, below: u64) -> u64 {
        from + self.dice.below(below - from)
    }

    fn shuffle(&mut self) {
        let mut kinds = self.kinds.clone();
        for last in (1..kinds.len()).rev() {
            kinds.swap(last, self.dice.below(last as u64 + 1) as usize);
        }
        self.round = kinds.into();
    }

    fn draw(&mut self, kind: Kind) -> Fault {
        let (mut services, mut clock_ahead_ms) = (&[][..], 0);
        let length_ms = match kind {
            Kind::Kill(_) | Kind::RestartedAgent => 0,
            Kind::Pause(_) => self.between(self.pauses_ms.start, self.pauses_ms.end),
            Kind::Restart(_) => self.between(0, 2_000),
            Kind::KillTwo => {
                services = &PAIRS[self.dice.below(PAIRS.len() as u64) as usize];
                0
            }
            Kind::ClockStep => {
                let at = self.dice.below(SERVICES.len() as u64) as usize;
                services = &SERVICES.as_slice()[at..=at];
                clock_ahead_ms = self.step_ms();
                self.between(1_000, 6_000)
            }
            Kind::DiskFull(_) => self.between(2_000, 5_000),
            Kind::Flood(_) => self.between(2_000, 4_000),
            // The launcher's lease is 15 s.
            Kind::SilentAgent => self.between(16_000, 22_000),
        };
        Fault {
            kind,
            services,
            length_ms,
            clock_ahead_ms,
            then_ms: self.between(300, 2_000),
        }
    }

    /// Seconds as well as hours, to either side.
    fn step_ms(&mut self) -> i64 {
        let most = [5_000, 120_000, 3_600_000, 86_400_000][self.dice.below(4) as usize];
        let ms = self.between(1_000, most) as i64;
        if self.dice.chance(500) { ms } else { -ms }
    }
}

impl Iterator for Plan {
    type Item = Fault;

    fn next(&mut self) -> Option<Fault> {
        if self.round.is_empty() {
            self.shuffle();
        }
        let kind = self.round.pop_front()?;
        Some(self.draw(kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn first(seed: u64, count: usize) -> Vec<Fault> {
        let kinds = kinds(&Supported::all());
        Plan::new(seed, kinds, PAUSES_MS).take(count).collect()
    }

    #[test]
    fn a_seed_is_a_plan() {
        assert_eq!(first(7, 300), first(7, 300));
        assert_ne!(first(7, 300), first(8, 300));
    }

    #[test]
    fn every_round_has_every_kind_once() {
        let all = kinds(&Supported::all());
        let plan = first(1, 3 * all.len());
        for round in plan.chunks(all.len()) {
            let seen: BTreeSet<Kind> = round.iter().map(|fault| fault.kind).collect();
            assert_eq!(seen, all.iter().copied().collect());
        }
    }

    #[test]
    fn what_is_not_supported_is_not_planned() {
        let without = Supported {
            clocks: false,
            disks: Vec::new(),
        };
        let mut plan = Plan::new(1, kinds(&without), PAUSES_MS).take(200);
        assert!(!plan.any(|fault| matches!(fault.kind, Kind::ClockStep | Kind::DiskFull(_))));
        assert_eq!(kinds(&Supported::all()).len(), kinds(&without).len() + 4);
    }

    #[test]
    fn the_smallest_plan_has_what_is_supported_of_each_way() {
        assert_eq!(one_of_each_way(&Supported::all()).len(), 9);
        let without = Supported {
            clocks: false,
            disks: Vec::new(),
        };
        assert_eq!(one_of_each_way(&without).len(), 7);
    }

    #[test]
    fn what_is_drawn_is_within_bounds_and_differs() {
        let plan = first(3, 1_000);
        let lengths = |of: fn(&Kind) -> bool| -> BTreeSet<u64> {
            let those = plan.iter().filter(|fault| of(&fault.kind));
            those.map(|fault| fault.length_ms).collect()
        };
        let pauses = lengths(|kind| matches!(kind, Kind::Pause(_)));
        assert!(pauses.iter().all(|ms| (500..10_000).contains(ms)));
        let silent = lengths(|kind| *kind == Kind::SilentAgent);
        assert!(silent.iter().all(|ms| *ms > 15_000));
        assert!(pauses.len() > 50 && silent.len() > 10);
        let steps = plan.iter().filter(|fault| fault.kind == Kind::ClockStep);
        let steps: Vec<i64> = steps.map(|fault| fault.clock_ahead_ms).collect();
        assert!(steps.iter().any(|ms| *ms > 0) && steps.iter().any(|ms| *ms < 0));
        for fault in &plan {
            let named = match fault.kind {
                Kind::KillTwo => 2,
                Kind::ClockStep => 1,
                _ => 0,
            };
            assert_eq!(fault.services.len(), named, "{fault:?}");
        }
    }
}
