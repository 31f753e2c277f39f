//! When limits hold: changes to come, overrides that end, and what is below them.

use super::Quota;
use super::{account::AccountId, resource::ResourceId};
use ledger::{Draft, IllegalEvent};
use serde::{Deserialize, Serialize};
use std::fmt;
use vocab::fact::LimitsInForce;
use vocab::{Account, At, EventNo, Limits, Millis, QuotaResource, Validity};

/// All that was set for one account and resource type and still matters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Schedule {
    /// What holds without an override.
    base: Option<Limits>,
    /// In the order in which they were set.
    changes: Vec<Change>,
    /// Overrides that have begun.
    overrides: Vec<Override>,
    /// The base was changed below an override: it is said again what holds.
    restate: bool,
    /// When it is to be looked at, as the index has it.
    due: Option<Millis>,
}

/// A change to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Change {
    from: Millis,
    /// None: the base changes for good.
    until: Option<Millis>,
    limits: Option<Limits>,
    /// Counts what was set; the latest override wins, whenever it begins.
    set: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Override {
    limits: Option<Limits>,
    until: Millis,
    set: u64,
}

impl Schedule {
    fn set(&mut self, limits: Option<Limits>, validity: Validity, set: u64, now: Millis) {
        match (validity.from, validity.until) {
            (None, None) => {
                self.base = limits;
                // What should have begun by now, and was not said yet, came before this.
                self.changes.retain(|c| c.until.is_some() || c.from > now);
                self.restate = !self.overrides.is_empty();
            }
            (from, until) => self.changes.push(Change {
                // At once is as soon as quota says so.
                from: from.unwrap_or(Millis(i64::MIN)),
                until,
                limits,
                set,
            }),
        }
    }

    /// What holds when everything up to `now` has taken effect.
    fn at(&self, now: Millis) -> Self {
        let mut next = self.clone();
        let mut begun: Vec<Change> = Vec::new();
        next.changes.retain(|change| {
            if change.from <= now {
                begun.push(*change);
            }
            change.from > now
        });
        begun.sort_by_key(|change| (change.from, change.set));
        for change in &begun {
            match change.until {
                None => next.base = change.limits,
                Some(until) => next.overrides.push(Override {
                    limits: change.limits,
                    until,
                    set: change.set,
                }),
            }
        }
        next.overrides.retain(|over| over.until > now);
        next.restate = false;
        next
    }

    fn in_force(&self) -> Option<Limits> {
        let latest = self.overrides.iter().max_by_key(|over| over.set);
        latest.map_or(self.base, |over| over.limits)
    }

    fn due(&self) -> Option<Millis> {
        let begins = self.changes.iter().map(|change| change.from);
        let ends = self.overrides.iter().map(|over| over.until);
        let restate = self.restate.then_some(Millis(i64::MIN));
        begins.chain(ends).chain(restate).min()
    }

    /// What is to come and what is not over, by the numbers of what set it.
    pub fn planned(&self) -> impl Iterator<Item = EventNo> {
        let changes = self.changes.iter().map(|change| change.set);
        let overrides = self.overrides.iter().map(|over| over.set);
        changes.chain(overrides).map(EventNo)
    }

    fn is_over(&self) -> bool {
        self.base.is_none() && self.changes.is_empty() && self.overrides.is_empty() && !self.restate
    }
}

/// Says what is in force from now on, wherever that is due.
pub(super) fn decide(state: &mut Quota, draft: &mut Draft) {
    while let Some((due, account, resource)) = state.due.first().copied() {
        if due > draft.now || draft.full() {
            return;
        }
        let limits = state
            .schedules
            .get(&(account, resource))
            .and_then(|schedule| schedule.at(draft.now).in_force());
        let event = LimitsInForce {
            account: state.books.usage_tree.node(account).account.clone(),
            resource: state.books.names.resource(resource),
            limits,
        };
        draft.emit(state, event);
    }
}

impl Quota {
    pub(super) fn set_limits(
        &mut self,
        at: &At,
        account: &Account,
        resource: &QuotaResource,
        limits: Option<Limits>,
        validity: Validity,
    ) {
        let node = self.books.usage_tree.enter(account.clone());
        let id = self.books.names.acquire(resource);
        if !self.schedules.contains_key(&(node, id)) {
            self.books.usage_tree.node_mut(node).pins += 1;
            self.books.names.retain(id);
        }
        let schedule = self.schedules.entry((node, id)).or_default();
        schedule.set(limits, validity, at.no.0, at.now);
        if validity == Validity::default() && schedule.overrides.is_empty() {
            self.books.limit(node, id, limits, at.now);
        }
        self.index_schedule(node, id);
        self.books.names.release(id);
    }

    pub(super) fn in_force(
        &mut self,
        at: &At,
        account: &Account,
        resource: &QuotaResource,
        limits: Option<Limits>,
        event: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        let node = self.books.usage_tree.find(account);
        let id = self.books.names.find(resource);
        let found = node.zip(id);
        let Some((key, schedule)) = found.and_then(|k| Some((k, self.schedules.get_mut(&k)?)))
        else {
            return Err(IllegalEvent::new("no limits to come", event));
        };
        let next = schedule.at(at.now);
        if next.in_force() != limits {
            return Err(IllegalEvent::new("other limits to come", event));
        }
        *schedule = next;
        self.books.limit(key.0, key.1, limits, at.now);
        self.index_schedule(key.0, key.1);
        Ok(())
    }

    /// Keeps the index in line, and forgets what is over.
    fn index_schedule(&mut self, account: AccountId, resource: ResourceId) {
        let key = (account, resource);
        let Some(schedule) = self.schedules.get_mut(&key) else {
            return;
        };
        let due = schedule.due();
        if due != schedule.due {
            if let Some(at) = schedule.due {
                self.due.remove(&(at, account, resource));
            }
            if let Some(at) = due {
                self.due.insert((at, account, resource));
            }
            schedule.due = due;
        }
        if schedule.is_over() {
            self.schedules.remove(&key);
            self.books.names.release(resource);
            self.books.usage_tree.node_mut(account).pins -= 1;
            self.books.usage_tree.prune(account);
        }
    }
}
