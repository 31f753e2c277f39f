//! What operators have set, and what became of the reservations that they asked for.

use serde::{Deserialize, Serialize};
use vocab::{AdvanceReservation, Millis, QueueSettings, SchedulingPolicy, Token};

/// A setting as it is from `at` on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingRow {
    Queue {
        queue: Token,
        settings: QueueSettings,
        version: u64,
        at: Millis,
    },
    Policy {
        policy: SchedulingPolicy,
        version: u64,
        at: Millis,
    },
    /// Of the tenant's own queue, where nobody has set that.
    TenantWeight {
        tenant: Token,
        weight_milli: u32,
        version: u64,
        at: Millis,
    },
    Reservation(ReservationRow),
}

/// An advance reservation and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationRow {
    pub reservation: Token,
    pub terms: AdvanceReservation,
    pub state: ReservationState,
    pub version: u64,
    pub changed_at: Millis,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReservationState {
    /// The scheduler has not decided.
    Asked,
    Granted {
        nodes: Vec<Token>,
    },
    Refused,
    Withdrawn,
    Over,
}

impl ReservationState {
    /// The name in the table.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Granted { .. } => "granted",
            Self::Refused => "refused",
            Self::Withdrawn => "withdrawn",
            Self::Over => "over",
        }
    }
}

impl ReservationRow {
    pub(super) fn asked(
        reservation: &Token,
        terms: &AdvanceReservation,
        at: Millis,
        version: u64,
    ) -> Self {
        Self {
            reservation: reservation.clone(),
            terms: terms.clone(),
            state: ReservationState::Asked,
            version,
            changed_at: at,
        }
    }

    pub(super) fn withdraw(&mut self, at: Millis, version: u64) {
        self.state = ReservationState::Withdrawn;
        self.version = version;
        self.changed_at = at;
    }

    /// Applies a decision; `false` when it changes nothing, as when it is about terms that others have replaced since.
    pub(super) fn decide(&mut self, at: Millis, version: u64, nodes: &[Token]) -> bool {
        use ReservationState::{Asked, Granted, Over, Refused, Withdrawn};
        if version != self.version {
            return false;
        }
        self.state = match (&self.state, nodes.is_empty()) {
            (Asked | Granted { .. } | Refused | Over, false) => Granted {
                nodes: nodes.to_vec(),
            },
            (Asked, true) => Refused,
            (Granted { .. }, true) => Over,
            (Withdrawn, _) | (Refused | Over, true) => return false,
        };
        self.changed_at = at;
        true
    }
}
