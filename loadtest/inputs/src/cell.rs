//! Cell without a bus: the four deciders on one in-memory ledger, which starts as the recorded ledger in `schemas/golden`.

use crate::parts::Parts;
use admission_rules::Admission;
use bytes::Bytes;
use ledger::{
    Chain, Decider, Handled, InboxMessage, Projection, Record, Replica, Snapshot, state_digest,
};
use ledger_nats::copy::Segment;
use node_heartbeat_rules::{Command, Effect, Joining, Nodes};
use prost::Message;
use quota_rules::Quota;
use scheduler_rules::Scheduler;
use schemas::v1;
use std::sync::OnceLock;
use vocab::{
    AllocationSpec, At, CellNo, Event, EventNo, Kinds, Level, Lsn, Millis, Refusal, Rule, Token,
    Writer, fact::Inputs, subjects::OPERATOR,
};
use wire::Message as _;

const LEDGER: &[u8] = include_bytes!("../../../schemas/golden/ledger/00000000000000000001.ledger");
pub const CELL: CellNo = CellNo(1);
/// Maximum number of parts of an input that are run; the rest is ignored.
const PARTS_MAX: usize = 24;
/// Maximum rounds until the deciders settle; stops a cell in which something is always due at once.
const ROUNDS_MAX: usize = 64;
/// Sender that is neither a tenant nor a node of the recorded ledger.
const STRANGER: &str = "stranger";

/// Decider in the role of the leader.
struct Role<D: Decider> {
    replica: Replica<D>,
    config: D::Config,
}

/// The deciders and their ledger.
pub struct Cell {
    records: Vec<Record>,
    admission: Role<Admission>,
    quota: Role<Quota>,
    scheduler: Role<Scheduler>,
    nodes: Role<Nodes>,
    pub now: Millis,
}

/// Initial data of a cell: the recorded ledger, and each decider's state at its own last frame.
struct Beginning {
    records: Vec<Record>,
    states: [Snapshot; 4],
    tenants: Vec<Token>,
    nodes: Vec<Token>,
    /// Number of the next event of each writer.
    next: [EventNo; 4],
    now: Millis,
}

fn beginning() -> &'static Beginning {
    static BEGINNING: OnceLock<Beginning> = OnceLock::new();
    BEGINNING.get_or_init(|| {
        let segment = Segment::parse(LEDGER, true).expect("the recorded ledger is whole");
        let (mut tenants, mut nodes) = (Vec::new(), Vec::new());
        let mut chain = Chain::default();
        for record in &segment.records {
            let frame = chain
                .accept(record, Kinds::ALL)
                .expect("the recorded frames form a chain");
            for (_, event) in frame.iter().flat_map(|frame| frame.placed()) {
                match event {
                    Event::TenantSet(set) => tenants.push(set.change.tenant.clone()),
                    Event::NodeRegistered(fact) => nodes.push(fact.node.clone()),
                    _ => {}
                }
            }
        }
        for names in [&mut tenants, &mut nodes] {
            names.sort();
            names.dedup();
        }
        Beginning {
            states: [
                folded::<Admission>(&segment.records),
                folded::<Quota>(&segment.records),
                folded::<Scheduler>(&segment.records),
                folded::<Nodes>(&segment.records),
            ],
            records: segment.records,
            tenants,
            nodes,
            next: Writer::ALL.map(|writer| chain.head(writer).next_event),
            now: chain.newest(),
        }
    })
}

fn folded<D: Decider>(records: &[Record]) -> Snapshot {
    let mut replica = Replica::<D>::default();
    let mut last = replica.snapshot();
    for record in records {
        replica
            .receive(record)
            .expect("the recorded ledger is readable");
        if record.writer == D::WRITER {
            last = replica.snapshot();
        }
    }
    last
}

/// Returns a tenant of the recorded ledger, the operator, or an unknown sender.
pub fn asker(choice: u8) -> Token {
    named(&beginning().tenants, choice, OPERATOR)
}

/// Returns a node of the recorded ledger, or an unknown sender.
pub fn node(choice: u8) -> Token {
    named(&beginning().nodes, choice, STRANGER)
}

fn named(known: &[Token], choice: u8, other: &str) -> Token {
    let others = [other, STRANGER].map(|name| Token::new(name).expect("a token"));
    let all: Vec<&Token> = known.iter().chain(&others).collect();
    all[usize::from(choice) % all.len()].clone()
}

