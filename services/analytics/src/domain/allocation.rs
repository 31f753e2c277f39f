//! An allocation from its request to its end, and the interval that it is billed by.

use super::{
    Outbox,
    change::{
        Account, Amounts, Denial, Fact, FirstAttempts, Interval, Moved, Owner, Payer, Preemption,
        Running, Site, Unplaced, Wait,
    },
    meter::transfer,
    node::Nodes,
};
use foldhash::fast::RandomState;
use ledger::{IllegalEvent, Scratch};
use serde::{Deserialize, Serialize};
use std::{collections::HashSet, fmt, sync::Arc};
use vocab::fact::{AllocationPreempted, AllocationRequested, QuotaDenied};
use vocab::{
    AllocationNo, EndCause, Millis, Numbered, ResourceKind, RunExit, Shared, Token, WaitingReason,
};

/// What has been requested and has not ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocations {
    live: Numbered<AllocationNo, Live>,
    #[serde(skip)]
    payers: Scratch<Shared<Payer>>,
    /// Those of which the run began in the batch in the making, and is not over.
    #[serde(skip)]
    begun: Scratch<HashSet<AllocationNo, RandomState>>,
    /// Of the batch in the making.
    #[serde(skip)]
    first_attempts: Scratch<FirstAttempts>,
    /// In which minute all of them were last told.
    #[serde(skip)]
    told_in: Scratch<Option<i64>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Live {
    of: Owner,
    cpu_milli: u64,
    memory_bytes: u64,
    gpu_milli: u64,
    wait: Wait,
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

    /// No run of it is over.
    fn is_first_attempt(&self) -> bool {
        self.wait.attempt == 1
    }

    /// What runs, and since when.
    fn running(&self) -> Option<(&Arc<Moved>, Millis)> {
        match &self.stage {
            Stage::OnNode {
                moved,
                started_at: Some(started_at),
                ..
            } => Some((moved, *started_at)),
            _ => None,
        }
    }
}

/// How a run, or what waited for one, is over.
#[derive(Debug, Clone, Copy)]
pub struct End {
    pub cause: EndCause,
    pub at: Millis,
    /// How its command ended, if its agent said so.
    pub exit: Option<RunExit>,
}

impl Allocations {
    pub fn len(&self) -> usize {
        self.live.len()
    }

    pub fn requested(
        &mut self,
        allocation: AllocationNo,
        AllocationRequested { operation, spec }: &AllocationRequested,
        now: Millis,
    ) {
        let payer = Payer::of(&operation.tenant, spec);
        let live = Live {
            of: Owner {
                payer: self.payers.of(&payer, |payer| Arc::new(payer.clone())),
                name: spec.name.clone(),
                operation_id: operation.operation_id.clone(),
                gang: spec.gang.as_ref().map(|gang| gang.name.clone()),
                labels: spec.labels.as_slice().into(),
            },
            cpu_milli: spec.amount(ResourceKind::Cpu),
            memory_bytes: spec.amount(ResourceKind::Memory),
            gpu_milli: spec.amount(ResourceKind::Gpu),
            wait: Wait {
                attempt: 1,
                since: now,
                reason: None,
            },
            stage: Stage::Requested,
        };
        self.live.insert(allocation, live);
        self.first_attempts.begun.push(allocation);
    }

    fn remove(&mut self, allocation: AllocationNo) -> Option<Live> {
        let live = self.live.remove(&allocation)?;
        if live.is_first_attempt() {
            self.first_attempt_over(allocation);
        }
        Some(live)
    }

    /// Of one that began in the batch nobody has been told: numbers rise with the requests.
    fn first_attempt_over(&mut self, allocation: AllocationNo) {
        let FirstAttempts { begun, over, .. } = &mut self.first_attempts.0;
        if begun.first().is_none_or(|first| allocation < *first) {
            over.push(allocation);
        }
    }

    /// It will never run. The scheduler may have ended it before quota denied it, so it need not be there.
    pub fn denied(&mut self, fact: &QuotaDenied, now: Millis, outbox: &mut Outbox<'_>) {
        let live = self.remove(fact.allocation);
        outbox.push(Fact::Denial(Box::new(Denial {
            allocation: fact.allocation,
            of: live.map(|live| (live.of.clone(), live.amounts())),
            refusal: fact.refusal.clone(),
            at: now,
        })));
    }

    pub fn waits(&mut self, allocation: AllocationNo, reason: WaitingReason) {
        if let Some(live) = self.live.get_mut(&allocation) {
            live.wait.reason = Some(reason);
        }
    }

