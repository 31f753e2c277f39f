//! What is passed over, and what has to change before it is worth another try. Only saves work.

use super::Waiting;
use crate::domain::{
    allocation::Allocations,
    class::{Shape, ShapeNo},
    fair::Share,
    fleet::{Fleet, KindNo, NodeNo, Regrouped, most_on},
    queues::Line,
    sweep::Sweep,
};
use std::collections::{BTreeMap, BTreeSet};
use vocab::{
    AllocationNo, LineNo, Millis, Token, WaitingReason,
    sabotage::{self, Bug},
};

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
    unexplained: BTreeSet<LineNo>,
    /// Who could be made to go for whom.
    pub sweep: Sweep,
    /// Lines whose heads could come, if more might go in a minute.
    rate_limited: BTreeSet<LineNo>,
    /// Shapes that the fleet could not hold if it were empty, and the fleet's composition then.
    hopeless: (Option<u64>, BTreeMap<ShapeNo, bool>),
}

/// Why there are no places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Short {
    pub reason: WaitingReason,
    /// So many members must find room.
    pub min: u32,
    /// How many of them could find room on which node, at the most.
    pub room: BTreeMap<NodeNo, u32>,
}

impl Short {
    pub fn of(reason: WaitingReason) -> Self {
        Self {
            reason,
            min: 1,
            room: BTreeMap::new(),
        }
    }

    /// The node has room for so many now; whether that may be enough, all in all.
    fn gained(&mut self, node: NodeNo, members: u32) -> bool {
        self.room.insert(node, members);
        let room: u64 = self.room.values().map(|members| u64::from(*members)).sum();
        room >= u64::from(self.min)
    }
}

/// The earliest place that the first who does not fit can have by the run-time estimates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promise {
    pub to: AllocationNo,
    pub node: NodeNo,
    pub from: Millis,
}

/// What waits for an unchanged reason is explained again, with new numbers, no more often than this.
pub const AGAIN_MS: i64 = 60_000;

impl Blocked {
    pub fn new_line(&mut self, line: LineNo) {
        self.unexplained.insert(line);
    }

    pub fn forget(&mut self, line: LineNo) {
        self.lines.remove(&line);
        self.unexplained.remove(&line);
        self.rate_limited.remove(&line);
    }

    pub fn forget_shape(&mut self, shape: ShapeNo) {
        self.shapes.remove(&shape);
        self.explained.remove(&shape);
        self.hopeless.1.remove(&shape);
        self.sweep.forget(shape);
    }
}

impl Waiting {
    // --- passed over

