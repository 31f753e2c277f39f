//! What is passed over, and what has to change before it is worth another try. Only saves work.

use super::{
    Scheduler,
    aside::{Aside, Promise},
    class::{Amounts, Shape, ShapeNo, add},
    fair::Share,
    fleet::{KindNo, NodeNo, Regrouped, most_on},
    place::Short,
    preempt::{Board, Sweep},
    queues::{Line, QueueNo},
    work::{self, PutOff},
};
use ledger::Draft;
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
    pub unexplained: BTreeSet<LineNo>,
    /// The fleet's composition when shapes were last tried, and when lines were last explained.
    tried_with: Option<u64>,
    pub explained_with: Option<u64>,
    /// When decisions were last made.
    pub decided: Option<Millis>,
    /// There may be more to decide at once.
    pub again: bool,
    /// Who could be made to go for whom.
    pub sweep: Sweep,
    pub board: Board,
    /// When that may be another matter though nothing has happened.
    pub preempt_again_at: Option<Millis>,
    pub placing_put_off: PutOff,
    pub preempting_put_off: PutOff,
    pub explaining_put_off: PutOff,
    /// Who is new is told from this one on: the frame before was full when it was his turn.
    pub told_from: AllocationNo,
    /// Lines whose heads could come, if more might go in a minute.
    pub rate_limited: BTreeSet<LineNo>,
    /// There may be more room somewhere, or others may go there, than when nominees were last looked at.
    pub room_gained: bool,
    /// A reservation was granted, changed or ended: others may go to its nodes.
    pub reserved_anew: bool,
    /// Shapes that the fleet could not hold if it were empty, and the fleet's composition then.
    hopeless: (Option<u64>, BTreeMap<ShapeNo, bool>),
}

/// What waits for an unchanged reason is explained again, with new numbers, no more often than this.
pub const AGAIN_MS: i64 = 60_000;

impl Blocked {
    pub(super) fn promised(&self, node: NodeNo) -> bool {
        self.promise.is_some_and(|promise| promise.node == node)
    }

    pub(super) fn has_no_room(&self, shape: ShapeNo) -> bool {
        self.shapes.contains_key(&shape)
    }

    pub(super) fn forget(&mut self, line: LineNo) {
        self.lines.remove(&line);
        self.unexplained.remove(&line);
        self.rate_limited.remove(&line);
    }

    pub(super) fn forget_shape(&mut self, shape: ShapeNo) {
        self.shapes.remove(&shape);
        self.explained.remove(&shape);
        self.hopeless.1.remove(&shape);
        self.sweep.forget(shape);
    }

    /// Whether the limit on preemptions is all that keeps the line's head from coming; what changes is explained.
    pub(super) fn rate_limits(&mut self, line: LineNo, limited: bool) {
        let changed = match limited {
            true => self.rate_limited.insert(line),
            false => self.rate_limited.remove(&line),
        };
        if changed {
            self.unexplained.insert(line);
        }
    }

    /// Preemption is worth a look then, even if nothing happens before.
    pub(super) fn preempt_at(&mut self, at: Millis) {
        let before = self.preempt_again_at.unwrap_or(at);
        self.preempt_again_at = Some(before.min(at));
    }
}

impl Scheduler {
    /// The line's head was tried in vain.
    pub(super) fn block(&mut self, no: LineNo, shape: ShapeNo, short: Short, now: Millis) {
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

    /// Whether the line could preempt is to be seen.
    pub(super) fn sweep_too(&mut self, line: LineNo) {
        if let Some(head) = self.queues.line(line).and_then(Line::head) {
            self.blocked.sweep.add(head, line);
        }
    }

    /// What each queue is due, for what is in it itself.
    pub(super) fn fair_shares(&mut self) -> Vec<Share> {
        let composition = Some(self.fleet.composition());
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
            let kinds = self.fleet.by_kind();
            for shape in unknown {
                let hopeless = !self.could_ever_fit(self.shapes.get(shape.0), &kinds);
                self.blocked.hopeless.1.insert(shape, hopeless);
            }
        }
        let hopeless = &self.blocked.0.hopeless.1;
        let counts = sabotage::armed(Bug::ImpossibleDemandCounts);
        let hopeless = |shape| !counts && hopeless.get(&shape).copied().unwrap_or(false);
        let impossible = self.queues.impossible(hopeless);
        self.queues.fair_shares(self.fleet.totals(), &impossible)
    }

    /// It may be placed from now on. What no node and no limit will ever let in says nothing about what room is worth.
    pub(super) fn arrives(&mut self, shape: &Shape, queue: QueueNo) {
        let mut asks = Amounts::default();
        for (class, count) in &shape.members {
            let amounts = self.allocations.class(*class).amounts();
            add(
                &mut asks,
                &amounts.map(|amount| amount.wrapping_mul((*count).into())),
            );
        }
        let kinds = self.fleet.known_kinds();
        if !self.queues.ever(queue, &asks) || !self.could_ever_fit(shape, &kinds) {
            return;
        }
        for (class, count) in &shape.members {
            for _ in 0..*count {
                self.fleet.arrived(&self.allocations.class(*class).ask);
            }
        }
    }

