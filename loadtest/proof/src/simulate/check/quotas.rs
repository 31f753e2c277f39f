//! Quota: nobody holds more than its limits, bursts and loans allow; what was granted comes back once.
//!
//! Quota's own order counts: whatever the others have written is taken in when a frame of quota says that it had read up
//! to there. Sums are made anew each time, from all that hold something.

mod budgets;
mod claims;
mod gangs;
mod limits;
mod models;
mod reclaims;
mod refusals;
mod rules;

use super::{
    Checker, Demand, Invariant, Place, Violation, allocations::Allocations, foreign, settings,
};
use budgets::Budgets;
use claims::{Claim, CountsOn, Hold, Leaves, Stage};
use gangs::Gangs;
use limits::InForce;
use models::Models;
use schemas::v1::{self, event::Kind};
use std::collections::{BTreeMap, VecDeque};

/// What others write and quota goes by.
#[derive(Debug, Clone)]
enum Input {
    Requested(u64, Box<Claim>),
    Changed(Box<Kind>),
    Started(u64, i64),
    /// Its run is over; or, without a moment, it waits for quota.
    Stopped(u64, Option<i64>),
    Ended(u64, i64),
    Reprioritised(u64, i32),
    /// Model of its GPUs, and whether there are any.
    Node(String, String, bool),
    /// On this node.
    Placed(u64, String),
    /// Whether the scheduler has it wait for members of its gang.
    Lacks(u64, bool),
}

#[derive(Debug, Clone)]
struct Arrived {
    lsn: u64,
    now: i64,
    input: Input,
}

#[derive(Debug, Default)]
pub struct Quotas {
    arrived: VecDeque<Arrived>,
    claims: BTreeMap<u64, Claim>,
    tenants: BTreeMap<String, v1::TenantSettings>,
    in_force: InForce,
    budgets: Budgets,
    gangs: Gangs,
    /// The others of a gang whose first member is denied: they are too, in the same frame, by the same refusal.
    denied_too: BTreeMap<u64, v1::Refusal>,
    models: Models,
}

impl Quotas {
    fn arrives(&mut self, at: &Place, input: Input) {
        self.arrived.push_back(Arrived {
            lsn: at.lsn,
            now: at.now,
            input,
        });
    }

    pub fn requested(&mut self, at: &Place, tenant: &str, demand: &Demand) {
        let claim = Box::new(Claim::of(tenant, demand));
        self.arrives(at, Input::Requested(at.no, claim));
    }

    pub fn placed(&mut self, at: &Place, no: u64, node: &str) {
        self.arrives(at, Input::Placed(no, node.to_owned()));
    }

    pub fn node(&mut self, at: &Place, node: &str, capacity: &v1::NodeCapacity) {
        self.arrives(
            at,
            Input::Node(
                node.to_owned(),
                capacity.gpu_model.clone(),
                capacity.gpus > 0,
            ),
        );
    }

    pub fn lacks(&mut self, at: &Place, no: u64, fellows: bool) {
        self.arrives(at, Input::Lacks(no, fellows));
    }

    /// An operator's change.
    pub fn administered(&mut self, at: &Place, kind: &Kind) {
        let matters = matches!(
            kind,
            Kind::TenantSet(_) | Kind::QuotaSet(_) | Kind::BudgetSet(_)
        );
        if matters {
            self.arrives(at, Input::Changed(Box::new(kind.clone())));
        }
    }

    pub fn started(&mut self, at: &Place, no: u64, from_ms: i64) {
        self.arrives(at, Input::Started(no, from_ms));
    }

    pub fn stopped(&mut self, at: &Place, no: u64, until_ms: Option<i64>) {
        self.arrives(at, Input::Stopped(no, until_ms));
    }

    pub fn ended(&mut self, at: &Place, no: u64, until_ms: i64) {
        self.arrives(at, Input::Ended(no, until_ms));
    }

    pub fn reprioritised(&mut self, at: &Place, no: u64, priority: i32) {
        self.arrives(at, Input::Reprioritised(no, priority));
    }

    /// Takes in what quota had read when it decided.
    fn read_through(&mut self, frame: &Place) {
        while let Some(next) = self.arrived.pop_front_if(|next| frame.saw(next.lsn)) {
            self.take_in(&next);
        }
    }

