//! Who waits: the queues and their pending groups, gangs, pauses, and what is passed over for now.

mod blocked;

pub use blocked::{AGAIN_MS, Counted, Promise, Short, could_ever_fit};

use self::blocked::Blocked;
use super::{
    allocation::{Allocations, Live, Phase},
    class::{Amounts, SchedulingKey, SchedulingKeyNo},
    fleet::Fleet,
    gang::Gangs,
    interner::Interner,
    order,
    queues::{Key, LineKey, PendingGroup, QueueNo, Queues, Said, Use},
    settings::{PriorityNo, Settings},
};
use ledger::Scratch;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use vocab::{
    AllocationNo, Millis, PendingGroupNo, QueueOrder, QueueSettings, Token, WaitingReason,
    fact::PendingGroupExplained,
};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    queues: Queues,
    /// What stands in lines.
    scheduling_keys: Interner<SchedulingKey>,
    gangs: Gangs,
    /// Allocations in a pause, by its end.
    pauses: BTreeSet<(Millis, AllocationNo)>,
    /// Never told where they stand.
    fresh: BTreeSet<AllocationNo>,
    #[serde(skip)]
    blocked: Scratch<Blocked>,
}

/// What decides where one stands in its queue.
#[derive(Debug, Clone, Copy)]
pub struct Stands {
    pub no: AllocationNo,
    /// None: nobody has used its queue yet.
    pub queue: Option<QueueNo>,
    pub priority: i32,
    pub requested: Millis,
    pub run_time_ms: u64,
}

impl Waiting {
    pub fn queues(&self) -> &Queues {
        &self.queues
    }

    pub fn gangs(&self) -> &Gangs {
        &self.gangs
    }

    pub fn gangs_mut(&mut self) -> &mut Gangs {
        &mut self.gangs
    }

    pub fn scheduling_key(&self, scheduling_key: SchedulingKeyNo) -> &SchedulingKey {
        self.scheduling_keys.get(scheduling_key.0)
    }

    // --- queues

    pub fn enter(&mut self, queue: &Token) -> QueueNo {
        self.queues.enter(queue)
    }

    pub fn set_queue(&mut self, queue: &Token, settings: &QueueSettings) {
        self.queues.set(queue, settings);
    }

    pub fn weigh(&mut self, tenant: &Token, weight_milli: u32) {
        self.queues.weigh(tenant, weight_milli);
    }

    /// The pending group whose head is next.
    pub fn next(
        &mut self,
        totals: &Amounts,
        now: Millis,
        settings: &Settings,
    ) -> Option<PendingGroupNo> {
        let half_life_ms = settings.policy().half_life_ms;
        self.queues.next(totals, now, half_life_ms)
    }

    pub fn take_looked_at(&mut self) -> usize {
        self.queues.take_looked_at()
    }

    /// It is not its turn until `take_up`, though it might be placed.
    pub fn pass_over(&mut self, pending_group: PendingGroupNo) {
        self.queues.pass_over(pending_group);
    }

    pub fn take_up(&mut self, pending_group: PendingGroupNo) {
        self.queues.take_up(pending_group);
    }

    /// Held or promised from now on.
    pub fn binding(&mut self, queue: QueueNo, used: &Use, now: Millis, settings: &Settings) {
        let half_life_ms = settings.policy().half_life_ms;
        self.queues.binding(queue, used, now, half_life_ms);
    }

    /// Not held any more, nor on a node.
    pub fn release(&mut self, queue: QueueNo, used: &Use, now: Millis, settings: &Settings) {
        let half_life_ms = settings.policy().half_life_ms;
        self.queues.release(queue, used, now, half_life_ms);
    }

    /// Not held any more, and still on a node until `gone`.
    pub fn goes(&mut self, queue: QueueNo, used: &Use, now: Millis, settings: &Settings) {
        let half_life_ms = settings.policy().half_life_ms;
        self.queues.goes(queue, used, now, half_life_ms);
    }

