//! Drives a decider: reads its inputs, decides, appends one frame at a time, and steps back when it is fenced.

use crate::{
    chore::{Chore, beside},
    question::{self, Question, View},
    snapshots::{Pace, newest, testify, witness},
};
use futures::{FutureExt, future::BoxFuture};
use ledger::{
    AppendError, Backlog, Bus, BusError, ChainError, Decider, Digest, Figures, Frame, Handled,
    Inbox, InboxLimits, InboxMessage, LedgerId, Record, Rehearsed, Replica, ReplicaError, Sealed,
    Snapshot, Tail, Time, Witness, Witnesses,
    bus::{all_bear_out, follow},
};
use std::{
    future::{Future, pending},
    sync::Arc,
};
use tokio::{
    select,
    sync::{mpsc, watch},
};
use tracing::{info, warn};
use vocab::{Lsn, Millis};

#[derive(Debug, thiserror::Error)]
pub enum LeaderError {
    /// The ledger breaks its own rules, or a decision its state's. Going on would make it worse.
    #[error(transparent)]
    Replica(#[from] ReplicaError),
    #[error(transparent)]
    Bus(BusError),
    /// The inbox's stream was deleted and made anew: its messages would be taken for ones that were handled long ago.
    #[error(
        "{inbox:?}: the stream ends at {end}, but messages up to {decided} were decided; it is another stream"
    )]
    InboxMadeAnew {
        inbox: Inbox,
        end: u64,
        decided: u64,
    },
}

/// What a leader is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Recovering,
    Leading,
    /// Another leader is at work; this one folds along.
    Standby,
}

/// What the shell wants to know of a leader's work: for metrics, traces and health. Never for decisions.
pub trait Observer: Send + Sync {
    fn standing(&mut self, _standing: Standing) {}
    /// The ledger was read up to here.
    fn read(&mut self, _through: Lsn) {}
    /// Another writer's frame is about to be folded.
    fn received(&mut self, _frame: &Frame) {}
    /// An own frame is about to be appended.
    fn appending(&mut self, _bytes: usize) {}
    /// It is durable.
    fn committed(&mut self, _frame: &Frame) {}
    fn fenced(&mut self) {}
    /// The bus could not be reached and is tried again.
    fn retrying(&mut self, _why: &BusError) {}
    /// What the leader's state shows can be read now. Real milliseconds until it is to be offered again; none: it is not
    /// wanted.
    fn look(&mut self, _read: &dyn Fn(&mut Figures)) -> Option<u64> {
        None
    }
}

/// For who does not want to know.
pub struct NoObserver;
impl Observer for NoObserver {}

/// Makes commands of a message at the inbox and puts them behind those that are there; they are handled in one frame. Total:
/// what cannot be read becomes a command that says so.
pub type Decode<C> = Arc<dyn Fn(&InboxMessage, &mut Vec<C>) + Send + Sync>;

pub struct LeaderOptions<D: Decider> {
    pub config: D::Config,
    /// Random, of this process.
    pub leader: [u8; 16],
    pub inbox: Option<(Inbox, Decode<D::Command>)>,
    /// Commands from the shell itself; they are not recorded and may be lost.
    pub local: Option<mpsc::Receiver<D::Command>>,
    /// What is asked about its state. One is answered between two frames, and each when there is nothing to decide.
    pub questions: Option<mpsc::Receiver<Question<D>>>,
    /// Where effects go, once what caused them is durable.
    pub effects: Option<mpsc::UnboundedSender<D::Effect>>,
    /// Frames, of all writers, between snapshots; more, if there was little in them. 0: one behind each frame
    /// that lands while none is being saved.
    pub snapshot_every: u64,
    pub backlog: InboxLimits,
    /// Events of other writers after which it says how far it has read, though it has decided nothing: another one may wait
    /// for that. Fewer than anybody waits for.
    pub says_after: u64,
    /// Real milliseconds without progress of the active leader after which a standby takes over.
    pub takeover_after_ms: u64,
    /// Becomes true when this process is to end: a leader hands over.
    pub resign: watch::Receiver<bool>,
}

/// So often does a standby look, while `takeover_after_ms` passes, whether the leader lives; and by a look's time a leader has
/// confirmed what it has read, though there is nothing else to say. So a standby that finds at all looks that something
/// waits can tell a dead leader from one with nothing to say.
const LOOKS: u64 = 5;

