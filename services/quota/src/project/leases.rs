//! Leases of named resources that have not ended, counted for their tenants. Quota limits them and does not read them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vocab::{EventNo, LeaseNo, ResourceAnswer, ResourceAsk, Token};

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Leases {
    /// Not answered yet.
    asked: BTreeMap<EventNo, Ask>,
    live: BTreeMap<LeaseNo, Token>,
    counts: BTreeMap<Token, u64>,
}

#[derive(Debug, Serialize, Deserialize)]
enum Ask {
    Acquire(Token),
    End(LeaseNo),
}

impl Leases {
    pub fn of(&self, tenant: &Token) -> u64 {
        self.counts.get(tenant).copied().unwrap_or(0)
    }

    pub fn asked(&mut self, no: EventNo, tenant: &Token, ask: &ResourceAsk) {
        let ask = match ask {
            ResourceAsk::Acquire { .. } => Ask::Acquire(tenant.clone()),
            ResourceAsk::Release { lease, .. } | ResourceAsk::Reclaim { lease } => Ask::End(*lease),
            // Change nothing of their number.
            ResourceAsk::Create { .. }
            | ResourceAsk::Confirm { .. }
            | ResourceAsk::Revoke { .. } => return,
        };
        self.asked.insert(no, ask);
    }

    /// Whose number of leases has changed. `no` is the answer's own number.
    pub fn decided(
        &mut self,
        request: EventNo,
        answer: &ResourceAnswer,
        no: EventNo,
    ) -> Option<Token> {
        match (self.asked.remove(&request)?, answer) {
            (Ask::Acquire(tenant), ResourceAnswer::Granted { .. }) => {
                self.live.insert(LeaseNo::of(no), tenant.clone());
                *self.counts.entry(tenant.clone()).or_default() += 1;
                Some(tenant)
            }
            (
                Ask::End(lease),
                ResourceAnswer::Released { .. } | ResourceAnswer::Reclaimed { .. },
            ) => self.expired(lease),
            (
                Ask::Acquire(_) | Ask::End(_),
                ResourceAnswer::Created
                | ResourceAnswer::Granted { .. }
                | ResourceAnswer::Confirmed
                | ResourceAnswer::Released { .. }
                | ResourceAnswer::Revoked { .. }
                | ResourceAnswer::Reclaimed { .. }
                | ResourceAnswer::Refused(_),
            ) => None,
        }
    }

    /// It ends once, however often that is said.
    pub fn expired(&mut self, lease: LeaseNo) -> Option<Token> {
        let tenant = self.live.remove(&lease)?;
        if let Some(count) = self.counts.get_mut(&tenant) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&tenant);
            }
        }
        Some(tenant)
    }
}
