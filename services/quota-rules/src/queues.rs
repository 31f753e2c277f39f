//! Who waits for what, in order. A claim stands in one queue: that of what it was told it waits for.
//!
//! As long as the head of a queue has to wait, nobody behind it need be looked at, however many they are.

use super::{
    account::AccountId,
    claim::{Order, Point},
    resource::ResourceId,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Queues(BTreeMap<Point, BTreeSet<Order>>);

impl Queues {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn head(&self, point: Point) -> Option<Order> {
        self.0.get(&point)?.first().copied()
    }

    /// The last of those who come before.
    pub fn before(&self, point: Point, order: Order) -> Option<Order> {
        self.0.get(&point)?.range(..order).next_back().copied()
    }

    pub fn contains(&self, point: Point, order: Order) -> bool {
        self.0
            .get(&point)
            .is_some_and(|queue| queue.contains(&order))
    }

    /// True when nobody waited there before.
    pub fn insert(&mut self, point: Point, order: Order) -> bool {
        let queue = self.0.entry(point).or_default();
        queue.insert(order);
        queue.len() == 1
    }

    /// True when nobody waits there any more.
    pub fn remove(&mut self, point: Point, order: Order) -> bool {
        let Some(queue) = self.0.get_mut(&point) else {
            return false;
        };
        queue.remove(&order);
        let last = queue.is_empty();
        if last {
            self.0.remove(&point);
        }
        last
    }

    pub fn points(&self) -> impl Iterator<Item = Point> {
        self.0.keys().copied()
    }

    /// The queues of one account.
    pub fn of(&self, account: AccountId) -> impl Iterator<Item = Point> {
        let first = Point::resource(account, ResourceId::FIRST);
        let points = self.0.range(first..).map(|(point, _)| *point);
        points.take_while(move |point| point.account == account)
    }

    pub fn len(&self) -> usize {
        self.0.values().map(BTreeSet::len).sum()
    }
}