/// Records folded before the next decision, at the most: bounds the time to a frame.
const INPUTS_MAX: usize = 4096;
/// Messages read from the inbox before the next decision, at the most: who sends few must not wait until those of who sends
/// many have been decided.
const MESSAGES_MAX: usize = 32_768;
/// Messages at the inbox between trims.
const TRIM_EVERY: u64 = 1000;
/// Real milliseconds after which the inbox is trimmed of whatever was decided, however little that is.
const TRIM_AFTER_MS: u64 = 100;
/// Real milliseconds that input may pile up when some is there already as a frame lands: one synced append costs all who
/// share the disk the same, whatever it holds.
const CROWDED_MS: u64 = 2;
/// The same when it was so for some frames in a row: twice as long after each.
const CROWDED_MS_MAX: u64 = 8;
/// Real milliseconds before the bus is tried again.
const RETRY_MS: u64 = 100;

pub struct Leader<D: Decider, B: Bus, T: Time> {
    bus: B,
    time: T,
    options: LeaderOptions<D>,
    observer: Box<dyn Observer>,
    ledger: LedgerId,
    chore: Chore,
    /// Until the inbox is to be trimmed.
    trim_due: Option<BoxFuture<'static, ()>>,
    /// Until what was read is to be confirmed.
    word_due: Option<BoxFuture<'static, ()>>,
    /// Until it is to prove that it leads.
    proof_due: Option<BoxFuture<'static, ()>>,
    /// Until its state is to be looked at.
    look_due: Option<BoxFuture<'static, ()>>,
    proof_every: Option<u64>,
    /// Of the message that is handled: the list is kept for the next one.
    commands: Vec<D::Command>,
}

struct Term<D: Decider, B: Bus> {
    replica: Replica<D>,
    records: B::Records,
    epoch: u64,
    /// What was read at the inbox, and how far it is handled by the draft in the making.
    backlog: Backlog,
    /// The next message knows more than this replica. It waits until that has caught up.
    behind: bool,
    trimmed: u64,
    pace: Pace,
    /// The writer's last frame is the last of its leader.
    resigned: bool,
    /// Nothing comes of the deadline that has passed.
    vain: Option<Rehearsed>,
    /// When the last frame of this term that has landed was sent.
    led: Option<Millis>,
}

impl<D: Decider, B: Bus> Term<D, B> {
    /// Continues behind the last frame, whoever wrote it.
    fn take_over(&mut self, limits: InboxLimits) {
        let head = self.replica.head();
        self.epoch = head.epoch + 1;
        self.trimmed = head.handled.through;
        self.backlog = Backlog::new(head.handled, limits);
        self.behind = false;
        self.resigned = false;
        self.led = None;
    }

    /// Before the writer's first frame nobody stands by; and a bare one with nothing before it would be taken by any ledger,
    /// also by one that was made anew under the same name.
    fn has_listeners(&self) -> bool {
        self.replica.head().frame_no > 0
    }

    /// Whether it has taken in something and not said so.
    fn owes_word(&self) -> bool {
        self.has_listeners() && self.replica.is_unsaid()
    }
}

impl<D: Decider, B: Bus, T: Time> Leader<D, B, T> {
    /// Looks up which ledger it is, waiting for the bus if need be.
    pub async fn new(
        bus: B,
        time: T,
        options: LeaderOptions<D>,
        mut observer: Box<dyn Observer>,
    ) -> Self {
        let ledger = loop {
            match bus.ledger_id().await {
                Ok(id) => break id,
                Err(error) => observer.retrying(&error),
            }
            time.pause(RETRY_MS).await;
        };
        Self {
            bus,
            time,
            options,
            observer,
            ledger,
            chore: None,
            trim_due: None,
            word_due: None,
            proof_due: None,
            look_due: None,
            proof_every: None,
            commands: Vec::new(),
        }
    }

    /// Leads, steps back, follows, takes over, until it is to resign or on an error that no retry can mend. Dropping it is a
    /// crash, and as safe as one.
    pub async fn run(mut self) -> Result<(), LeaderError> {
        let mut resign = self.options.resign.clone();
        let mut follows = false;
        loop {
            // Who does not lead has nothing to hand over.
            let mut term = select! {
                biased;
                () = said(&mut resign) => return Ok(()),
                term = self.prepare(follows) => term?,
            };
            self.observer.standing(Standing::Leading);
            match self.lead(&mut term).await {
                Ok(Left::Resigned) => return Ok(()),
                Ok(Left::Fenced) => follows = true,
                Err(error) => {
                    if let LeaderError::Bus(error) = &error {
                        let (name, read) = (D::WRITER.name(), term.replica.witness());
                        testify(&self.bus, name, self.ledger, read, error).await;
                    }
                    return Err(error);
                }
            }
            self.observer.fenced();
            warn!(writer = D::WRITER.name(), epoch = term.epoch, "fenced");
        }
    }

