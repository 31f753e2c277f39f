//! What a deciding service's domain offers, and the draft that it decides into.

use crate::{content::Events, figures::Figures, frame::Encoded};
use serde::{Serialize, de::DeserializeOwned};
use std::fmt;
use vocab::fact::{Inputs, Writes, Written};
use vocab::{
    At, Event, EventKind, EventNo, Kinds, Level, Lsn, Millis, Writer,
    sabotage::{self, Bug},
};
use wire::Columns;

/// A fact that does not fit the state it is applied to: the ledger or the code is wrong, and going on would make it worse.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{state}: illegal event {event}")]
pub struct IllegalEvent {
    /// What the state knew, in a few words.
    pub state: &'static str,
    pub event: String,
}

impl IllegalEvent {
    pub fn new(state: &'static str, event: &impl fmt::Debug) -> Self {
        Self {
            state,
            event: format!("{event:?}"),
        }
    }
}

/// A fact that is newer than the cell's feature level: somebody may read the ledger who does not know it. Whoever decides such
/// a fact asks [`Draft::allows`] first, so this is an error of the program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{fact} is written from feature level {since} on, and the cell is at {level}")]
pub struct AboveLevel {
    pub fact: &'static str,
    pub since: Level,
    pub level: Level,
}

/// Why a draft is not written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Poison {
    #[error(transparent)]
    Illegal(#[from] IllegalEvent),
    #[error(transparent)]
    AboveLevel(#[from] AboveLevel),
}

/// A pure state machine. Its state is a function of the ledger alone: the other writers' facts that it has observed, and
/// its own. Nothing else may change what is serialised.
pub trait Decider: Default + Serialize + DeserializeOwned + Send + 'static {
    /// What comes in by its inbox or from its shell; `Infallible` where there is neither.
    type Command: Send + 'static;
    /// Settings that decisions depend on. `observe` and `evolve` never see them, so a changed setting cannot change history.
    type Config: Clone + Send + Sync + 'static;

    /// What the shell is to do outside of the ledger, as data. Best effort: lost with the process, never replayed.
    type Effect: Send + 'static;

    /// Who it is on the ledger.
    type By: Writes;
    /// The other writers' facts that it reads; the others are not even decoded. Its own are read in any case.
    type Input<'a>: Inputs<'a>;

    const WRITER: Writer = Self::By::WRITER;
    /// Counts the shapes of the serialised state, and what the facts make of it.
    const STATE_VERSION: u32;

    /// The writers that have to read what it records before it records more for who waits at its inbox than `InboxLimits`
    /// say.
    const READERS: &'static [Writer] = &[];

    /// Makes a state of one that was serialised in an older shape, by a function for each step from one version to the next.
    /// None: that shape is not known any more, and what a snapshot of it would have saved is folded from the ledger.
    fn upgrade(_version: u32, _state: &[u8]) -> Option<Self> {
        None
    }

    /// Takes in another writer's fact: notes what is now to be decided, decides nothing.
    fn observe(&mut self, at: &At, input: Self::Input<'_>) -> Result<(), IllegalEvent>;

    /// Applies an own fact.
    fn evolve(&mut self, at: &At, fact: OwnFact<'_, Self>) -> Result<(), IllegalEvent>;

    /// Takes in an event of another writer, if it reads such.
    fn observe_event(&mut self, at: &At, event: &Event) -> Result<(), IllegalEvent> {
        match Self::Input::of(event) {
            Some(input) => self.observe(at, input),
            None => Ok(()),
        }
    }

    /// Applies an event of its own.
    fn evolve_event(&mut self, at: &At, event: &Event) -> Result<(), IllegalEvent> {
        let fact = OwnFact::<Self>::of(event);
        self.evolve(
            at,
            fact.ok_or_else(|| IllegalEvent::new("no fact of its own", event))?,
        )
    }

    /// Whether the command speaks of something that stands on the ledger and has not been read here yet, as far as the
    /// state can tell. Its leader then reads up to the ledger's end before it handles the command.
    fn is_behind(&self, _command: &Self::Command) -> bool {
        false
    }

    /// Decides one command.
    fn handle(&mut self, command: Self::Command, config: &Self::Config, draft: &mut Draft);

    /// Decides what the state says is to be decided, until nothing is left or the draft is full.
    fn decide(&mut self, config: &Self::Config, draft: &mut Draft);

    /// Hands out the effects since the last call; they are no part of the serialised state.
    fn take_effects(&mut self) -> Vec<Self::Effect> {
        Vec::new()
    }

    /// When `decide` has something to do though nothing comes in.
    fn wake_at(&self) -> Option<Millis>;

    /// Somebody outside of the ledger may have counted on the leader before: the first round of a term ends with a frame.
    fn is_counted_on(&self) -> bool {
        false
    }

    /// Somebody counts on it that this leader leads: it writes a frame at least so often, milliseconds of its clock. None:
    /// nobody does now.
    fn proves_every(&self, _config: &Self::Config) -> Option<u64> {
        None
    }

    /// What its state shows at `now`, for metrics. Looked at seldom, so it may go through all of the state once.
    fn show(&self, _now: Millis, _figures: &mut Figures) {}
}

/// A fact that the decider itself has written.
pub type OwnFact<'a, D> = <<D as Decider>::By as Writes>::Fact<'a>;

/// The events of a frame in the making. Each is applied as it is emitted, so that the next decision sees it.
#[derive(Debug)]
pub struct Draft {
    pub now: Millis,
    /// The leader surely led at this moment: a frame that it has sent later has landed, and whoever leads next begins behind
    /// that. None: it has written none yet.
    pub led: Option<Millis>,
    /// The cell's feature level.
    level: Level,
    next: EventNo,
    pub(crate) events: Events,
    pub(crate) encoded: Encoded,
    pub(crate) poison: Option<Poison>,
    work_left: usize,
}

impl Draft {
    /// A frame is closed when it holds this much; far below the bus's 8 MB and enough to make an fsync worth it.
    pub const BYTES_MAX: usize = 1 << 20;
    /// What deciding may cost in one frame, in units of some 0.3 µs (a glance at a node is one): who decides for longer
    /// answers nobody meanwhile. Counted, not timed, so that the same state decides the same.
    pub const WORK_MAX: usize = 36_000;
    /// What it costs to decide on an event and to apply it, at least.
    const EVENT_WORK: usize = 12;
    /// What it costs to read a command and to look at it, whatever comes of it.
    const COMMAND_WORK: usize = 24;

    /// In a cell that is at the newest level.
    pub fn new(now: Millis, next: EventNo) -> Self {
        Self::in_columns(now, next, Box::default())
    }

    /// The same, put into columns that were used before.
    pub(crate) fn in_columns(now: Millis, next: EventNo, mut columns: Box<Columns>) -> Self {
        columns.clear();
        Self {
            now,
            led: Some(now),
            level: Level::KNOWN,
            next,
            events: Events::default(),
            encoded: Encoded::Columns(columns),
            poison: None,
            work_left: Self::WORK_MAX,
        }
    }

    /// Before anything is emitted.
    pub fn at_level(self, level: Level) -> Self {
        let encoded = match level < Level::COLUMNS {
            true => Encoded::Messages(Vec::new()),
            false => self.encoded,
        };
        Self {
            level,
            encoded,
            ..self
        }
    }

    /// Whether the cell's feature level lets such a fact be written. One that is newer than the first level is not decided
    /// without asking.
    pub fn allows(&self, kind: EventKind) -> bool {
        self.is_at(kind.since())
    }

    /// Whether the cell is at a feature level, or above it.
    pub fn is_at(&self, level: Level) -> bool {
        level <= self.level || sabotage::armed(Bug::LevelIgnored)
    }

    /// The number that the next emitted event will have.
    pub fn next_no(&self) -> EventNo {
        self.next
    }

    /// No more decisions now; the rest goes into the next frame.
    pub fn full(&self) -> bool {
        self.encoded.size() >= Self::BYTES_MAX || self.poison.is_some() || self.work_left == 0
    }

    /// Something was done that costs more than the events that come of it.
    pub fn spend(&mut self, work: usize) {
        self.work_left = self.work_left.saturating_sub(work);
    }

    /// Commands were read.
    pub fn spend_on(&mut self, commands: usize) {
        self.spend(commands * Self::COMMAND_WORK);
    }

    /// There is so much left to spend, whatever was spent before: for what was put off in one frame for the lack of it, and
    /// must not be in the next.
    pub fn allow(&mut self, work: usize) {
        self.work_left = self.work_left.max(work);
    }

    pub fn work_left(&self) -> usize {
        self.work_left
    }

    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// How many events it has.
    pub fn count(&self) -> usize {
        self.events.len()
    }

    /// The decision that its own state or the cell's level refused, if there was one.
    pub fn poison(&self) -> Option<&Poison> {
        self.poison.as_ref()
    }

    /// Events so far, as a test wants to see them.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.decoded(Kinds::ALL).map(|(_, event)| event)
    }

    /// Applies the fact to `state` and adds it to the frame. A decision that its own state or the cell's level refuses poisons
    /// the draft: the leader stops instead of writing it.
    pub fn emit<D: Decider>(&mut self, state: &mut D, fact: impl Into<Written<D::By>>) {
        if self.poison.is_some() {
            return;
        }
        let at = At {
            lsn: Lsn(0),
            // A draft is full long before it holds 2^32 events.
            index: self.events.len() as u32,
            no: self.next,
            now: self.now,
        };
        let event = Event::from(fact.into());
        if !self.is_at(event.since()) {
            let above = AboveLevel {
                fact: event.kind().name(),
                since: event.since(),
                level: self.level,
            };
            self.poison = Some(above.into());
            return;
        }
        if let Err(illegal) = state.evolve_event(&at, &event) {
            self.poison = Some(illegal.into());
            return;
        }
        self.encoded.push(&event);
        self.next = EventNo(self.next.0 + 1);
        self.spend(Self::EVENT_WORK);
        self.events.push(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use vocab::{AllocationNo, fact::QuotaReleased};

    /// Counts its own facts.
    #[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
    struct Counter(u64);

    #[derive(Debug, Clone, Copy)]
    struct Nothing;

    impl<'a> Inputs<'a> for Nothing {
        const KINDS: Kinds = Kinds::of(&[]);

        fn of(_event: &'a Event) -> Option<Self> {
            None
        }

        fn kind(self) -> EventKind {
            EventKind::QuotaReleased
        }

        fn to_event(self) -> Event {
            Event::from(released())
        }
    }

    impl Decider for Counter {
        type Command = Infallible;
        type Config = ();
        type Effect = Infallible;
        type By = vocab::fact::Quota;
        type Input<'a> = Nothing;

        const STATE_VERSION: u32 = 1;

        fn observe(&mut self, _at: &At, _input: Nothing) -> Result<(), IllegalEvent> {
            Ok(())
        }

        fn evolve(&mut self, _at: &At, _fact: OwnFact<'_, Self>) -> Result<(), IllegalEvent> {
            self.0 += 1;
            Ok(())
        }

        fn handle(&mut self, command: Infallible, _config: &(), _draft: &mut Draft) {
            match command {}
        }

        fn decide(&mut self, _config: &(), _draft: &mut Draft) {}

        fn wake_at(&self) -> Option<Millis> {
            None
        }
    }

    fn released() -> QuotaReleased {
        QuotaReleased {
            allocation: AllocationNo(1),
        }
    }

    #[test]
    fn a_fact_above_the_cells_level_is_never_written() {
        let mut state = Counter::default();
        let mut draft = Draft::new(Millis(0), EventNo(1)).at_level(Level(0));
        assert!(!draft.allows(EventKind::QuotaReleased));
        draft.emit(&mut state, released());
        let poison = Poison::AboveLevel(AboveLevel {
            fact: "quota_released",
            since: Level(1),
            level: Level(0),
        });
        assert_eq!(draft.poison(), Some(&poison));
        assert!(draft.full() && draft.is_empty() && state.0 == 0);
        let replica = crate::Replica::<Counter>::default();
        let sealed = replica.seal(draft, &[0; 16], 1, crate::Handled::default(), u64::MAX);
        assert_eq!(sealed.map(|_| ()), Err(crate::ReplicaError::from(poison)));

        let mut draft = Draft::new(Millis(0), EventNo(1)).at_level(Level(1));
        draft.emit(&mut state, released());
        assert_eq!((draft.poison(), state.0), (None, 1));
    }

    #[test]
    fn a_frame_has_columns_where_the_level_and_a_reader_allow_it() {
        let check = |level, count, columns| {
            let mut state = Counter::default();
            let replica = crate::Replica::<Counter>::default();
            let mut draft = replica.draft(Millis(0), level);
            for _ in 0..count {
                draft.emit(&mut state, released());
            }
            let sealed = replica.seal(draft, &[0; 16], 1, crate::Handled::default(), u64::MAX);
            let sealed = sealed.expect("no poison").expect("events");
            let (messages, in_columns) =
                crate::content::undecoded(sealed.bytes()).expect("a frame");
            assert_eq!(
                (messages.is_empty(), in_columns.is_some()),
                (columns, columns)
            );
            let record = crate::Record::new(Lsn(1), Writer::Quota, sealed.bytes().clone());
            let read = crate::Chain::default().accept(&record, Kinds::ALL);
            let read = read.expect("a frame").expect("a new one");
            assert!(
                read.placed()
                    .map(|(_, event)| event.clone())
                    .eq(vec![released().into(); count])
            );
        };
        check(Level(Level::COLUMNS.0 - 1), 3, false);
        check(Level::COLUMNS, 3, true);
        check(Level::COLUMNS, 1 << 16, true);
        check(Level::COLUMNS, (1 << 16) + 1, false);
    }

    #[test]
    fn a_draft_is_full_when_its_work_is_used_up() {
        let mut draft = Draft::new(Millis(0), EventNo(1));
        draft.spend(Draft::WORK_MAX - 1);
        assert!(!draft.full() && draft.work_left() == 1);
        draft.spend(2);
        assert!(draft.full() && draft.work_left() == 0);
        draft.allow(7);
        assert!(!draft.full() && draft.work_left() == 7);
        draft.allow(3);
        assert_eq!(draft.work_left(), 7);
    }
}
