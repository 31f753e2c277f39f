//! One process of the cell: a leader or the feed's projector, as a future that the world polls or drops.

use super::{clock::SimTime, feed::MemoryFeed, trials::Trials};
use admission::{feed::Feed, publish::FeedSink};
use admission_rules::{Admission, Config as AdmissionConfig, Turned};
use ledger::{
    Decider, Inbox, InboxLimits, InboxMessage,
    memory::{MemoryBus, Seeded},
};
use ledger_nats::{
    Decode, Leader, LeaderError, LeaderOptions, NoObserver, Observer, Projector, ProjectorError,
    Question,
};
use node_heartbeat_rules::{Command, Config as NodeConfig, Effect, Nodes};
use quota_rules::Quota;
use scheduler_rules::{Config as SchedulerConfig, Scheduler};
use std::{
    any::Any,
    cell::{Cell, RefCell},
    collections::BTreeMap,
    fmt,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc, Mutex, Once, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};
use tokio::sync::{mpsc, watch};
use vocab::CellNo;

/// What a process is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Admission,
    Quota,
    Scheduler,
    Nodes,
    Feed,
}

impl Role {
    pub const ALL: [Self; 5] = [
        Self::Admission,
        Self::Quota,
        Self::Scheduler,
        Self::Nodes,
        Self::Feed,
    ];
}

/// In which order each process has read the messages of its inbox: two senders' order is its own affair, and stands nowhere else.
/// One that was put back is read again.
pub type Orders = Arc<Mutex<BTreeMap<u64, Vec<u64>>>>;

/// What all processes of a world have in common.
#[derive(Clone)]
pub struct Shared {
    pub bus: MemoryBus,
    pub feed: MemoryFeed,
    pub cell: CellNo,
    pub admission: AdmissionConfig,
    pub scheduler: SchedulerConfig,
    pub nodes: NodeConfig,
    pub takeover_after_ms: u64,
    pub backlog: InboxLimits,
    pub says_after: u64,
    pub orders: Orders,
    /// Whether quota and the scheduler are asked for trials beside their work.
    pub trials: bool,
    /// The world's step.
    pub step: Arc<AtomicU64>,
}

/// Why a process is no more, though nobody has killed it.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    #[error("gave up: {0}")]
    Leader(#[from] LeaderError),
    #[error("gave up: {0}")]
    Projector(#[from] ProjectorError),
    #[error("panicked: {0}")]
    Panicked(String),
}

type Work = Pin<Box<dyn Future<Output = Result<(), Ended>>>>;

pub struct Process {
    pub id: u64,
    pub role: Role,
    pub time: SimTime,
    /// The step at which it has last made a frame.
    pub drafted: Arc<AtomicU64>,
    pub commands: Option<mpsc::Sender<Command>>,
    resign: watch::Sender<bool>,
    effects: Option<mpsc::UnboundedReceiver<Effect>>,
    turned: Option<mpsc::UnboundedReceiver<Turned>>,
    /// What it is asked beside its work.
    trials: Option<Trials>,
    work: Work,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}#{}", self.role, self.id)
    }
}

/// Heartbeats that may wait for a leader that is never polled.
const COMMANDS_MAX: usize = 4096;

struct Watch {
    step: Arc<AtomicU64>,
    drafted: Arc<AtomicU64>,
}

impl Observer for Watch {
    fn appending(&mut self, _bytes: usize) {
        let step = self.step.load(Ordering::Relaxed);
        self.drafted.store(step, Ordering::Relaxed);
    }
}

/// The parts of a process that differ from role to role.
struct Parts<D: Decider> {
    config: D::Config,
    inbox: Option<(Inbox, Decode<D::Command>)>,
    local: Option<mpsc::Receiver<D::Command>>,
    questions: Option<mpsc::Receiver<Question<D>>>,
    effects: Option<mpsc::UnboundedSender<D::Effect>>,
}