/// Creates a message as an inbox delivers it.
pub fn inbox_message(sender: Token, payload: &[u8]) -> InboxMessage {
    InboxMessage {
        seq: 1,
        sender,
        by: None,
        reply_to: Token::new("reply").ok(),
        trace: None,
        reserved_header: false,
        payload: Bytes::copy_from_slice(payload),
    }
}

/// Asserts that a refusal has a rule and an explanation, and is unchanged after encoding and decoding.
pub fn refused(refusal: &Refusal) {
    assert_eq!(Rule::from_number(refusal.rule.number()), Some(refusal.rule));
    assert!(!refusal.explanation().is_empty() && !refusal.to_string().is_empty());
    let written = refusal.encode_to_vec();
    assert_eq!(Refusal::decode(&written).as_ref(), Ok(refusal));
}

impl<D: Decider> Role<D> {
    fn new(state: &Snapshot, config: D::Config) -> Self {
        let replica = Replica::restore(state).expect("a new snapshot can be restored");
        Self { replica, config }
    }

    /// Decides the commands and everything that is due, appends a frame if there is anything to record, and returns its events.
    fn lead(
        &mut self,
        commands: Vec<D::Command>,
        now: Millis,
        records: &mut Vec<Record>,
    ) -> Vec<Event> {
        self.read(records);
        let replica = &mut self.replica;
        replica.fold_all().expect("written events can be folded");
        let mut draft = replica.draft(now, Level::KNOWN);
        let handled = commands.len() as u64;
        for command in commands {
            replica
                .state_mut()
                .handle(command, &self.config, &mut draft);
        }
        replica.state_mut().decide(&self.config, &mut draft);
        let events: Vec<Event> = draft.events().cloned().collect();
        events.iter().for_each(check_event);
        let head = replica.head();
        let handled = head
            .handled
            .moved(head.handled.through + handled, [].into_iter());
        let handled: Handled = handled.expect("the inbox position never goes backwards");
        let sealed = replica.seal(draft, &[7; 16], head.epoch.max(1), handled, u64::MAX);
        let Some(sealed) = sealed.expect("the state accepts its own decisions") else {
            return events;
        };
        let lsn = Lsn(records.len() as u64 + 1);
        assert!(
            sealed.writing().is_what_is_read(),
            "the bytes of a frame decode to another content"
        );
        replica.committed(&sealed, lsn);
        records.push(Record::new(lsn, D::WRITER, sealed.bytes().clone()));
        events
    }

    fn read(&mut self, records: &[Record]) {
        let from = self.replica.next().0 as usize - 1;
        for record in &records[from..] {
            self.replica
                .receive(record)
                .expect("written frames are readable");
        }
    }

    fn takes(&mut self, at: &At, event: &Event) -> bool {
        self.read(&beginning().records);
        self.replica
            .fold_all()
            .expect("the recorded ledger can be folded");
        let state = self.replica.state_mut();
        let taken = match event.kind().writer() == D::WRITER {
            true => state.evolve_event(at, event),
            false => state.observe_event(at, event),
        };
        taken.is_ok()
    }

    /// Asserts that a state folded from the ledger equals the leader's state.
    fn is_what_a_fold_gives(&mut self, state: &Snapshot, records: &[Record]) {
        let mut fold = Role::<D>::new(state, self.config.clone());
        for role in [&mut fold, self] {
            role.read(records);
            role.replica
                .fold_all()
                .expect("written events can be folded");
        }
        let digest = |role: &Self| state_digest(role.replica.state());
        assert!(
            digest(&fold) == digest(self),
            "{}: the folded state differs from the leader's",
            D::WRITER.name()
        );
    }
}

/// Checks the refusal in an event, if there is one.
fn check_event(event: &Event) {
    match event {
        Event::OperationRefused(fact) => refused(&fact.refusal),
        Event::QuotaDenied(fact) => refused(&fact.refusal),
        Event::QuotaWaiting(fact) => refused(&fact.refusal),
        _ => {}
    }
}

