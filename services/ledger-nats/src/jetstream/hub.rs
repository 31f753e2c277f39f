//! One reader of the ledger for all followers in a process: each record is sent once by the server, and read once.
//!
//! A follower that is where the shared reader is attaches to it. One that is behind, or cannot keep up, reads by itself
//! until it has caught up; whoever finds no shared reader makes its own the shared one. A reader whose connection broke
//! opens its consumer again where it is, and its followers notice nothing.
//!
//! What this process itself has appended goes to the followers as soon as the server has acknowledged it, if it is what they
//! read next: with its events as they were decided, so that nobody decodes them. When it comes from the server, too, it is
//! known.

use super::{JetStreamBus, Program, link::Held, unavailable};
use async_nats::jetstream::{
    Message,
    consumer::pull::{Ordered, OrderedError},
};
use futures::{FutureExt, StreamExt};
use ledger::{BusError, Digest, Record, Tail, Witness, bus::bears_out};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::{select, sync::mpsc, task::JoinHandle};
use vocab::{Lsn, subjects::Subjects};

/// Records that a follower may be behind the shared reader.
const READ_AHEAD: usize = 1024;

/// The shared readers of a process, by server and stream: services that run together read each ledger once.
#[derive(Debug, Clone, Default)]
pub struct Readers {
    hubs: Arc<Mutex<BTreeMap<Stream, Arc<Hub>>>>,
    /// None of a process that is no service.
    program: Option<Arc<Program>>,
}

/// A server and a name on it.
type Stream = (String, String);

impl Readers {
    /// Of services, which say so on the bus.
    pub fn in_program(program: Program) -> Self {
        Self {
            program: Some(Arc::new(program)),
            ..Self::default()
        }
    }

    pub(super) fn program(&self) -> Option<Arc<Program>> {
        self.program.clone()
    }

    pub(super) fn of(&self, server: &str, stream: String) -> Arc<Hub> {
        // Nothing panics while it is held.
        let mut hubs = self.hubs.lock().unwrap_or_else(PoisonError::into_inner);
        hubs.entry((server.to_owned(), stream)).or_default().clone()
    }
}

#[derive(Debug, Default)]
pub(super) struct Hub(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// What the shared reader reads next; none while there is no reader.
    next: Option<Lsn>,
    followers: Vec<mpsc::Sender<Record>>,
    /// Counts the shared readers.
    term: u64,
    /// What the followers were given last.
    last: Option<Record>,
    /// What this process has appended, behind something that has not been read yet.
    landed: BTreeMap<Lsn, Record>,
    /// The furthest position that any of its readers was sent.
    read: Lsn,
}

impl State {
    /// Gives the followers what they read next, and what this process has appended behind it.
    fn give(&mut self, record: Record) {
        let mut next = Some(record);
        while let Some(record) = next {
            let behind = Lsn(record.lsn.0 + 1);
            self.next = Some(behind);
            self.read = self.read.max(record.lsn);
            // Whoever is full goes on by itself: waiting for one would hold up whoever comes meanwhile.
            let takes = |follower: &mpsc::Sender<Record>| follower.try_send(record.clone()).is_ok();
            self.followers.retain(takes);
            self.last = Some(record);
            next = self.landed.remove(&behind);
        }
    }

    /// Nobody reads any more. In the same breath, so that nobody attaches to a reader that is about to end.
    fn close(&mut self) {
        self.next = None;
        self.last = None;
        self.landed.clear();
        self.followers.clear();
    }
}

