//! The queues: who is next, by fair share among queues and by priority and order inside one.

mod line;
mod turns;

pub use line::{Key, Line, LineKey, Said};

use super::{
    class::{Amounts, ShapeNo, add, subtract},
    fair::{self, Kept, Remembered, Share},
    interner::Interner,
};
use ledger::Scratch;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use turns::Turns;
use vocab::{LineNo, Millis, QueueSettings, ResourceKind, Token, WaitingReason};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct QueueNo(pub u32);

/// Use, as it is remembered at a moment: it moves towards what is held by half of the difference in each half-life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Past {
    at: Millis,
    used: [Remembered; 3],
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queues {
    names: Interner<Token>,
    queues: Vec<Queue>,
    lines: BTreeMap<LineNo, Line>,
    by_key: BTreeMap<LineKey, LineNo>,
    next_line: u64,
    #[serde(skip)]
    turns: Scratch<Turns>,
    /// Lines by what they ask for; made anew when it is not there.
    #[serde(skip)]
    by_shape: Scratch<Option<BTreeMap<ShapeNo, BTreeSet<LineNo>>>>,
    /// A queue holds less than when that was last asked.
    #[serde(skip)]
    released: Scratch<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    pub name: Token,
    pub settings: QueueSettings,
    /// By an operator.
    set: bool,
    parent: Option<QueueNo>,
    children: BTreeSet<QueueNo>,
    /// In this queue and below.
    sums: Sums,
    /// Held or promised, without what is below.
    own: Amounts,
    /// What is remembered of past use.
    past: Option<Past>,
}

/// What a queue and those below it have and want.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Sums {
    /// Held or promised.
    held: Amounts,
    /// Of that, by what nobody can make go.
    firm: Amounts,
    /// Made to go and still on a node: shares do not count it any more, limits do.
    leaving: Amounts,
    /// Waiting for a place.
    waiting: Amounts,
}

impl Sums {
    fn each(&mut self, other: &Self, change: impl Fn(&mut Amounts, &Amounts)) {
        change(&mut self.held, &other.held);
        change(&mut self.firm, &other.firm);
        change(&mut self.leaving, &other.leaving);
        change(&mut self.waiting, &other.waiting);
    }
}

/// What an allocation, or a gang, takes of its queue, and whether it can be made to go.
#[derive(Debug, Clone, Copy)]
pub struct Use {
    pub amounts: Amounts,
    pub firm: bool,
}

/// Waiting for what no node and no limit will ever let them have, by queue with all below it; no demand of a fair share.
#[derive(Debug, Default)]
pub struct Impossible(BTreeMap<QueueNo, Amounts>);

impl Queues {
    /// The number of the queue; it comes into being with its first user or its settings.
    pub fn enter(&mut self, name: &Token) -> QueueNo {
        if let Some(known) = self.names.find(name) {
            return QueueNo(known);
        }
        let no = QueueNo(self.names.acquire(name));
        self.queues.push(Queue {
            name: name.clone(),
            settings: QueueSettings::default(),
            set: false,
            parent: None,
            children: BTreeSet::new(),
            sums: Sums::default(),
            own: Amounts::default(),
            past: None,
        });
        self.turns.distrust();
        no
    }

    pub fn get(&self, queue: QueueNo) -> &Queue {
        &self.queues[queue.0 as usize]
    }

    pub fn all(&self) -> impl Iterator<Item = (QueueNo, &Queue)> {
        self.queues
            .iter()
            .zip(0..)
            .map(|(queue, no)| (QueueNo(no), queue))
    }

    pub fn parent(&self, queue: QueueNo) -> Option<QueueNo> {
        self.get(queue).parent
    }

    /// The queue and those above it.
    pub fn up(&self, queue: QueueNo) -> impl Iterator<Item = QueueNo> {
        std::iter::successors(Some(queue), |queue| self.get(*queue).parent)
    }

