//! Who waits or is denied does so because of what the refusal says.

use super::{Claim, Quotas, Stage, models::models_of};
use crate::simulate::check::{Invariant, Place, Violation};
use schemas::v1;

const QUOTA_EXCEEDED: i32 = 17;
const BUDGET_EXHAUSTED: i32 = 38;
const QUOTA_NEVER_FITS: i32 = 39;
const GANG_INCOMPLETE: i32 = 57;
const DEPENDENCY_PENDING: i32 = 60;
const BURST_OVER: i32 = 61;

const WAIT: i32 = 1;

impl Quotas {
    pub(super) fn waits(
        &mut self,
        at: &Place,
        no: u64,
        refusal: &v1::Refusal,
    ) -> Result<(), Violation> {
        let claim = self.claim(at, no)?;
        let told = || format!("{no} waits by {refusal:?}: {claim:?}");
        let open = matches!(claim.stage, Stage::Asked | Stage::Waits);
        at.rule(open, Invariant::Terminal, told)?;
        let fits = match refusal.rule {
            GANG_INCOMPLETE => claim.gang.is_some(),
            DEPENDENCY_PENDING => claim.stage == Stage::Asked && self.awaits_others(claim),
            // Who asks for the first time, and alone, is refused instead.
            QUOTA_NEVER_FITS => {
                let told = claim.stage == Stage::Waits && !claim.told_of_others;
                let may = told || claim.again || claim.gang.is_some();
                may && self.is_impossible(no, claim, refusal, None)
            }
            BURST_OVER => self.is_impossible(no, claim, refusal, Some(at.now)),
            QUOTA_EXCEEDED | BUDGET_EXHAUSTED => {
                // Whoever is to be refused does not wait, unless it was granted or told to wait before, or is waiting
                // for what is its own.
                let may = self.waits_by_setting(claim)
                    || claim.again
                    || claim.gang.is_some()
                    || self.cohort(claim.tenant()).is_some()
                    || claim.stage == Stage::Waits;
                may && self.is_in_the_way(claim, refusal, at.now)
            }
            _ => false,
        };
        at.rule(fits, Invariant::Quota, told)?;
        self.set_stage(no, Stage::Waits);
        if let Some(claim) = self.claims.get_mut(&no) {
            claim.told_of_others = refusal.rule == DEPENDENCY_PENDING;
        }
        Ok(())
    }

    /// It alone, or its gang, asks for more than the account may hold: at a moment, or ever.
    fn is_impossible(
        &self,
        no: u64,
        claim: &Claim,
        refusal: &v1::Refusal,
        now: Option<i64>,
    ) -> bool {
        let Some((account, what)) = self.subject(claim, refusal) else {
            return false;
        };
        if let Some(choice) = models_of(what) {
            let alone = claim.gang.is_none() || self.unit(no, claim) == [no];
            // Each member is told what all of them want.
            let unit = if alone {
                vec![no]
            } else {
                self.members_that_ask(claim)
            };
            return self.no_model_ever(&unit, &choice, refusal, now);
        }
        let ever = self.most_ever(account, what);
        let limited = self.in_force.get(account, what);
        let most = match now.and_then(|now| Some(limited?.most_now(now))) {
            Some(most) if self.cohort(account).is_none() => most,
            Some(_) | None => ever,
        };
        let alone = claim.gang.is_none() || self.unit(no, claim) == [no];
        let asks = !alone || claim.amount(what) == refusal.actual;
        asks && refusal.limit == most && refusal.actual > most
    }

    pub(super) fn denied(
        &mut self,
        at: &Place,
        no: u64,
        refusal: &v1::Refusal,
    ) -> Result<(), Violation> {
        let claim = self.claim(at, no)?;
        let told = || format!("{no} is denied by {refusal:?}: {claim:?}");
        let open = match claim.stage {
            Stage::Asked => true,
            // A gang is looked at when it is complete, and what depends on others when they have ended.
            Stage::Waits => claim.gang.is_some() || claim.told_of_others,
            Stage::Holds(_) | Stage::Over => false,
        };
        at.rule(open && !claim.again, Invariant::Terminal, told)?;
        if let Some(first) = self.denied_too.get(&no) {
            at.rule(first == refusal, Invariant::Quota, told)?;
            self.denied_too.remove(&no);
        } else {
            let unit = self.unit(no, claim);
            let fits = match refusal.rule {
                QUOTA_NEVER_FITS => self.never_fits(&unit, refusal),
                QUOTA_EXCEEDED | BUDGET_EXHAUSTED => {
                    !self.waits_by_setting(claim) && self.is_in_the_way(claim, refusal, at.now)
                }
                _ => false,
            };
            at.rule(fits && !unit.is_empty(), Invariant::Quota, told)?;
            let others = unit.into_iter().filter(|other| *other != no);
            let others = others.map(|other| (other, refusal.clone()));
            self.denied_too.extend(others);
        }
        self.set_stage(no, Stage::Over);
        Ok(())
    }

    fn waits_by_setting(&self, claim: &Claim) -> bool {
        let settings = self.tenants.get(claim.tenant());
        settings.is_some_and(|settings| settings.on_exceed == WAIT)
    }

    /// An account of the claim and what it asks of it.
    fn subject<'a>(&self, claim: &Claim, refusal: &'a v1::Refusal) -> Option<(&'a str, &'a str)> {
        let (account, what) = refusal.subject.split_once(' ')?;
        // A gang's may be another member's.
        let of_tenant = account.split('/').next() == Some(claim.tenant());
        let own = claim.is_below(account) || (claim.gang.is_some() && of_tenant);
        own.then_some((account, what))
    }

    /// What is named does not fit; or somebody else who waits goes first.
    fn is_in_the_way(&self, claim: &Claim, refusal: &v1::Refusal, now: i64) -> bool {
        let Some((account, what)) = self.subject(claim, refusal) else {
            return false;
        };
        if refusal.rule == BUDGET_EXHAUSTED {
            return self
                .budgets
                .may_be_exhausted(self, (account, what), refusal, now);
        }
        let cohort = self.cohort(account);
        let near = |other: &Claim| {
            let same = cohort.is_some() && self.cohort(other.tenant()) == cohort;
            same || other.is_below(account)
        };
        // Who waits goes first, and who borrows leaves what a lender is getting back.
        let waits = |other: &Claim| other.stage == Stage::Waits && near(other);
        if claim.gang.is_some() || self.claims.values().any(waits) {
            return refusal.actual > refusal.limit;
        }
        if let Some(choice) = models_of(what) {
            return self.no_model_now(claim, &choice, refusal, now);
        }
        match self.may_hold_of(claim, account, what, now) {
            Err(over) => over.actual == refusal.actual && refusal.limit < refusal.actual,
            Ok(_) => false,
        }
    }

    /// What all of them together ask of the account is more than it may ever hold, whoever of them asks it.
    fn never_fits(&self, unit: &[u64], refusal: &v1::Refusal) -> bool {
        let Some((account, what)) = refusal.subject.split_once(' ') else {
            return false;
        };
        if let Some(choice) = models_of(what) {
            return self.no_model_ever(unit, &choice, refusal, None);
        }
        let claims = unit.iter().filter_map(|no| self.claims.get(no));
        let below = claims.filter(|claim| claim.is_below(account));
        let asks: u64 = below.map(|claim| claim.amount(what)).sum();
        let most = self.most_ever(account, what);
        refusal.limit == most && refusal.actual == asks && asks > most
    }
}