    /// All that comes before leading. After a fence the state holds what was never recorded, so it is made anew, and
    /// another leader is followed.
    async fn prepare(&mut self, follows: bool) -> Result<Term<D, B>, LeaderError> {
        self.observer.standing(Standing::Recovering);
        let mut term = self.retry_recover().await?;
        if follows {
            self.observer.standing(Standing::Standby);
            self.stand_by(&mut term).await?;
        }
        term.take_over(self.options.backlog);
        let (own, newest) = (term.replica.head().now, term.replica.newest());
        self.set_clock(own, newest).await?;
        Ok(term)
    }

    /// Asks the bus for its time, and tells the clock what others say.
    async fn set_clock(&mut self, own: Millis, newest: Millis) -> Result<(), LeaderError> {
        let server = loop {
            match self.bus.server_time().await {
                Ok(server) => break server,
                Err(error) => self.wait_for_bus(error).await?,
            }
        };
        self.time.set(&Witnesses {
            own,
            newest,
            server,
        });
        Ok(())
    }

    async fn retry_recover(&mut self) -> Result<Term<D, B>, LeaderError> {
        loop {
            match self.recover().await {
                Ok(term) => return Ok(term),
                Err(Trouble::Bus(error)) => self.wait_for_bus(error).await?,
                Err(Trouble::Replica(ReplicaError::Overtaken(_))) => {}
                Err(Trouble::Replica(error)) => return Err(error.into()),
            }
        }
    }

    async fn wait_for_bus(&mut self, error: BusError) -> Result<(), LeaderError> {
        if error.is_fatal() {
            return Err(LeaderError::Bus(error));
        }
        self.observer.retrying(&error);
        self.time.pause(RETRY_MS).await;
        Ok(())
    }

    /// Folds, from a snapshot if there is one, up to the writer's own last frame.
    async fn recover(&mut self) -> Result<Term<D, B>, Trouble> {
        let own = self.bus.last(D::WRITER).await?;
        let target = own.as_ref().map_or(Lsn(0), |record| record.lsn);
        // What others have read counts as well: who leads on a ledger that lost its end writes over what they saw there.
        all_bear_out(&self.bus, self.ledger).await?;
        let mut pace = Pace::new(self.options.snapshot_every);
        let restore = |snapshot: Snapshot| {
            // An active leader may have saved one since.
            let old = snapshot.chain.head(D::WRITER).lsn <= target;
            old.then(|| Replica::restore(&snapshot)).flatten()
        };
        let stored = newest(&self.bus, D::WRITER.name(), self.ledger, restore).await?;
        let mut replica = Replica::default();
        if let Some((restored, size)) = stored {
            pace.taken(size);
            replica = restored;
        }
        let from_frame = replica.head().frame_no;
        let mut read = replica.witness();
        if let Some(own) = own.as_ref().filter(|own| own.lsn > read.lsn) {
            read = Witness {
                lsn: own.lsn,
                digest: Some(Digest::of(&own.frame)),
                ..read
            };
        }
        let mut records = follow(&self.bus, replica.next(), &read).await?;
        while replica.head().lsn < target {
            let record = records.recv().await?;
            pace.read(record.frame.len());
            if let Some(frame) = replica.receive(&record)? {
                self.observer.received(&frame);
            }
            self.observer.read(record.lsn);
        }
        self.observer.read(Lsn(replica.next().0 - 1));
        let head = replica.head();
        info!(
            writer = D::WRITER.name(),
            frame_no = head.frame_no,
            from_frame,
            "recovered"
        );
        Ok(Term {
            replica,
            records,
            epoch: 0,
            backlog: Backlog::new(Handled::default(), self.options.backlog),
            behind: false,
            trimmed: 0,
            pace,
            resigned: own.is_some_and(|record| record.resigned()),
            vain: None,
            led: None,
        })
    }

    async fn lead(&mut self, term: &mut Term<D, B>) -> Result<Left, LeaderError> {
        // What the fold has left behind is of another time.
        drop(term.replica.state_mut().take_effects());
        self.look(term);
        let mut messages = self.open_inbox(term).await?;
        // The first round decides what recovery has left over.
        let mut woken: Option<Woken<D>> = None;
        let mut crowded_ms = CROWDED_MS;
        loop {
            // A busy leader may never wait.
            if due(&mut self.look_due).now_or_never().is_some() {
                self.look(term);
            }
            // Between two frames, so that nothing is half done.
            self.answer_one(term);
            if *self.options.resign.borrow() {
                self.resign(term).await?;
                return Ok(Left::Resigned);
            }
            let turn = match self.round(term, &mut messages, woken.take()).await {
                Ok(Round::Fenced) => return Ok(Left::Fenced),
                Ok(Round::Again) => Ok(()),
                Ok(round) => match self.crowd(term, &mut messages, round) {
                    Ok(Some(input)) => {
                        woken = Some(input);
                        beside(&mut self.chore, self.time.pause(crowded_ms)).await;
                        crowded_ms = (crowded_ms * 2).min(CROWDED_MS_MAX);
                        Ok(())
                    }
                    Ok(None) => {
                        crowded_ms = CROWDED_MS;
                        let what = self.wait_and_answer(term, &mut messages).await;
                        what.map(|what| woken = Some(what)).map_err(Trouble::from)
                    }
                    Err(trouble) => Err(trouble),
                },
                Err(trouble) => Err(trouble),
            };
            match turn {
                Ok(()) => {}
                Err(Trouble::Bus(error)) => {
                    self.wait_for_bus(error).await?;
                    self.reopen(term, &mut messages).await?;
                }
                Err(Trouble::Replica(ReplicaError::Overtaken(_))) => return Ok(Left::Fenced),
                Err(Trouble::Replica(error)) => return Err(error.into()),
            }
        }
    }

