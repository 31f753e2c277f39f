//! What the clients asked, what was acknowledged and what was answered; and what is wrong with it, as a pure function.

use super::ledger::{Ledger, Line, line};
use client::{Outcome, Position, TenantEvent};
use schemas::v1::{outcome::Result as Decided, tenant_event::Kind};
use serde::Serialize;
use std::{collections::BTreeMap, time::Duration};
use vocab::Token;

/// What one submit asks for. A GPU is asked for in thousandths of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub gpu_milli: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    Submit(Ask),
    Cancel,
    SetPriority,
}

/// One operation, however often it was sent.
#[derive(Debug, Clone)]
pub struct Operation {
    pub tenant: Token,
    pub asked: Asked,
    /// When it was sent for the first time, since the beginning.
    pub sent: Duration,
    /// Its client asks until there is an outcome; others stop at the acknowledgement.
    pub asks_on: bool,
    pub acknowledged: bool,
    /// When the first outcome came to the client.
    pub answered: Option<Duration>,
    /// All that came as replies, each that differs once.
    pub outcomes: Vec<Outcome>,
    /// Why its client stopped without an outcome.
    pub given_up: Option<String>,
}

#[derive(Debug, Default)]
pub struct Book {
    operations: BTreeMap<String, Operation>,
    pub resent: u64,
}

impl Book {
    pub fn sent(&mut self, id: &str, tenant: &Token, asked: Asked, sent: Duration, asks_on: bool) {
        let operation = Operation {
            tenant: tenant.clone(),
            asked,
            sent,
            asks_on,
            acknowledged: false,
            answered: None,
            outcomes: Vec::new(),
            given_up: None,
        };
        self.operations.insert(id.to_owned(), operation);
    }

    pub fn acknowledged(&mut self, id: &str) {
        if let Some(operation) = self.operations.get_mut(id) {
            operation.acknowledged = true;
        }
    }

    /// An outcome came as a reply, for the first time or again.
    pub fn answered(&mut self, outcome: &Outcome, now: Duration) {
        let Some(operation) = self.operations.get_mut(&outcome.operation_id) else {
            return;
        };
        operation.answered.get_or_insert(now);
        if !operation.outcomes.contains(outcome) {
            operation.outcomes.push(outcome.clone());
        }
    }

    pub fn given_up(&mut self, id: &str, why: String) {
        if let Some(operation) = self.operations.get_mut(id) {
            operation.given_up = Some(why);
        }
    }

    pub fn operation(&self, id: &str) -> Option<&Operation> {
        self.operations.get(id)
    }

    pub fn operations(&self) -> impl Iterator<Item = (&str, &Operation)> {
        let all = self.operations.iter();
        all.map(|(id, operation)| (id.as_str(), operation))
    }

    /// Answered submits, as (sent, answered): what a submit needs is every service that decides.
    pub fn submits_answered(&self) -> Vec<(Duration, Duration)> {
        let submits = self.operations.values();
        let submits = submits.filter(|one| matches!(one.asked, Asked::Submit(_)));
        let mut times: Vec<_> = submits
            .filter_map(|one| Some((one.sent, one.answered?)))
            .collect();
        times.sort();
        times
    }
}

/// What is wrong, in sentences, by what it breaks. All empty: nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Wrong {
    /// Acknowledged, or asked to the end, and without an outcome.
    pub lost: Vec<String>,
    /// Taken up, answered or turned into an allocation twice.
    pub doubled: Vec<String>,
    /// Feeds that are not what the ledger says, or not what clients were told.
    pub feed: Vec<String>,
}

/// Feeds by tenant, as they were followed from the beginning to the end.
pub type Feeds = BTreeMap<Token, Vec<TenantEvent>>;

