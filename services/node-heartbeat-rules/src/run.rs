//! Runs: what is assigned to a node, and what its agent reports of it.

use super::{Assignment, Effect, Node, Nodes, Origin, Requested, Run};
use ledger::{Draft, IllegalEvent};
use std::{collections::BTreeMap, fmt};
use vocab::fact::{AllocationPlaced, RunReported};
use vocab::{
    AllocationNo, AllocationSpec, At, EncodedSpec, EncodedSpecs, Millis, RunExit, RunExitReason,
    RunState, Token,
};

/// What an agent says of one of its runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    pub allocation: AllocationNo,
    pub state: RunState,
    pub at: Millis,
    /// Of the assignment that it speaks of; 0 when the agent does not say.
    pub revision: u64,
    pub exit: Option<RunExit>,
}

/// What an agent gets of a specification. Once it is placed, nobody asks where it may be and what it waited for.
pub(super) fn spec(specs: &mut EncodedSpecs, asked: &AllocationSpec) -> EncodedSpec {
    if asked.rules.is_none() && asked.depends_on.is_empty() {
        return specs.of(asked);
    }
    specs.of(&AllocationSpec {
        rules: None,
        depends_on: Vec::new(),
        ..asked.clone()
    })
}

/// An assignment as the agent gets it.
fn told(origins: &BTreeMap<AllocationNo, Origin>, assignment: &Assignment) -> Assignment {
    let origin = origins.get(&assignment.allocation);
    Assignment {
        origin: origin.cloned().map(Box::new),
        ..assignment.clone()
    }
}

/// Below the level of its reason a run that the agent has ended was killed.
fn of_level(exit: RunExit, draft: &Draft) -> RunExit {
    let reason = exit.reason.map(|reason| match draft.is_at(reason.since()) {
        true => reason,
        false => RunExitReason::Killed,
    });
    RunExit { reason, ..exit }
}

/// Records a report that moves the run on. A repeated or late one, or one of another life of the agent, changes nothing.
pub(super) fn decide(
    state: &mut Nodes,
    node: &Token,
    boot: u64,
    report: &Report,
    draft: &mut Draft,
) {
    let current = state
        .nodes
        .get(node)
        .is_some_and(|known| known.ready && known.boot == boot);
    let Some(run) = state.runs.get(&report.allocation) else {
        return;
    };
    let moves_on = match report.state {
        RunState::Started => run.started.is_none() && !run.over,
        RunState::Finished | RunState::Failed | RunState::Rejected | RunState::Stopped => !run.over,
    };
    if !current || run.node != *node || !moves_on || !run.is_meant(report) {
        return;
    }
    let low = run.started.unwrap_or(run.assignment.placed);
    let at = report.at.between(low, draft.now.max(low));
    let said = match report.state {
        RunState::Started => RunState::Started,
        _ if run.knows_of_its_stop(report) => RunState::Stopped,
        state => state,
    };
    let reported = RunReported {
        allocation: report.allocation,
        node: node.clone(),
        state: said,
        at,
        exit: report.exit.map(|exit| of_level(exit, draft)),
    };
    draft.emit(state, reported);
}

impl Run {
    pub(super) fn requested(self, again: bool) -> Requested {
        Requested {
            tenant: self.assignment.tenant,
            spec: self.assignment.spec,
            again,
        }
    }

    /// Whether the report speaks of this run and not of a former one of the allocation on the same node. An agent that
    /// does not say by the revision must not put a run before its placement; a clock behind would do that to a first run,
    /// too, but there is none to confuse it with.
    fn is_meant(&self, report: &Report) -> bool {
        match report.revision {
            0 => !self.again || report.at >= self.assignment.placed,
            revision => revision >= self.began,
        }
    }

    /// Whether the agent had been told to stop the run when it reported. An agent that does not say what it had seen may
    /// have been. One that has seen more of this run than is known here was told by a leader that reads faster.
    fn knows_of_its_stop(&self, report: &Report) -> bool {
        match report.revision {
            0 => self.assignment.stop,
            revision if self.assignment.stop => revision >= self.assignment.revision,
            revision => revision > self.assignment.revision,
        }
    }
}

impl Nodes {
    /// Whether an allocation may have been placed on the node without that having been read here: an agent that another
    /// leader has told of it can be faster than this one's reading, and its report comes only once.
    pub(super) fn may_be_placed(&self, allocation: AllocationNo, node: &Token) -> bool {
        // Once its run is over it may have been queued again.
        if let Some(run) = self.runs.get(&allocation) {
            return run.over || run.node != *node;
        }
        let newer = |last: Option<AllocationNo>| last.is_none_or(|last| last < allocation);
        let unheard = newer(self.requested.last_key()) && newer(self.runs.last_key());
        self.requested.contains_key(&allocation) || unheard
    }

