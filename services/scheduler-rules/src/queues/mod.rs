//! The queues: who is next, by fair share among queues and by priority and order inside one.

mod pending_group;
mod turns;

pub use pending_group::{Key, LineKey, PendingGroup, Said};

use super::{
    class::{Amounts, SchedulingKeyNo, add, subtract},
    fair::{self, Kept, Remembered, Share},
    interner::Interner,
};
use ledger::Scratch;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use turns::Turns;
use vocab::{Millis, Numbered, PendingGroupNo, QueueSettings, ResourceKind, Token, WaitingReason};

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
    pending_groups: Numbered<PendingGroupNo, PendingGroup>,
    by_key: BTreeMap<LineKey, PendingGroupNo>,
    next_pending_group: u64,
    #[serde(skip)]
    turns: Scratch<Turns>,
    /// Pending groups by what they ask for; made anew when it is not there.
    #[serde(skip)]
    by_scheduling_key: Scratch<Option<BTreeMap<SchedulingKeyNo, BTreeSet<PendingGroupNo>>>>,
    /// A queue holds less than when that was last asked.
    #[serde(skip)]
    released: Scratch<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    pub name: Token,
    pub settings: QueueSettings,
    /// By an operator.
    pub set: bool,
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

    /// None: it has no settings and no users.
    pub fn known(&self, name: &Token) -> Option<QueueNo> {
        self.names.known(name).map(QueueNo)
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

    /// Changes the queue and those above it.
    fn each_up(&mut self, queue: QueueNo, mut change: impl FnMut(&mut Queue)) {
        let mut at = Some(queue);
        while let Some(no) = at {
            let queue = &mut self.queues[no.0 as usize];
            change(queue);
            at = queue.parent;
        }
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
            if let Some(old) = old {
                self.each_up(old, |queue| queue.sums.each(&sums, subtract));
            }
            if let Some(parent) = parent {
                self.each_up(parent, |queue| queue.sums.each(&sums, add));
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

    // --- pending groups

    pub fn pending_group(&self, pending_group: PendingGroupNo) -> Option<&PendingGroup> {
        self.pending_groups.get(&pending_group)
    }

    pub fn pending_group_mut(
        &mut self,
        pending_group: PendingGroupNo,
    ) -> Option<&mut PendingGroup> {
        self.pending_groups.get_mut(&pending_group)
    }

    pub fn pending_groups(&self) -> impl Iterator<Item = &PendingGroup> {
        self.pending_groups.values()
    }

    /// The pending groups of each scheduling key.
    pub fn by_scheduling_key(&mut self) -> &BTreeMap<SchedulingKeyNo, BTreeSet<PendingGroupNo>> {
        let pending_groups = &self.pending_groups;
        self.by_scheduling_key.0.get_or_insert_with(|| {
            let mut by_scheduling_key: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
            for pending_group in pending_groups.values() {
                by_scheduling_key
                    .entry(pending_group.key.scheduling_key)
                    .or_default()
                    .insert(pending_group.no);
            }
            by_scheduling_key
        })
    }

    pub fn any_limits(&self) -> bool {
        self.queues
            .iter()
            .any(|queue| !queue.settings.limits.is_empty())
    }

    /// Puts it in the pending group of its likes. `true` when that pending group is new.
    pub fn join(
        &mut self,
        pending_group_key: LineKey,
        asks: Amounts,
        key: Key,
    ) -> (PendingGroupNo, bool) {
        let queue = pending_group_key.queue;
        let (no, new) = match self.by_key.get(&pending_group_key) {
            Some(no) => (*no, false),
            None => {
                self.next_pending_group += 1;
                let no = PendingGroupNo(self.next_pending_group);
                if let Some(pending_groups) = &mut self.by_scheduling_key.0 {
                    pending_groups
                        .entry(pending_group_key.scheduling_key)
                        .or_default()
                        .insert(no);
                }
                self.by_key.insert(pending_group_key.clone(), no);
                self.pending_groups
                    .insert(no, PendingGroup::new(no, pending_group_key, asks));
                (no, true)
            }
        };
        if let Some(pending_group) = self.pending_groups.get_mut(&no) {
            let before = pending_group.head();
            pending_group.waiting.insert(key);
            if pending_group.blocked.is_none() {
                self.turns
                    .head_changed(pending_group, before, pending_group.head());
            }
        }
        self.each_up(queue, |queue| add(&mut queue.sums.waiting, &asks));
        (no, new)
    }

    /// Takes it out of its pending group. The pending group's key comes back when nobody is left in it.
    pub fn leave(&mut self, no: PendingGroupNo, key: Key) -> Option<LineKey> {
        let pending_group = self.pending_groups.get_mut(&no)?;
        let before = pending_group.head();
        if !pending_group.waiting.remove(&key) {
            return None;
        }
        let (queue, asks) = (pending_group.key.queue, pending_group.asks);
        if pending_group.blocked.is_none() {
            self.turns
                .head_changed(pending_group, before, pending_group.head());
        }
        let empty = pending_group.waiting.is_empty();
        self.each_up(queue, |queue| subtract(&mut queue.sums.waiting, &asks));
        if !empty {
            return None;
        }
        let pending_group = self.pending_groups.remove(&no)?;
        if let Some(pending_groups) = &mut self.by_scheduling_key.0
            && let Some(of_scheduling_key) =
                pending_groups.get_mut(&pending_group.key.scheduling_key)
        {
            of_scheduling_key.remove(&no);
            if of_scheduling_key.is_empty() {
                pending_groups.remove(&pending_group.key.scheduling_key);
            }
        }
        self.by_key.remove(&pending_group.key);
        Some(pending_group.key)
    }

    /// Everybody's key, by pending group.
    pub fn keys(&self) -> Vec<(PendingGroupNo, Key)> {
        let of = |pending_group: &PendingGroup| {
            pending_group
                .waiting
                .iter()
                .map(|key| (pending_group.no, *key))
                .collect::<Vec<_>>()
        };
        self.pending_groups.values().flat_map(of).collect()
    }

    /// One who waits stands elsewhere in its pending group.
    pub fn rekey(&mut self, no: PendingGroupNo, old: Key, new: Key) {
        if let Some(pending_group) = self.pending_groups.get_mut(&no) {
            let before = pending_group.head();
            pending_group.waiting.remove(&old);
            pending_group.waiting.insert(new);
            if pending_group.blocked.is_none() {
                self.turns
                    .head_changed(pending_group, before, pending_group.head());
            }
        }
    }

    /// All pending groups are worth another try.
    pub fn free_all(&mut self) {
        for pending_group in self.pending_groups.values_mut() {
            pending_group.blocked.0 = None;
        }
        *self.turns = Turns::default();
    }

    /// Its head cannot be placed: it is passed over until `free`.
    pub fn block(&mut self, no: PendingGroupNo, reason: WaitingReason) {
        if let Some(pending_group) = self.pending_groups.get_mut(&no) {
            if pending_group.blocked.is_none()
                && let Some(head) = pending_group.head()
            {
                self.turns.head_changed(pending_group, Some(head), None);
            }
            pending_group.blocked.0 = Some(reason);
        }
    }

    /// It is not its turn until `take_up`, though it might be placed.
    pub fn pass_over(&mut self, no: PendingGroupNo) {
        if let Some(pending_group) = self.pending_groups.get(&no) {
            self.turns
                .head_changed(pending_group, pending_group.head(), None);
        }
    }

    pub fn take_up(&mut self, no: PendingGroupNo) {
        if let Some(pending_group) = self
            .pending_groups
            .get(&no)
            .filter(|pending_group| pending_group.blocked.is_none())
        {
            self.turns
                .head_changed(pending_group, None, pending_group.head());
        }
    }

    /// All pending groups of the scheduling key are passed over until `open`.
    pub fn close(&mut self, scheduling_key: SchedulingKeyNo) {
        self.turns.close(scheduling_key);
    }

    pub fn open(&mut self, scheduling_key: SchedulingKeyNo) {
        self.turns.open(scheduling_key);
    }

    pub fn free(&mut self, no: PendingGroupNo) {
        if let Some(pending_group) = self.pending_groups.get_mut(&no)
            && pending_group.blocked.0.take().is_some()
        {
            self.turns
                .head_changed(pending_group, None, pending_group.head());
        }
    }

    // --- shares

    /// Held or promised from now on.
    pub fn binding(&mut self, queue: QueueNo, used: &Use, now: Millis, half_life_ms: u64) {
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
        self.each_up(queue, |queue| add(&mut queue.sums.leaving, &used.amounts));
    }

    pub fn gone(&mut self, queue: QueueNo, amounts: &Amounts) {
        self.released.0 = true;
        self.each_up(queue, |queue| subtract(&mut queue.sums.leaving, amounts));
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
        self.each_up(queue, |queue| {
            queue.remember(now, half_life_ms);
            change(&mut queue.sums.held, &used.amounts);
            if used.firm {
                change(&mut queue.sums.firm, &used.amounts);
            }
        });
        self.turns.look_again(queue);
    }

    /// Counts anew what nobody can make go: by queue, of what is held in it itself.
    pub fn recount_firm(&mut self, firm: impl Iterator<Item = (QueueNo, Amounts)>) {
        for queue in &mut self.queues {
            queue.sums.firm = Amounts::default();
        }
        for (queue, amounts) in firm {
            self.each_up(queue, |queue| add(&mut queue.sums.firm, &amounts));
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

    /// The pending group whose head is next. It stays next until it is taken out, or its pending group is blocked.
    pub fn next(
        &mut self,
        totals: &Amounts,
        now: Millis,
        half_life_ms: u64,
    ) -> Option<PendingGroupNo> {
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

    /// What waits in lines of these scheduling keys, and what no limit would ever let in, is impossible.
    pub fn impossible(&mut self, scheduling_keys: impl Fn(SchedulingKeyNo) -> bool) -> Impossible {
        let mut found = Impossible::default();
        let mut pending_groups: Vec<PendingGroupNo> = Vec::new();
        for (scheduling_key, of_scheduling_key) in self.by_scheduling_key() {
            if scheduling_keys(*scheduling_key) {
                pending_groups.extend(of_scheduling_key);
            }
        }
        if self.any_limits() {
            let over = |pending_group: &&PendingGroup| {
                !self.ever(pending_group.key.queue, &pending_group.asks)
            };
            pending_groups.extend(
                self.pending_groups()
                    .filter(over)
                    .map(|pending_group| pending_group.no),
            );
            pending_groups.sort_unstable();
            pending_groups.dedup();
        }
        for pending_group in pending_groups
            .iter()
            .filter_map(|no| self.pending_groups.get(no))
        {
            let waiting = pending_group.waiting.len() as u64;
            let amounts = pending_group
                .asks
                .map(|amount| amount.wrapping_mul(waiting));
            for above in self.up(pending_group.key.queue) {
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
