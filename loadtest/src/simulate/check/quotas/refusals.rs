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
        self.forget_gangs();
        Ok(())
    }

    /// What is answered together, by the first of them: one allocation, or the first members of a gang, as many as it
    /// has. Nobody, as long as that is not complete or another one comes first.
    fn unit(&self, no: u64, claim: &Claim) -> Vec<u64> {
        let open = claim.gang_key().filter(|key| !self.gangs.contains(key));
        let (Some(key), Some((_, size))) = (open, &claim.gang) else {
            return vec![no];
        };
        let asks = |other: &Claim| matches!(other.stage, Stage::Asked | Stage::Waits);
        let is_member = |(_, other): &(&u64, &Claim)| {
            asks(other) && !other.again && other.gang_key().as_ref() == Some(&key)
        };
        let members = self.claims.iter().filter(is_member).map(|(no, _)| *no);
        let unit: Vec<u64> = members.take(*size as usize).collect();
        let complete = unit.len() as u64 == *size && unit.first() == Some(&no);
        if complete { unit } else { Vec::new() }
    }

    pub(super) fn gangs_are_denied_whole(&self, frame: &Place) -> Result<(), Violation> {
        let left = &self.denied_too;
        frame.rule(left.is_empty(), Invariant::Quota, || {
            format!("of a gang, only some are denied quota; left are {left:?}")
        })
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

    /// What all of them together ask of the account is more than it may ever hold, whoever of them asks it.
    fn never_fits(&self, unit: &[u64], refusal: &v1::Refusal) -> bool {
        let Some((account, what)) = refusal.subject.split_once(' ') else {
            return false;
        };
        let claims = unit.iter().filter_map(|no| self.claims.get(no));
        let below = claims.filter(|claim| claim.is_below(account));
        let asks: u64 = below.map(|claim| claim.amount(what)).sum();
        let most = self.most_ever(account, what);
        refusal.limit == most && refusal.actual == asks && asks > most
    }
}
