//! Drives a read model: folds the ledger in its own order, and hands each batch to a sink together with its position.

use crate::{
    chore::{Chore, beside},
    leader::said,
    snapshots::{Pace, newest, testify, witness},
};
use futures::{FutureExt, future::BoxFuture};
use ledger::{
    Batch, Bus, BusError, Chain, ChainError, Frame, IllegalEvent, LedgerId, Projection, Record,
    Resume, Sink, SinkError, Snapshot, Tail, Time, Witness,
    bus::{bears_out, follow},
};
use std::{
    future,
    pin::pin,
    sync::{Mutex, MutexGuard, PoisonError},
};
use tokio::{select, sync::watch};
use tracing::{info, warn};
use vocab::Lsn;
use vocab::fact::Inputs;

#[derive(Debug, thiserror::Error)]
pub enum ProjectorError {
    #[error(transparent)]
    Chain(#[from] ChainError),
    #[error("{lsn:?}: {illegal}")]
    Illegal { lsn: Lsn, illegal: IllegalEvent },
    #[error(transparent)]
    Bus(BusError),
    #[error("{0}")]
    Sink(String),
}

/// What the shell wants to know of a projector's work.
pub trait ProjectorObserver: Send + Sync {
    /// The ledger holds what the sink has applied.
    fn borne_out(&mut self) {}
    fn received(&mut self, _frame: &Frame) {}
    /// Everything up to `to` is in the sink. After a new beginning it may be less than before.
    fn applied(&mut self, _to: Lsn, _changes: usize) {}
    /// The sink's content includes the effect of everything up to `to`.
    fn reached(&mut self, _to: Lsn) {}
    /// The sink or the bus is tried again.
    fn retrying(&mut self, _why: &str) {}
}

impl ProjectorObserver for crate::NoObserver {}

/// Frames between snapshots of the fold, unless told otherwise; more, if there was little in them.
const SNAPSHOT_EVERY: u64 = 5000;
const RETRY_MS: u64 = 200;
/// Real milliseconds between two looks at where the sink stands.
const CHECK_MS: u64 = 5000;
/// The same for one who stands by and has something that is not in the sink: where somebody waits for a batch, and elsewhere.
const LOOK_MS: u64 = 250;
const LOOK_BULK_MS: u64 = 500;
/// So many looks in a row at a sink that does not move, and the other projector is taken for dead.
const LOOKS: u32 = 8;

pub struct Projector<P: Projection, B: Bus, S, T> {
    bus: B,
    time: T,
    sink: S,
    /// Told of what is read and of what goes out, which happens at the same time.
    observer: Mutex<Box<dyn ProjectorObserver>>,
    fold: Fold<P>,
    pace: Pace,
    /// Where the next batch's changes go, so that room for them is made once.
    spare: Vec<P::Change>,
    /// Whether this process is the one of several that is to write.
    turn: Option<watch::Receiver<bool>>,
    /// Where this projector has last seen its sink.
    left_at: Option<Lsn>,
    /// Which ledger it reads.
    ledger: Option<LedgerId>,
}

/// What was needed last time times this is kept of a batch's room.
const ROOM_KEPT: usize = 4;

struct Fold<P> {
    state: P,
    chain: Chain,
}

impl<P: Projection> Fold<P> {
    fn new() -> Self {
        Self {
            state: P::default(),
            chain: Chain::default(),
        }
    }

    fn next(&self) -> Lsn {
        Lsn(self.chain.last().0 + 1)
    }

    fn take(&mut self, record: &Record, out: &mut Vec<P::Change>) -> Result<Frame, ProjectorError> {
        let lsn = record.lsn;
        // A projection appends nothing, so every record is new to its chain.
        let frame = self
            .chain
            .accept(record, P::Input::KINDS)?
            .ok_or(ChainError::Gap {
                expected: self.next(),
                found: lsn,
            })?;
        self.state
            .take(&frame, out)
            .map_err(|illegal| ProjectorError::Illegal { lsn, illegal })?;
        Ok(frame)
    }
}

/// Where a batch begins, and where it ends if that was settled before.
struct Bounds {
    ledger: LedgerId,
    after: Lsn,
    begun: Option<Lsn>,
    /// Position that the sink's content has reached once the batch on its way is out.
    reached: Lsn,
    /// False: nothing is read before the batch on its way is out, so that the sink is looked at, however much there is to read.
    reads: bool,
}

enum Stop {
    Fatal(ProjectorError),
    Bus(BusError),
    /// Begin again at the sink's position.
    Moved,
    /// The same, at once: the other projector has left a batch unfinished.
    Begun,
}

impl<E: Into<ProjectorError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Fatal(error.into())
    }
}

