//! What happened: a history that is the same in every run. Runs have slots of their own on a node, so nothing is given
//! out twice.

use crate::questions::answer::when::{NOVEMBER, OCTOBER};
use vocab::{DAY_MS, EndCause, HOUR_MS, Period, PreemptionCause, RunUsage, WaitingReason};

pub const BEGIN: i64 = OCTOBER - 4 * DAY_MS;
/// The last event at the latest.
pub const END: i64 = NOVEMBER + 11 * DAY_MS + 15 * HOUR_MS + 20 * 60_000 + 10_123;
/// Up to here the service knows that nothing more has happened: in another hour.
pub const KNOWN: i64 = END + 45 * 60_000 + 3_377;
/// October and all before it is closed.
pub const CLOSED: i64 = NOVEMBER + 2 * HOUR_MS;

/// A request of a tenant of which the allocation has several runs; another tenant's has the same name.
pub const REQUEST: &str = "op-160";

pub struct Place {
    pub name: &'static str,
    /// Empty: it has no labels.
    pub cluster: &'static str,
    pub zone: &'static str,
    pub pool: &'static str,
    pub model: &'static str,
    pub gpus: u64,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub slots: u64,
}

#[rustfmt::skip]
pub const PLACES: [Place; 7] = [
    Place { name: "h1", cluster: "east", zone: "a", pool: "train", model: "H100", gpus: 8, cpu_milli: 96_000, memory_bytes: 768 << 30, slots: 4 },
    Place { name: "h2", cluster: "east", zone: "b", pool: "train", model: "H100", gpus: 8, cpu_milli: 96_000, memory_bytes: 768 << 30, slots: 3 },
    Place { name: "h3", cluster: "west", zone: "c", pool: "train", model: "H100", gpus: 4, cpu_milli: 48_000, memory_bytes: 384 << 30, slots: 2 },
    Place { name: "l1", cluster: "east", zone: "a", pool: "serve", model: "L4", gpus: 4, cpu_milli: 32_000, memory_bytes: 128 << 30, slots: 2 },
    Place { name: "c1", cluster: "west", zone: "c", pool: "batch", model: "", gpus: 0, cpu_milli: 64_000, memory_bytes: 256 << 30, slots: 3 },
    // Without labels, and with GPUs of no model.
    Place { name: "n1", cluster: "", zone: "", pool: "", model: "", gpus: 2, cpu_milli: 16_000, memory_bytes: 64 << 30, slots: 1 },
    // For what is told late.
    Place { name: "x1", cluster: "west", zone: "c", pool: "serve", model: "H100", gpus: 4, cpu_milli: 32_000, memory_bytes: 128 << 30, slots: 0 },
];

/// A stretch of time in which a node gets nothing new.
pub struct Away {
    pub node: &'static str,
    pub from: i64,
    pub until: i64,
    /// It is lost; otherwise cordoned.
    pub lost: bool,
    /// It comes back as another incarnation.
    pub anew: bool,
}

const fn away(node: &'static str, from: i64, until: i64, lost: bool, anew: bool) -> Away {
    Away {
        node,
        from,
        until,
        lost,
        anew,
    }
}

/// What an agent says of its node, from when until when; none: it still holds.
pub struct Named {
    pub node: &'static str,
    pub condition: &'static str,
    pub reason: &'static str,
    pub from: i64,
    pub until: Option<i64>,
}

pub const NAMED: [Named; 3] = [
    Named {
        node: "h3",
        condition: "DiskPressure",
        reason: "full",
        from: OCTOBER + 9 * DAY_MS + 17,
        until: Some(OCTOBER + 10 * DAY_MS + 18),
    },
    // It goes on while the node is lost.
    Named {
        node: "c1",
        condition: "GpuXid",
        reason: "",
        from: OCTOBER + 12 * DAY_MS + 4_000_000,
        until: None,
    },
    // Before all that is asked about.
    Named {
        node: "l1",
        condition: "MemoryPressure",
        reason: "full",
        from: OCTOBER + 1000,
        until: Some(OCTOBER + 2000),
    },
];

