//! Whose turn it is: the queue that would hold least for its weight after its next was placed, level by level.
//!
//! Kept up to date for the queues that changed. It is no part of the state and is made anew when it is not there, or when
//! the cell's totals have changed.

use super::{Key, Queue, QueueNo, Queues};
use crate::domain::{
    class::{Amounts, add},
    fair::{Cost, Share},
    scoring::rank,
};
use std::collections::BTreeSet;
use vocab::{LineNo, Millis};

#[derive(Debug, Default)]
pub struct Turns {
    built: bool,
    of: Vec<Turn>,
    roots: BTreeSet<Stand>,
    /// Queues to be looked at again.
    stale: BTreeSet<QueueNo>,
    totals: Amounts,
    now: Millis,
}

#[derive(Debug, Default)]
struct Turn {
    /// Heads of the lines that are not blocked.
    heads: BTreeSet<(Key, LineNo)>,
    /// What is in this queue itself, and the queues below it.
    below: BTreeSet<Stand>,
    own: Option<Stand>,
    /// Among its siblings.
    stands: Option<Stand>,
    tie: u64,
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

    pub fn look_again(&mut self, queue: QueueNo) {
        if self.built {
            self.stale.insert(queue);
        }
    }

    pub fn head_changed(
        &mut self,
        queue: QueueNo,
        line: LineNo,
        before: Option<Key>,
        after: Option<Key>,
    ) {
        if !self.built || before == after {
            return;
        }
        let heads = &mut self.of[queue.0 as usize].heads;
        if let Some(before) = before {
            heads.remove(&(before, line));
        }
        if let Some(after) = after {
            heads.insert((after, line));
        }
        self.stale.insert(queue);
    }

    pub fn bring_up_to_date(
        &mut self,
        queues: &Queues,
        totals: &Amounts,
        now: Millis,
        half_life_ms: u64,
    ) {
        if !self.built {
            *self = Self::default();
            self.of = queues.queues.iter().map(|queue| Turn { tie: rank(queue.name.as_str()), ..Turn::default() }).collect();
            for line in queues.lines() {
                if line.blocked.is_none()
                    && let Some(head) = line.head()
                {
                    let heads = &mut self.of[line.key.queue.0 as usize].heads;
                    heads.insert((head, line.no));
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
        while let Some(queue) = self.stale.pop_first() {
            for no in queues.up(queue) {
                self.refresh(queues, no, half_life_ms);
            }
        }
    }

    fn cost(&self, counted: &Amounts, asks: &Amounts, weight_milli: u32) -> Cost {
        let mut after = *counted;
        add(&mut after, asks);
        Share::dominant(&after, &self.totals).cost(weight_milli)
    }

    fn refresh(&mut self, queues: &Queues, no: QueueNo, half_life_ms: u64) {
        let queue: &Queue = queues.get(no);
        let at = no.0 as usize;
        let own = self.of[at].heads.first().and_then(|(_, line)| queues.line(*line));
        let own = own.map(|line| Stand {
            cost: self.cost(&queue.own, &line.asks, WEIGHT_MILLI_OWN),
            tie: 0,
            who: Who::Own(no),
        });
        let turn = &mut self.of[at];
        replace(&mut turn.below, turn.own, own);
        turn.own = own;
        let next = self.line_of(Who::Queue(no)).and_then(|line| queues.line(line));
        let stands = next.map(|line| Stand {
            cost: self.cost(
                &queue.counted(self.now, half_life_ms),
                &line.asks,
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

    fn line_of(&self, mut who: Who) -> Option<LineNo> {
        loop {
            match who {
                Who::Own(queue) => {
                    let (_, line) = self.of[queue.0 as usize].heads.first()?;
                    return Some(*line);
                }
                Who::Queue(queue) => who = self.of[queue.0 as usize].below.first()?.who,
            }
        }
    }

    pub fn next(&self) -> Option<LineNo> {
        self.line_of(self.roots.first()?.who)
    }
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
