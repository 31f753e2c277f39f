//! GPUs of one of several models: a request that names several, or none, may run on each that has quota left.
//!
//! As long as it is on no node it counts on each limited model that it may run on. What has no quota left is excepted from the
//! grant; the scheduler places it on the others. On a node it counts on that node's model. When its run is over and it is to
//! run again, it asks anew, since others may have what it counted on no more. It waits, at its tenant, as long as no model
//! that the fleet has is left to it; each of them wakes it.

use super::{
    Quota,
    account::AccountId,
    claim::{Claim, Order, Point},
    demand::{Shortage, Why},
    resource::{Choice, Models, Names, ResourceId},
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use vocab::{
    AllocationNo, Millis, ModelGrant, NodeCapacity, QuotaFlags, QuotaResource, RateScope, Token,
};

/// Models of the nodes that have GPUs; none: GPUs without a model's name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Fleet {
    nodes: BTreeMap<Token, Option<Token>>,
    /// How many nodes have them.
    models: BTreeMap<Option<Token>, u32>,
    /// Pools and clusters of the nodes that have one.
    places: BTreeMap<Token, RateScope>,
}

impl Fleet {
    /// Registers a new or changed node; returns whether the models of the fleet have changed.
    pub fn register(&mut self, node: &Token, capacity: &NodeCapacity) -> bool {
        let place = RateScope {
            pool: capacity.label("pool").cloned(),
            cluster: capacity.label("cluster").cloned(),
            ..RateScope::default()
        };
        match place.is_all() {
            true => drop(self.places.remove(node)),
            false => drop(self.places.insert(node.clone(), place)),
        }
        let model = capacity.gpu_model.as_ref();
        let model = (capacity.gpus > 0 || model.is_some()).then_some(model);
        let before = match model {
            Some(model) => self.nodes.insert(node.clone(), model.cloned()),
            None => self.nodes.remove(node),
        };
        // The new model is counted before the old one is removed: a node that keeps its model changes nothing.
        let mut changed = false;
        if let Some(model) = model {
            let nodes = self.models.entry(model.cloned()).or_default();
            *nodes += 1;
            changed |= *nodes == 1;
        }
        if let Some(before) = before
            && let Some(nodes) = self.models.get_mut(&before)
        {
            *nodes -= 1;
            if *nodes == 0 {
                self.models.remove(&before);
                changed = true;
            }
        }
        changed
    }

    pub fn model(&self, node: &Token) -> Option<&Token> {
        self.nodes.get(node)?.as_ref()
    }

    /// What a price depends on at a node.
    pub fn place(&self, node: &Token) -> RateScope {
        self.places.get(node).cloned().unwrap_or_default()
    }
}

/// How a unit may be granted.
#[derive(Debug, Default)]
pub(super) struct Grant {
    /// What is remarkable about it.
    pub flags: QuotaFlags,
    /// The models that have no quota left for it, by their names.
    pub except: Vec<ResourceId>,
}

impl Quota {
    /// What a unit asks of an account for a resource type, with all that may come to be of a model.
    pub(super) fn wants(
        &self,
        members: &[AllocationNo],
        account: AccountId,
        resource: ResourceId,
    ) -> u64 {
        let claims = members.iter().filter_map(|no| self.claims.get(no));
        let here = claims.filter(|claim| claim.path.ids().contains(&account));
        here.fold(0, |sum, claim| {
            let choice = claim.choice.as_ref();
            let choice = choice.filter(|it| resource.is_model() && self.may_be(it, resource));
            let choice = choice.map_or(0, |choice| choice.amount);
            let parts = claim.parts.iter().filter(|(part, _)| *part == resource);
            let parts = parts.fold(choice, |sum, (_, amount)| sum.saturating_add(*amount));
            sum.saturating_add(parts)
        })
    }

    fn may_be(&self, choice: &Choice, model: ResourceId) -> bool {
        let models = self.books.names.models(choice.id);
        models.is_none_or(|models| models.contains(&model))
    }