impl Hub {
    /// Nothing panics while it is held, so a poisoned lock is as good as any.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_read(&self, lsn: Lsn) {
        let mut state = self.state();
        state.read = state.read.max(lsn);
    }

    /// This process has appended it. Before there is a reader, and beyond what a reader may be behind, it comes from the server.
    pub(super) fn landed(&self, record: Record) {
        let mut state = self.state();
        match state.next {
            Some(next) if next == record.lsn => state.give(record),
            Some(next) if next < record.lsn && state.landed.len() < READ_AHEAD => {
                state.landed.insert(record.lsn, record);
            }
            _ => {}
        }
    }

    /// As far as the ledger is known to have come.
    pub(super) fn read(&self) -> Lsn {
        self.state().read
    }

    /// The records from the shared reader's next one on, if that is not beyond `from`, and not so far behind that `from`
    /// would be long in coming: the reader may belong to one that has much to catch up with.
    fn attach(&self, from: Lsn) -> Option<mpsc::Receiver<Record>> {
        let mut state = self.state();
        let near = |next: &Lsn| from.0.checked_sub(next.0) <= Some(READ_AHEAD as u64);
        state.next.filter(|next| *next <= from && near(next))?;
        let (sender, receiver) = mpsc::channel(READ_AHEAD);
        state.followers.push(sender);
        Some(receiver)
    }

    /// Makes this the shared reader, if there is none.
    fn adopt(
        self: &Arc<Self>,
        bus: &JetStreamBus,
        records: Box<Records>,
        from: Lsn,
    ) -> Result<mpsc::Receiver<Record>, Box<Records>> {
        let mut state = self.state();
        if state.next.is_some() {
            return Err(records);
        }
        let (sender, receiver) = mpsc::channel(READ_AHEAD);
        state.close();
        state.next = Some(from);
        state.followers = vec![sender];
        state.term += 1;
        let reading = Reading {
            hub: self.clone(),
            bus: bus.clone(),
            term: state.term,
        };
        bus.runtime.spawn(reading.run(records, from));
        Ok(receiver)
    }
}

/// One shared reader. However it ends, its followers learn of it: also when the service goes whose connection it reads
/// from, and before it was polled for the first time.
struct Reading {
    hub: Arc<Hub>,
    bus: JetStreamBus,
    term: u64,
}

impl Reading {
    /// Until nobody follows, or nothing can be read: the followers then see for themselves.
    async fn run(self, mut records: Box<Records>, from: Lsn) {
        loop {
            let record = match records.recv().await {
                Ok(record) => record,
                Err(Stop::Broken) => {
                    let (next, last) = self.stands(from);
                    match open(self.bus.clone(), next, last).await {
                        Ok(opened) => {
                            *records = opened;
                            continue;
                        }
                        Err(_) => return,
                    }
                }
                Err(Stop::Bus(_)) => return,
            };
            let mut state = self.hub.state();
            // Those behind it that the followers have already are what this process has appended.
            if state.next.is_none_or(|next| next <= record.lsn) {
                state.give(record);
            }
            if state.followers.is_empty() {
                state.close();
                return;
            }
        }
    }

    /// What comes next, and what came last.
    fn stands(&self, from: Lsn) -> (Lsn, Option<Record>) {
        let state = self.hub.state();
        (state.next.unwrap_or(from), state.last.clone())
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut state = self.hub.state();
        // Otherwise there is a new one already.
        if state.term == self.term {
            state.close();
        }
    }
}

/// The stream as records.
pub(super) struct Records {
    messages: Ordered,
    /// What they come by.
    held: Held,
    subjects: Arc<Subjects>,
}

/// Why no more records come.
enum Stop {
    /// The connection broke.
    Broken,
    Bus(BusError),
}

impl Records {
    fn record(&self, message: Result<Message, OrderedError>) -> Result<Record, BusError> {
        let message = message.map_err(unavailable)?;
        let seq = message.info().map_err(unavailable)?.stream_sequence;
        JetStreamBus::record(
            &self.subjects,
            &message.subject,
            seq,
            message.payload.clone(),
        )
    }

    /// What has come goes first. Cancel-safe.
    async fn recv(&mut self) -> Result<Record, Stop> {
        let message = select! {
            biased;
            message = self.messages.next() => message,
            () = self.held.broken() => return Err(Stop::Broken),
        };
        let ended = || Stop::Bus(unavailable("the reader has ended"));
        self.record(message.ok_or_else(ended)?).map_err(Stop::Bus)
    }

    fn try_recv(&mut self) -> Option<Result<Record, BusError>> {
        let message = self.messages.next().now_or_never()?;
        let ended = || Err(unavailable("the reader has ended"));
        Some(message.map_or_else(ended, |message| self.record(message)))
    }
}

/// One follower's reading position.
pub struct RecordTail {
    bus: JetStreamBus,
    next: Lsn,
    last: Option<Record>,
    source: Source,
}

