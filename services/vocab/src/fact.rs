//! The facts of the ledger, in the past tense. The table below says who writes which, its number in the contract, and since
//! which feature level of the cell it is written, if that is not the first: it is the only list of them. Who reads which follows from the enum that the reader takes ([`inputs!`](crate::inputs)).

mod admission;
mod node_heartbeat;
mod quota;
mod scheduler;

pub use admission::*;
pub use node_heartbeat::*;
pub use quota::*;
pub use scheduler::*;

use crate::{AllocationNo, EventNo, Kinds, Level, Operation, Writer};
use serde::{Deserialize, Serialize};
use std::marker::PhantomData;

/// A fact of one kind.
pub trait Fact: Into<Event> {
    /// Nobody else can record it.
    type By: Writes;
}

/// A writer as a type.
pub trait Writes: 'static {
    const WRITER: Writer;
    /// All that it writes.
    type Fact<'a>: Inputs<'a>;
}

/// Some of the facts, by reference: what a reader takes.
pub trait Inputs<'a>: Copy {
    const KINDS: Kinds;

    /// None for a fact that is none of them.
    fn of(event: &'a Event) -> Option<Self>;

    fn kind(self) -> EventKind;

    fn to_event(self) -> Event;
}

/// An event that only this writer can record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written<By>(Event, PhantomData<By>);

impl<By> Written<By> {
    /// See [`Event::since`].
    pub fn since(&self) -> Level {
        self.0.since()
    }
}

impl<F: Fact> From<F> for Written<F::By> {
    fn from(fact: F) -> Self {
        Self(fact.into(), PhantomData)
    }
}

impl<By> From<Written<By>> for Event {
    fn from(written: Written<By>) -> Self {
        written.0
    }
}

