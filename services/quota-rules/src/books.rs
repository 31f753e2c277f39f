//! The books: what each account holds of what, and the sums that follow from it.

use super::{
    account::{AccountId, Path},
    aside::Asides,
    claim::{Place, Point},
    cohort::{CohortId, Cohorts, Share},
    limits::Limited,
    marks::Marks,
    node::Node,
    queues::Queues,
    resource::{Names, ResourceId},
    usage_tree::UsageTree,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use vocab::{Limits, Millis};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Books {
    pub names: Names,
    pub usage_tree: UsageTree,
    pub cohorts: Cohorts,
    pub queues: Queues,
    pub asides: Asides,
    /// When which accounts' bursts are over, as long as something of them is to be taken back.
    pub bursts: BTreeSet<(Millis, AccountId, ResourceId)>,
    #[serde(skip)]
    pub marks: Marks,
}

/// What happens to what a claim amounts to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Move {
    Reserve,
    Start,
    Stop,
    /// Gives back what is reserved, or else what is used.
    Release {
        started: bool,
        reclaimed: bool,
    },
    Reclaim,
    Owe,
    Forgive,
}

impl Books {
    /// Moves the parts at every account of the path, and whatever follows from that.
    pub fn shift(
        &mut self,
        path: &Path,
        parts: impl Iterator<Item = (ResourceId, u64)> + Clone,
        how: Move,
        now: Millis,
    ) {
        let accounts = match how {
            // Only tenants lend.
            Move::Owe | Move::Forgive => &path.ids()[path.ids().len() - 1..],
            _ => path.ids(),
        };
        let moves = matches!(how, Move::Start | Move::Stop);
        for &account in accounts {
            let node = self.usage_tree.node_mut(account);
            // Who waits may go on, or a burst or a cohort's sums follow.
            let mut follows = node.parked > 0 && how != Move::Reserve;
            for (part, amount) in parts.clone() {
                shift_one(node, part, amount, how);
                follows |= !moves && node.watches(part);
            }
            if follows && !moves {
                for (part, _) in parts.clone() {
                    self.settle_part(account, part, how, now);
                }
            }
        }
    }

    /// Counts what is reserved on other models, at every account of the path. What is on both stays, so that no burst begins
    /// or ends by it.
    pub fn recount(
        &mut self,
        path: &Path,
        (from, to): (&[ResourceId], &[ResourceId]),
        amount: u64,
        reclaimed: bool,
        now: Millis,
    ) {
        let release = Move::Release {
            started: false,
            reclaimed,
        };
        for &account in path.ids() {
            let node = self.usage_tree.node_mut(account);
            for &part in to.iter().filter(|part| !from.contains(part)) {
                shift_one(node, part, amount, Move::Reserve);
                if reclaimed {
                    shift_one(node, part, amount, Move::Reclaim);
                }
            }
            for &part in from.iter().filter(|part| !to.contains(part)) {
                shift_one(node, part, amount, release);
            }
            for &part in from.iter().chain(to) {
                self.settle_part(account, part, release, now);
            }
        }
    }

    fn settle_part(&mut self, account: AccountId, part: ResourceId, how: Move, now: Millis) {
        let granted = how == Move::Reserve;
        if part == ResourceId::ANY_MODEL {
            let models: Vec<ResourceId> = self.usage_tree.node(account).limited_models().collect();
            for model in models {
                self.settle(account, model, granted, now);
            }
        } else {
            self.settle(account, part, granted, now);
        }
    }

    /// Brings burst, timer and the cohort's sums in line with what is held; marks who might go on.
    pub fn settle(&mut self, account: AccountId, resource: ResourceId, granted: bool, now: Millis) {
        let Self {
            usage_tree,
            cohorts,
            queues,
            asides,
            bursts,
            marks,
            ..
        } = self;
        let node = usage_tree.node_mut(account);
        if node.parked > 0 && !granted {
            marks.point(Point::resource(account, resource));
            if resource.is_model() {
                marks.choices(queues, asides, account);
            }
        }
        let taken = node.taken(resource);
        let cohort = node.cohort;
        let found = node.cells.binary_search_by_key(&resource, |c| c.resource);
        let Some(limited) = found.ok().and_then(|at| node.cells[at].limited.as_mut()) else {
            return;
        };
        let (timer, burst) = (limited.timer, limited.burst);
        limited.settle(
            taken.held(),
            taken.staying(),
            granted,
            cohort.is_none(),
            now,
        );
        if timer != limited.timer {
            if let Some(at) = timer {
                bursts.remove(&(at, account, resource));
            }
            if let Some(at) = limited.timer {
                bursts.insert((at, account, resource));
            }
        }
        let turned = limited.burst != burst;
        if let Some(id) = cohort {
            let share = Share::of(&limited.limits, taken);
            if share != limited.share {
                cohorts.get_mut(id).change(resource, &limited.share, &share);
                let before = std::mem::replace(&mut limited.share, share);
                if share.leaves_more_than(&before) {
                    self.mark_room(id, resource);
                }
            }
            // A lender's claim depends on all that its tenant holds and is owed, even if the tenant's share does not change.
            self.mark_lenders(id);
        }
        if turned {
            // Time will change what may be held there, or has.
            self.mark_tenant(account);
        }
    }

