//! Allocations as rows: where each stands, and since when. Pure.

use ledger::{IllegalEvent, Projection};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vocab::{
    AllocationNo, AllocationSpec, At, EndCause, Event, GpuShare, Lsn, Millis, Token, WaitingReason,
};

/// An allocation as it stands after the event. The states of the queue, of the run and of the end carry what they need, so
/// that no row can be written that could not be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationRow {
    pub allocation: AllocationNo,
    pub tenant: Token,
    pub spec: AllocationSpec,
    pub requested_at: Millis,
    pub state: AllocationState,
    /// Ledger position of the last change.
    pub lsn: Lsn,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AllocationState {
    /// Quota has not decided.
    Requested,
    Queued {
        /// None while it was never tried.
        reason: Option<WaitingReason>,
        /// In the queue, or waiting for this reason, since then.
        since: Millis,
    },
    Held {
        place: Place,
        phase: Phase,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// On a node; running once it has started.
    Going,
    /// A cancel is under way.
    Stopping,
}

impl AllocationState {
    /// The name in the table.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Queued { .. } => "queued",
            Self::Held { place, phase } => match (phase, place.started_at) {
                (Phase::Stopping, _) => "stopping",
                (Phase::Going, None) => "placed",
                (Phase::Going, Some(_)) => "running",
            },
            Self::Ended { .. } => "ended",
            Self::Denied { .. } => "denied",
        }
    }

    pub fn place(&self) -> Option<&Place> {
        match self {
            Self::Held { place, .. } => Some(place),
            Self::Ended { place, .. } => place.as_ref(),
            Self::Requested | Self::Queued { .. } | Self::Denied { .. } => None,
        }
    }
}

/// Folds the ledger into allocations; holds those that have not ended.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct WarmProjection {
    live: BTreeMap<AllocationNo, AllocationRow>,
}

impl WarmProjection {
    /// The state after `event`, which is about a live allocation.
    fn next(
        state: &AllocationState,
        at: &At,
        event: &Event,
    ) -> Result<AllocationState, IllegalEvent> {
        use AllocationState::{Denied, Ended, Held, Queued, Requested};
        Ok(match (state, event) {
            (Requested, Event::QuotaReserved { .. }) => Queued {
                reason: None,
                since: at.now,
            },
            (Requested, Event::QuotaDenied { .. }) => Denied { at: at.now },
            (Queued { .. }, Event::AllocationWaiting { reason, .. }) => Queued {
                reason: Some(*reason),
                since: at.now,
            },
            (Queued { .. }, Event::AllocationPlaced { node, gpus, .. }) => Held {
                place: Place {
                    node: node.clone(),
                    gpus: gpus.clone(),
                    placed_at: at.now,
                    started_at: None,
                },
                phase: Phase::Going,
            },
            (Held { place, phase }, Event::AllocationStarted { at, .. })
                if place.started_at.is_none() =>
            {
                Held {
                    place: Place {
                        started_at: Some(*at),
                        ..place.clone()
                    },
                    phase: *phase,
                }
            }
            (
                Held {
                    place,
                    phase: Phase::Going,
                },
                Event::AllocationStopping { .. },
            ) => Held {
                place: place.clone(),
                phase: Phase::Stopping,
            },
            (Requested | Queued { .. } | Held { .. }, Event::AllocationEnded { cause, at, .. }) => {
                Ended {
                    place: state.place().cloned(),
                    cause: *cause,
                    at: *at,
                }
            }
            (Requested | Queued { .. } | Held { .. } | Ended { .. } | Denied { .. }, _) => {
                return Err(IllegalEvent::new(state.name(), event));
            }
        })
    }

    fn turn(
        &mut self,
        allocation: AllocationNo,
        at: &At,
        event: &Event,
        out: &mut Vec<AllocationRow>,
    ) -> Result<(), IllegalEvent> {
        let Some(row) = self.live.get_mut(&allocation) else {
            return match event {
                // Quota and scheduler decide beside each other: what one has ended, the other may still decide on.
                Event::QuotaReserved { .. }
                | Event::QuotaDenied { .. }
                | Event::AllocationEnded { .. } => Ok(()),
                _ => Err(IllegalEvent::new("not live", event)),
            };
        };
        row.state = Self::next(&row.state, at, event)?;
        row.lsn = at.lsn;
        out.push(row.clone());
        if let AllocationState::Ended { .. } | AllocationState::Denied { .. } = row.state {
            self.live.remove(&allocation);
        }
        Ok(())
    }
}

impl Projection for WarmProjection {
    type Change = AllocationRow;

    const NAME: &'static str = "scheduler";
    const STATE_VERSION: u32 = 1;