    /// A placement on a node that was lost or forgotten meanwhile is void; the scheduler learns of the loss and decides again.
    pub(super) fn assign(&mut self, at: &At, fact: &AllocationPlaced) -> Result<(), IllegalEvent> {
        let (allocation, node, incarnation) = (fact.allocation, &fact.node, fact.incarnation);
        if !self.requested.contains_key(&allocation) {
            return Err(IllegalEvent::new("not requested, or placed already", fact));
        }
        let known = self.nodes.get_mut(node);
        let there = |known: &&mut Node| known.ready && known.incarnation == incarnation;
        let Some(known) = known.filter(there) else {
            return Ok(());
        };
        let Some(Requested {
            tenant,
            spec,
            again,
        }) = self.requested.remove(&allocation)
        else {
            return Ok(());
        };
        known.revision += 1;
        known.runs.insert(allocation);
        let assignment = Assignment {
            revision: known.revision,
            allocation,
            tenant,
            spec,
            origin: None,
            gpus: fact.gpus.clone(),
            placed: at.now,
            stop: false,
            stop_by: None,
            zones: fact.zones,
        };
        self.effects.push(Effect::Assign {
            node: node.clone(),
            boot: known.boot,
            assignment: told(&self.origins, &assignment),
        });
        let run = Run {
            node: node.clone(),
            began: assignment.revision,
            again,
            assignment,
            started: None,
            over: false,
        };
        self.runs.insert(allocation, run);
        Ok(())
    }

    /// The stop itself comes with the event that follows.
    pub(super) fn stop_by(&mut self, allocation: AllocationNo, by: Millis) {
        if let Some(run) = self.runs.get_mut(&allocation) {
            run.assignment.stop_by = Some(by);
        }
    }

    pub(super) fn stop(
        &mut self,
        allocation: AllocationNo,
        event: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        // Gone with its node: nothing is left to stop.
        let Some(run) = self.runs.get_mut(&allocation) else {
            return Ok(());
        };
        let known = self
            .nodes
            .get_mut(&run.node)
            .ok_or_else(|| IllegalEvent::new("no such node", event))?;
        known.revision += 1;
        run.assignment.revision = known.revision;
        run.assignment.stop = true;
        self.effects.push(Effect::Assign {
            node: run.node.clone(),
            boot: known.boot,
            assignment: told(&self.origins, &run.assignment),
        });
        Ok(())
    }

    /// Its run is over, and it may be assigned again.
    pub(super) fn requeue(
        &mut self,
        allocation: AllocationNo,
        event: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        match self.leave(allocation) {
            Some(run) => {
                self.requested.insert(allocation, run.requested(true));
                Ok(())
            }
            // It has gone with its node.
            None if self.requested.contains_key(&allocation) => Ok(()),
            None => Err(IllegalEvent::new("never requested", event)),
        }
    }

    pub(super) fn forget(&mut self, allocation: AllocationNo) {
        self.requested.remove(&allocation);
        self.origins.remove(&allocation);
        self.leave(allocation);
    }

    fn leave(&mut self, allocation: AllocationNo) -> Option<Run> {
        let run = self.runs.remove(&allocation)?;
        if let Some(known) = self.nodes.get_mut(&run.node) {
            known.runs.remove(&allocation);
        }
        Some(run)
    }

    pub(super) fn reported(
        &mut self,
        allocation: AllocationNo,
        report: RunState,
        at: Millis,
        event: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        let run = self
            .runs
            .get_mut(&allocation)
            .filter(|run| !run.over)
            .ok_or_else(|| IllegalEvent::new("no such run", event))?;
        match report {
            RunState::Started if run.started.is_none() => run.started = Some(at),
            RunState::Started => return Err(IllegalEvent::new("started already", event)),
            RunState::Finished | RunState::Failed | RunState::Rejected | RunState::Stopped => {
                run.over = true;
            }
        }
        Ok(())
    }

    fn assignments(&self, node: &Token) -> impl Iterator<Item = &Assignment> {
        let of_node = self.nodes.get(node).into_iter();
        let runs = of_node
            .flat_map(|known| &known.runs)
            .filter_map(|allocation| self.runs.get(allocation));
        runs.filter(|run| !run.over).map(|run| &run.assignment)
    }

    /// Sends again what the agent has not seen.
    pub(super) fn push_since(&mut self, node: &Token, revision: u64) {
        let boot = self.nodes.get(node).map_or(0, |known| known.boot);
        let missed: Vec<_> = self
            .assignments(node)
            .filter(|assignment| assignment.revision > revision)
            .map(|assignment| told(&self.origins, assignment))
            .collect();
        for assignment in missed {
            self.effects.push(Effect::Assign {
                node: node.clone(),
                boot,
                assignment,
            });
        }
    }

    pub(super) fn sync(&mut self, node: &Token, request: u64) {
        let told = |assignment| told(&self.origins, assignment);
        let assignments = self.assignments(node).map(told).collect();
        let known = self.nodes.get(node);
        let (boot, revision) = known.map_or((0, 0), |n| (n.boot, n.revision));
        self.effects.push(Effect::Synced {
            request,
            boot,
            revision,
            assignments,
        });
    }
}