    /// Says that the frame is the last of this leader, so that a standby need not wait for its silence. It does not matter
    /// if another one leads already.
    async fn resign(&mut self, term: &mut Term<D, B>) -> Result<(), LeaderError> {
        if !term.has_listeners() {
            return Ok(());
        }
        let sealed = self.bare(term, true);
        if self.record(term, &sealed).await.map_err(LeaderError::Bus)? {
            info!(writer = D::WRITER.name(), "resigned");
        }
        Ok(())
    }

    /// Appends a frame; whether it has landed, and this one leads on.
    async fn record(&mut self, term: &mut Term<D, B>, sealed: &Sealed) -> Result<bool, BusError> {
        let sent = self.time.now();
        let Some(lsn) = self.append(sealed).await? else {
            return Ok(false);
        };
        term.replica.committed(sealed, lsn);
        term.led = Some(sent);
        self.proof_due = None;
        self.observer.committed(&sealed.at(lsn));
        Ok(true)
    }

    /// Shows the state to whom it may concern.
    fn look(&mut self, term: &Term<D, B>) {
        let (state, now) = (term.replica.state(), self.time.now());
        let next = self.observer.look(&|figures| state.show(now, figures));
        self.look_due = next.map(|ms| {
            let time = self.time.clone();
            async move { time.pause(ms).await }.boxed()
        });
    }

    /// One of the questions that wait, so that however many are asked, decisions go on.
    fn answer_one(&mut self, term: &mut Term<D, B>) {
        let asked = self.options.questions.as_mut();
        if let Some(question) = asked.and_then(|asked| asked.try_recv().ok()) {
            self.answer(term, question);
        }
    }

    fn answer(&self, term: &mut Term<D, B>, question: Question<D>) {
        let view = View {
            lsn: term.replica.folded(),
            now: self.time.now().max(term.replica.head().now),
        };
        question.answer(term.replica.state_mut(), &view);
    }

    fn bare(&self, term: &mut Term<D, B>, resigned: bool) -> Sealed {
        let (now, leader) = (self.time.now(), &self.options.leader);
        let handled = term.backlog.handled();
        term.replica
            .seal_bare(now, leader, term.epoch, handled, resigned)
    }

    /// Input that is there already as a frame lands. The writer's own frames are none, and neither is the inbox's trim.
    fn crowd(
        &mut self,
        term: &mut Term<D, B>,
        messages: &mut Option<B::Messages>,
        round: Round,
    ) -> Result<Option<Woken<D>>, Trouble> {
        if !matches!(round, Round::Appended) {
            return Ok(None);
        }
        while let Some(woken) = self.wait(term, messages).now_or_never() {
            match woken? {
                Woken::Record(record) if record.writer == D::WRITER => {
                    self.take_in(term, &record)?;
                }
                Woken::TrimDue => self.trim(term),
                Woken::LookDue => self.look(term),
                Woken::Question(question) => self.answer(term, question),
                // It is said with what is next, or waited for again.
                Woken::WordDue | Woken::ProofDue => {}
                // Nothing piles up for it.
                Woken::Deadline | Woken::Resign => return Ok(None),
                input => return Ok(Some(input)),
            }
        }
        Ok(None)
    }

    /// Messages that have not been read from the inbox. The term is borrowed mutably, since a shared
    /// one could not cross threads.
    async fn open_inbox(
        &mut self,
        term: &mut Term<D, B>,
    ) -> Result<Option<B::Messages>, LeaderError> {
        let Some((inbox, _)) = &self.options.inbox else {
            return Ok(None);
        };
        let (inbox, from) = (*inbox, term.backlog.next());
        let decided = term.replica.head().handled.last();
        loop {
            match inbox_from(&self.bus, inbox, from).await {
                Ok((end, _)) if end < decided => {
                    return Err(LeaderError::InboxMadeAnew {
                        inbox,
                        end,
                        decided,
                    });
                }
                Ok((_, messages)) => return Ok(Some(messages)),
                Err(error) => self.wait_for_bus(error).await?,
            }
        }
    }

