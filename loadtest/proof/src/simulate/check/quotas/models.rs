//! GPUs of one of several models: which are left out, what counts where, and what no model is left for.

use super::{Claim, CountsOn, Quotas, limits::Limited, rules::Over};
use crate::simulate::check::{Invariant, Place, Violation};
use schemas::v1;
use std::collections::{BTreeMap, BTreeSet};

/// Models of the nodes that have GPUs; empty: GPUs without a model's name.
#[derive(Debug, Default)]
pub struct Models(BTreeMap<String, String>);

impl Models {
    pub fn register(&mut self, node: &str, model: &str, gpus: bool) {
        if gpus || !model.is_empty() {
            self.0.insert(node.to_owned(), model.to_owned());
        } else {
            self.0.remove(node);
        }
    }

    /// What the node is now. Where it has registered anew, on another machine, before a placement that did not know of it,
    /// nothing runs by that placement, and it counts so until the scheduler has heard of the loss.
    pub fn of(&self, node: &str) -> Option<&str> {
        let model = self.0.get(node).map(String::as_str);
        model.filter(|model| !model.is_empty())
    }
}

/// The models of a refusal that speaks of several; empty: any.
pub fn models_of(what: &str) -> Option<BTreeSet<String>> {
    let models = what.strip_prefix("gpu:")?;
    if models == "*" {
        return Some(BTreeSet::new());
    }
    let models: BTreeSet<String> = models.split('|').map(str::to_owned).collect();
    (models.len() > 1).then_some(models)
}

impl Quotas {
    /// Those of its choice that have limits at an account of it.
    fn limited(&self, claim: &Claim) -> BTreeSet<String> {
        let limited = claim
            .path
            .iter()
            .flat_map(|account| self.in_force.of(account));
        let models = limited.filter_map(|resource| resource.strip_prefix("gpu:"));
        let models = models.filter(|model| claim.chooses(model));
        models.map(str::to_owned).collect()
    }

    /// The claim as it counts by this grant, if that is right.
    pub(super) fn granted_on(
        &self,
        at: &Place,
        claim: &Claim,
        e: &v1::QuotaReserved,
    ) -> Result<Claim, Violation> {
        let wrong = |why: &str| at.wrong(Invariant::Quota, format!("{e:?}, {why}: {claim:?}"));
        let Some(choice) = &claim.choice else {
            let granted = e.models.is_none().then(|| claim.clone());
            return granted.ok_or_else(|| wrong("though it has no choice"));
        };
        let limited = self.limited(claim);
        let Some(grant) = &e.models else {
            let granted = claim.counting(claim.unbound());
            let unlimited = limited.is_empty().then_some(granted);
            return unlimited.ok_or_else(|| wrong("though some of its models are limited"));
        };
        let counts_on: BTreeSet<String> = grant.counts_on.iter().cloned().collect();
        let except: BTreeSet<String> = grant.except.iter().cloned().collect();
        let all: BTreeSet<String> = counts_on.union(&except).cloned().collect();
        let complete = match choice.is_empty() {
            true => limited.is_subset(&all),
            false => all == *choice,
        };
        if !complete || !counts_on.is_disjoint(&except) {
            return Err(wrong("which are not all of its models once"));
        }
        let mut granted = claim.counting(CountsOn::Models(counts_on));
        granted.by_model = true;
        let free = |model: &&String| self.has_room(claim, model, at.now);
        if claim.gang.is_none()
            && !self.somebody_waits_near(claim)
            && let Some(free) = except.iter().find(free)
        {
            return Err(wrong(&format!("but there is quota of {free}")));
        }
        Ok(granted)
    }

    fn of_model(&self, claim: &Claim, model: &str) -> Claim {
        claim.counting(CountsOn::Models(BTreeSet::from([model.to_owned()])))
    }

    fn has_room(&self, claim: &Claim, model: &str, now: i64) -> bool {
        self.over_of(claim, model, now).is_none()
    }

    fn over_of(&self, claim: &Claim, model: &str, now: i64) -> Option<Over> {
        let claim = self.of_model(claim, model);
        let resource = format!("gpu:{model}");
        let mut accounts = claim.path.iter();
        accounts.find_map(|account| self.may_hold_of(&claim, account, &resource, now).err())
    }

