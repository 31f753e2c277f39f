//! Named resources: everything that was asked is decided in its order, as the history checker's naive model of the
//! lease kernel decides it.

use super::{Invariant, Place, Violation};
use crate::history::{Answer, Bounds, Decision, Model};
use schemas::v1::{self, event::Kind, resource_asked, resource_decided};
use std::collections::{BTreeMap, VecDeque};
use vocab::{LeaseNo, ResourceAsk, Rule, Token};

/// A lease as its tenant knows it.
#[derive(Debug, Clone)]
pub struct Granted {
    pub no: u64,
    pub tenant: String,
    pub holder: String,
    pub fencing_token: u64,
    /// It holds its resources.
    live: bool,
}

#[derive(Debug, Clone)]
struct Asked {
    lsn: u64,
    no: u64,
    tenant: String,
    slot: u64,
    ask: ResourceAsk,
}

#[derive(Debug)]
struct Tenant {
    model: Model,
    /// The latest that was asked or expired at.
    slot: u64,
    /// The limits of live leases, by position.
    limits: Vec<(u64, Option<u64>)>,
}

#[derive(Debug)]
pub struct Resources {
    bounds: Bounds,
    slot_ms: u64,
    asked: VecDeque<Asked>,
    tenants: BTreeMap<String, Tenant>,
    granted: BTreeMap<u64, Granted>,
}

fn token(text: &str) -> Option<Token> {
    Token::new(text).ok()
}

fn ask_of(e: &v1::ResourceAsked) -> Option<ResourceAsk> {
    use resource_asked::Ask;
    Some(match e.ask.as_ref()? {
        Ask::Create(name) => ResourceAsk::Create {
            resource: token(name)?,
        },
        Ask::Acquire(asked) => ResourceAsk::Acquire {
            resources: asked
                .resources
                .iter()
                .map(|name| token(name))
                .collect::<Option<_>>()?,
            holder: token(&asked.holder)?,
            ttl_slots: asked.ttl_slots,
        },
        Ask::Confirm(asked) => ResourceAsk::Confirm {
            lease: LeaseNo(asked.lease),
            holder: token(&asked.holder)?,
            fencing_token: asked.fencing_token,
        },
        Ask::Release(asked) => ResourceAsk::Release {
            lease: LeaseNo(asked.lease),
            holder: token(&asked.holder)?,
            fencing_token: asked.fencing_token,
        },
        Ask::Revoke(no) => ResourceAsk::Revoke {
            lease: LeaseNo(*no),
        },
        Ask::Reclaim(no) => ResourceAsk::Reclaim {
            lease: LeaseNo(*no),
        },
    })
}

/// What an event says that was decided; of a refusal only the rule counts.
fn decision_of(at: &Place, e: &v1::ResourceDecided) -> Option<Decision> {
    use resource_decided::Answer as Said;
    let (answer, retire_after) = match e.answer.as_ref()? {
        Said::Created(_) => (Answer::Created, None),
        Said::Granted(deadline) => {
            let granted = Answer::Granted {
                lease: at.no,
                fencing_token: 1,
                deadline: *deadline,
            };
            (granted, None)
        }
        Said::Confirmed(_) => (Answer::Confirmed, None),
        Said::Released(end) => (
            Answer::Released {
                fencing_token: end.fencing_token,
            },
            Some(end.retire_after),
        ),
        Said::Revoked(fencing_token) => (
            Answer::Revoked {
                fencing_token: *fencing_token,
            },
            None,
        ),
        Said::Reclaimed(retire_after) => (Answer::Reclaimed, Some(*retire_after)),
        Said::Refused(refusal) => (Answer::refused(Rule::from_number(refusal.rule)?), None),
    };
    Some(Decision {
        answer,
        retire_after,
    })
}

impl Tenant {
    fn limit(&self, at: &Place) -> Option<u64> {
        let mut seen = self.limits.iter().rev().filter(|(lsn, _)| at.saw(*lsn));
        seen.next().and_then(|(_, limit)| *limit)
    }
}

impl Resources {
    pub fn new(bounds: Bounds, slot_ms: u64) -> Self {
        Self {
            bounds,
            slot_ms,
            asked: VecDeque::new(),
            tenants: BTreeMap::new(),
            granted: BTreeMap::new(),
        }
    }

    pub fn granted(&self) -> impl Iterator<Item = &Granted> {
        self.granted.values()
    }

    fn tenant(&mut self, name: &str) -> &mut Tenant {
        let bounds = self.bounds;
        self.tenants
            .entry(name.to_owned())
            .or_insert_with(|| Tenant {
                model: Model::new(bounds),
                slot: 0,
                limits: Vec::new(),
            })
    }

    pub fn asked(&mut self, at: &Place, tenant: &str, e: &v1::ResourceAsked) {
        let Some(ask) = ask_of(e) else {
            return;
        };
        self.asked.push_back(Asked {
            lsn: at.lsn,
            no: at.no,
            tenant: tenant.to_owned(),
            slot: e.slot,
            ask,
        });
    }

    /// An operator's change, which may limit how many a tenant has.
    pub fn administered(&mut self, at: &Place, kind: &Kind) {
        if let Kind::QuotaSet(e) = kind
            && let Some(change) = &e.change
            && change.resource == "leases"
        {
            let limit = change.limits.map(|limits| limits.hard);
            self.tenant(&change.tenant).limits.push((at.lsn, limit));
        }
    }