impl<P, B, S, T> Projector<P, B, S, T>
where
    P: Projection,
    B: Bus,
    S: Sink<Change = P::Change>,
    T: Time,
{
    pub fn new(bus: B, time: T, sink: S, observer: Box<dyn ProjectorObserver>) -> Self {
        Self {
            bus,
            time,
            sink,
            observer: Mutex::new(observer),
            fold: Fold::new(),
            pace: Pace::new(SNAPSHOT_EVERY),
            spare: Vec::new(),
            turn: None,
            left_at: None,
            ledger: None,
        }
    }

    /// Of several projectors of one sink, the one that is told true need not wait until another has been silent for long,
    /// and does not stand back.
    pub fn in_turn(mut self, turn: watch::Receiver<bool>) -> Self {
        self.turn = Some(turn);
        self
    }

    /// Frames between snapshots of the fold, at the least.
    pub fn snapshot_every(mut self, frames: u64) -> Self {
        self.pace = Pace::new(frames);
        self
    }

    /// Ends only on an error that no retry can mend.
    pub async fn run(mut self) -> Result<std::convert::Infallible, ProjectorError> {
        loop {
            match self.term().await {
                Ok(never) => match never {},
                Err(Stop::Fatal(error)) => return Err(error),
                Err(Stop::Bus(error)) if error.is_fatal() => {
                    if let Some(ledger) = self.ledger {
                        let read = self.fold.chain.witness(P::NAME);
                        testify(&self.bus, &snapshot_name::<P>(), ledger, read, &error).await;
                    }
                    return Err(ProjectorError::Bus(error));
                }
                Err(Stop::Bus(error)) => self.observer().retrying(&error.to_string()),
                Err(Stop::Moved) => self.observer().retrying("position moved"),
                Err(Stop::Begun) => {
                    self.left_at = None;
                    continue;
                }
            }
            self.time.pause(RETRY_MS).await;
        }
    }

    async fn term(&mut self) -> Result<std::convert::Infallible, Stop> {
        let ledger = self.bus.ledger_id().await.map_err(Stop::Bus)?;
        self.ledger = Some(ledger);
        let resume = self.sink_position(ledger).await?;
        let read = self.witness(&resume);
        // Before anything is folded: who is about to lead waits for it.
        if let Err(error) = bears_out(&self.bus, &read).await {
            testify(&self.bus, &snapshot_name::<P>(), ledger, read, &error).await;
            return Err(Stop::Bus(error));
        }
        self.observer().borne_out();
        self.load_fold(ledger, resume.through).await?;
        let records = follow(&self.bus, self.fold.next(), &read).await;
        let mut records = records.map_err(Stop::Bus)?;
        self.fold_to(&mut records, resume.through).await?;
        info!(projection = P::NAME, lsn = resume.through.0, "resumed");
        self.applied(resume.through, 0);
        // Whoever finds that another one has written since leaves it to that one.
        let others = |left: Lsn| resume.through > left || resume.begun.is_some();
        let stands_back = self.left_at.is_some_and(others);
        self.left_at = Some(resume.through);
        let Resume {
            through: mut after,
            mut begun,
            ..
        } = resume;
        let mut chore = None;
        if stands_back && !self.is_its_turn() {
            let held;
            (held, begun) = self.stand_by(&mut records, ledger, &mut after).await?;
            info!(projection = P::NAME, lsn = after.0, "takes over");
            if let Some(batch) = held {
                apply(&mut self.sink, &batch, &self.time, &self.observer).await?;
                after = batch.to;
                self.left_at = Some(after);
                self.applied(after, batch.changes.len());
            }
        }
        let mut going: Option<Batch<P::Change>> = None;
        let mut reached = after;
        let mut breather = None;
        let mut snapshot = None;
        let mut check = self.pause(CHECK_MS);
        let mut check_due = false;
        loop {
            check_due = check_due || (&mut check).now_or_never().is_some();
            if check_due && going.is_none() && begun.is_none() {
                beside(&mut chore, self.check(ledger, after)).await?;
                check = self.pause(CHECK_MS);
                check_due = false;
            }
            let bounds = Bounds {
                ledger,
                after,
                begun: begun.take(),
                reached,
                reads: going.is_none() || !check_due,
            };
            let waits = (&mut breather, &mut check);
            let gather = self.gather(&mut records, bounds, going.as_ref(), waits);
            let gathered = beside(&mut chore, gather).await?;
            if let Some(gone) = going.take() {
                self.keep_room(gone.changes);
                chore = chore.or_else(|| snapshot.take());
            }
            let Some(batch) = gathered else {
                continue;
            };
            if batch.changes.is_empty() {
                // Nothing to write: what was read up to here is applied all the same.
                self.applied(batch.to, 0);
                self.spare = batch.changes;
                continue;
            }
            after = batch.to;
            reached = self.fold.state.reached(after);
            if chore.is_none() {
                snapshot = self.snapshot(ledger);
            }
            going = Some(batch);
        }
    }

    /// Folds what the sink has already.
    async fn fold_to(&mut self, records: &mut B::Records, through: Lsn) -> Result<(), Stop> {
        let mut skipped = Vec::new();
        while self.fold.chain.last() < through {
            let record = records.recv().await.map_err(Stop::Bus)?;
            self.fold_one(&record, &mut skipped)?;
            // Else all that was ever written would be held until the end.
            skipped.clear();
        }
        Ok(())
    }

    /// Folds a record as a batch of its own.
    fn fold_one(&mut self, record: &Record, out: &mut Vec<P::Change>) -> Result<(), Stop> {
        self.pace.read(record.frame.len());
        let frame = self.fold.take(record, out)?;
        self.observer().received(&frame);
        self.fold.state.end_batch(out);
        Ok(())
    }

    fn observer(&self) -> MutexGuard<'_, Box<dyn ProjectorObserver>> {
        told(&self.observer)
    }

    /// The sink has all that is folded, up to here.
    fn applied(&self, to: Lsn, changes: usize) {
        let reached = self.fold.state.reached(to);
        let mut observer = self.observer();
        observer.applied(to, changes);
        observer.reached(reached);
    }

    fn is_its_turn(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| *turn.borrow())
    }

    /// Folds along behind another projector and writes nothing, until it is this one's turn or the other one is silent though
    /// there is something to write. Then: a batch that is due, or the bounds of one that was begun.
    ///
    /// It reads no further than the first frame that changes something, so that it is never ahead of the sink by more: the
    /// sink moves to the end of that frame or of a later one.
    async fn stand_by(
        &mut self,
        records: &mut B::Records,
        ledger: LedgerId,
        after: &mut Lsn,
    ) -> Result<(Option<Batch<P::Change>>, Option<Lsn>), Stop> {
        info!(projection = P::NAME, lsn = after.0, "stands by");
        let mut turn = self.turn.clone();
        let mut held: Option<Batch<P::Change>> = None;
        let mut silent = 0;
        let mut look = self.pause(CHECK_MS);
        loop {
            select! {
                biased;
                () = its_turn(&mut turn) => {}
                record = records.recv(), if held.is_none() => {
                    let record = record.map_err(Stop::Bus)?;
                    let mut changes = Vec::new();
                    self.fold_one(&record, &mut changes)?;
                    if changes.is_empty() {
                        self.applied(record.lsn, 0);
                    } else {
                        let (after, to, digest) = (*after, record.lsn, self.fold.chain.digest());
                        held = Some(Batch { ledger, after, to, digest, changes });
                        look = self.pause(look_ms::<P>());
                    }
                    continue;
                }
                () = &mut look => {}
            }
            let found = self.sink_position(ledger).await?;
            if found.through < *after {
                return Err(Stop::Moved);
            }
            if found.through > *after {
                held = None;
                silent = 0;
                self.fold_to(records, found.through).await?;
                *after = found.through;
                self.left_at = Some(*after);
            } else if held.is_some() {
                silent += 1;
            }
            match &held {
                None => self.applied(self.fold.chain.last(), 0),
                // The fold is ahead of the sink.
                Some(batch) => self.observer().applied(Lsn(batch.to.0 - 1), 0),
            }
            if self.is_its_turn() || silent == LOOKS {
                return match (&held, found.begun) {
                    // It is longer than what is held, and has to be made from its beginning.
                    (Some(_), Some(_)) => Err(Stop::Begun),
                    (_, begun) => Ok((held, begun)),
                };
            }
            look = self.pause(if held.is_some() {
                look_ms::<P>()
            } else {
                CHECK_MS
            });
        }
    }

    fn keep_room(&mut self, mut changes: Vec<P::Change>) {
        let used = changes.len();
        changes.clear();
        changes.shrink_to(used * ROOM_KEPT);
        self.spare = changes;
    }

    fn pause(&self, ms: u64) -> BoxFuture<'static, ()> {
        pause(&self.time, ms)
    }

    /// Whether the sink still stands where this projector has left it.
    async fn check(&mut self, ledger: LedgerId, through: Lsn) -> Result<(), Stop> {
        match self.sink.resume(ledger).await {
            // All that was folded is there, or had nothing to be written.
            Ok(found) if found.through == through && found.begun.is_none() => {
                self.applied(self.fold.chain.last(), 0)
            }
            Ok(_) | Err(SinkError::Moved) => return Err(Stop::Moved),
            Err(SinkError::Refused(why)) => return Err(Stop::Fatal(ProjectorError::Sink(why))),
            Err(error @ SinkError::Unavailable(_)) => self.observer().retrying(&error.to_string()),
        }
        Ok(())
    }

    async fn sink_position(&mut self, ledger: LedgerId) -> Result<Resume, Stop> {
        loop {
            match self.sink.resume(ledger).await {
                Ok(resume) => return Ok(resume),
                Err(SinkError::Refused(why)) => {
                    return Err(Stop::Fatal(ProjectorError::Sink(why)));
                }
                Err(error @ (SinkError::Moved | SinkError::Unavailable(_))) => {
                    self.observer().retrying(&error.to_string());
                }
            }
            self.time.pause(RETRY_MS).await;
        }
    }

    /// A batch that was begun has been read as well.
    fn witness(&self, resume: &Resume) -> Witness {
        Witness {
            who: format!("the position of {}", P::NAME),
            lsn: resume.begun.unwrap_or(resume.through),
            digest: resume.digest.filter(|_| resume.begun.is_none()),
        }
    }

    /// The latest snapshot that is not ahead of the sink, or the beginning.
    async fn load_fold(&mut self, ledger: LedgerId, through: Lsn) -> Result<(), Stop> {
        let restore = |snapshot: Snapshot| {
            (snapshot.position() <= through).then_some(())?;
            Some(Fold {
                state: snapshot.upgraded(P::STATE_VERSION, P::upgrade)?,
                chain: snapshot.chain,
            })
        };
        let stored = newest(&self.bus, &snapshot_name::<P>(), ledger, restore).await;
        let (fold, size) = stored.map_err(Stop::Bus)?.unzip();
        self.pace.taken(size.unwrap_or(0));
        self.fold = fold.unwrap_or_else(Fold::new);
        Ok(())
    }

    /// A snapshot that is due, taken here behind a batch, and to be sent once the sink has that batch: one that is ahead of
    /// the sink is of no use.
    fn snapshot(&mut self, ledger: LedgerId) -> Chore {
        if !self.pace.is_due() {
            return None;
        }
        let (chain, room) = (self.fold.chain.clone(), self.pace.room());
        let snapshot = Snapshot::with_room(P::STATE_VERSION, chain, &self.fold.state, room);
        let bytes = snapshot.to_bytes(ledger);
        let name = snapshot_name::<P>();
        let of = (ledger, witness(&name, &snapshot.chain));
        self.pace.taken(bytes.len());
        let bus = self.bus.clone();
        Some(Box::pin(async move {
            if let Err(error) = bus.save_snapshot(&name, of, bytes).await {
                warn!(%error, projection = P::NAME, "snapshot not saved");
            }
        }))
    }

    /// Makes a batch while the one before goes out, so that neither waits for the other: a store writes, this folds. None when
    /// that has gone out, or it is time to look at the sink, and there is nothing to make one of.
    async fn gather(
        &mut self,
        records: &mut B::Records,
        bounds: Bounds,
        going: Option<&Batch<P::Change>>,
        (breather, check): (
            &mut Option<BoxFuture<'static, ()>>,
            &mut BoxFuture<'static, ()>,
        ),
    ) -> Result<Option<Batch<P::Change>>, Stop> {
        let Self {
            sink,
            time,
            observer,
            fold,
            pace,
            spare,
            left_at,
            ..
        } = self;
        // Gives the pause behind the batch.
        let mut out = pin!(async {
            let Some(batch) = going else {
                return Ok(None);
            };
            apply(sink, batch, time, observer).await?;
            *left_at = Some(batch.to);
            let changes = batch.changes.len();
            {
                let mut observer = told(observer);
                observer.applied(batch.to, changes);
                observer.reached(bounds.reached);
            }
            let pauses = !P::BATCHING.is_prompt();
            Ok::<_, Stop>(pauses.then(|| pause(time, P::BATCHING.pause(changes))))
        });
        let mut goes = going.is_some();
        let gathered = async {
            let first = select! {
                biased;
                gone = &mut out, if goes => {
                    goes = false;
                    *breather = gone?;
                    return Ok(None);
                }
                record = records.recv(), if bounds.reads => record,
                () = &mut *check, if !goes && bounds.begun.is_none() => {
                    *check = future::ready(()).boxed();
                    return Ok(None);
                }
            };
            let mut changes = std::mem::take(spare);
            let mut take = |record: Result<Record, BusError>, changes: &mut Vec<P::Change>| {
                let record = record.map_err(Stop::Bus)?;
                pace.read(record.frame.len());
                let frame = fold.take(&record, changes)?;
                told(observer).received(&frame);
                Ok::<_, Stop>((frame.lsn, frame.count as usize))
            };
            let (mut lsn, mut events) = take(first, &mut changes)?;
            if let Some(to) = bounds.begun {
                // Exactly the bounds of the batch that was begun.
                while lsn < to {
                    lsn = take(records.recv().await, &mut changes)?.0;
                }
            } else {
                let mut taken = 1;
                while events < P::BATCHING.events_max && taken < P::BATCHING.frames_max {
                    let record = select! {
                        biased;
                        gone = &mut out, if goes => {
                            goes = false;
                            *breather = gone?;
                            continue;
                        }
                        record = records.recv() => record,
                        () = over(breather), if !goes => {
                            *breather = None;
                            break;
                        }
                    };
                    events += take(record, &mut changes)?.1;
                    taken += 1;
                }
            }
            Ok::<_, Stop>(Some(changes))
        };
        let gathered = gathered.await;
        if goes {
            // Nothing is left half written, whatever was read meanwhile.
            let gone = out.await;
            if gathered.is_ok() {
                *breather = gone?;
            }
        }
        let Some(mut changes) = gathered? else {
            return Ok(None);
        };
        fold.state.end_batch(&mut changes);
        Ok(Some(Batch {
            ledger: bounds.ledger,
            after: bounds.after,
            to: fold.chain.last(),
            digest: fold.chain.digest(),
            changes,
        }))
    }
}