    /// New settings; what it and those below hold moves along with it to another parent.
    pub fn set(&mut self, name: &Token, settings: &QueueSettings) {
        let no = self.enter(name);
        let parent = settings.parent.as_ref().map(|parent| self.enter(parent));
        let sums = self.get(no).sums;
        // Admission lets no queue be above itself; a ledger that has one is read all the same.
        let parent = parent.filter(|parent| !self.up(*parent).any(|above| above == no));
        let old = self.get(no).parent;
        if old != parent {
            for above in old
                .map(|old| self.up(old).collect::<Vec<_>>())
                .into_iter()
                .flatten()
            {
                self.queues[above.0 as usize].sums.each(&sums, subtract);
            }
            for above in parent
                .map(|new| self.up(new).collect::<Vec<_>>())
                .into_iter()
                .flatten()
            {
                self.queues[above.0 as usize].sums.each(&sums, add);
            }
            if let Some(old) = old {
                self.queues[old.0 as usize].children.remove(&no);
            }
            if let Some(parent) = parent {
                self.queues[parent.0 as usize].children.insert(no);
            }
        }
        let queue = &mut self.queues[no.0 as usize];
        queue.parent = parent;
        queue.settings = settings.clone();
        queue.set = true;
        self.turns.distrust();
    }

    /// The weight of the tenant's own queue, which what was set of the queue itself overrides.
    pub fn weigh(&mut self, tenant: &Token, weight_milli: u32) {
        let no = self.enter(tenant);
        let queue = &mut self.queues[no.0 as usize];
        if !queue.set {
            queue.settings.weight_milli = weight_milli;
            self.turns.distrust();
        }
    }

    // --- lines

    pub fn line(&self, line: LineNo) -> Option<&Line> {
        self.lines.get(&line)
    }

    pub fn line_mut(&mut self, line: LineNo) -> Option<&mut Line> {
        self.lines.get_mut(&line)
    }

    pub fn lines(&self) -> impl Iterator<Item = &Line> {
        self.lines.values()
    }

    /// The lines of each shape.
    pub fn by_shape(&mut self) -> &BTreeMap<ShapeNo, BTreeSet<LineNo>> {
        let lines = &self.lines;
        self.by_shape.0.get_or_insert_with(|| {
            let mut by_shape: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
            for line in lines.values() {
                by_shape.entry(line.key.shape).or_default().insert(line.no);
            }
            by_shape
        })
    }

    pub fn any_limits(&self) -> bool {
        self.queues
            .iter()
            .any(|queue| !queue.settings.limits.is_empty())
    }

    /// Puts it in the line of its likes. `true` when that line is new.
    pub fn join(&mut self, line_key: LineKey, asks: Amounts, key: Key) -> (LineNo, bool) {
        let queue = line_key.queue;
        let (no, new) = match self.by_key.get(&line_key) {
            Some(no) => (*no, false),
            None => {
                self.next_line += 1;
                let no = LineNo(self.next_line);
                if let Some(lines) = &mut self.by_shape.0 {
                    lines.entry(line_key.shape).or_default().insert(no);
                }
                self.by_key.insert(line_key.clone(), no);
                self.lines.insert(no, Line::new(no, line_key, asks));
                (no, true)
            }
        };
        if let Some(line) = self.lines.get_mut(&no) {
            let before = line.head();
            line.waiting.insert(key);
            if line.blocked.is_none() {
                self.turns.head_changed(line, before, line.head());
            }
        }
        for above in self.up(queue).collect::<Vec<_>>() {
            add(&mut self.queues[above.0 as usize].sums.waiting, &asks);
        }
        (no, new)
    }

    /// Takes it out of its line. The line's key comes back when nobody is left in it.
    pub fn leave(&mut self, no: LineNo, key: Key) -> Option<LineKey> {
        let line = self.lines.get_mut(&no)?;
        let before = line.head();
        if !line.waiting.remove(&key) {
            return None;
        }
        let (queue, asks) = (line.key.queue, line.asks);
        if line.blocked.is_none() {
            self.turns.head_changed(line, before, line.head());
        }
        let empty = line.waiting.is_empty();
        for above in self.up(queue).collect::<Vec<_>>() {
            subtract(&mut self.queues[above.0 as usize].sums.waiting, &asks);
        }
        if !empty {
            return None;
        }
        let line = self.lines.remove(&no)?;
        if let Some(lines) = &mut self.by_shape.0
            && let Some(of_shape) = lines.get_mut(&line.key.shape)
        {
            of_shape.remove(&no);
            if of_shape.is_empty() {
                lines.remove(&line.key.shape);
            }
        }
        self.by_key.remove(&line.key);
        Some(line.key)
    }

    /// Everybody's key, by line.
    pub fn keys(&self) -> Vec<(LineNo, Key)> {
        let of = |line: &Line| {
            line.waiting
                .iter()
                .map(|key| (line.no, *key))
                .collect::<Vec<_>>()
        };
        self.lines.values().flat_map(of).collect()
    }