    async fn reopen(
        &mut self,
        term: &mut Term<D, B>,
        messages: &mut Option<B::Messages>,
    ) -> Result<(), LeaderError> {
        self.reopen_records(term).await?;
        *messages = self.open_inbox(term).await?;
        self.observer.standing(Standing::Leading);
        Ok(())
    }

    async fn reopen_records(&mut self, term: &mut Term<D, B>) -> Result<(), LeaderError> {
        term.records = loop {
            let (next, read) = (term.replica.next(), term.replica.witness());
            let opened = async {
                all_bear_out(&self.bus, self.ledger).await?;
                follow(&self.bus, next, &read).await
            };
            match opened.await {
                Ok(records) => break records,
                Err(error) => self.wait_for_bus(error).await?,
            }
        };
        Ok(())
    }

    /// Nothing to decide: waits for an input, a message, a command or the state's own deadline.
    async fn wait(
        &mut self,
        term: &mut Term<D, B>,
        messages: &mut Option<B::Messages>,
    ) -> Result<Woken<D>, BusError> {
        let wake_at = term.replica.state().wake_at();
        let every = term.replica.state().proves_every(&self.options.config);
        let changed = every != std::mem::replace(&mut self.proof_every, every);
        match every {
            None => self.proof_due = None,
            Some(ms) if (changed || self.proof_due.is_none()) && term.has_listeners() => {
                let time = self.time.clone();
                let at = time.now().plus(i64::try_from(ms).unwrap_or(i64::MAX));
                self.proof_due = Some(Box::pin(async move { time.sleep_until(at).await }));
            }
            Some(_) => {}
        }
        let local = self.options.local.as_mut();
        let questions = &mut self.options.questions;
        let handled = term.replica.head().handled.through;
        let lies = handled > term.trimmed || term.backlog.lying() > 0;
        if lies && self.trim_due.is_none() {
            let time = self.time.clone();
            self.trim_due = Some(Box::pin(async move { time.pause(TRIM_AFTER_MS).await }));
        }
        if term.owes_word() && self.word_due.is_none() {
            let (time, ms) = (self.time.clone(), self.options.takeover_after_ms / LOOKS);
            self.word_due = Some(Box::pin(async move { time.pause(ms).await }));
        }
        let (trim_due, word_due) = (&mut self.trim_due, &mut self.word_due);
        let (proof_due, look_due) = (&mut self.proof_due, &mut self.look_due);
        let resign = &mut self.options.resign;
        let time = &self.time;
        let woken = async {
            select! {
                biased;
                () = said(resign) => Ok(Woken::Resign),
                record = term.records.recv() => Ok(Woken::Record(record?)),
                message = async { match messages { Some(m) => m.recv().await, None => pending().await } } => {
                    Ok(Woken::Message(message?))
                }
                command = async { match local { Some(l) => match l.recv().await { Some(c) => c, None => pending().await }, None => pending().await } } => {
                    Ok(Woken::Command(command))
                }
                question = question::next(questions) => Ok(Woken::Question(question)),
                () = async { match wake_at { Some(at) => time.sleep_until(at).await, None => pending().await } } => {
                    Ok(Woken::Deadline)
                }
                () = due(trim_due) => Ok(Woken::TrimDue),
                () = due(word_due) => Ok(Woken::WordDue),
                () = due(proof_due) => Ok(Woken::ProofDue),
                () = due(look_due) => Ok(Woken::LookDue),
            }
        };
        beside(&mut self.chore, woken).await
    }

    /// The same; what is asked meanwhile is answered.
    async fn wait_and_answer(
        &mut self,
        term: &mut Term<D, B>,
        messages: &mut Option<B::Messages>,
    ) -> Result<Woken<D>, BusError> {
        loop {
            match self.wait(term, messages).await? {
                Woken::Question(question) => self.answer(term, question),
                woken => return Ok(woken),
            }
        }
    }

