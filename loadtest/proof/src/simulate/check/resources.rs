//! Named resources: everything that was asked is decided in its order, as the naive model of the lease kernel
//! decides it.

use super::{Invariant, Place, Violation};
use crate::history::Bounds;
use named_resources::model::{Model, Ruled};
use schemas::v1::{self, event::Kind, resource_asked, resource_decided};
use std::collections::{BTreeMap, VecDeque};
use vocab::{LeaseNo, ResourceAnswer, ResourceAsk, Rule, Token};

/// A lease as its tenant knows it.
#[derive(Debug, Clone, Copy)]
pub struct Granted<'a> {
    pub no: u64,
    pub tenant: &'a str,
    pub holder: &'a Token,
    pub fencing_token: u64,
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
    /// The limits of live leases, by position.
    limits: Vec<(u64, Option<u64>)>,
}

#[derive(Debug)]
pub struct Resources {
    bounds: Bounds,
    slot_ms: u64,
    asked: VecDeque<Asked>,
    tenants: BTreeMap<String, Tenant>,
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

/// What an event says that was decided.
fn said(e: &v1::ResourceDecided) -> Option<Ruled<ResourceAnswer>> {
    use resource_decided::Answer as Said;
    Some(Ok(match e.answer.as_ref()? {
        Said::Created(_) => ResourceAnswer::Created,
        Said::Granted(deadline) => ResourceAnswer::Granted {
            deadline: *deadline,
        },
        Said::Confirmed(_) => ResourceAnswer::Confirmed,
        Said::Released(end) => ResourceAnswer::Released {
            fencing_token: end.fencing_token,
            retire_after: end.retire_after,
        },
        Said::Revoked(fencing_token) => ResourceAnswer::Revoked {
            fencing_token: *fencing_token,
        },
        Said::Reclaimed(retire_after) => ResourceAnswer::Reclaimed {
            retire_after: *retire_after,
        },
        Said::Refused(refusal) => return Some(Err(Rule::from_number(refusal.rule)?)),
    }))
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
        }
    }

    /// All that ever were, by number.
    pub fn granted(&self) -> Vec<Granted<'_>> {
        let mut all = Vec::new();
        for (tenant, of) in &self.tenants {
            let leases = of.model.leases().iter();
            all.extend(leases.map(|(no, found)| Granted {
                no: no.0,
                tenant,
                holder: &found.holder,
                fencing_token: found.fencing_token,
            }));
        }
        all.sort_by_key(|granted| granted.no);
        all
    }

    fn tenant(&mut self, name: &str) -> &mut Tenant {
        let bounds = self.bounds;
        self.tenants
            .entry(name.to_owned())
            .or_insert_with(|| Tenant {
                model: Model::new(bounds.into()),
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
        let said = said(e).ok_or_else(|| wrong(format!("{e:?} cannot be read")))?;
        let newest = self
            .tenants
            .values()
            .filter_map(|of| of.model.leases().last());
        let last = newest.map(|(no, _)| no.0).max().unwrap_or(0);
        at.rule(at.no > last, Invariant::Terminal, || {
            format!("{} was a lease before", at.no)
        })?;
        let tenant = self.tenant(&asked.tenant);
        let limit = tenant.limit(at);
        // A request whose slot lies before the latest is of the latest.
        let slot = asked.slot.max(tenant.model.slot());
        let no = LeaseNo(at.no);
        let expected = tenant.model.ask(no, &asked.ask, slot, limit);
        let over_limit = expected == Err(Rule::QuotaExceeded) && said.is_ok();
        let invariant = match over_limit {
            true => Invariant::Quota,
            false => Invariant::Lease,
        };
        at.rule(said == expected, invariant, || {
            format!("{asked:?} at {slot} with limit {limit:?}: {said:?}, not {expected:?}")
        })
    }

    /// Late or on time, by the clock or by what requests have said.
    pub fn expired(&mut self, at: &Place, e: &v1::LeaseExpired) -> Result<(), Violation> {
        let slot_ms = self.slot_ms;
        let model = &mut self.tenant(&e.tenant).model;
        let before = model.slot();
        let latest = match slot_ms {
            0 => before,
            length => before.max(u64::try_from(at.now).unwrap_or(0) / length),
        };
        at.rule(
            (before..=latest).contains(&e.slot),
            Invariant::Expiry,
            || format!("{e:?}, but the slot is {before} to {latest}"),
        )?;
        let expired = model.expire_due(LeaseNo(e.lease), e.slot);
        at.rule(
            expired == Some((e.fencing_token, e.retire_after)),
            Invariant::Expiry,
            || format!("{e:?}, not {expired:?}: {model:?}"),
        )
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