    fn somebody_waits_near(&self, claim: &Claim) -> bool {
        let cohort = self.cohort(claim.tenant());
        let near = |other: &Claim| {
            let same = cohort.is_some() && self.cohort(other.tenant()) == cohort;
            same || other.tenant() == claim.tenant()
        };
        let mut claims = self.claims.values();
        claims.any(|other| other.stage == super::Stage::Waits && near(other))
    }

    /// Of what it names, one is as full as it says; and none of those that nodes have is left. What a cohort leaves of a limit
    /// is not counted a second time here.
    pub(super) fn no_model_now(
        &self,
        claim: &Claim,
        choice: &BTreeSet<String>,
        refusal: &v1::Refusal,
        now: i64,
    ) -> bool {
        let over = |model: &String| self.over_of(claim, model, now);
        let limited = self.limited(claim);
        let said = limited.iter().filter_map(over);
        let mut said = said.map(|over| over.actual);
        claim.choice.as_ref() == Some(choice)
            && said.any(|actual| actual == refusal.actual)
            && refusal.limit < refusal.actual
            && self.none_is_left(claim, &|model| over(&model.to_owned()).is_some())
    }

    fn none_is_left(&self, claim: &Claim, over: &dyn Fn(&str) -> bool) -> bool {
        let may = |model: &&String| match model.is_empty() {
            true => claim.choice.as_ref().is_some_and(BTreeSet::is_empty),
            false => claim.chooses(model),
        };
        let mut there = self.models.0.values().filter(may);
        there.all(|model| !model.is_empty() && over(model))
    }

    /// Of all of its models the unit wants more than some account could hold: ever, or at a moment.
    pub(super) fn no_model_ever(
        &self,
        unit: &[u64],
        choice: &BTreeSet<String>,
        refusal: &v1::Refusal,
        now: Option<i64>,
    ) -> bool {
        let claims: Vec<&Claim> = unit.iter().filter_map(|no| self.claims.get(no)).collect();
        let most = |account: &str, resource: &str| {
            let most = |limited: &Limited, now| limited.most_now(now);
            let limited = self.in_force.get(account, resource);
            match now.zip(limited).filter(|_| self.cohort(account).is_none()) {
                Some((now, limited)) => most(limited, now),
                None => self.most_ever(account, resource),
            }
        };
        let over = |model: &str| {
            let resource = format!("gpu:{model}");
            let mut accounts = claims.iter().flat_map(|claim| &claim.path);
            accounts.find_map(|account| {
                let below = claims.iter().filter(|claim| claim.is_below(account));
                let wants = below.map(|claim| claim.wants(&resource)).sum::<u64>();
                let most = most(account, &resource);
                (wants > most).then_some((most, wants))
            })
        };
        let chooser = claims
            .iter()
            .find(|claim| claim.choice.as_ref() == Some(choice));
        chooser.is_some_and(|claim| {
            let limited = self.limited(claim);
            let said = (refusal.limit, refusal.actual);
            limited.iter().any(|model| over(model) == Some(said))
                && (self.none_is_left(claim, &|model| over(model).is_some()) || claims.len() > 1)
        })
    }

    /// It counts on others of its choice from now on.
    pub(super) fn counts_on(&mut self, no: u64, counts_on: CountsOn, now: i64) {
        let Some(claim) = self.claims.get_mut(&no) else {
            return;
        };
        if claim.choice.is_none() || claim.holds().is_none() {
            return;
        }
        let before = claim.clone();
        let after = claim.counting(counts_on);
        *claim = after.clone();
        self.settle_claim(&before, false, now);
        self.settle_claim(&after, false, now);
    }

    /// A run is over: what does not count by model may run on any of its choice again.
    pub(super) fn may_choose_again(&mut self, no: u64, now: i64) {
        if let Some(claim) = self.claims.get(&no).filter(|claim| !claim.by_model) {
            let unbound = claim.unbound();
            self.counts_on(no, unbound, now);
        }
    }
}