pub const AWAY: [Away; 6] = [
    away(
        "h1",
        OCTOBER + 6 * DAY_MS + 111,
        OCTOBER + 7 * DAY_MS + 7,
        true,
        false,
    ),
    away(
        "c1",
        OCTOBER + 12 * DAY_MS + 5_000_001,
        OCTOBER + 12 * DAY_MS + 90_000_003,
        true,
        true,
    ),
    away(
        "l1",
        NOVEMBER + 3 * DAY_MS + 1_234_567,
        NOVEMBER + 3 * DAY_MS + 9_876_543,
        true,
        true,
    ),
    away(
        "h2",
        OCTOBER + 20 * DAY_MS + 77,
        OCTOBER + 22 * DAY_MS + 12_345_678,
        false,
        false,
    ),
    away(
        "h3",
        NOVEMBER + 4 * DAY_MS + 4_321_987,
        NOVEMBER + 6 * DAY_MS + 99,
        false,
        false,
    ),
    // It still is.
    away(
        "c1",
        NOVEMBER + 10 * DAY_MS + 1_000_001,
        i64::MAX,
        false,
        false,
    ),
];

/// A price that is told at `said` and is to begin at `from`.
#[derive(Debug, Clone)]
pub struct Price {
    pub resource: &'static str,
    /// Tenant, priority class, pool and cluster; empty: all.
    pub scope: [&'static str; 4],
    /// None: it is taken back.
    pub micro: Option<u64>,
    pub from: i64,
    pub said: i64,
    pub version: u64,
}

impl Price {
    /// What was known before a price was keeps its own.
    pub fn applied(&self) -> i64 {
        if self.from == 0 {
            0
        } else {
            self.from.max(self.said)
        }
    }
}

const ALL: [&str; 4] = [""; 4];

#[rustfmt::skip]
pub const PRICES: [Price; 21] = [
    Price { resource: "cpu", scope: ALL, micro: Some(31_007), from: 0, said: BEGIN, version: 1 },
    Price { resource: "gpu", scope: ALL, micro: Some(900_001), from: 0, said: BEGIN, version: 1 },
    Price { resource: "gpu:H100", scope: ALL, micro: Some(2_500_003), from: 0, said: BEGIN, version: 1 },
    // Before it, memory has no price.
    Price { resource: "memory", scope: ALL, micro: Some(4_099), from: OCTOBER + 5 * DAY_MS, said: OCTOBER, version: 1 },
    // Corrects the past: use of the model had the price of any GPU.
    Price { resource: "gpu:L4", scope: ALL, micro: Some(1_300_001), from: 0, said: OCTOBER + 13 * DAY_MS + 17, version: 1 },
    // In the middle of an hour.
    Price { resource: "cpu", scope: ALL, micro: Some(35_003), from: OCTOBER + 9 * DAY_MS + 47_825_123, said: OCTOBER + 9 * DAY_MS, version: 2 },
    // Told too late.
    Price { resource: "gpu", scope: ALL, micro: Some(1_100_009), from: OCTOBER + 19 * DAY_MS, said: OCTOBER + 19 * DAY_MS + 23_415_250, version: 2 },
    Price { resource: "gpu:H100", scope: ALL, micro: Some(2_750_011), from: NOVEMBER + 2 * DAY_MS + 34_200_500, said: NOVEMBER + DAY_MS, version: 2 },
    Price { resource: "memory", scope: ALL, micro: Some(3_989), from: NOVEMBER + 8 * DAY_MS + 61_001_777, said: NOVEMBER + 8 * DAY_MS, version: 2 },
    // Each of the names, alone and together with others; dearer than the list and cheaper.
    Price { resource: "cpu", scope: ["", "", "batch", ""], micro: Some(19_001), from: 0, said: BEGIN, version: 1 },
    Price { resource: "gpu", scope: ["", "", "train", "west"], micro: Some(2_100_001), from: OCTOBER + 11 * DAY_MS + 3_456_789, said: OCTOBER, version: 1 },
    Price { resource: "gpu:H100", scope: ["", "", "", "west"], micro: Some(3_999_999), from: 0, said: BEGIN, version: 1 },
    Price { resource: "gpu", scope: ["", "low", "", ""], micro: Some(500_003), from: OCTOBER + 15 * DAY_MS + 40_000_001, said: OCTOBER + 15 * DAY_MS, version: 1 },
    Price { resource: "memory", scope: ["birch", "", "", ""], micro: Some(3_001), from: OCTOBER + 2 * DAY_MS, said: OCTOBER, version: 1 },
    Price { resource: "memory", scope: ["birch", "", "serve", ""], micro: Some(9_001), from: NOVEMBER + 5 * DAY_MS + 7_777_777, said: NOVEMBER, version: 1 },
    // Taken back: so that a wider one holds; with one that was to come; for a day, in which nothing holds; and told too late.
    Price { resource: "gpu", scope: ["", "low", "", ""], micro: None, from: NOVEMBER + 3 * DAY_MS + 12_345_678, said: NOVEMBER + 3 * DAY_MS, version: 2 },
    Price { resource: "memory", scope: ["birch", "", "", ""], micro: Some(3_333), from: NOVEMBER + 9 * DAY_MS, said: NOVEMBER + DAY_MS, version: 2 },
    Price { resource: "memory", scope: ["birch", "", "", ""], micro: None, from: NOVEMBER + 6 * DAY_MS + 1_234_567, said: NOVEMBER + 5 * DAY_MS, version: 3 },
    Price { resource: "memory", scope: ALL, micro: None, from: NOVEMBER + 9 * DAY_MS + 18_000_001, said: NOVEMBER + 9 * DAY_MS, version: 3 },
    Price { resource: "memory", scope: ALL, micro: Some(4_507), from: NOVEMBER + 10 * DAY_MS + 21_600_003, said: NOVEMBER + 9 * DAY_MS + 1, version: 4 },
    Price { resource: "cpu", scope: ["", "", "batch", ""], micro: None, from: NOVEMBER + 4 * DAY_MS, said: NOVEMBER + 4 * DAY_MS + 8_000_011, version: 2 },
];

/// What was said of a budget. None: it is taken back.
pub struct Set {
    pub account: [&'static str; 3],
    pub of: &'static str,
    pub budget: Option<(u64, Period)>,
    pub said: i64,
    pub version: u64,
}

const fn set(
    account: [&'static str; 3],
    of: &'static str,
    budget: Option<(u64, Period)>,
    said: i64,
    version: u64,
) -> Set {
    Set {
        account,
        of,
        budget,
        said,
        version,
    }
}

/// The day on which all ends.
pub const TODAY: i64 = NOVEMBER + 11 * DAY_MS;

#[rustfmt::skip]
pub const BUDGETS: [Set; 17] = [
    // The amount is another one in the middle of the period, and counting goes on.
    set(["acme", "", ""], "money", Some((1, Period::Month)), BEGIN, 1),
    set(["acme", "", ""], "money", Some((3_500_000_000, Period::Month)), NOVEMBER + 5 * DAY_MS + 7, 2),
    set(["acme", "ml", ""], "gpu", Some((2_400_000, Period::Week)), BEGIN, 1),
    set(["acme", "ml", "dev"], "memory", Some((u64::MAX, Period::Month)), BEGIN, 1),
    // More is spent already.
    set(["acme", "web", ""], "cpu", Some((0, Period::Day)), BEGIN, 1),
    // Counted from within its period on.
    set(["birch", "", ""], "cpu", Some((1_000_000, Period::Day)), TODAY + 10 * HOUR_MS + 1, 1),
    set(["birch", "ml", ""], "money", Some((1_000_000_000, Period::Month)), BEGIN, 1),
    set(["birch", "ml", ""], "money", Some((9_000_000, Period::Day)), NOVEMBER + 3 * DAY_MS + 9, 2),
    set(["birch", "ml", ""], "money", Some((1_900_000_000, Period::Month)), NOVEMBER + 8 * DAY_MS + 11, 3),
    set(["birch", "", ""], "gpu", Some((12_000, Period::Hour)), NOVEMBER, 1),
    // Taken back, and one of them is there again, counted from then on.
    set(["cedar", "web", "prod"], "memory", Some((9, Period::Month)), BEGIN, 1),
    set(["cedar", "web", "prod"], "memory", None, NOVEMBER + 7 * DAY_MS, 2),
    set(["cedar", "", ""], "gpu", Some((5_000_000, Period::Month)), BEGIN, 1),
    set(["cedar", "", ""], "gpu", None, NOVEMBER + 2 * DAY_MS + 3, 2),
    set(["cedar", "", ""], "gpu", Some((5_000_000, Period::Month)), NOVEMBER + 4 * DAY_MS + 5, 3),
    // Of nobody who has used anything.
    set(["dune", "", ""], "money", Some((7_000_000, Period::Month)), NOVEMBER, 1),
    set(["dune", "", ""], "cpu", None, NOVEMBER, 1),
];

/// What was asked for. Texts are empty where nothing was said.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    pub allocation: u64,
    pub tenant: &'static str,
    pub team: &'static str,
    pub namespace: &'static str,
    pub queue: &'static str,
    pub job_set: &'static str,
    pub class: &'static str,
    pub gang: String,
    pub project: &'static str,
    pub operation: String,
    pub cpu: u64,
    pub memory: u64,
    pub gpu: u64,
}

#[derive(Debug, Clone, Copy)]
pub struct Wait {
    /// Counts from 1.
    pub attempt: u32,
    pub queued: i64,
    pub reason: Option<WaitingReason>,
}

#[derive(Debug, Clone, Copy)]
pub struct Ended {
    pub at: i64,
    /// When it was told.
    pub released: i64,
    pub cause: EndCause,
    /// It is queued again.
    pub again: bool,
}

#[derive(Debug, Clone)]
pub struct Run {
    pub of: Asked,
    pub wait: Wait,
    pub place: usize,
    pub incarnation: u64,
    pub placed: i64,
    /// When it was, and when it was told. None: it has never started.
    pub started: Option<(i64, i64)>,
    /// None: it has not.
    pub ended: Option<Ended>,
}

/// Ended without a place.
#[derive(Debug, Clone)]
pub struct Unplaced {
    pub of: Asked,
    pub wait: Wait,
    pub ended: i64,
    pub cause: EndCause,
}

#[derive(Debug, Clone)]
pub struct Preempted {
    pub at: i64,
    pub of: Asked,
    pub cause: PreemptionCause,
    pub by: Option<Asked>,
}

#[derive(Debug, Clone)]
pub struct Denied {
    pub at: i64,
    pub of: Asked,
    pub subject: String,
    pub limit: u64,
}

#[derive(Default)]
pub struct Plan {
    pub runs: Vec<Run>,
    pub unplaced: Vec<Unplaced>,
    pub preempted: Vec<Preempted>,
    pub denied: Vec<Denied>,
    allocations: u64,
    seed: u64,
}

const REASONS: [WaitingReason; 4] = [
    WaitingReason::NoRoomNow,
    WaitingReason::FairShare,
    WaitingReason::QueueLimit,
    WaitingReason::Quota,
];

impl Plan {
    pub fn new() -> Self {
        let mut plan = Self {
            seed: 1,
            ..Self::default()
        };
        for (place, node) in PLACES.iter().enumerate() {
            for _ in 0..node.slots {
                plan.slot(place);
            }
        }
        for _ in 0..25 {
            plan.unplaced();
        }
        plan.told_late();
        plan.preemptions();
        plan.denials();
        plan
    }