    /// One who waits stands elsewhere in its line.
    pub fn rekey(&mut self, no: LineNo, old: Key, new: Key) {
        if let Some(line) = self.lines.get_mut(&no) {
            let before = line.head();
            line.waiting.remove(&old);
            line.waiting.insert(new);
            if line.blocked.is_none() {
                self.turns.head_changed(line, before, line.head());
            }
        }
    }

    /// All lines are worth another try.
    pub fn free_all(&mut self) {
        for line in self.lines.values_mut() {
            line.blocked.0 = None;
        }
        *self.turns = Turns::default();
    }

    /// Its head cannot be placed: it is passed over until `free`.
    pub fn block(&mut self, no: LineNo, reason: WaitingReason) {
        if let Some(line) = self.lines.get_mut(&no) {
            if line.blocked.is_none()
                && let Some(head) = line.head()
            {
                self.turns.head_changed(line, Some(head), None);
            }
            line.blocked.0 = Some(reason);
        }
    }

    /// It is not its turn until `take_up`, though it might be placed.
    pub fn pass_over(&mut self, no: LineNo) {
        if let Some(line) = self.lines.get(&no) {
            self.turns.head_changed(line, line.head(), None);
        }
    }

    pub fn take_up(&mut self, no: LineNo) {
        if let Some(line) = self.lines.get(&no).filter(|line| line.blocked.is_none()) {
            self.turns.head_changed(line, None, line.head());
        }
    }

    /// All lines of the shape are passed over until `open`.
    pub fn close(&mut self, shape: ShapeNo) {
        self.turns.close(shape);
    }

    pub fn open(&mut self, shape: ShapeNo) {
        self.turns.open(shape);
    }

    pub fn free(&mut self, no: LineNo) {
        if let Some(line) = self.lines.get_mut(&no)
            && line.blocked.0.take().is_some()
        {
            self.turns.head_changed(line, None, line.head());
        }
    }

    // --- shares

    /// Held or promised from now on.
    pub fn hold(&mut self, queue: QueueNo, used: &Use, now: Millis, half_life_ms: u64) {
        self.change(queue, used, now, half_life_ms, add);
    }

    /// Not held any more, nor on a node.
    pub fn release(&mut self, queue: QueueNo, used: &Use, now: Millis, half_life_ms: u64) {
        self.released.0 = true;
        self.change(queue, used, now, half_life_ms, subtract);
    }

    /// Not held any more, and still on a node until `gone`.
    pub fn goes(&mut self, queue: QueueNo, used: &Use, now: Millis, half_life_ms: u64) {
        self.change(queue, used, now, half_life_ms, subtract);
        for above in self.up(queue).collect::<Vec<_>>() {
            let sums = &mut self.queues[above.0 as usize].sums;
            add(&mut sums.leaving, &used.amounts);
        }
    }

    pub fn gone(&mut self, queue: QueueNo, amounts: &Amounts) {
        self.released.0 = true;
        for above in self.up(queue).collect::<Vec<_>>() {
            let sums = &mut self.queues[above.0 as usize].sums;
            subtract(&mut sums.leaving, amounts);
        }
    }

    fn change(
        &mut self,
        queue: QueueNo,
        used: &Use,
        now: Millis,
        half_life_ms: u64,
        change: fn(&mut Amounts, &Amounts),
    ) {
        change(&mut self.queues[queue.0 as usize].own, &used.amounts);
        let mut above = Some(queue);
        while let Some(no) = above {
            let queue = &mut self.queues[no.0 as usize];
            queue.remember(now, half_life_ms);
            change(&mut queue.sums.held, &used.amounts);
            if used.firm {
                change(&mut queue.sums.firm, &used.amounts);
            }
            above = queue.parent;
        }
        self.turns.look_again(queue);
    }

    /// Counts anew what nobody can make go: by queue, of what is held in it itself.
    pub fn recount_firm(&mut self, firm: impl Iterator<Item = (QueueNo, Amounts)>) {
        for queue in &mut self.queues {
            queue.sums.firm = Amounts::default();
        }
        for (queue, amounts) in firm {
            for above in self.up(queue).collect::<Vec<_>>() {
                add(&mut self.queues[above.0 as usize].sums.firm, &amounts);
            }
        }
    }

