//! Which lines are passed over, and what has to change before they are worth another try. Only saves work.

use super::{
    Scheduler,
    class::ShapeNo,
    fleet::NodeNo,
    interner::Scratch,
    place::Short,
    queues::Block,
};
use std::collections::{BTreeMap, BTreeSet};
use vocab::{LineNo, Millis, WaitingReason};

#[derive(Debug, Default)]
pub struct Blocked {
    /// For lack of room.
    shapes: BTreeMap<ShapeNo, Lack>,
    /// By a limit of their queue or one above.
    limited: BTreeSet<LineNo>,
    /// Blocked since they were last explained.
    pub unexplained: BTreeSet<LineNo>,
    /// When decisions were last made.
    pub decided: Option<Millis>,
    /// Something has changed since it was last looked who could be made to go for whom.
    pub preemption_untried: bool,
    /// There was more to preempt than may be at once.
    pub preempt_again_at: Option<Millis>,
}

#[derive(Debug, Default)]
struct Lack {
    lines: BTreeSet<LineNo>,
    /// So many more of its members must find room before it can.
    missing: u32,
}

impl Scratch<Blocked> {
    pub(super) fn forget(&mut self, line: LineNo, shape: ShapeNo) {
        self.limited.remove(&line);
        self.unexplained.remove(&line);
        if let Some(lack) = self.shapes.get_mut(&shape) {
            lack.lines.remove(&line);
            if lack.lines.is_empty() {
                self.shapes.remove(&shape);
            }
        }
    }
}

impl Scheduler {
    /// The line's head was tried in vain.
    pub(super) fn block(&mut self, line: LineNo, shape: ShapeNo, short: Short) {
        let reason = short.reason;
        self.queues.block(line, Block { reason });
        self.blocked.preemption_untried = true;
        self.blocked.unexplained.insert(line);
        if reason == WaitingReason::QueueLimit || reason == WaitingReason::GangOverLimit {
            self.blocked.limited.insert(line);
        } else {
            let lack = self.blocked.shapes.entry(shape).or_default();
            lack.missing = if lack.lines.is_empty() { short.missing } else { lack.missing.min(short.missing) };
            lack.lines.insert(line);
        }
    }

    /// Lines for which there may be room now are tried again.
    pub(super) fn unblock(&mut self, now: Millis) {
        let decided = self.blocked.decided.replace(now);
        let passed = |moment: Millis| decided.is_none_or(|decided| decided < moment) && moment <= now;
        let mut gained = self.fleet.take_gained();
        if self.reservations.moments().any(passed) {
            gained = self.fleet.all().collect();
        }
        gained.sort_unstable();
        gained.dedup();
        let mut shapes = std::mem::take(&mut self.blocked.shapes);
        shapes.retain(|shape, lack| {
            let room = self.room_for(*shape, &gained, lack.missing);
            lack.missing = lack.missing.saturating_sub(room);
            if lack.missing == 0 {
                for line in &lack.lines {
                    self.queues.free(*line);
                }
            }
            lack.missing > 0
        });
        self.blocked.shapes = shapes;
        if self.queues.take_released() {
            let limited = std::mem::take(&mut self.blocked.limited);
            for no in limited {
                let still = self.queues.line(no).is_some_and(|line| {
                    self.queues.limited_by(line.key.queue, &line.asks).is_some()
                });
                if still {
                    self.blocked.limited.insert(no);
                } else {
                    self.queues.free(no);
                }
            }
        }
    }

    /// How many members of the shape the nodes can take at the most; no need to count beyond `enough`.
    fn room_for(&self, shape: ShapeNo, nodes: &[NodeNo], enough: u32) -> u32 {
        let mut room = 0u32;
        for (class, _) in &self.shapes.get(shape.0).members {
            let class = self.classes.get(class.0);
            for no in nodes {
                if class.looks_at_others() {
                    return enough;
                }
                let node = self.fleet.node(*no);
                if node.open() && node.check(self.fleet.capacity(*no), class).is_ok() {
                    let cpu = node.room.cpu_milli() / class.cpu_milli.max(1);
                    room = room.saturating_add(u32::try_from(cpu).unwrap_or(u32::MAX));
                    if room >= enough {
                        return room;
                    }
                }
            }
        }
        room
    }
}
