//! Whether a claim fits, and if not, what is in its way: the account nearest to it first, there budgets before limits, and
//! the resource types in their order.

use super::{
    Quota,
    account::AccountId,
    claim::{Order, Point, What},
    demand::{Demand, Shortage, Why, amount_on, group},
    models::Grant,
    resource::ResourceId,
};
use vocab::{
    AllocationNo, Millis, QuotaFlags, Refusal, Rule,
    sabotage::{self, Bug},
};

impl Quota {
    /// How it may be granted, or what is in its way.
    pub(super) fn check(
        &self,
        members: &[AllocationNo],
        demands: &[Demand],
        order: Order,
        now: Millis,
    ) -> Result<Grant, Shortage> {
        let mut flags = QuotaFlags::default();
        for group in demands.chunk_by(|a, b| a.account == b.account) {
            if let Some(shortage) = self.books.budget_blocks(&self.rates, group, now) {
                return Err(shortage);
            }
            for demand in group {
                let found =
                    self.check_one(demand.account, demand.part, demand.amount, order, now)?;
                flags = flags.with(found);
            }
            if sabotage::armed(Bug::OverAtHigherLevel) {
                break;
            }
        }
        let grant = self.choose_now(members, order, now)?;
        Ok(Grant {
            flags: flags.with(grant.flags),
            ..grant
        })
    }

    /// Whether there may be so much more of one resource type at an account, but for those who wait for it and go first.
    pub(super) fn check_one(
        &self,
        account: AccountId,
        resource: ResourceId,
        amount: u64,
        order: Order,
        now: Millis,
    ) -> Result<QuotaFlags, Shortage> {
        let point = Point::resource(account, resource);
        let parked = self.books.usage_tree.node(account).parked > 0;
        let head = || self.books.queues.head(point).filter(|head| *head < order);
        let chooser = || self.chooser_before(account, resource, order);
        match parked.then(head).flatten().or_else(chooser) {
            Some(head) => Err(self.behind(point, resource, head, now)),
            None => self.books.limit_allows(account, resource, amount, now),
        }
    }

    /// What is in the way of the one ahead is in the way of those behind.
    fn behind(&self, point: Point, resource: ResourceId, head: Order, now: Millis) -> Shortage {
        let members = self.unit(head.allocation());
        let amount = self.wants(&members, point.account, resource);
        let allowed = self
            .books
            .limit_allows(point.account, resource, amount, now);
        let held = self
            .books
            .usage_tree
            .node(point.account)
            .taken(resource)
            .held();
        let shortage = allowed.err().unwrap_or(Shortage {
            point,
            why: Why::Limit,
            limit: held,
            actual: held.saturating_add(amount),
        });
        Shortage {
            why: Why::Behind(head),
            ..shortage
        }
    }

    /// Whether what a claim was told still is in its way.
    pub(super) fn still(
        &self,
        point: Point,
        members: &[AllocationNo],
        demands: &[Demand],
        order: Order,
        now: Millis,
    ) -> Option<Shortage> {
        let group = group(demands, point.account);
        match point.what {
            What::Resource(choice) if choice.is_choice() => {
                self.choose_now(members, order, now).err()
            }
            What::Resource(resource) => {
                let amount = amount_on(group, resource);
                let found = (amount > 0)
                    .then(|| self.check_one(point.account, resource, amount, order, now));
                found?.err()
            }
            What::Budget(_) => {
                let shortage = self.books.budget_blocks(&self.rates, group, now);
                shortage.filter(|shortage| shortage.point == point)
            }
        }
    }

    pub(super) fn refusal(&self, rule: Rule, subject: Point, limit: u64, actual: u64) -> Refusal {
        let account = &self.books.usage_tree.node(subject.account).account;
        let subject = match subject.what {
            What::Resource(id) => format!("{account} {}", self.books.names.text(id)),
            What::Budget(purse) => format!("{account} {}", purse.budget_of().name()),
        };
        Refusal::over(rule, subject, limit, actual)
    }

    /// What the allocations ask for together, from the leaves up.
    pub(super) fn demands(&self, members: &[AllocationNo]) -> Vec<Demand> {
        let mut demands = Vec::with_capacity(24);
        self.needs_into(members, &mut demands);
        demands
    }

    pub(super) fn needs_into(&self, members: &[AllocationNo], demands: &mut Vec<Demand>) {
        demands.clear();
        for claim in members.iter().filter_map(|member| self.claims.get(member)) {
            for &account in claim.path.ids() {
                demands.extend(claim.parts.iter().map(|&(part, amount)| Demand {
                    account,
                    part,
                    amount,
                }));
            }
        }
        if members.len() > 1 {
            self.merge(demands);
        }
    }

    /// Sums of a gang: the deepest accounts first, resource types in their order.
    fn merge(&self, demands: &mut Vec<Demand>) {
        let key = |demand: &Demand| {
            let depth = self.books.usage_tree.path(demand.account).ids().len();
            let resource = self.books.names.resource(demand.part);
            (
                std::cmp::Reverse(depth),
                demand.account,
                resource,
                demand.part,
            )
        };
        demands.sort_by_cached_key(key);
        demands.dedup_by(|next, kept| {
            let same = (next.account, next.part) == (kept.account, kept.part);
            if same {
                kept.amount = kept.amount.saturating_add(next.amount);
            }
            same
        });
    }

    /// What they could not hold together now, wherever they stand in line. `None`: others are in their way.
    pub(super) fn impossible(
        &self,
        members: &[AllocationNo],
        demands: &[Demand],
        now: Millis,
    ) -> Option<Refusal> {
        let over = |rule, now: Option<Millis>| {
            let of_needs = demands.iter().find_map(|demand| {
                let (account, part) = (demand.account, demand.part);
                let most = match now {
                    None => self.books.most(account, part),
                    Some(now) => self.books.cap_now(account, part, now),
                };
                let point = Point::resource(account, part);
                (demand.amount > most).then_some((point, (most, demand.amount)))
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
        demands: &[Demand],
        now: Millis,
    ) -> Option<Millis> {
        let turns = demands.iter().filter_map(|demand| {
            let node = self.books.usage_tree.node(demand.account);
            let limited = node.limited(demand.part)?;
            let needed = node.cohort.is_none() && demand.amount > limited.limits.hard;
            limited.turns_at(now).filter(|_| needed)
        });
        turns.chain(self.models_turn(members, now)).min()
    }
}