    /// Takes in what has piled up, decides, and appends one frame.
    async fn round(
        &mut self,
        term: &mut Term<D, B>,
        messages: &mut Option<B::Messages>,
        woken: Option<Woken<D>>,
    ) -> Result<Round, Trouble> {
        let mut first_command = None;
        let mut caught_up = std::mem::take(&mut term.behind);
        let word_due = matches!(woken, Some(Woken::WordDue));
        // The first frame of a term takes the word from whoever led before.
        let counted_on = term.has_listeners() && term.replica.state().is_counted_on();
        let unproved = term.led.is_none() && counted_on;
        let proof_due = unproved || matches!(woken, Some(Woken::ProofDue));
        match woken {
            Some(Woken::Record(record)) => self.take_in(term, &record)?,
            Some(Woken::Message(message)) => term.backlog.push(message),
            Some(Woken::Command(command)) => first_command = Some(command),
            Some(Woken::TrimDue) => self.trim(term),
            Some(Woken::LookDue) => self.look(term),
            // Nothing is decided for a question.
            Some(Woken::Question(question)) => self.answer(term, question),
            Some(Woken::Deadline | Woken::WordDue | Woken::ProofDue | Woken::Resign) | None => {}
        }
        if caught_up || unproved {
            self.catch_up(term).await?;
        }
        let mut lost = None;
        for _ in 0..INPUTS_MAX {
            match term.records.try_recv() {
                Some(Ok(record)) => self.take_in(term, &record)?,
                // Nothing more is decided on a ledger that cannot be read on.
                Some(Err(error)) if error.is_fatal() => return Err(error.into()),
                // A command comes only once, so it is handled on what is known before anything is opened anew.
                Some(Err(error)) => {
                    lost = Some(error);
                    break;
                }
                None => break,
            }
        }
        if let Some(messages) = messages.as_mut() {
            for _ in 0..MESSAGES_MAX {
                match messages.try_recv() {
                    Some(Ok(message)) => term.backlog.push(message),
                    Some(Err(error)) => {
                        lost = Some(error);
                        break;
                    }
                    None => break,
                }
            }
        }
        if lost.is_none() {
            lost = self.fetch(term).await.err();
        }
        term.replica.fold_all()?;

        let mut draft = term.replica.draft(self.time.now(), self.bus.level());
        draft.led = term.led;
        let config = self.options.config.clone();
        let state = term.replica.state_mut();
        if let Some(command) = first_command {
            state.handle(command, &config, &mut draft);
        }
        if let Some(local) = self.options.local.as_mut() {
            for _ in 0..INPUTS_MAX {
                match local.try_recv() {
                    Ok(command) if !draft.full() => state.handle(command, &config, &mut draft),
                    _ => break,
                }
            }
        }
        if let Some((_, decode)) = &self.options.inbox {
            // What has been handled is in the state and must get into a frame first.
            let commands = &mut self.commands;
            while !draft.full()
                && let Some(taken) = term.backlog.take()
            {
                commands.clear();
                decode(&taken.message, commands);
                let behind = commands.iter().any(|command| state.is_behind(command));
                // Inputs cannot be folded into a draft that has begun.
                if !std::mem::take(&mut caught_up) && behind {
                    term.backlog.put_back(taken);
                    term.behind = true;
                    break;
                }
                let operations = commands.len();
                let before = draft.count();
                draft.spend_on(operations);
                for command in commands.drain(..) {
                    state.handle(command, &config, &mut draft);
                }
                let events = match D::READERS {
                    [] => 0,
                    _ => draft.count() - before,
                };
                term.backlog.done(&taken, operations, events);
            }
        }
        state.decide(&config, &mut draft);
        let more = draft.full() || !term.backlog.is_idle();

        let leader = self.options.leader;
        let says_after = self.options.says_after;
        let handled = term.backlog.handled();
        let sealed = term
            .replica
            .seal(draft, &leader, term.epoch, handled, says_after)?;
        let sealed = match sealed {
            None if proof_due || word_due && term.owes_word() => Some(self.bare(term, false)),
            sealed => sealed,
        };
        let Some(sealed) = sealed else {
            self.release_effects(term);
            return match lost {
                Some(error) => Err(error.into()),
                None if more => Ok(Round::Again),
                None => Ok(Round::Idle),
            };
        };
        self.observer.appending(sealed.bytes().len());
        if !self.record(term, &sealed).await? {
            return Ok(Round::Fenced);
        }
        term.backlog.recorded(term.replica.head().lsn);
        term.backlog.read_through(term.replica.read_by(D::READERS));
        self.release_effects(term);
        let handled = term.replica.head().handled.through;
        if handled >= term.trimmed + TRIM_EVERY || term.backlog.lying() >= TRIM_EVERY {
            self.trim(term);
        }
        self.save_snapshot(term);
        if let Some(error) = lost {
            return Err(error.into());
        }
        Ok(if more { Round::Again } else { Round::Appended })
    }

    /// Fetches messages that found no room when they were read and are next now.
    async fn fetch(&mut self, term: &mut Term<D, B>) -> Result<(), BusError> {
        let absent = term.backlog.absent();
        let Some((inbox, _)) = &self.options.inbox else {
            return Ok(());
        };
        if absent.is_empty() {
            return Ok(());
        }
        let seqs = absent.iter().map(|(_, seq)| *seq).collect();
        let fetch = self.bus.inbox_at(*inbox, seqs);
        let fetched = beside(&mut self.chore, fetch).await?;
        for ((sender, seq), message) in absent.iter().zip(fetched) {
            term.backlog.bring(sender, *seq, message);
        }
        Ok(())
    }