/// An enum of references to some facts, by their names, and of all facts of other such enums. A reader that handles a fact
/// cannot miss it: the kinds that are delivered to the reader are those of its enum, and a `match` has an arm for each.
#[macro_export]
macro_rules! inputs {
    ($(#[$meta:meta])* $vis:vis enum $inputs:ident { $(..$group:ident,)* $($name:ident),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy)]
        $vis enum $inputs<'a> {
            $($group($group<'a>),)*
            $($name(&'a $crate::fact::of_kind::$name),)*
        }

        impl<'a> $crate::fact::Inputs<'a> for $inputs<'a> {
            const KINDS: $crate::Kinds = $crate::Kinds::of(&[$($crate::EventKind::$name,)*])
                $(.and(<$group<'a> as $crate::fact::Inputs<'a>>::KINDS))*;

            fn of(event: &'a $crate::Event) -> Option<Self> {
                $(
                    if let Some(input) = <$group<'a> as $crate::fact::Inputs<'a>>::of(event) {
                        return Some(Self::$group(input));
                    }
                )*
                match event {
                    $($crate::Event::$name(fact) => Some(Self::$name(fact)),)*
                    #[allow(unreachable_patterns, reason = "a reader may take all of them")]
                    _ => None,
                }
            }

            fn kind(self) -> $crate::EventKind {
                match self {
                    $(Self::$group(inner) => $crate::fact::Inputs::kind(inner),)*
                    $(Self::$name(_) => $crate::EventKind::$name,)*
                }
            }

            fn to_event(self) -> $crate::Event {
                match self {
                    $(Self::$group(inner) => $crate::fact::Inputs::to_event(inner),)*
                    $(Self::$name(fact) => $crate::Event::$name(::core::clone::Clone::clone(fact)),)*
                }
            }
        }
    };
}

macro_rules! facts {
    ($($(#[$meta:meta])* $writer:ident: $facts:ident { $($name:ident $(in $wrapper:ident)? = $number:literal $(of $about:ident)? $(since $level:literal)?,)* })*) => {
        /// The type of the facts of each kind.
        pub mod of_kind {
            $($(pub type $name = facts!(@type $name $($wrapper)?);)*)*
        }

        /// One fact.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
        #[wire(oneof = "kind", message)]
        pub enum Event { $($(#[wire($number)] $name(of_kind::$name),)*)* }

        /// The number of a fact's message on the wire.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum EventKind { $($($name = $number,)*)* }

        impl EventKind {
            pub const ALL: &'static [Self] = &[$($(Self::$name,)*)*];

            pub fn from_number(number: u64) -> Option<Self> {
                match number {
                    $($($number => Some(Self::$name),)*)*
                    _ => None,
                }
            }

            /// The name on metrics and spans, and in the contract: snake case.
            pub const fn name(self) -> &'static str {
                match self {
                    $($(Self::$name => {
                        const NAME: &str = stringify!($name);
                        const SNAKE: [u8; snake_len(NAME)] = snake(NAME);
                        // Letters and underscores.
                        match str::from_utf8(&SNAKE) { Ok(name) => name, Err(_) => NAME }
                    })*)*
                }
            }

            /// The only writer that may put this kind on the ledger.
            pub const fn writer(self) -> Writer {
                match self { $($(Self::$name => Writer::$writer,)*)* }
            }

            /// The feature level that a cell must have before this kind is written.
            pub const fn since(self) -> Level {
                match self { $($(Self::$name => facts!(@since $($level)?),)*)* }
            }
        }

        impl Event {
            pub fn kind(&self) -> EventKind {
                match self { $($(Self::$name(_) => EventKind::$name,)*)* }
            }

            /// The feature level that a cell must have before it is written: that of its kind, or of a field that came later.
            pub fn since(&self) -> Level {
                match self {
                    Self::TenantSet(set) if !set.change.teams.is_empty() => Level::TEAMS,
                    Self::OperationRefused(OperationRefused {
                        verb: Some(verb), ..
                    }) => verb.since(),
                    Self::RateSet(set) if set.change.withdrawn => Level::RATE_WITHDRAWALS,
                    fact if fact.operation().is_some_and(|asked| asked.by.is_some()) => {
                        Level::NAMED_OPERATORS
                    }
                    Self::RateSet(set) if !set.change.scope.is_all() => Level::SCOPED_RATES,
                    Self::CordonSet(set) if set.change.drain => Level::NODE_RULES,
                    Self::NodeRegistered(fact) if !fact.capacity.is_of_first_level() => {
                        Level::NODE_RULES
                    }
                    Self::TenantSet(set) if set.change.closed => Level::CLOSING,
                    Self::QueueSet(set) if set.change.closed => Level::CLOSING,
                    Self::PriorityClassSet(set) if set.change.closed => Level::CLOSING,
                    Self::AllocationRequested(fact) if fact.spec.is_bounded() => Level::TIME_BOUNDS,
                    Self::AllocationRequested(fact) if fact.spec.array_index.is_some() => {
                        Level::ARRAYS
                    }
                    Self::AllocationStopping(fact) if fact.time_limit => Level::TIME_BOUNDS,
                    Self::AllocationEnded(fact) => fact.cause.since(),
                    Self::AllocationRequeued(fact) => fact.cause.since(),
                    Self::AllocationRequested(fact) if fact.spec.prefers() => Level::NODE_RULES,
                    fact => fact.kind().since(),
                }
            }

            /// The allocation that it names, if it is about one.
            fn names(&self) -> Option<AllocationNo> {
                match self { $($(facts!(@about $name fact $($about)?) => facts!(@names fact $($about)?),)*)* }
            }
        }

        $(
            $(#[$meta])*
            #[derive(Debug, Clone, PartialEq, Eq)]
            pub enum $writer {}

            impl Writes for $writer {
                const WRITER: Writer = Writer::$writer;
                type Fact<'a> = $facts<'a>;
            }

            inputs! {
                pub enum $facts { $($name),* }
            }

            $(
                impl From<of_kind::$name> for Event {
                    fn from(fact: of_kind::$name) -> Self {
                        Self::$name(fact)
                    }
                }

                impl Fact for of_kind::$name {
                    type By = $writer;
                }
            )*
        )*
    };
    (@about $name:ident $fact:ident) => { Self::$name(_) };
    (@about $name:ident $fact:ident $about:ident) => { Self::$name($fact) };
    (@since) => { Level::FIRST };
    (@since $level:literal) => { Level($level) };
    (@names $fact:ident) => { None };
    (@names $fact:ident $about:ident) => { Some($fact.$about) };
    (@type $name:ident) => { super::$name };
    (@type $name:ident $wrapper:ident) => { super::$wrapper<super::$name> };
}

const fn snake_len(name: &str) -> usize {
    let name = name.as_bytes();
    let (mut len, mut i) = (name.len(), 1);
    while i < name.len() {
        len += name[i].is_ascii_uppercase() as usize;
        i += 1;
    }
    len
}

/// `LEN` is that of `snake_len`.
const fn snake<const LEN: usize>(name: &str) -> [u8; LEN] {
    let name = name.as_bytes();
    let (mut snake, mut at, mut i) = ([b'_'; LEN], 0, 0);
    while i < name.len() {
        at += (i > 0 && name[i].is_ascii_uppercase()) as usize;
        snake[at] = name[i].to_ascii_lowercase();
        (at, i) = (at + 1, i + 1);
    }
    snake
}

facts! {
    Admission: AdmissionFact {
        TenantSet in Applied = 1,
        QuotaSet in Applied = 2,
        RateSet in Applied = 3,
        AllocationRequested = 4,
        CancelRequested = 5 of allocation,
        OperationRefused = 6,
        OperationRepeated = 7,
        OperationsForgotten = 8,
        QueueSet in Applied = 9,
        PriorityClassSet in Applied = 10,
        SchedulingSet in Applied = 11,
        CordonSet in Applied = 12,
        ReservationSet in Applied = 13,
        BudgetSet in Applied = 14,
        JobSetCancelRequested = 15,
        PriorityRequested = 16,
        ResourceAsked = 17,
        NodeSet in Applied = 18,
        PeriodClosed in Applied = 19 since 4,
        TaintsSet in Applied = 90 since 6,
    }
    Quota: QuotaFact {
        QuotaReserved = 20 of allocation,
        QuotaDenied = 21 of allocation,
        QuotaReleased = 22 of allocation,
        QuotaWaiting = 23 of allocation,
        QuotaReclaimed = 24 of allocation,
        LimitsInForce = 25,
    }
    Scheduler: SchedulerFact {
        AllocationPlaced = 40 of allocation,
        AllocationWaiting = 41 of allocation,
        AllocationStarted = 42 of allocation,
        AllocationStopping = 43 of allocation,
        AllocationEnded = 44 of allocation,
        CancelDecided = 45 of allocation,
        PendingGroupExplained = 46,
        AllocationPreempted = 47 of allocation,
        AllocationNominated = 48 of allocation,
        AllocationRequeued = 49 of allocation,
        ReservationDecided = 50,
        JobSetCancelDecided = 51,
        AllocationReprioritised = 52 of allocation,
        PriorityDecided = 53,
        ResourceDecided = 54,
        LeaseExpired = 55,
    }
    NodeHeartbeat: NodeHeartbeatFact {
        NodeRegistered = 70,
        NodeReady = 71,
        NodeLost = 72,
        RunReported = 73 of allocation,
        NodeJoined = 74,
        NodeForgotten = 75,
        NodeSuspected = 76 since 2,
        NodeConditionChanged = 77 since 6,
        NodeCapacityChanged = 78 since 7,
    }
}

impl Event {
    /// Who asked, of what takes up an operation.
    pub fn operation(&self) -> Option<&Operation> {
        match self {
            Self::AllocationRequested(fact) => Some(&fact.operation),
            Self::CancelRequested(fact) => Some(&fact.operation),
            Self::JobSetCancelRequested(fact) => Some(&fact.operation),
            Self::PriorityRequested(fact) => Some(&fact.operation),
            Self::ResourceAsked(fact) => Some(&fact.operation),
            Self::OperationRefused(fact) => Some(&fact.operation),
            fact => SettingFact::of(fact).map(|set| set.asked().0),
        }
    }

    /// The only writer that may put this event on the ledger.
    pub fn writer(&self) -> Writer {
        self.kind().writer()
    }

    /// The allocation that it is about, where `no` is the event's own number.
    pub fn allocation(&self, no: EventNo) -> Option<AllocationNo> {
        match self {
            Self::AllocationRequested(_) => Some(AllocationNo(no.0)),
            named => named.names(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    inputs! {
        pub enum Some2 { AllocationPlaced, QuotaReleased }
    }

    inputs! {
        pub enum More { ..Some2, NodeLost }
    }

    #[test]
    fn kinds_have_their_names_numbers_and_writers() {
        let check = |kind: EventKind, number: u64, name: &str, writer: Writer| {
            assert_eq!(EventKind::from_number(number), Some(kind));
            assert_eq!((kind.name(), kind.writer()), (name, writer));
        };
        check(EventKind::TenantSet, 1, "tenant_set", Writer::Admission);
        check(EventKind::QuotaDenied, 21, "quota_denied", Writer::Quota);
        let cancel = "job_set_cancel_decided";
        check(
            EventKind::JobSetCancelDecided,
            51,
            cancel,
            Writer::Scheduler,
        );
        check(
            EventKind::RunReported,
            73,
            "run_reported",
            Writer::NodeHeartbeat,
        );
        assert_eq!(EventKind::from_number(39), None);
    }

    #[test]
    fn inputs_are_the_facts_that_they_name() {
        let allocation = AllocationNo(7);
        let released = Event::from(QuotaReleased { allocation });
        let stopping = Event::from(AllocationStopping {
            allocation,
            time_limit: false,
        });
        let named = |event| match More::of(event) {
            Some(More::Some2(Some2::AllocationPlaced(fact))) => Some(fact.allocation),
            Some(More::Some2(Some2::QuotaReleased(fact))) => Some(fact.allocation),
            Some(More::NodeLost(fact)) => Some(AllocationNo(fact.incarnation)),
            None => None,
        };
        assert_eq!(
            (named(&released), named(&stopping)),
            (Some(allocation), None)
        );
        assert!(QuotaFact::of(&released).is_some() && QuotaFact::of(&stopping).is_none());
        let kinds = (EventKind::ALL.iter()).filter(|kind| More::KINDS.has(**kind));
        let names: Vec<_> = kinds.map(|kind| kind.name()).collect();
        assert_eq!(names, ["quota_released", "allocation_placed", "node_lost"]);
        assert_eq!(released.allocation(EventNo(1)), Some(allocation));
    }
}
