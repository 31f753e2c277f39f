//! The states of an allocation, and the one after a fact.

use super::{fact::Position, life::Life};
use ledger::IllegalEvent;
use serde::{Deserialize, Serialize};
use vocab::fact::{
    AllocationEnded, AllocationNominated, AllocationPlaced, AllocationPreempted,
    AllocationRequeued, AllocationStarted, AllocationWaiting, QuotaDenied, QuotaWaiting,
};
use vocab::{
    AllocationNo, At, EndCause, GpuShare, LineNo, Millis, PreemptionCause, Refusal, Token,
    WaitingReason,
};

/// The states carry what they need, so that no row can be written that could not be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AllocationState {
    /// Quota has not granted it, or has taken it back.
    Requested {
        /// What it waits for, once quota has said so.
        refusal: Option<Refusal>,
    },
    Queued {
        /// None while it was never tried since it came into the queue.
        reason: Option<WaitingReason>,
        line: Option<LineNo>,
        /// In the queue, or waiting for this reason, since then.
        since: Millis,
        /// The end of a pause.
        not_before: Option<Millis>,
    },
    /// The node is being cleared for it.
    Nominated {
        node: Token,
        since: Millis,
    },
    Held {
        place: Place,
        stop: Option<Stop>,
    },
    Ended {
        /// None when it ended in the queue or before.
        place: Option<Place>,
        cause: EndCause,
        at: Millis,
    },
    Denied {
        refusal: Refusal,
        at: Millis,
    },
}

/// Where it runs, or ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub node: Token,
    pub gpus: Vec<GpuShare>,
    pub placed_at: Millis,
    pub started_at: Option<Millis>,
}

