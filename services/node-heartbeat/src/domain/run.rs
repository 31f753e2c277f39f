//! Runs: what is assigned to a node, and what its agent reports of it.

use super::{Assignment, Effect, Nodes, Run};
use ledger::{Draft, IllegalEvent};
use vocab::{AllocationNo, At, Event, GpuShare, Millis, RunState, Token};

/// Records a report that moves the run on. A repeated or late one, or one of another incarnation, changes nothing.
pub(super) fn decide(
    state: &mut Nodes,
    node: &Token,
    incarnation: u64,
    (allocation, report, at): (AllocationNo, RunState, Millis),
    draft: &mut Draft,
) {
    let current = state
        .nodes
        .get(node)
        .is_some_and(|known| known.ready && known.incarnation == incarnation);
    let Some(run) = state.runs.get(&allocation) else {
        return;
    };
    let moves_on = match report {
        RunState::Started => run.started.is_none() && !run.over,
        RunState::Finished | RunState::Failed | RunState::Rejected => !run.over,
    };
    if !current || run.node != *node || !moves_on {
        return;
    }
    let low = run.started.unwrap_or(run.assignment.placed);
    let at = at.between(low, draft.now.max(low));
    let reported = Event::RunReported {
        allocation,
        node: node.clone(),
        state: report,
        at,
    };
    draft.emit(state, reported);
}

impl Nodes {
    /// Whether an allocation without a run here may have been placed already: an agent that another leader has told of it
    /// can be faster than this one's reading, and its report comes only once.
    pub(super) fn may_be_placed(&self, allocation: AllocationNo) -> bool {
        let newer = |last: Option<&AllocationNo>| last.is_none_or(|last| *last < allocation);
        let unheard = newer(self.requested.last_key_value().map(|(no, _)| no))
            && newer(self.runs.last_key_value().map(|(no, _)| no));
        !self.runs.contains_key(&allocation)
            && (self.requested.contains_key(&allocation) || unheard)
    }

    /// A placement on a node that was lost meanwhile is void; the scheduler learns of the loss and ends it.
    pub(super) fn assign(
        &mut self,
        at: &At,
        allocation: AllocationNo,
        node: &Token,
        incarnation: u64,
        gpus: &[GpuShare],
        event: &Event,
    ) -> Result<(), IllegalEvent> {
        let (tenant, spec) = self
            .requested
            .remove(&allocation)
            .ok_or_else(|| IllegalEvent::new("never requested", event))?;
        let Some(known) = self.nodes.get_mut(node) else {
            return Err(IllegalEvent::new("no such node", event));
        };
        if !known.ready || known.incarnation != incarnation {
            return Ok(());
        }
        known.revision += 1;
        known.runs.push(allocation);
        let assignment = Assignment {
            revision: known.revision,
            allocation,
            tenant,
            spec,
            gpus: gpus.to_vec(),
            placed: at.now,
            stop: false,
        };
        self.effects.push(Effect::Assign {
            node: node.clone(),
            incarnation,
            assignment: assignment.clone(),
        });
        let run = Run {
            node: node.clone(),
            assignment,
            started: None,
            over: false,
        };
        self.runs.insert(allocation, run);
        Ok(())
    }

    pub(super) fn stop(
        &mut self,
        allocation: AllocationNo,
        event: &Event,
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
            incarnation: known.incarnation,
            assignment: run.assignment.clone(),
        });
        Ok(())
    }

    pub(super) fn forget(&mut self, allocation: AllocationNo) {
        self.requested.remove(&allocation);
        if let Some(run) = self.runs.remove(&allocation)
            && let Some(known) = self.nodes.get_mut(&run.node)
        {
            known.runs.retain(|of| *of != allocation);
        }
    }

    pub(super) fn reported(
        &mut self,
        allocation: AllocationNo,
        report: RunState,
        at: Millis,
        event: &Event,
    ) -> Result<(), IllegalEvent> {
        let run = self
            .runs
            .get_mut(&allocation)
            .filter(|run| !run.over)
            .ok_or_else(|| IllegalEvent::new("no such run", event))?;
        match report {
            RunState::Started if run.started.is_none() => run.started = Some(at),
            RunState::Started => return Err(IllegalEvent::new("started already", event)),
            RunState::Finished | RunState::Failed | RunState::Rejected => run.over = true,
        }
        Ok(())
    }

    fn assignments(&self, node: &Token) -> impl Iterator<Item = &Assignment> {
        let runs = self.nodes.get(node).map_or(&[][..], |known| &known.runs);
        let runs = runs
            .iter()
            .filter_map(|allocation| self.runs.get(allocation));
        runs.filter(|run| !run.over).map(|run| &run.assignment)
    }

    /// Sends again what the agent has not seen.
    pub(super) fn push_since(&mut self, node: &Token, revision: u64) {
        let incarnation = self.nodes.get(node).map_or(0, |known| known.incarnation);
        let missed: Vec<_> = self
            .assignments(node)
            .filter(|assignment| assignment.revision > revision)
            .cloned()
            .collect();
        for assignment in missed {
            self.effects.push(Effect::Assign {
                node: node.clone(),
                incarnation,
                assignment,
            });
        }
    }

    pub(super) fn sync(&mut self, node: &Token, request: u64) {
        let assignments = self.assignments(node).cloned().collect();
        let known = self.nodes.get(node);
        let (incarnation, revision) = known.map_or((0, 0), |n| (n.incarnation, n.revision));
        self.effects.push(Effect::Synced {
            request,
            incarnation,
            revision,
            assignments,
        });
    }
}