    /// The multiplier is Knuth's.
    fn next(&mut self, bound: i64) -> i64 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) as i64 % bound
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.next(of.len() as i64) as usize]
    }

    /// Asks for no more than a slot has.
    fn asked(&mut self, place: &Place) -> Asked {
        self.allocations += 1;
        let no = self.allocations;
        let tenant = self.one(&["acme", "acme", "birch", "cedar"]);
        let team = self.one(&["", "ml", "ml", "web"]);
        let namespace = if team.is_empty() {
            ""
        } else {
            self.one(&["", "dev", "prod"])
        };
        let slots = place.slots.max(2);
        let share = |of: u64| (of / slots) as i64;
        let gpu = match self.next(5) {
            _ if place.gpus == 0 => 0,
            0 => 0,
            1 => 250 + self.next(700),
            2 => 1000,
            _ => share(place.gpus * 1000) / 1000 * 1000,
        };
        Asked {
            allocation: no,
            tenant,
            team,
            namespace,
            // Its own.
            queue: self.one(&[tenant, "batch", "urgent"]),
            job_set: self.one(&["train", "serve", "etl", "eval"]),
            class: self.one(&["", "low", "low", "high"]),
            gang: if no.is_multiple_of(13) {
                format!("gang-{}", no / 52)
            } else {
                String::new()
            },
            project: self.one(&["", "atlas", "borealis"]),
            operation: if no.is_multiple_of(3) {
                String::new()
            } else {
                format!("op-{no}")
            },
            cpu: 1 + self.next(share(place.cpu_milli)) as u64,
            memory: if no.is_multiple_of(11) {
                0
            } else {
                1 + self.next(share(place.memory_bytes)) as u64
            },
            gpu: gpu as u64,
        }
    }

    fn wait(&mut self) -> (i64, Option<WaitingReason>) {
        match self.next(5) {
            0 => (0, None),
            1 => (self.next(5000), None),
            2 | 3 => (1 + self.next(3 * HOUR_MS), Some(self.one(&REASONS))),
            _ => (1 + self.next(20 * HOUR_MS), Some(self.one(&REASONS))),
        }
    }

    fn duration(&mut self) -> i64 {
        match self.next(24) {
            0 => 0,
            1 | 2 => 1 + self.next(5),
            3..9 => 1 + self.next(HOUR_MS),
            9..22 => 1 + self.next(40 * HOUR_MS),
            _ => 1 + self.next(9 * DAY_MS),
        }
    }

    fn cause(&mut self) -> EndCause {
        match self.next(10) {
            0 => EndCause::Failed,
            1 => EndCause::Cancelled,
            2 | 3 => EndCause::Preempted,
            _ => EndCause::Finished,
        }
    }

    /// One run after the other in a part of a node.
    fn slot(&mut self, place: usize) {
        let node = &PLACES[place];
        let away = || AWAY.iter().filter(|away| away.node == node.name);
        let mut free = BEGIN + 1000 + self.next(20 * HOUR_MS);
        let mut again: Option<(Asked, u32)> = None;
        loop {
            let (of, attempt) = again.take().unwrap_or_else(|| (self.asked(node), 1));
            let (ms, reason) = self.wait();
            let mut placed = free + ms;
            for away in away() {
                // Not in the moments before it, so that nothing is placed on what is lost.
                if placed >= away.from - 1000 && placed <= away.until {
                    placed = away.until.saturating_add(1 + self.next(HOUR_MS));
                }
            }
            if placed >= END {
                return;
            }
            let wait = Wait {
                attempt,
                queued: free,
                reason,
            };
            let incarnation = 1 + away()
                .filter(|away| away.anew && away.until < placed)
                .count() as u64;
            let start = placed + self.next(90_000);
            let told = start + self.next(700);
            let never = self.next(25) == 0;
            let mut ended = Ended {
                at: start + self.duration(),
                released: 0,
                cause: if never {
                    EndCause::RejectedByNode
                } else {
                    self.cause()
                },
                again: false,
            };
            ended.released = ended.at.max(told) + 1 + self.next(120_000);
            let lost =
                away().find(|away| away.lost && (placed..ended.released).contains(&away.from));
            let mut started = (!never).then_some((start, told));
            if let Some(lost) = lost {
                started = started.filter(|(_, told)| *told < lost.from);
                ended.at = ended.at.min(lost.from);
                ended.cause = EndCause::NodeLost;
                ended.released = lost.from + 30_123 + self.next(1000);
            }
            let retried = matches!(
                ended.cause,
                EndCause::Failed | EndCause::Preempted | EndCause::NodeLost
            );
            ended.again = retried && attempt < 4 && self.next(2) == 0;
            let over = ended.released < END;
            self.runs.push(Run {
                of: of.clone(),
                wait,
                place,
                incarnation,
                placed,
                started: started.filter(|(_, told)| *told < END),
                ended: over.then_some(ended),
            });
            if !over {
                return;
            }
            free = ended.released;
            if ended.again {
                again = Some((of, attempt + 1));
            }
            // Nobody waits for it any more.
            if self.next(6) == 0
                && let Some((of, attempt)) = again.take()
            {
                let ended = free + 1 + self.next(HOUR_MS);
                self.unplaced.push(Unplaced {
                    of,
                    wait: Wait {
                        attempt,
                        queued: free,
                        reason: Some(WaitingReason::Backoff),
                    },
                    ended,
                    cause: EndCause::Cancelled,
                });
            }
            if again.is_none() {
                free += 1 + self.next(30 * HOUR_MS);
            }
        }
    }

    fn unplaced(&mut self) {
        let queued = BEGIN + self.next(END - BEGIN - 2 * DAY_MS);
        let of = self.asked(&PLACES[0]);
        let cause = self.one(&[EndCause::Cancelled, EndCause::DependencyFailed]);
        let reason = self.one(&[
            WaitingReason::LargerThanAnyNode,
            WaitingReason::NoNodeOfModel,
            WaitingReason::Dependency,
        ]);
        let reason = Some(reason).filter(|_| self.next(4) > 0);
        let ended = queued + self.next(2 * DAY_MS);
        self.unplaced.push(Unplaced {
            of,
            wait: Wait {
                attempt: 1,
                queued,
                reason,
            },
            ended,
            cause,
        });
    }

    /// What is told late. Two runs of October that November's bill has to correct, because an end and a start become
    /// known when October is closed; and three of one hour in which a price changes: one that is over in it, and one
    /// each of which the end and the start become known when the hour is over.
    fn told_late(&mut self) {
        let minutes = |count: i64| count * 60_000;
        let nine = NOVEMBER + 2 * DAY_MS + 9 * HOUR_MS;
        // Whose, and of what; its start, how much later that is told; its end, when that is told.
        #[rustfmt::skip]
        let told = [
            ("birch", "late", 2000, NOVEMBER - minutes(240), 3, NOVEMBER - 6_600_500, CLOSED + minutes(75)),
            ("birch", "etl", 2000, NOVEMBER - minutes(180), minutes(330), CLOSED + minutes(60), CLOSED + minutes(62)),
            ("acme", "drill", 1000, nine + minutes(10), 7, nine + minutes(50) + 250, nine + minutes(51)),
            ("acme", "drill", 1000, nine - minutes(60), 0, nine + minutes(40), nine + minutes(65)),
            ("acme", "drill", 1000, nine + minutes(55), minutes(6), nine + minutes(120), nine + minutes(121)),
            // Not of that line: another tenant's, and of another hour.
            ("birch", "drill", 1000, nine + minutes(1), 0, nine + minutes(59), nine + minutes(60)),
            ("acme", "drill", 1000, nine + minutes(130), 0, nine + minutes(190), nine + minutes(191)),
        ];
        for (tenant, job_set, gpu, start, later, end, released) in told {
            self.allocations += 1;
            let of = Asked {
                allocation: self.allocations,
                tenant,
                team: "ml",
                queue: tenant,
                job_set,
                // Each tenant counts its own.
                operation: if tenant == "birch" {
                    REQUEST.to_owned()
                } else {
                    String::new()
                },
                cpu: 1000,
                memory: 5 << 30,
                gpu,
                ..Asked::default()
            };
            let wait = Wait {
                attempt: 1,
                queued: start - 10,
                reason: None,
            };
            self.runs.push(Run {
                of,
                wait,
                place: PLACES.len() - 1,
                incarnation: 1,
                placed: start - 5,
                started: Some((start, start + later)),
                ended: Some(Ended {
                    at: end,
                    released,
                    cause: EndCause::Finished,
                    again: false,
                }),
            });
        }
    }

    /// Whoever is preempted is so for somebody who is there then, or for a reservation.
    fn preemptions(&mut self) {
        let victims: Vec<(i64, Asked)> = (self.runs.iter())
            .filter_map(|run| {
                let ended = run
                    .ended
                    .filter(|ended| ended.cause == EndCause::Preempted)?;
                let (start, _) = run.started?;
                Some((start.max(ended.at - 3000), run.of.clone()))
            })
            .collect();
        for (at, of) in victims {
            let other = self.next(self.runs.len() as i64) as usize;
            let by = (self.runs[other..].iter().chain(&self.runs[..other]))
                .find(|run| {
                    run.placed < at && run.of.tenant != of.tenant && self.alive(&run.of, at)
                })
                .map(|run| run.of.clone());
            let by = by.filter(|_| self.next(5) > 0);
            let cause = match by {
                Some(_) => self.one(&[PreemptionCause::Priority, PreemptionCause::FairShare]),
                None => PreemptionCause::Reservation,
            };
            self.preempted.push(Preempted { at, of, cause, by });
        }
    }

    fn denials(&mut self) {
        for _ in 0..9 {
            let at = BEGIN + self.next(END - BEGIN);
            let of = self.asked(&PLACES[0]);
            let subject = format!("{} cpu", self.one(&[of.tenant, "acme/ml"]));
            let limit = self.next(of.cpu as i64) as u64;
            self.denied.push(Denied {
                at,
                of,
                subject,
                limit,
            });
        }
    }

    /// It has not had its last end.
    fn alive(&self, of: &Asked, at: i64) -> bool {
        let mut runs = self
            .runs
            .iter()
            .filter(|run| run.of.allocation == of.allocation);
        runs.any(|run| run.placed < at && run.ended.is_none_or(|ended| ended.released > at))
    }
}

impl Run {
    /// What its agent has measured: of every third run nothing.
    pub fn measured(&self) -> Option<RunUsage> {
        let ended = self.ended?;
        let seed = self.of.allocation + u64::from(self.wait.attempt);
        let measured = matches!(ended.cause, EndCause::Finished | EndCause::Failed);
        let (start, _) = self
            .started
            .filter(|_| measured && !seed.is_multiple_of(3))?;
        let ms = u64::try_from(ended.at - start).unwrap_or(0);
        Some(RunUsage {
            // Up to four fifths of a core.
            cpu_us: ms * 200 * (seed % 5),
            memory_peak_bytes: (seed % 7 + 1) << 20,
            log_bytes: seed % 100,
        })
    }
}
