//! What is passed over, and what has to change before it is worth another try. Only saves work.

use super::{
    Scheduler,
    aside::{Aside, Promise},
    class::ShapeNo,
    fleet::NodeNo,
    place::Short,
    queues::Line,
};
use std::collections::{BTreeMap, BTreeSet};
use vocab::{LineNo, Millis, WaitingReason};

#[derive(Debug, Default)]
pub struct Blocked {
    /// Shapes that there is no room for.
    shapes: BTreeMap<ShapeNo, Short>,
    /// Lines that are passed over by themselves: for a limit of a queue, or while nodes are reserved for some queues.
    lines: BTreeSet<LineNo>,
    /// Shapes do not tell who may be placed: lines are tried each by itself.
    line_by_line: bool,
    promise: Option<Promise>,
    /// What was last explained of a shape, and when.
    explained: BTreeMap<ShapeNo, (WaitingReason, Millis)>,
    /// Lines to be explained.
    pub unexplained: BTreeSet<LineNo>,
    /// The fleet's composition when shapes were last tried, and when lines were last explained.
    tried_with: Option<u64>,
    pub explained_with: Option<u64>,
    /// When decisions were last made.
    pub decided: Option<Millis>,
    /// Something has changed since it was last looked who could be made to go for whom.
    pub preemption_untried: bool,
    /// There was more to preempt than may be at once.
    pub preempt_again_at: Option<Millis>,
}

/// What waits for an unchanged reason is explained again, with new numbers, no more often than this.
pub const AGAIN_MS: i64 = 60_000;

impl Blocked {
    pub(super) fn promised(&self, node: NodeNo) -> bool {
        self.promise.is_some_and(|promise| promise.node == node)
    }

    pub(super) fn forget(&mut self, line: LineNo) {
        self.lines.remove(&line);
        self.unexplained.remove(&line);
    }

    pub(super) fn forget_shape(&mut self, shape: ShapeNo) {
        self.shapes.remove(&shape);
        self.explained.remove(&shape);
    }
}

impl Scheduler {
    /// The line's head was tried in vain.
    pub(super) fn block(&mut self, no: LineNo, shape: ShapeNo, short: Short, now: Millis) {
        self.blocked.preemption_untried = true;
        let limited = matches!(
            short.reason,
            WaitingReason::QueueLimit | WaitingReason::OverLimit
        );
        if limited || self.blocked.line_by_line {
            self.queues.block(no, short.reason);
            self.blocked.lines.insert(no);
            self.blocked.unexplained.insert(no);
            return;
        }
        let said = short.reason;
        self.queues.close(shape);
        self.blocked.shapes.insert(shape, short);
        let news = self
            .blocked
            .explained
            .get(&shape)
            .is_none_or(|(reason, at)| *reason != said || now.0 - at.0 >= AGAIN_MS);
        if news {
            self.blocked.explained.insert(shape, (said, now));
            let of_shape = self.queues.by_shape().get(&shape);
            self.blocked
                .0
                .unexplained
                .extend(of_shape.into_iter().flatten());
        }
    }

    /// Closes what there is no room for before anybody is asked whose turn it is: so whose turn it is does not depend on
    /// what was found out earlier.
    pub(super) fn close_hopeless(&mut self, aside: &Aside, now: Millis) {
        if self.queues.any_limits() {
            let lines: Vec<_> = self.queues.lines().map(|line| line.no).collect();
            for line in lines {
                self.block_if_limited(line, now);
            }
        }
        if self.blocked.line_by_line {
            let free = self.queues.lines().filter(|line| line.blocked.is_none());
            let free: Vec<_> = free.map(|line| (line.no, line.key.shape)).collect();
            for (line, shape) in free {
                self.close_if_hopeless(line, shape, aside, now);
            }
            return;
        }
        let blocked = &self.blocked.0.shapes;
        let by_shape = self.queues.by_shape().iter();
        let open = by_shape.filter(|(shape, _)| !blocked.contains_key(shape));
        let open: Vec<_> = open
            .filter_map(|(shape, lines)| Some((*shape, *lines.first()?)))
            .collect();
        for (shape, line) in open {
            self.close_if_hopeless(line, shape, aside, now);
        }
    }

