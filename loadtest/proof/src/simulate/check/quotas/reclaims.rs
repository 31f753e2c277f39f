//! What was granted is taken back only at the end of a burst, or for a lender that needs its own.

use super::{Claim, Hold, Quotas, Stage, limits::Burst};
use crate::simulate::check::{Invariant, Place, Violation};
use schemas::v1;

const LOWER_PRIORITY: i32 = 1;
const NEVER: i32 = 2;

impl Quotas {
    pub(super) fn reclaimed(
        &mut self,
        at: &Place,
        e: &v1::QuotaReclaimed,
    ) -> Result<(), Violation> {
        let claim = self.claim(at, e.allocation)?;
        let told = || format!("{e:?} of {claim:?}");
        let stays = claim.holds().is_some_and(|hold| *hold == Hold::default());
        at.rule(stays, Invariant::Terminal, told)?;
        let rightly = match e.by {
            0 => self.burst_is_over(claim, at.now),
            by => {
                let of = self.claim(at, by)?;
                // The first of a gang stands for all of it; one of a gang that was granted asks for itself.
                let mut unit = match of.gang {
                    Some(_) => self.members_that_ask(of),
                    None => Vec::new(),
                };
                if !unit.contains(&by) {
                    unit = vec![by];
                }
                let unit = unit.iter().filter_map(|no| self.claims.get(no));
                self.is_owed(claim, of, &unit.collect::<Vec<_>>())
            }
        };
        at.rule(rightly, Invariant::Quota, || {
            format!("{}, by {:?}", told(), self.claims.get(&e.by))
        })?;
        let hold = Hold {
            reclaimed: true,
            leaves: None,
        };
        self.set_stage(e.allocation, Stage::Holds(hold));
        Ok(())
    }

    /// One of its accounts is above its limit for longer than it may.
    fn burst_is_over(&self, claim: &Claim, now: i64) -> bool {
        let over = |account: &String| {
            self.resources(claim, account).iter().any(|resource| {
                let limited = self.in_force.get(account, resource);
                limited.is_some_and(|limited| {
                    let late =
                        matches!(limited.burst, Burst::Above(since) if now >= limited.until(since));
                    late && self.staying(account, resource) > limited.limits.hard
                })
            })
        };
        claim.path.iter().any(over)
    }

    /// One that waits for what is its tenant's own, and one that holds what another tenant of the cohort has lent.
    fn is_owed(&self, claim: &Claim, by: &Claim, unit: &[&Claim]) -> bool {
        let (tenant, lender) = (claim.tenant(), by.tenant());
        let Some(settings) = self.tenants.get(lender) else {
            return false;
        };
        let in_cohort = self.cohort(lender).is_some() && self.cohort(lender) == self.cohort(tenant);
        let allowed = match settings.reclaim {
            NEVER => false,
            LOWER_PRIORITY => claim.priority < by.priority,
            _ => true,
        };
        let waits = matches!(by.stage, Stage::Asked | Stage::Waits);
        let lent = |resource: &String| {
            let limits = |tenant| self.in_force.get(tenant, resource).map(|it| it.limits.hard);
            let (Some(most), Some(own)) = (limits(tenant), limits(lender)) else {
                return false;
            };
            // Only from a tenant above its limit, and no more than the lender's own.
            let borrows = self.staying(tenant, resource) > most;
            let asked = unit.iter().map(|one| one.amount(resource)).sum::<u64>();
            let wanted = self.held(lender, resource) + asked;
            claim.amount(resource) > 0 && borrows && wanted <= own
        };
        in_cohort
            && tenant != lender
            && allowed
            && waits
            && unit
                .iter()
                .any(|one| self.resources(one, lender).iter().any(lent))
    }
}
