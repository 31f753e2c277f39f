//! The life of an allocation: the stages it goes through, and which one follows from a fact. The tables
//! take the stage from here.

use crate::{AllocationNo, WaitingReason, inputs};
use serde::{Deserialize, Serialize};

inputs! {
    /// What becomes of an allocation after it was requested.
    pub enum LifeFact {
        QuotaReserved,
        QuotaWaiting,
        QuotaReclaimed,
        QuotaDenied,
        AllocationReprioritised,
        AllocationPlaced,
        AllocationWaiting,
        AllocationStarted,
        AllocationStopping,
        AllocationPreempted,
        AllocationNominated,
        AllocationRequeued,
        AllocationEnded,
    }
}

impl LifeFact<'_> {
    pub fn allocation(self) -> AllocationNo {
        match self {
            Self::QuotaReserved(fact) => fact.allocation,
            Self::QuotaWaiting(fact) => fact.allocation,
            Self::QuotaReclaimed(fact) => fact.allocation,
            Self::QuotaDenied(fact) => fact.allocation,
            Self::AllocationReprioritised(fact) => fact.allocation,
            Self::AllocationPlaced(fact) => fact.allocation,
            Self::AllocationWaiting(fact) => fact.allocation,
            Self::AllocationStarted(fact) => fact.allocation,
            Self::AllocationStopping(fact) => fact.allocation,
            Self::AllocationPreempted(fact) => fact.allocation,
            Self::AllocationNominated(fact) => fact.allocation,
            Self::AllocationRequeued(fact) => fact.allocation,
            Self::AllocationEnded(fact) => fact.allocation,
        }
    }

    /// Quota and the scheduler decide beside each other: what one has ended, the other may still speak of.
    pub fn may_come_after_the_end(self) -> bool {
        matches!(
            self,
            Self::QuotaReserved(_)
                | Self::QuotaWaiting(_)
                | Self::QuotaReclaimed(_)
                | Self::QuotaDenied(_)
                | Self::AllocationReprioritised(_)
                | Self::AllocationEnded(_)
        )
    }
}

/// Where an allocation is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Stage {
    /// Quota has not granted it, or has taken it back.
    Requested,
    /// It waits for a place.
    Queued,
    /// A node is being cleared for it.
    Nominated,
    /// It has its place on a node.
    Held {
        started: bool,
        stop: Option<Stop>,
    },
    Ended,
    /// By quota.
    Denied,
}

/// Why an allocation has to leave its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Stop {
    /// Cancelled, or its run has gone on for as long as it may: it is not queued again.
    ForGood,
    /// `told` once `AllocationStopping` has followed.
    Preempted { told: bool },
}