    /// Whether a queue holds less than at the last call.
    pub fn take_released(&mut self) -> bool {
        std::mem::take(&mut self.released.0)
    }

    // --- turns

    /// Queues whose turn was looked at since that was last asked.
    pub fn take_looked_at(&mut self) -> usize {
        self.turns.0.take_looked_at()
    }

    /// The line whose head is next. It stays next until it is taken out, or its line is blocked.
    pub fn next(&mut self, totals: &Amounts, now: Millis, half_life_ms: u64) -> Option<LineNo> {
        let mut turns = std::mem::take(&mut self.turns.0);
        turns.bring_up_to_date(self, totals, now, half_life_ms);
        let next = turns.next(self, half_life_ms);
        self.turns.0 = turns;
        next
    }

    /// What each queue is due of the cell by the weights and by what it could use, for what is in it itself; what is below
    /// it is due on its own. As shares of the whole in the dominant resource.
    ///
    /// A queue could use what it has, what leaves it (that comes back to it) and what waits in it, except for what is
    /// impossible, and up to its limits. Where all ask for most of the same resource, it is due no less than what nobody can
    /// make go: the others share the rest.
    pub fn fair_shares(&self, totals: &Amounts, impossible: &Impossible) -> Vec<Share> {
        let mut due = vec![Share::default(); self.queues.len()];
        let roots = self.all().filter(|(_, queue)| queue.parent.is_none());
        let roots = roots.map(|(no, _)| no).collect::<Vec<_>>();
        self.divide(Share::ONE, &roots, None, (totals, impossible), &mut due);
        due
    }

    /// Shares `whole` out among `children` and, beside them, what is in `own` itself.
    fn divide(
        &self,
        whole: Share,
        children: &[QueueNo],
        own: Option<QueueNo>,
        of: (&Amounts, &Impossible),
        due: &mut [Share],
    ) {
        let (totals, impossible) = of;
        let claim = |weight_milli: u32, sums: &Sums, limits: &[(ResourceKind, u64)]| {
            let mut demand = sums.held;
            add(&mut demand, &sums.leaving);
            add(&mut demand, &sums.waiting);
            for (kind, limit) in limits {
                let demand = &mut demand[*kind as usize];
                *demand = (*demand).min(*limit);
            }
            let claim = fair::Claim {
                weight_milli,
                demand: Share::dominant(&demand, totals),
                floor: Share::ZERO,
            };
            (claim, demand, sums.firm)
        };
        let possible = |no: QueueNo| {
            let mut sums = self.get(no).sums;
            if let Some(impossible) = impossible.0.get(&no) {
                subtract(&mut sums.waiting, impossible);
            }
            sums
        };
        let mut claims = Vec::with_capacity(children.len() + 1);
        for child in children {
            let settings = &self.get(*child).settings;
            claims.push(claim(
                settings.weight_milli,
                &possible(*child),
                &settings.limits,
            ));
        }
        if let Some(own) = own {
            let mut sums = possible(own);
            for child in children {
                sums.each(&possible(*child), subtract);
            }
            claims.push(claim(fair::WEIGHT_MILLI_ONE, &sums, &[]));
        }
        let claims = with_floors(claims, totals);
        let shares = fair::fair_shares(&claims, whole);
        for (child, share) in children.iter().zip(&shares) {
            let below: Vec<_> = self.get(*child).children.iter().copied().collect();
            if below.is_empty() {
                due[child.0 as usize] = *share;
            } else {
                self.divide(*share, &below, Some(*child), of, due);
            }
        }
        if let (Some(own), Some(share)) = (own, shares.last()) {
            due[own.0 as usize] = *share;
        }
    }

    /// What waits in lines of these shapes, and what no limit would ever let in, is impossible.
    pub fn impossible(&mut self, shapes: impl Fn(ShapeNo) -> bool) -> Impossible {
        let mut found = Impossible::default();
        let mut lines: Vec<LineNo> = Vec::new();
        for (shape, of_shape) in self.by_shape() {
            if shapes(*shape) {
                lines.extend(of_shape);
            }
        }
        if self.any_limits() {
            let over = |line: &&Line| !self.ever(line.key.queue, &line.asks);
            lines.extend(self.lines().filter(over).map(|line| line.no));
            lines.sort_unstable();
            lines.dedup();
        }
        for line in lines.iter().filter_map(|no| self.lines.get(no)) {
            let waiting = line.waiting.len() as u64;
            let amounts = line.asks.map(|amount| amount.wrapping_mul(waiting));
            for above in self.up(line.key.queue) {
                add(found.0.entry(above).or_default(), &amounts);
            }
        }
        found
    }

