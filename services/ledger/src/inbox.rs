//! What waits at an inbox, by sender, and whose turn it is: deficit round robin, so that a sender's backlog is its own.
//!
//! An inbox is one stream and is read in the stream's order. What was read waits in a line of its sender. Lines are served by
//! turns (M. Shreedhar, G. Varghese: Efficient fair queuing using deficit round robin, 1995), in the form that is paid for
//! afterwards, because what a message costs is known when it was decided. A sender's own messages keep their order.

use crate::bus::InboxMessage;
use serde::{Deserialize, Serialize};
use slab::Slab;
use std::collections::{BTreeMap, VecDeque};
use vocab::{
    Lsn, Token,
    sabotage::{self, Bug},
    subjects::OPERATOR,
};

/// How far an inbox was handled: all messages up to one position, and of single senders those up to another one behind it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handled {
    pub through: u64,
    /// All positions lie behind `through`.
    ahead: BTreeMap<Token, u64>,
}

impl Handled {
    /// The last message that was handled, whoever's.
    pub fn last(&self) -> u64 {
        self.ahead.values().copied().fold(self.through, u64::max)
    }

    pub fn ahead(&self) -> impl Iterator<Item = (&Token, u64)> {
        self.ahead.iter().map(|(sender, ahead)| (sender, *ahead))
    }

    /// Whose position behind `through` is another one than before.
    pub fn moved_since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = (&'a Token, u64)> {
        self.ahead()
            .filter(|(sender, ahead)| before.ahead.get(*sender) != Some(ahead))
    }

    /// What follows when these have moved; the rule that is broken, if one is.
    pub fn moved(
        &self,
        through: u64,
        moved: impl Iterator<Item = (Token, u64)>,
    ) -> Result<Self, &'static str> {
        if through < self.through {
            return Err("inbox position goes backwards");
        }
        let mut next = self.clone();
        next.through = through;
        let mut last = None;
        for (sender, ahead) in moved {
            if ahead <= through || next.ahead.get(&sender).is_some_and(|old| *old >= ahead) {
                return Err("a sender's inbox position goes backwards");
            }
            if last.is_some_and(|last| last >= sender) {
                return Err("senders' inbox positions are not in order");
            }
            next.ahead.insert(sender.clone(), ahead);
            last = Some(sender);
        }
        next.ahead.retain(|_, ahead| *ahead > through);
        Ok(next)
    }
}

/// What a sender is given at each of its turns. A decided operation costs one, and so does a KiB.
const QUANTUM: i64 = 64;
/// Bytes of a message that cost as much as an operation.
const BYTES_PER_COST: usize = 1024;
/// Messages of one sender that are fetched for one frame: who waits for them waits for all.
const FETCH_OF_SENDER: usize = 16;
/// Slots of messages that are kept while there are none.
const SLOTS_KEPT: usize = 4096;
/// Senders whose handled messages are taken from the inbox by themselves at one time: each is a request to the server.
const TRIM_SENDERS: usize = 16;

/// What an inbox may hold.
#[derive(Debug, Clone, Copy)]
pub struct InboxLimits {
    /// Bytes of messages; of what is beyond it is remembered where it lies at the inbox.
    pub bytes: usize,
    /// Messages that are fetched from there for one frame.
    pub fetched: usize,
    /// Events that were recorded for those who wait at the inbox and that the writer's readers have not read: they are shared
    /// among who is there, and who has its share of them waits. What piles up does so here, where each has a line, and not
    /// on the ledger, where there is one.
    pub unread: usize,
    /// The same where more than one sender was served of late: what one of them has unread, the others' requests wait for at
    /// each reader.
    pub unread_of_many: usize,
}

impl Default for InboxLimits {
    fn default() -> Self {
        Self {
            bytes: 32 << 20,
            fetched: 64,
            unread: 2048,
            unread_of_many: 512,
        }
    }
}