    fn take_in(&mut self, next: &Arrived) {
        match &next.input {
            Input::Requested(no, claim) => {
                let mut claim = (**claim).clone();
                if let Some((name, size)) = &claim.wants_gang {
                    let tenant = claim.tenant().to_owned();
                    claim.gang = Some(self.join(*no, &tenant, name, *size));
                }
                claim.depends_on.retain(|other| {
                    let other = self.claims.get(other);
                    other.is_some_and(|other| other.stage != Stage::Over)
                });
                self.claims.insert(*no, claim);
            }
            Input::Placed(no, node) => {
                self.is_placed(*no);
                let model = self.models.of(node).map(str::to_owned);
                self.counts_on(*no, CountsOn::Models(model.into_iter().collect()), next.now);
            }
            Input::Node(node, model, gpus) => self.models.register(node, model, *gpus),
            Input::Lacks(no, fellows) => self.may_lack(*no, *fellows),
            Input::Changed(kind) => self.change(next, kind),
            Input::Started(no, from) => self.budgets.begins(*no, *from),
            // It may be placed again before the scheduler knows that its quota is taken back.
            Input::Stopped(no, Some(until)) => {
                self.budgets.ends(*no, *until, next.lsn);
                self.may_choose_again(*no, next.now);
            }
            Input::Stopped(no, None) => self.leaves(*no, Leaves::Stopped),
            Input::Ended(no, until) => {
                self.budgets.ends(*no, *until, next.lsn);
                self.leaves(*no, Leaves::Ended);
            }
            Input::Reprioritised(no, priority) => {
                if let Some(claim) = self.claims.get_mut(no) {
                    claim.priority = *priority;
                }
            }
        }
    }

    fn leaves(&mut self, no: u64, why: Leaves) {
        let Some(claim) = self.claims.get_mut(&no) else {
            return;
        };
        match (&mut claim.stage, why) {
            (Stage::Holds(hold), Leaves::Ended) => hold.leaves = Some(why),
            // What only stops keeps its quota, unless that is taken back.
            (Stage::Holds(hold), Leaves::Stopped) => {
                let asks_again = hold.reclaimed || claim.by_model;
                if asks_again && hold.leaves.is_none() {
                    hold.leaves = Some(why);
                }
            }
            (Stage::Asked | Stage::Waits, Leaves::Ended) => claim.stage = Stage::Over,
            (Stage::Asked | Stage::Waits | Stage::Over, _) => {}
        }
    }

    fn change(&mut self, next: &Arrived, kind: &Kind) {
        match kind {
            Kind::TenantSet(e) => {
                let change = e.change.clone().unwrap_or_default();
                let settings = change.settings.unwrap_or_else(settings::usual);
                self.tenants.insert(change.tenant.clone(), settings);
                self.settle_tenant(&change.tenant, next.now);
            }
            Kind::QuotaSet(e) => {
                let change = e.change.clone().unwrap_or_default();
                let account = settings::account(&change.tenant, &change.team, &change.namespace);
                let key = (account, change.resource);
                let (from, until) = (change.from_ms, change.until_ms);
                self.in_force.set(&key, change.limits, from, until);
                self.settle(&key, false, next.now);
            }
            Kind::BudgetSet(e) => self.budgets.set(e, next.lsn),
            _ => {}
        }
    }

    fn claim(&self, at: &Place, no: u64) -> Result<&Claim, Violation> {
        let claim = self.claims.get(&no);
        claim.ok_or_else(|| at.wrong(Invariant::Terminal, format!("quota does not know {no}")))
    }

    /// Something it depends on has not ended.
    fn awaits_others(&self, claim: &Claim) -> bool {
        let live = |other: &u64| {
            let other = self.claims.get(other);
            other.is_some_and(|other| other.stage != Stage::Over)
        };
        claim.depends_on.iter().any(live)
    }

    fn set_stage(&mut self, no: u64, stage: Stage) {
        if let Some(claim) = self.claims.get_mut(&no) {
            claim.stage = stage;
        }
    }

    /// Whether all that was taken back has come back, as far as quota has read.
    pub fn settled(&self) -> bool {
        let settled = |claim: &Claim| claim.holds().is_none_or(|hold| *hold == Hold::default());
        self.claims.values().all(settled)
    }

    /// What quota has read by now, though it had nothing to say to it.
    pub fn finish(&mut self, end: &Place, allocations: &Allocations) -> Result<(), Violation> {
        self.read_through(end);
        for (no, claim) in &self.claims {
            let a = allocations.get(*no);
            let ended = a.is_some_and(|a| a.over_for(end));
            let settled = match &claim.stage {
                Stage::Asked => false,
                Stage::Waits => !ended,
                // What was taken back has come back by now.
                Stage::Holds(hold) => !ended && !hold.reclaimed,
                Stage::Over => ended,
            };
            end.rule(settled, Invariant::Quota, || {
                format!("at the end, quota has {no} as {claim:?}: {a:?}")
            })?;
        }
        Ok(())
    }
}

