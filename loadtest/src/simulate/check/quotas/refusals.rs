//! Who waits or is denied does so because of what the refusal says.

use super::{Claim, Quotas, Stage};
use crate::simulate::check::{Invariant, Place, Violation};
use schemas::v1;

const QUOTA_EXCEEDED: i32 = 17;
const BUDGET_EXHAUSTED: i32 = 38;
const QUOTA_NEVER_FITS: i32 = 39;
const GANG_INCOMPLETE: i32 = 57;

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
        Ok(())
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
            // A gang is looked at when it is complete.
            Stage::Waits => claim.gang.is_some(),
            Stage::Holds(_) | Stage::Over => false,
        };
        at.rule(open && !claim.again, Invariant::Terminal, told)?;
        let fits = match refusal.rule {
            QUOTA_NEVER_FITS => self.never_fits(claim, refusal),
            QUOTA_EXCEEDED | BUDGET_EXHAUSTED => {
                !self.waits_by_setting(claim) && self.is_in_the_way(claim, refusal, at.now)
            }
            _ => false,
        };
        at.rule(fits, Invariant::Quota, told)?;
        self.set_stage(no, Stage::Over);
        self.forget_gangs();
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
        match self.may_hold_of(claim, account, what, now) {
            Err(over) => over.actual == refusal.actual && refusal.limit < refusal.actual,
            Ok(_) => false,
        }
    }

    fn never_fits(&self, claim: &Claim, refusal: &v1::Refusal) -> bool {
        let Some((account, what)) = self.subject(claim, refusal) else {
            return false;
        };
        let most = self.most_ever(account, what);
        let amount = claim.amount(what);
        // A gang asks for all its members together.
        let asks = if claim.gang.is_some() {
            refusal.actual >= amount
        } else {
            refusal.actual == amount
        };
        asks && refusal.limit == most && refusal.actual > most
    }
}