impl Process {
    pub fn start(id: u64, role: Role, shared: &Shared, time: SimTime, snapshot_every: u64) -> Self {
        let drafted = Arc::new(AtomicU64::new(0));
        // Its own die: what else happens does not hang on the questions.
        let random = Seeded::new(id);
        let mut process = Self {
            id,
            role,
            time,
            drafted,
            commands: None,
            resign: watch::Sender::new(false),
            effects: None,
            turned: None,
            trials: None,
            work: Box::pin(std::future::pending()),
        };
        process.work = match role {
            Role::Admission => {
                let (turned_in, turned) = mpsc::unbounded_channel();
                process.turned = Some(turned);
                process.lead::<Admission>(
                    shared,
                    snapshot_every,
                    Parts {
                        config: shared.admission,
                        inbox: Some((Inbox::Ingress, noted(shared, id, admission::commands))),
                        local: None,
                        questions: None,
                        effects: Some(turned_in),
                    },
                )
            }
            Role::Quota => {
                let (trials, questions) = Trials::of_quota(random);
                process.trials = shared.trials.then_some(trials);
                let parts = on_ledger(quota::Config::default(), questions);
                process.lead::<Quota>(shared, snapshot_every, parts)
            }
            Role::Scheduler => {
                let (trials, questions) = Trials::of_scheduler(random);
                process.trials = shared.trials.then_some(trials);
                let parts = on_ledger(shared.scheduler.clone(), questions);
                process.lead::<Scheduler>(shared, snapshot_every, parts)
            }
            Role::Nodes => {
                let (commands, local) = mpsc::channel(COMMANDS_MAX);
                let (effects_in, effects) = mpsc::unbounded_channel();
                process.commands = Some(commands);
                process.effects = Some(effects);
                let cell = shared.cell;
                process.lead::<Nodes>(
                    shared,
                    snapshot_every,
                    Parts {
                        config: shared.nodes,
                        inbox: Some((
                            Inbox::Report,
                            noted(shared, id, move |message, commands| {
                                node_heartbeat::report(message, cell, commands);
                            }),
                        )),
                        local: Some(local),
                        questions: None,
                        effects: Some(effects_in),
                    },
                )
            }
            Role::Feed => {
                let sink = FeedSink::new(shared.feed.clone(), shared.cell);
                let time = process.time.clone();
                let projector: Projector<Feed, _, _, _> =
                    Projector::new(shared.bus.clone(), time, sink, Box::new(NoObserver))
                        .snapshot_every(snapshot_every);
                Box::pin(async move { match projector.run().await? {} })
            }
        };
        process
    }

    fn lead<D: Decider>(&self, shared: &Shared, snapshot_every: u64, parts: Parts<D>) -> Work {
        let mut leader = [0; 16];
        leader[..8].copy_from_slice(&self.id.to_le_bytes());
        let options = LeaderOptions {
            config: parts.config,
            leader,
            inbox: parts.inbox,
            local: parts.local,
            questions: parts.questions,
            effects: parts.effects,
            snapshot_every,
            backlog: shared.backlog,
            says_after: shared.says_after,
            takeover_after_ms: shared.takeover_after_ms,
            resign: self.resign.subscribe(),
        };
        let watch = Watch {
            step: shared.step.clone(),
            drafted: self.drafted.clone(),
        };
        let (bus, time) = (shared.bus.clone(), self.time.clone());
        Box::pin(async move {
            let leader: Leader<D, _, _> = Leader::new(bus, time, options, Box::new(watch)).await;
            Ok(leader.run().await?)
        })
    }

    /// Asks it to end in good order: a leader hands over.
    pub fn resign(&self) {
        self.resign.send_replace(true);
    }

    /// One step, up to the next point at which it waits; whether it has ended as it was asked to.
    pub fn poll(&mut self) -> Result<bool, Ended> {
        let mut context = Context::from_waker(Waker::noop());
        let (work, trials) = (&mut self.work, &mut self.trials);
        let polled = quietly(|| {
            trials
                .iter_mut()
                .for_each(|trials| trials.ask(&mut context));
            work.as_mut().poll(&mut context)
        });
        match polled {
            Ok(Poll::Pending) => Ok(false),
            Ok(Poll::Ready(Err(ended))) => Err(ended),
            Ok(Poll::Ready(Ok(()))) => Ok(true),
            Err(text) => Err(Ended::Panicked(text)),
        }
    }

    /// What it has sent to the agents since.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        drained(self.effects.as_mut())
    }

    /// Whom it has refused since without a record.
    pub fn take_turned(&mut self) -> Vec<Turned> {
        drained(self.turned.as_mut())
    }
}

fn drained<T>(channel: Option<&mut mpsc::UnboundedReceiver<T>>) -> Vec<T> {
    let mut taken = Vec::new();
    if let Some(channel) = channel {
        while let Ok(one) = channel.try_recv() {
            taken.push(one);
        }
    }
    taken
}

/// Reads messages, and keeps in which order.
fn noted<C>(
    shared: &Shared,
    id: u64,
    decode: impl Fn(&InboxMessage, &mut Vec<C>) + Send + Sync + 'static,
) -> Decode<C> {
    let orders = shared.orders.clone();
    Arc::new(move |message, commands| {
        let mut orders = orders.lock().unwrap_or_else(PoisonError::into_inner);
        orders.entry(id).or_default().push(message.seq);
        drop(orders);
        decode(message, commands);
    })
}

fn on_ledger<D: Decider>(config: D::Config, questions: mpsc::Receiver<Question<D>>) -> Parts<D> {
    Parts {
        config,
        inbox: None,
        local: None,
        questions: Some(questions),
        effects: None,
    }
}

thread_local! {
    /// Whether a panic on this thread is to be kept instead of printed, and where it was.
    static QUIET: Cell<bool> = const { Cell::new(false) };
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

static HOOK: Once = Once::new();

/// Runs `work`; a panic comes back as text, with its place.
pub fn quietly<R>(work: impl FnOnce() -> R) -> Result<R, String> {
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if QUIET.get() {
                let place = info.location().map(ToString::to_string).unwrap_or_default();
                PLACE.set(place);
            } else {
                before(info);
            }
        }));
    });
    let around = QUIET.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    QUIET.set(around);
    outcome.map_err(|panic| format!("{} at {}", panic_text(panic.as_ref()), PLACE.take()))
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let literal = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    literal
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without words".to_owned())
}
