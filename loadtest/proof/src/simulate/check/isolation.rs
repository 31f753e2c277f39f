//! Isolation: requests that nothing can ever come of change nothing for anybody else.
//!
//! From a quiet state the same inputs are decided twice, by a quota and a scheduler that have read the whole ledger: once
//! as they are, and once with impossible requests of one more tenant among them. Both go round by round at the same
//! moments, agents do at once as they are told, and in each round the decisions about everybody else have to be the same.

use super::{Invariant, Violation};
use crate::simulate::world::token;
use ledger::{Decider, Draft, LedgerId, Replica, Snapshot, memory::MemoryBus, memory::Seeded};
use quota_rules::Quota;
use scheduler_rules::{Config, Scheduler, what_if::told_to_stop};
use std::fmt;
use vocab::fact::{
    AllocationRequested, AllocationWaiting, NodeRegistered, PriorityClassSet, QueueSet, QuotaSet,
    RunReported, SchedulingSet,
};
use vocab::{
    Account, AdminChange, AllocationNo, AllocationSpec, At, Event, EventNo, Gang, GpuRequest,
    GroupTerm, Limits, Lsn, Millis, NodeCapacity, NumaPolicy, Operation, Operator, PlacementRules,
    PriorityClass, QueueSettings, QuotaResource, Requirement, ResourceKind, RunState,
    SchedulingPolicy, Spread, Validity,
};

/// No ledger of the simulation comes to these numbers. What is asked beside the odd requests has the lower ones.
const FIRST_ASKED: u64 = 1 << 40;
const FIRST_ODD: u64 = 1 << 41;
const FIRST_DECIDED: u64 = 1 << 42;
/// Rounds that are compared. Quota that comes and goes with bursts may never let it rest.
const ROUNDS_MAX: usize = 40;
const GIB: u64 = 1 << 30;
const GANG: u32 = 64;
/// Of the node that comes; most of the cell's.
const NEW_CORES: u64 = 64;

/// An input and the number that it has.
type Input = (u64, Event);

/// A quota and a scheduler that read each other.
#[derive(Clone)]
struct Cell {
    quota: Quota,
    scheduler: Scheduler,
    next: u64,
}

fn broken(text: impl fmt::Display) -> Violation {
    Violation {
        invariant: Invariant::Isolation,
        lsn: 0,
        text: text.to_string(),
    }
}

impl Cell {
    fn read(bus: &MemoryBus) -> Result<(Self, Millis), Violation> {
        let (quota, at) = folded::<Quota>(bus)?;
        let (scheduler, then) = folded::<Scheduler>(bus)?;
        let cell = Self {
            quota,
            scheduler,
            next: FIRST_DECIDED,
        };
        Ok((cell, at.max(then)))
    }

    fn observe(&mut self, now: Millis, (no, event): &Input) -> Result<(), Violation> {
        let at = At {
            lsn: Lsn(0),
            index: 0,
            no: EventNo(*no),
            now,
        };
        self.quota.observe_event(&at, event).map_err(broken)?;
        self.scheduler.observe_event(&at, event).map_err(broken)
    }

    /// One round of both; what was decided about everybody but the odd tenant.
    fn round(
        &mut self,
        now: Millis,
        inputs: &[Input],
        config: &Config,
    ) -> Result<Vec<Event>, Violation> {
        for input in inputs {
            self.observe(now, input)?;
        }
        for (allocation, node) in told_to_stop(&self.scheduler) {
            let stopped = Event::RunReported(RunReported {
                allocation,
                node,
                state: RunState::Stopped,
                at: now,
                exit: None,
            });
            let no = self.next;
            self.next += 1;
            self.observe(now, &(no, stopped))?;
        }
        let next = &mut self.next;
        let (quota, scheduler) = (&mut self.quota, &mut self.scheduler);
        let mut all = decide(quota, &quota::Config::default(), scheduler, now, next)?;
        all.extend(decide(scheduler, config, quota, now, next)?);
        all.retain(|event| !is_odd(event) && !matches!(event, Event::PendingGroupExplained(_)));
        for event in &mut all {
            // Who came before is another number of lines.
            if let Event::AllocationWaiting(AllocationWaiting { pending_group, .. }) = event {
                *pending_group = None;
            }
        }
        Ok(all)
    }
}

