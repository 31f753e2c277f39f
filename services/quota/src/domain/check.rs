//! Whether a claim fits, and if not, what is in its way: the account nearest to it first, there budgets before limits, and
//! the resource types in their order.

use super::{
    Quota,
    claim::{Order, Point, What},
    resource::ResourceId,
    tree::AccountId,
};
use vocab::{
    AllocationNo, Millis, QuotaFlags, Refusal, Rule,
    sabotage::{self, Bug},
};

/// What is asked of one account for one resource type. Needs of one account stand together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Need {
    pub account: AccountId,
    pub part: ResourceId,
    pub amount: u64,
}

/// What is in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    pub point: Point,
    pub why: Why,
    pub limit: u64,
    pub actual: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    Limit,
    /// The tenant's own limit would allow it, but others of its cohort have borrowed what is left.
    Lent,
    /// Somebody waits there who goes first.
    Behind(Order),
    Budget,
}

/// What the needs of one account come to on a resource type.
pub(super) fn amount_on(group: &[Need], resource: ResourceId) -> u64 {
    let counts =
        |part: ResourceId| part == resource || part == ResourceId::ANY_MODEL && resource.is_model();
    let needs = group.iter().filter(|need| counts(need.part));
    needs.fold(0, |sum, need| sum.saturating_add(need.amount))
}

/// The needs of one account.
pub(super) fn group(needs: &[Need], account: AccountId) -> &[Need] {
    let mut groups = needs.chunk_by(|a, b| a.account == b.account);
    // A group is never empty.
    groups
        .find(|group| group[0].account == account)
        .unwrap_or(&[])
}

impl Quota {
    /// What is remarkable about granting it, or what is in its way.
    pub(super) fn check(
        &self,
        needs: &[Need],
        order: Order,
        now: Millis,
    ) -> Result<QuotaFlags, Block> {
        let mut flags = QuotaFlags::default();
        for group in needs.chunk_by(|a, b| a.account == b.account) {
            if let Some(block) = self.books.budget_blocks(&self.rates, group, now) {
                return Err(block);
            }
            let node = self.books.tree.node(group[0].account);
            for need in group {
                for resource in node.counts_on(need.part) {
                    flags = flags.with(self.check_one(group, resource, order, now)?);
                }
            }
            if sabotage::armed(Bug::OverAtHigherLevel) {
                break;
            }
        }
        Ok(flags)
    }

    fn check_one(
        &self,
        group: &[Need],
        resource: ResourceId,
        order: Order,
        now: Millis,
    ) -> Result<QuotaFlags, Block> {
        // A group is never empty.
        let account = group[0].account;
        let point = Point::resource(account, resource);
        if self.books.tree.node(account).parked > 0
            && let Some(head) = self.books.queues.head(point).filter(|head| *head < order)
        {
            return Err(self.behind(point, resource, head, now));
        }
        let amount = amount_on(group, resource);
        self.books.limit_allows(account, resource, amount, now)
    }

    /// What is in the way of the one ahead is in the way of those behind.
    fn behind(&self, point: Point, resource: ResourceId, head: Order, now: Millis) -> Block {
        let members = self.unit(head.allocation());
        let needs = self.needs(&members);
        let amount = amount_on(group(&needs, point.account), resource);
        let allowed = self
            .books
            .limit_allows(point.account, resource, amount, now);
        let held = self.books.tree.node(point.account).taken(resource).held();
        let block = allowed.err().unwrap_or(Block {
            point,
            why: Why::Limit,
            limit: held,
            actual: held.saturating_add(amount),
        });
        Block {
            why: Why::Behind(head),
            ..block
        }
    }

    /// Whether what a claim was told still is in its way.
    pub(super) fn still(
        &self,
        point: Point,
        needs: &[Need],
        order: Order,
        now: Millis,
    ) -> Option<Block> {
        let group = group(needs, point.account);
        match point.what {
            What::Resource(resource) => {
                let counts = amount_on(group, resource) > 0;
                let found = counts.then(|| self.check_one(group, resource, order, now));
                found?.err()
            }
            What::Budget(_) => {
                let block = self.books.budget_blocks(&self.rates, group, now);
                block.filter(|block| block.point == point)
            }
        }
    }

    pub(super) fn refusal(&self, rule: Rule, subject: Point, limit: u64, actual: u64) -> Refusal {
        let account = &self.books.tree.node(subject.account).account;
        let subject = match subject.what {
            What::Resource(id) => format!("{account} {}", self.books.names.resource(id)),
            What::Budget(purse) => format!("{account} {}", purse.budget_of().name()),
        };
        Refusal::over(rule, subject, limit, actual)
    }

    /// What the allocations ask for together, from the leaves up.
    pub(super) fn needs(&self, members: &[AllocationNo]) -> Vec<Need> {
        let mut needs = Vec::with_capacity(24);
        self.needs_into(members, &mut needs);
        needs
    }

    pub(super) fn needs_into(&self, members: &[AllocationNo], needs: &mut Vec<Need>) {
        needs.clear();
        for claim in members.iter().filter_map(|member| self.claims.get(member)) {
            for &account in claim.path.ids() {
                needs.extend(claim.parts.iter().map(|&(part, amount)| Need {
                    account,
                    part,
                    amount,
                }));
            }
        }
        if members.len() > 1 {
            self.merge(needs);
        }
    }

    /// Sums of a gang: the deepest accounts first, resource types in their order.
    fn merge(&self, needs: &mut Vec<Need>) {
        let key = |need: &Need| {
            let depth = self.books.tree.path(need.account).ids().len();
            let resource = self.books.names.resource(need.part);
            (std::cmp::Reverse(depth), need.account, resource, need.part)
        };
        needs.sort_by_cached_key(key);
        needs.dedup_by(|next, kept| {
            let same = (next.account, next.part) == (kept.account, kept.part);
            if same {
                kept.amount = kept.amount.saturating_add(next.amount);
            }
            same
        });
    }
}
