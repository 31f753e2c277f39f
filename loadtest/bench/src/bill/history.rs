//! A month of allocations of many tenants, as the deciders would have written it, in frames of a thousand events or two.

use ledger::{Record, Scribe, memory::Seeded};
use std::{cmp::Reverse, collections::BinaryHeap};
use vocab::fact::{
    AllocationEnded, AllocationPlaced, AllocationRequested, AllocationStarted, AllocationWaiting,
    NodeRegistered, PeriodClosed, QuotaReleased, QuotaReserved, RateSet,
};
use vocab::{
    AdminChange, AllocationNo, AllocationSpec, EndCause, Event, GpuRequest, Millis, Month,
    NodeCapacity, Operation, PlacementPolicy, QuotaFlags, ResourceKey, Token, WaitingReason,
    Writer,
};

/// The month in which everything is requested.
pub const MONTH: Month = Month(202_610);
/// Allocations that are requested at one moment.
const STEP: u64 = 500;
const NODES: u64 = 240;
const MODELS: [Option<&str>; 4] = [None, Some("A100"), Some("H100"), Some("L4")];
const CLUSTERS: [&str; 2] = ["east", "west"];
const POOLS: [&str; 3] = ["batch", "serve", "lab"];
/// Of one tenant.
const JOB_SETS: u64 = 8;
const TEAMS: u64 = 4;
const CLASSES: [Option<&str>; 3] = [None, Some("high"), Some("low")];
/// Crooked, so that rounding shows.
const RATES: [(&str, u64); 5] = [
    ("cpu", 31_611),
    ("memory", 4_237),
    ("gpu", 1_006_003),
    ("gpu:A100", 1_460_017),
    ("gpu:H100", 2_930_111),
];

/// The parts of the history that were written.
pub struct History {
    scribe: Scribe,
    draws: Seeded,
    tenants: u64,
    /// The names are made once.
    names: Names,
    now: Millis,
    /// Between two steps.
    step_ms: i64,
    /// What was placed in the step before.
    to_start: Vec<AllocationNo>,
    to_release: Vec<AllocationNo>,
    ends: BinaryHeap<Reverse<(i64, u64)>>,
    requested: u64,
    events: u64,
}

struct Names {
    tenants: Vec<Token>,
    nodes: Vec<Token>,
    job_sets: Vec<Token>,
    teams: Vec<Token>,
    classes: Vec<Option<Token>>,
}

fn token(text: &str) -> Token {
    Token::new(text).expect("the names here are letters, digits and dashes")
}

fn numbered(prefix: &str, count: u64) -> Vec<Token> {
    let name = |no| token(&format!("{prefix}{no:04}"));
    (0..count).map(name).collect()
}

impl History {
    /// So many allocations, evenly over the month.
    pub fn new(tenants: u64, allocations: u64) -> Self {
        let month_ms = MONTH.end().0 - MONTH.begin().0;
        let steps = allocations.div_ceil(STEP).max(1);
        Self {
            scribe: Scribe::default(),
            draws: Seeded::new(15),
            tenants,
            names: Names {
                tenants: numbered("tenant-", tenants),
                nodes: numbered("node-", NODES),
                job_sets: numbered("job-set-", JOB_SETS),
                teams: numbered("team-", TEAMS),
                classes: CLASSES.map(|class| class.map(token)).to_vec(),
            },
            now: MONTH.begin(),
            step_ms: (month_ms / steps as i64).max(1),
            to_start: Vec::new(),
            to_release: Vec::new(),
            ends: BinaryHeap::new(),
            requested: 0,
            events: 0,
        }
    }

    /// Allocations that were requested.
    pub fn requested(&self) -> u64 {
        self.requested
    }

    /// Events of all writers.
    pub fn events(&self) -> u64 {
        self.events
    }

    fn frame(&mut self, writer: Writer, events: Vec<Event>) -> Record {
        self.events += events.len() as u64;
        self.scribe.frame(writer, self.now, events)
    }

    /// Rates and nodes.
    pub fn beginning(&mut self) -> Vec<Record> {
        let rate = |(resource, micro): (&str, u64)| {
            let change = AdminChange::Rate(RateSet {
                resource: ResourceKey::parse(resource).expect("a resource of the contract"),
                micro_per_unit_hour: micro,
                effective_from: Millis(0),
                scope: vocab::RateScope::default(),
                withdrawn: false,
            });
            change.applied(asked(token("_operator")), 1).into()
        };
        let rates: Vec<Event> = RATES.map(rate).to_vec();
        let nodes = (0..NODES).map(|no| self.node(no)).collect();
        vec![
            self.frame(Writer::Admission, rates),
            self.frame(Writer::NodeHeartbeat, nodes),
        ]
    }

    /// Larger than any: what is measured is no placement.
    fn node(&self, no: u64) -> Event {
        let of = |names: &[&str], no: u64| token(names[no as usize % names.len()]);
        let model = model(no);
        let labels = vec![
            (token("cluster"), of(&CLUSTERS, no)),
            (token("pool"), of(&POOLS, no / 2)),
        ];
        NodeRegistered {
            node: self.names.nodes[no as usize].clone(),
            incarnation: no + 1,
            boot: 1,
            capacity: NodeCapacity {
                cpu_milli: 4_000_000,
                memory_bytes: 32 << 40,
                gpus: if model.is_some() { 256 } else { 0 },
                gpu_model: model.map(token),
                labels,
                ..NodeCapacity::default()
            },
        }
        .into()
    }