impl Checker {
    pub(super) fn quota(
        &mut self,
        frame: &Place,
        kinds: &[(Place, &Kind)],
    ) -> Result<(), Violation> {
        self.quotas.read_through(frame);
        let granted = self.quotas.gangs.clone();
        for (at, kind) in kinds {
            match kind {
                Kind::QuotaReserved(e) => self.reserved(at, e)?,
                Kind::QuotaWaiting(e) => {
                    let refusal = e.refusal.clone().unwrap_or_default();
                    self.quotas.waits(at, e.allocation, &refusal)?;
                }
                Kind::QuotaDenied(e) => {
                    let refusal = e.refusal.clone().unwrap_or_default();
                    self.quotas.denied(at, e.allocation, &refusal)?;
                    self.allocations.denied(at, e.allocation);
                }
                Kind::QuotaReclaimed(e) => {
                    self.quotas.reclaimed(at, e)?;
                    self.allocations.reclaimed(at, e.allocation);
                }
                Kind::QuotaReleased(e) => self.quotas.released(at, e.allocation)?,
                Kind::LimitsInForce(e) => self.quotas.holds_from_here(at, e)?,
                other => return Err(foreign(at, other)),
            }
        }
        self.quotas
            .gangs_are_granted_whole(frame, kinds, &granted)?;
        self.quotas.gangs_are_denied_whole(frame)?;
        self.quotas.left_nothing(frame)
    }

    fn reserved(&mut self, at: &Place, e: &v1::QuotaReserved) -> Result<(), Violation> {
        self.quotas.reserved(at, e)?;
        self.allocations
            .granted(at, e.allocation, e.models.as_ref());
        Ok(())
    }

    /// Whatever is on a node has quota, wherever the others have got to.
    pub(super) fn quota_covers(&self, frame: &Place) -> Result<(), Violation> {
        for no in self.allocations.held() {
            let claim = self.quotas.claims.get(&no);
            let holds = claim.is_some_and(|claim| matches!(claim.stage, Stage::Holds(_)));
            frame.rule(holds, Invariant::Quota, || {
                format!("{no} is on a node without quota: {claim:?}")
            })?;
        }
        Ok(())
    }
}

impl Quotas {
    fn reserved(&mut self, at: &Place, e: &v1::QuotaReserved) -> Result<(), Violation> {
        let no = e.allocation;
        let claim = self.claim(at, no)?.clone();
        let open = matches!(claim.stage, Stage::Asked | Stage::Waits);
        at.rule(open, Invariant::Terminal, || {
            format!("{e:?}, but {claim:?}")
        })?;
        let claim = self.granted_on(at, &claim, e)?;
        at.rule(!self.awaits_others(&claim), Invariant::Quota, || {
            format!("{e:?}, but what it depends on has not ended: {claim:?}")
        })?;
        let flags = self
            .may_hold(&claim, at.now)
            .map_err(|over| at.wrong(Invariant::Quota, format!("{e:?}: {over}")))?;
        // Those of a gang are its members' together.
        at.rule(
            claim.gang.is_some() || flags == e.flags,
            Invariant::Quota,
            || format!("{e:?}, but its flags are {flags}: {claim:?}"),
        )?;
        self.claims.insert(no, claim.clone());
        self.set_stage(no, Stage::Holds(Hold::default()));
        if let Some(gang) = claim.gang.and_then(|gang| self.gangs.get_mut(&gang)) {
            gang.granted = true;
        }
        self.settle_claim(&claim, true, at.now);
        Ok(())
    }

    fn released(&mut self, at: &Place, no: u64) -> Result<(), Violation> {
        let claim = self.claim(at, no)?.clone();
        let leaves = match &claim.stage {
            Stage::Holds(hold) => hold.leaves,
            Stage::Asked | Stage::Waits | Stage::Over => None,
        };
        let Some(leaves) = leaves else {
            let text = format!("quota of {no} released out of turn: {claim:?}");
            return Err(at.wrong(Invariant::Quota, text));
        };
        self.set_stage(
            no,
            match leaves {
                Leaves::Ended => Stage::Over,
                Leaves::Stopped => Stage::Asked,
            },
        );
        if let Some(claim) = self.claims.get_mut(&no) {
            claim.again = true;
            claim.holds_nothing();
        }
        self.settle_claim(&claim, false, at.now);
        Ok(())
    }

    /// A watermark is a promise: what lies below it has been decided.
    fn left_nothing(&self, frame: &Place) -> Result<(), Violation> {
        let open = |claim: &Claim| match &claim.stage {
            Stage::Asked => true,
            Stage::Waits => claim.told_of_others && !self.awaits_others(claim),
            Stage::Holds(hold) => hold.leaves.is_some(),
            Stage::Over => false,
        };
        let left = self.claims.iter().find(|(_, claim)| open(claim));
        frame.rule(left.is_none(), Invariant::Replay, || {
            let through = frame.through;
            format!("{left:?} has an input below watermark {through}")
        })
    }
}