enum Source {
    Shared(mpsc::Receiver<Record>),
    Own(Box<Records>),
    /// In a task, so that it comes to its end even if `recv` is dropped again and again.
    Opening(JoinHandle<Result<Records, BusError>>),
}

impl Drop for RecordTail {
    fn drop(&mut self) {
        if let Source::Opening(task) = &self.source {
            task.abort();
        }
    }
}

impl RecordTail {
    pub(super) async fn open(bus: JetStreamBus, from: Lsn) -> Result<Self, BusError> {
        let from = from.max(Lsn(1));
        let source = match bus.hub.attach(from) {
            Some(receiver) => Source::Shared(receiver),
            None => Self::own(&bus, open(bus.clone(), from, None).await?, from),
        };
        Ok(Self {
            bus,
            next: from,
            last: None,
            source,
        })
    }

    fn own(bus: &JetStreamBus, records: Records, next: Lsn) -> Source {
        match bus.hub.adopt(bus, Box::new(records), next) {
            Ok(receiver) => Source::Shared(receiver),
            Err(records) => Source::Own(records),
        }
    }

    /// The shared reader may begin before where this one is.
    fn takes(&mut self, record: &Record) -> bool {
        let new = record.lsn >= self.next;
        if new {
            self.next = Lsn(record.lsn.0 + 1);
            self.last = Some(record.clone());
        }
        new
    }

    /// Of its own reader: what it brings, and whether the shared one can take over.
    fn took(&mut self, record: Record) -> Record {
        self.next = Lsn(record.lsn.0 + 1);
        self.last = Some(record.clone());
        self.bus.hub.has_read(record.lsn);
        if let Some(receiver) = self.bus.hub.attach(self.next) {
            self.source = Source::Shared(receiver);
        }
        record
    }

    fn open_again(&mut self) {
        self.source = match self.bus.hub.attach(self.next) {
            Some(receiver) => Source::Shared(receiver),
            None => {
                let opening = open(self.bus.clone(), self.next, self.last.clone());
                Source::Opening(self.bus.runtime.spawn(opening))
            }
        };
    }
}

/// Behind what was read last, if that still stands there: a server that comes back without it would send nothing, and
/// later something else.
async fn open(bus: JetStreamBus, from: Lsn, last: Option<Record>) -> Result<Records, BusError> {
    let stream = bus.subjects.ledger_stream();
    let metadata = (bus.program.as_deref()).map_or_else(Default::default, Program::to_metadata);
    let (messages, held) = bus.consume(&stream, from.0, 0, metadata).await?;
    if let Some(last) = last {
        let read = Witness {
            who: "a reader of this process".to_owned(),
            lsn: last.lsn,
            digest: Some(Digest::of(&last.frame)),
        };
        bears_out(&bus, &read).await?;
    }
    Ok(Records {
        messages,
        held,
        subjects: bus.subjects.clone(),
    })
}

impl Tail<Record> for RecordTail {
    async fn recv(&mut self) -> Result<Record, BusError> {
        loop {
            match &mut self.source {
                Source::Shared(receiver) => match receiver.recv().await {
                    Some(record) if self.takes(&record) => return Ok(record),
                    Some(_) => {}
                    None => self.open_again(),
                },
                Source::Own(records) => match records.recv().await {
                    Ok(record) => return Ok(self.took(record)),
                    Err(Stop::Broken) => self.open_again(),
                    Err(Stop::Bus(error)) => return Err(error),
                },
                Source::Opening(task) => {
                    match task.await.map_err(unavailable).and_then(|opened| opened) {
                        Ok(records) => self.source = Self::own(&self.bus, records, self.next),
                        Err(error) => {
                            self.open_again();
                            return Err(error);
                        }
                    }
                }
            }
        }
    }

    fn try_recv(&mut self) -> Option<Result<Record, BusError>> {
        loop {
            match &mut self.source {
                Source::Shared(receiver) => {
                    let record = receiver.try_recv().ok()?;
                    if self.takes(&record) {
                        return Some(Ok(record));
                    }
                }
                Source::Own(records) => {
                    let record = records.try_recv()?;
                    return Some(record.map(|record| self.took(record)));
                }
                Source::Opening(_) => return None,
            }
        }
    }
}
