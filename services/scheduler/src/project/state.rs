//! An allocation's stage with what is known of it there.

use super::entry::Position;
use ledger::IllegalEvent;
use serde::{Deserialize, Serialize};
use vocab::{
    AllocationNo, At, EndCause, GpuShares, LifeFact, Millis, PendingGroupNo, PreemptionCause,
    Refusal, RunExit, Stage, Token, WaitingReason,
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
        pending_group: Option<PendingGroupNo>,
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
        exit: Option<RunExit>,
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
    pub gpus: GpuShares,
    pub placed_at: Millis,
    pub started_at: Option<Millis>,
}

/// Why it has to leave its node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stop {
    /// Cancelled, or its run has gone on for as long as it may: it is not queued again.
    ForGood,
    /// `told` once `AllocationStopping` has followed.
    Preempted { preemption: Preemption, told: bool },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preemption {
    pub position: Position,
    pub cause: PreemptionCause,
    /// Its own when it was decided, as what follows.
    pub priority: i32,
    pub by: Option<AllocationNo>,
    /// Of the one that it goes for.
    pub by_priority: Option<i32>,
    pub at: Millis,
    pub grace_until: Millis,
}

impl Default for AllocationState {
    fn default() -> Self {
        Self::Requested { refusal: None }
    }
}

impl AllocationState {
    pub fn stage(&self) -> Stage {
        match self {
            Self::Requested { .. } => Stage::Requested,
            Self::Queued { .. } => Stage::Queued,
            Self::Nominated { .. } => Stage::Nominated,
            Self::Held { place, stop } => Stage::Held {
                started: place.started_at.is_some(),
                stop: stop.as_ref().map(|stop| match stop {
                    Stop::ForGood => vocab::Stop::ForGood,
                    Stop::Preempted { told, .. } => vocab::Stop::Preempted { told: *told },
                }),
            },
            Self::Ended { .. } => Stage::Ended,
            Self::Denied { .. } => Stage::Denied,
        }
    }

    /// Returns whether it waits: for a place, or for quota that was refused for now.
    pub fn waits(&self) -> bool {
        match self {
            Self::Queued { .. } | Self::Nominated { .. } => true,
            Self::Requested { refusal } => refusal.is_some(),
            Self::Held { .. } | Self::Ended { .. } | Self::Denied { .. } => false,
        }
    }

    /// Name of the state in the tables.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Requested { refusal: Some(_) } => "awaiting_quota",
            Self::Requested { refusal: None }
            | Self::Queued { .. }
            | Self::Nominated { .. }
            | Self::Held { .. }
            | Self::Ended { .. }
            | Self::Denied { .. } => self.stage().name(),
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
                stop: Some(Stop::ForGood) | None,
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

    /// The stage after `fact`.
    pub(super) fn stage_after(&self, fact: LifeFact<'_>) -> Result<Stage, IllegalEvent> {
        let stage = self.stage();
        (stage.next(fact)).ok_or_else(|| IllegalEvent::new(stage.name(), &fact))
    }

    /// The state after `fact`, whose stage is `next`. The priorities are its own, and that of the one that it has to go for.
    pub(super) fn turned(
        self,
        next: Stage,
        at: &At,
        fact: LifeFact<'_>,
        priorities: (i32, Option<i32>),
    ) -> Self {
        match fact {
            LifeFact::QuotaReclaimed(_) | LifeFact::AllocationReprioritised(_) => self,
            LifeFact::AllocationWaiting(fact) => {
                self.waiting(next, at, fact.reason, fact.pending_group)
            }
            LifeFact::AllocationNominated(fact) => Self::Nominated {
                node: fact.node.clone(),
                since: at.now,
            },
            LifeFact::AllocationPlaced(fact) => Self::Held {
                place: Place {
                    node: fact.node.clone(),
                    gpus: fact.gpus.clone(),
                    placed_at: at.now,
                    started_at: None,
                },
                stop: None,
            },
            LifeFact::AllocationEnded(fact) => Self::Ended {
                place: self.into_place(),
                cause: fact.cause,
                at: fact.at,
                exit: fact.exit,
            },
            LifeFact::QuotaReserved(_) => Self::queued(at, None),
            LifeFact::AllocationRequeued(fact) => {
                Self::queued(at, (fact.not_before > at.now).then_some(fact.not_before))
            }
            LifeFact::QuotaWaiting(fact) => Self::Requested {
                refusal: Some(fact.refusal.clone()),
            },
            LifeFact::QuotaDenied(fact) => Self::Denied {
                refusal: fact.refusal.clone(),
                at: at.now,
            },
            LifeFact::AllocationStarted(_)
            | LifeFact::AllocationStopping(_)
            | LifeFact::AllocationPreempted(_) => self.on_its_node(at, fact, priorities),
        }
    }

    fn into_place(self) -> Option<Place> {
        match self {
            Self::Held { place, .. } => Some(place),
            Self::Ended { place, .. } => place,
            Self::Requested { .. }
            | Self::Queued { .. }
            | Self::Nominated { .. }
            | Self::Denied { .. } => None,
        }
    }

    /// Into the queue, and not to be tried before the end of a pause.
    fn queued(at: &At, not_before: Option<Millis>) -> Self {
        Self::Queued {
            reason: not_before.map(|_| WaitingReason::Backoff),
            pending_group: None,
            since: at.now,
            not_before,
        }
    }

    fn waiting(
        self,
        next: Stage,
        at: &At,
        reason: WaitingReason,
        pending_group: Option<PendingGroupNo>,
    ) -> Self {
        match (next, self) {
            (Stage::Requested, _) => Self::Requested { refusal: None },
            (Stage::Nominated, before) => before,
            (_, before) => {
                let pause = match before {
                    Self::Queued { not_before, .. } => not_before,
                    _ => None,
                };
                Self::Queued {
                    reason: Some(reason),
                    pending_group,
                    since: at.now,
                    not_before: pause.filter(|_| reason == WaitingReason::Backoff),
                }
            }
        }
    }

    /// The same place, and what has happened there.
    fn on_its_node(
        mut self,
        at: &At,
        fact: LifeFact<'_>,
        (priority, by_priority): (i32, Option<i32>),
    ) -> Self {
        let Self::Held { place, stop } = &mut self else {
            return self;
        };
        match (fact, &mut *stop) {
            (LifeFact::AllocationStarted(fact), _) => place.started_at = Some(fact.at),
            (LifeFact::AllocationPreempted(fact), _) => {
                let preemption = Preemption {
                    position: Position::of(at),
                    cause: fact.cause,
                    priority,
                    by: fact.by,
                    by_priority,
                    at: at.now,
                    grace_until: fact.grace_until,
                };
                let told = false;
                *stop = Some(Stop::Preempted { preemption, told });
            }
            (_, Some(Stop::Preempted { told, .. })) => *told = true,
            (_, stop) => *stop = Some(Stop::ForGood),
        }
        self
    }
}
