//! The accounts' rows: what quota's books say, and what those do not remember.

use super::{Change, Key, hours::Hours};
use quota_rules::Holding;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vocab::{Limits, Millis, OnExceed, QuotaResource, ReclaimFrom, TenantSettings, Token};

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
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// What quota does not remember of an account and a resource type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    /// Of the limits that were set last.
    version: u64,
    peak: Option<Peak>,
    soft_since: Option<Millis>,
    over_since: Option<Millis>,
}

impl Note {
    /// Takes in what is held from now on; whether there is anything to remember.
    fn take(&mut self, key: &Key, holding: &Holding, now: Millis) -> bool {
        if holding.used > self.peak.map_or(0, |peak| peak.used) {
            let used = holding.used;
            self.peak = Some(Peak { used, at: now });
        }
        let (limits, held) = (holding.limits, holding.held());
        let since = |limit: Option<u64>, before: Option<Millis>| {
            limit
                .filter(|limit| held > *limit)
                .map(|_| before.unwrap_or(now))
        };
        self.soft_since = since(limits.and_then(|limits| limits.soft), self.soft_since);
        self.over_since = since(limits.map(|limits| limits.hard), self.over_since);
        if !self.has_row(key, holding) {
            let version = self.version;
            *self = Self {
                version,
                ..Self::default()
            };
        }
        *self != Self::default()
    }

    /// An account without limits that holds nothing has none, so that the number of rows follows what is live and what
    /// operators have set; a tenant's own of the common types stays, for its peak.
    fn has_row(&self, (account, resource): &Key, holding: &Holding) -> bool {
        // Names of models and of extended resources come from requests, so nothing is kept for what is gone.
        let named = matches!(
            resource,
            QuotaResource::GpuModel(_) | QuotaResource::Extended(_)
        );
        let remembered = account.team.is_none() && !named && self.peak.is_some();
        holding.limits.is_some() || holding.own > 0 || remembered
    }
}

/// What there is to the accounts' rows beside quota's books.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Book {
    notes: BTreeMap<Key, Note>,
    hours: Hours,
    /// Whose rows this batch has to write, and when they changed last.
    #[serde(skip)]
    changed: BTreeMap<Key, Millis>,
}

impl Book {
    /// Takes in what an account holds, and within which limits, from now on.
    pub fn take(&mut self, key: &Key, holding: &Holding, now: Millis) {
        if let Some(note) = self.notes.get_mut(key) {
            if !note.take(key, holding, now) {
                self.notes.remove(key);
            }
        } else {
            let mut note = Note::default();
            if note.take(key, holding, now) {
                self.notes.insert(key.clone(), note);
            }
        }
        if holding.held() > 0 || self.hours.is_open(key) {
            let held = (holding.reserved, holding.used);
            self.hours.changed(key, held, now);
        }
        match self.changed.get_mut(key) {
            Some(at) => *at = now,
            None => drop(self.changed.insert(key.clone(), now)),
        }
    }

    pub fn set_version(&mut self, key: &Key, version: u64) {
        self.notes.entry(key.clone()).or_default().version = version;
    }

    /// All that anything is remembered of.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.notes.keys()
    }

    /// The rows of what has changed since the last time.
    pub fn rows(&mut self, holding: impl Fn(&Key) -> Holding, out: &mut Vec<Change>) {
        for (key, changed_at) in std::mem::take(&mut self.changed) {
            let state = self.state(&key, &holding(&key), changed_at);
            out.push(Change::Account(key, state.map(Box::new)));
        }
        self.hours.rows(|key| hard(&holding(key)), out);
    }

    fn state(&self, key: &Key, holding: &Holding, changed_at: Millis) -> Option<AccountState> {
        let note = self.notes.get(key).copied().unwrap_or_default();
        note.has_row(key, holding).then_some(AccountState {
            limits: holding.limits,
            version: note.version,
            reserved: holding.reserved,
            used: holding.used,
            peak: note.peak,
            soft_since: note.soft_since,
            over_since: note.over_since,
            borrowed: holding.borrowed(),
            changed_at,
        })
    }

    /// Ends the hours that are over; whether there were any.
    pub fn roll(
        &mut self,
        now: Millis,
        holding: impl Fn(&Key) -> Holding,
        out: &mut Vec<Change>,
    ) -> bool {
        self.hours.roll(now, |key| hard(&holding(key)), out)
    }
}

fn hard(holding: &Holding) -> Option<u64> {
    holding.limits.map(|limits| limits.hard)
}
