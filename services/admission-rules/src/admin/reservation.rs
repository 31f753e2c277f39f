//! Advance reservations.

use crate::{
    Admission, RequirementRequest,
    check::{TIME_MS_MAX, amount, small_quantity, token},
    submit::requirements,
};
use vocab::fact::ReservationSet;
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

impl ReservationRequest {
    /// The beginning may be past: it then has begun.
    pub(super) fn read(&self) -> Result<AdvanceReservation, Refusal> {
        let queue = token(&self.queue, "queue")?;
        amount(self.from_ms, TIME_MS_MAX, "from_ms")?;
        amount(self.until_ms, TIME_MS_MAX, "until_ms")?;
        let (from, until) = (Millis(self.from_ms), Millis(self.until_ms));
        if until <= from {
            return Err(until_invalid());
        }
        Ok(AdvanceReservation {
            queue,
            from,
            until,
            nodes: small_quantity(self.nodes, AdvanceReservation::NODES_MAX, "nodes")?,
            selector: requirements(&self.selector, "selector")?,
        })
    }
}

fn until_invalid() -> Refusal {
    Refusal::new(Rule::IntervalInvalid, "until_ms")
}

impl Admission {
    /// Requires a known queue and an end to come.
    pub(super) fn check_reservation(
        &self,
        set: &ReservationSet,
        now: Millis,
    ) -> Result<(), Refusal> {
        let Some(AdvanceReservation { queue, until, .. }) = &set.wanted else {
            return Ok(());
        };
        // A tenant's own queue is there without an operator.
        let known = self.settings.queues.contains_key(queue) || self.settings.knows_tenant(queue);
        match (known, *until <= now) {
            (false, _) => Err(Refusal::new(Rule::QueueUnknown, "queue")),
            (true, true) => Err(until_invalid()),
            (true, false) => Ok(()),
        }
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