    fn close_if_hopeless(&mut self, line: LineNo, shape: ShapeNo, aside: &Aside, now: Millis) {
        let Some(head) = self.queues.line(line).and_then(|line| line.head()) else {
            return;
        };
        let members = self.unit(head.allocation, self.shapes.get(shape.0).members.len());
        if let Err(short) = self.find_places(&members, shape, aside) {
            self.block(line, shape, short, now);
        }
    }

    /// Who may go to the nodes that are set aside is different for each line. When that changes, all are tried again.
    pub(super) fn set_aside(&mut self, aside: &Aside) {
        self.fleet.set_aside(aside.nodes(self));
        let line_by_line = self.reservations.any() || aside.promise().is_some();
        let promise = aside.promise();
        if self.blocked.line_by_line == line_by_line && self.blocked.promise == promise {
            return;
        }
        self.blocked.line_by_line = line_by_line;
        self.blocked.promise = promise;
        self.blocked.preemption_untried = true;
        self.blocked.shapes.clear();
        self.blocked.lines.clear();
        self.queues.free_all();
    }

    /// Whether a limit of its queue, or of one above, keeps the line's head from being placed.
    pub(super) fn block_if_limited(&mut self, no: LineNo, now: Millis) -> bool {
        let Some(line) = self.queues.line(no) else {
            return false;
        };
        let (queue, shape, asks) = (line.key.queue, line.key.shape, line.asks);
        if self.queues.limited_by(queue, &asks).is_none() {
            return false;
        }
        let reason = if self.queues.ever(queue, &asks) {
            WaitingReason::QueueLimit
        } else {
            WaitingReason::OverLimit
        };
        self.block(no, shape, Short::of(reason), now);
        true
    }

    /// Why a line is passed over; none when it may be tried.
    pub(super) fn block_of(&self, line: &Line) -> Option<WaitingReason> {
        let of_shape = || {
            self.blocked
                .shapes
                .get(&line.key.shape)
                .map(|short| short.reason)
        };
        line.blocked.or_else(of_shape)
    }

    /// What there may be room for now is tried again.
    pub(super) fn unblock(&mut self, now: Millis) {
        let decided = self.blocked.decided.replace(now);
        let passed =
            |moment: Millis| decided.is_none_or(|decided| decided < moment) && moment <= now;
        let mut gained = self.fleet.take_gained();
        if self.reservations.moments().any(passed) {
            gained = self.fleet.all().collect();
        }
        gained.sort_unstable();
        gained.dedup();
        let composition = Some(self.fleet.composition());
        if self.blocked.tried_with != composition {
            // Other nodes: what was found of the old ones says little.
            self.blocked.tried_with = composition;
            for shape in std::mem::take(&mut self.blocked.shapes).keys() {
                self.queues.open(*shape);
            }
        } else if !gained.is_empty() {
            let mut shapes = std::mem::take(&mut self.blocked.shapes);
            shapes.retain(|shape, short| {
                let enough = self.is_enough(*shape, &gained, short);
                if enough {
                    self.queues.open(*shape);
                }
                !enough
            });
            self.blocked.shapes = shapes;
        }
        if self.queues.take_released() || !gained.is_empty() {
            for no in std::mem::take(&mut self.blocked.lines) {
                let still = self.queues.line(no).is_some_and(|line| {
                    self.queues.limited_by(line.key.queue, &line.asks).is_some()
                });
                if still {
                    self.blocked.lines.insert(no);
                } else {
                    self.queues.free(no);
                }
            }
        }
    }

    /// Whether, with what there is on these nodes now, all members that have to may find room.
    fn is_enough(&self, shape: ShapeNo, nodes: &[NodeNo], short: &mut Short) -> bool {
        let members = &self.shapes.get(shape.0).members;
        nodes.iter().any(|no| {
            let node = self.fleet.node(*no);
            if !node.open() {
                return false;
            }
            let classes = members.iter().map(|(class, _)| self.classes.get(class.0));
            let room = classes.map(|class| node.room_for(self.fleet.capacity(*no), class));
            let room = room.max().unwrap_or(0);
            room > 0 && short.gained(*no, room)
        })
    }
}