    /// Reads up to where the ledger ends now.
    async fn catch_up(&mut self, term: &mut Term<D, B>) -> Result<(), Trouble> {
        let end = self.bus.end().await?;
        while term.replica.next() <= end {
            let record = term.records.recv().await?;
            self.take_in(term, &record)?;
        }
        Ok(())
    }

    fn release_effects(&mut self, term: &mut Term<D, B>) {
        for effect in term.replica.state_mut().take_effects() {
            if let Some(effects) = &self.options.effects {
                // The receiver ends only with the process.
                let _ = effects.send(effect);
            }
        }
    }

    fn take_in(&mut self, term: &mut Term<D, B>, record: &Record) -> Result<(), Trouble> {
        term.pace.read(record.frame.len());
        self.observer.read(record.lsn);
        if let Some(frame) = term.replica.receive(record)? {
            if frame.writer == D::WRITER {
                // Somebody else leads. What this term knows is folded, but its own inbox and clock are behind.
                return Err(ReplicaError::Overtaken(frame.lsn).into());
            }
            if D::READERS.contains(&frame.writer) {
                term.backlog.read_through(term.replica.read_by(D::READERS));
            }
            self.observer.received(&frame);
        }
        Ok(())
    }

    /// The position, or none when fenced. After a lost acknowledgement the writer's last record tells which of the two.
    async fn append(&mut self, sealed: &Sealed) -> Result<Option<Lsn>, BusError> {
        let (expected, through) = (sealed.expected_last, sealed.through);
        loop {
            let writing = sealed.writing();
            let append = self.bus.append(D::WRITER, expected, through, writing);
            match beside(&mut self.chore, append).await {
                Ok(lsn) => return Ok(Some(lsn)),
                Err(AppendError::Shortened(end)) => {
                    return Err(BusError::Shortened {
                        end,
                        witness: D::WRITER.name().to_owned(),
                        read: through,
                    });
                }
                Err(AppendError::Unknown(why)) => {
                    self.observer.retrying(&BusError::Unavailable(why));
                }
                // A retry of a frame that had landed is refused like any other: look before believing it.
                Err(AppendError::Fenced) => {}
            }
            match self.bus.last(D::WRITER).await {
                Ok(Some(record)) if record.frame == *sealed.bytes() => return Ok(Some(record.lsn)),
                Ok(last) => {
                    let lsn = last.map_or(Lsn(0), |record| record.lsn);
                    if lsn != expected {
                        return Ok(None);
                    }
                }
                Err(error) => self.observer.retrying(&error),
            }
            self.time.pause(RETRY_MS).await;
        }
    }

    /// What was decided, durably, leaves the inbox while decisions go on. When it cannot, the next trim makes up for it.
    fn trim(&mut self, term: &mut Term<D, B>) {
        let Some((inbox, _)) = &self.options.inbox else {
            return;
        };
        if self.chore.is_some() {
            return;
        }
        let (bus, inbox) = (self.bus.clone(), *inbox);
        let handled = term.replica.head().handled;
        let ahead = term.backlog.trim(&handled);
        let through = handled.through;
        if through == term.trimmed && ahead.is_empty() {
            return;
        }
        term.trimmed = through;
        self.chore = Some(Box::pin(async move {
            if let Err(error) = bus.inbox_trim(inbox, through, ahead).await {
                warn!(%error, ?inbox, "inbox not trimmed");
            }
        }));
    }

    /// Taken here, sent while decisions go on. One that cannot be saved is only a slower start.
    fn save_snapshot(&mut self, term: &mut Term<D, B>) {
        if !term.pace.is_due() || self.chore.is_some() {
            return;
        }
        let snapshot = term.replica.snapshot_with_room(term.pace.room());
        let bytes = snapshot.to_bytes(self.ledger);
        let of = (self.ledger, witness(D::WRITER.name(), &snapshot.chain));
        term.pace.taken(bytes.len());
        let bus = self.bus.clone();
        self.chore = Some(Box::pin(async move {
            if let Err(error) = bus.save_snapshot(D::WRITER.name(), of, bytes).await {
                warn!(%error, writer = D::WRITER.name(), "snapshot not saved");
            }
        }));
    }

