//! The accounts: what each may hold, and what it holds.

use super::{Change, Key, claim::Claim, hours::Hours};
use ledger::IllegalEvent;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fmt,
    ops::Bound::{Excluded, Unbounded},
};
use vocab::{Account, Limits, Millis, OnExceed, QuotaResource, ReclaimFrom, TenantSettings, Token};

/// What an account holds of one resource type, in its unit, and within which limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AccountState {
    /// In force now.
    pub limits: Option<Limits>,
    /// Of the last change, which may be one that is yet to come; 0 before the first.
    pub version: u64,
    /// Granted, not started.
    pub reserved: u64,
    /// Started.
    pub used: u64,
    pub peak: Option<Peak>,
    /// Above the soft limit since then.
    pub soft_since: Option<Millis>,
    /// Above the hard limit since then.
    pub over_since: Option<Millis>,
    /// What a tenant of a cohort holds beyond its hard limit, as far as it may borrow.
    pub borrowed: u64,
    pub changed_at: Millis,
}

/// The most that was ever used, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peak {
    pub used: u64,
    pub at: Millis,
}

/// How quota treats a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantRow {
    pub tenant: Token,
    pub cohort: Option<Token>,
    pub preemptible: bool,
    pub on_exceed: OnExceed,
    pub reclaim: ReclaimFrom,
    pub version: u64,
}