/// Small, since a line may be long.
#[derive(Debug, Clone, Copy)]
enum Waiting {
    Here {
        seq: u64,
        /// In the backlog's messages.
        at: usize,
    },
    /// There was no room for it: it is fetched from the inbox when its turn comes.
    There(u64),
}

impl Waiting {
    fn seq(&self) -> u64 {
        match self {
            Self::Here { seq, .. } => *seq,
            Self::There(seq) => *seq,
        }
    }
}

#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<Waiting>,
    /// Of what is here.
    bytes: usize,
    /// Above 0 while it is the sender's turn. Who has used more than it was given sits out as many turns as that was.
    credit: i64,
}

/// What of one sender was handled.
#[derive(Debug, Clone, Copy)]
struct Done {
    through: u64,
    /// Messages that lie at the inbox still, because others' before them were not handled.
    lying: u64,
}

/// Events that any sender may have unread, however many share.
const SHARE_MIN: usize = 128;
/// Frames for which a sender counts as being there after it was served.
const LATE_FRAMES: u64 = 64;
/// Events after which a reader says how far it is, though it has decided nothing.
pub const SAYS_AFTER: u64 = 64;
// Else a sender could wait for what no reader ever says.
const _: () = assert!(SAYS_AFTER < SHARE_MIN as u64);

/// A message that has the turn.
#[derive(Debug)]
pub struct Taken {
    pub message: InboxMessage,
    cost: i64,
}

#[derive(Debug)]
pub struct Backlog {
    /// What was handled, in a frame or in the one that is being made: all up to `floor`, and of these senders beyond it.
    floor: u64,
    ahead: BTreeMap<Token, Done>,
    /// The last message that was read from the inbox.
    read: u64,
    /// Of those who have something waiting, or have used more than they were given.
    lines: BTreeMap<Token, Line>,
    /// The same senders but the operator, in the order of their turns.
    turns: VecDeque<Token>,
    /// What is here of all lines.
    messages: Slab<InboxMessage>,
    bytes: usize,
    limits: InboxLimits,
    /// Events of the frame in the making, by whose messages they are.
    drafted: BTreeMap<Token, usize>,
    /// The same of frames that have not been read by all readers.
    frames: VecDeque<(Lsn, BTreeMap<Token, usize>)>,
    /// Their sums.
    unread: BTreeMap<Token, usize>,
    /// How many frames of such events were recorded, and in which of them each sender was served last, of late.
    recorded: u64,
    served: BTreeMap<Token, u64>,
}

impl Backlog {
    /// Of an inbox that was handled so far.
    pub fn new(handled: Handled, limits: InboxLimits) -> Self {
        let Handled { through, ahead } = handled;
        let known = ahead
            .into_iter()
            .filter(|_| !sabotage::armed(Bug::AheadForgotten));
        let done = |(sender, through)| (sender, Done { through, lying: 0 });
        Self {
            floor: through,
            ahead: known.map(done).collect(),
            read: through,
            lines: BTreeMap::new(),
            turns: VecDeque::new(),
            messages: Slab::new(),
            bytes: 0,
            limits,
            drafted: BTreeMap::new(),
            frames: VecDeque::new(),
            unread: BTreeMap::new(),
            recorded: 0,
            served: BTreeMap::new(),
        }
    }

    /// From where on the inbox is to be read.
    pub fn next(&self) -> u64 {
        self.read + 1
    }

    /// Takes in what was read; an inbox that was opened anew may repeat what is known.
    pub fn push(&mut self, message: InboxMessage) {
        if message.seq <= self.read {
            return;
        }
        self.read = message.seq;
        let done = self.ahead.get(&message.sender);
        if done.is_some_and(|done| message.seq <= done.through) {
            return;
        }
        if !self.lines.contains_key(&message.sender) && !is_operator(&message.sender) {
            self.turns.push_back(message.sender.clone());
        }
        let line = self.lines.entry(message.sender.clone()).or_default();
        let size = message.payload.len();
        // Each gets at most as much as is left free, so no number of senders fills it and a new one finds room.
        let room = self.limits.bytes.saturating_sub(self.bytes);
        line.waiting.push_back(if line.bytes + size <= room {
            line.bytes += size;
            self.bytes += size;
            let seq = message.seq;
            let at = self.messages.insert(message);
            Waiting::Here { seq, at }
        } else {
            Waiting::There(message.seq)
        });
    }