    pub fn gone(&mut self, queue: QueueNo, amounts: &Amounts) {
        self.queues.gone(queue, amounts);
    }

    /// Counts anew what nobody can make go.
    pub fn recount_firm(&mut self, firm: impl Iterator<Item = (QueueNo, Amounts)>) {
        self.queues.recount_firm(firm);
    }

    // --- pending groups

    /// Joins the pending group of `scheduling_key` in the queue, with the priority class.
    pub fn join(
        &mut self,
        (queue, priority_class): (QueueNo, Option<PriorityNo>),
        scheduling_key: &SchedulingKey,
        asks: Amounts,
        key: Key,
    ) -> (PendingGroupNo, Key) {
        let pending_group_key = LineKey {
            queue,
            scheduling_key: SchedulingKeyNo(self.scheduling_keys.acquire(scheduling_key)),
            priority_class,
        };
        let scheduling_key_no = pending_group_key.scheduling_key;
        let (pending_group, new) = self.queues.join(pending_group_key, asks, key);
        self.blocked.sweep.anew();
        self.sweep_too(pending_group);
        if new {
            self.blocked.new_pending_group(pending_group);
        } else {
            // One use for the pending group, however many are in it.
            self.scheduling_keys.release(scheduling_key_no.0);
        }
        (pending_group, key)
    }

    pub fn leave(&mut self, pending_group: PendingGroupNo, key: Key) {
        if let Some(gone) = self.queues.leave(pending_group, key) {
            self.blocked.forget(pending_group);
            if self
                .scheduling_keys
                .release(gone.scheduling_key.0)
                .is_some()
            {
                self.blocked.forget_scheduling_key(gone.scheduling_key);
                self.queues.open(gone.scheduling_key);
            }
        }
    }

    /// By what one with these amounts stands in its pending group.
    pub fn key(&self, no: AllocationNo, live: &Live, asks: Amounts, settings: &Settings) -> Key {
        let stands = Stands {
            no,
            queue: Some(live.queue),
            priority: live.priority,
            requested: live.requested,
            run_time_ms: live.run_time_ms,
        };
        self.key_of(&stands, asks, settings)
    }

    /// The same of one that need not stand in the state.
    pub fn key_of(&self, stands: &Stands, asks: Amounts, settings: &Settings) -> Key {
        let (live, no) = (stands, stands.no);
        let aging_ms = i64::try_from(settings.policy().aging_ms).unwrap_or(i64::MAX);
        let rank = match aging_ms {
            0 => -i64::from(live.priority),
            _ => live
                .requested
                .0
                .saturating_sub(i64::from(live.priority).saturating_mul(aging_ms)),
        };
        let waiting = order::Waiting {
            number: no.0,
            submitted_ms: live.requested.0,
            estimate_ms: live.run_time_ms,
            remaining_ms: live.run_time_ms,
            size: if asks[2] > 0 { asks[2] } else { asks[0] },
        };
        let queue = live
            .queue
            .map(|queue| self.queues.get(queue).settings.order);
        let order = match queue.unwrap_or_default() {
            QueueOrder::Fcfs => order::Order::Fcfs,
            // Without an estimate it may be the longest.
            QueueOrder::Sjf | QueueOrder::SmallestArea if live.run_time_ms == 0 => {
                return Key {
                    rank,
                    order: i64::MAX,
                    allocation: no,
                };
            }
            QueueOrder::Sjf => order::Order::Sjf,
            QueueOrder::SmallestArea => order::Order::AgedArea,
        };
        // As at the moment of the request: what waits does not change places because time passes.
        let order = order::key(order, &waiting, live.requested.0).score();
        Key {
            rank,
            order,
            allocation: no,
        }
    }

    /// What stands in the pending group as `old` stands there as `new`.
    pub fn rekey(&mut self, pending_group: PendingGroupNo, old: Key, new: Key) {
        self.queues.rekey(pending_group, old, new);
    }