    /// Held or promised in the queue itself.
    pub fn own(&self, queue: QueueNo) -> &Amounts {
        &self.get(queue).own
    }

    /// What counts against the queue itself: what it holds, or what is remembered of more.
    pub fn own_counted(&self, queue: QueueNo, now: Millis, half_life_ms: u64) -> Amounts {
        let it = self.get(queue);
        if it.children.is_empty() {
            it.counted(now, half_life_ms)
        } else {
            it.own
        }
    }

    /// The queue whose limit keeps `more` from it, the queue itself or one above.
    pub fn limited_by(&self, queue: QueueNo, more: &Amounts) -> Option<QueueNo> {
        self.up(queue).find(|no| {
            let queue = self.get(*no);
            queue.settings.limits.iter().any(|(kind, limit)| {
                let at = *kind as usize;
                let there = queue.sums.held[at] + queue.sums.leaving[at];
                more[at] > 0 && there + more[at] > *limit
            })
        })
    }

    /// Whether the queue, or one above, has more of what is asked for than its limit, which may have been lowered.
    pub fn is_above_limit(&self, queue: QueueNo, asks: &Amounts) -> bool {
        self.up(queue).any(|no| {
            let queue = self.get(no);
            queue.settings.limits.iter().any(|(kind, limit)| {
                let at = *kind as usize;
                asks[at] > 0 && queue.sums.held[at] + queue.sums.leaving[at] > *limit
            })
        })
    }

    /// Whether the limits of the queue and those above would let it in if they held nothing.
    pub fn ever(&self, queue: QueueNo, asks: &Amounts) -> bool {
        self.up(queue).all(|no| {
            let limits = &self.get(no).settings.limits;
            limits
                .iter()
                .all(|(kind, limit)| asks[*kind as usize] <= *limit)
        })
    }
}

/// What one queue has for good of one resource leaves less of that to the others, and no less of another resource. So the
/// floors hold where all claims are for most of the same one.
fn with_floors(claims: Vec<(fair::Claim, Amounts, Amounts)>, totals: &Amounts) -> Vec<fair::Claim> {
    let share = |amounts: &Amounts, at: usize| Share::of(amounts[at], totals[at]);
    let of_most = |demand: &Amounts| (0..demand.len()).rev().max_by_key(|at| share(demand, *at));
    let wanting = claims
        .iter()
        .filter(|(claim, _, _)| claim.demand > Share::ZERO);
    let resources: BTreeSet<_> = wanting
        .filter_map(|(_, demand, _)| of_most(demand))
        .collect();
    let same = resources.first().filter(|_| resources.len() == 1);
    let floored = claims.into_iter().map(|(claim, _, firm)| {
        let floor = same.map_or(Share::ZERO, |at| share(&firm, *at));
        fair::Claim {
            demand: claim.demand.max(floor),
            floor,
            ..claim
        }
    });
    floored.collect()
}

impl Queue {
    /// What it used to have, as remembered now.
    fn past(&self, now: Millis, half_life_ms: u64) -> Option<[Remembered; 3]> {
        let past = self.past.filter(|_| half_life_ms > 0)?;
        let elapsed_ms = u64::try_from(now.0.saturating_sub(past.at.0)).unwrap_or(0);
        let kept = Kept::after(elapsed_ms, half_life_ms);
        let mut used = past.used;
        for (used, held) in used.iter_mut().zip(self.sums.held) {
            *used = used.towards(held, kept);
        }
        Some(used)
    }

    /// What counts against it: what it holds, or more when it had more.
    fn counted(&self, now: Millis, half_life_ms: u64) -> Amounts {
        let mut counted = self.sums.held;
        for (counted, used) in counted
            .iter_mut()
            .zip(self.past(now, half_life_ms).into_iter().flatten())
        {
            *counted = used.amount().max(*counted);
        }
        counted
    }

    /// To be called before what it holds changes.
    fn remember(&mut self, now: Millis, half_life_ms: u64) {
        self.past = (half_life_ms > 0).then(|| Past {
            at: now,
            used: self.past(now, half_life_ms).unwrap_or_default(),
        });
    }
}