    /// Nothing waits but what has to wait for the readers.
    pub fn is_idle(&self) -> bool {
        let ready = |(sender, line): (&Token, &Line)| !line.waiting.is_empty() && self.may(sender);
        !self.lines.iter().any(ready)
    }

    /// Whether the sender has less than its share unread.
    fn may(&self, sender: &Token) -> bool {
        let unread = self.unread.get(sender).copied().unwrap_or(0);
        let drafted = self.drafted.get(sender).copied().unwrap_or(0);
        is_operator(sender) || unread + drafted < self.share()
    }

    /// Events that a sender may have unread.
    fn share(&self) -> usize {
        let all = match self.served.len() {
            0 | 1 => self.limits.unread,
            _ => self.limits.unread_of_many.min(self.limits.unread),
        };
        let share = all / self.unread.len().max(1);
        share.max(SHARE_MIN.min(self.limits.unread))
    }

    /// The frame in the making is on the ledger.
    pub fn recorded(&mut self, lsn: Lsn) {
        let drafted = std::mem::take(&mut self.drafted);
        if drafted.is_empty() {
            return;
        }
        self.recorded += 1;
        for (sender, events) in &drafted {
            *self.unread.entry(sender.clone()).or_default() += events;
            self.served.insert(sender.clone(), self.recorded);
        }
        let late = self.recorded.saturating_sub(LATE_FRAMES);
        self.served.retain(|_, frame| *frame > late);
        self.frames.push_back((lsn, drafted));
    }

    /// All readers have read so far.
    pub fn read_through(&mut self, through: Lsn) {
        while let Some((lsn, _)) = self.frames.front()
            && *lsn <= through
            && let Some((_, events)) = self.frames.pop_front()
        {
            for (sender, events) in events {
                if let Some(unread) = self.unread.get_mut(&sender) {
                    *unread = unread.saturating_sub(events);
                    if *unread == 0 {
                        self.unread.remove(&sender);
                    }
                }
            }
        }
    }

    /// The message whose turn it is, of those that are here. It is handled next, or put back.
    pub fn take(&mut self) -> Option<Taken> {
        // Settings come before what is decided by them, and an operator gets through whoever else is there.
        if let Some(line) = self.lines.get_mut(OPERATOR)
            && let Some(taken) = pop(line, &mut self.messages, &mut self.bytes)
        {
            return Some(taken);
        }
        // Senders in a row who cannot be served.
        let mut passed = 0;
        while passed < self.turns.len() {
            let sender = self.turns.front()?;
            let may = self.may(sender);
            let line = self.lines.get_mut(sender)?;
            match line.waiting.front() {
                None if line.credit >= 0 => {
                    let gone = self.turns.pop_front()?;
                    self.lines.remove(&gone);
                    continue;
                }
                Some(Waiting::Here { .. }) if may => {
                    if line.credit <= 0 {
                        line.credit += QUANTUM;
                    }
                    if line.credit > 0 {
                        return pop(line, &mut self.messages, &mut self.bytes);
                    }
                    passed = 0;
                }
                Some(_) => passed += 1,
                // A debt is worked off while others are served.
                None => {
                    line.credit += QUANTUM;
                    passed += 1;
                }
            }
            self.turns.rotate_left(1);
        }
        None
    }

