//! Named resources: everything that was asked is decided in its order, as the history checker's naive model of the
//! reservation kernel decides it.

use super::{Invariant, Place, Violation};
use crate::history::{Answer, Bounds, Decision, Model};
use schemas::v1::{self, event::Kind, resource_asked, resource_decided};
use std::collections::{BTreeMap, VecDeque};
use vocab::{ReservationNo, ResourceAsk, Rule, Token};

/// A reservation as its tenant knows it.
#[derive(Debug, Clone)]
pub struct Granted {
    pub no: u64,
    pub tenant: String,
    pub holder: String,
    pub epoch: u64,
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
    /// The limits of live reservations, by position.
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
        Ask::Reserve(asked) => ResourceAsk::Reserve {
            resources: asked
                .resources
                .iter()
                .map(|name| token(name))
                .collect::<Option<_>>()?,
            holder: token(&asked.holder)?,
            ttl_slots: asked.ttl_slots,
        },
        Ask::Confirm(asked) => ResourceAsk::Confirm {
            reservation: ReservationNo(asked.reservation),
            holder: token(&asked.holder)?,
            epoch: asked.epoch,
        },
        Ask::Release(asked) => ResourceAsk::Release {
            reservation: ReservationNo(asked.reservation),
            holder: token(&asked.holder)?,
            epoch: asked.epoch,
        },
        Ask::Revoke(no) => ResourceAsk::Revoke {
            reservation: ReservationNo(*no),
        },
        Ask::Reclaim(no) => ResourceAsk::Reclaim {
            reservation: ReservationNo(*no),
        },
    })
}

/// What an event says that was decided; of a refusal only the rule counts.
fn decision_of(at: &Place, e: &v1::ResourceDecided) -> Option<Decision> {
    use resource_decided::Answer as Said;
    let (answer, retire_after) = match e.answer.as_ref()? {
        Said::Created(_) => (Answer::Created, None),
        Said::Reserved(deadline) => {
            let granted = Answer::Reserved {
                reservation: at.no,
                epoch: 1,
                deadline: *deadline,
            };
            (granted, None)
        }
        Said::Confirmed(_) => (Answer::Confirmed, None),
        Said::Released(end) => (
            Answer::Released { epoch: end.epoch },
            Some(end.retire_after),
        ),
        Said::Revoked(epoch) => (Answer::Revoked { epoch: *epoch }, None),
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
            && change.resource == "reservations"
        {
            let limit = change.limits.map(|limits| limits.hard);
            self.tenant(&change.tenant).limits.push((at.lsn, limit));
        }
    }

    pub fn decided(&mut self, at: &Place, e: &v1::ResourceDecided) -> Result<(), Violation> {
        let wrong = |text: String| at.wrong(Invariant::Reservation, text);
        let next = self.asked.pop_front();
        let asked = next.filter(|asked| asked.no == e.request && at.saw(asked.lsn));
        let asked = asked.ok_or_else(|| wrong(format!("{e:?} decides out of turn")))?;
        let said = decision_of(at, e).ok_or_else(|| wrong(format!("{e:?} cannot be read")))?;
        let last = self.granted.last_key_value().map_or(0, |(no, _)| *no);
        at.rule(at.no > last, Invariant::Terminal, || {
            format!("{} was a reservation before", at.no)
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
                Answer::Reserved { .. }
                    | Answer::Refused {
                        rule: Rule::ReservationTableFull | Rule::ExpirationIndexFull
                    }
            );
            let rightly = else_granted && limit.is_some_and(|limit| live >= limit);
            return at.rule(rightly, Invariant::Reservation, || {
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
            (ResourceAsk::Reserve { holder, .. }, Answer::Reserved { epoch, .. }) => {
                let granted = Granted {
                    no: at.no,
                    tenant: asked.tenant.clone(),
                    holder: holder.to_string(),
                    epoch,
                    live: true,
                };
                self.granted.insert(at.no, granted);
                let within = limit.is_none_or(|limit| live < limit);
                return at.rule(within, Invariant::Quota, || {
                    format!("{asked:?} is granted with {live} live of {limit:?}")
                });
            }
            (
                ResourceAsk::Release { reservation, .. }
                | ResourceAsk::Revoke { reservation }
                | ResourceAsk::Reclaim { reservation },
                answer,
            ) => (reservation.0, answer),
            _ => return Ok(()),
        };
        if let Some(granted) = self.granted.get_mut(&of.0) {
            match of.1 {
                Answer::Released { epoch } => (granted.epoch, granted.live) = (epoch, false),
                Answer::Revoked { epoch } => granted.epoch = epoch,
                Answer::Reclaimed => granted.live = false,
                _ => {}
            }
        }
        Ok(())
    }

    /// Late or on time, by the clock or by what requests have said.
    pub fn expired(&mut self, at: &Place, e: &v1::ReservationExpired) -> Result<(), Violation> {
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
        let expired = tenant.model.expire(e.slot, e.reservation);
        at.rule(
            expired == Some((e.epoch, e.retire_after)),
            Invariant::Expiry,
            || format!("{e:?}, not {expired:?}: {:?}", tenant.model),
        )?;
        if let Some(granted) = self.granted.get_mut(&e.reservation) {
            (granted.epoch, granted.live) = (e.epoch, false);
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
