//! Ingress: every message is decided exactly once, in order, and a repeated operation is recognised.

use super::{Checker, Demand, Invariant, Place, Violation, decode, foreign, is_token};
use schemas::v1::{self, event::Kind, request::Verb};
use std::collections::BTreeMap;

/// A message at ingress, as the world published it.
#[derive(Debug, Clone)]
pub struct Ask {
    pub tenant: String,
    pub payload: Vec<u8>,
    pub reply_to: Option<String>,
    pub expect: Expect,
}

/// What the world knows of a message that it made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// Nothing is wrong with the message itself.
    Sound,
    /// The rule, by its number, that reading it breaks.
    Breaks(i32),
}

#[derive(Debug, Default)]
pub struct Doors {
    asks: Vec<Ask>,
    /// Messages decided.
    decided: usize,
    /// The event number that decided each message: its own, or that of the operation that it repeats.
    answers: Vec<u64>,
    operations: BTreeMap<(String, String), Kept>,
    tenants: BTreeMap<String, u64>,
    quotas: BTreeMap<(String, String), u64>,
    /// Operations up to this number are forgotten.
    forgotten: u64,
}

#[derive(Debug)]
struct Kept {
    payload: Vec<u8>,
    original: u64,
    at_ms: i64,
}

const OPERATOR: &str = "_operator";
const OPERATION_CONFLICT: i32 = 6;
const OPERATION_TABLE_FULL: i32 = 7;
const TENANT_UNKNOWN: i32 = 8;
const ALLOCATION_NOT_FOUND: i32 = 15;
const ALLOCATION_ENDED: i32 = 16;
const VERSION_CONFLICT: i32 = 19;
const ALLOCATION_TABLE_FULL: i32 = 24;
const PRIORITY_CLASS_UNKNOWN: i32 = 28;

/// What a change of an operator turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admin {
    /// Another message, or another event.
    Other,
    /// Whether the event is what the message asked for.
    Set(bool),
}

impl Doors {
    pub fn asked(&mut self, ask: Ask) {
        self.asks.push(ask);
    }

    /// The messages, each with the number of the operation whose outcome it is to get.
    pub fn answered(&self) -> impl Iterator<Item = (&Ask, u64)> {
        self.asks.iter().zip(self.answers.iter().copied())
    }

    pub fn finish(&self, end: &Place) -> Result<(), Violation> {
        end.rule(self.decided == self.asks.len(), Invariant::Outcome, || {
            let (decided, asked) = (self.decided, self.asks.len());
            format!("{decided} of {asked} messages at ingress were decided")
        })
    }

    fn forget(&mut self, at: &Place, through: u64, window_ms: i64) -> Result<(), Violation> {
        let gone = |kept: &Kept| kept.original <= through;
        let early = self
            .operations
            .iter()
            .find(|(_, kept)| gone(kept) && at.now <= kept.at_ms + window_ms);
        at.rule(early.is_none(), Invariant::Operation, || {
            format!("forgotten within the window: {early:?} at {}", at.now)
        })?;
        self.operations.retain(|_, kept| !gone(kept));
        self.forgotten = self.forgotten.max(through);
        Ok(())
    }
}

/// The operation id of a message, if it can be read that far.
fn operation_id(payload: &[u8]) -> (Option<String>, Option<v1::Request>) {
    let request: Option<v1::Request> = decode(payload);
    let id = request.as_ref().map(|r| r.operation_id.clone());
    (id.filter(|id| is_token(id)), request)
}

fn operation_of(kind: &Kind) -> Option<&v1::Operation> {
    match kind {
        Kind::TenantSet(e) => e.operation.as_ref(),
        Kind::QuotaSet(e) => e.operation.as_ref(),
        Kind::RateSet(e) => e.operation.as_ref(),
        Kind::QueueSet(e) => e.operation.as_ref(),
        Kind::PriorityClassSet(e) => e.operation.as_ref(),
        Kind::SchedulingSet(e) => e.operation.as_ref(),
        Kind::CordonSet(e) => e.operation.as_ref(),
        Kind::ReservationSet(e) => e.operation.as_ref(),
        Kind::AllocationRequested(e) => e.operation.as_ref(),
        Kind::CancelRequested(e) => e.operation.as_ref(),
        Kind::OperationRefused(e) => e.operation.as_ref(),
        _ => None,
    }
}

fn refused_by(kind: &Kind) -> Option<i32> {
    match kind {
        Kind::OperationRefused(e) => e.refusal.as_ref().map(|refusal| refusal.rule),
        _ => None,
    }
}

impl Checker {
    pub(super) fn admission(
        &mut self,
        frame: &Place,
        through_door: u64,
        kinds: &[(Place, &Kind)],
    ) -> Result<(), Violation> {
        for (at, kind) in kinds {
            if let Kind::OperationsForgotten(e) = kind {
                let window = self.limits.window_ms;
                self.doors.forget(at, e.through, window)?;
                continue;
            }
            let Some(ask) = self.doors.asks.get(self.doors.decided).cloned() else {
                return Err(at.wrong(Invariant::Outcome, "decided what nobody asked"));
            };
            self.doors.decided += 1;
            self.decision(at, kind, &ask)?;
        }
        let decided = self.doors.decided as u64;
        frame.rule(decided == through_door, Invariant::Outcome, || {
            format!("door position {through_door}, but {decided} messages are decided")
        })
    }

