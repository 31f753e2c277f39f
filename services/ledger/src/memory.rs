//! The seeded in-memory bus: the same promises as JetStream's, and all of its ways to fail, repeatable.
//!
//! Every call yields once before it acts and once before it answers, so that whoever polls it (the simulation, or any
//! executor) decides what happens in between, and dropping a caller there is a crash between two steps.

use crate::{
    bus::{
        AppendError, Bus, BusError, Inbox, InboxMessage, LedgerId, Record, Stored, Tail, Witness,
        Writing,
    },
    snapshot::KEPT,
};
use bytes::Bytes;
use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll, Waker},
};
use vocab::{
    Level, Lsn, Millis, Token, Writer,
    sabotage::{self, Bug},
};

/// A small seeded generator (SplitMix64, Steele et al. 2014): the simulation must repeat exactly across versions of any
/// library.
#[derive(Debug, Clone)]
pub struct Seeded(u64);

impl Seeded {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `bound`, which must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound
    }

    /// True in `per_mille` of 1000 cases.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }
}

/// How often, per mille of the calls, something goes wrong.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// The append lands, its acknowledgement does not come back.
    pub lost_ack: u64,
    /// The append does not land, and no answer comes.
    pub lost_append: u64,
    /// The append is neither answered nor gone: it lands later, even after its sender's death.
    pub late_append: u64,
    /// A read gets no answer.
    pub lost_read: u64,
    /// A snapshot is not saved; it cannot be read; or one of those that the store keeps is damaged from then on, gone, or an
    /// old one.
    pub bad_snapshot: u64,
    /// A reader loses its connection.
    pub lost_tail: u64,
    /// An inbox sends a message again.
    pub duplicate: u64,
    /// A reader sees the next record only later.
    pub delay: u64,
}

#[derive(Debug)]
struct Shared {
    ledger: Vec<Record>,
    level: Level,
    inboxes: [Vec<InboxMessage>; 2],
    /// What each inbox has forgotten: up to one position, and of single senders up to another one.
    trimmed: [(u64, BTreeMap<Token, u64>); 2],
    /// Position of what is on no writer's subject.
    foreign: Option<Lsn>,
    /// By name.
    snapshots: BTreeMap<String, Saved>,
    /// Appends that are still on their way.
    late: Vec<(Writer, Lsn, Bytes)>,
    random: Seeded,
    faults: Faults,
    wakers: Vec<Waker>,
    /// How often the server was restarted: readers have lost their connection.
    restarts: u64,
}

/// Snapshots of one name.
#[derive(Debug, Default)]
struct Saved {
    /// All that were ever saved, the newest last.
    all: Vec<(Witness, Bytes)>,
    /// What the store has now, in the same order.
    kept: Vec<(Witness, Stored)>,
}

impl Saved {
    fn save(&mut self, witness: Witness, bytes: Bytes) {
        self.all.push((witness.clone(), bytes.clone()));
        self.kept.push((witness, Stored::Whole(bytes)));
        if self.kept.len() > KEPT {
            self.kept.remove(0);
        }
    }

    /// Something becomes of one of those that are kept.
    fn spoil(&mut self, random: &mut Seeded) {
        let which = random.below(self.kept.len() as u64) as usize;
        match random.below(4) {
            0 => self.kept[which].1 = Stored::Damaged("a part of it is missing".into()),
            1 => {
                let (witness, bytes) = &self.all[random.below(self.all.len() as u64) as usize];
                self.kept[which] = (witness.clone(), Stored::Whole(bytes.clone()));
            }
            2 => drop(self.kept.remove(which)),
            _ => {
                if let Stored::Whole(bytes) = &mut self.kept[which].1 {
                    *bytes = flipped(bytes, random);
                }
            }
        }
    }
}

/// With some other bytes.
fn flipped(bytes: &Bytes, random: &mut Seeded) -> Bytes {
    let mut flipped = bytes.to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(flipped.len().max(1) as u64) as usize;
        if let Some(byte) = flipped.get_mut(at) {
            *byte ^= 1 << random.below(8);
        }
    }
    flipped.into()
}

