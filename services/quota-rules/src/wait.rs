//! Waiting: a claim stands in the queue of what it was told it waits for.

use super::{
    Quota,
    books::Move,
    claim::{Place, Point, Stage, What},
    purse::Purse,
};
use ledger::IllegalEvent;
use std::fmt;
use vocab::{Account, AllocationNo, At, BudgetOf, Millis, Refusal, Rule};

impl Quota {
    pub(super) fn told(
        &mut self,
        at: &At,
        allocation: AllocationNo,
        refusal: &Refusal,
        event: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        let place = self
            .place_of(refusal)
            .ok_or_else(|| IllegalEvent::new("nothing to wait for", event))?;
        match self.claims.get(&allocation).map(|claim| claim.stage) {
            Some(Stage::Asked) => drop(self.asked.remove(&allocation)),
            Some(Stage::Waits { .. }) => self.step_out(allocation),
            Some(Stage::Holds(_)) => return Err(IllegalEvent::new("held", event)),
            None => return Err(IllegalEvent::new("not asked", event)),
        }
        let queue = place != Place::Others && self.wait_in_gang(allocation, place);
        let owed = self.is_owed(allocation, place, queue);
        let Some(claim) = self.claims.get_mut(&allocation) else {
            return Ok(());
        };
        claim.stage = Stage::Waits { place, owed };
        if queue {
            self.books.park(place, claim.order(allocation));
        }
        if owed {
            self.books
                .shift(&claim.path, claim.counted(), Move::Owe, at.now);
        }
        Ok(())
    }

    /// What the refusal says is waited for.
    pub(super) fn place_of(&self, refusal: &Refusal) -> Option<Place> {
        match refusal.rule {
            Rule::IncompleteGang => return Some(Place::Gang),
            Rule::DependencyPending => return Some(Place::Others),
            _ => {}
        }
        let (account, what) = refusal.subject.split_once(' ')?;
        let account = self.books.usage_tree.find(&Account::parse(account)?)?;
        let what = match refusal.rule {
            Rule::QuotaExceeded | Rule::QuotaNeverFits | Rule::BurstOver => {
                What::Resource(self.books.names.find_text(what)?)
            }
            Rule::BudgetExhausted => What::Budget(Purse::of(&BudgetOf::parse(what)?)),
            _ => return None,
        };
        let point = Point { account, what };
        let aside = matches!(refusal.rule, Rule::QuotaNeverFits | Rule::BurstOver);
        Some(if aside {
            let amount = refusal.actual;
            Place::Aside { point, amount }
        } else {
            Place::At(point)
        })
    }

    /// Whether what it waits for is its tenant's own, and nobody who goes before it wants more than that.
    fn is_owed(&self, allocation: AllocationNo, place: Place, queue: bool) -> bool {
        let Some(claim) = self.claims.get(&allocation) else {
            return false;
        };
        let Place::At(point) = place else {
            return false;
        };
        if !matches!(point.what, What::Resource(_)) || point.account != claim.path.tenant() {
            return false;
        }
        let is_owed = |no: AllocationNo| self.claims.get(&no).is_some_and(|claim| claim.is_owed());
        if !queue {
            // Members of a gang go by the one who leads them.
            let gang = self.open_gang(allocation);
            return gang.is_some_and(|gang| gang.open.first().is_some_and(|no| is_owed(*no)));
        }
        let order = claim.order(allocation);
        let before = self.books.queues.before(point, order);
        before.is_none_or(|before| is_owed(before.allocation()))
            && self.within_own(&self.demands(&self.unit(allocation)), point.account, false)
    }

    /// Takes a waiting claim out of its queue, or from where it stands aside.
    pub(super) fn step_out(&mut self, allocation: AllocationNo) {
        let Some(claim) = self.claims.get_mut(&allocation) else {
            return;
        };
        let order = claim.order(allocation);
        if let Stage::Waits { place, owed } = &mut claim.stage {
            let (place, owed) = (*place, std::mem::take(owed));
            if owed {
                // Moves no burst: what is owed is of tenants in cohorts only.
                self.books
                    .shift(&claim.path, claim.counted(), Move::Forgive, Millis(0));
            }
            self.books.unpark(place, order);
        }
    }

    /// Forgets a claim that holds nothing.
    pub(super) fn drop_undecided(&mut self, allocation: AllocationNo) {
        self.asked.remove(&allocation);
        self.step_out(allocation);
        self.leave_gang(allocation);
        self.forget(allocation);
    }

    pub(super) fn forget(&mut self, allocation: AllocationNo) {
        self.leave_its_gang(allocation);
        let Some(claim) = self.claims.remove(&allocation) else {
            return;
        };
        self.release_dependents(allocation);
        for (part, _) in claim.counted() {
            self.books.names.release(part);
        }
        if let Some(choice) = &claim.choice {
            self.books.names.release(choice.id);
        }
        let leaf = claim.path.leaf();
        // As above.
        self.books.usage_tree.node_mut(leaf).claims -= 1;
        self.books.usage_tree.prune(leaf);
    }

    pub(super) fn reprioritise(&mut self, allocation: AllocationNo, priority: i32) {
        let Some(claim) = self.claims.get(&allocation) else {
            // The scheduler has not read yet that it was denied.
            return;
        };
        let (old, stage) = (claim.order(allocation), claim.stage);
        let (leaf, seniority) = (claim.path.leaf(), claim.seniority(allocation));
        let parked = match stage {
            Stage::Waits { place, .. } => self.books.unpark(place, old).then_some(place),
            Stage::Asked | Stage::Holds(_) => None,
        };
        let Some(claim) = self.claims.get_mut(&allocation) else {
            return;
        };
        claim.priority = priority;
        if let Some(place) = parked {
            self.books.park(place, claim.order(allocation));
            self.books.mark(place);
        }
        let node = self.books.usage_tree.node_mut(leaf);
        if node.held.remove(&seniority) {
            node.held.insert(claim.seniority(allocation));
            self.mark_lenders(allocation);
        }
    }

    /// Who may be taken back from has changed: those who wait for it are tried.
    fn mark_lenders(&mut self, allocation: AllocationNo) {
        let Some(claim) = self.claims.get(&allocation) else {
            return;
        };
        let tenant = self.books.usage_tree.node(claim.path.tenant());
        if let Some(id) = tenant.cohort {
            self.books.mark_lenders(id);
        }
    }
}
