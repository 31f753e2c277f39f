//! What a deciding service's domain offers, and the draft that it decides into.

use crate::frame;
use serde::{Serialize, de::DeserializeOwned};
use std::fmt;
use vocab::fact::{Inputs, Writes, Written};
use vocab::{At, Event, EventNo, Lsn, Millis, Writer};

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
}

/// A fact that the decider itself has written.
pub type OwnFact<'a, D> = <<D as Decider>::By as Writes>::Fact<'a>;

/// The events of a frame in the making. Each is applied as it is emitted, so that the next decision sees it.
#[derive(Debug)]
pub struct Draft {
    pub now: Millis,
    next: EventNo,
    pub(crate) events: Vec<(At, Event)>,
    /// As they stand in the frame.
    pub(crate) encoded: Vec<u8>,
    pub(crate) illegal: Option<IllegalEvent>,
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

    pub fn new(now: Millis, next: EventNo) -> Self {
        Self {
            now,
            next,
            events: Vec::new(),
            encoded: Vec::new(),
            illegal: None,
            work_left: Self::WORK_MAX,
        }
    }

    /// The number that the next emitted event will have.
    pub fn next_no(&self) -> EventNo {
        self.next
    }

    /// No more decisions now; the rest goes into the next frame.
    pub fn full(&self) -> bool {
        self.encoded.len() >= Self::BYTES_MAX || self.illegal.is_some() || self.work_left == 0
    }

    /// Something was done that costs more than the events that come of it.
    pub fn spend(&mut self, work: usize) {
        self.work_left = self.work_left.saturating_sub(work);
    }

    /// Commands were read.
    pub(crate) fn spend_on(&mut self, commands: usize) {
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

    /// The decision that its own state refused, if there was one.
    pub fn illegal(&self) -> Option<&IllegalEvent> {
        self.illegal.as_ref()
    }

    /// Events so far, as a test wants to see them.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().map(|(_, event)| event)
    }

    /// Applies the fact to `state` and adds it to the frame. A decision that its own state refuses poisons the draft: the
    /// leader stops instead of writing it.
    pub fn emit<D: Decider>(&mut self, state: &mut D, fact: impl Into<Written<D::By>>) {
        if self.illegal.is_some() {
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
        if let Err(illegal) = state.evolve_event(&at, &event) {
            self.illegal = Some(illegal);
            return;
        }
        frame::push_event(&mut self.encoded, &event);
        self.next = EventNo(self.next.0 + 1);
        self.spend(Self::EVENT_WORK);
        self.events.push((at, event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
