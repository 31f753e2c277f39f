//! What quota records: what it reserves, denies, takes back and releases.

use crate::{Account, AllocationNo, Limits, ModelGrant, QuotaFlags, QuotaResource, Refusal};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaReserved {
    pub allocation: AllocationNo,
    pub flags: QuotaFlags,
    /// Which models it may run on, if some of those that it may choose from have limits.
    pub models: Option<Box<ModelGrant>>,
}

/// It waits for what the refusal names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaWaiting {
    pub allocation: AllocationNo,
    pub refusal: Refusal,
}

/// What it holds is taken back, for the sake of `by`; none: its account's burst is over. It has to stop, and waits for
/// quota again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaReclaimed {
    pub allocation: AllocationNo,
    pub by: Option<AllocationNo>,
}

/// From here on these limits hold: a change or an override has begun, or one is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitsInForce {
    pub account: Account,
    pub resource: QuotaResource,
    pub limits: Option<Limits>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaDenied {
    pub allocation: AllocationNo,
    pub refusal: Refusal,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaReleased {
    pub allocation: AllocationNo,
}
