//! Advance reservations.

use crate::{
    Admission, RequirementRequest,
    check::{TIME_MS_MAX, amount, small_quantity, token},
    submit::requirements,
};
use vocab::{AdvanceReservation, Millis, Refusal, Rule};

/// A reservation as it was written.
#[derive(Debug, Clone, Default, PartialEq, Eq, wire::Wire)]
pub struct ReservationRequest {
    #[wire(1)]
    pub queue: String,
    #[wire(2)]
    pub from_ms: i64,
    #[wire(3)]
    pub until_ms: i64,
    #[wire(4)]
    pub nodes: i64,
    #[wire(5)]
    pub selector: Vec<RequirementRequest>,
}

impl Admission {
    /// The beginning may be past: it then has begun.
    pub(super) fn check_reservation(
        &self,
        wanted: &ReservationRequest,
        now: Millis,
    ) -> Result<AdvanceReservation, Refusal> {
        let queue = token(&wanted.queue, "queue")?;
        // A tenant's own queue is there without an operator.
        let known = self.settings.queues.contains_key(&queue) || self.settings.knows_tenant(&queue);
        if !known {
            return Err(Refusal::new(Rule::QueueUnknown, "queue"));
        }
        amount(wanted.from_ms, TIME_MS_MAX, "from_ms")?;
        amount(wanted.until_ms, TIME_MS_MAX, "until_ms")?;
        let (from, until) = (Millis(wanted.from_ms), Millis(wanted.until_ms));
        if until <= from || until <= now {
            return Err(Refusal::new(Rule::IntervalInvalid, "until_ms"));
        }
        Ok(AdvanceReservation {
            queue,
            from,
            until,
            nodes: small_quantity(wanted.nodes, AdvanceReservation::NODES_MAX, "nodes")?,
            selector: requirements(&wanted.selector, "selector")?,
        })
    }
}

impl From<&AdvanceReservation> for ReservationRequest {
    fn from(reservation: &AdvanceReservation) -> Self {
        Self {
            queue: reservation.queue.to_string(),
            from_ms: reservation.from.0,
            until_ms: reservation.until.0,
            nodes: reservation.nodes.into(),
            selector: reservation
                .selector
                .iter()
                .map(RequirementRequest::from)
                .collect(),
        }
    }
}