    /// The pool has more of a resource type: whoever waits for that is to be tried.
    fn mark_room(&mut self, cohort: CohortId, resource: ResourceId) {
        let cohort = self.cohorts.get(cohort);
        if cohort.parked == 0 {
            return;
        }
        for &member in &cohort.members {
            if self.usage_tree.node(member).parked > 0 {
                self.marks.point(Point::resource(member, resource));
                if resource.is_model() {
                    self.marks.choices(&self.queues, &self.asides, member);
                }
            }
        }
    }

    /// Whoever waits is to be tried.
    pub fn mark_all(&mut self) {
        self.marks.points.extend(self.queues.points());
        self.marks.points.extend(self.asides.points());
    }

    /// Lenders who wait may need to take back more, or may have more to take back from.
    pub fn mark_lenders(&mut self, cohort: CohortId) {
        let Self {
            usage_tree,
            queues,
            marks,
            ..
        } = self;
        let Marks {
            lenders, points, ..
        } = marks;
        lenders.retain(|point| {
            // Where somebody waits, there is an account.
            let waits = queues.head(*point).is_some();
            let here = waits && usage_tree.node(point.account).cohort == Some(cohort);
            if here {
                points.insert(*point);
            }
            waits && !here
        });
    }

    /// Whoever waits for anything of a tenant of the cohort is to be tried.
    fn mark_cohort(&mut self, cohort: CohortId) {
        for &member in &self.cohorts.get(cohort).members {
            let Self {
                usage_tree,
                queues,
                asides,
                marks,
                ..
            } = self;
            marks.usage_tree(usage_tree, queues, asides, member);
        }
    }

    /// Whoever waits anywhere below a tenant is to be tried: what it asks for may be impossible from now on, or possible.
    fn mark_tenant(&mut self, account: AccountId) {
        let Self {
            usage_tree,
            queues,
            asides,
            marks,
            ..
        } = self;
        marks.usage_tree(
            usage_tree,
            queues,
            asides,
            usage_tree.path(account).tenant(),
        );
    }

    /// A burst or a cohort's sums follow from what a tenant or another account holds.
    fn watch(&mut self, account: AccountId, resource: ResourceId) {
        let node = self.usage_tree.node_mut(account);
        let in_cohort = node.cohort.is_some();
        let found = node.cells.binary_search_by_key(&resource, |c| c.resource);
        if let Ok(at) = found {
            let cell = &mut node.cells[at];
            let limited = cell.limited.as_ref();
            cell.watched = limited.is_some_and(|l| in_cohort || l.limits.burst.is_some());
        }
    }

    /// From now on these limits hold.
    pub fn limit(
        &mut self,
        account: AccountId,
        resource: ResourceId,
        limits: Option<Limits>,
        now: Millis,
    ) {
        let node = self.usage_tree.node_mut(account);
        let cohort = node.cohort;
        let cell = node.cell_mut(resource);
        match (limits, &mut cell.limited) {
            (Some(limits), Some(limited)) => limited.limits = limits,
            (Some(limits), none) => *none = Some(Box::new(Limited::new(limits))),
            (None, limited) => {
                if let Some(gone) = limited.take() {
                    if let Some(at) = gone.timer {
                        self.bursts.remove(&(at, account, resource));
                    }
                    if let Some(id) = cohort {
                        let nothing = Share::default();
                        let pool = self.cohorts.get_mut(id);
                        pool.change(resource, &gone.share, &nothing);
                    }
                }
                self.usage_tree.node_mut(account).drop_empty(resource);
            }
        }
        self.watch(account, resource);
        self.settle(account, resource, false, now);
        match cohort {
            Some(id) => self.mark_cohort(id),
            None => self.mark_tenant(account),
        }
    }