    /// Whether the open nodes could hold the shape if nothing were on them, as far as numbers tell.
    fn could_ever_fit(&self, shape: &Shape, kinds: &[(KindNo, u32, u32)]) -> bool {
        let open = kinds.iter().filter(|(_, _, open)| *open > 0);
        let fits = |of_value: &dyn Fn(KindNo) -> bool| {
            let mut members = 0u64;
            for (class, count) in &shape.members {
                let class = self.allocations.class(*class);
                let places = open.clone().filter(|(kind, _, _)| of_value(*kind));
                let places = places.map(|(kind, _, open)| {
                    most_on(self.fleet.kind(*kind), class).saturating_mul(u64::from(*open))
                });
                let places = places.fold(0u64, u64::saturating_add);
                members += places.min(u64::from(*count));
            }
            members > 0 && members >= u64::from(shape.min)
        };
        let Some(label) = &shape.uniform_label else {
            return fits(&|_| true);
        };
        let mut values: Vec<_> = self.fleet.label_values(label);
        if let Some(value) = &shape.uniform_value {
            values.retain(|other| other == value);
        }
        values
            .iter()
            .any(|value| fits(&|kind| self.fleet.kind(kind).label(label.as_str()) == Some(value)))
    }

    /// Closes what there is no room for before anybody is asked whose turn it is: so whose turn it is does not depend on
    /// what was found out earlier.
    pub(super) fn close_hopeless(&mut self, aside: &Aside, draft: &mut Draft) {
        let now = draft.now;
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
                self.close_if_hopeless(line, shape, aside, draft);
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
            self.close_if_hopeless(line, shape, aside, draft);
        }
    }

    fn close_if_hopeless(
        &mut self,
        line: LineNo,
        shape: ShapeNo,
        aside: &Aside,
        draft: &mut Draft,
    ) {
        let Some(head) = self.queues.line(line).and_then(|line| line.head()) else {
            return;
        };
        let members = self.unit(head.allocation, self.shapes.get(shape.0).members.len());
        draft.spend(work::TRY);
        if let Err(short) = self.find_places(&members, shape, aside) {
            self.block(line, shape, short, draft.now);
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
        self.blocked.sweep.anew();
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
        let reserved_anew = std::mem::take(&mut self.blocked.reserved_anew);
        if reserved_anew || self.reservations.moments().any(passed) {
            gained = self.fleet.all().collect();
        }
        gained.sort_unstable();
        gained.dedup();
        if sabotage::armed(Bug::WakeUpLost) {
            gained.clear();
        }
        let regrouped = self.fleet.take_regrouped();
        let composition = Some(self.fleet.composition());
        let composed = self.blocked.tried_with != composition;
        let room_gained = composed || !gained.is_empty() || !regrouped.is_empty();
        self.blocked.room_gained |= room_gained;
        self.open_concerned(&regrouped);
        if composed {
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
        if self.queues.take_released() || room_gained {
            for no in std::mem::take(&mut self.blocked.lines) {
                let still = self.queues.line(no).is_some_and(|line| {
                    self.queues.limited_by(line.key.queue, &line.asks).is_some()
                });
                if still {
                    self.blocked.lines.insert(no);
                } else {
                    self.queues.free(no);
                    // There may be no room for it either, which was not said of it yet.
                    self.blocked.unexplained.insert(no);
                }
            }
        }
    }

    /// Somebody was placed: whoever looks at its group is tried again, wherever there is room.
    pub(super) fn reopen(&mut self, regrouped: &Regrouped, aside: &Aside, draft: &mut Draft) {
        self.blocked.room_gained = true;
        if self.blocked.line_by_line {
            let lines: Vec<_> = self.blocked.lines.iter().copied().collect();
            for no in lines {
                let concerned = self.queues.line(no).is_some_and(|line| {
                    line.blocked.is_some() && self.concerns(regrouped, line.key.shape)
                });
                if concerned {
                    self.blocked.lines.remove(&no);
                    self.queues.free(no);
                    self.blocked.unexplained.insert(no);
                }
            }
        }
        self.open_concerned(regrouped);
        self.close_hopeless(aside, draft);
    }

    /// Whether the shape's members look at a group that has changed, or are of one that nominees may let in.
    fn concerns(&self, regrouped: &Regrouped, shape: ShapeNo) -> bool {
        let members = &self.shapes.get(shape.0).members;
        let mut classes = members
            .iter()
            .map(|(class, _)| self.allocations.class(*class));
        classes.any(|class| {
            let of = |(tenant, group): (&Token, &Token)| {
                let group = (tenant.clone(), group.clone());
                regrouped.let_in.contains(&group)
            };
            class.looks_at(&regrouped.moved)
                || !regrouped.let_in.is_empty() && class.group().is_some_and(of)
        })
    }

    fn open_concerned(&mut self, regrouped: &Regrouped) {
        if regrouped.is_empty() {
            return;
        }
        let mut shapes = std::mem::take(&mut self.blocked.shapes);
        shapes.retain(|shape, _| {
            let concerned = self.concerns(regrouped, *shape);
            if concerned {
                self.queues.open(*shape);
            }
            !concerned
        });
        self.blocked.shapes = shapes;
    }

    /// Whether, with what there is on these nodes now, all members that have to may find room.
    fn is_enough(&self, shape: ShapeNo, nodes: &[NodeNo], short: &mut Short) -> bool {
        let members = &self.shapes.get(shape.0).members;
        // Where members differ, room on one node may make room for another member on another.
        let differ = members.len() > 1;
        nodes.iter().any(|no| {
            let node = self.fleet.node(*no);
            if !node.open() {
                return false;
            }
            let classes = members
                .iter()
                .map(|(class, _)| self.allocations.class(*class));
            let room = classes.map(|class| node.room_for(self.fleet.capacity(*no), class));
            let room = room.max().unwrap_or(0);
            room > 0 && (short.gained(*no, room) || differ)
        })
    }
}
