//! A cell in one thread: the real leaders and projectors on the memory bus, each polled by itself and counted.

use crate::guard::{
    table::Count,
    tasks::{self, Run},
};
use admission::feed::Feed;
use allocation_counter::AllocationInfo;
use analytics::domain::Usage;
use ledger::{
    Batch, Chain, Inbox, InboxLimits, InboxMessage, LedgerId, Projection, Record, Resume,
    SAYS_AFTER, Sink, SinkError,
    memory::{Faults, MemoryBus},
};
use ledger_nats::{NoObserver, Projector, ProjectorError};
use node_heartbeat_rules::{Config as NodeConfig, Effect, Joining};
use proof::simulate::{MemoryFeed, Orders, Process, Role, Shared, SimTime, WorldClock};
use scheduler::Config as SchedulerConfig;
use std::{
    collections::BTreeMap,
    future::{Future, ready},
    marker::PhantomData,
    pin::Pin,
    sync::{Arc, atomic::AtomicU64},
    task::{Context, Poll, Waker},
};
use vocab::{CellNo, Event, HOUR_MS, Kinds, Lsn, Writer};

const CELL: CellNo = CellNo(1);
const BEGAN_MS: i64 = 1_700_000_000_000;
/// Polls without a record after which somebody has nothing left to do: each call of the bus takes two.
const PATIENCE: usize = 16;
/// None is saved: what a snapshot costs is nothing that each task pays.
const SNAPSHOT_EVERY: u64 = 1 << 40;

pub struct Cell {
    bus: MemoryBus,
    clock: WorldClock,
    processes: Vec<Process>,
    folds: Vec<Fold>,
}

type Work = Pin<Box<dyn Future<Output = ProjectorError>>>;

struct Fold {
    name: &'static str,
    work: Work,
}

impl Cell {
    /// With tenants, limits at all levels of their accounts, and nodes that are ready.
    pub fn furnished() -> Self {
        let mut cell = Self::new();
        for message in tasks::settings() {
            cell.arrives(message);
        }
        for role in [Role::Admission, Role::Quota, Role::Scheduler] {
            cell.settle(role);
        }
        for message in tasks::nodes() {
            cell.reports(message);
        }
        cell.settle(Role::Nodes);
        cell.settle(Role::Scheduler);
        cell.project();
        cell
    }

    fn new() -> Self {
        let bus = MemoryBus::new(1, Faults::default());
        let clock = WorldClock::new(BEGAN_MS);
        let shared = Shared {
            bus: bus.clone(),
            feed: MemoryFeed::new(1, 0),
            cell: CELL,
            admission: admission::Config {
                cell: CELL,
                ..admission::Config::default()
            },
            scheduler: SchedulerConfig::default(),
            // Nobody sends heartbeats.
            nodes: NodeConfig {
                lease_ms: 24 * HOUR_MS,
                joining: Joining::Open,
            },
            takeover_after_ms: 3000,
            backlog: InboxLimits::default(),
            says_after: SAYS_AFTER,
            orders: Orders::default(),
            trials: false,
            step: Arc::new(AtomicU64::new(0)),
        };
        let deciders = [Role::Admission, Role::Quota, Role::Scheduler, Role::Nodes];
        let start = |role| Process::start(1, role, &shared, clock.skewed(0), SNAPSHOT_EVERY);
        let time = clock.skewed(0);
        Self {
            processes: deciders.into_iter().map(start).collect(),
            folds: vec![
                Fold::of::<admission::project::WarmProjection>(&bus, &time),
                Fold::of::<Feed>(&bus, &time),
                Fold::of::<quota::project::WarmProjection>(&bus, &time),
                Fold::of::<scheduler::project::WarmProjection>(&bus, &time),
                Fold::of::<node_heartbeat::project::WarmProjection>(&bus, &time),
                Fold::of::<Usage>(&bus, &time),
            ],
            bus,
            clock,
        }
    }

    pub fn arrives(&self, message: InboxMessage) {
        self.bus.publish(Inbox::Ingress, message);
    }

    pub fn reports(&self, message: InboxMessage) {
        self.bus.publish(Inbox::Report, message);
    }

    pub fn pass_ms(&self, ms: i64) {
        self.clock.advance(ms);
    }