impl Cell {
    /// Creates a cell at the end of the recorded ledger.
    pub fn begin() -> Self {
        let Beginning {
            records,
            states,
            now,
            ..
        } = beginning();
        let nodes = node_heartbeat_rules::Config {
            joining: Joining::Open,
            ..node_heartbeat_rules::Config::default()
        };
        let [admission, quota, scheduler, heartbeat] = states;
        Self {
            records: records.clone(),
            admission: Role::new(admission, admission_rules::Config::default()),
            quota: Role::new(quota, quota_rules::Config::default()),
            scheduler: Role::new(scheduler, scheduler_rules::Config::default()),
            nodes: Role::new(heartbeat, nodes),
            now: *now,
        }
    }

    /// Passes commands to admission; returns the events that it records.
    pub fn ask(&mut self, commands: Vec<admission_rules::Command>) -> Vec<Event> {
        for command in &commands {
            if let Err(refusal) = &command.verb {
                refused(refusal);
            }
        }
        let events = self.admission.lead(commands, self.now, &mut self.records);
        for turned in self.admission.replica.state_mut().take_effects() {
            if let Err(refusal) = turned.answer {
                refused(&refusal);
            }
        }
        events
    }

    /// Passes commands to node-heartbeat and checks its effects.
    pub fn report(&mut self, commands: Vec<Command>) {
        self.nodes.lead(commands, self.now, &mut self.records);
        for effect in self.nodes.replica.state_mut().take_effects() {
            self.perform(effect);
        }
    }

    /// Asserts that an agent can decode the messages sent to it, and checks refusals.
    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Assign {
                boot, assignment, ..
            } => {
                let bytes = node_heartbeat::push(&[assignment], boot, CELL).expect("a change");
                let told = v1::Assignment::decode(&*bytes).expect("an agent can decode it");
                assert_eq!(told.encode_to_vec(), bytes);
            }
            Effect::Synced {
                boot,
                revision,
                assignments,
                ..
            } => {
                let bytes = node_heartbeat::assignments(revision, &assignments, boot, CELL);
                let told = v1::AssignmentList::decode(&*bytes).expect("an agent can decode it");
                assert_eq!(told.encode_to_vec(), bytes);
            }
            Effect::RegistrationRefused { refusal, .. } | Effect::JoinRefused { refusal, .. } => {
                refused(&refusal);
            }
            Effect::Renewed { .. }
            | Effect::RegisterAgain { .. }
            | Effect::MassLoss(_)
            | Effect::Joined(_) => {}
        }
    }

    /// Runs the deciders until none of them has anything to record, for at most `ROUNDS_MAX` rounds.
    pub fn settle(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let before = self.records.len();
            self.ask(Vec::new());
            self.quota.lead(Vec::new(), self.now, &mut self.records);
            self.scheduler.lead(Vec::new(), self.now, &mut self.records);
            self.report(Vec::new());
            if self.records.len() == before {
                return;
            }
        }
    }

    /// Judges a request like the query `try_place`, and asserts that the state is unchanged.
    pub fn try_place(
        &mut self,
        tenant: &Token,
        spec: &AllocationSpec,
        except_models: &[Token],
    ) -> Result<(), Refusal> {
        let state = self.scheduler.replica.state();
        let before = state_digest(state);
        let trial = state.try_request(tenant, spec, except_models, self.now);
        assert!(state_digest(state) == before, "a trial changed the state");
        trial.map(drop)
    }

    /// Judges a request like the query `try_quota`, and asserts that the state is unchanged.
    pub fn try_quota(&mut self, tenant: &Token, spec: &AllocationSpec) -> Result<(), Refusal> {
        let now = self.now;
        let state = self.quota.replica.state_mut();
        let before = state_digest(state);
        let trial = state.try_request(tenant, spec, now);
        assert!(state_digest(state) == before, "a trial changed the state");
        trial.map(drop)
    }

    /// Asserts that each decider's state equals a fold of the ledger, and that the read models accept all records.
    pub fn check(mut self) {
        let [admission, quota, scheduler, nodes] = &beginning().states;
        self.admission
            .is_what_a_fold_gives(admission, &self.records);
        self.quota.is_what_a_fold_gives(quota, &self.records);
        self.scheduler
            .is_what_a_fold_gives(scheduler, &self.records);
        self.nodes.is_what_a_fold_gives(nodes, &self.records);
        projected::<admission::feed::Feed>(&self.records);
        projected::<admission::project::WarmProjection>(&self.records);
        projected::<quota::project::WarmProjection>(&self.records);
        projected::<scheduler::project::WarmProjection>(&self.records);
        projected::<node_heartbeat::project::WarmProjection>(&self.records);
        projected::<analytics::domain::Usage>(&self.records);
    }

    /// Returns the number of events that the cell has appended to the recorded ledger.
    pub fn events(&self) -> usize {
        let mut chain = Chain::default();
        let frames = self.records.iter().map(|record| {
            let frame = chain.accept(record, Kinds::of(&[]));
            frame
                .expect("the records were accepted before")
                .map_or(0, |frame| frame.count as usize)
        });
        frames.skip(beginning().records.len()).sum()
    }
}

