//! One allocation: where it stands, since when, and what each fact makes of that.

use super::fact::{Over, Position, PreemptionRow};
use ledger::IllegalEvent;
use serde::{Deserialize, Serialize};
use vocab::{
    AllocationNo, AllocationSpec, At, EndCause, Event, GpuShare, LineNo, Lsn, Millis,
    PreemptionCause, Token, WaitingReason,
};

/// An allocation as it stands after the event. The states carry what they need, so that no row can be written that could
/// not be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationRow {
    pub allocation: AllocationNo,
    pub tenant: Token,
    pub spec: AllocationSpec,
    pub requested_at: Millis,
    pub state: AllocationState,
    /// How often it was queued again.
    pub attempts: u32,
    /// What ended the run before the last time.
    pub last_cause: Option<EndCause>,
    /// Ledger position of the last change.
    pub lsn: Lsn,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AllocationState {
    /// Quota has not decided.
    Requested,
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
    Preempted { preemption: Preemption, told: bool },
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
            Self::Requested => "requested",
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
            Self::Requested | Self::Queued { .. } | Self::Nominated { .. } | Self::Denied { .. } => {
                None
            }
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
            | Self::Requested
            | Self::Queued { .. }
            | Self::Nominated { .. }
            | Self::Ended { .. }
            | Self::Denied { .. } => None,
        }
    }

    /// The state after `event`.
    fn next(&self, at: &At, event: &Event) -> Result<Self, IllegalEvent> {
        use AllocationState::{Denied, Ended, Held, Nominated, Queued, Requested};
        Ok(match (self, event) {
            (Requested, Event::QuotaReserved { .. }) => Queued {
                reason: None,
                line: None,
                since: at.now,
                not_before: None,
            },
            (Requested, Event::QuotaDenied { .. }) => Denied { at: at.now },
            (Queued { not_before, .. }, Event::AllocationWaiting { reason, line, .. }) => Queued {
                reason: Some(*reason),
                line: *line,
                since: at.now,
                not_before: not_before.filter(|_| *reason == WaitingReason::Backoff),
            },
            // Told once more that its node is being cleared.
            (Nominated { .. }, Event::AllocationWaiting { reason, .. })
                if *reason == WaitingReason::Nominated =>
            {
                self.clone()
            }
            (Nominated { .. }, Event::AllocationWaiting { reason, line, .. }) => Queued {
                reason: Some(*reason),
                line: *line,
                since: at.now,
                not_before: None,
            },
            (Queued { .. }, Event::AllocationNominated { node, .. }) => Nominated {
                node: node.clone(),
                since: at.now,
            },
            (Queued { .. } | Nominated { .. }, Event::AllocationPlaced { node, gpus, .. }) => Held {
                place: Place {
                    node: node.clone(),
                    gpus: gpus.clone(),
                    placed_at: at.now,
                    started_at: None,
                },
                stop: None,
            },
            (Held { place, stop }, Event::AllocationStarted { at, .. })
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
            (Held { place, stop: None }, Event::AllocationStopping { .. }) => Held {
                place: place.clone(),
                stop: Some(Stop::Cancelled),
            },
            (
                Held { place, stop: None },
                Event::AllocationPreempted {
                    cause,
                    by,
                    grace_until,
                    ..
                },
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
                Event::AllocationStopping { .. },
            ) if !told => Held {
                place: place.clone(),
                stop: Some(Stop::Preempted {
                    preemption: preemption.clone(),
                    told: true,
                }),
            },
            (Held { .. }, Event::AllocationRequeued { not_before, .. }) => {
                let not_before = (*not_before > at.now).then_some(*not_before);
                Queued {
                    reason: not_before.map(|_| WaitingReason::Backoff),
                    line: None,
                    since: at.now,
                    not_before,
                }
            }
            (
                Requested | Queued { .. } | Nominated { .. } | Held { .. },
                Event::AllocationEnded { cause, at, .. },
            ) => Ended {
                place: self.place().cloned(),
                cause: *cause,
                at: *at,
            },
            (
                Requested
                | Queued { .. }
                | Nominated { .. }
                | Held { .. }
                | Ended { .. }
                | Denied { .. },
                _,
            ) => return Err(IllegalEvent::new(self.name(), event)),
        })
    }
}

impl AllocationRow {
    pub(super) fn requested(at: &At, tenant: &Token, spec: &AllocationSpec) -> Self {
        Self {
            allocation: AllocationNo(at.no.0),
            tenant: tenant.clone(),
            spec: spec.clone(),
            requested_at: at.now,
            state: AllocationState::Requested,
            attempts: 0,
            last_cause: None,
            lsn: at.lsn,
        }
    }

    /// The queue that it is in: where it names none, the tenant's own.
    pub fn queue(&self) -> &Token {
        self.spec.queue.as_ref().unwrap_or(&self.tenant)
    }

    /// Applies a fact about it. What comes back is the row of a preemption that has begun, or is over.
    pub(super) fn turn(
        &mut self,
        at: &At,
        event: &Event,
    ) -> Result<Option<PreemptionRow>, IllegalEvent> {
        let next = self.state.next(at, event)?;
        let preemption = match event {
            Event::AllocationPreempted { .. } => self.preempted(next.preemption(), next.place(), None),
            Event::AllocationRequeued { cause, at, .. } => {
                self.attempts = self.attempts.saturating_add(1);
                self.last_cause = Some(*cause);
                let over = Over::new(*cause, *at, true);
                self.preempted(self.state.preemption(), self.state.place(), Some(over))
            }
            Event::AllocationEnded { cause, at, .. } => {
                let over = Over::new(*cause, *at, false);
                self.preempted(self.state.preemption(), self.state.place(), Some(over))
            }
            // Begins no preemption, and ends none; most are not about an allocation at all.
            Event::QuotaReserved { .. }
            | Event::QuotaDenied { .. }
            | Event::AllocationPlaced { .. }
            | Event::AllocationWaiting { .. }
            | Event::AllocationNominated { .. }
            | Event::AllocationStarted { .. }
            | Event::AllocationStopping { .. }
            | Event::AdminApplied { .. }
            | Event::AllocationRequested { .. }
            | Event::CancelRequested { .. }
            | Event::OperationRefused { .. }
            | Event::OperationRepeated { .. }
            | Event::OperationsForgotten { .. }
            | Event::QuotaReleased { .. }
            | Event::LineExplained { .. }
            | Event::ReservationDecided { .. }
            | Event::CancelDecided { .. }
            | Event::NodeRegistered { .. }
            | Event::NodeReady { .. }
            | Event::NodeLost { .. }
            | Event::RunReported { .. } => None,
        };
        self.state = next;
        self.lsn = at.lsn;
        Ok(preemption)
    }

    fn preempted(
        &self,
        preemption: Option<&Preemption>,
        place: Option<&Place>,
        over: Option<Over>,
    ) -> Option<PreemptionRow> {
        Some(PreemptionRow {
            allocation: self.allocation,
            tenant: self.tenant.clone(),
            queue: self.queue().clone(),
            node: place?.node.clone(),
            preemption: preemption?.clone(),
            over,
            amounts: vocab::ResourceKind::ALL.map(|kind| self.spec.amount(kind)),
        })
    }
}
