//! The kinds of facts, by the contract's numbers: enough to tell who writes them and who reads them.

use crate::Writer;

macro_rules! kinds {
    ($($name:ident = $number:literal,)*) => {
        /// The number of the message on the wire. An operator's change has one for each thing that can be set.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum EventKind { $($name = $number,)* }

        impl EventKind {
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            pub fn from_number(number: u64) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    TenantSet = 1,
    QuotaSet = 2,
    RateSet = 3,
    AllocationRequested = 4,
    CancelRequested = 5,
    OperationRefused = 6,
    OperationRepeated = 7,
    OperationsForgotten = 8,
    QueueSet = 9,
    PriorityClassSet = 10,
    SchedulingSet = 11,
    CordonSet = 12,
    ReservationSet = 13,
    BudgetSet = 14,
    JobSetCancelRequested = 15,
    PriorityRequested = 16,
    ResourceAsked = 17,
    NodeSet = 18,
    QuotaReserved = 20,
    QuotaDenied = 21,
    QuotaReleased = 22,
    QuotaWaiting = 23,
    QuotaReclaimed = 24,
    LimitsInForce = 25,
    AllocationPlaced = 40,
    AllocationWaiting = 41,
    AllocationStarted = 42,
    AllocationStopping = 43,
    AllocationEnded = 44,
    CancelDecided = 45,
    LineExplained = 46,
    AllocationPreempted = 47,
    AllocationNominated = 48,
    AllocationRequeued = 49,
    ReservationDecided = 50,
    JobSetCancelDecided = 51,
    AllocationReprioritised = 52,
    PriorityDecided = 53,
    ResourceDecided = 54,
    ReservationExpired = 55,
    NodeRegistered = 70,
    NodeReady = 71,
    NodeLost = 72,
    RunReported = 73,
    NodeJoined = 74,
    NodeForgotten = 75,
}

impl EventKind {
    /// The only writer that may put this kind on the ledger: numbers are dealt out by writer.
    pub const fn writer(self) -> Writer {
        match self as u8 {
            ..20 => Writer::Admission,
            20..40 => Writer::Quota,
            40..70 => Writer::Scheduler,
            70.. => Writer::NodeHeartbeat,
        }
    }
}

/// A set of kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kinds(u128);

impl Kinds {
    pub const ALL: Self = Self(u128::MAX);

    /// These and no others.
    pub const fn of(kinds: &[EventKind]) -> Self {
        let (mut set, mut i) = (0, 0);
        while i < kinds.len() {
            set |= 1 << (kinds[i] as u8);
            i += 1;
        }
        Self(set)
    }

    /// All but these.
    pub const fn but(kinds: &[EventKind]) -> Self {
        Self(!Self::of(kinds).0)
    }

    pub const fn has(self, kind: EventKind) -> bool {
        self.0 & 1 << (kind as u8) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_it_was_made_of() {
        let set = Kinds::of(&[EventKind::TenantSet, EventKind::RunReported]);
        let has: Vec<_> = EventKind::ALL
            .iter()
            .filter(|kind| set.has(**kind))
            .collect();
        assert_eq!(has, [&EventKind::TenantSet, &EventKind::RunReported]);
        let but = Kinds::but(&[EventKind::TenantSet]);
        assert!(!but.has(EventKind::TenantSet) && but.has(EventKind::RunReported));
        assert!(EventKind::ALL.iter().all(|kind| Kinds::ALL.has(*kind)));
        assert_eq!(EventKind::from_number(73), Some(EventKind::RunReported));
        assert_eq!(EventKind::from_number(19), None);
    }
}
