//! Whose turn it is: the queue that would hold least for its weight after its next was placed, level by level.
//!
//! Kept up to date for the queues that changed. It is no part of the state and is made anew when it is not there, or when
//! the cell's totals have changed.

use super::{Key, PendingGroup, Queue, QueueNo, Queues};
use crate::{
    class::{Amounts, SchedulingKeyNo, add},
    fair::{Cost, Share},
    scoring::rank,
};
use std::collections::BTreeSet;
use vocab::{Millis, PendingGroupNo};

#[derive(Debug, Default)]
pub struct Turns {
    built: bool,
    of: Vec<Turn>,
    roots: BTreeSet<Stand>,
    /// Queues to be looked at again.
    stale: BTreeSet<QueueNo>,
    totals: Amounts,
    now: Millis,
    /// Scheduling keys that there is no room for.
    closed: Vec<bool>,
    /// There is room for a scheduling key for which there was none.
    opened: bool,
    /// So many queues are asleep.
    asleep: usize,
    /// So many were looked at, for whoever counts the work.
    looked_at: usize,
}

#[derive(Debug, Default)]
struct Turn {
    /// Heads of the pending groups that are not blocked by themselves, in order.
    heads: Vec<(Key, PendingGroupNo, Head)>,
    /// Their scheduling keys by themselves, because these are looked through often.
    scheduling_keys: Vec<SchedulingKeyNo>,
    /// So many of them, from the first on, are closed, unless one was opened.
    closed: usize,
    /// What is in this queue itself, and the queues below it.
    below: BTreeSet<Stand>,
    own: Option<Stand>,
    /// The pending group and the scheduling key of the first head that may be tried.
    first: Option<(PendingGroupNo, Head)>,
    /// Among its siblings.
    stands: Option<Stand>,
    tie: u64,
    /// There is no queue below it: nothing but what is in it itself can be first.
    leaf: bool,
    /// There is no queue above it or below it.
    alone: bool,
    /// Nothing in it may be tried, though it still stands where its first did. Only of queues that are alone: what is
    /// above another stands where the best below it does. So a scheduling key that is closed and opened again costs nothing where many wait for it.
    asleep: bool,
}

/// What has to be known of a pending group's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    scheduling_key: SchedulingKeyNo,
    asks: Amounts,
}

impl Turn {
    fn insert(&mut self, key: Key, pending_group: &PendingGroup) {
        if let Err(at) = self.find(key, pending_group.no) {
            self.heads
                .insert(at, (key, pending_group.no, Head::of(pending_group)));
            self.scheduling_keys
                .insert(at, pending_group.key.scheduling_key);
            self.closed = self.closed.min(at);
        }
    }

    fn remove(&mut self, key: Key, pending_group: PendingGroupNo) {
        if let Ok(at) = self.find(key, pending_group) {
            self.heads.remove(at);
            self.scheduling_keys.remove(at);
            self.closed -= usize::from(at < self.closed);
        }
    }

    fn find(&self, key: Key, pending_group: PendingGroupNo) -> Result<usize, usize> {
        let of = |(key, pending_group, _): &(Key, PendingGroupNo, Head)| (*key, *pending_group);
        self.heads.binary_search_by_key(&(key, pending_group), of)
    }
}

impl Head {
    fn of(pending_group: &PendingGroup) -> Self {
        Self {
            scheduling_key: pending_group.key.scheduling_key,
            asks: pending_group.asks,
        }
    }
}

/// Least cost first. Equal costs go by a hash of the queue's name, which favours no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Stand {
    cost: Cost,
    tie: u64,
    who: Who,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    /// What is in the queue itself.
    Own(QueueNo),
    /// The queue with all below it.
    Queue(QueueNo),
}

const WEIGHT_MILLI_OWN: u32 = 1000;

impl Turns {
    /// Queues or their settings have changed.
    pub fn distrust(&mut self) {
        self.built = false;
    }

    pub fn take_looked_at(&mut self) -> usize {
        std::mem::take(&mut self.looked_at)
    }

    pub fn look_again(&mut self, queue: QueueNo) {
        if self.built {
            self.stale.insert(queue);
        }
    }

    pub fn head_changed(
        &mut self,
        pending_group: &PendingGroup,
        before: Option<Key>,
        after: Option<Key>,
    ) {
        if !self.built || before == after {
            return;
        }
        let turn = &mut self.of[pending_group.key.queue.0 as usize];
        if let Some(before) = before {
            turn.remove(before, pending_group.no);
        }
        if let Some(after) = after {
            turn.insert(after, pending_group);
        }
        self.stale.insert(pending_group.key.queue);
    }

    pub fn close(&mut self, scheduling_key: SchedulingKeyNo) {
        let at = scheduling_key.0 as usize;
        if self.closed.len() <= at {
            self.closed.resize(at + 1, false);
        }
        self.closed[at] = true;
        let closed = &self.closed;
        for (turn, no) in self.of.iter_mut().zip(0..) {
            if turn.asleep
                || turn
                    .first
                    .is_none_or(|(_, first)| first.scheduling_key != scheduling_key)
            {
                continue;
            }
            if turn.alone && turn.scheduling_keys.iter().all(|it| is_closed(closed, it)) {
                turn.asleep = true;
                self.asleep += 1;
            } else {
                self.stale.insert(QueueNo(no));
            }
        }
    }

    pub fn open(&mut self, scheduling_key: SchedulingKeyNo) {
        if let Some(closed) = self.closed.get_mut(scheduling_key.0 as usize) {
            self.opened |= std::mem::take(closed);
        }
    }