    /// Has one decider take in, decide and append until it waits.
    pub fn settle(&mut self, role: Role) -> Count {
        let process = self.processes.iter_mut().find(|one| one.role == role);
        let process = process.expect("all deciders have been started");
        let mut sum = Count::default();
        let mut still = 0;
        let mut read = self.bus.records().len();
        while still < PATIENCE {
            sum += count(|| {
                process.poll().expect("nothing goes wrong on this bus");
            });
            let new = self.bus.records_from(read).len();
            read += new;
            still = if new == 0 { still + 1 } else { 0 };
            // A leader that was crowded gathers for some milliseconds.
            self.clock.advance(1);
        }
        sum
    }

    /// Has each projection fold what is new.
    pub fn project(&mut self) -> Vec<(&'static str, Count)> {
        let mut counts = Vec::new();
        for fold in &mut self.folds {
            let mut context = Context::from_waker(Waker::noop());
            let mut sum = Count::default();
            for _ in 0..PATIENCE {
                sum += count(|| match fold.work.as_mut().poll(&mut context) {
                    Poll::Pending => {}
                    Poll::Ready(error) => panic!("{}: {error}", fold.name),
                });
            }
            counts.push((fold.name, sum));
        }
        counts
    }

    /// What the nodes were told to run since, and what it took to write the messages that say so.
    pub fn assigned(&mut self) -> (Vec<Run>, Count) {
        let mut sum = Count::default();
        let nodes = self
            .processes
            .iter_mut()
            .find(|one| one.role == Role::Nodes);
        let effects = nodes
            .expect("all deciders have been started")
            .take_effects();
        let mut runs = Vec::new();
        // As the shell does it: one push for each node.
        let mut pushes: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for effect in effects {
            let Effect::Assign {
                node,
                boot,
                assignment,
            } = effect
            else {
                continue;
            };
            runs.push(Run {
                node: node.clone(),
                boot,
                allocation_id: assignment.allocation.id(CELL).to_string(),
                revision: assignment.revision,
                placed_ms: assignment.placed.0,
            });
            let changes = pushes.entry((node, boot)).or_default();
            changes.push(assignment);
        }
        for ((_, boot), changes) in &pushes {
            sum += count(|| drop(node_heartbeat::push(changes, *boot, CELL)));
        }
        (runs, sum)
    }

    pub fn records(&self) -> Vec<Record> {
        self.bus.records()
    }

    /// All frames: whose, how long, and what is in them.
    pub fn frames(&self) -> Vec<(Writer, usize, Vec<Event>)> {
        let mut chain = Chain::default();
        let records = self.bus.records();
        let read = records.iter().map(|record| {
            let frame = chain.accept(record, Kinds::ALL).expect("the chain holds");
            let frame = frame.expect("every record is new to this chain");
            let events = frame.placed().map(|(_, event)| event.clone()).collect();
            (record.writer, record.frame.len(), events)
        });
        read.collect()
    }
}

impl Fold {
    fn of<P: Projection>(bus: &MemoryBus, time: &SimTime) -> Self {
        let sink = Discard::<P::Change> {
            through: Lsn(0),
            changes: PhantomData,
        };
        let projector: Projector<P, _, _, _> =
            Projector::new(bus.clone(), time.clone(), sink, Box::new(NoObserver))
                .snapshot_every(SNAPSHOT_EVERY);
        let work = async move {
            match projector.run().await {
                Ok(never) => match never {},
                Err(error) => error,
            }
        };
        Self {
            name: P::NAME,
            work: Box::pin(work),
        }
    }
}

/// Where changes go that nobody keeps: only how far they came.
struct Discard<C> {
    through: Lsn,
    changes: PhantomData<C>,
}

impl<C: Send + Sync + 'static> Sink for Discard<C> {
    type Change = C;

    async fn resume(&mut self, _ledger: LedgerId) -> Result<Resume, SinkError> {
        Ok(Resume {
            through: self.through,
            digest: None,
            begun: None,
        })
    }

    fn apply(&mut self, batch: &Batch<C>) -> impl Future<Output = Result<(), SinkError>> + Send {
        self.through = batch.to;
        ready(Ok(()))
    }
}

/// What `work` allocates on this thread.
pub fn count(work: impl FnOnce()) -> Count {
    let AllocationInfo {
        count_total,
        bytes_total,
        ..
    } = allocation_counter::measure(work);
    Count {
        times: count_total,
        bytes: bytes_total,
    }
}

/// The bytes of what `make` comes to.
pub fn count_held<T>(make: impl FnOnce() -> T) -> i64 {
    let mut made = None;
    let found = allocation_counter::measure(|| made = Some(make()));
    drop(made);
    found.bytes_current
}