    fn project(
        &mut self,
        at: &At,
        event: &Event,
        out: &mut Vec<AllocationRow>,
    ) -> Result<(), IllegalEvent> {
        match event {
            Event::AllocationRequested { operation, spec } => {
                let row = AllocationRow {
                    allocation: AllocationNo(at.no.0),
                    tenant: operation.tenant.clone(),
                    spec: spec.clone(),
                    requested_at: at.now,
                    state: AllocationState::Requested,
                    lsn: at.lsn,
                };
                out.push(row.clone());
                self.live.insert(row.allocation, row);
                Ok(())
            }
            Event::QuotaReserved { allocation }
            | Event::QuotaDenied { allocation, .. }
            | Event::AllocationPlaced { allocation, .. }
            | Event::AllocationWaiting { allocation, .. }
            | Event::AllocationStarted { allocation, .. }
            | Event::AllocationStopping { allocation }
            | Event::AllocationEnded { allocation, .. } => self.turn(*allocation, at, event, out),
            // Changes no allocation.
            Event::AdminApplied { .. }
            | Event::CancelRequested { .. }
            | Event::OperationRefused { .. }
            | Event::OperationRepeated { .. }
            | Event::OperationsForgotten { .. }
            | Event::QuotaReleased { .. }
            | Event::CancelDecided { .. }
            | Event::NodeRegistered { .. }
            | Event::NodeReady { .. }
            | Event::NodeLost { .. }
            | Event::RunReported { .. } => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vocab::{EventNo, Operation, Refusal, Rule};

    fn token(text: &str) -> Token {
        Token::new(text).unwrap()
    }

    /// A fact about allocation 1.
    fn event(step: &str) -> Event {
        let allocation = AllocationNo(1);
        match step {
            "requested" => Event::AllocationRequested {
                operation: Operation {
                    tenant: token("t"),
                    operation_id: None,
                    digest: [0; 16],
                    reply_to: None,
                    trace: None,
                },
                spec: AllocationSpec {
                    job_set: token("j"),
                    name: None,
                    priority: 0,
                    cpu_milli: 1,
                    memory_bytes: 1,
                    gpu: None,
                },
            },
            "reserved" => Event::QuotaReserved { allocation },
            "denied" => Event::QuotaDenied {
                allocation,
                refusal: Refusal::new(Rule::QuotaExceeded, "cpu"),
            },
            "waiting" => Event::AllocationWaiting {
                allocation,
                reason: WaitingReason::NoRoomNow,
            },
            "placed" => Event::AllocationPlaced {
                allocation,
                node: token("n"),
                incarnation: 1,
                gpus: Vec::new(),
            },
            "started" => Event::AllocationStarted {
                allocation,
                at: Millis(100),
            },
            "stopping" => Event::AllocationStopping { allocation },
            "ended" => Event::AllocationEnded {
                allocation,
                cause: EndCause::Finished,
                at: Millis(200),
            },
            "released" => Event::QuotaReleased { allocation },
            other => panic!("{other}"),
        }
    }

    /// Steps, one millisecond apart; then the row, how many rows there were, and whether it is still held.
    fn check(steps: &str, expected: &str) {
        let mut projection = WarmProjection::default();
        let mut rows = Vec::new();
        let mut illegal = None;
        for (i, step) in steps.split(", ").enumerate() {
            let at = At {
                lsn: Lsn(i as u64 + 1),
                index: 0,
                no: EventNo(1),
                now: Millis(i as i64 + 1),
            };
            if let Err(error) = projection.project(&at, &event(step), &mut rows) {
                illegal = Some(error.state);
                break;
            }
        }
        let mut found = match rows.last() {
            None => "nothing".to_owned(),
            Some(row) => {
                let place = row.state.place().map_or(String::new(), |place| {
                    let started = place
                        .started_at
                        .map_or(String::new(), |at| format!(" started {}", at.0));
                    format!(" placed {}{started}", place.placed_at.0)
                });
                let live = if projection.live.is_empty() {
                    ""
                } else {
                    ", live"
                };
                format!(
                    "{}{place}, lsn {}, rows {}{live}",
                    row.state.name(),
                    row.lsn.0,
                    rows.len()
                )
            }
        };
        if let Some(state) = illegal {
            found = format!("illegal when {state}");
        }
        assert_eq!(found, expected, "{steps}");
    }

    #[test]
    fn an_allocation_lives_and_ends() {
        check("requested", "requested, lsn 1, rows 1, live");
        check("requested, reserved", "queued, lsn 2, rows 2, live");
        check("requested, denied", "denied, lsn 2, rows 2");
        check(
            "requested, reserved, waiting, waiting",
            "queued, lsn 4, rows 4, live",
        );
        check(
            "requested, reserved, placed",
            "placed placed 3, lsn 3, rows 3, live",
        );
        check(
            "requested, reserved, placed, started",
            "running placed 3 started 100, lsn 4, rows 4, live",
        );
        check(
            "requested, reserved, placed, started, stopping, ended, released",
            "ended placed 3 started 100, lsn 6, rows 6",
        );
        check(
            "requested, reserved, placed, stopping, started",
            "stopping placed 3 started 100, lsn 5, rows 5, live",
        );
        check(
            "requested, reserved, placed, ended",
            "ended placed 3, lsn 4, rows 4",
        );
    }

    #[test]
    fn quota_and_cancel_may_cross() {
        check("requested, ended", "ended, lsn 2, rows 2");
        check(
            "requested, ended, reserved, released",
            "ended, lsn 2, rows 2",
        );
        check("requested, ended, denied", "ended, lsn 2, rows 2");
        check("requested, denied, ended", "denied, lsn 2, rows 2");
        check("requested, reserved, ended", "ended, lsn 3, rows 3");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        check("placed", "illegal when not live");
        check("requested, placed", "illegal when requested");
        check("requested, reserved, reserved", "illegal when queued");
        check("requested, reserved, started", "illegal when queued");
        check("requested, reserved, placed, placed", "illegal when placed");
        check(
            "requested, reserved, placed, started, started",
            "illegal when running",
        );
        check(
            "requested, reserved, placed, stopping, stopping",
            "illegal when stopping",
        );
        check("requested, ended, started", "illegal when not live");
    }
}
