//! Which queues are worth a look. This only saves work: a queue that is not marked has a head that has to wait, so that
//! a state without marks, fresh from its snapshot, looks at all of them and decides the same.

use super::{
    account::AccountId, aside::Asides, claim::Point, demand::Demand, gang::GangNo, queues::Queues,
    usage_tree::UsageTree,
};
use std::collections::BTreeSet;
use vocab::Millis;

/// Equal to any other, and empty when cloned: no part of the state.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// Whether all queues were looked at once.
    pub looked: bool,
    pub points: BTreeSet<Point>,
    pub gangs: BTreeSet<GangNo>,
    /// Queues whose heads wait for what their tenants have lent.
    pub lenders: BTreeSet<Point>,
    /// When the passing of time alone may let the head of a queue go on.
    pub retries: BTreeSet<(Millis, Point)>,
    /// Memory that is used again.
    pub demands: Vec<Demand>,
}

impl Marks {
    pub fn point(&mut self, point: Point) {
        self.points.insert(point);
    }

    /// Marks all queues of a tenant, and whoever stands aside there.
    pub fn usage_tree(
        &mut self,
        usage_tree: &UsageTree,
        queues: &Queues,
        asides: &Asides,
        tenant: AccountId,
    ) {
        if queues.is_empty() && asides.is_empty() {
            return;
        }
        let mut open = vec![tenant];
        while let Some(account) = open.pop() {
            let node = usage_tree.node(account);
            open.extend(&node.children);
            if node.parked > 0 {
                self.points.extend(queues.of(account));
                self.points.extend(asides.of(account));
            }
        }
    }

    /// Marks the queues of a tenant in which one waits for one of several models, and whoever stands aside for that.
    pub fn choices(&mut self, queues: &Queues, asides: &Asides, tenant: AccountId) {
        let points = queues.of(tenant).chain(asides.of(tenant));
        self.points.extend(points.filter(|point| point.is_choice()));
    }

    /// Marks what is due by now.
    pub fn elapse(&mut self, now: Millis) {
        while let Some((at, point)) = self.retries.first().copied()
            && at <= now
        {
            self.retries.pop_first();
            self.points.insert(point);
        }
    }
}

impl Clone for Marks {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Marks {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Marks {}
