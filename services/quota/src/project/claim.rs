//! What is asked for, from the request to the end, and where it stands with quota.

use super::Change;
use ledger::IllegalEvent;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};
use vocab::{
    Account, AllocationNo, AllocationSpec, At, Lsn, Millis, ModelGrant, QuotaResource, Refusal,
    ResourceKey, ResourceKind, Token,
};

/// An allocation that waits for quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingState {
    pub account: Account,
    pub priority: i32,
    pub since: Millis,
    /// None until it is said of one whose quota was taken back.
    pub refusal: Option<Refusal>,
    pub reclaimed: Option<Reclaimed>,
}

/// It held quota before, which was taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reclaimed {
    /// For whose sake; none: its account's burst was over.
    pub by: Option<AllocationNo>,
}

/// An allocation that has not ended, or not been given its last answer by quota.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Claim {
    pub account: Account,
    amounts: [u64; 3],
    /// Of the one model that it names, and extended ones.
    named: Vec<(QuotaResource, u64)>,
    choice: Option<Choice>,
    priority: i32,
    requested: Lsn,
    place: Option<Place>,
    life: Life,
    reclaimed: Option<Reclaimed>,
    ended: Option<Lsn>,
}

/// Any of several models will do.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Choice {
    /// None: any at all.
    models: Vec<Token>,
    /// What it counts on while it holds quota; none: on all that somebody limits or names.
    counts_on: Option<Vec<Token>>,
    /// After a run it asks for quota again.
    by_model: bool,
}