    /// Those of its choice that are limited at one of its accounts, by their names.
    fn limited_models(&self, claim: &Claim) -> BTreeMap<Token, ResourceId> {
        let Some(choice) = &claim.choice else {
            return BTreeMap::new();
        };
        let nodes = claim
            .path
            .ids()
            .iter()
            .map(|id| self.books.usage_tree.node(*id));
        let limited = nodes.flat_map(|node| node.limited_models());
        let limited = limited.filter(|model| self.may_be(choice, *model));
        limited
            .filter_map(|id| Some((self.books.names.model(id)?.clone(), id)))
            .collect()
    }

    fn choosers<'a>(&'a self, members: &'a [AllocationNo]) -> impl Iterator<Item = &'a Claim> {
        let claims = members.iter().filter_map(|no| self.claims.get(no));
        claims.filter(|claim| claim.choice.is_some())
    }

    /// The accounts of a unit, the deepest first.
    fn accounts_of(&self, members: &[AllocationNo]) -> Vec<AccountId> {
        let claims = members.iter().filter_map(|no| self.claims.get(no));
        let mut accounts: Vec<_> = claims
            .flat_map(|it| it.path.ids().iter().copied())
            .collect();
        if members.len() > 1 {
            let depth = |id: &AccountId| self.books.usage_tree.path(*id).ids().len();
            accounts.sort_by_key(|id| (std::cmp::Reverse(depth(id)), *id));
            accounts.dedup();
        }
        accounts
    }

    /// Leaves out the models of which `fits` says that an account cannot have so much more, and what it says of the first.
    fn leave_out<E>(
        &self,
        members: &[AllocationNo],
        fits: impl Fn(AccountId, ResourceId, u64) -> Result<QuotaFlags, E>,
    ) -> (Grant, Option<E>) {
        let mut limited = BTreeMap::new();
        for claim in self.choosers(members) {
            limited.append(&mut self.limited_models(claim));
        }
        let (mut grant, mut first) = (Grant::default(), None);
        if limited.is_empty() {
            return (grant, first);
        }
        let accounts = self.accounts_of(members);
        for model in limited.into_values() {
            let wanted = accounts.iter().map(|account| {
                let amount = self.wants(members, *account, model);
                (*account, amount)
            });
            let mut wanted = wanted.filter(|(_, amount)| *amount > 0);
            let found = wanted.try_fold(QuotaFlags::default(), |flags, (account, amount)| {
                Ok(fits(account, model, amount)?.with(flags))
            });
            match found {
                Ok(flags) => grant.flags = grant.flags.with(flags),
                Err(why) => {
                    first.get_or_insert(why);
                    grant.except.push(model);
                }
            }
        }
        (grant, first)
    }

    /// What one of the unit chooses from, if nothing of that is left to it.
    fn nothing_left(
        &self,
        members: &[AllocationNo],
        except: &[ResourceId],
        never: &[ResourceId],
    ) -> Option<Point> {
        let mut choices = self
            .choosers(members)
            .filter_map(|claim| Some((claim.path.tenant(), claim.choice.as_ref()?)));
        let without = choices.find(|(_, choice)| !self.leaves_any(choice, except, never));
        without.map(|(tenant, choice)| Point::resource(tenant, choice.id))
    }

    /// Whether a model is left that the fleet has, `never` aside. Where the fleet has none, that says nothing: one may come.
    fn leaves_any(&self, choice: &Choice, except: &[ResourceId], never: &[ResourceId]) -> bool {
        let models = self.fleet.models.keys();
        let ids = models.map(|model| {
            let model = model.clone().map(QuotaResource::GpuModel);
            model.and_then(|model| self.books.names.find(&model))
        });
        let of_choice = self.books.names.models(choice.id);
        let chosen = ids.filter(|id| match id {
            Some(id) => self.may_be(choice, *id) && !never.contains(id),
            // Nobody limits it, nor names it.
            None => of_choice.is_none(),
        });
        let mut chosen = chosen.peekable();
        if chosen.peek().is_some() {
            return chosen.any(|id| id.is_none_or(|id| !except.contains(&id)));
        }
        match of_choice {
            Some(models) => models.iter().any(|model| !except.contains(model)),
            None => self.fleet.models.is_empty(),
        }
    }