    /// What happens next: requests, what becomes of those before, and ends of runs. None when the month is over.
    pub fn step(&mut self) -> Option<Vec<Record>> {
        (self.now < MONTH.end()).then(|| self.written())
    }

    /// The same, whatever month it is.
    pub fn written(&mut self) -> Vec<Record> {
        let first = self.scribe.next_event(Writer::Admission).0;
        let requests: Vec<Event> = (0..STEP).map(|no| self.request(first + no)).collect();
        let released = std::mem::take(&mut self.to_release).into_iter();
        let released = released.map(|allocation| QuotaReleased { allocation }.into());
        let reserved = (first..first + STEP).map(|no| {
            QuotaReserved {
                allocation: AllocationNo(no),
                flags: QuotaFlags::default(),
                models: None,
            }
            .into()
        });
        let quotas: Vec<Event> = released.chain(reserved).collect();
        let decided = self.decided(first);
        let records = vec![
            self.frame(Writer::Admission, requests),
            self.frame(Writer::Quota, quotas),
            self.frame(Writer::Scheduler, decided),
        ];
        self.requested += STEP;
        self.now = Millis(self.now.0 + self.step_ms);
        records
    }

    fn request(&mut self, no: u64) -> Event {
        let tenant = self.draws.below(self.tenants);
        let job_set = self.draws.below(JOB_SETS);
        let names = &self.names;
        let gpu = model(node_of(no)).filter(|_| no.is_multiple_of(3));
        let spec = AllocationSpec {
            team: Some(names.teams[(job_set % TEAMS) as usize].clone()),
            priority_class: names.classes[(job_set % 3) as usize].clone(),
            gpu: gpu.map(|_| GpuRequest {
                count: 1,
                milli: 1000,
                models: Vec::new(),
            }),
            ..AllocationSpec::plain(
                names.job_sets[job_set as usize].clone(),
                500 * (1 + no % 16),
                (1 + no % 32) << 30,
            )
        };
        let operation = asked(names.tenants[tenant as usize].clone());
        AllocationRequested { operation, spec }.into()
    }

    /// What waited starts, what is new is placed, and what is due ends.
    fn decided(&mut self, first: u64) -> Vec<Event> {
        let now = self.now;
        let mut events: Vec<Event> = Vec::new();
        for allocation in std::mem::take(&mut self.to_start) {
            events.push(
                AllocationStarted {
                    allocation,
                    at: now,
                }
                .into(),
            );
            let lasts = self.lifetime();
            self.ends.push(Reverse((now.0 + lasts, allocation.0)));
        }
        for no in first..first + STEP {
            let allocation = AllocationNo(no);
            if no % 10 == 0 {
                events.push(
                    AllocationWaiting {
                        allocation,
                        reason: WaitingReason::NoRoomNow,
                        pending_group: None,
                    }
                    .into(),
                );
            }
            let node = node_of(no);
            events.push(
                AllocationPlaced {
                    allocation,
                    node: self.names.nodes[node as usize].clone(),
                    incarnation: node + 1,
                    gpus: Default::default(),
                    zones: 0,
                    policy: PlacementPolicy::Default,
                    candidates: Default::default(),
                }
                .into(),
            );
            self.to_start.push(allocation);
        }
        while let Some(Reverse((at, no))) = self.ends.peek().copied() {
            if at > now.0 {
                break;
            }
            self.ends.pop();
            let allocation = AllocationNo(no);
            let cause = match no % 20 {
                0 => EndCause::Failed,
                _ => EndCause::Finished,
            };
            let at = Millis(at);
            events.push(
                AllocationEnded {
                    allocation,
                    cause,
                    at,
                    exit: None,
                }
                .into(),
            );
            self.to_release.push(allocation);
        }
        events
    }

    /// Most are over in minutes, and some run for hours.
    fn lifetime(&mut self) -> i64 {
        let minutes = match self.draws.below(20) {
            0 => 60 + self.draws.below(840),
            1..=5 => 20 + self.draws.below(80),
            _ => 1 + self.draws.below(9),
        };
        (minutes * 60_000 + self.draws.below(60_000)) as i64
    }

    /// Closes the month, an hour after its end or later.
    pub fn close(&mut self) -> Record {
        self.now = Millis(self.now.0.max(MONTH.end().0 + vocab::HOUR_MS));
        let change = AdminChange::Period(PeriodClosed { month: MONTH });
        let closed = change.applied(asked(token("_operator")), 1).into();
        self.frame(Writer::Admission, vec![closed])
    }
}

fn node_of(allocation: u64) -> u64 {
    allocation % NODES
}

fn model(node: u64) -> Option<&'static str> {
    MODELS[node as usize % MODELS.len()]
}

fn asked(tenant: Token) -> Operation {
    Operation {
        tenant,
        operation_id: None,
        digest: [0; 16],
        reply_to: None,
        trace: None,
        by: None,
    }
}
