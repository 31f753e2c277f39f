//! An allocation from its request to its end, and the interval that it is billed by.

use super::{
    Outbox,
    change::{Account, Amounts, Fact, Interval, Moved, Owner},
    node::{Nodes, transfer},
};
use ledger::IllegalEvent;
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};
use vocab::{AllocationNo, AllocationSpec, EndCause, Millis, Numbered, ResourceKind, Token};

/// What has been requested and has not ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocations(Numbered<AllocationNo, Live>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Live {
    of: Owner,
    cpu_milli: u64,
    memory_bytes: u64,
    gpu_milli: u64,
    stage: Stage,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Stage {
    Requested,
    OnNode {
        moved: Arc<Moved>,
        placed_at: Millis,
        started_at: Option<Millis>,
    },
}

impl Live {
    fn amounts(&self) -> Amounts {
        Amounts {
            cpu_milli: self.cpu_milli.into(),
            memory_bytes: self.memory_bytes.into(),
            gpu_milli: self.gpu_milli.into(),
        }
    }
}

impl Allocations {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn requested(&mut self, allocation: AllocationNo, tenant: &Token, spec: &AllocationSpec) {
        let live = Live {
            of: Owner {
                tenant: tenant.clone(),
                job_set: spec.job_set.clone(),
                name: spec.name.clone(),
            },
            cpu_milli: spec.amount(ResourceKind::Cpu),
            memory_bytes: spec.amount(ResourceKind::Memory),
            gpu_milli: spec.amount(ResourceKind::Gpu),
            stage: Stage::Requested,
        };
        self.0.insert(allocation, live);
    }

    /// It will never run. The scheduler may have ended it before quota denied it, so it need not be there.
    pub fn denied(&mut self, allocation: AllocationNo) {
        self.0.remove(&allocation);
    }

    pub fn placed(
        &mut self,
        nodes: &mut Nodes,
        allocation: AllocationNo,
        (node, incarnation): (&Token, u64),
        now: Millis,
        outbox: &mut Outbox<'_>,
        event: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        let live = self
            .0
            .get_mut(&allocation)
            .filter(|live| live.stage == Stage::Requested)
            .ok_or_else(|| IllegalEvent::new("not waiting for a place", event))?;
        let moved = Moved {
            allocation: Some(allocation),
            node: node.clone(),
            incarnation,
            amounts: live.amounts(),
            gpu_model: None,
        };
        live.stage = Stage::OnNode {
            moved: nodes.placed(moved, now, outbox, event)?,
            placed_at: now,
            started_at: None,
        };
        Ok(())
    }

    /// The agent says when. It cannot have been before the placement or after the scheduler knew of it, so a moment
    /// outside is a difference of clocks and is moved inside.
    pub fn started(
        &mut self,
        allocation: AllocationNo,
        at: Millis,
        now: Millis,
        outbox: &mut Outbox<'_>,
        event: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        let live = self.0.get_mut(&allocation);
        let Some(Live {
            stage:
                Stage::OnNode {
                    moved,
                    placed_at,
                    started_at: started_at @ None,
                },
            ..
        }) = live
        else {
            return Err(IllegalEvent::new("not placed, or started already", event));
        };
        let at = at.between(*placed_at, now);
        *started_at = Some(at);
        let way = (Account::Reserved, Account::Allocated);
        transfer(outbox, moved, way, at);
        Ok(())
    }

    /// The run is over, the allocation is not: it waits for another place.
    pub fn requeued(
        &mut self,
        nodes: &mut Nodes,
        allocation: AllocationNo,
        end: (EndCause, Millis),
        now: Millis,
        outbox: &mut Outbox<'_>,
        event: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        let live = self
            .0
            .get_mut(&allocation)
            .filter(|live| live.stage != Stage::Requested)
            .ok_or_else(|| IllegalEvent::new("not on a node", event))?;
        let stage = std::mem::replace(&mut live.stage, Stage::Requested);
        let of = || live.of.clone();
        leave(stage, of, nodes, (allocation, end), now, outbox);
        Ok(())
    }

    /// An unknown allocation is one that quota denied while the scheduler ended it: nothing was held.
    pub fn ended(
        &mut self,
        nodes: &mut Nodes,
        allocation: AllocationNo,
        end: (EndCause, Millis),
        now: Millis,
        outbox: &mut Outbox<'_>,
    ) {
        if let Some(Live { of, stage, .. }) = self.0.remove(&allocation) {
            leave(stage, || of, nodes, (allocation, end), now, outbox);
        }
    }
}

/// What ran is billed up to `at`, moved between its start and now; what is left until now is held, not used.
fn leave(
    stage: Stage,
    of: impl FnOnce() -> Owner,
    nodes: &mut Nodes,
    (allocation, (cause, at)): (AllocationNo, (EndCause, Millis)),
    now: Millis,
    outbox: &mut Outbox<'_>,
) {
    let Stage::OnNode {
        moved,
        placed_at,
        started_at,
    } = stage
    else {
        return;
    };
    if let Some(started_at) = started_at {
        let ended_at = at.between(started_at, now);
        let way = (Account::Allocated, Account::Reserved);
        transfer(outbox, &moved, way, ended_at);
        if started_at < ended_at {
            outbox.push(Fact::Interval(Box::new(Interval {
                allocation,
                of: of(),
                moved: moved.clone(),
                placed_at,
                started_at,
                ended_at,
                released_at: now,
                cause,
            })));
        }
    }
    nodes.released(&moved, now, outbox);
}