    /// The models that could never be had, and what was said of the first of those.
    fn never(&self, members: &[AllocationNo]) -> (Vec<ResourceId>, Option<(u64, u64)>) {
        let (grant, first) = self.leave_out(members, |account, model, amount| {
            no_more_than(self.books.most(account, model), amount)
        });
        (grant.except, first)
    }

    /// What keeps all models from a unit whoever else holds what: for ever, or as long as no burst may begin. With the most
    /// that there may be of the first of them, and what would be wanted of it.
    pub(super) fn no_model(
        &self,
        members: &[AllocationNo],
        now: Option<Millis>,
    ) -> Option<(Point, (u64, u64))> {
        let (never, mut first) = self.never(members);
        let except = match now {
            None => never.clone(),
            Some(now) => {
                let (grant, said) = self.leave_out(members, |account, model, amount| {
                    no_more_than(self.books.cap_now(account, model, now), amount)
                });
                first = said;
                grant.except
            }
        };
        self.nothing_left(members, &except, &never).zip(first)
    }

    /// How a unit may be granted what it asks for of several models, as things stand.
    pub(super) fn choose_now(
        &self,
        members: &[AllocationNo],
        order: Order,
        now: Millis,
    ) -> Result<Grant, Shortage> {
        let (grant, first) = self.leave_out(members, |account, model, amount| {
            self.check_one(account, model, amount, order, now)
        });
        let Some(shortage) = first else {
            return Ok(grant);
        };
        let (never, _) = self.never(members);
        match self.nothing_left(members, &grant.except, &never) {
            None => Ok(grant),
            Some(point) => Err(Shortage {
                point,
                // What others have borrowed of a model is not taken back for one who may choose.
                why: Why::Limit,
                ..shortage
            }),
        }
    }

    /// Somebody of the tenant who goes first, waits for one of several models, and may take this one.
    pub(super) fn chooser_before(
        &self,
        account: AccountId,
        model: ResourceId,
        order: Order,
    ) -> Option<Order> {
        let tenant = self.books.usage_tree.path(account).tenant();
        if !model.is_model() || self.books.usage_tree.node(tenant).parked == 0 {
            return None;
        }
        let points = self
            .books
            .queues
            .of(tenant)
            .filter(|point| point.is_choice());
        let heads = points.filter_map(|point| self.books.queues.head(point));
        let before = heads.filter(|head| {
            *head < order && self.wants(&self.unit(head.allocation()), account, model) > 0
        });
        before.min()
    }

    /// When time alone may let a unit have more of a model, or less.
    pub(super) fn models_turn(&self, members: &[AllocationNo], now: Millis) -> Option<Millis> {
        let of_claim = |claim: &Claim| {
            let models = self.limited_models(claim).into_values();
            let turns = models.flat_map(|model| {
                let nodes = claim
                    .path
                    .ids()
                    .iter()
                    .map(|id| self.books.usage_tree.node(*id));
                nodes.filter_map(move |node| node.limited(model)?.turns_at(now))
            });
            turns.min()
        };
        self.choosers(members).filter_map(of_claim).min()
    }

