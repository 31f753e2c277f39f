//! A clone of the state that decides until nothing moves.

use super::first_extra;
use crate::{Config, Scheduler};
use ledger::{Decider, Draft, IllegalEvent, Poison};
use std::{collections::BTreeMap, fmt};
use vocab::fact::{AllocationEnded, AllocationPreempted, RunReported};
use vocab::{
    AllocationNo, At, EndCause, Event, EventNo, Lsn, Millis, PreemptionCause, RunState, Token,
};

/// Rounds of decisions, at the most. Each fills a frame or ends what was told to stop; a state that needs more goes round
/// in circles.
const ROUNDS_MAX: u32 = 1000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhatIfError {
    NoSuchNode(Token),
    NodeExists(Token),
    /// Something still moves after so many rounds of decisions.
    NotSettled {
        rounds: u32,
    },
    /// A decision that its own state refuses, or a state that is not a ledger's.
    Poison(Poison),
}

impl fmt::Display for WhatIfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchNode(node) => write!(f, "there is no node {node}"),
            Self::NodeExists(node) => write!(f, "there is a node {node} already"),
            Self::NotSettled { rounds } => {
                write!(f, "it does not settle within {rounds} rounds of decisions")
            }
            Self::Poison(poison) => poison.fmt(f),
        }
    }
}

impl std::error::Error for WhatIfError {}

impl From<IllegalEvent> for WhatIfError {
    fn from(illegal: IllegalEvent) -> Self {
        Self::Poison(illegal.into())
    }
}

impl From<Poison> for WhatIfError {
    fn from(poison: Poison) -> Self {
        Self::Poison(poison)
    }
}

/// Whom nodes were told to stop and have not reported yet, with their nodes.
pub fn told_to_stop(state: &Scheduler) -> Vec<(AllocationNo, Token)> {
    let holds = state
        .live()
        .iter()
        .filter_map(|(no, live)| Some((*no, live.binding()?)));
    let stopping =
        holds.filter(|(_, binding)| binding.stop.is_some() && binding.reports.is_empty());
    let on = |node: crate::NodeNo| state.nodes()[node.0 as usize].name.clone();
    stopping
        .map(|(no, binding)| (no, on(binding.node)))
        .collect()
}

#[derive(Debug)]
pub struct Course {
    pub state: Scheduler,
    /// Time stands still: no pause ends in one course and not in the other.
    pub now: Millis,
    next_input: EventNo,
    next_own: EventNo,
    /// Who had to go, why and for whom; the last time counts.
    pub preempted: BTreeMap<AllocationNo, (PreemptionCause, Option<AllocationNo>)>,
    pub ended: BTreeMap<AllocationNo, EndCause>,
}

impl Course {
    pub fn of(state: &Scheduler, now: Millis) -> Self {
        Self {
            state: state.clone(),
            now,
            next_input: first_extra(),
            next_own: first_extra(),
            preempted: BTreeMap::new(),
            ended: BTreeMap::new(),
        }
    }

    /// The number that the next observed event will have.
    pub fn next_input(&self) -> EventNo {
        self.next_input
    }

    pub fn observe(&mut self, event: &Event) -> Result<(), IllegalEvent> {
        let at = At {
            lsn: Lsn(0),
            index: 0,
            no: self.next_input,
            now: self.now,
        };
        self.next_input = EventNo(at.no.0 + 1);
        self.state.observe_event(&at, event)
    }

    /// Decides until a round changes nothing and none is due. Stopping runs end before the next round.
    pub fn settle(&mut self) -> Result<(), WhatIfError> {
        for _ in 0..ROUNDS_MAX {
            let mut draft = Draft::new(self.now, self.next_own);
            self.state.decide(&Config::default(), &mut draft);
            if let Some(poison) = draft.poison() {
                return Err(poison.clone().into());
            }
            self.next_own = draft.next_no();
            for event in draft.events() {
                self.note(event);
            }
            let stopping = told_to_stop(&self.state);
            let due = self.state.wake_at().is_some_and(|at| at <= self.now);
            if draft.is_empty() && stopping.is_empty() && !due {
                return Ok(());
            }
            for (allocation, node) in stopping {
                self.observe(&Event::RunReported(RunReported {
                    allocation,
                    node,
                    state: RunState::Stopped,
                    at: self.now,
                    exit: None,
                }))?;
            }
        }
        Err(WhatIfError::NotSettled { rounds: ROUNDS_MAX })
    }

    /// Who had to go, and what is over. Where everybody stands is read from the state.
    fn note(&mut self, event: &Event) {
        if let Event::AllocationPreempted(AllocationPreempted {
            allocation,
            cause,
            by,
            ..
        }) = event
        {
            self.preempted.insert(*allocation, (*cause, *by));
        }
        if let Event::AllocationEnded(AllocationEnded {
            allocation, cause, ..
        }) = event
        {
            self.ended.insert(*allocation, *cause);
        }
    }
}
