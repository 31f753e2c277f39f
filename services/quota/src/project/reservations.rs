//! Reservations of named resources that have not ended, counted for their tenants.

use super::book::Move;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vocab::{EventNo, ReservationNo, ResourceAnswer, ResourceAsk, Token};

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Reservations {
    /// Not answered yet.
    asked: BTreeMap<EventNo, Ask>,
    live: BTreeMap<ReservationNo, Token>,
}

#[derive(Debug, Serialize, Deserialize)]
enum Ask {
    Reserve(Token),
    End(ReservationNo),
}

impl Reservations {
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

    /// Whose number of reservations changes, and how. `no` is the answer's own number.
    pub fn decided(
        &mut self,
        request: EventNo,
        answer: &ResourceAnswer,
        no: EventNo,
    ) -> Option<(Token, Move)> {
        match (self.asked.remove(&request)?, answer) {
            (Ask::Reserve(tenant), ResourceAnswer::Reserved { .. }) => {
                self.live.insert(ReservationNo::of(no), tenant.clone());
                Some((tenant, Move::Use))
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
    pub fn expired(&mut self, reservation: ReservationNo) -> Option<(Token, Move)> {
        let tenant = self.live.remove(&reservation)?;
        Some((tenant, Move::ReleaseUsed))
    }
}
