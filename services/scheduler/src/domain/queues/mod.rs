//! The queues: who is next, by fair share among queues and by priority and order inside one.

mod line;
mod turns;

pub use line::{Key, Line, LineKey, Said};

use super::{
    class::{Amounts, ShapeNo, add, subtract},
    fair::{self, Kept, Remembered, Share},
    interner::{Interner, Scratch},
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use turns::Turns;
use vocab::{LineNo, Millis, QueueSettings, Token, WaitingReason};

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
    /// Held or promised, in this queue and below.
    pub held: Amounts,
    /// The same, without what is below.
    own: Amounts,
    /// Waiting for a place, in this queue and below.
    pub waiting: Amounts,
    /// What is remembered of past use.
    past: Option<Past>,
}

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
            held: Amounts::default(),
            own: Amounts::default(),
            waiting: Amounts::default(),
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
        let (held, waiting) = (self.get(no).held, self.get(no).waiting);
        // Admission lets no queue be above itself; a ledger that has one is read all the same.
        let parent = parent.filter(|parent| !self.up(*parent).any(|above| above == no));
        let old = self.get(no).parent;
        if old != parent {
            for above in old
                .map(|old| self.up(old).collect::<Vec<_>>())
                .into_iter()
                .flatten()
            {
                subtract(&mut self.queues[above.0 as usize].held, &held);
                subtract(&mut self.queues[above.0 as usize].waiting, &waiting);
            }
            for above in parent
                .map(|new| self.up(new).collect::<Vec<_>>())
                .into_iter()
                .flatten()
            {
                add(&mut self.queues[above.0 as usize].held, &held);
                add(&mut self.queues[above.0 as usize].waiting, &waiting);
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
            add(&mut self.queues[above.0 as usize].waiting, &asks);
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
            subtract(&mut self.queues[above.0 as usize].waiting, &asks);
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
    pub fn hold(&mut self, queue: QueueNo, amounts: &Amounts, now: Millis, half_life_ms: u64) {
        self.change(queue, now, half_life_ms, |held| add(held, amounts));
    }

    pub fn release(&mut self, queue: QueueNo, amounts: &Amounts, now: Millis, half_life_ms: u64) {
        self.released.0 = true;
        self.change(queue, now, half_life_ms, |held| subtract(held, amounts));
    }

    fn change(
        &mut self,
        queue: QueueNo,
        now: Millis,
        half_life_ms: u64,
        change: impl Fn(&mut Amounts),
    ) {
        change(&mut self.queues[queue.0 as usize].own);
        let mut above = Some(queue);
        while let Some(no) = above {
            let queue = &mut self.queues[no.0 as usize];
            queue.remember(now, half_life_ms);
            change(&mut queue.held);
            above = queue.parent;
        }
        self.turns.look_again(queue);
    }

    /// Whether a queue holds less than at the last call.
    pub fn take_released(&mut self) -> bool {
        std::mem::take(&mut self.released.0)
    }

    // --- turns

    /// The line whose head is next. It stays next until it is taken out, or its line is blocked.
    pub fn next(&mut self, totals: &Amounts, now: Millis, half_life_ms: u64) -> Option<LineNo> {
        let mut turns = std::mem::take(&mut self.turns.0);
        turns.bring_up_to_date(self, totals, now, half_life_ms);
        let next = turns.next();
        self.turns.0 = turns;
        next
    }

    /// What each queue is due of the cell by the weights and by what it could use, for what is in it itself; what is below
    /// it is due on its own. As shares of the whole in the dominant resource.
    pub fn fair_shares(&self, totals: &Amounts) -> Vec<Share> {
        let mut due = vec![Share::default(); self.queues.len()];
        let roots = self.all().filter(|(_, queue)| queue.parent.is_none());
        let roots = roots.map(|(no, _)| no).collect::<Vec<_>>();
        self.divide(Share::ONE, &roots, None, totals, &mut due);
        due
    }

    /// Shares `whole` out among `children` and, beside them, what is in `own` itself.
    fn divide(
        &self,
        whole: Share,
        children: &[QueueNo],
        own: Option<QueueNo>,
        totals: &Amounts,
        due: &mut [Share],
    ) {
        let demand = |amounts: [&Amounts; 2]| {
            let mut sum = *amounts[0];
            add(&mut sum, amounts[1]);
            Share::dominant(&sum, totals)
        };
        let mut claims = Vec::with_capacity(children.len() + 1);
        for child in children {
            let queue = self.get(*child);
            claims.push(fair::Claim {
                weight_milli: queue.settings.weight_milli,
                demand: demand([&queue.held, &queue.waiting]),
            });
        }
        if let Some(own) = own {
            let (own, waiting) = self.own(own);
            claims.push(fair::Claim {
                weight_milli: fair::WEIGHT_MILLI_ONE,
                demand: demand([&own, &waiting]),
            });
        }
        let shares = fair::fair_shares(&claims, whole);
        for (child, share) in children.iter().zip(&shares) {
            let below: Vec<_> = self.get(*child).children.iter().copied().collect();
            if below.is_empty() {
                due[child.0 as usize] = *share;
            } else {
                self.divide(*share, &below, Some(*child), totals, due);
            }
        }
        if let (Some(own), Some(share)) = (own, shares.last()) {
            due[own.0 as usize] = *share;
        }
    }

    /// Held and waiting in the queue itself.
    pub fn own(&self, queue: QueueNo) -> (Amounts, Amounts) {
        let mut waiting = self.get(queue).waiting;
        for child in &self.get(queue).children {
            subtract(&mut waiting, &self.get(*child).waiting);
        }
        (self.get(queue).own, waiting)
    }

    /// The queue whose limit keeps `more` from it, the queue itself or one above.
    pub fn limited_by(&self, queue: QueueNo, more: &Amounts) -> Option<QueueNo> {
        self.up(queue).find(|no| {
            let queue = self.get(*no);
            queue.settings.limits.iter().any(|(kind, limit)| {
                let at = *kind as usize;
                more[at] > 0 && queue.held[at] + more[at] > *limit
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

impl Queue {
    /// What it used to have, as remembered now.
    fn past(&self, now: Millis, half_life_ms: u64) -> Option<[Remembered; 3]> {
        let past = self.past.filter(|_| half_life_ms > 0)?;
        let elapsed_ms = u64::try_from(now.0.saturating_sub(past.at.0)).unwrap_or(0);
        let kept = Kept::after(elapsed_ms, half_life_ms);
        let mut used = past.used;
        for (used, held) in used.iter_mut().zip(self.held) {
            *used = used.towards(held, kept);
        }
        Some(used)
    }

    /// What counts against it: what it holds, or more when it had more.
    fn counted(&self, now: Millis, half_life_ms: u64) -> Amounts {
        let mut counted = self.held;
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
