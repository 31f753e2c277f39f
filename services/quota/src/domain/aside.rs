//! Aside: a claim that an account could not hold now even if it held nothing else stands in no line. Nobody waits behind
//! it, and it is tried again when the account may hold so much.
//!
//! A limit was lowered, a member of its cohort lends less, or it fits in a burst only and none may begin.

use super::{
    Quota,
    books::Books,
    check::Need,
    claim::{Order, Point, What},
    resource::ResourceId,
    tree::AccountId,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use vocab::{AllocationNo, Millis, Refusal, Rule};

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

impl Books {
    /// Those who stood aside at the point and may be tried now.
    pub fn may_come_back(&mut self, point: Point, now: Millis) -> Vec<Order> {
        let What::Resource(resource) = point.what else {
            return Vec::new();
        };
        let mut waiting = self.asides.at(point).peekable();
        if waiting.peek().is_none() {
            return Vec::new();
        }
        let cap = self.cap_now(point.account, resource, now);
        let back = waiting.take_while(|(amount, _)| *amount <= cap);
        let back = back.map(|(_, order)| order).collect();
        let node = self.tree.node(point.account);
        let turn = node.limited(resource).and_then(|it| it.turns_at(now));
        self.marks.retries.extend(turn.map(|at| (at, point)));
        back
    }
}

impl Quota {
    /// What they could not hold together now, wherever they stand in line. `None`: others are in their way.
    pub(super) fn impossible(
        &self,
        members: &[AllocationNo],
        needs: &[Need],
        now: Millis,
    ) -> Option<Refusal> {
        let over = |rule, now: Option<Millis>| {
            let of_needs = needs.iter().find_map(|need| {
                let (account, part) = (need.account, need.part);
                let most = match now {
                    None => self.books.most(account, part),
                    Some(now) => self.books.cap_now(account, part, now),
                };
                let point = Point::resource(account, part);
                (need.amount > most).then_some((point, (most, need.amount)))
            });
            let over = of_needs.or_else(|| self.no_model(members, now));
            over.map(|(point, (most, amount))| self.refusal(rule, point, most, amount))
        };
        over(Rule::QuotaNeverFits, None).or_else(|| over(Rule::BurstOver, Some(now)))
    }

    /// When time alone may make them impossible, or possible: a burst that they need is over, or may begin.
    pub(super) fn turn(
        &self,
        members: &[AllocationNo],
        needs: &[Need],
        now: Millis,
    ) -> Option<Millis> {
        let turns = needs.iter().filter_map(|need| {
            let node = self.books.tree.node(need.account);
            let limited = node.limited(need.part)?;
            let needed = node.cohort.is_none() && need.amount > limited.limits.hard;
            limited.turns_at(now).filter(|_| needed)
        });
        turns.chain(self.models_turn(members, now)).min()
    }
}