    /// It was taken too early: it is the next one again.
    pub fn put_back(&mut self, taken: Taken) {
        let sender = taken.message.sender.clone();
        if !is_operator(&sender) {
            self.turns.retain(|other| *other != sender);
            self.turns.push_front(sender.clone());
        }
        let line = self.lines.entry(sender).or_default();
        let size = taken.message.payload.len();
        line.bytes += size;
        self.bytes += size;
        let seq = taken.message.seq;
        let at = self.messages.insert(taken.message);
        line.waiting.push_front(Waiting::Here { seq, at });
    }

    /// It was handled; so many operations were in it, and so many events came of them.
    pub fn done(&mut self, taken: &Taken, operations: usize, events: usize) {
        let sender = &taken.message.sender;
        // The operator's are few, and it waits for nobody.
        if events > 0 && !is_operator(sender) {
            *self.drafted.entry(sender.clone()).or_default() += events;
        }
        if let Some(line) = self.lines.get_mut(sender) {
            // Far fewer than 2^63.
            line.credit -= taken.cost + operations.max(1) as i64;
            if is_operator(sender) {
                line.credit = 0;
            } else if line.credit <= 0 && self.turns.front() == Some(sender) {
                self.turns.rotate_left(1);
            }
        }
        let through = taken.message.seq;
        match self.ahead.get_mut(sender) {
            Some(done) => {
                done.through = through;
                done.lying += 1;
            }
            None => {
                self.ahead
                    .insert(sender.clone(), Done { through, lying: 1 });
            }
        }
    }

    /// The messages to be fetched before anything is taken, those next in turn first.
    pub fn absent(&self) -> Vec<(Token, u64)> {
        let mut absent = Vec::new();
        let operator = self.lines.get_key_value(OPERATOR).into_iter();
        let others = self
            .turns
            .iter()
            .filter(|sender| self.may(sender))
            .filter_map(|sender| self.lines.get_key_value(sender));
        for (sender, line) in operator.chain(others) {
            let of = line.waiting.iter().take(FETCH_OF_SENDER);
            let of = of.map_while(|waiting| match waiting {
                Waiting::Here { .. } => None,
                Waiting::There(seq) => Some((sender.clone(), *seq)),
            });
            absent.extend(of);
            if absent.len() >= self.limits.fetched {
                break;
            }
        }
        absent.truncate(self.limits.fetched);
        absent
    }

    /// What was fetched. What is no longer at the inbox was decided by another leader, and this one is fenced.
    pub fn bring(&mut self, sender: &Token, seq: u64, message: Option<InboxMessage>) {
        let Some(line) = self.lines.get_mut(sender) else {
            return;
        };
        let Ok(at) = line.waiting.binary_search_by_key(&seq, Waiting::seq) else {
            return;
        };
        match message {
            Some(message) => {
                line.bytes += message.payload.len();
                self.bytes += message.payload.len();
                let here = self.messages.insert(message);
                line.waiting[at] = Waiting::Here { seq, at: here };
            }
            None => {
                line.waiting.remove(at);
            }
        }
    }

    /// How far the inbox is handled with all that was taken and done.
    pub fn handled(&mut self) -> Handled {
        let first = |line: &Line| line.waiting.front().map(Waiting::seq);
        let first = self.lines.values().filter_map(first).min();
        let floor = first.map_or(self.read, |first| first - 1).max(self.floor);
        self.ahead.retain(|_, done| done.through > floor);
        self.floor = floor;
        let ahead = self.ahead.iter();
        Handled {
            through: floor,
            ahead: ahead
                .map(|(sender, done)| (sender.clone(), done.through))
                .collect(),
        }
    }

    /// How many handled messages of one sender lie at the inbox still, at the most.
    pub fn lying(&self) -> u64 {
        let lying = self.ahead.values().map(|done| done.lying);
        lying.max().unwrap_or(0)
    }