    /// One message, one event.
    fn decision(&mut self, at: &Place, kind: &Kind, ask: &Ask) -> Result<(), Violation> {
        let (id, request) = operation_id(&ask.payload);
        let key = id.clone().map(|id| (ask.tenant.clone(), id));
        if let Some(operation) = operation_of(kind) {
            let same = operation.tenant == ask.tenant
                && operation.operation_id == id.clone().unwrap_or_default()
                && operation.reply_to == ask.reply_to.clone().unwrap_or_default();
            at.rule(same, Invariant::Outcome, || {
                format!("{operation:?} is not of {ask:?}")
            })?;
        }
        let kept = key.as_ref().and_then(|key| self.doors.operations.get(key));
        if let Some(kept) = kept {
            let live = at.now <= kept.at_ms + self.limits.window_ms;
            let answer = match kind {
                Kind::OperationRepeated(e) => Some(e.original),
                _ if refused_by(kind) == Some(OPERATION_CONFLICT) => None,
                // Forgotten a little later than it may be, or just in time.
                _ if !live => return self.fresh(at, kind, ask, key, request),
                _ => {
                    let text = format!("a known operation was decided again: {kind:?}");
                    return Err(at.wrong(Invariant::Operation, text));
                }
            };
            let expected = (kept.payload == ask.payload).then_some(kept.original);
            at.rule(answer == expected, Invariant::Operation, || {
                format!("{kind:?}, but it repeats {expected:?}")
            })?;
            self.doors.answers.push(answer.unwrap_or(at.no));
            return Ok(());
        }
        self.fresh(at, kind, ask, key, request)
    }

    /// An operation that the table does not know.
    fn fresh(
        &mut self,
        at: &Place,
        kind: &Kind,
        ask: &Ask,
        key: Option<(String, String)>,
        request: Option<v1::Request>,
    ) -> Result<(), Violation> {
        self.doors.answers.push(at.no);
        let refused = refused_by(kind);
        let repeats = matches!(kind, Kind::OperationRepeated(_));
        at.rule(
            !repeats && refused != Some(OPERATION_CONFLICT),
            Invariant::Operation,
            || format!("a new operation taken for a known one: {kind:?}"),
        )?;
        self.judge(at, kind, ask, refused, request)?;
        let kept = !matches!(
            refused,
            Some(OPERATION_CONFLICT | OPERATION_TABLE_FULL | TENANT_UNKNOWN)
        );
        if let Some(key) = key
            && kept
        {
            let kept = Kept {
                payload: ask.payload.clone(),
                original: at.no,
                at_ms: at.now,
            };
            self.doors.operations.insert(key, kept);
        }
        Ok(())
    }

