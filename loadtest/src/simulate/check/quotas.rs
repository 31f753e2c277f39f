//! Quota: reserved and used together stay within the limit, and what was reserved comes back once.

use super::{Checker, Invariant, Place, Violation, allocations::Allocations, foreign};
use schemas::v1::event::Kind;
use std::collections::BTreeMap;

type Account = (String, &'static str);

const RESOURCES: [&str; 3] = ["cpu", "memory", "gpu"];
const QUOTA_EXCEEDED: i32 = 17;

#[derive(Debug, Default)]
pub struct Quotas {
    /// Limits as they were set, by position.
    limits: BTreeMap<Account, Vec<(u64, u64)>>,
    /// Reserved or used, in quota's own order.
    taken: BTreeMap<Account, u64>,
}

impl Quotas {
    pub fn set(&mut self, lsn: u64, tenant: &str, resource: &str, limit: u64) {
        if let Some(name) = RESOURCES.into_iter().find(|name| *name == resource) {
            let limits = self.limits.entry((tenant.to_owned(), name)).or_default();
            limits.push((lsn, limit));
        }
    }

    /// The limit as a writer knew it that had read up to its watermark.
    fn limit(&self, account: &Account, at: &Place) -> u64 {
        let set = self.limits.get(account).into_iter().flatten();
        set.rev()
            .find(|(lsn, _)| at.saw(*lsn))
            .map_or(0, |(_, limit)| *limit)
    }

    fn taken(&self, account: &Account) -> u64 {
        self.taken.get(account).copied().unwrap_or(0)
    }

    pub fn finish(&self, end: &Place, allocations: &Allocations) -> Result<(), Violation> {
        let mut held: BTreeMap<Account, u64> = BTreeMap::new();
        for (no, a) in allocations.iter() {
            let decided = a.quota.is_some() || a.ended_lsn.is_some();
            end.rule(decided, Invariant::Outcome, || {
                format!("quota never decided allocation {no}: {a:?}")
            })?;
            let granted = matches!(a.quota, Some((_, true)));
            let due = granted && a.ended_lsn.is_some();
            end.rule(due == a.released, Invariant::Quota, || {
                format!("quota of allocation {no} was not released: {a:?}")
            })?;
            if granted && !a.released {
                for resource in RESOURCES {
                    let account = (a.tenant.clone(), resource);
                    *held.entry(account).or_default() += a.demand.of_resource(resource);
                }
            }
        }
        let differs = self
            .taken
            .iter()
            .find(|(account, taken)| held.get(account).copied().unwrap_or(0) != **taken);
        end.rule(differs.is_none(), Invariant::Quota, || {
            format!("taken {differs:?}, but {held:?} is held")
        })
    }
}

impl Checker {
    pub(super) fn quota(
        &mut self,
        frame: &Place,
        kinds: &[(Place, &Kind)],
    ) -> Result<(), Violation> {
        for (at, kind) in kinds {
            match kind {
                Kind::QuotaReserved(e) => self.reserved(at, e.allocation)?,
                Kind::QuotaDenied(e) => {
                    let refusal = e.refusal.clone().unwrap_or_default();
                    self.denied(at, e.allocation, &refusal)?;
                }
                Kind::QuotaReleased(e) => self.released(at, e.allocation)?,
                other => return Err(foreign(at, other)),
            }
        }
        for (no, a) in self.allocations.iter() {
            let over = a.ended_lsn.is_some_and(|lsn| frame.saw(lsn));
            let undecided = a.quota.is_none() && !over && frame.saw(a.requested_lsn);
            let unreleased = matches!(a.quota, Some((_, true))) && over && !a.released;
            frame.rule(!undecided && !unreleased, Invariant::Replay, || {
                format!("{no} has an input below watermark {}: {a:?}", frame.through)
            })?;
        }
        Ok(())
    }

    fn claim(&mut self, at: &Place, no: u64) -> Result<(String, [u64; 3]), Violation> {
        let a = self.allocations.get(no);
        let open = a.filter(|a| a.quota.is_none() && at.saw(a.requested_lsn));
        let Some(a) = open else {
            let text = format!("quota decided {no} out of turn: {a:?}");
            return Err(at.wrong(Invariant::Terminal, text));
        };
        let amounts = RESOURCES.map(|resource| a.demand.of_resource(resource));
        Ok((a.tenant.clone(), amounts))
    }

    fn reserved(&mut self, at: &Place, no: u64) -> Result<(), Violation> {
        let (tenant, amounts) = self.claim(at, no)?;
        for (resource, amount) in RESOURCES.into_iter().zip(amounts) {
            let account = (tenant.clone(), resource);
            let limit = self.quotas.limit(&account, at);
            let taken = self.quotas.taken(&account) + amount;
            at.rule(amount == 0 || taken <= limit, Invariant::Quota, || {
                format!("{no} brings {account:?} to {taken} of {limit}")
            })?;
            self.quotas.taken.insert(account, taken);
        }
        self.allocations.quota_decided(at, no, true);
        Ok(())
    }

    fn denied(
        &mut self,
        at: &Place,
        no: u64,
        refusal: &schemas::v1::Refusal,
    ) -> Result<(), Violation> {
        let (tenant, amounts) = self.claim(at, no)?;
        let over = RESOURCES
            .into_iter()
            .zip(amounts)
            .any(|(resource, amount)| {
                let account = (tenant.clone(), resource);
                let limit = self.quotas.limit(&account, at);
                let taken = self.quotas.taken(&account) + amount;
                let named = (refusal.subject.as_str(), refusal.limit, refusal.actual)
                    == (resource, limit, taken);
                named && amount > 0 && taken > limit
            });
        at.rule(
            over && refusal.rule == QUOTA_EXCEEDED,
            Invariant::Quota,
            || format!("{no} denied by {refusal:?} though it fits"),
        )?;
        self.allocations.quota_decided(at, no, false);
        Ok(())
    }

    fn released(&mut self, at: &Place, no: u64) -> Result<(), Violation> {
        let a = self.allocations.get(no);
        let due = a.filter(|a| {
            matches!(a.quota, Some((_, true)))
                && !a.released
                && a.ended_lsn.is_some_and(|lsn| at.saw(lsn))
        });
        let Some(a) = due else {
            let text = format!("quota of {no} released out of turn: {a:?}");
            return Err(at.wrong(Invariant::Quota, text));
        };
        for resource in RESOURCES {
            let account = (a.tenant.clone(), resource);
            let left = self
                .quotas
                .taken(&account)
                .checked_sub(a.demand.of_resource(resource))
                .ok_or_else(|| at.wrong(Invariant::Quota, format!("{account:?} below zero")))?;
            self.quotas.taken.insert(account, left);
        }
        self.allocations.released(no);
        Ok(())
    }
}
