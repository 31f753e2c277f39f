//! Aside: a claim that an account could not hold now even if it held nothing else stands in no line. Nobody waits behind
//! it, and it is tried again when the account may hold so much.
//!
//! A limit was lowered, a member of its cohort lends less, or it fits in a burst only and none may begin.

use super::{
    account::AccountId,
    claim::{Order, Point},
    resource::ResourceId,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Who stands aside, by what it is and how much they ask of that.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Asides(BTreeMap<Point, BTreeSet<(u64, Order)>>);

impl Asides {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn points(&self) -> impl Iterator<Item = Point> {
        self.0.keys().copied()
    }

    pub fn of(&self, account: AccountId) -> impl Iterator<Item = Point> {
        let first = Point::resource(account, ResourceId::FIRST);
        let points = self.0.range(first..).map(|(point, _)| *point);
        points.take_while(move |point| point.account == account)
    }

    pub fn at(&self, point: Point) -> impl Iterator<Item = (u64, Order)> {
        self.0.get(&point).into_iter().flatten().copied()
    }

    pub fn contains(&self, point: Point, amount: u64, order: Order) -> bool {
        let at = self.0.get(&point);
        at.is_some_and(|at| at.contains(&(amount, order)))
    }

    pub fn insert(&mut self, point: Point, amount: u64, order: Order) {
        self.0.entry(point).or_default().insert((amount, order));
    }

    pub fn remove(&mut self, point: Point, amount: u64, order: Order) {
        if let Some(at) = self.0.get_mut(&point) {
            at.remove(&(amount, order));
            if at.is_empty() {
                self.0.remove(&point);
            }
        }
    }

    pub fn len(&self) -> usize {
        self.0.values().map(BTreeSet::len).sum()
    }
}