/// What stands on the ledger that no writer has written there.
#[derive(Debug, Clone, Copy)]
pub enum Foreign {
    /// On a subject of nobody.
    Subject,
    /// On a writer's, and no frame.
    NoFrame(Writer),
    /// What stands at this position already, once more.
    Again(Lsn),
}

#[derive(Debug, Clone)]
pub struct MemoryBus(Arc<Mutex<Shared>>);

impl MemoryBus {
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self(Arc::new(Mutex::new(Shared {
            ledger: Vec::new(),
            level: Level::KNOWN,
            inboxes: [Vec::new(), Vec::new()],
            trimmed: Default::default(),
            foreign: None,
            snapshots: BTreeMap::new(),
            late: Vec::new(),
            random: Seeded::new(seed),
            faults,
            wakers: Vec::new(),
            restarts: 0,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // A poisoned lock means that a test has panicked already; its state is still whole.
        self.0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The lock, or no answer at all.
    async fn answered(&self) -> Result<MutexGuard<'_, Shared>, BusError> {
        step().await;
        let mut shared = self.lock();
        if shared.fails(|f| f.lost_read) {
            return Err(BusError::Unavailable("no answer".into()));
        }
        Ok(shared)
    }

    /// What a client publishes at an inbox, acknowledged. `seq` is set here.
    pub fn publish(&self, inbox: Inbox, mut message: InboxMessage) -> u64 {
        let mut shared = self.lock();
        let messages = &mut shared.inboxes[inbox as usize];
        message.seq = messages.len() as u64 + 1;
        let seq = message.seq;
        // As what a server has sent: whoever reads it shares its bytes, and the first one need not arrange that.
        drop(message.payload.clone());
        messages.push(message);
        shared.wake();
        seq
    }

    /// The ledger as it stands.
    pub fn records(&self) -> Vec<Record> {
        self.lock().ledger.clone()
    }

    /// None behind its end.
    pub fn records_from(&self, index: usize) -> Vec<Record> {
        let shared = self.lock();
        shared.ledger.iter().skip(index).cloned().collect()
    }

    /// The snapshots saved under `name`, the newest last, from `index` on.
    pub fn snapshots_from(&self, name: &str, index: usize) -> Vec<Bytes> {
        let shared = self.lock();
        let saved = shared.snapshots.get(name);
        let bytes = |(_, bytes): &(Witness, Bytes)| bytes.clone();
        saved.map_or_else(Vec::new, |it| it.all[index..].iter().map(bytes).collect())
    }

    /// The snapshots that the store has of that name and can read to their end, the latest first.
    pub fn snapshots_kept(&self, name: &str) -> Vec<Bytes> {
        let shared = self.lock();
        let kept = shared.snapshots.get(name).map(|saved| saved.kept.iter());
        let whole = |(_, stored): &(Witness, Stored)| match stored {
            Stored::Whole(bytes) => Some(bytes.clone()),
            Stored::Damaged(_) => None,
        };
        kept.into_iter().flatten().rev().filter_map(whole).collect()
    }

    /// What the snapshots bear witness of that the store keeps.
    pub fn witnessed(&self) -> Vec<Witness> {
        self.lock().witnesses()
    }

    /// From here on nothing goes wrong any more. What is still on its way arrives.
    pub fn heal(&self) {
        let mut shared = self.lock();
        shared.faults = Faults::default();
        while shared.land_late() {}
        shared.wake();
    }

    /// Sets the cell's feature level, at which everybody hears it. A cell begins at the newest.
    pub fn set_level(&self, level: Level) {
        self.lock().level = level;
    }

    /// From here on no append lands, and none is answered.
    pub fn loses_appends(&self) {
        self.lock().faults.lost_append = 1000;
    }

    /// Something comes to stand at the ledger's end that no writer has written there.
    pub fn intrudes(&self, foreign: Foreign) -> Lsn {
        let mut shared = self.lock();
        let lsn = Lsn(shared.ledger.len() as u64 + 1);
        let no_frame = Bytes::from_static(b"\xff no frame");
        let (writer, bytes) = match foreign {
            // A record has a writer, and nobody gets to see this one.
            Foreign::Subject => {
                shared.foreign = Some(lsn);
                (Writer::Admission, no_frame)
            }
            Foreign::NoFrame(writer) => (writer, no_frame),
            Foreign::Again(of) => {
                let stands = &shared.ledger[of.0 as usize - 1];
                (stands.writer, stands.frame.clone())
            }
        };
        shared.ledger.push(Record::new(lsn, writer, bytes));
        shared.wake();
        lsn
    }

    /// The server comes back without the records behind `keep`, and with these in their place.
    pub fn loses_its_end(&self, keep: usize, others: Vec<Record>) {
        let mut shared = self.lock();
        shared.ledger.truncate(keep);
        for other in others {
            let lsn = Lsn(shared.ledger.len() as u64 + 1);
            shared
                .ledger
                .push(Record::new(lsn, other.writer, other.frame));
        }
        shared.restarts += 1;
        shared.wake();
    }
}

impl Shared {
    fn wake(&mut self) {
        self.wakers.drain(..).for_each(Waker::wake);
    }

    fn last_of(&self, writer: Writer) -> Option<&Record> {
        let mut records = self.ledger.iter().rev();
        records.find(|r| r.writer == writer && self.foreign != Some(r.lsn))
    }

    fn foreign(lsn: Lsn) -> BusError {
        let why = "no writer has its subject".into();
        BusError::Foreign { lsn, why }
    }

    /// The append itself, fenced.
    fn land(
        &mut self,
        writer: Writer,
        expected_last: Lsn,
        frame: Bytes,
    ) -> Result<Lsn, AppendError> {
        let last = self.last_of(writer).map_or(Lsn(0), |r| r.lsn);
        if last != expected_last && !sabotage::armed(Bug::NoFence) {
            return Err(AppendError::Fenced);
        }
        let lsn = Lsn(self.ledger.len() as u64 + 1);
        self.ledger.push(Record::new(lsn, writer, frame));
        self.wake();
        Ok(lsn)
    }

    /// One of the late appends arrives, or is refused: nobody is there to hear which.
    fn land_late(&mut self) -> bool {
        if self.late.is_empty() {
            return false;
        }
        let index = self.random.below(self.late.len() as u64) as usize;
        let (writer, expected_last, frame) = self.late.swap_remove(index);
        let _ = self.land(writer, expected_last, frame);
        true
    }

    fn witnesses(&self) -> Vec<Witness> {
        let kept = self.snapshots.values().flat_map(|saved| &saved.kept);
        kept.map(|(witness, _)| witness.clone()).collect()
    }

    fn forgot(&self, inbox: Inbox, message: &InboxMessage) -> bool {
        let (through, of) = &self.trimmed[inbox as usize];
        let of_sender = of.get(&message.sender).copied().unwrap_or(0);
        message.seq <= of_sender.max(*through)
    }

    fn fails(&mut self, per_mille: fn(&Faults) -> u64) -> bool {
        let per_mille = per_mille(&self.faults);
        per_mille > 0 && self.random.chance(per_mille)
    }
}

/// How often a late append gets in ahead of another one, per mille.
const LATE_LANDS: u64 = 300;

/// Pending once, ready then.
async fn step() {
    let mut yielded = false;
    std::future::poll_fn(move |context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Bus for MemoryBus {
    type Records = MemoryTail<Record>;
    type Messages = MemoryTail<InboxMessage>;

    async fn ledger_id(&self) -> Result<LedgerId, BusError> {
        Ok(LedgerId(1))
    }

    fn level(&self) -> Level {
        self.lock().level
    }

    async fn append(
        &self,
        writer: Writer,
        expected_last: Lsn,
        through: Lsn,
        writing: Writing,
    ) -> Result<Lsn, AppendError> {
        // Whoever reads it decodes what stands there: nothing of what its writer knew comes along.
        let frame = writing.frame().clone();
        let restarts = self.lock().restarts;
        step().await;
        let lsn = {
            let mut shared = self.lock();
            // What was under way on a connection goes with it.
            if shared.restarts != restarts {
                return Err(AppendError::Unknown("the server was restarted".into()));
            }
            let end = Lsn(shared.ledger.len() as u64);
            if through > end && !sabotage::armed(Bug::LostEndIgnored) {
                return Err(AppendError::Shortened(end));
            }
            if shared.fails(|f| f.late_append) {
                shared.late.push((writer, expected_last, frame));
                return Err(AppendError::Unknown("under way".into()));
            }
            if shared.random.chance(LATE_LANDS) {
                shared.land_late();
            }
            if shared.fails(|f| f.lost_append) {
                return Err(AppendError::Unknown("lost on the way".into()));
            }
            let lsn = shared.land(writer, expected_last, frame)?;
            if shared.fails(|f| f.lost_ack) {
                return Err(AppendError::Unknown("acknowledgement lost".into()));
            }
            lsn
        };
        step().await;
        Ok(lsn)
    }

    async fn last(&self, writer: Writer) -> Result<Option<Record>, BusError> {
        Ok(self.answered().await?.last_of(writer).cloned())
    }

    async fn at(&self, lsn: Lsn) -> Result<Option<Record>, BusError> {
        let shared = self.answered().await?;
        if shared.foreign == Some(lsn) {
            return Err(Shared::foreign(lsn));
        }
        let at = (lsn.0 as usize).checked_sub(1);
        Ok(at.and_then(|at| shared.ledger.get(at).cloned()))
    }

    async fn server_time(&self) -> Result<Option<Millis>, BusError> {
        Ok(None)
    }

    async fn end(&self) -> Result<Lsn, BusError> {
        Ok(Lsn(self.answered().await?.ledger.len() as u64))
    }

    async fn follow(&self, from: Lsn) -> Result<MemoryTail<Record>, BusError> {
        drop(self.answered().await?);
        Ok(MemoryTail::new(self.clone(), from.0, None, |shared| {
            &shared.ledger
        }))
    }

    async fn inbox(&self, inbox: Inbox, from: u64) -> Result<MemoryTail<InboxMessage>, BusError> {
        drop(self.answered().await?);
        let of: fn(&Shared) -> &Vec<InboxMessage> = match inbox {
            Inbox::Ingress => |shared| &shared.inboxes[0],
            Inbox::Report => |shared| &shared.inboxes[1],
        };
        Ok(MemoryTail::new(self.clone(), from, Some(inbox), of))
    }

    async fn inbox_end(&self, inbox: Inbox) -> Result<u64, BusError> {
        Ok(self.answered().await?.inboxes[inbox as usize].len() as u64)
    }

    async fn inbox_at(
        &self,
        inbox: Inbox,
        seqs: Vec<u64>,
    ) -> Result<Vec<Option<InboxMessage>>, BusError> {
        let shared = self.answered().await?;
        let message = |seq: u64| {
            let index = (seq as usize).checked_sub(1)?;
            let message = shared.inboxes[inbox as usize].get(index)?;
            (!shared.forgot(inbox, message)).then(|| message.clone())
        };
        Ok(seqs.into_iter().map(message).collect())
    }

    async fn inbox_trim(
        &self,
        inbox: Inbox,
        through: u64,
        ahead: Vec<(Token, u64)>,
    ) -> Result<(), BusError> {
        let (trimmed, of) = &mut self.answered().await?.trimmed[inbox as usize];
        *trimmed = through.max(*trimmed);
        for (sender, through) in ahead {
            let trimmed = of.entry(sender).or_default();
            *trimmed = through.max(*trimmed);
        }
        Ok(())
    }

    async fn load_snapshot(&self, name: &str, older: usize) -> Result<Option<Stored>, BusError> {
        let mut shared = self.answered().await?;
        let spoilt = shared.fails(|f| f.bad_snapshot);
        let cut = shared.random.chance(500);
        let saved = shared.snapshots.get(name);
        let found = saved.and_then(|saved| saved.kept.iter().rev().nth(older));
        Ok(found.map(|(_, stored)| match stored {
            Stored::Whole(bytes) if spoilt && cut => Stored::Whole(bytes.slice(..bytes.len() - 1)),
            Stored::Whole(_) if spoilt => Stored::Damaged("a part of it does not come".into()),
            stored => stored.clone(),
        }))
    }

    async fn save_snapshot(
        &self,
        name: &str,
        (_, witness): (LedgerId, Witness),
        bytes: Bytes,
    ) -> Result<(), BusError> {
        let mut shared = self.answered().await?;
        if shared.fails(|f| f.bad_snapshot) {
            return Err(BusError::Unavailable("no room".into()));
        }
        let spoilt = shared.fails(|f| f.bad_snapshot);
        let Shared {
            snapshots, random, ..
        } = &mut *shared;
        let saved = snapshots.entry(name.to_owned()).or_default();
        saved.save(witness, bytes);
        if spoilt {
            saved.spoil(random);
        }
        Ok(())
    }

    async fn witnesses(&self, _ledger: LedgerId) -> Result<Vec<Witness>, BusError> {
        Ok(self.answered().await?.witnesses())
    }
}

/// A reading position in one of the vectors.
pub struct MemoryTail<T> {
    bus: MemoryBus,
    /// Sequence number of the next one, from 1.
    next: u64,
    /// An inbox, unlike the ledger, forgets, and may send again what it has sent.
    inbox: Option<Inbox>,
    of: fn(&Shared) -> &Vec<T>,
    /// Of the server, when it connected.
    restarts: u64,
}

impl<T: Clone> MemoryTail<T> {
    fn new(bus: MemoryBus, from: u64, inbox: Option<Inbox>, of: fn(&Shared) -> &Vec<T>) -> Self {
        let restarts = bus.lock().restarts;
        Self {
            bus,
            next: from.max(1),
            inbox,
            of,
            restarts,
        }
    }

    fn poll_next(&mut self, context: Option<&mut Context<'_>>) -> Option<Result<T, BusError>> {
        let mut shared = self.bus.lock();
        if shared.restarts != self.restarts {
            return Some(Err(BusError::Unavailable(
                "the server was restarted".into(),
            )));
        }
        if let Some(inbox) = self.inbox {
            let messages = &shared.inboxes[inbox as usize];
            let lies = |seq: u64| messages.get(seq as usize - 1);
            while lies(self.next).is_some_and(|message| shared.forgot(inbox, message)) {
                self.next += 1;
            }
        }
        if self.inbox.is_none() && shared.foreign == Some(Lsn(self.next)) {
            if sabotage::armed(Bug::ForeignSkipped) {
                self.next += 1;
                return None;
            }
            return Some(Err(Shared::foreign(Lsn(self.next))));
        }
        let index = (self.next - 1) as usize;
        let here = (self.of)(&shared).get(index).cloned();
        let Some(item) = here else {
            if let Some(context) = context {
                shared.wakers.push(context.waker().clone());
            }
            return None;
        };
        if shared.fails(|f| f.lost_tail) {
            return Some(Err(BusError::Unavailable("connection lost".into())));
        }
        if shared.fails(|f| f.delay) {
            if let Some(context) = context {
                context.waker().wake_by_ref();
            }
            return None;
        }
        let again = self.inbox.is_some() && shared.fails(|f| f.duplicate);
        if !again {
            self.next += 1;
        }
        Some(Ok(item))
    }
}

impl<T: Clone + Send + 'static> Tail<T> for MemoryTail<T> {
    fn recv(&mut self) -> impl Future<Output = Result<T, BusError>> + Send {
        Recv { tail: self }
    }

    fn try_recv(&mut self) -> Option<Result<T, BusError>> {
        self.poll_next(None)
    }
}

struct Recv<'t, T> {
    tail: &'t mut MemoryTail<T>,
}

impl<T: Clone> Future for Recv<'_, T> {
    type Output = Result<T, BusError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.tail.poll_next(Some(context)) {
            Some(item) => Poll::Ready(item),
            None => Poll::Pending,
        }
    }
}