pub fn check(book: &Book, feeds: &Feeds, ledger: &Ledger) -> Wrong {
    let mut wrong = Wrong::default();
    for (tenant, events) in feeds {
        in_order(tenant, events, &mut wrong);
        as_on_ledger(tenant, events, ledger, &mut wrong);
    }
    let told = told(feeds);
    let mut allocations: BTreeMap<&str, &str> = BTreeMap::new();
    for (id, operation) in book.operations() {
        let none = Vec::new();
        let told = told.get(&(&operation.tenant, id)).unwrap_or(&none);
        operation_is_right(id, operation, told, &mut wrong);
        if ledger.times_taken(&operation.tenant, id) > 1 {
            wrong.doubled.push(format!("{id} is on the ledger twice"));
        }
        let outcome = operation.outcomes.first().or(told.first().copied());
        if let Some(Decided::Submitted(submitted)) = outcome.and_then(|one| one.result.as_ref())
            && let Some(other) = allocations.insert(&submitted.allocation_id, id)
        {
            let allocation = &submitted.allocation_id;
            wrong
                .doubled
                .push(format!("{allocation} answers {other} and {id}"));
        }
    }
    for (tenant, id, _) in ledger.operations() {
        let known = feeds.contains_key(tenant);
        if known && !book.operations.contains_key(id) {
            wrong.doubled.push(format!(
                "{id} of {tenant} is on the ledger, and nobody asked"
            ));
        }
    }
    wrong
}

type Told<'a> = BTreeMap<(&'a Token, &'a str), Vec<&'a Outcome>>;

/// The outcomes in the feeds, by operation.
fn told(feeds: &Feeds) -> Told<'_> {
    let mut told = Told::new();
    for (tenant, events) in feeds {
        for event in events {
            if let Some(Kind::Outcome(outcome)) = &event.kind {
                let key = (tenant, outcome.operation_id.as_str());
                told.entry(key).or_default().push(outcome);
            }
        }
    }
    told
}

fn operation_is_right(id: &str, operation: &Operation, told: &[&Outcome], wrong: &mut Wrong) {
    let replies = &operation.outcomes;
    let owed = operation.asks_on || operation.acknowledged;
    if owed && replies.is_empty() && told.is_empty() {
        let why = operation.given_up.as_deref().unwrap_or("nobody gave up");
        wrong.lost.push(format!("{id}: no outcome ({why})"));
    }
    if operation.asks_on && replies.is_empty() && !told.is_empty() {
        let why = operation.given_up.as_deref().unwrap_or("nobody gave up");
        wrong
            .lost
            .push(format!("{id}: its outcome never came to who asked ({why})"));
    }
    if replies.len() > 1 {
        wrong
            .doubled
            .push(format!("{id} was answered in {} ways", replies.len()));
    }
    if told.len() > 1 {
        wrong
            .doubled
            .push(format!("{id} has {} outcomes in the feed", told.len()));
    }
    if let (Some(reply), Some(told)) = (replies.first(), told.first())
        && reply != *told
    {
        wrong
            .doubled
            .push(format!("{id} was answered otherwise than the feed tells"));
    }
    if told.is_empty() && replies.first().is_some_and(|reply| reply.lsn > 0) {
        wrong
            .feed
            .push(format!("the feed does not tell the outcome of {id}"));
    }
    let fits = |outcome: &Outcome| {
        matches!(
            (operation.asked, &outcome.result),
            (_, Some(Decided::Refused(_)))
                | (Asked::Submit(_), Some(Decided::Submitted(_)))
                | (Asked::Cancel, Some(Decided::Cancelled(_)))
                | (Asked::SetPriority, Some(Decided::PrioritySet(_)))
        )
    };
    if !replies.iter().all(fits) || !told.iter().all(|outcome| fits(outcome)) {
        wrong
            .doubled
            .push(format!("{id} was answered as another operation"));
    }
}

fn in_order(tenant: &Token, events: &[TenantEvent], wrong: &mut Wrong) {
    for pair in events.windows(2) {
        let (before, after) = (Position::from(&pair[0]), Position::from(&pair[1]));
        if after <= before {
            wrong
                .feed
                .push(format!("{tenant}: {after:?} stands behind {before:?}"));
        }
    }
}

fn as_on_ledger(tenant: &Token, events: &[TenantEvent], ledger: &Ledger, wrong: &mut Wrong) {
    let seen: Vec<Line> = events.iter().filter_map(line).collect();
    let there = ledger.lines(tenant);
    if seen == there {
        return;
    }
    let at = seen.iter().zip(there).take_while(|(a, b)| a == b).count();
    let (seen_count, there_count) = (seen.len(), there.len());
    wrong.feed.push(format!(
        "{tenant}: the feed has {seen_count} events of allocations, the ledger {there_count}; the first that differs is \
         {:?} for {:?}",
        seen.get(at),
        there.get(at)
    ));
}

#[cfg(test)]
mod tests;