    /// Returns whether some have this as the last reason of their wait.
    pub fn wait_for(&self, reason: WaitingReason) -> bool {
        let mut live = self.live.values();
        live.any(|live| live.wait.reason == Some(reason))
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
            .live
            .get_mut(&allocation)
            .filter(|live| live.stage == Stage::Requested)
            .ok_or_else(|| IllegalEvent::new("not waiting for a place", event))?;
        let (of, amounts) = (Some(allocation), live.amounts());
        let moved = |site: &Arc<Site>| Moved {
            allocation: of,
            node: node.clone(),
            incarnation,
            amounts,
            site: site.clone(),
        };
        live.stage = Stage::OnNode {
            moved: nodes.placed((node, incarnation), moved, now, outbox, event)?,
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
        let live = self.live.get_mut(&allocation);
        let Some(Live {
            of,
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
        self.begun.insert(allocation);
        let way = (Account::Reserved, Account::Allocated);
        transfer(outbox, moved, way, at);
        // Hours that are over have been accrued without it.
        let accrued_to = outbox.accrued_to();
        if at < accrued_to {
            outbox.used(&of.payer, moved, at, accrued_to);
        }
        Ok(())
    }

    pub fn preempted(&mut self, fact: &AllocationPreempted, now: Millis, outbox: &mut Outbox<'_>) {
        let Some(live) = self.live.get(&fact.allocation) else {
            return;
        };
        let by = fact.by.and_then(|by| self.live.get(&by));
        let node = match &live.stage {
            Stage::OnNode { moved, .. } => Some(moved.node.clone()),
            Stage::Requested => None,
        };
        outbox.push(Fact::Preemption(Box::new(Preemption {
            allocation: fact.allocation,
            of: live.of.clone(),
            node,
            cause: fact.cause,
            by: fact.by,
            by_payer: by.map(|by| by.of.payer.clone()),
            at: now,
        })));
    }

    /// The run is over, the allocation is not: it waits for another place.
    pub fn requeued(
        &mut self,
        nodes: &mut Nodes,
        allocation: AllocationNo,
        end: End,
        now: Millis,
        outbox: &mut Outbox<'_>,
        event: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        let live = self
            .live
            .get_mut(&allocation)
            .filter(|live| live.stage != Stage::Requested)
            .ok_or_else(|| IllegalEvent::new("not on a node", event))?;
        let before = live.clone();
        live.stage = Stage::Requested;
        live.wait = Wait {
            attempt: before.wait.attempt.saturating_add(1),
            since: now,
            reason: None,
        };
        if before.is_first_attempt() {
            self.first_attempt_over(allocation);
        }
        self.leave(before, nodes, (allocation, end), now, outbox);
        Ok(())
    }

    /// An unknown allocation is one that quota denied while the scheduler ended it: nothing was held.
    pub fn ended(
        &mut self,
        nodes: &mut Nodes,
        allocation: AllocationNo,
        end: End,
        now: Millis,
        outbox: &mut Outbox<'_>,
    ) {
        if let Some(live) = self.remove(allocation) {
            self.leave(live, nodes, (allocation, end), now, outbox);
        }
    }

    /// What ran is billed up to `at`, moved between its start and now; what is left until now is held, not used.
    fn leave(
        &mut self,
        live: Live,
        nodes: &mut Nodes,
        (allocation, End { cause, at, exit }): (AllocationNo, End),
        now: Millis,
        outbox: &mut Outbox<'_>,
    ) {
        let amounts = live.amounts();
        let Live {
            of, wait, stage, ..
        } = live;
        let Stage::OnNode {
            moved,
            placed_at,
            started_at,
        } = stage
        else {
            return outbox.push(Fact::Unplaced(Box::new(Unplaced {
                allocation,
                of,
                amounts,
                wait,
                ended_at: now,
                cause,
            })));
        };
        if let Some(started_at) = started_at {
            let ended_at = at.between(started_at, now);
            let way = (Account::Allocated, Account::Reserved);
            transfer(outbox, &moved, way, ended_at);
            // Less than nothing, if hours were accrued beyond its end.
            let accrued_to = outbox.accrued_to().max(started_at);
            outbox.used(&of.payer, &moved, accrued_to, ended_at);
            if !self.begun.remove(&allocation) {
                outbox.push(Fact::Running(Box::new(Running {
                    allocation,
                    of: of.clone(),
                    moved: moved.clone(),
                    started_at,
                    under_way: false,
                })));
            }
            if started_at < ended_at {
                outbox.push(Fact::Interval(Box::new(Interval {
                    allocation,
                    of,
                    moved: moved.clone(),
                    wait,
                    placed_at,
                    started_at,
                    ended_at,
                    released_at: now,
                    cause,
                    exit,
                })));
            }
        }
        nodes.released(&moved, now, outbox);
    }

    /// Hours are over: what runs is billed for them.
    pub fn accrue(&self, (from, to): (Millis, Millis), outbox: &mut Outbox<'_>) {
        for live in self.live.values() {
            if let Some((moved, started_at)) = live.running() {
                outbox.used(&live.of.payer, moved, from.max(started_at), to);
            }
        }
    }

    /// All of them in each minute of the ledger's clock: whoever keeps them may have missed what was told before.
    fn finish_first_attempts(&mut self, clock: Millis) -> FirstAttempts {
        const MINUTE_MS: i64 = 60_000;
        let mut of_batch = std::mem::take(&mut self.first_attempts.0);
        let minute = Some(clock.0.div_euclid(MINUTE_MS));
        if std::mem::replace(&mut self.told_in.0, minute) == minute {
            let live = |no: &AllocationNo| self.live.get(no);
            of_batch
                .begun
                .retain(|no| live(no).is_some_and(Live::is_first_attempt));
            return of_batch;
        }
        let first = |(no, live): (&AllocationNo, &Live)| live.is_first_attempt().then_some(*no);
        FirstAttempts {
            all: true,
            begun: self.live.iter().filter_map(first).collect(),
            over: Vec::new(),
        }
    }

    /// What began in the batch and still runs, and whose first attempt began or is over.
    pub fn finish(&mut self, clock: Millis, facts: &mut Vec<Fact>) {
        let begun = facts.len();
        for allocation in self.begun.drain() {
            let Some(live) = self.live.get(&allocation) else {
                continue;
            };
            if let Some((moved, started_at)) = live.running() {
                facts.push(Fact::Running(Box::new(Running {
                    allocation,
                    of: live.of.clone(),
                    moved: moved.clone(),
                    started_at,
                    under_way: true,
                })));
            }
        }
        facts[begun..].sort_unstable_by_key(|fact| match fact {
            Fact::Running(run) => run.allocation,
            _ => AllocationNo(0),
        });
        facts.push(Fact::FirstAttempts(self.finish_first_attempts(clock)));
    }
}