impl Stage {
    /// The names of all stages.
    pub const NAMES: [&'static str; 8] = [
        "requested",
        "queued",
        "nominated",
        "placed",
        "running",
        "stopping",
        "ended",
        "denied",
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Queued => "queued",
            Self::Nominated => "nominated",
            Self::Held { stop: Some(_), .. } => "stopping",
            Self::Held { started: false, .. } => "placed",
            Self::Held { started: true, .. } => "running",
            Self::Ended => "ended",
            Self::Denied => "denied",
        }
    }

    /// Nothing follows any more.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Ended | Self::Denied)
    }

    /// The stage after `fact`; none: the fact cannot follow here.
    pub fn next(self, fact: LifeFact<'_>) -> Option<Self> {
        match fact {
            // What it changes is nothing of the stage: the scheduler says what follows.
            LifeFact::QuotaReclaimed(_) | LifeFact::AllocationReprioritised(_) => {
                (!self.is_over()).then_some(self)
            }
            LifeFact::AllocationEnded(_) => (!self.is_over()).then_some(Self::Ended),
            LifeFact::QuotaReserved(_) => self.if_requested(Self::Queued),
            LifeFact::QuotaWaiting(_) => self.if_requested(Self::Requested),
            LifeFact::QuotaDenied(_) => self.if_requested(Self::Denied),
            LifeFact::AllocationWaiting(fact) => self.waits(fact.reason),
            LifeFact::AllocationNominated(_) => (self == Self::Queued).then_some(Self::Nominated),
            LifeFact::AllocationPlaced(_) => {
                let (started, stop) = (false, None);
                matches!(self, Self::Queued | Self::Nominated)
                    .then_some(Self::Held { started, stop })
            }
            LifeFact::AllocationStarted(_)
            | LifeFact::AllocationStopping(_)
            | LifeFact::AllocationPreempted(_)
            | LifeFact::AllocationRequeued(_) => self.on_a_node(fact),
        }
    }

    fn if_requested(self, next: Self) -> Option<Self> {
        (self == Self::Requested).then_some(next)
    }

    fn waits(self, reason: WaitingReason) -> Option<Self> {
        match (self, reason) {
            (Self::Queued | Self::Nominated, WaitingReason::Quota) => Some(Self::Requested),
            // Told once more that its node is being cleared.
            (Self::Nominated, WaitingReason::Nominated) => Some(Self::Nominated),
            (Self::Queued | Self::Nominated, _) => Some(Self::Queued),
            _ => None,
        }
    }

    fn on_a_node(self, fact: LifeFact<'_>) -> Option<Self> {
        let Self::Held { started, stop } = self else {
            return None;
        };
        let stop = match (fact, stop) {
            (LifeFact::AllocationRequeued(_), _) => return Some(Self::Queued),
            (LifeFact::AllocationStarted(_), stop) if !started => {
                let started = true;
                return Some(Self::Held { started, stop });
            }
            (LifeFact::AllocationPreempted(_), None) => Stop::Preempted { told: false },
            (LifeFact::AllocationStopping(_), None) => Stop::ForGood,
            (LifeFact::AllocationStopping(_), Some(Stop::Preempted { told: false })) => {
                Stop::Preempted { told: true }
            }
            _ => return None,
        };
        let stop = Some(stop);
        Some(Self::Held { started, stop })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fact::{Inputs, *};
    use crate::{
        EndCause, Event, Millis, PlacementPolicy, PreemptionCause, QuotaFlags, Refusal, Rule, Token,
    };

    fn event(step: &str) -> Event {
        let allocation = AllocationNo(1);
        let (node, at) = (Token::new("n").unwrap(), Millis(1));
        let refusal = Refusal::new(Rule::QuotaExceeded, "cpu");
        let waiting = |reason| AllocationWaiting {
            allocation,
            reason,
            pending_group: None,
        };
        match step {
            "reserved" => QuotaReserved {
                allocation,
                flags: QuotaFlags::default(),
                models: None,
            }
            .into(),
            "waits for quota" => QuotaWaiting {
                allocation,
                refusal,
            }
            .into(),
            "denied" => QuotaDenied {
                allocation,
                refusal,
            }
            .into(),
            "taken back" => QuotaReclaimed {
                allocation,
                by: None,
            }
            .into(),
            "reprioritised" => AllocationReprioritised {
                allocation,
                priority: 1,
            }
            .into(),
            "waiting" => waiting(WaitingReason::NoRoomNow).into(),
            "without quota" => waiting(WaitingReason::Quota).into(),
            "still nominated" => waiting(WaitingReason::Nominated).into(),
            "nominated" => AllocationNominated {
                allocation,
                node,
                incarnation: 1,
            }
            .into(),
            "placed" => AllocationPlaced {
                allocation,
                node,
                incarnation: 1,
                gpus: Default::default(),
                zones: 0,
                policy: PlacementPolicy::Default,
                candidates: Default::default(),
            }
            .into(),
            "started" => AllocationStarted { allocation, at }.into(),
            "stopping" => AllocationStopping {
                allocation,
                time_limit: false,
            }
            .into(),
            "preempted" => AllocationPreempted {
                allocation,
                cause: PreemptionCause::Priority,
                by: None,
                grace_until: at,
            }
            .into(),
            "requeued" => AllocationRequeued {
                allocation,
                cause: EndCause::Preempted,
                at,
                not_before: at,
                exit: None,
            }
            .into(),
            "ended" => AllocationEnded {
                allocation,
                cause: EndCause::Finished,
                at,
                exit: None,
            }
            .into(),
            other => panic!("{other}"),
        }
    }

    const STEPS: [&str; 15] = [
        "reserved",
        "waits for quota",
        "denied",
        "taken back",
        "reprioritised",
        "waiting",
        "without quota",
        "still nominated",
        "nominated",
        "placed",
        "started",
        "stopping",
        "preempted",
        "requeued",
        "ended",
    ];

    fn take(stage: Stage, step: &str) -> Option<Stage> {
        let event = event(step);
        let fact = LifeFact::of(&event).unwrap();
        assert_eq!(fact.allocation(), AllocationNo(1), "{step}");
        stage.next(fact)
    }

    /// After these steps: its name, and every step that can follow with the name after it.
    fn check(steps: &str, name: &str, following: &str) {
        let mut stage = Stage::Requested;
        for step in steps.split(", ").filter(|step| !step.is_empty()) {
            stage = take(stage, step).unwrap_or_else(|| panic!("{step} of {steps}"));
        }
        assert_eq!(stage.name(), name, "{steps}");
        let follow = STEPS.iter().filter_map(|step| {
            let next = take(stage, step)?;
            Some(format!("{step}: {}", next.name()))
        });
        let anything = "taken back: {}, reprioritised: {}";
        let expected = match stage.is_over() {
            true => String::new(),
            false => format!("{following}, ended: ended"),
        };
        let expected = expected.replace("anything", &anything.replace("{}", name));
        assert_eq!(follow.collect::<Vec<_>>().join(", "), expected, "{steps}");
    }

    #[test]
    fn each_stage_is_followed_by_what_can_follow_it() {
        check(
            "",
            "requested",
            "reserved: queued, waits for quota: requested, denied: denied, anything",
        );
        let waits = "anything, waiting: queued, without quota: requested, ";
        let queued =
            format!("{waits}still nominated: queued, nominated: nominated, placed: placed");
        check("reserved", "queued", &queued);
        check("reserved, waiting", "queued", &queued);
        let nominated = format!("{waits}still nominated: nominated, placed: placed");
        check("reserved, nominated", "nominated", &nominated);
        check(
            "reserved, placed",
            "placed",
            "anything, started: running, stopping: stopping, preempted: stopping, requeued: queued",
        );
        check(
            "reserved, placed, started",
            "running",
            "anything, stopping: stopping, preempted: stopping, requeued: queued",
        );
        check(
            "reserved, placed, preempted",
            "stopping",
            "anything, started: stopping, stopping: stopping, requeued: queued",
        );
        let told = "reserved, placed, started, preempted, stopping";
        check(told, "stopping", "anything, requeued: queued");
        let cancelled = "reserved, placed, stopping";
        check(
            cancelled,
            "stopping",
            "anything, started: stopping, requeued: queued",
        );
        check("denied", "denied", "");
        check("reserved, placed, ended", "ended", "");
    }

    #[test]
    fn every_name_is_listed_once() {
        let held = |started, stop| Stage::Held { started, stop };
        let all = [
            Stage::Requested,
            Stage::Queued,
            Stage::Nominated,
            held(false, None),
            held(true, None),
            held(true, Some(Stop::ForGood)),
            Stage::Ended,
            Stage::Denied,
        ];
        assert_eq!(all.map(Stage::name), Stage::NAMES);
    }
}