    /// The tenant joins another cohort, or none.
    pub fn join(&mut self, tenant: AccountId, cohort: Option<&vocab::Token>, now: Millis) {
        let node = self.usage_tree.node(tenant);
        let (before, parked) = (node.cohort, node.parked);
        let resources: Vec<ResourceId> = node.cells.iter().map(|c| c.resource).collect();
        if let Some(id) = before {
            for &resource in &resources {
                let node = self.usage_tree.node_mut(tenant);
                if let Some(limited) = &mut node.cell_mut(resource).limited {
                    let share = std::mem::take(&mut limited.share);
                    let pool = self.cohorts.get_mut(id);
                    pool.change(resource, &share, &Share::default());
                }
            }
            self.mark_cohort(id);
            self.cohorts.get_mut(id).parked -= parked;
            self.cohorts.leave(id, tenant);
        }
        let after = cohort.map(|name| self.cohorts.join(name, tenant));
        self.usage_tree.node_mut(tenant).cohort = after;
        if let Some(id) = after {
            self.cohorts.get_mut(id).parked += parked;
        }
        for resource in resources {
            self.watch(tenant, resource);
            self.settle(tenant, resource, false, now);
        }
        match after {
            Some(id) => self.mark_cohort(id),
            None => self.mark_tenant(tenant),
        }
    }

    /// Counts who waits for something of an account.
    pub fn count_parked(&mut self, account: AccountId, more: bool) {
        let node = self.usage_tree.node_mut(account);
        let cohort = node.cohort;
        let counts = cohort.map(|id| &mut self.cohorts.get_mut(id).parked);
        for count in counts.into_iter().chain([&mut node.parked]) {
            // One that leaves has come before.
            *count = if more { *count + 1 } else { *count - 1 };
        }
    }

    /// The claim of this order waits at the place from now on.
    pub fn park(&mut self, place: Place, order: super::claim::Order) {
        let point = match place {
            Place::At(point) => {
                let head = self.queues.head(point);
                if self.queues.insert(point, order) {
                    self.retain_point(point, true);
                }
                if point.is_choice() && head.is_some_and(|head| order < head) {
                    // The former head kept others of the tenant waiting at its models; the new one may not.
                    self.mark_tenant(point.account);
                }
                point
            }
            Place::Aside { point, amount } => {
                self.asides.insert(point, amount, order);
                self.retain_point(point, true);
                point
            }
            Place::Nowhere | Place::Gang | Place::Others => return,
        };
        self.count_parked(point.account, true);
    }

    /// Whoever waits there is to be tried.
    pub fn mark(&mut self, place: Place) {
        if let Place::At(point) = place {
            self.marks.point(point);
        }
    }

    /// It does not wait there any more, if it did; whoever is behind it might go on.
    pub fn unpark(&mut self, place: Place, order: super::claim::Order) -> bool {
        match place {
            Place::At(point) if self.queues.contains(point, order) => {
                self.marks.point(point);
                self.count_parked(point.account, false);
                if self.queues.remove(point, order) {
                    self.retain_point(point, false);
                }
                if point.is_choice() {
                    // Those behind it wait in the lines of its models.
                    self.mark_tenant(point.account);
                }
                true
            }
            Place::Aside { point, amount } if self.asides.contains(point, amount, order) => {
                self.asides.remove(point, amount, order);
                self.count_parked(point.account, false);
                self.retain_point(point, false);
                true
            }
            Place::At(_) | Place::Aside { .. } | Place::Nowhere | Place::Gang | Place::Others => {
                false
            }
        }
    }

    /// The resource type that somebody waits for keeps its number.
    fn retain_point(&mut self, point: Point, more: bool) {
        match (point.what, more) {
            (super::claim::What::Resource(resource), true) => self.names.retain(resource),
            (super::claim::What::Resource(resource), false) => self.names.release(resource),
            (super::claim::What::Budget(_), _) => {}
        }
    }
}

/// Whatever is taken away here was added by the same claim before.
fn shift_one(node: &mut Node, part: ResourceId, amount: u64, how: Move) {
    let cell = node.cell_mut(part);
    match how {
        Move::Reserve => cell.reserved = cell.reserved.saturating_add(amount),
        Move::Start => {
            cell.reserved -= amount;
            cell.used = cell.used.saturating_add(amount);
        }
        Move::Stop => {
            cell.used -= amount;
            cell.reserved = cell.reserved.saturating_add(amount);
        }
        Move::Release { started, reclaimed } => {
            if started {
                cell.used -= amount;
            } else {
                cell.reserved -= amount;
            }
            if reclaimed {
                cell.returning -= amount;
            }
            if cell.is_empty() {
                node.drop_empty(part);
            }
        }
        Move::Reclaim => cell.returning = cell.returning.saturating_add(amount),
        Move::Owe => cell.owed = cell.owed.saturating_add(amount),
        Move::Forgive => {
            cell.owed -= amount;
            node.drop_empty(part);
        }
    }
}