/// Applies one event of any writer to each decider, as the next event after the recorded ledger. A decider accepts the event or
/// returns why it does not fit its state. True if all deciders accept it.
pub fn fold(input: &[u8]) -> bool {
    let Ok(event) = Event::decode(input) else {
        return false;
    };
    let beginning = beginning();
    let at = At {
        lsn: Lsn(beginning.records.len() as u64 + 1),
        index: 0,
        no: beginning.next[event.kind().writer() as usize],
        now: beginning.now,
    };
    let Cell {
        mut admission,
        mut quota,
        mut scheduler,
        mut nodes,
        ..
    } = Cell::begin();
    let taken = [
        admission.takes(&at, &event),
        quota.takes(&at, &event),
        scheduler.takes(&at, &event),
        nodes.takes(&at, &event),
    ];
    taken == [true; 4]
}

/// Projects the ledger, starting from the cached state at the end of the recorded ledger.
fn projected<P: Projection>(records: &[Record]) {
    thread_local! {
        static STATES: std::cell::RefCell<std::collections::BTreeMap<&'static str, Snapshot>> = const {
            std::cell::RefCell::new(std::collections::BTreeMap::new())
        };
    }
    let recorded = beginning().records.len();
    let name = std::any::type_name::<P>();
    let snapshot = STATES.with_borrow_mut(|states| {
        let fold = || {
            let (mut state, mut chain) = (P::default(), Chain::default());
            project(&mut state, &mut chain, &records[..recorded]);
            Snapshot::of(P::STATE_VERSION, chain, &state)
        };
        states.entry(name).or_insert_with(fold).clone()
    });
    let mut state: P = snapshot
        .state(P::STATE_VERSION)
        .expect("a new snapshot can be read");
    let mut chain = snapshot.chain.clone();
    project(&mut state, &mut chain, &records[recorded..]);
}

fn project<P: Projection>(state: &mut P, chain: &mut Chain, records: &[Record]) {
    let mut changes = Vec::new();
    for record in records {
        let frame = chain.accept(record, P::Input::KINDS);
        if let Some(frame) = frame.expect("written frames are readable") {
            let taken = state.take(&frame, &mut changes);
            taken.expect("read models accept written frames");
        }
    }
    state.end_batch(&mut changes);
}

/// Runs a cell on requests, node reports, heartbeats, joins, sync requests and clock steps, one per part. True if any event was
/// recorded.
pub fn lives(input: &[u8]) -> bool {
    let mut cell = Cell::begin();
    for (tag, part) in Parts::of(input).take(PARTS_MAX) {
        let (kind, who) = (tag & 7, tag >> 3);
        match kind {
            0..=2 => drop(cell.ask(crate::inboxes::asked(asker(who), part))),
            3 => cell.report(crate::inboxes::reported(node(who), part)),
            4 => {
                let beat = node_heartbeat::heartbeat(node(who), part, Some(1));
                cell.report(beat.into_iter().collect());
            }
            5 => match node_heartbeat::join(part, 1) {
                Ok(command) => cell.report(vec![command]),
                Err(refusal) => refused(&refusal),
            },
            6 => {
                let (node, request) = (node(who), 1);
                cell.report(vec![Command::Sync { node, request }]);
            }
            _ => {
                let mut ms = [0; 4];
                let given = part.len().min(ms.len());
                ms[..given].copy_from_slice(&part[..given]);
                // At most 49 days per part.
                cell.now = cell.now.plus(i64::from(u32::from_le_bytes(ms)));
            }
        }
        cell.settle();
    }
    let recorded = cell.events() > 0;
    cell.check();
    recorded
}