impl TenantRow {
    pub(super) fn of(tenant: &Token, settings: &TenantSettings, version: u64) -> Self {
        Self {
            tenant: tenant.clone(),
            cohort: settings.cohort.clone(),
            preemptible: settings.preemptible,
            on_exceed: settings.on_exceed,
            reclaim: settings.reclaim,
            version,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Holding {
    reserved: u64,
    used: u64,
    peak: Option<Peak>,
    soft_since: Option<Millis>,
    over_since: Option<Millis>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Setting {
    limits: Option<Limits>,
    version: u64,
}

/// What happens to what a claim amounts to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    Reserve,
    Start,
    Requeue,
    ReleaseReserved,
    ReleaseUsed,
    /// Used without having been reserved.
    Use,
}

impl Holding {
    /// None when it takes away more than is there, or adds up to more than can be counted.
    fn moved(self, how: Move, amount: u64, now: Millis) -> Option<Self> {
        let mut next = self;
        match how {
            Move::Reserve => next.reserved = self.reserved.checked_add(amount)?,
            Move::Start => {
                next.reserved = self.reserved.checked_sub(amount)?;
                next.used = self.used.checked_add(amount)?;
            }
            Move::Requeue => {
                next.used = self.used.checked_sub(amount)?;
                next.reserved = self.reserved.checked_add(amount)?;
            }
            Move::ReleaseReserved => next.reserved = self.reserved.checked_sub(amount)?,
            Move::ReleaseUsed => next.used = self.used.checked_sub(amount)?,
            Move::Use => next.used = self.used.checked_add(amount)?,
        }
        next.reserved.checked_add(next.used)?;
        if next.used > self.peak.map_or(0, |peak| peak.used) {
            let used = next.used;
            next.peak = Some(Peak { used, at: now });
        }
        Some(next)
    }

    fn held(&self) -> u64 {
        self.reserved.saturating_add(self.used)
    }

    fn flag(&mut self, limits: Option<Limits>, now: Millis) {
        let held = self.held();
        let since = |limit: Option<u64>, before: Option<Millis>| {
            limit
                .filter(|limit| held > *limit)
                .map(|_| before.unwrap_or(now))
        };
        self.soft_since = since(limits.and_then(|limits| limits.soft), self.soft_since);
        self.over_since = since(limits.map(|limits| limits.hard), self.over_since);
    }
}

/// All accounts. Those without limits that hold nothing are forgotten, so that their number follows what is live and what
/// operators have set; a tenant's own of the common types stay, for their peaks.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Book {
    holdings: BTreeMap<Key, Holding>,
    settings: BTreeMap<Key, Setting>,
    tenants: BTreeMap<Token, TenantRow>,
    /// GPUs of any model, by account: each of its models holds them too.
    any_model: BTreeMap<Account, Holding>,
    hours: Hours,
    /// Whose rows this batch has to write, and when they changed last.
    #[serde(skip)]
    changed: BTreeMap<Key, Millis>,
}

impl Book {
    /// Moves what a claim amounts to, in its account and in those above it.
    pub fn apply(
        &mut self,
        claim: &Claim,
        how: Move,
        now: Millis,
        event: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        for account in claim.levels() {
            self.apply_any_model(&account, how, claim.any_model(), now, event)?;
            for (resource, amount) in claim.amounts() {
                let key = (account.clone(), resource);
                self.take(&key, how, amount, now, event)?;
            }
        }
        Ok(())
    }

    /// What was reserved counts on other models than before.
    pub fn recount(
        &mut self,
        claim: &Claim,
        before: Option<&[Token]>,
        now: Millis,
        event: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        let (after, amount) = (claim.counts_on(), claim.gpus());
        if after == before || amount == 0 {
            return Ok(());
        }
        let but = |all: Option<&[Token]>, but: Option<&[Token]>| -> Vec<Token> {
            let all = all.into_iter().flatten();
            let rest = all.filter(|model| but.is_none_or(|but| !but.contains(model)));
            rest.cloned().collect()
        };
        // What is on both stays, so that nothing that goes by time begins anew.
        let (gained, lost) = (but(after, before), but(before, after));
        for account in claim.levels() {
            for (models, how) in [(&gained, Move::Reserve), (&lost, Move::ReleaseReserved)] {
                for model in models {
                    let key = (account.clone(), QuotaResource::GpuModel(model.clone()));
                    self.take(&key, how, amount, now, event)?;
                }
            }
            match (before, after) {
                (None, Some(_)) => {
                    self.apply_any_model(&account, Move::ReleaseReserved, amount, now, event)?;
                }
                (Some(_), None) => {
                    self.apply_any_model(&account, Move::Reserve, amount, now, event)?;
                }
                (None, None) | (Some(_), Some(_)) => {}
            }
        }
        Ok(())
    }

    fn apply_any_model(
        &mut self,
        account: &Account,
        how: Move,
        amount: u64,
        now: Millis,
        event: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        if amount == 0 {
            return Ok(());
        }
        let before = self.any_model.remove(account).unwrap_or_default();
        let after = before
            .moved(how, amount, now)
            .ok_or_else(|| IllegalEvent::new("account would not add up", event))?;
        if after.held() > 0 {
            self.any_model.insert(account.clone(), after);
        }
        for key in self.models_of(account) {
            self.take(&key, how, amount, now, event)?;
        }
        Ok(())
    }

    fn models_of(&self, account: &Account) -> Vec<Key> {
        let after = (account.clone(), QuotaResource::Gpu);
        let beyond = self.holdings.range((Excluded(after), Unbounded));
        let keys = beyond.map(|(key, _)| key.clone());
        keys.take_while(|(of, resource)| {
            of == account && matches!(resource, QuotaResource::GpuModel(_))
        })
        .collect()
    }

    /// What an account holds of a resource type; of a model that nobody has named before, what may be of any.
    fn holding(&self, key: &Key) -> Holding {
        let held = self.holdings.get(key).copied();
        held.unwrap_or_else(|| self.of_any_model(key))
    }

    fn of_any_model(&self, (account, resource): &Key) -> Holding {
        let any = self.any_model.get(account);
        any.filter(|_| matches!(resource, QuotaResource::GpuModel(_)))
            .copied()
            .unwrap_or_default()
    }

    pub fn take(
        &mut self,
        key: &Key,
        how: Move,
        amount: u64,
        now: Millis,
        event: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        let before = self.holding(key);
        let after = before
            .moved(how, amount, now)
            .ok_or_else(|| IllegalEvent::new("account would not add up", event))?;
        self.hold(key, after, now);
        self.hour(key, now);
        Ok(())
    }

    /// Whether an operator has ever said something of its limits.
    pub fn was_set(&self, key: &Key) -> bool {
        self.settings.contains_key(key)
    }

    pub fn set_version(&mut self, key: &Key, version: u64) {
        self.settings.entry(key.clone()).or_default().version = version;
    }

    pub fn set_limits(&mut self, key: &Key, limits: Option<Limits>, now: Millis) {
        self.settings.entry(key.clone()).or_default().limits = limits;
        self.refresh(key, now);
        let held = self.holdings.get(key).map_or(0, Holding::held);
        if held > 0 || self.hours.is_open(key) {
            self.hour(key, now);
        }
    }

    /// Takes what an account holds from now on into its hour.
    fn hour(&mut self, key: &Key, now: Millis) {
        let held = self.holdings.get(key).copied().unwrap_or_default();
        self.hours.changed(key, (held.reserved, held.used), now);
    }

    /// Membership in a cohort is what makes of an excess a loan.
    pub fn set_tenant(&mut self, row: TenantRow, now: Millis, out: &mut Vec<Change>) {
        let own = Account::tenant(row.tenant.clone());
        out.push(Change::Tenant(Box::new(row.clone())));
        self.tenants.insert(row.tenant.clone(), row);
        let first = (own.clone(), QuotaResource::Cpu);
        let beyond = self.holdings.range(first..);
        let keys: Vec<_> = beyond
            .map(|(key, _)| key.clone())
            .take_while(|(account, _)| *account == own)
            .collect();
        for key in keys {
            self.refresh(&key, now);
        }
    }

    /// Has an account's row written as it stands under the limits in force.
    pub fn refresh(&mut self, key: &Key, now: Millis) {
        self.hold(key, self.holding(key), now);
    }

    fn hold(&mut self, key: &Key, mut holding: Holding, now: Millis) {
        let limits = self.limits(key);
        holding.flag(limits, now);
        let own = holding.held() > self.of_any_model(key).held();
        if limits.is_none() && !own && !remembered(key, &holding) {
            self.holdings.remove(key);
        } else if let Some(held) = self.holdings.get_mut(key) {
            *held = holding;
        } else {
            self.holdings.insert(key.clone(), holding);
        }
        match self.changed.get_mut(key) {
            Some(at) => *at = now,
            None => drop(self.changed.insert(key.clone(), now)),
        }
    }

    /// The rows of what has changed since the last time.
    pub fn rows(&mut self, out: &mut Vec<Change>) {
        for (key, at) in std::mem::take(&mut self.changed) {
            let state = self.state(&key, at).map(Box::new);
            out.push(Change::Account(key, state));
        }
        let settings = &self.settings;
        self.hours.rows(|key| hard(settings, key), out);
    }

    fn state(&self, key: &Key, changed_at: Millis) -> Option<AccountState> {
        let holding = self.holdings.get(key)?;
        let setting = self.settings.get(key).copied().unwrap_or_default();
        Some(AccountState {
            limits: setting.limits,
            version: setting.version,
            reserved: holding.reserved,
            used: holding.used,
            peak: holding.peak,
            soft_since: holding.soft_since,
            over_since: holding.over_since,
            borrowed: self.borrowed(key, setting.limits, holding.held()),
            changed_at,
        })
    }

    /// Ends the hours that are over; whether there were any.
    pub fn roll(&mut self, now: Millis, out: &mut Vec<Change>) -> bool {
        let settings = &self.settings;
        self.hours.roll(now, |key| hard(settings, key), out)
    }

    fn limits(&self, key: &Key) -> Option<Limits> {
        self.settings.get(key)?.limits
    }

    fn borrowed(&self, (account, _): &Key, limits: Option<Limits>, held: u64) -> u64 {
        let Some(limits) = limits.filter(|_| account.team.is_none()) else {
            return 0;
        };
        let tenant = self.tenants.get(&account.tenant);
        if !tenant.is_some_and(|tenant| tenant.cohort.is_some() && tenant.preemptible) {
            return 0;
        }
        let excess = held.saturating_sub(limits.hard);
        excess.min(limits.borrow.unwrap_or(u64::MAX))
    }
}

fn hard(settings: &BTreeMap<Key, Setting>, key: &Key) -> Option<u64> {
    settings.get(key)?.limits.map(|limits| limits.hard)
}

/// Names of models and of extended resources come from requests, so nothing is kept for what is gone.
fn remembered((account, resource): &Key, holding: &Holding) -> bool {
    let named = matches!(
        resource,
        QuotaResource::GpuModel(_) | QuotaResource::Extended(_)
    );
    account.team.is_none() && !named && holding.peak.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_neither_goes_below_nothing_nor_beyond_counting() {
        let holding = Holding {
            reserved: u64::MAX,
            ..Holding::default()
        };
        assert_eq!(holding.moved(Move::Reserve, 1, Millis(0)), None);
        assert_eq!(holding.moved(Move::Use, 1, Millis(0)), None);
        assert_eq!(holding.moved(Move::ReleaseUsed, 1, Millis(0)), None);
    }
}
