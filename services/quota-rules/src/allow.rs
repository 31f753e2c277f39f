//! What an account's limits, its cohort and its budgets allow now, and at the most.

use super::{
    account::AccountId,
    books::Books,
    claim::{Order, Point, What},
    cohort::Pool,
    demand::{Demand, Shortage, Why},
    limits::Limited,
    node::Node,
    rates::Rates,
    resource::ResourceId,
};
use vocab::{
    Millis, QuotaFlags,
    sabotage::{self, Bug},
};

impl Books {
    /// The most that a tenant in a cohort may hold for its own settings' sake.
    fn own_cap(node: &Node, limited: &Limited) -> u64 {
        let limits = &limited.limits;
        if node.settings().preemptible {
            limits
                .hard
                .saturating_add(limits.borrow.unwrap_or(u64::MAX))
        } else {
            limits.hard
        }
    }

    /// The most that an account could ever hold of a resource type, as the limits are now.
    pub fn most(&self, account: AccountId, resource: ResourceId) -> u64 {
        let node = self.usage_tree.node(account);
        match (node.limited(resource), node.cohort) {
            (None, _) if node.is_tenant() && resource.needs_limit() => 0,
            (None, _) => u64::MAX,
            (Some(limited), None) => limited.most(),
            (Some(limited), Some(id)) => {
                let pool = self.cohorts.get(id).pool(resource);
                let most = pool.most(limited.limits.hard, &limited.share);
                Self::own_cap(node, limited).min(most)
            }
        }
    }

    /// The most that it could hold now, if it held nothing else.
    pub fn cap_now(&self, account: AccountId, resource: ResourceId, now: Millis) -> u64 {
        let node = self.usage_tree.node(account);
        match node.limited(resource).filter(|_| node.cohort.is_none()) {
            Some(limited) => limited.cap(now),
            None => self.most(account, resource),
        }
    }

    /// Whether so much more may be held at an account.
    pub fn limit_allows(
        &self,
        account: AccountId,
        resource: ResourceId,
        amount: u64,
        now: Millis,
    ) -> Result<QuotaFlags, Shortage> {
        let node = self.usage_tree.node(account);
        let cell = node.cell(resource);
        let held = if resource.is_model() {
            node.taken(resource).held()
        } else {
            cell.map_or(0, |cell| cell.reserved.saturating_add(cell.used))
        };
        let shortage = |why, limit| Shortage {
            point: Point::resource(account, resource),
            why,
            limit,
            actual: held.saturating_add(amount),
        };
        let after = held.checked_add(amount);
        let Some(limited) = cell.and_then(|cell| cell.limited.as_ref()) else {
            return match after {
                Some(_) if !(node.is_tenant() && resource.needs_limit()) => {
                    Ok(QuotaFlags::default())
                }
                Some(_) => Err(shortage(Why::Limit, 0)),
                None => Err(shortage(Why::Limit, u64::MAX)),
            };
        };
        let after = after.unwrap_or(u64::MAX);
        let mut flags = QuotaFlags::default();
        if limited.limits.soft.is_some_and(|soft| after > soft) {
            flags = flags.with(QuotaFlags::SOFT);
        }
        let above = after > limited.limits.hard;
        match node.cohort {
            None => {
                let cap = limited.cap(now);
                if after > cap {
                    return Err(shortage(Why::Limit, cap));
                }
                if above {
                    flags = flags.with(QuotaFlags::BURST);
                }
            }
            Some(id) => {
                let pool = self.cohorts.get(id).pool(resource);
                self.cohort_allows(node, limited, &pool, after)
                    .map_err(|(why, limit)| shortage(why, limit))?;
                if above {
                    flags = flags.with(QuotaFlags::BORROWED);
                }
            }
        }
        Ok(flags)
    }

    /// Whether a tenant may hold so much for its cohort's sake. Who borrows leaves what a lender is getting back.
    fn cohort_allows(
        &self,
        node: &Node,
        limited: &Limited,
        pool: &Pool,
        after: u64,
    ) -> Result<(), (Why, u64)> {
        let (hard, share) = (limited.limits.hard, &limited.share);
        let cap = Self::own_cap(node, limited);
        let room = pool.room(hard, share);
        if after > cap {
            return Err((Why::Limit, cap.min(room)));
        }
        if sabotage::armed(Bug::BorrowedBeyondPool) {
            return Ok(());
        }
        let guaranteed = hard - share.lendable;
        if after.saturating_sub(guaranteed) <= share.taken {
            return Ok(());
        }
        if after <= hard {
            return if after > room {
                Err((Why::Lent, room))
            } else {
                Ok(())
            };
        }
        let owed = pool.owed - u128::from(share.owed);
        let left = u128::from(room).saturating_sub(owed);
        // Not above `room`, which is a u64.
        let left = u64::try_from(left).unwrap_or(u64::MAX);
        if after > left {
            return Err((Why::Limit, cap.min(left.max(hard.min(room)))));
        }
        Ok(())
    }

    /// What is in a budget's way.
    pub fn budget_blocks(&self, rates: &Rates, group: &[Demand], now: Millis) -> Option<Shortage> {
        let account = group.first()?.account;
        let asks = |resource| group.iter().any(|demand| demand.part == resource);
        self.usage_tree
            .node(account)
            .meters
            .iter()
            .find_map(|meter| {
                let spent = meter.spent(rates, now);
                let shortages = meter.purse.concerns(asks) && spent >= meter.budget.amount;
                shortages.then_some(Shortage {
                    point: Point {
                        account,
                        what: What::Budget(meter.purse),
                    },
                    why: Why::Budget,
                    limit: meter.budget.amount,
                    actual: spent,
                })
            })
    }

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
        let node = self.usage_tree.node(point.account);
        let turn = node.limited(resource).and_then(|it| it.turns_at(now));
        self.marks.retries.extend(turn.map(|at| (at, point)));
        back
    }
}
