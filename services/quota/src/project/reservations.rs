//! Reservations of named resources that have not ended, counted for their tenants. Quota limits them and does not read them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vocab::{EventNo, ReservationNo, ResourceAnswer, ResourceAsk, Token};

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Reservations {
    /// Not answered yet.
    asked: BTreeMap<EventNo, Ask>,
    live: BTreeMap<ReservationNo, Token>,
    counts: BTreeMap<Token, u64>,
}

#[derive(Debug, Serialize, Deserialize)]
enum Ask {
    Reserve(Token),
    End(ReservationNo),
}

impl Reservations {
    pub fn of(&self, tenant: &Token) -> u64 {
        self.counts.get(tenant).copied().unwrap_or(0)
    }

    pub fn asked(&mut self, no: EventNo, tenant: &Token, ask: &ResourceAsk) {
        let ask = match ask {
            ResourceAsk::Reserve { .. } => Ask::Reserve(tenant.clone()),
            ResourceAsk::Release { reservation, .. } | ResourceAsk::Reclaim { reservation } => {
                Ask::End(*reservation)
            }
            // Change nothing of their number.
            ResourceAsk::Create { .. }
            | ResourceAsk::Confirm { .. }
            | ResourceAsk::Revoke { .. } => return,
        };
        self.asked.insert(no, ask);
    }

    /// Whose number of reservations has changed. `no` is the answer's own number.
    pub fn decided(
        &mut self,
        request: EventNo,
        answer: &ResourceAnswer,
        no: EventNo,
    ) -> Option<Token> {
        match (self.asked.remove(&request)?, answer) {
            (Ask::Reserve(tenant), ResourceAnswer::Reserved { .. }) => {
                self.live.insert(ReservationNo::of(no), tenant.clone());
                *self.counts.entry(tenant.clone()).or_default() += 1;
                Some(tenant)
            }
            (
                Ask::End(reservation),
                ResourceAnswer::Released { .. } | ResourceAnswer::Reclaimed { .. },
            ) => self.expired(reservation),
            (
                Ask::Reserve(_) | Ask::End(_),
                ResourceAnswer::Created
                | ResourceAnswer::Reserved { .. }
                | ResourceAnswer::Confirmed
                | ResourceAnswer::Released { .. }
                | ResourceAnswer::Revoked { .. }
                | ResourceAnswer::Reclaimed { .. }
                | ResourceAnswer::Refused(_),
            ) => None,
        }
    }

    /// It ends once, however often that is said.
    pub fn expired(&mut self, reservation: ReservationNo) -> Option<Token> {
        let tenant = self.live.remove(&reservation)?;
        if let Some(count) = self.counts.get_mut(&tenant) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&tenant);
            }
        }
        Some(tenant)
    }
}
