//! The facts that an allocation's life is made of.

use vocab::{AllocationNo, inputs};

inputs! {
    /// What becomes of an allocation after it was requested.
    pub enum Life {
        QuotaReserved,
        QuotaWaiting,
        QuotaReclaimed,
        QuotaDenied,
        AllocationReprioritised,
        AllocationPlaced,
        AllocationWaiting,
        AllocationStarted,
        AllocationStopping,
        AllocationPreempted,
        AllocationNominated,
        AllocationRequeued,
        AllocationEnded,
    }
}

impl Life<'_> {
    pub(super) fn allocation(self) -> AllocationNo {
        match self {
            Self::QuotaReserved(fact) => fact.allocation,
            Self::QuotaWaiting(fact) => fact.allocation,
            Self::QuotaReclaimed(fact) => fact.allocation,
            Self::QuotaDenied(fact) => fact.allocation,
            Self::AllocationReprioritised(fact) => fact.allocation,
            Self::AllocationPlaced(fact) => fact.allocation,
            Self::AllocationWaiting(fact) => fact.allocation,
            Self::AllocationStarted(fact) => fact.allocation,
            Self::AllocationStopping(fact) => fact.allocation,
            Self::AllocationPreempted(fact) => fact.allocation,
            Self::AllocationNominated(fact) => fact.allocation,
            Self::AllocationRequeued(fact) => fact.allocation,
            Self::AllocationEnded(fact) => fact.allocation,
        }
    }
}
