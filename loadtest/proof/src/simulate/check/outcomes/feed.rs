//! The feed as its readers find it: messages of batches, each in its place and each event once.

use super::{
    super::{Invariant, Violation},
    Position, Told,
};
use prost::Message;
use schemas::v1;
use std::{collections::BTreeMap, fmt};

/// A message of the feed, by its headers, its subject and its payload.
#[derive(Clone, PartialEq, Eq)]
pub struct Fed {
    /// The batch is of the positions behind this one,
    pub after: u64,
    /// up to and with this one; 0: the feed is made anew from here on.
    pub to: u64,
    /// Of so many messages of the batch.
    pub number: u32,
    pub count: u32,
    pub tenant: String,
    pub job_set: String,
    pub payload: Vec<u8>,
}

impl fmt::Debug for Fed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            tenant, job_set, ..
        } = self;
        let (after, to, number, count) = (self.after, self.to, self.number, self.count);
        write!(
            f,
            "{number}/{count} of {after}..={to} for {tenant}/{job_set}"
        )
    }
}

impl Fed {
    fn is_beginning(&self) -> bool {
        self.to == 0
    }

    fn ends_batch(&self) -> bool {
        self.number == self.count
    }

    fn follows(&self, before: Option<&Self>) -> bool {
        let begins = self.number == 1;
        match before {
            None => begins,
            // What is between them has nothing for a feed.
            Some(before) if before.ends_batch() => begins && self.after >= before.to,
            Some(before) => {
                let bounds = |of: &Self| (of.after, of.to, of.count);
                bounds(self) == bounds(before) && self.number == before.number + 1
            }
        }
    }

    fn wrong(&self, text: String) -> Violation {
        Violation {
            invariant: Invariant::Outcome,
            lsn: self.to,
            text,
        }
    }
}

#[derive(Debug, Default)]
pub struct Feed {
    last: Option<Fed>,
    /// Up to here every batch is complete.
    complete: u64,
    /// Who is told something where, in the order of positions.
    told: BTreeMap<Position, Told>,
    /// Where each tenant's job set has come to.
    come_to: BTreeMap<(String, String), Position>,
}

impl Feed {
    /// In its place behind the last, and of a batch that is complete all that is to be told, and nothing else.
    pub fn fed(&mut self, fed: Fed, expected: &BTreeMap<Position, Told>) -> Result<(), Violation> {
        if fed.is_beginning() {
            *self = Self::default();
            return Ok(());
        }
        if !fed.follows(self.last.as_ref()) {
            let last = self.last.as_ref();
            return Err(fed.wrong(format!("the feed's {fed:?} follows {last:?}")));
        }
        self.tell(&fed)?;
        if fed.ends_batch() {
            let before = std::mem::replace(&mut self.complete, fed.to);
            let batch = (before + 1, 0)..(fed.to + 1, 0);
            let (told, expected) = (
                self.told.range(batch.clone()).collect::<Vec<_>>(),
                expected.range(batch).collect::<Vec<_>>(),
            );
            if told != expected {
                let differs = told.iter().zip(&expected).find(|(told, to)| told != to);
                let counts = (told.len(), expected.len());
                return Err(fed.wrong(format!(
                    "the feed tells otherwise than it should: {differs:?}, of {counts:?}"
                )));
            }
        }
        self.last = Some(fed);
        Ok(())
    }

    fn tell(&mut self, fed: &Fed) -> Result<(), Violation> {
        let events = v1::TenantEvents::decode(&*fed.payload);
        let events = events.map_err(|error| fed.wrong(format!("{fed:?}: {error}")))?;
        let feed = (fed.tenant.clone(), fed.job_set.clone());
        let come_to = self.come_to.entry(feed).or_default();
        for event in &events.events {
            let position = (event.lsn, event.index);
            let inside = (fed.after + 1..=fed.to).contains(&event.lsn);
            if !inside || position <= *come_to || event.job_set != fed.job_set {
                let text = format!("{event:?} stands in {fed:?}, behind {come_to:?}");
                return Err(fed.wrong(text));
            }
            *come_to = position;
            let told = Told::read(&fed.tenant, event);
            let told = told.ok_or_else(|| fed.wrong(format!("nothing is told by {event:?}")))?;
            if self.told.insert(position, told).is_some() {
                return Err(fed.wrong(format!("{event:?} is told twice")));
            }
        }
        Ok(())
    }

    /// All that was to be told has been.
    pub fn untold<'a>(&self, expected: &'a BTreeMap<Position, Told>) -> Option<&'a Told> {
        let untold = expected.iter().find(|(at, _)| !self.told.contains_key(at));
        untold.map(|(_, told)| told)
    }
}