/// Lets one decide and the other read it.
fn decide<D: Decider, R: Decider>(
    writer: &mut D,
    config: &D::Config,
    reader: &mut R,
    now: Millis,
    next: &mut u64,
) -> Result<Vec<Event>, Violation> {
    let mut draft = Draft::new(now, EventNo(*next));
    writer.decide(config, &mut draft);
    if let Some(poison) = draft.poison() {
        return Err(broken(poison));
    }
    let events: Vec<Event> = draft.events().cloned().collect();
    for (index, (no, event)) in (*next..).zip(&events).enumerate() {
        let at = At {
            lsn: Lsn(0),
            index: index as u32,
            no: EventNo(no),
            now,
        };
        reader.observe_event(&at, event).map_err(broken)?;
    }
    *next = draft.next_no().0;
    Ok(events)
}

fn folded<D: Decider + Clone>(bus: &MemoryBus) -> Result<(D, Millis), Violation> {
    let kept = bus.snapshots_kept(D::WRITER.name()).into_iter();
    let restored = kept
        .filter_map(|bytes| Snapshot::from_bytes(&bytes, LedgerId(1)))
        .next()
        .and_then(|snapshot| Replica::<D>::restore(&snapshot));
    let mut replica = restored.unwrap_or_default();
    let from = replica.next().0;
    for record in bus.records_from((from - 1) as usize) {
        replica.receive(&record).map_err(broken)?;
    }
    replica.fold_all().map_err(broken)?;
    Ok((replica.state().clone(), replica.newest()))
}

fn is_odd(event: &Event) -> bool {
    let of = event.allocation(EventNo(0));
    of.is_some_and(|AllocationNo(no)| (FIRST_ODD..FIRST_DECIDED).contains(&no))
}

fn by(tenant: &str) -> Operation {
    Operation {
        tenant: token(tenant),
        operation_id: None,
        digest: [0; 16],
        reply_to: None,
        trace: None,
        by: None,
    }
}

fn requested(tenant: &str, spec: AllocationSpec) -> Event {
    Event::AllocationRequested(AllocationRequested {
        operation: by(tenant),
        spec,
    })
}

fn plain(cores: u64) -> AllocationSpec {
    AllocationSpec::plain(token("odd"), cores * 1000, GIB)
}

fn set(change: AdminChange) -> Event {
    change.applied(by("_operator"), FIRST_ASKED).into()
}

fn queue(name: &str, weight: u32, limits: Vec<(ResourceKind, u64)>) -> Event {
    set(AdminChange::Queue(QueueSet {
        queue: token(name),
        closed: false,
        settings: QueueSettings {
            weight_milli: weight * 1000,
            limits,
            ..QueueSettings::default()
        },
    }))
}

/// Quota of all that is asked for here, without an end.
fn ample(tenant: &str) -> impl Iterator<Item = Event> {
    let account = Account::tenant(token(tenant));
    let of = [
        QuotaResource::Cpu,
        QuotaResource::Memory,
        QuotaResource::Gpu,
    ];
    of.into_iter().map(move |resource| {
        set(AdminChange::Quota(QuotaSet {
            account: account.clone(),
            resource,
            limits: Some(Limits::hard(Limits::MAX)),
            validity: Validity::default(),
        }))
    })
}

/// A place where the label has this value.
fn only(label: &str, value: &str) -> Option<Box<PlacementRules>> {
    let requirement = Requirement {
        label: token(label),
        operator: Operator::In,
        values: vec![token(value)],
    };
    Some(Box::new(PlacementRules {
        selector: vec![requirement],
        ..PlacementRules::default()
    }))
}

/// What both have: the odd tenant's queue, of which nothing is in use, and something that all who wait may gain from.
fn shared(cell: &Cell, random: &mut Seeded) -> Vec<Event> {
    let mut inputs = vec![queue("odd", 8, vec![(ResourceKind::Gpu, 0)])];
    inputs.extend(ample("odd"));
    inputs.push(Event::NodeRegistered(NodeRegistered {
        node: token("node-new"),
        incarnation: 1,
        boot: 1,
        capacity: NodeCapacity {
            cpu_milli: 1000 * NEW_CORES,
            memory_bytes: 128 * GIB,
            labels: vec![(token("pool"), token("new"))],
            ..NodeCapacity::default()
        },
    }));
    for no in 0..random.below(4) {
        let tenant = format!("tenant-{}", no % 2);
        inputs.push(requested(&tenant, plain(1 + random.below(6))));
    }
    if random.chance(500) {
        inputs.extend(contended(random));
    }
    let running = cell.scheduler.live().iter();
    let running = running.filter_map(|(no, live)| Some((*no, live.binding()?)));
    for (allocation, hold) in running {
        let told = hold.stop.is_some() || !hold.reports.is_empty();
        if !told && random.chance(300) {
            inputs.push(Event::RunReported(RunReported {
                allocation,
                node: cell.scheduler.nodes()[hold.node.0 as usize].name.clone(),
                state: RunState::Finished,
                at: Millis(0),
                exit: None,
            }));
        }
    }
    inputs
}