impl Choice {
    fn unbound(&self) -> Option<Vec<Token>> {
        Some(self.models.clone()).filter(|models| !models.is_empty())
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Place {
    at: Millis,
    model: Option<Token>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
enum Life {
    Asked,
    Waiting {
        since: Millis,
        refusal: Option<Refusal>,
    },
    Held {
        run: Option<Run>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    pub since: Millis,
}

impl Claim {
    pub fn of(tenant: &Token, spec: &AllocationSpec, requested: Lsn) -> Self {
        let gpu = spec.gpu.as_ref();
        let mut account = spec.account(tenant);
        if account.team.is_none() {
            // A namespace is a team's.
            account.namespace = None;
        }
        let mut models = gpu.map_or(Vec::new(), |gpu| gpu.models.clone());
        models.sort_unstable();
        models.dedup();
        let model = gpu.zip(models.first()).filter(|_| models.len() == 1);
        let model =
            model.map(|(gpu, model)| (QuotaResource::GpuModel(model.clone()), gpu.total_milli()));
        let choice = gpu.filter(|_| model.is_none()).map(|_| Choice {
            models,
            counts_on: Some(Vec::new()),
            by_model: false,
        });
        let extended = spec.extended.iter();
        let extended = extended.map(|(name, amount)| (QuotaResource::extended(name), *amount));
        Self {
            account,
            amounts: ResourceKind::ALL.map(|kind| spec.amount(kind)),
            named: model.into_iter().chain(extended).collect(),
            choice,
            priority: spec.priority,
            requested,
            place: None,
            life: Life::Asked,
            reclaimed: None,
            ended: None,
        }
    }

    /// Its account, and those above it.
    pub fn levels(&self) -> impl Iterator<Item = Account> {
        std::iter::successors(Some(self.account.clone()), Account::parent)
    }

    /// What it takes of each resource type; nothing of a type is not taken.
    pub fn amounts(&self) -> impl Iterator<Item = (QuotaResource, u64)> {
        let kinds = ResourceKind::ALL.into_iter().zip(self.amounts);
        let kinds = kinds.map(|(kind, amount)| (QuotaResource::of(kind), amount));
        let all = kinds.chain([(QuotaResource::Pods, 1)]);
        let all = all
            .chain(self.named.iter().cloned())
            .chain(self.of_choice());
        all.filter(|(_, amount)| *amount > 0)
    }

    /// What it counts on of the models that it may choose from; none: on all that somebody limits or names.
    pub fn counts_on(&self) -> Option<&[Token]> {
        match &self.choice {
            Some(choice) => choice.counts_on.as_deref(),
            None => Some(&[]),
        }
    }

    pub fn gpus(&self) -> u64 {
        let [.., gpus] = self.amounts;
        gpus
    }

    fn of_choice(&self) -> impl Iterator<Item = (QuotaResource, u64)> {
        let models = self.counts_on().into_iter().flatten();
        models.map(|model| (QuotaResource::GpuModel(model.clone()), self.gpus()))
    }

    /// GPUs that may be of any model: they count on every model that somebody limits or names.
    pub fn any_model(&self) -> u64 {
        match self.counts_on() {
            Some(_) => 0,
            None => self.gpus(),
        }
    }

    /// What a run of it uses up, by what it is billed as.
    pub fn used(&self) -> Vec<(ResourceKey, u64)> {
        let model = self.place.as_ref().and_then(|place| place.model.clone());
        let kinds = ResourceKind::ALL.into_iter().zip(self.amounts);
        let kinds = kinds.filter(|(_, amount)| *amount > 0);
        let keys = kinds.map(|(kind, amount)| {
            let model = model.clone().filter(|_| kind == ResourceKind::Gpu);
            (ResourceKey { kind, model }, amount)
        });
        keys.collect()
    }

    pub fn run(&self) -> Option<Run> {
        match self.life {
            Life::Held { run } => run,
            Life::Asked | Life::Waiting { .. } => None,
        }
    }

    fn wait_again(&mut self, now: Millis) {
        self.life = Life::Waiting {
            since: now,
            refusal: None,
        };
    }

    fn row(&self) -> Option<Box<WaitingState>> {
        let Life::Waiting { since, refusal } = &self.life else {
            return None;
        };
        let row = WaitingState {
            account: self.account.clone(),
            priority: self.priority,
            since: *since,
            refusal: refusal.clone(),
            reclaimed: self.reclaimed,
        };
        self.ended.is_none().then(|| Box::new(row))
    }
}

/// All that is live, and what has ended while quota had not decided.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Claims {
    live: BTreeMap<AllocationNo, Claim>,
    /// By the position of the end. A decision that was made before quota saw it may still follow.
    ended_undecided: BTreeSet<(Lsn, AllocationNo)>,
}

impl Claims {
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.live.len()
    }

    pub fn get(&self, allocation: AllocationNo) -> Option<&Claim> {
        self.live.get(&allocation)
    }

    pub fn asked(&mut self, allocation: AllocationNo, claim: Claim) {
        self.live.insert(allocation, claim);
    }

    /// Undecided, or waiting: what quota may decide on.
    fn open(
        &mut self,
        allocation: AllocationNo,
        event: &impl fmt::Debug,
    ) -> Result<&mut Claim, IllegalEvent> {
        let claim = self.live.get_mut(&allocation);
        match claim {
            Some(claim) if matches!(claim.life, Life::Asked | Life::Waiting { .. }) => Ok(claim),
            _ => Err(IllegalEvent::new("not asked", event)),
        }
    }

    fn held(
        &mut self,
        allocation: AllocationNo,
        event: &impl fmt::Debug,
    ) -> Result<&mut Claim, IllegalEvent> {
        let claim = self.live.get_mut(&allocation);
        match claim {
            Some(claim) if matches!(claim.life, Life::Held { .. }) => Ok(claim),
            _ => Err(IllegalEvent::new("no quota reserved", event)),
        }
    }

    /// Quota reads the ledger in its order: a decision on something shows that it has seen all that stands before that,
    /// and it does not decide on what it has seen ending.
    fn seen(&mut self, through: Lsn) {
        while let Some((ended, allocation)) = self.ended_undecided.first().copied()
            && ended <= through
        {
            self.ended_undecided.pop_first();
            self.live.remove(&allocation);
        }
    }

    pub fn waits(
        &mut self,
        allocation: AllocationNo,
        refusal: &Refusal,
        now: Millis,
        event: &impl fmt::Debug,
        out: &mut Vec<Change>,
    ) -> Result<(), IllegalEvent> {
        let claim = self.open(allocation, event)?;
        let since = match claim.life {
            Life::Waiting { since, .. } => since,
            Life::Asked | Life::Held { .. } => now,
        };
        claim.life = Life::Waiting {
            since,
            refusal: Some(refusal.clone()),
        };
        let row = claim.row();
        let requested = claim.requested;
        out.extend(row.map(|row| Change::Waiting(allocation, Some(row))));
        self.seen(requested);
        Ok(())
    }

    pub fn reserved(
        &mut self,
        allocation: AllocationNo,
        models: Option<&ModelGrant>,
        event: &impl fmt::Debug,
        out: &mut Vec<Change>,
    ) -> Result<&Claim, IllegalEvent> {
        let claim = self.open(allocation, event)?;
        if let Some(choice) = &mut claim.choice {
            choice.by_model = models.is_some();
            choice.counts_on = match models {
                Some(models) => Some(models.counts_on.clone()),
                None => choice.unbound(),
            };
        }
        if let Life::Waiting { .. } = claim.life {
            out.push(Change::Waiting(allocation, None));
        }
        claim.life = Life::Held { run: None };
        claim.reclaimed = None;
        let (requested, ended) = (claim.requested, claim.ended);
        if let Some(ended) = ended {
            self.ended_undecided.remove(&(ended, allocation));
        }
        self.seen(requested);
        self.held(allocation, event).map(|claim| &*claim)
    }

    pub fn denied(
        &mut self,
        allocation: AllocationNo,
        event: &impl fmt::Debug,
        out: &mut Vec<Change>,
    ) -> Result<(), IllegalEvent> {
        let claim = self.open(allocation, event)?;
        let (requested, ended) = (claim.requested, claim.ended);
        if let Life::Waiting { .. } = claim.life {
            out.push(Change::Waiting(allocation, None));
        }
        if let Some(ended) = ended {
            self.ended_undecided.remove(&(ended, allocation));
        }
        self.live.remove(&allocation);
        self.seen(requested);
        Ok(())
    }

    pub fn reclaimed(
        &mut self,
        allocation: AllocationNo,
        by: Option<AllocationNo>,
        event: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        self.held(allocation, event)?.reclaimed = Some(Reclaimed { by });
        Ok(())
    }

    /// What it held, and whether that was used. One that has not ended waits for quota again.
    pub fn released(
        &mut self,
        allocation: AllocationNo,
        now: Millis,
        event: &impl fmt::Debug,
        out: &mut Vec<Change>,
    ) -> Result<(Claim, bool), IllegalEvent> {
        let claim = self
            .held(allocation, event)
            .map_err(|_| IllegalEvent::new("nothing held", event))?;
        let given_back = claim.clone();
        let by_model = claim.choice.as_mut().is_some_and(|choice| {
            choice.counts_on = Some(Vec::new());
            std::mem::take(&mut choice.by_model)
        });
        let may_ask_again = claim.reclaimed.is_some() || by_model;
        let seen = match (claim.ended, may_ask_again) {
            (Some(ended), false) => {
                self.live.remove(&allocation);
                ended
            }
            // It had stopped, and quota need not have seen the end: it may decide on it again.
            (Some(ended), true) => {
                claim.wait_again(now);
                let requested = claim.requested;
                self.ended_undecided.insert((ended, allocation));
                requested
            }
            (None, _) => {
                claim.wait_again(now);
                out.push(Change::Waiting(allocation, claim.row()));
                claim.requested
            }
        };
        self.seen(seen);
        let used = given_back.run().is_some();
        Ok((given_back, used))
    }

    /// The claim and what it counted on before, if any of several models would do.
    pub fn placed(
        &mut self,
        allocation: AllocationNo,
        model: Option<Token>,
        at: &At,
    ) -> Option<(&Claim, Option<Vec<Token>>)> {
        let claim = self.live.get_mut(&allocation)?;
        let before = claim.choice.as_mut().map(|choice| {
            let counts_on = Some(model.iter().cloned().collect());
            std::mem::replace(&mut choice.counts_on, counts_on)
        });
        claim.place = Some(Place { at: at.now, model });
        before.map(|before| (&*claim, before))
    }

    /// As `placed`: what is not counted by model may run on any of its choice again.
    pub fn may_choose_again(
        &mut self,
        allocation: AllocationNo,
    ) -> Option<(&Claim, Option<Vec<Token>>)> {
        let claim = self.live.get_mut(&allocation)?;
        let choice = claim.choice.as_mut().filter(|it| !it.by_model)?;
        let unbound = choice.unbound();
        let before = std::mem::replace(&mut choice.counts_on, unbound);
        Some((claim, before))
    }

    /// The agent's clock says when; it was after the placement, and before the scheduler wrote it down.
    pub fn started(
        &mut self,
        allocation: AllocationNo,
        said: Millis,
        at: &At,
        event: &impl fmt::Debug,
    ) -> Result<&Claim, IllegalEvent> {
        let claim = self.held(allocation, event)?;
        if claim.run().is_some() {
            return Err(IllegalEvent::new("started already", event));
        }
        let placed = claim.place.as_ref().map_or(at.now, |place| place.at);
        let since = said.between(placed, at.now);
        claim.life = Life::Held {
            run: Some(Run { since }),
        };
        Ok(claim)
    }

    /// The run that is over by this; none: it had not started.
    pub fn requeued(
        &mut self,
        allocation: AllocationNo,
        event: &impl fmt::Debug,
    ) -> Result<Option<(&Claim, Run)>, IllegalEvent> {
        let claim = self.held(allocation, event)?;
        let run = claim.run();
        claim.life = Life::Held { run: None };
        Ok(run.map(|run| (&*claim, run)))
    }

    /// The run that is over by this, if it was running.
    pub fn ended(
        &mut self,
        allocation: AllocationNo,
        at: &At,
        out: &mut Vec<Change>,
    ) -> Option<Run> {
        let claim = self.live.get_mut(&allocation)?;
        if claim.ended.replace(at.lsn).is_some() {
            return None;
        }
        match claim.life {
            Life::Held { run } => return run,
            Life::Waiting { .. } => out.push(Change::Waiting(allocation, None)),
            Life::Asked => {}
        }
        self.ended_undecided.insert((at.lsn, allocation));
        None
    }

    pub fn reprioritised(
        &mut self,
        allocation: AllocationNo,
        priority: i32,
        out: &mut Vec<Change>,
    ) {
        if let Some(claim) = self.live.get_mut(&allocation) {
            claim.priority = priority;
            let row = claim.row();
            out.extend(row.map(|row| Change::Waiting(allocation, Some(row))));
        }
    }

    /// The runs in an account and below it: what each uses up, and since when.
    pub fn runs(&self, account: &Account) -> Vec<(Vec<(ResourceKey, u64)>, Millis)> {
        let live = self.live.values().filter(|claim| claim.ended.is_none());
        let here = live.filter(|claim| claim.levels().any(|level| level == *account));
        here.filter_map(|claim| Some((claim.used(), claim.run()?.since)))
            .collect()
    }
}