    /// What the grant says of the models of one of the unit.
    pub(super) fn model_grant(
        &self,
        allocation: AllocationNo,
        grant: &Grant,
    ) -> Option<Box<ModelGrant>> {
        let claim = self.claims.get(&allocation)?;
        let choice = claim.choice.as_ref()?;
        let limited = self.limited_models(claim);
        let except = grant.except.iter().filter(|it| self.may_be(choice, **it));
        let except: BTreeSet<_> = except.copied().collect();
        if limited.is_empty() && except.is_empty() {
            return None;
        }
        let name = |id: &ResourceId| self.books.names.model(*id).cloned();
        let named = self.books.names.models(choice.id);
        let all: BTreeSet<_> = match named {
            Some(models) => models.iter().copied().collect(),
            None => limited.into_values().collect(),
        };
        let mut counts_on: Vec<_> = all.difference(&except).filter_map(name).collect();
        let mut except: Vec<_> = except.iter().filter_map(name).collect();
        counts_on.sort_unstable();
        except.sort_unstable();
        Some(Box::new(ModelGrant { counts_on, except }))
    }

    /// From its grant on it counts on these.
    pub(super) fn may_run_on(&mut self, allocation: AllocationNo, models: Option<&ModelGrant>) {
        let Some(claim) = self.claims.get_mut(&allocation) else {
            return;
        };
        let Some(choice) = &mut claim.choice else {
            return;
        };
        let names = &mut self.books.names;
        choice.by_model = models.is_some();
        choice.counts_on = match models {
            Some(models) => {
                let models = models.counts_on.iter();
                models.map(|model| names.acquire_model(model)).collect()
            }
            None => unbound(names, choice.id),
        };
    }

    /// It is on a node of this model.
    pub(super) fn count_on_model(
        &mut self,
        allocation: AllocationNo,
        model: Option<&Token>,
        now: Millis,
    ) {
        let names = &mut self.books.names;
        let claim = self.claims.get(&allocation);
        if claim.is_some_and(|claim| claim.choice.is_some()) {
            let model = model.map(|model| names.acquire_model(model));
            self.recount(allocation, model.into_iter().collect(), now);
        }
    }

    /// Its run is over. What is not counted by model may run on any of its choice again.
    pub(super) fn count_on_choice(&mut self, allocation: AllocationNo, now: Millis) {
        let choice = self
            .claims
            .get(&allocation)
            .and_then(|it| it.choice.as_ref());
        if let Some(choice) = choice.filter(|choice| !choice.by_model) {
            let counts_on = unbound(&mut self.books.names, choice.id);
            self.recount(allocation, counts_on, now);
        }
    }

    /// It holds no quota any more.
    pub(super) fn count_on_nothing(&mut self, allocation: AllocationNo) {
        let claim = self.claims.get_mut(&allocation);
        if let Some(choice) = claim.and_then(|claim| claim.choice.as_mut()) {
            choice.by_model = false;
            for model in std::mem::take(&mut choice.counts_on) {
                self.books.names.release(model);
            }
        }
    }

    fn recount(&mut self, allocation: AllocationNo, counts_on: Models, now: Millis) {
        let Some(claim) = self.claims.get_mut(&allocation) else {
            return;
        };
        let reclaimed = claim.hold().is_some_and(|hold| hold.reclaimed);
        let path = claim.path;
        let Some(choice) = &mut claim.choice else {
            return;
        };
        let before = std::mem::replace(&mut choice.counts_on, counts_on);
        let models = (&before[..], &choice.counts_on[..]);
        self.books
            .recount(&path, models, choice.amount, reclaimed, now);
        for model in before {
            self.books.names.release(model);
        }
    }
}

fn no_more_than(most: u64, amount: u64) -> Result<QuotaFlags, (u64, u64)> {
    if amount > most {
        Err((most, amount))
    } else {
        Ok(QuotaFlags::default())
    }
}

/// What a claim counts on that may run on any model of its choice.
fn unbound(names: &mut Names, choice: ResourceId) -> Models {
    let models = names.models(choice).map(Models::from);
    let models = models.unwrap_or_else(|| Models::from_iter([ResourceId::ANY_MODEL]));
    models.iter().for_each(|model| names.retain(*model));
    models
}