    /// Who has the most of them, and up to where they may go.
    pub fn trim(&mut self, durable: &Handled) -> Vec<(Token, u64)> {
        let mut most: Vec<_> = durable
            .ahead()
            .filter_map(|(sender, through)| {
                let lying = self.ahead.get(sender)?.lying;
                (lying > 0).then(|| (lying, sender.clone(), through))
            })
            .collect();
        most.sort_unstable_by(|a, b| b.cmp(a));
        most.truncate(TRIM_SENDERS);
        let trimmed = most.into_iter().map(|(_, sender, through)| {
            if let Some(done) = self.ahead.get_mut(&sender) {
                done.lying = 0;
            }
            (sender, through)
        });
        trimmed.collect()
    }
}

fn is_operator(sender: &Token) -> bool {
    sender.as_str() == OPERATOR
}

/// The first one, if it is here.
fn pop(line: &mut Line, messages: &mut Slab<InboxMessage>, bytes: &mut usize) -> Option<Taken> {
    match *line.waiting.front()? {
        Waiting::Here { at, .. } => {
            line.waiting.pop_front();
            let message = messages.remove(at);
            // What a burst took is given back.
            if messages.is_empty() && messages.capacity() > SLOTS_KEPT {
                messages.shrink_to_fit();
            }
            let size = message.payload.len();
            line.bytes -= size;
            *bytes -= size;
            // A message is at most a MiB.
            let cost = (size / BYTES_PER_COST) as i64;
            Some(Taken { message, cost })
        }
        Waiting::There(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    impl Handled {
        fn has(&self, sender: &Token, seq: u64) -> bool {
            seq <= self.through || self.ahead.get(sender).is_some_and(|ahead| seq <= *ahead)
        }
    }

    fn token(name: &str) -> Token {
        Token::new(name).unwrap()
    }

    fn message(seq: u64, sender: &str, size: usize) -> InboxMessage {
        InboxMessage {
            seq,
            sender: token(sender),
            reply_to: None,
            trace: None,
            by: None,
            reserved_header: false,
            payload: Bytes::from(vec![0; size]),
        }
    }

    fn inbox(bytes: usize) -> Backlog {
        let limits = InboxLimits {
            bytes,
            fetched: 8,
            ..InboxLimits::default()
        };
        Backlog::new(Handled::default(), limits)
    }

    /// Takes what is next, fetching what is not here; its sender and number.
    fn next(inbox: &mut Backlog, operations: usize) -> Option<(String, u64)> {
        let taken = inbox.take().or_else(|| {
            for (sender, seq) in inbox.absent() {
                inbox.bring(&sender, seq, Some(message(seq, sender.as_str(), 1)));
            }
            inbox.take()
        })?;
        inbox.done(&taken, operations, 0);
        Some((taken.message.sender.to_string(), taken.message.seq))
    }

    #[test]
    fn a_senders_backlog_is_its_own() {
        let mut inbox = inbox(1 << 20);
        for seq in 1..=10_000 {
            inbox.push(message(seq, "floods", 0));
        }
        inbox.push(message(10_001, "other", 0));
        let before = std::iter::from_fn(|| next(&mut inbox, 1)).position(|(who, _)| who == "other");
        assert!(before.unwrap() <= QUANTUM as usize, "{before:?}");
    }

    #[test]
    fn who_sends_much_in_one_message_sits_out_as_many_turns() {
        let mut inbox = inbox(1 << 20);
        for seq in 1..=2_000 {
            inbox.push(message(
                seq,
                if seq % 2 == 0 { "batches" } else { "singles" },
                0,
            ));
        }
        let mut taken = BTreeMap::<Token, usize>::new();
        for _ in 0..500 {
            let next = inbox.take().unwrap();
            let sender = next.message.sender.clone();
            let batch = sender.as_str() == "batches";
            inbox.done(&next, if batch { 1000 } else { 1 }, 0);
            *taken.entry(sender).or_default() += 1;
        }
        assert!(taken["batches"] <= 2, "{taken:?}");
    }

    /// Returns the number of messages of `other` that are taken before the second one of `debtor`. The first one used `used`
    /// operations; the second one is sent after `pause` messages of `other`, which always has one waiting.
    fn turns_behind(used: usize, size: usize, pause: usize) -> usize {
        let mut inbox = inbox(1 << 20);
        inbox.push(message(1, "debtor", size));
        for seq in 2..=2_000 {
            inbox.push(message(seq, "other", 0));
        }
        assert_eq!(next(&mut inbox, used), Some(("debtor".to_owned(), 1)));
        for _ in 0..pause {
            assert_eq!(next(&mut inbox, 1).unwrap().0, "other");
        }
        inbox.push(message(2_001, "debtor", 0));
        let rest = std::iter::from_fn(|| next(&mut inbox, 1));
        rest.map(|(sender, _)| sender)
            .position(|sender| sender == "debtor")
            .unwrap()
    }

    #[test]
    fn a_debt_is_worked_off_while_others_are_served() {
        let turn = QUANTUM as usize;
        // It had a credit of one turn, and used ten.
        let waits = turns_behind(10 * turn, 0, 0);
        assert!((9 * turn..=10 * turn).contains(&waits), "{waits}");
        let waits = turns_behind(10 * turn, 0, 5 * turn);
        assert!((4 * turn..=5 * turn).contains(&waits), "{waits}");
        let waits = turns_behind(10 * turn, 0, 20 * turn);
        assert!(waits <= turn, "{waits}");
    }

    #[test]
    fn a_kib_costs_as_much_as_an_operation() {
        let turn = QUANTUM as usize;
        for kib in [turn, 10 * turn] {
            let by_size = turns_behind(1, kib * BYTES_PER_COST, 0);
            assert_eq!(by_size, turns_behind(kib + 1, 0, 0), "{kib}");
        }
    }

    #[test]
    fn handled_messages_are_trimmed_of_those_who_have_the_most() {
        let mut inbox = inbox(1 << 20);
        // Nothing before these is handled.
        inbox.push(message(1, "waits", 0));
        let mut seq = 1;
        for (no, count) in (0..20).zip([1, 5, 3].into_iter().cycle()) {
            for _ in 0..count {
                seq += 1;
                inbox.push(message(seq, &format!("s{no:02}"), 0));
            }
        }
        let mut waits = None;
        while let Some(taken) = inbox.take() {
            match taken.message.sender.as_str() {
                "waits" => waits = Some(taken),
                _ => inbox.done(&taken, 1, 0),
            }
        }
        inbox.put_back(waits.unwrap());
        assert_eq!(inbox.lying(), 5);
        let durable = inbox.handled();
        assert_eq!(durable.through, 0);
        let first = inbox.trim(&durable);
        assert_eq!(first.len(), TRIM_SENDERS);
        let through = |sender: &Token| durable.ahead[sender];
        assert!(first.iter().all(|(sender, at)| *at == through(sender)));
        let fives = first.iter().take(7).map(|(sender, _)| sender.as_str());
        let fives: BTreeSet<_> = fives.collect();
        let expected = ["s01", "s04", "s07", "s10", "s13", "s16", "s19"];
        assert_eq!(fives, expected.into());
        // The others come next, and then nothing is left.
        assert_eq!((inbox.lying(), inbox.trim(&durable).len()), (1, 4));
        assert_eq!((inbox.lying(), inbox.trim(&durable)), (0, vec![]));
    }

    #[test]
    fn who_has_its_share_unread_waits_for_the_readers() {
        let limits = InboxLimits {
            unread: 1000,
            unread_of_many: 300,
            ..InboxLimits::default()
        };
        let mut inbox = Backlog::new(Handled::default(), limits);
        for seq in 1..=3000 {
            inbox.push(message(seq, ["a", "b", OPERATOR][seq as usize % 3], 0));
        }
        let record = |inbox: &mut Backlog, lsn: u64, of: &str| {
            let mut events = 0;
            let mut put_aside = Vec::new();
            while let Some(taken) = inbox.take() {
                if taken.message.sender.as_str() == of {
                    inbox.done(&taken, 1, 10);
                    events += 10;
                } else {
                    put_aside.push(taken);
                    break;
                }
            }
            put_aside
                .into_iter()
                .for_each(|taken| inbox.put_back(taken));
            inbox.recorded(Lsn(lsn));
            events
        };
        // The operator waits for nobody.
        assert_eq!(record(&mut inbox, 1, OPERATOR), 10_000);
        inbox.read_through(Lsn(1));
        assert!(!inbox.is_idle());
        let mut alone = Backlog::new(Handled::default(), limits);
        for seq in 1..=300 {
            alone.push(message(seq, "a", 0));
        }
        assert_eq!(record(&mut alone, 2, "a"), 1000);
        assert!(alone.is_idle() && alone.take().is_none());
        alone.read_through(Lsn(1));
        assert!(alone.is_idle());
        // Another one is there, and gets its share at once.
        alone.push(message(301, "b", 0));
        assert!(!alone.is_idle());
        assert_eq!(record(&mut alone, 3, "b"), 10);
        alone.read_through(Lsn(2));
        // It is not alone any more, and so it leaves less unread.
        assert_eq!(record(&mut alone, 4, "a"), 300);
        alone.read_through(Lsn(3));
        assert!(alone.is_idle());
        alone.read_through(Lsn(4));
        assert!(!alone.is_idle());
        // Until `b` has not been served for some time.
        for seq in 302..=9000 {
            alone.push(message(seq, "a", 0));
        }
        for lsn in 5..4 + LATE_FRAMES {
            let events = record(&mut alone, lsn, "a");
            assert!(events <= 300, "{events} at {lsn}");
            alone.read_through(Lsn(lsn));
        }
        assert_eq!(record(&mut alone, 100, "a"), 1000);
    }

    #[test]
    fn the_operator_comes_first() {
        let mut inbox = inbox(1 << 20);
        for seq in 1..=100 {
            inbox.push(message(seq, "t1", 0));
        }
        inbox.push(message(101, OPERATOR, 0));
        assert_eq!(next(&mut inbox, 1), Some((OPERATOR.to_owned(), 101)));
        assert_eq!(next(&mut inbox, 1), Some(("t1".to_owned(), 1)));
    }

    #[test]
    fn what_was_put_back_is_next_again() {
        let mut inbox = inbox(1 << 20);
        inbox.push(message(1, "a", 3));
        inbox.push(message(2, "b", 3));
        let taken = inbox.take().unwrap();
        assert_eq!(taken.message.seq, 1);
        inbox.put_back(taken);
        assert_eq!(inbox.handled(), Handled::default());
        assert_eq!(next(&mut inbox, 1), Some(("a".to_owned(), 1)));
        assert_eq!(next(&mut inbox, 1), Some(("b".to_owned(), 2)));
        assert_eq!(next(&mut inbox, 1), None);
    }

    #[test]
    fn positions_do_not_go_back() {
        let at = |through, ahead: &[(&str, u64)]| Handled {
            through,
            ahead: ahead.iter().map(|(who, at)| (token(who), *at)).collect(),
        };
        let check = |through, moved: &[(&str, u64)], expected: Result<Handled, &'static str>| {
            let before = at(10, &[("a", 12), ("b", 20)]);
            let moved = moved.iter().map(|(who, at)| (token(who), *at));
            assert_eq!(before.moved(through, moved), expected);
        };
        check(10, &[], Ok(at(10, &[("a", 12), ("b", 20)])));
        check(15, &[], Ok(at(15, &[("b", 20)])));
        check(
            11,
            &[("a", 13), ("c", 14)],
            Ok(at(11, &[("a", 13), ("b", 20), ("c", 14)])),
        );
        check(9, &[], Err("inbox position goes backwards"));
        let back = "a sender's inbox position goes backwards";
        check(10, &[("a", 12)], Err(back));
        check(10, &[("c", 10)], Err(back));
        check(21, &[("b", 21)], Err(back));
        let order = "senders' inbox positions are not in order";
        check(10, &[("c", 14), ("a", 13)], Err(order));
        check(10, &[("c", 14), ("c", 15)], Err(order));
    }

    proptest! {
        /// Whatever waits, is fetched, or is read again after a change of leaders: each message is taken once, a sender's own in
        /// their order, and the positions say which.
        #[test]
        fn each_message_is_handled_once(
            senders in prop::collection::vec(0_usize..5, 1..120),
            bytes in 0_usize..400,
            steps in prop::collection::vec((0_u8..4, 1_usize..40), 1..60),
        ) {
            let names = ["a", "b", "c", "d", OPERATOR];
            let message = |seq: u64| message(seq, names[senders[seq as usize - 1]], (seq % 90) as usize);
            let limits = InboxLimits { bytes, fetched: 3, ..InboxLimits::default() };
            let mut inbox = Backlog::new(Handled::default(), limits);
            let mut recorded = Handled::default();
            let mut handled = BTreeSet::new();
            // What the last frame held, which a new leader begins with.
            let mut durable = handled.clone();
            for (what, count) in steps.into_iter().chain([(0, 1000), (1, 1000), (1, 1000), (1, 1000)]) {
                match what {
                    0 => (0..count).for_each(|_| {
                        let seq = inbox.next();
                        if seq <= senders.len() as u64 {
                            inbox.push(message(seq));
                        }
                    }),
                    1 => for _ in 0..count {
                        for (sender, seq) in inbox.absent() {
                            inbox.bring(&sender, seq, Some(message(seq)));
                        }
                        let Some(taken) = inbox.take() else { break };
                        let (sender, seq) = (&taken.message.sender, taken.message.seq);
                        let earlier = (1..seq).filter(|seq| message(*seq).sender == *sender);
                        for earlier in earlier {
                            prop_assert!(handled.contains(&earlier), "{seq} before {earlier}");
                        }
                        prop_assert!(handled.insert(seq), "{seq} twice");
                        inbox.done(&taken, 1 + seq as usize % 200, 0);
                    },
                    2 => {
                        let next = inbox.handled();
                        let moved = next.moved_since(&recorded);
                        let moved: Vec<_> = moved.map(|(who, at)| (who.clone(), at)).collect();
                        prop_assert_eq!(recorded.moved(next.through, moved.into_iter()), Ok(next.clone()));
                        for seq in 1..=senders.len() as u64 {
                            let has = next.has(&message(seq).sender, seq);
                            prop_assert_eq!(has, handled.contains(&seq), "{} of {:?}", seq, next);
                        }
                        (recorded, durable) = (next, handled.clone());
                    }
                    _ => {
                        inbox = Backlog::new(recorded.clone(), limits);
                        handled = durable.clone();
                    }
                }
            }
            prop_assert_eq!(handled.len(), senders.len());
            prop_assert!(inbox.is_idle());
            prop_assert_eq!(inbox.bytes, 0);
        }

        /// Of two who always have something waiting, none is served more than a turn and a message beyond the other.
        #[test]
        fn turns_are_fair(costs in prop::collection::vec((1_usize..300, 1_usize..300), 400)) {
            let mut inbox = inbox(1 << 20);
            for seq in 1..=800 {
                inbox.push(message(seq, if seq <= 400 { "a" } else { "b" }, 0));
            }
            let (mut served, mut taken) = ([0_usize; 2], [0_usize; 2]);
            while taken.iter().all(|taken| *taken < 400) {
                let next = inbox.take().unwrap();
                let who = usize::from(next.message.sender.as_str() == "b");
                let cost = if who == 0 { costs[taken[0]].0 } else { costs[taken[1]].1 };
                inbox.done(&next, cost, 0);
                served[who] += cost;
                taken[who] += 1;
                prop_assert!(served[0].abs_diff(served[1]) <= QUANTUM as usize + 2 * 300, "{:?}", served);
            }
        }
    }
}
