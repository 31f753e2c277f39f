//! Where the simulated feed goes: a stream that stores, refuses, loses and delays messages as the bus does.

use super::clock::give_way;
use admission::publish::{FeedMessage, FeedStream, Fence, Part, Reply, StreamEnd};
use ledger::{LedgerId, SinkError, memory::Seeded};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use vocab::{
    Lsn,
    sabotage::{self, Bug},
};

/// Per mille of the calls of others in which something arrives that was sent before.
const LATE: u64 = 200;

#[derive(Debug)]
pub struct Store {
    /// All that were ever stored, by sequence from 1 on.
    messages: Vec<FeedMessage>,
    /// What is below was dropped.
    first: u64,
    /// By number.
    calls: BTreeMap<u64, Call>,
    last_call: u64,
    replies: Vec<Reply>,
    random: Seeded,
    /// Per mille of the calls that get no answer, done or not.
    pub lost: u64,
}

/// Messages that were sent together. A sender that is dead has sent them all the same.
#[derive(Debug)]
struct Call {
    /// Have not arrived.
    under_way: VecDeque<FeedMessage>,
    answer: Result<(), SinkError>,
}

/// Survives its projectors, like the stream that it stands for.
#[derive(Debug, Clone)]
pub struct MemoryFeed(Arc<Mutex<Store>>);

impl Store {
    fn last(&self) -> u64 {
        self.messages.len() as u64
    }

    fn at(&self, sequence: u64) -> Option<&FeedMessage> {
        let index = usize::try_from(sequence.checked_sub(1)?).ok()?;
        self.messages.get(index).filter(|_| sequence >= self.first)
    }

    fn lets_in(&self, message: &FeedMessage) -> bool {
        let behind = match &message.fence {
            Fence::Sequence => true,
            Fence::Behind(_) if sabotage::armed(Bug::FeedFencedBySequence) => true,
            Fence::Behind(id) => self.messages.last().is_some_and(|last| last.id() == *id),
        };
        message.sequence == self.last() + 1 && behind
    }

    fn arrives(&mut self, message: FeedMessage) -> Result<(), SinkError> {
        let stored = self.at(message.sequence);
        if stored.is_some_and(|stored| stored.id() == message.id()) {
            return Ok(());
        }
        if !self.lets_in(&message) {
            return Err(SinkError::Moved);
        }
        self.messages.push(message);
        Ok(())
    }

    fn sends(&mut self, messages: Vec<FeedMessage>) -> u64 {
        self.last_call += 1;
        let call = Call {
            under_way: messages.into(),
            answer: Ok(()),
        };
        self.calls.insert(self.last_call, call);
        self.last_call
    }

    /// The next message of a call arrives; false when all of them have.
    fn next_arrives(&mut self, no: u64) -> bool {
        let call = self.calls.get_mut(&no);
        let Some(message) = call.and_then(|call| call.under_way.pop_front()) else {
            return false;
        };
        let answer = self.arrives(message);
        if let Some(call) = self.calls.get_mut(&no) {
            call.answer = call.answer.clone().and(answer);
        }
        true
    }

    fn something_may_arrive(&mut self) {
        let open = self
            .calls
            .iter()
            .filter(|(_, call)| !call.under_way.is_empty());
        let open: Vec<u64> = open.map(|(no, _)| *no).collect();
        if !open.is_empty() && self.random.chance(LATE) {
            let nth = self.random.below(open.len() as u64) as usize;
            self.next_arrives(open[nth]);
        }
    }

    fn answer(&mut self, no: u64) -> Result<(), SinkError> {
        self.calls.remove(&no).map_or(Ok(()), |call| call.answer)
    }

    fn answers(&mut self) -> Result<(), SinkError> {
        let lost = self.lost;
        if lost > 0 && self.random.chance(lost) {
            return Err(SinkError::Unavailable("no answer".into()));
        }
        Ok(())
    }
}

impl MemoryFeed {
    pub fn new(seed: u64, lost: u64) -> Self {
        Self(Arc::new(Mutex::new(Store {
            messages: Vec::new(),
            first: 1,
            calls: BTreeMap::new(),
            last_call: 0,
            replies: Vec::new(),
            random: Seeded::new(seed),
            lost,
        })))
    }

    /// The store is whole between any two changes, so a poisoned lock is as good as any.
    pub fn lock(&self) -> MutexGuard<'_, Store> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn messages_from(&self, index: usize) -> Vec<FeedMessage> {
        self.lock().messages[index..].to_vec()
    }

    pub fn replies_from(&self, index: usize) -> Vec<Reply> {
        self.lock().replies[index..].to_vec()
    }

    /// How far tenants can read.
    pub fn through(&self) -> Lsn {
        let store = self.lock();
        let last = store.at(store.last());
        last.map_or(Lsn(0), |last| last.part.readable())
    }

    /// An operator empties the stream.
    pub fn emptied(&self) {
        let mut store = self.lock();
        store.first = store.last() + 1;
    }

    /// A step of a call: others act before it, and it may get no answer.
    async fn step(&self) -> Result<(), SinkError> {
        give_way().await;
        let mut store = self.lock();
        store.something_may_arrive();
        store.answers()
    }
}

impl FeedStream for MemoryFeed {
    async fn end(&self) -> Result<StreamEnd, SinkError> {
        self.step().await?;
        let store = self.lock();
        let last_sequence = store.last();
        Ok(StreamEnd {
            first_sequence: store.first,
            last_sequence,
            messages: last_sequence + 1 - store.first,
            full: false,
        })
    }

    async fn part(&self, sequence: u64) -> Result<Option<(LedgerId, Part)>, SinkError> {
        self.step().await?;
        let store = self.lock();
        let message = store.at(sequence);
        Ok(message.map(|message| (message.ledger, message.part)))
    }

    async fn append(&self, messages: Vec<FeedMessage>) -> Result<(), SinkError> {
        give_way().await;
        let call = self.lock().sends(messages);
        loop {
            self.step().await?;
            let mut store = self.lock();
            if !store.next_arrives(call) {
                return store.answer(call);
            }
        }
    }

    async fn trim(&self, sequence: u64) -> Result<(), SinkError> {
        self.step().await?;
        let mut store = self.lock();
        store.first = store.first.max(sequence);
        store.answers()
    }

    async fn reply(&self, replies: Vec<Reply>) -> Result<(), SinkError> {
        give_way().await;
        self.lock().replies.extend(replies);
        Ok(())
    }
}
