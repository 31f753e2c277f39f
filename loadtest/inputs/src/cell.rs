//! A cell without a bus: the four deciders on one ledger in memory, which begins as the recorded one in `schemas/golden`.

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
/// Parts of an input that are looked at.
const PARTS_MAX: usize = 24;
/// Rounds until the deciders come to rest, unless something is due at once for ever.
const ROUNDS_MAX: usize = 64;
/// A sender whose messages no tenant or node of the recorded ledger has sent.
const STRANGER: &str = "stranger";

/// A decider that leads.
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

/// Where a cell begins: the ledger, and each decider's state at its own last frame.
struct Beginning {
    records: Vec<Record>,
    states: [Snapshot; 4],
    tenants: Vec<Token>,
    nodes: Vec<Token>,
    /// The numbers of the writers' next events.
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
            let frame = chain.accept(record, Kinds::ALL).expect("it holds together");
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
        replica.receive(record).expect("it was recorded");
        if record.writer == D::WRITER {
            last = replica.snapshot();
        }
    }
    last
}

/// A tenant of the recorded ledger, the operator, or a stranger.
pub fn asker(choice: u8) -> Token {
    named(&beginning().tenants, choice, OPERATOR)
}

/// A node of the recorded ledger, or a stranger.
pub fn node(choice: u8) -> Token {
    named(&beginning().nodes, choice, STRANGER)
}

fn named(known: &[Token], choice: u8, other: &str) -> Token {
    let others = [other, STRANGER].map(|name| Token::new(name).expect("a token"));
    let all: Vec<&Token> = known.iter().chain(&others).collect();
    all[usize::from(choice) % all.len()].clone()
}

/// A message as an inbox has it.
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

/// Checks that a refusal has a rule and a sentence, and comes out of its message as it was put in.
pub fn refused(refusal: &Refusal) {
    assert_eq!(Rule::from_number(refusal.rule.number()), Some(refusal.rule));
    assert!(!refusal.explanation().is_empty() && !refusal.to_string().is_empty());
    let written = refusal.encode_to_vec();
    assert_eq!(Refusal::decode(&written).as_ref(), Ok(refusal));
}

impl<D: Decider> Role<D> {
    fn new(state: &Snapshot, config: D::Config) -> Self {
        let replica = Replica::restore(state).expect("it was just taken");
        Self { replica, config }
    }

    /// Decides the commands, and all that is due, and appends a frame if there is anything to record; the events of it.
    fn lead(
        &mut self,
        commands: Vec<D::Command>,
        now: Millis,
        records: &mut Vec<Record>,
    ) -> Vec<Event> {
        self.read(records);
        let replica = &mut self.replica;
        replica
            .fold_all()
            .expect("what deciders write can be observed");
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
        let handled: Handled = handled.expect("it goes forwards");
        let sealed = replica.seal(draft, &[7; 16], head.epoch.max(1), handled, u64::MAX);
        let Some(sealed) = sealed.expect("its own state takes what it decides") else {
            return events;
        };
        let lsn = Lsn(records.len() as u64 + 1);
        assert!(
            sealed.writing().is_what_is_read(),
            "a frame is read as it was written"
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
                .expect("what deciders write is read");
        }
    }

    fn takes(&mut self, at: &At, event: &Event) -> bool {
        self.read(&beginning().records);
        self.replica.fold_all().expect("it was recorded");
        let state = self.replica.state_mut();
        let taken = match event.kind().writer() == D::WRITER {
            true => state.evolve_event(at, event),
            false => state.observe_event(at, event),
        };
        taken.is_ok()
    }

    /// A state that is folded from the ledger is the leader's.
    fn is_what_a_fold_gives(&mut self, state: &Snapshot, records: &[Record]) {
        let mut fold = Role::<D>::new(state, self.config.clone());
        for role in [&mut fold, self] {
            role.read(records);
            role.replica
                .fold_all()
                .expect("what deciders write can be observed");
        }
        let digest = |role: &Self| state_digest(role.replica.state());
        assert!(
            digest(&fold) == digest(self),
            "{}: a fold gives another state",
            D::WRITER.name()
        );
    }
}

