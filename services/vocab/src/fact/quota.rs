//! What quota records: what it reserves, denies, takes back and releases.

use crate::{Account, AllocationNo, Limits, ModelGrant, QuotaFlags, QuotaResource, Refusal};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct QuotaReserved {
    #[wire(1)]
    pub allocation: AllocationNo,
    #[wire(2)]
    pub flags: QuotaFlags,
    /// Which models it may run on, if some of those that it may choose from have limits.
    #[wire(3)]
    pub models: Option<Box<ModelGrant>>,
}

/// It waits for what the refusal names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct QuotaWaiting {
    #[wire(1)]
    pub allocation: AllocationNo,
    #[wire(2)]
    pub refusal: Refusal,
}

/// What it holds is taken back, for the sake of `by`; none: its account's burst is over. It has to stop, and waits for
/// quota again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct QuotaReclaimed {
    #[wire(1)]
    pub allocation: AllocationNo,
    #[wire(2)]
    pub by: Option<AllocationNo>,
}

/// From here on these limits hold: a change or an override has begun, or one is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct LimitsInForce {
    #[wire(flatten(tenant = 1, team = 2, namespace = 3))]
    pub account: Account,
    #[wire(4)]
    pub resource: QuotaResource,
    #[wire(5)]
    pub limits: Option<Limits>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct QuotaDenied {
    #[wire(1)]
    pub allocation: AllocationNo,
    #[wire(2)]
    pub refusal: Refusal,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, wire::Wire)]
pub struct QuotaReleased {
    #[wire(1)]
    pub allocation: AllocationNo,
}