/// Why it has to leave its node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stop {
    Cancelled,
    /// `told` once `AllocationStopping` has followed.
    Preempted {
        preemption: Preemption,
        told: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preemption {
    pub position: Position,
    pub cause: PreemptionCause,
    pub by: Option<AllocationNo>,
    pub at: Millis,
    pub grace_until: Millis,
}

impl AllocationState {
    /// The name in the table.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Requested { .. } => "requested",
            Self::Queued { .. } => "queued",
            Self::Nominated { .. } => "nominated",
            Self::Held { place, stop } => match (stop, place.started_at) {
                (Some(_), _) => "stopping",
                (None, None) => "placed",
                (None, Some(_)) => "running",
            },
            Self::Ended { .. } => "ended",
            Self::Denied { .. } => "denied",
        }
    }

    pub fn place(&self) -> Option<&Place> {
        match self {
            Self::Held { place, .. } => Some(place),
            Self::Ended { place, .. } => place.as_ref(),
            Self::Requested { .. }
            | Self::Queued { .. }
            | Self::Nominated { .. }
            | Self::Denied { .. } => None,
        }
    }

    pub fn preemption(&self) -> Option<&Preemption> {
        match self {
            Self::Held {
                stop: Some(Stop::Preempted { preemption, .. }),
                ..
            } => Some(preemption),
            Self::Held {
                stop: Some(Stop::Cancelled) | None,
                ..
            }
            | Self::Requested { .. }
            | Self::Queued { .. }
            | Self::Nominated { .. }
            | Self::Ended { .. }
            | Self::Denied { .. } => None,
        }
    }

    /// Why quota does not grant it.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Requested { refusal } => refusal.as_ref(),
            Self::Denied { refusal, .. } => Some(refusal),
            Self::Queued { .. }
            | Self::Nominated { .. }
            | Self::Held { .. }
            | Self::Ended { .. } => None,
        }
    }

    /// The state after `event`.
    pub(super) fn next(&self, at: &At, life: Life<'_>) -> Result<Self, IllegalEvent> {
        use AllocationState::{Denied, Ended, Held, Nominated, Queued, Requested};
        Ok(match (self, life) {
            (Requested { .. }, Life::QuotaReserved(_)) => Queued {
                reason: None,
                line: None,
                since: at.now,
                not_before: None,
            },
            (Requested { .. }, Life::QuotaWaiting(QuotaWaiting { refusal, .. })) => Requested {
                refusal: Some(refusal.clone()),
            },
            (Requested { .. }, Life::QuotaDenied(QuotaDenied { refusal, .. })) => Denied {
                refusal: refusal.clone(),
                at: at.now,
            },
            // The scheduler will say what that does to it.
            (
                Requested { .. } | Queued { .. } | Nominated { .. } | Held { .. },
                Life::QuotaReclaimed(_),
            )
            | (
                Requested { .. } | Queued { .. } | Nominated { .. } | Held { .. },
                Life::AllocationReprioritised(_),
            ) => self.clone(),
            (
                Queued { .. } | Nominated { .. },
                Life::AllocationWaiting(AllocationWaiting { reason, .. }),
            ) if *reason == WaitingReason::Quota => Requested { refusal: None },
            (
                Queued { not_before, .. },
                Life::AllocationWaiting(AllocationWaiting { reason, line, .. }),
            ) => Queued {
                reason: Some(*reason),
                line: *line,
                since: at.now,
                not_before: not_before.filter(|_| *reason == WaitingReason::Backoff),
            },
            // Told once more that its node is being cleared.
            (Nominated { .. }, Life::AllocationWaiting(AllocationWaiting { reason, .. }))
                if *reason == WaitingReason::Nominated =>
            {
                self.clone()
            }
            (Nominated { .. }, Life::AllocationWaiting(AllocationWaiting { reason, line, .. })) => {
                Queued {
                    reason: Some(*reason),
                    line: *line,
                    since: at.now,
                    not_before: None,
                }
            }
            (Queued { .. }, Life::AllocationNominated(AllocationNominated { node, .. })) => {
                Nominated {
                    node: node.clone(),
                    since: at.now,
                }
            }
            (
                Queued { .. } | Nominated { .. },
                Life::AllocationPlaced(AllocationPlaced { node, gpus, .. }),
            ) => Held {
                place: Place {
                    node: node.clone(),
                    gpus: gpus.clone(),
                    placed_at: at.now,
                    started_at: None,
                },
                stop: None,
            },
            (Held { place, stop }, Life::AllocationStarted(AllocationStarted { at, .. }))
                if place.started_at.is_none() =>
            {
                Held {
                    place: Place {
                        started_at: Some(*at),
                        ..place.clone()
                    },
                    stop: stop.clone(),
                }
            }
            (Held { place, stop: None }, Life::AllocationStopping(_)) => Held {
                place: place.clone(),
                stop: Some(Stop::Cancelled),
            },
            (
                Held { place, stop: None },
                Life::AllocationPreempted(AllocationPreempted {
                    cause,
                    by,
                    grace_until,
                    ..
                }),
            ) => Held {
                place: place.clone(),
                stop: Some(Stop::Preempted {
                    preemption: Preemption {
                        position: Position::of(at),
                        cause: *cause,
                        by: *by,
                        at: at.now,
                        grace_until: *grace_until,
                    },
                    told: false,
                }),
            },
            (
                Held {
                    place,
                    stop: Some(Stop::Preempted { preemption, told }),
                },
                Life::AllocationStopping(_),
            ) if !told => Held {
                place: place.clone(),
                stop: Some(Stop::Preempted {
                    preemption: preemption.clone(),
                    told: true,
                }),
            },
            (Held { .. }, Life::AllocationRequeued(AllocationRequeued { not_before, .. })) => {
                let not_before = (*not_before > at.now).then_some(*not_before);
                Queued {
                    reason: not_before.map(|_| WaitingReason::Backoff),
                    line: None,
                    since: at.now,
                    not_before,
                }
            }
            (
                Requested { .. } | Queued { .. } | Nominated { .. } | Held { .. },
                Life::AllocationEnded(AllocationEnded { cause, at, .. }),
            ) => Ended {
                place: self.place().cloned(),
                cause: *cause,
                at: *at,
            },
            (
                Requested { .. }
                | Queued { .. }
                | Nominated { .. }
                | Held { .. }
                | Ended { .. }
                | Denied { .. },
                _,
            ) => return Err(IllegalEvent::new(self.name(), &life)),
        })
    }
}