    pub fn decided(&mut self, at: &Place, e: &v1::ResourceDecided) -> Result<(), Violation> {
        let wrong = |text: String| at.wrong(Invariant::Lease, text);
        let next = self.asked.pop_front();
        let asked = next.filter(|asked| asked.no == e.request && at.saw(asked.lsn));
        let asked = asked.ok_or_else(|| wrong(format!("{e:?} decides out of turn")))?;
        let said = decision_of(at, e).ok_or_else(|| wrong(format!("{e:?} cannot be read")))?;
        let last = self.granted.last_key_value().map_or(0, |(no, _)| *no);
        at.rule(at.no > last, Invariant::Terminal, || {
            format!("{} was a lease before", at.no)
        })?;
        let over_limit = said.answer == Answer::refused(Rule::QuotaExceeded);
        let live = self.live(&asked.tenant);
        let tenant = self.tenant(&asked.tenant);
        let limit = tenant.limit(at);
        // A request whose slot lies before the latest is of the latest.
        let slot = asked.slot.max(tenant.slot);
        tenant.slot = slot;
        let mut model = tenant.model.clone();
        let expected = model.ask(slot, &asked.ask, at.no);
        if over_limit {
            // The limit is looked at after the request, and before there is room for it.
            let else_granted = matches!(
                expected.answer,
                Answer::Granted { .. }
                    | Answer::Refused {
                        rule: Rule::LeaseTableFull | Rule::ExpirationIndexFull
                    }
            );
            let rightly = else_granted && limit.is_some_and(|limit| live >= limit);
            return at.rule(rightly, Invariant::Lease, || {
                format!("quota exceeded for {asked:?} with {live} live of {limit:?}")
            });
        }
        tenant.model = model;
        if expected != said {
            return Err(wrong(format!(
                "{asked:?} at {slot}: {said:?}, not {expected:?}"
            )));
        }
        self.changed(at, &asked, said.answer, (live, limit))
    }

    fn live(&self, tenant: &str) -> u64 {
        let live = |granted: &&Granted| granted.tenant == tenant && granted.live;
        self.granted.values().filter(live).count() as u64
    }

    fn changed(
        &mut self,
        at: &Place,
        asked: &Asked,
        answer: Answer,
        (live, limit): (u64, Option<u64>),
    ) -> Result<(), Violation> {
        let of = match (&asked.ask, answer) {
            (ResourceAsk::Acquire { holder, .. }, Answer::Granted { fencing_token, .. }) => {
                let granted = Granted {
                    no: at.no,
                    tenant: asked.tenant.clone(),
                    holder: holder.to_string(),
                    fencing_token,
                    live: true,
                };
                self.granted.insert(at.no, granted);
                let within = limit.is_none_or(|limit| live < limit);
                return at.rule(within, Invariant::Quota, || {
                    format!("{asked:?} is granted with {live} live of {limit:?}")
                });
            }
            (
                ResourceAsk::Release { lease, .. }
                | ResourceAsk::Revoke { lease }
                | ResourceAsk::Reclaim { lease },
                answer,
            ) => (lease.0, answer),
            _ => return Ok(()),
        };
        if let Some(granted) = self.granted.get_mut(&of.0) {
            match of.1 {
                Answer::Released { fencing_token } => {
                    (granted.fencing_token, granted.live) = (fencing_token, false)
                }
                Answer::Revoked { fencing_token } => granted.fencing_token = fencing_token,
                Answer::Reclaimed => granted.live = false,
                _ => {}
            }
        }
        Ok(())
    }

    /// Late or on time, by the clock or by what requests have said.
    pub fn expired(&mut self, at: &Place, e: &v1::LeaseExpired) -> Result<(), Violation> {
        let slot_ms = self.slot_ms;
        let tenant = self.tenant(&e.tenant);
        let latest = match slot_ms {
            0 => tenant.slot,
            length => tenant.slot.max(u64::try_from(at.now).unwrap_or(0) / length),
        };
        let before = tenant.slot;
        at.rule(
            (before..=latest).contains(&e.slot),
            Invariant::Expiry,
            || format!("{e:?}, but the slot is {before} to {latest}"),
        )?;
        tenant.slot = e.slot;
        let expired = tenant.model.expire(e.slot, e.lease);
        at.rule(
            expired == Some((e.fencing_token, e.retire_after)),
            Invariant::Expiry,
            || format!("{e:?}, not {expired:?}: {:?}", tenant.model),
        )?;
        if let Some(granted) = self.granted.get_mut(&e.lease) {
            (granted.fencing_token, granted.live) = (e.fencing_token, false);
        }
        Ok(())
    }

    /// A watermark is a promise: what lies below it has been decided.
    pub fn left_nothing(&self, frame: &Place) -> Result<(), Violation> {
        let left = self.asked.front().filter(|asked| frame.saw(asked.lsn));
        frame.rule(left.is_none(), Invariant::Replay, || {
            format!("{left:?} lies below watermark {}", frame.through)
        })
    }

    pub fn finish(&self, end: &Place) -> Result<(), Violation> {
        let left = self.asked.front();
        end.rule(left.is_none(), Invariant::Outcome, || {
            format!("{left:?} was never decided")
        })
    }
}