/// Until the sink has it.
async fn apply<S: Sink, T: Time>(
    sink: &mut S,
    batch: &Batch<S::Change>,
    time: &T,
    observer: &Mutex<Box<dyn ProjectorObserver>>,
) -> Result<(), Stop> {
    loop {
        match sink.apply(batch).await {
            Ok(()) => return Ok(()),
            Err(SinkError::Moved) => return Err(Stop::Moved),
            Err(SinkError::Refused(why)) => {
                return Err(Stop::Fatal(ProjectorError::Sink(why)));
            }
            Err(error @ SinkError::Unavailable(_)) => {
                told(observer).retrying(&error.to_string());
            }
        }
        time.pause(RETRY_MS).await;
    }
}

fn told(
    observer: &Mutex<Box<dyn ProjectorObserver>>,
) -> MutexGuard<'_, Box<dyn ProjectorObserver>> {
    // Whoever panicked while it was told has not left it in the middle of anything that is decided by.
    observer.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pause<T: Time>(time: &T, ms: u64) -> BoxFuture<'static, ()> {
    let time = time.clone();
    async move { time.pause(ms).await }.boxed()
}

/// At once, where there is none.
async fn over(breather: &mut Option<BoxFuture<'static, ()>>) {
    if let Some(running) = breather {
        running.await;
    }
}

fn look_ms<P: Projection>() -> u64 {
    if P::BATCHING.is_prompt() {
        LOOK_MS
    } else {
        LOOK_BULK_MS
    }
}

async fn its_turn(turn: &mut Option<watch::Receiver<bool>>) {
    match turn {
        Some(turn) => said(turn).await,
        None => future::pending().await,
    }
}

fn snapshot_name<P: Projection>() -> String {
    format!("projection-{}", P::NAME)
}