    /// Folds along behind the active leader, until that one resigns, or has made no progress for a while though it had cause
    /// to all the time.
    async fn stand_by(&mut self, term: &mut Term<D, B>) -> Result<(), LeaderError> {
        let mut silent = 0;
        while silent < LOOKS && !term.resigned {
            // What the shell says is for the one who decides.
            if let Some(local) = self.options.local.as_mut() {
                while local.try_recv().is_ok() {}
            }
            let before = term.replica.head().frame_no;
            let (time, ms) = (self.time.clone(), self.options.takeover_after_ms / LOOKS);
            let mut look_due = Some(async move { time.pause(ms).await }.boxed());
            let outcome = loop {
                let question = select! {
                    biased;
                    outcome = follow_along(term, &mut *self.observer) => break outcome,
                    () = due(&mut look_due) => break Ok(()),
                    question = question::next(&mut self.options.questions) => question,
                };
                self.answer(term, question);
            };
            match outcome {
                Ok(()) => {}
                Err(Trouble::Bus(error)) => {
                    self.wait_for_bus(error).await?;
                    self.reopen_records(term).await?;
                    self.observer.standing(Standing::Standby);
                    silent = 0;
                    continue;
                }
                Err(Trouble::Replica(error)) => return Err(error.into()),
            }
            let cause = match term.replica.head().frame_no == before {
                true => self.cause(term).await,
                false => None,
            };
            silent = if cause.is_some() { silent + 1 } else { 0 };
            // What a leader keeps in mind and does not record, a standby does not know: only a try can tell. One try: what
            // the copy has kept in mind, such as leases granted anew, it has only since then, and when that is over too
            // and nobody has said anything, a further try would put it off for ever.
            let tried = term
                .vain
                .is_some_and(|vain| vain.is_of(term.replica.next()));
            if silent == LOOKS && matches!(cause, Some(Cause::Deadline)) && !tried {
                let (config, now) = (&self.options.config, self.time.now());
                term.vain = term.replica.rehearse(config, now, self.bus.level());
                silent = if term.vain.is_some() { 0 } else { silent };
            }
        }
        Ok(())
    }

    /// Why a live leader would have written something by now.
    fn cause(
        &self,
        term: &Term<D, B>,
    ) -> impl Future<Output = Option<Cause>> + Send + use<D, B, T> {
        let (replica, now) = (&term.replica, self.time.now());
        let due = replica.state().wake_at().is_some_and(|at| at <= now);
        let vain = term
            .vain
            .is_some_and(|vain| vain.holds(replica.next(), now));
        let deadline = (due && !vain).then_some(Cause::Deadline);
        let waits = replica.has_pending();
        let through = replica.head().handled.through;
        let inbox = self.options.inbox.as_ref().map(|(inbox, _)| *inbox);
        let bus = self.bus.clone();
        async move {
            let waits = match inbox {
                Some(inbox) if !waits => bus.inbox_end(inbox).await.is_ok_and(|end| end > through),
                _ => waits,
            };
            if waits { Some(Cause::Input) } else { deadline }
        }
    }
}

/// Why a standby expects its leader to write.
enum Cause {
    /// Others have said something, or a message is at the inbox.
    Input,
    /// A deadline of the state has passed.
    Deadline,
}

/// The number of the inbox's last message, and its messages from `from` on.
async fn inbox_from<B: Bus>(
    bus: &B,
    inbox: Inbox,
    from: u64,
) -> Result<(u64, B::Messages), BusError> {
    let end = bus.inbox_end(inbox).await?;
    Ok((end, bus.inbox(inbox, from).await?))
}

/// Until it is true; without end if nobody is there to say so.
pub(crate) async fn said(word: &mut watch::Receiver<bool>) {
    if word.wait_for(|said| *said).await.is_err() {
        pending().await
    }
}

async fn due(timer: &mut Option<BoxFuture<'static, ()>>) {
    match timer {
        Some(running) => running.await,
        None => pending().await,
    }
    *timer = None;
}

/// Until the active leader resigns; it is dropped when it is time to look.
async fn follow_along<D: Decider, B: Bus>(
    term: &mut Term<D, B>,
    observer: &mut dyn Observer,
) -> Result<(), Trouble> {
    while !term.resigned {
        let record = term.records.recv().await?;
        term.pace.read(record.frame.len());
        let frame = term.replica.receive(&record)?;
        observer.read(record.lsn);
        if let Some(frame) = frame.filter(|frame| frame.writer == D::WRITER) {
            term.resigned = frame.resigned;
        }
    }
    Ok(())
}

enum Woken<D: Decider> {
    Record(Record),
    Message(InboxMessage),
    Command(D::Command),
    Question(Question<D>),
    Deadline,
    /// The inbox has held for a while what was decided.
    TrimDue,
    /// What was read is not confirmed for a while.
    WordDue,
    /// Somebody counts on it that it leads.
    ProofDue,
    /// Its state is to be looked at.
    LookDue,
    Resign,
}

/// Why it leads no more.
enum Left {
    Resigned,
    Fenced,
}

enum Round {
    /// The draft was full: there is more to decide.
    Again,
    Appended,
    Idle,
    Fenced,
}

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Bus(#[from] BusError),
    #[error(transparent)]
    Replica(#[from] ReplicaError),
}

impl From<ChainError> for Trouble {
    fn from(error: ChainError) -> Self {
        Self::Replica(error.into())
    }
}
