//! Release: what an allocation held goes back, once: when it has ended, or when what was taken back has stopped.

use super::{
    Quota,
    books::Move,
    claim::{Hold, Leaves, Stage},
};
use ledger::{Draft, IllegalEvent};
use std::fmt;
use vocab::fact::QuotaReleased;
use vocab::{AllocationNo, At, Millis};

pub(super) fn decide(state: &mut Quota, draft: &mut Draft) {
    while let Some(allocation) = state.leaving.first().copied() {
        if draft.full() {
            return;
        }
        draft.emit(state, QuotaReleased { allocation });
    }
}

impl Quota {
    /// What was reserved is used from the start of the run on.
    pub(super) fn start(
        &mut self,
        at: &At,
        allocation: AllocationNo,
        from: Millis,
        event: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        let hold = self.hold(allocation, event)?;
        if hold.started.is_some() {
            return Ok(());
        }
        self.change_hold(allocation, |hold| hold.started = Some(from));
        self.move_parts(allocation, Move::Start, at.now);
        self.run_counts(allocation, None, from);
        Ok(())
    }

    /// Its run is over and it waits again: what was used stays reserved for it, also when it is being taken back, as the
    /// scheduler may have decided that before it knew.
    pub(super) fn stop(
        &mut self,
        at: &At,
        allocation: AllocationNo,
        until: Millis,
        event: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        let hold = self.hold(allocation, event)?;
        if hold.leaves.is_some() {
            // It is on its way back already.
            return Ok(());
        }
        if let Some(from) = hold.started {
            self.run_counts(allocation, Some(from), until);
            self.change_hold(allocation, |hold| hold.started = None);
            self.move_parts(allocation, Move::Stop, at.now);
        }
        self.count_on_choice(allocation, at.now);
        Ok(())
    }

    /// The scheduler does not try it any more until it has quota again: what was taken back, or is counted by model, is
    /// free.
    pub(super) fn keep_off(&mut self, allocation: AllocationNo) {
        let Some(claim) = self.claims.get(&allocation) else {
            return;
        };
        let by_model = claim.choice.as_ref().is_some_and(|choice| choice.by_model);
        let stops =
            |h: &Hold| (h.reclaimed || by_model) && h.started.is_none() && h.leaves.is_none();
        if claim.hold().is_some_and(stops) {
            self.leave(allocation, Leaves::Stopped);
        }
    }

    /// One that ends before it was decided never held anything, and need not be decided any more.
    pub(super) fn end(&mut self, allocation: AllocationNo, until: Millis) {
        match self.claims.get(&allocation).map(|claim| claim.stage) {
            Some(Stage::Asked | Stage::Waits { .. }) => self.drop_undecided(allocation),
            Some(Stage::Holds(hold)) => {
                if let Some(from) = hold.running() {
                    self.run_counts(allocation, Some(from), until);
                }
                self.leave_its_gang(allocation);
                self.leave(allocation, Leaves::Ended);
            }
            // Denied, or released already.
            None => {}
        }
    }

    fn leave(&mut self, allocation: AllocationNo, leaves: Leaves) {
        self.change_hold(allocation, |hold| hold.leaves = Some(leaves));
        self.leaving.insert(allocation);
    }

    pub(super) fn released(
        &mut self,
        at: &At,
        allocation: AllocationNo,
        event: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        let hold = self.hold(allocation, event)?;
        let leaves = hold.leaves;
        let leaves = leaves.ok_or_else(|| IllegalEvent::new("neither ended nor stopped", event))?;
        self.leaving.remove(&allocation);
        let how = Move::Release {
            started: hold.started.is_some(),
            reclaimed: hold.reclaimed,
        };
        self.move_parts(allocation, how, at.now);
        if let Some(claim) = self.claims.get_mut(&allocation) {
            let node = self.books.usage_tree.node_mut(claim.path.leaf());
            node.held.remove(&claim.seniority(allocation));
            claim.stage = Stage::Asked;
            claim.again = true;
            claim.model = None;
        }
        self.count_on_nothing(allocation);
        match leaves {
            Leaves::Ended => self.forget(allocation),
            Leaves::Stopped => drop(self.asked.insert(allocation)),
        }
        Ok(())
    }

    /// What it holds; without that it can neither be placed nor start nor stop.
    pub(super) fn hold(
        &self,
        allocation: AllocationNo,
        event: &impl fmt::Debug,
    ) -> Result<Hold, IllegalEvent> {
        let claim = self.claims.get(&allocation);
        let hold = claim.and_then(|claim| claim.hold());
        hold.copied()
            .ok_or_else(|| IllegalEvent::new("nothing held", event))
    }

    fn change_hold(&mut self, allocation: AllocationNo, change: impl FnOnce(&mut Hold)) {
        if let Some(claim) = self.claims.get_mut(&allocation)
            && let Some(hold) = claim.hold_mut()
        {
            change(hold);
        }
    }

    fn move_parts(&mut self, allocation: AllocationNo, how: Move, now: Millis) {
        if let Some(claim) = self.claims.get(&allocation) {
            self.books.shift(&claim.path, claim.counted(), how, now);
        }
    }

    /// The budgets of its accounts count the run from its start, or up to its end.
    fn run_counts(&mut self, allocation: AllocationNo, began: Option<Millis>, at: Millis) {
        if let Some(claim) = self.claims.get(&allocation) {
            self.books.count_run(&self.rates, claim, began, at);
        }
    }
}
