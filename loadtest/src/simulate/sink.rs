//! Where the simulated feed goes: keeps each position once, and notices when a repeat says something else.

use super::{
    check::{Outcome, State, Step, Told, Wait, What},
    clock::give_way,
};
use admission::feed::{FeedItem, FeedKind, FeedPosition, OutcomeKind, SubmitState, Waiting};
use ledger::{Batch, LedgerId, Resume, Sink, SinkError, memory::Seeded};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vocab::Lsn;

/// What has arrived, and how it stands with the batch under way.
#[derive(Debug)]
pub struct Store {
    pub through: Lsn,
    begun: Option<Lsn>,
    items: Vec<(FeedPosition, Told)>,
    random: Seeded,
    /// Per mille of the calls that get no answer, done or not.
    pub lost: u64,
    /// The first repeat that differed from what it repeats.
    pub changed: Option<String>,
}

/// Survives its projectors, like the stream that it stands for.
#[derive(Debug, Clone)]
pub struct MemorySink(Arc<Mutex<Store>>);

impl MemorySink {
    pub fn new(seed: u64, lost: u64) -> Self {
        Self(Arc::new(Mutex::new(Store {
            through: Lsn(0),
            begun: None,
            items: Vec::new(),
            random: Seeded::new(seed),
            lost,
            changed: None,
        })))
    }

    /// The store is whole between any two changes, so a poisoned lock is as good as any.
    pub fn lock(&self) -> MutexGuard<'_, Store> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn told_from(&self, index: usize) -> Vec<Told> {
        let store = self.lock();
        store.items[index..]
            .iter()
            .map(|(_, t)| t.clone())
            .collect()
    }

    fn lost(&self) -> Result<(), SinkError> {
        let mut store = self.lock();
        let per_mille = store.lost;
        if per_mille > 0 && store.random.chance(per_mille) {
            return Err(SinkError::Unavailable("no answer".into()));
        }
        Ok(())
    }

    /// Whether the batch is to be applied, or is already.
    fn begin(&self, batch: &Batch<FeedItem>) -> Result<bool, SinkError> {
        let mut store = self.lock();
        if batch.to <= store.through {
            return Ok(false);
        }
        if batch.after != store.through || store.begun.is_some_and(|to| to != batch.to) {
            return Err(SinkError::Moved);
        }
        store.begun = Some(batch.to);
        Ok(true)
    }
}

impl Store {
    fn take(&mut self, item: &FeedItem) {
        let told = told(item);
        match self
            .items
            .binary_search_by_key(&item.position, |(at, _)| *at)
        {
            Ok(index) if self.items[index].1 == told => {}
            Ok(index) => {
                let before = &self.items[index].1;
                self.changed
                    .get_or_insert_with(|| format!("was {before:?}, is {told:?}"));
            }
            // In the order of arrival, so that a wrong order is seen by whoever compares.
            Err(_) => self.items.push((item.position, told)),
        }
    }
}

impl Sink for MemorySink {
    type Change = FeedItem;

    async fn resume(&mut self, _ledger: LedgerId) -> Result<Resume, SinkError> {
        give_way().await;
        self.lost()?;
        let store = self.lock();
        Ok(Resume {
            through: store.through,
            begun: store.begun,
        })
    }

    async fn apply(&mut self, batch: &Batch<FeedItem>) -> Result<(), SinkError> {
        give_way().await;
        if !self.begin(batch)? {
            return Ok(());
        }
        for item in &batch.changes {
            give_way().await;
            self.lost()?;
            let mut store = self.lock();
            if store.through >= batch.to {
                return Ok(());
            }
            store.take(item);
        }
        {
            let mut store = self.lock();
            store.through = batch.to.max(store.through);
            store.begun = None;
        }
        self.lost()
    }
}

/// The item in the checker's words.
fn told(item: &FeedItem) -> Told {
    let step = |step| What::Step {
        allocation: item.allocation.map_or(0, |no| no.0),
        step,
    };
    Told {
        lsn: item.position.lsn.0,
        index: item.position.index,
        tenant: item.tenant.to_string(),
        reply_to: item.reply_to.iter().map(ToString::to_string).collect(),
        in_feed: item.in_feed,
        what: match &item.kind {
            FeedKind::Outcome(told) => What::Outcome {
                operation_id: told.operation_id.as_ref().map(ToString::to_string),
                lsn: told.lsn.0,
                outcome: outcome(&told.kind),
            },
            FeedKind::Expired { reservation, epoch } => What::Expired {
                reservation: reservation.0,
                epoch: *epoch,
            },
            FeedKind::Requested(_) => step(Step::Requested),
            FeedKind::PriorityChanged(priority) => step(Step::Priority(*priority)),
            FeedKind::Denied(refusal) => step(Step::Denied(refusal.rule.number())),
            FeedKind::Placed { .. } => step(Step::Placed),
            FeedKind::Waiting(waiting) => step(Step::Waiting(wait(waiting))),
            FeedKind::Started { .. } => step(Step::Started),
            FeedKind::Preempted { .. } => step(Step::Preempted),
            FeedKind::Stopping => step(Step::Stopping),
            FeedKind::Requeued { .. } => step(Step::Requeued),
            FeedKind::Ended { .. } => step(Step::Ended),
        },
    }
}

fn wait(waiting: &Waiting) -> Wait {
    Wait {
        reason: waiting.reason as i32,
        rule: waiting.quota.as_ref().map(|refusal| refusal.rule.number()),
    }
}

fn outcome(kind: &OutcomeKind) -> Outcome {
    match kind {
        OutcomeKind::Submitted { allocation, state } => Outcome::Submitted {
            allocation: allocation.0,
            state: match state {
                SubmitState::Placed { node, .. } => State::Placed(node.to_string()),
                SubmitState::Waiting(waiting) => State::Waiting(wait(waiting)),
                SubmitState::Ended { .. } => State::Ended,
            },
        },
        OutcomeKind::Cancelled { allocation } => Outcome::Cancelled(allocation.0),
        OutcomeKind::JobSetCancelled { allocations } => Outcome::JobSetCancelled(*allocations),
        OutcomeKind::PrioritySet { allocations } => Outcome::PrioritySet(*allocations),
        OutcomeKind::Applied { version } => Outcome::Applied(*version),
        OutcomeKind::ResourceCreated => Outcome::Created,
        OutcomeKind::Reserved {
            reservation,
            deadline,
        } => Outcome::Reserved {
            reservation: reservation.0,
            deadline: *deadline,
        },
        OutcomeKind::Confirmed => Outcome::Confirmed,
        OutcomeKind::Released { epoch } => Outcome::Released(*epoch),
        OutcomeKind::Revoked { epoch } => Outcome::Revoked(*epoch),
        OutcomeKind::Reclaimed => Outcome::Reclaimed,
        OutcomeKind::Refused(refusal) => Outcome::Refused(refusal.rule.number()),
    }
}