/// Two queues that want more of the new node than it has, and may take it from each other.
fn contended(random: &mut Seeded) -> Vec<Event> {
    let mut inputs = vec![
        set(AdminChange::Scheduling(SchedulingSet {
            policy: SchedulingPolicy::default(),
        })),
        set(AdminChange::PriorityClass(PriorityClassSet {
            class: token("fair"),
            closed: false,
            settings: PriorityClass {
                value: 0,
                preemptible: true,
                preempts: false,
                grace_ms: 0,
                placement: None,
            },
        })),
    ];
    for (name, weight) in [("much", 3), ("little", 1)] {
        inputs.push(queue(name, weight, Vec::new()));
        inputs.extend(ample(name));
        // More than there is, so that shares decide who has how much.
        for _ in 0..NEW_CORES / 4 + random.below(4) {
            let spec = AllocationSpec {
                rules: only("pool", "new"),
                priority_class: Some(token("fair")),
                ..plain(4)
            };
            inputs.push(requested(name, spec));
        }
    }
    inputs
}

/// Returns rules that no node meets: one zone on a node without zones, affinity to a group without members, or spread over a
/// label that no node has.
fn forbidden(random: &mut Seeded) -> PlacementRules {
    let none = PlacementRules::default();
    match random.below(3) {
        0 => PlacementRules {
            numa: NumaPolicy::Single,
            ..only("pool", "new").map_or(none, |rules| *rules)
        },
        1 => PlacementRules {
            affinity: vec![GroupTerm {
                group: token("nobody"),
                topology_key: random.chance(500).then(|| token("zone")),
            }],
            ..none
        },
        _ => PlacementRules {
            group: Some(token("odd")),
            spread: vec![Spread {
                topology_key: Some(token("rack")),
                max_skew: 1,
            }],
            ..none
        },
    }
}

/// Requests that no node, and no limit of the odd tenant's queue, will ever let in.
fn odd(random: &mut Seeded) -> Vec<Event> {
    let mut spec = match random.below(5) {
        0 => plain(1000),
        1 => AllocationSpec {
            rules: only("zone", "nowhere"),
            ..plain(1)
        },
        2 => AllocationSpec {
            gpu: Some(GpuRequest {
                count: 1,
                milli: 1000,
                models: Vec::new(),
            }),
            ..plain(1)
        },
        3 => AllocationSpec {
            rules: Some(Box::new(forbidden(random))),
            ..plain(1)
        },
        _ => AllocationSpec {
            gang: Some(Gang {
                name: token("odd"),
                size: GANG,
                min: GANG,
                uniform_label: None,
            }),
            ..plain(8)
        },
    };
    let high = random.chance(500);
    spec.priority_class = high.then(|| token("high"));
    spec.priority = if high { 10 } else { 0 };
    let members = if spec.gang.is_some() { GANG } else { 1 };
    (0..members)
        .map(|_| requested("odd", spec.clone()))
        .collect()
}

fn numbered(events: Vec<Event>, first: u64, now: Millis) -> Vec<Input> {
    let dated = events.into_iter().map(|mut event| {
        if let Event::RunReported(RunReported { at, .. }) = &mut event {
            *at = now;
        }
        event
    });
    (first..).zip(dated).collect()
}

/// Decides what follows from a quiet state with and without impossible requests.
pub fn impossible_changes_nothing(bus: &MemoryBus, config: &Config) -> Result<(), Violation> {
    let (mut without, mut now) = Cell::read(bus)?;
    let mut random = Seeded::new(now.0 as u64);
    now = Millis(now.0 + 1);
    let mut with = without.clone();
    let mut inputs = numbered(shared(&without, &mut random), FIRST_ASKED, now);
    let mut more = numbered(odd(&mut random), FIRST_ODD, now);
    let asked = more.first().map(|(_, event)| event.clone());
    // In the middle: the order in which they came is another one then, too.
    let rest = inputs.split_off(inputs.len() / 2);
    more = inputs
        .iter()
        .cloned()
        .chain(more)
        .chain(rest.iter().cloned())
        .collect();
    inputs.extend(rest);
    for _ in 0..ROUNDS_MAX {
        let as_it_is = without.round(now, &inputs, config)?;
        let beside = with.round(now, &more, config)?;
        if as_it_is != beside {
            let at = as_it_is.iter().zip(&beside);
            let at = at.take_while(|(one, other)| one == other).count();
            let text = format!(
                "beside {asked:?} and its likes {:?} is decided, not {:?}",
                beside.get(at),
                as_it_is.get(at),
            );
            return Err(broken(text));
        }
        inputs.clear();
        more.clear();
        now = Millis(now.0 + 1);
    }
    Ok(())
}
