//! The life of one allocation, from request to end.

use super::Scheduler;
use ledger::IllegalEvent;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use vocab::{
    AllocationNo, AllocationSpec, Event, GpuShare, Millis, RunState, Token, WaitingReason,
    sabotage::{self, Bug},
};

/// An allocation that has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Live {
    pub spec: AllocationSpec,
    pub phase: Phase,
    /// What its node has said and nobody has decided yet.
    pub reports: VecDeque<(RunState, Millis)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    AwaitingQuota,
    /// In the queue; the reason is none until it was tried for the first time.
    Queued(Option<WaitingReason>),
    /// Holds its place on a node.
    Held(Hold),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    pub node: Token,
    /// The node's incarnation at placement: a later one does not know of this hold.
    pub incarnation: u64,
    pub gpus: Vec<GpuShare>,
    pub started: Option<Millis>,
    /// A cancel is under way.
    pub stopping: bool,
}

impl Scheduler {
    pub(super) fn request(&mut self, allocation: AllocationNo, spec: AllocationSpec) {
        let live = Live {
            spec,
            phase: Phase::AwaitingQuota,
            reports: VecDeque::new(),
        };
        self.live.insert(allocation, live);
    }

    /// Quota may come to hold for an allocation that was cancelled meanwhile; there is nothing to queue then.
    pub(super) fn quota_reserved(&mut self, allocation: AllocationNo) -> Result<(), IllegalEvent> {
        if let Some(live) = self.live.get_mut(&allocation) {
            live.phase = Phase::Queued(None);
            self.queue.add_fresh(allocation, &live.spec);
        }
        Ok(())
    }

    pub(super) fn quota_denied(&mut self, allocation: AllocationNo) -> Result<(), IllegalEvent> {
        self.live.remove(&allocation);
        Ok(())
    }

    /// A report counts only from the node that holds the allocation; anything else is late.
    pub(super) fn report(
        &mut self,
        allocation: AllocationNo,
        node: &Token,
        state: RunState,
        at: Millis,
    ) {
        if let Some(live) = self.live.get_mut(&allocation)
            && matches!(&live.phase, Phase::Held(hold) if hold.node == *node)
        {
            live.reports.push_back((state, at));
            self.reported.insert(allocation);
        }
    }

    pub(super) fn placed(
        &mut self,
        allocation: AllocationNo,
        node: &Token,
        incarnation: u64,
        gpus: &[GpuShare],
        event: &Event,
    ) -> Result<(), IllegalEvent> {
        let illegal = |state| IllegalEvent::new(state, event);
        let live = self
            .live
            .get_mut(&allocation)
            .ok_or_else(|| illegal("no such allocation"))?;
        if !matches!(live.phase, Phase::Queued(_)) {
            return Err(illegal("not queued"));
        }
        self.nodes
            .get_mut(node)
            .filter(|n| n.ready && n.incarnation == incarnation)
            .ok_or_else(|| illegal("no such ready node"))?
            .take(&live.spec, gpus)
            .map_err(illegal)?;
        self.queue.remove(allocation, &live.spec);
        live.phase = Phase::Held(Hold {
            node: node.clone(),
            incarnation,
            gpus: gpus.to_vec(),
            started: None,
            stopping: false,
        });
        Ok(())
    }

    pub(super) fn waits(
        &mut self,
        allocation: AllocationNo,
        reason: WaitingReason,
        event: &Event,
    ) -> Result<(), IllegalEvent> {
        match self.live.get_mut(&allocation) {
            Some(Live {
                spec,
                phase: Phase::Queued(waiting),
                ..
            }) => {
                *waiting = Some(reason);
                self.queue.keep_waiting(allocation, spec);
                Ok(())
            }
            _ => Err(IllegalEvent::new("not queued", event)),
        }
    }

    fn hold(&mut self, allocation: AllocationNo, event: &Event) -> Result<&mut Hold, IllegalEvent> {
        match self.live.get_mut(&allocation) {
            Some(Live {
                phase: Phase::Held(hold),
                ..
            }) => Ok(hold),
            _ => Err(IllegalEvent::new("not placed", event)),
        }
    }

    pub(super) fn started(
        &mut self,
        allocation: AllocationNo,
        at: Millis,
        event: &Event,
    ) -> Result<(), IllegalEvent> {
        let hold = self.hold(allocation, event)?;
        if hold.started.replace(at).is_some() {
            return Err(IllegalEvent::new("started already", event));
        }
        if let Some(live) = self.live.get_mut(&allocation) {
            live.reports.pop_front();
            if live.reports.is_empty() {
                self.reported.remove(&allocation);
            }
        }
        Ok(())
    }

    pub(super) fn stopping(
        &mut self,
        allocation: AllocationNo,
        event: &Event,
    ) -> Result<(), IllegalEvent> {
        self.hold(allocation, event)?.stopping = true;
        Ok(())
    }

    /// Frees what it holds, wherever it stood.
    pub(super) fn ended(
        &mut self,
        allocation: AllocationNo,
        event: &Event,
    ) -> Result<(), IllegalEvent> {
        let live = self
            .live
            .remove(&allocation)
            .ok_or_else(|| IllegalEvent::new("no such allocation", event))?;
        self.reported.remove(&allocation);
        self.lost.remove(&allocation);
        match &live.phase {
            Phase::AwaitingQuota => {}
            Phase::Queued(_) => self.queue.remove(allocation, &live.spec),
            Phase::Held(hold) => {
                let times = 1 + usize::from(sabotage::armed(Bug::DoubleRelease));
                for _ in 0..times {
                    if let Some(node) = self.nodes.get_mut(&hold.node)
                        && node.incarnation == hold.incarnation
                    {
                        node.give_back(&live.spec, &hold.gpus);
                    }
                }
                self.queue.unsettle();
            }
        }
        Ok(())
    }
}