    /// The first head in the queue itself that may be tried.
    fn first(&mut self, queue: QueueNo) -> Option<(PendingGroupNo, Head)> {
        let turn = &mut self.of[queue.0 as usize];
        let rest = &turn.scheduling_keys[turn.closed..];
        let more = rest
            .iter()
            .position(|scheduling_key| !is_closed(&self.closed, scheduling_key));
        turn.closed += more.unwrap_or(rest.len());
        turn.heads
            .get(turn.closed)
            .map(|(_, pending_group, head)| (*pending_group, *head))
    }

    pub fn bring_up_to_date(
        &mut self,
        queues: &Queues,
        totals: &Amounts,
        now: Millis,
        half_life_ms: u64,
    ) {
        if !self.built {
            *self = Self {
                closed: std::mem::take(&mut self.closed),
                ..Self::default()
            };
            self.of = queues
                .queues
                .iter()
                .map(|queue| Turn {
                    tie: rank(queue.name.as_str()),
                    leaf: queue.children.is_empty(),
                    alone: queue.parent.is_none() && queue.children.is_empty(),
                    ..Turn::default()
                })
                .collect();
            for pending_group in queues.pending_groups() {
                if pending_group.blocked.is_none()
                    && let Some(head) = pending_group.head()
                {
                    self.of[pending_group.key.queue.0 as usize].insert(head, pending_group);
                }
            }
            self.built = true;
            self.totals = *totals;
            self.now = now;
            self.stale.extend(queues.all().map(|(no, _)| no));
        } else if self.totals != *totals || (half_life_ms > 0 && self.now != now) {
            self.totals = *totals;
            self.now = now;
            self.stale.extend(queues.all().map(|(no, _)| no));
        }
        if std::mem::take(&mut self.opened) {
            for (no, _) in queues.all() {
                let before = self.of[no.0 as usize].first;
                self.of[no.0 as usize].closed = 0;
                let first = self.first(no);
                if first != before && (first.is_some() || !self.of[no.0 as usize].asleep) {
                    self.stale.insert(no);
                } else if first.is_some() {
                    self.wake(no);
                }
            }
        }
        while let Some(queue) = self.stale.pop_first() {
            for no in queues.up(queue) {
                self.refresh(queues, no, half_life_ms);
            }
        }
    }

    fn wake(&mut self, queue: QueueNo) {
        let asleep = &mut self.of[queue.0 as usize].asleep;
        self.asleep -= usize::from(std::mem::take(asleep));
    }

    fn cost(&self, counted: &Amounts, asks: &Amounts, weight_milli: u32) -> Cost {
        let mut after = *counted;
        add(&mut after, asks);
        Share::dominant(&after, &self.totals).cost(weight_milli)
    }

    fn refresh(&mut self, queues: &Queues, no: QueueNo, half_life_ms: u64) {
        self.looked_at += 1;
        let queue: &Queue = queues.get(no);
        let at = no.0 as usize;
        self.wake(no);
        let first = self.first(no);
        self.of[at].first = first;
        if !self.of[at].leaf {
            let own = first.map(|(_, head)| Stand {
                cost: self.cost(&queue.own, &head.asks, WEIGHT_MILLI_OWN),
                tie: 0,
                who: Who::Own(no),
            });
            let turn = &mut self.of[at];
            replace(&mut turn.below, turn.own, own);
            turn.own = own;
        }
        let next = self.next_of(Who::Queue(no));
        let stands = next.map(|(_, head)| Stand {
            cost: self.cost(
                &queue.counted(self.now, half_life_ms),
                &head.asks,
                queue.settings.weight_milli,
            ),
            tie: self.of[at].tie,
            who: Who::Queue(no),
        });
        let old = std::mem::replace(&mut self.of[at].stands, stands);
        let siblings = match queues.parent(no) {
            Some(parent) => &mut self.of[parent.0 as usize].below,
            None => &mut self.roots,
        };
        replace(siblings, old, stands);
    }

    fn next_of(&self, mut who: Who) -> Option<(PendingGroupNo, Head)> {
        loop {
            match who {
                Who::Own(queue) => return self.of[queue.0 as usize].first,
                Who::Queue(queue) if self.of[queue.0 as usize].leaf => who = Who::Own(queue),
                Who::Queue(queue) => who = self.of[queue.0 as usize].below.first()?.who,
            }
        }
    }

    /// To be brought up to date before.
    pub fn next(&mut self, queues: &Queues, half_life_ms: u64) -> Option<PendingGroupNo> {
        while self.roots.len() > self.asleep {
            let who = self.roots.first()?.who;
            match who {
                Who::Queue(queue) if self.of[queue.0 as usize].asleep => {
                    self.refresh(queues, queue, half_life_ms);
                }
                Who::Own(_) | Who::Queue(_) => {
                    return self.next_of(who).map(|(pending_group, _)| pending_group);
                }
            }
        }
        None
    }
}

fn is_closed(closed: &[bool], scheduling_key: &SchedulingKeyNo) -> bool {
    closed
        .get(scheduling_key.0 as usize)
        .copied()
        .unwrap_or(false)
}

fn replace(set: &mut BTreeSet<Stand>, old: Option<Stand>, new: Option<Stand>) {
    if old == new {
        return;
    }
    if let Some(old) = old {
        set.remove(&old);
    }
    if let Some(new) = new {
        set.insert(new);
    }
}