    /// The pending group in which it waits.
    pub fn pending_group_of(&self, live: &Live) -> Option<&PendingGroup> {
        let pending_group = match live.phase {
            Phase::Queued(pending_group, _) => Some(pending_group),
            Phase::InGang => live.gang.and_then(|gang| self.gangs.pending_group(gang)),
            _ => None,
        };
        self.queues.pending_group(pending_group?)
    }

    /// Puts the members of what stands in a pending group as `first` into `members`, in the order of their classes, of which
    /// there are so many.
    pub fn unit(
        &self,
        first: AllocationNo,
        classes: usize,
        allocations: &Allocations,
        members: &mut Vec<AllocationNo>,
    ) {
        members.clear();
        let live = allocations.get(&first);
        let gang = live
            .filter(|live| matches!(live.phase, Phase::InGang))
            .and_then(|live| live.gang);
        match gang.and_then(|gang| self.gangs.get(gang)) {
            Some(gang) => {
                members.extend(gang.ready());
                if classes > 1 {
                    members.sort_by_key(|no| (allocations.get(no).map(|live| live.class), *no));
                }
            }
            None => members.push(first),
        }
    }

    /// Waits for room, as far as its pending group is concerned. A gang that wants a uniform label waits until there is room.
    pub fn waits_for_room(&self, pending_group: &PendingGroup) -> bool {
        let for_room = matches!(
            self.block_of(pending_group),
            Some(WaitingReason::NoRoomNow | WaitingReason::GangNoRoom)
        );
        for_room
            && self
                .scheduling_key(pending_group.key.scheduling_key)
                .uniform_label
                .is_none()
    }

    /// Those for whom somebody may have to go: all that wait for room, but for what the fleet could not hold if it were empty,
    /// unless that is still said to wait for its turn.
    pub fn pending_groups_to_clear_for(
        &mut self,
        fleet: &Fleet,
        allocations: &Allocations,
    ) -> Vec<(Key, PendingGroupNo, SchedulingKeyNo)> {
        self.look_for_hopeless(fleet, allocations);
        let all: Vec<_> = self
            .queues
            .by_scheduling_key()
            .iter()
            .filter(|(scheduling_key, _)| {
                !self.blocked.is_hopeless(**scheduling_key) || self.blocked.any_rate_limited()
            })
            .flat_map(|(_, pending_groups)| pending_groups.iter().copied())
            .collect();
        let waiting = all.into_iter().filter_map(|no| {
            let pending_group = self.queues.pending_group(no)?;
            let head = pending_group.head()?;
            self.waits_for_room(pending_group).then_some((
                head,
                no,
                pending_group.key.scheduling_key,
            ))
        });
        waiting.collect()
    }

    pub fn explained(&mut self, fact: &PendingGroupExplained, now: Millis) {
        if let Some(pending_group) = self.queues.pending_group_mut(fact.pending_group) {
            pending_group.said = Some(Said {
                reason: fact.reason,
                counts: fact.counts.clone(),
                at: now,
            });
        }
    }

    // --- pauses, and those who were never told

    pub fn pause(&mut self, no: AllocationNo, until: Millis) {
        self.pauses.insert((until, no));
    }

    pub fn end_pause(&mut self, no: AllocationNo, until: Millis) {
        self.pauses.remove(&(until, no));
    }

    pub fn first_pause(&self) -> Option<(Millis, AllocationNo)> {
        self.pauses.first().copied()
    }

    /// They are to be told where they stand.
    pub fn tell(&mut self, fresh: impl IntoIterator<Item = AllocationNo>) {
        self.fresh.extend(fresh);
    }

    pub fn is_told(&mut self, no: AllocationNo) {
        self.fresh.remove(&no);
    }

    pub fn fresh(&self) -> &BTreeSet<AllocationNo> {
        &self.fresh
    }
}