/// Refusals in events have rules, too.
fn check_event(event: &Event) {
    match event {
        Event::OperationRefused(fact) => refused(&fact.refusal),
        Event::QuotaDenied(fact) => refused(&fact.refusal),
        Event::QuotaWaiting(fact) => refused(&fact.refusal),
        _ => {}
    }
}

impl Cell {
    /// As the recorded ledger ends.
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

    /// Admission decides. The events that it records.
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

    /// Node-heartbeat decides.
    pub fn report(&mut self, commands: Vec<Command>) {
        self.nodes.lead(commands, self.now, &mut self.records);
        for effect in self.nodes.replica.state_mut().take_effects() {
            self.perform(effect);
        }
    }

    /// What an agent is sent can be read by it.
    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Assign {
                boot, assignment, ..
            } => {
                let bytes = node_heartbeat::push(&[assignment], boot, CELL).expect("a change");
                let told = v1::Assignment::decode(&*bytes).expect("an agent reads it");
                assert_eq!(told.encode_to_vec(), bytes);
            }
            Effect::Synced {
                boot,
                revision,
                assignments,
                ..
            } => {
                let bytes = node_heartbeat::assignments(revision, &assignments, boot, CELL);
                let told = v1::AssignmentList::decode(&*bytes).expect("an agent reads it");
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

    /// Until nobody has anything to record now.
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

    /// Judges a request as `try_place` does, which leaves the state as it was.
    pub fn try_place(
        &mut self,
        tenant: &Token,
        spec: &AllocationSpec,
        except_models: &[Token],
    ) -> Result<(), Refusal> {
        let state = self.scheduler.replica.state();
        let before = state_digest(state);
        let trial = state.try_request(tenant, spec, except_models, self.now);
        assert!(
            state_digest(state) == before,
            "a trial has changed the state"
        );
        trial.map(drop)
    }

    /// The same of `try_quota`.
    pub fn try_quota(&mut self, tenant: &Token, spec: &AllocationSpec) -> Result<(), Refusal> {
        let now = self.now;
        let state = self.quota.replica.state_mut();
        let before = state_digest(state);
        let trial = state.try_request(tenant, spec, now);
        assert!(
            state_digest(state) == before,
            "a trial has changed the state"
        );
        trial.map(drop)
    }

    /// The read models take what was written, and each state is what a fold of the ledger gives.
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

    /// Events that the cell has recorded, behind those of the recorded ledger.
    pub fn events(&self) -> usize {
        let mut chain = Chain::default();
        let frames = self.records.iter().map(|record| {
            let frame = chain.accept(record, Kinds::of(&[]));
            frame
                .expect("it was read before")
                .map_or(0, |frame| frame.count as usize)
        });
        frames.skip(beginning().records.len()).sum()
    }
}

/// An event that follows on the recorded ledger, whoever wrote it: each decider and each read model takes it, or says why it
/// does not fit its state. True if all take it.
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

/// A projection of the ledger, from the state that it has at the recorded ledger's end.
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
    let mut state: P = snapshot.state(P::STATE_VERSION).expect("it was just taken");
    let mut chain = snapshot.chain.clone();
    project(&mut state, &mut chain, &records[recorded..]);
}

fn project<P: Projection>(state: &mut P, chain: &mut Chain, records: &[Record]) {
    let mut changes = Vec::new();
    for record in records {
        let frame = chain.accept(record, P::Input::KINDS);
        if let Some(frame) = frame.expect("what deciders write is read") {
            let taken = state.take(&frame, &mut changes);
            taken.expect("what deciders write is projected");
        }
    }
    state.end_batch(&mut changes);
}

/// Messages at both inboxes, heartbeats, questions of agents and time that passes, one part each. True if anything was recorded.
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
                // Up to some months at a time.
                cell.now = cell.now.plus(i64::from(u32::from_le_bytes(ms)));
            }
        }
        cell.settle();
    }
    let recorded = cell.events() > 0;
    cell.check();
    recorded
}