    fn judge(
        &mut self,
        at: &Place,
        kind: &Kind,
        ask: &Ask,
        refused: Option<i32>,
        request: Option<v1::Request>,
    ) -> Result<(), Violation> {
        let wrong = || at.wrong(Invariant::Outcome, format!("{kind:?} for {ask:?}"));
        let verb = request.and_then(|request| request.verb);
        let unknown = ask.tenant != OPERATOR && !self.doors.tenants.contains_key(&ask.tenant);
        let full = self.doors.operations.len() as u64 >= self.limits.operations_max;
        // What cannot be read is refused before anything else is looked at; what breaks a rule of its verb, after.
        if let Expect::Breaks(rule) = ask.expect {
            let others = [
                unknown.then_some(TENANT_UNKNOWN),
                full.then_some(OPERATION_TABLE_FULL),
            ];
            let fits = refused == Some(rule) || (refused.is_some() && others.contains(&refused));
            return if fits { Ok(()) } else { Err(wrong()) };
        }
        match refused {
            Some(TENANT_UNKNOWN) if unknown => return Ok(()),
            Some(OPERATION_TABLE_FULL) if full && !unknown => return Ok(()),
            _ if unknown || full => return Err(wrong()),
            _ => {}
        }
        if let Some(verb) = &verb {
            if let Some((expected, version)) = self.settings.versions(verb)
                && refused == Some(VERSION_CONFLICT)
            {
                let conflict = expected.is_some_and(|expected| expected != version);
                return if conflict { Ok(()) } else { Err(wrong()) };
            }
            match self.settings.set(at, verb, kind) {
                Admin::Set(true) => return Ok(()),
                Admin::Set(false) => return Err(wrong()),
                Admin::Other => {}
            }
        }
        match (verb, kind) {
            (Some(Verb::Submit(submit)), Kind::AllocationRequested(e)) => {
                let value = self.settings.class_value(&submit.priority_class);
                if value.is_none() && !submit.priority_class.is_empty() {
                    return Err(wrong());
                }
                let asked = Demand::asked(&ask.tenant, &submit, value);
                let granted = e.spec.as_ref().map(Demand::specified);
                if granted.as_ref() != Some(&asked) {
                    return Err(wrong());
                }
                self.allocations.requested(at, &ask.tenant, asked);
                Ok(())
            }
            (Some(Verb::Submit(submit)), _) if refused == Some(PRIORITY_CLASS_UNKNOWN) => {
                let known = self.settings.class_value(&submit.priority_class);
                at.rule(known.is_none(), Invariant::Outcome, || {
                    format!("{kind:?}, but the class is {known:?}")
                })
            }
            (Some(Verb::Submit(_)), _) if refused == Some(ALLOCATION_TABLE_FULL) => {
                let live = self.allocations.live_for_admission(at);
                at.rule(
                    live >= self.limits.allocations_max,
                    Invariant::Outcome,
                    || format!("refused as full with {live} live allocations"),
                )
            }
            (Some(Verb::Cancel(cancel)), _) => self.judge_cancel(at, kind, ask, refused, &cancel),
            (Some(Verb::SetTenant(asked)), Kind::TenantSet(e)) => {
                let version = self.doors.tenants.entry(e.tenant.clone()).or_default();
                let expected = asked.expected_version.is_none_or(|v| v == *version);
                *version += 1;
                if !expected || e.tenant != asked.tenant || e.version != *version {
                    return Err(wrong());
                }
                Ok(())
            }
            (Some(Verb::SetTenant(asked)), _) if refused == Some(VERSION_CONFLICT) => {
                let version = self.doors.tenants.get(&asked.tenant).copied().unwrap_or(0);
                if asked.expected_version.is_none_or(|v| v == version) {
                    return Err(wrong());
                }
                Ok(())
            }
            (Some(Verb::SetQuota(asked)), Kind::QuotaSet(e)) => {
                let key = (e.tenant.clone(), e.resource.clone());
                let version = self.doors.quotas.entry(key).or_default();
                let expected = asked.expected_version.is_none_or(|v| v == *version);
                *version += 1;
                let same = (&e.tenant, &e.resource, e.limit as i64)
                    == (&asked.tenant, &asked.resource, asked.limit);
                if !expected || !same || e.version != *version {
                    return Err(wrong());
                }
                self.quotas.set(at.lsn, &e.tenant, &e.resource, e.limit);
                Ok(())
            }
            (Some(Verb::SetQuota(asked)), _) if refused == Some(VERSION_CONFLICT) => {
                let key = (asked.tenant.clone(), asked.resource.clone());
                let version = self.doors.quotas.get(&key).copied().unwrap_or(0);
                if asked.expected_version.is_none_or(|v| v == version) {
                    return Err(wrong());
                }
                Ok(())
            }
            // A quota for a tenant whose own record has not been decided yet.
            (Some(Verb::SetQuota(asked)), _)
                if refused == Some(TENANT_UNKNOWN)
                    && !self.doors.tenants.contains_key(&asked.tenant) =>
            {
                Ok(())
            }
            (_, Kind::OperationRefused(_)) => Err(wrong()),
            _ => Err(foreign(at, kind)),
        }
    }

    fn judge_cancel(
        &mut self,
        at: &Place,
        kind: &Kind,
        ask: &Ask,
        refused: Option<i32>,
        cancel: &v1::Cancel,
    ) -> Result<(), Violation> {
        let no = self.allocation_no(&cancel.allocation_id);
        let owned = no.and_then(|no| self.allocations.owner(no).map(|tenant| (no, tenant)));
        let own = owned.filter(|(_, tenant)| *tenant == ask.tenant);
        let ended = own.is_some_and(|(no, _)| self.allocations.admission_saw_end(no, at));
        let forgotten = no.is_some_and(|no| no <= self.doors.forgotten);
        let fits = match (own, kind) {
            (Some((no, _)), Kind::CancelRequested(e)) => e.allocation == no && !ended,
            (None, _) => refused == Some(ALLOCATION_NOT_FOUND),
            (Some(_), _) if ended => {
                refused == Some(ALLOCATION_ENDED)
                    || (refused == Some(ALLOCATION_NOT_FOUND) && forgotten)
            }
            _ => false,
        };
        at.rule(fits, Invariant::Outcome, || {
            format!("{kind:?} for {ask:?} of allocation {no:?}, ended {ended}")
        })?;
        if let Kind::CancelRequested(e) = kind {
            self.allocations.cancel_requested(at, e.allocation);
        }
        Ok(())
    }

    /// The number in an id of this cell, `(cell << 64) | number` as a UUID.
    fn allocation_no(&self, id: &str) -> Option<u64> {
        let hex: String = id.chars().filter(|c| *c != '-').collect();
        let value = u128::from_str_radix(&hex, 16).ok()?;
        ((value >> 64) as u64 == self.limits.cell).then_some(value as u64)
    }
}