    /// The line's head was tried in vain.
    pub fn block(&mut self, no: LineNo, shape: ShapeNo, short: Short, now: Millis) {
        let limited = matches!(
            short.reason,
            WaitingReason::QueueLimit | WaitingReason::OverLimit
        );
        if limited || self.blocked.line_by_line {
            self.queues.block(no, short.reason);
            self.blocked.lines.insert(no);
            self.blocked.unexplained.insert(no);
            self.sweep_too(no);
            return;
        }
        let said = short.reason;
        self.queues.close(shape);
        self.blocked.shapes.insert(shape, short);
        if self.blocked.sweep.takes(shape) {
            let of_shape = self.queues.by_shape().get(&shape);
            for line in of_shape.cloned().into_iter().flatten() {
                self.sweep_too(line);
            }
        }
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

    /// Whether a limit of its queue, or of one above, keeps the line's head from being placed.
    pub fn block_if_limited(&mut self, no: LineNo, now: Millis) -> bool {
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

    /// Passes over all lines that a limit keeps from being placed.
    pub fn block_all_limited(&mut self, now: Millis) {
        if self.queues.any_limits() {
            let lines: Vec<_> = self.queues.lines().map(|line| line.no).collect();
            for line in lines {
                self.block_if_limited(line, now);
            }
        }
    }

    /// Why a line is passed over; none when it may be tried.
    pub fn block_of(&self, line: &Line) -> Option<WaitingReason> {
        let of_shape = || {
            self.blocked
                .shapes
                .get(&line.key.shape)
                .map(|short| short.reason)
        };
        line.blocked.or_else(of_shape)
    }

    /// A line of each kind that may be tried, with its shape.
    pub fn shapes_to_try(&mut self) -> Vec<(LineNo, ShapeNo)> {
        if self.blocked.line_by_line {
            let free = self.queues.lines().filter(|line| line.blocked.is_none());
            return free.map(|line| (line.no, line.key.shape)).collect();
        }
        let blocked = &self.blocked.0.shapes;
        let by_shape = self.queues.by_shape().iter();
        let open = by_shape.filter(|(shape, _)| !blocked.contains_key(shape));
        open.filter_map(|(shape, lines)| Some((*lines.first()?, *shape)))
            .collect()
    }

    /// All lines that may be tried.
    pub fn lines_to_try(&mut self) -> Vec<LineNo> {
        let blocked = &self.blocked.0.shapes;
        let by_shape = self.queues.by_shape().iter();
        let open = by_shape.filter(|(shape, _)| !blocked.contains_key(shape));
        let mut lines: Vec<_> = open.flat_map(|(_, lines)| lines.iter().copied()).collect();
        lines.retain(|no| {
            self.queues
                .line(*no)
                .is_some_and(|line| self.block_of(line).is_none())
        });
        lines
    }

    /// Who may go to the nodes that are set aside is different for each line. When that changes, all are tried again.
    pub fn promise(&mut self, promise: Option<Promise>, line_by_line: bool) {
        if self.blocked.line_by_line == line_by_line && self.blocked.promise == promise {
            return;
        }
        self.blocked.line_by_line = line_by_line;
        self.blocked.promise = promise;
        self.blocked.sweep.anew();
        self.blocked.shapes.clear();
        self.blocked.lines.clear();
        self.queues.free_all();
    }

    pub fn promised(&self, node: NodeNo) -> bool {
        self.blocked
            .promise
            .is_some_and(|promise| promise.node == node)
    }

    // --- tried again

    /// Everything is worth another try.
    pub fn try_everything(&mut self) {
        self.queues.free_all();
        *self.blocked = Blocked::default();
    }

    /// Lines that are passed over by themselves are tried again if their queues hold less, or there is more room.
    pub fn free_lines(&mut self, room_gained: bool) {
        if !self.queues.take_released() && !room_gained {
            return;
        }
        for no in std::mem::take(&mut self.blocked.lines) {
            let still = self
                .queues
                .line(no)
                .is_some_and(|line| self.queues.limited_by(line.key.queue, &line.asks).is_some());
            if still {
                self.blocked.lines.insert(no);
            } else {
                self.queues.free(no);
                // There may be no room for it either, which was not said of it yet.
                self.blocked.unexplained.insert(no);
            }
        }
    }

    /// There are other nodes: what was found of the old ones says little.
    pub fn open_all(&mut self) {
        for shape in std::mem::take(&mut self.blocked.shapes).keys() {
            self.queues.open(*shape);
        }
    }

    /// There is more room on these nodes.
    pub fn open_on(&mut self, nodes: &[NodeNo], fleet: &Fleet, allocations: &Allocations) {
        let mut shapes = std::mem::take(&mut self.blocked.shapes);
        shapes.retain(|shape, short| {
            let enough = is_enough(self.shape(*shape), nodes, short, (fleet, allocations));
            if enough {
                self.queues.open(*shape);
            }
            !enough
        });
        self.blocked.shapes = shapes;
    }

    /// Whoever looks at these groups, or is of one that nominees may let in, is tried again.
    pub fn open_concerned(&mut self, regrouped: &Regrouped, allocations: &Allocations) {
        if regrouped.is_empty() {
            return;
        }
        let mut shapes = std::mem::take(&mut self.blocked.shapes);
        shapes.retain(|shape, _| {
            let concerned = concerns(regrouped, self.shape(*shape), allocations);
            if concerned {
                self.queues.open(*shape);
            }
            !concerned
        });
        self.blocked.shapes = shapes;
    }

    /// The same, where lines are tried each by itself.
    pub fn free_concerned(&mut self, regrouped: &Regrouped, allocations: &Allocations) {
        if !self.blocked.line_by_line {
            return;
        }
        let lines: Vec<_> = self.blocked.lines.iter().copied().collect();
        for no in lines {
            let concerned = self.queues.line(no).is_some_and(|line| {
                line.blocked.is_some()
                    && concerns(regrouped, self.shape(line.key.shape), allocations)
            });
            if concerned {
                self.blocked.lines.remove(&no);
                self.queues.free(no);
                self.blocked.unexplained.insert(no);
            }
        }
    }

    // --- explained

    /// The next line to be explained.
    pub fn first_unexplained(&self) -> Option<LineNo> {
        self.blocked.unexplained.first().copied()
    }

    pub fn is_explained(&mut self, line: LineNo) {
        self.blocked.unexplained.remove(&line);
    }

    /// There may be another reason for each line.
    pub fn explain_all(&mut self) {
        let lines = self.queues.lines().map(|line| line.no);
        self.blocked.0.unexplained.extend(lines);
    }

    // --- who may preempt

    /// Who could be made to go for whom is another matter now.
    pub fn sweep_anew(&mut self) {
        self.blocked.sweep.anew();
    }

    /// Whether the line could preempt is to be seen.
    pub(super) fn sweep_too(&mut self, line: LineNo) {
        if let Some(head) = self.queues.line(line).and_then(Line::head) {
            self.blocked.sweep.add(head, line);
        }
    }

    /// For as long as it goes on; it is put back then.
    pub fn take_sweep(&mut self) -> Sweep {
        std::mem::take(&mut self.blocked.sweep)
    }

    pub fn put_sweep(&mut self, sweep: Sweep) {
        self.blocked.sweep = sweep;
    }

    /// Whether the limit on preemptions is all that keeps the line's head from coming; what changes is explained.
    pub fn rate_limits(&mut self, line: LineNo, limited: bool) {
        let changed = match limited {
            true => self.blocked.rate_limited.insert(line),
            false => self.blocked.rate_limited.remove(&line),
        };
        if changed {
            self.blocked.unexplained.insert(line);
        }
    }

    /// Nobody preempts any more.
    pub fn rate_limits_nobody(&mut self) {
        for line in std::mem::take(&mut self.blocked.rate_limited) {
            self.blocked.unexplained.insert(line);
        }
    }

    pub fn is_rate_limited(&self, line: LineNo) -> bool {
        self.blocked.rate_limited.contains(&line)
    }

    pub fn any_rate_limited(&self) -> bool {
        !self.blocked.rate_limited.is_empty()
    }

    // --- shares

    /// What each queue is due, for what is in it itself.
    pub fn fair_shares(&mut self, fleet: &Fleet, allocations: &Allocations) -> Vec<Share> {
        let composition = Some(fleet.composition());
        if self.blocked.hopeless.0 != composition {
            self.blocked.hopeless = (composition, BTreeMap::new());
        }
        let unknown: Vec<_> = {
            let hopeless = &self.blocked.0.hopeless.1;
            let shapes = self.queues.by_shape().keys();
            let unknown = shapes.filter(|shape| !hopeless.contains_key(shape));
            unknown.copied().collect()
        };
        if !unknown.is_empty() {
            let kinds = fleet.by_kind();
            for no in unknown {
                let shape = self.shape(no);
                let hopeless = !could_ever_fit(shape, &kinds, fleet, allocations);
                self.blocked.hopeless.1.insert(no, hopeless);
            }
        }
        let hopeless = &self.blocked.0.hopeless.1;
        let counts = sabotage::armed(Bug::ImpossibleDemandCounts);
        let hopeless = |shape| !counts && hopeless.get(&shape).copied().unwrap_or(false);
        let impossible = self.queues.impossible(hopeless);
        self.queues.fair_shares(fleet.totals(), &impossible)
    }
}

/// Whether the open nodes could hold the shape if nothing were on them, as far as numbers tell.
pub fn could_ever_fit(
    shape: &Shape,
    kinds: &[(KindNo, u32, u32)],
    fleet: &Fleet,
    allocations: &Allocations,
) -> bool {
    let open = kinds.iter().filter(|(_, _, open)| *open > 0);
    let fits = |of_value: &dyn Fn(KindNo) -> bool| {
        let mut members = 0u64;
        for (class, count) in &shape.members {
            let class = allocations.class(*class);
            let places = open.clone().filter(|(kind, _, _)| of_value(*kind));
            let places = places.map(|(kind, _, open)| {
                most_on(fleet.kind(*kind), class).saturating_mul(u64::from(*open))
            });
            let places = places.fold(0u64, u64::saturating_add);
            members += places.min(u64::from(*count));
        }
        members > 0 && members >= u64::from(shape.min)
    };
    let Some(label) = &shape.uniform_label else {
        return fits(&|_| true);
    };
    let mut values: Vec<_> = fleet.label_values(label);
    if let Some(value) = &shape.uniform_value {
        values.retain(|other| other == value);
    }
    values
        .iter()
        .any(|value| fits(&|kind| fleet.kind(kind).label(label.as_str()) == Some(value)))
}

/// Whether the shape's members look at a group that has changed, or are of one that nominees may let in.
fn concerns(regrouped: &Regrouped, shape: &Shape, allocations: &Allocations) -> bool {
    let members = shape.members.iter();
    let mut classes = members.map(|(class, _)| allocations.class(*class));
    classes.any(|class| {
        let of = |(tenant, group): (&Token, &Token)| {
            let group = (tenant.clone(), group.clone());
            regrouped.let_in.contains(&group)
        };
        class.looks_at(&regrouped.moved)
            || !regrouped.let_in.is_empty() && class.group().is_some_and(of)
    })
}

/// Whether, with what there is on these nodes now, all members that have to may find room.
fn is_enough(
    shape: &Shape,
    nodes: &[NodeNo],
    short: &mut Short,
    (fleet, allocations): (&Fleet, &Allocations),
) -> bool {
    // Where members differ, room on one node may make room for another member on another.
    let differ = shape.members.len() > 1;
    nodes.iter().any(|no| {
        let node = fleet.node(*no);
        if !node.open() {
            return false;
        }
        let members = shape.members.iter();
        let classes = members.map(|(class, _)| allocations.class(*class));
        let room = classes.map(|class| node.room_for(fleet.capacity(*no), class));
        let room = room.max().unwrap_or(0);
        room > 0 && (short.gained(*no, room) || differ)
    })
}
