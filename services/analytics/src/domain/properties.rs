//! Conservation under any interleaving, against a reference that knows what really happened and adds it up the slow way.

use super::{Account, Amounts, Change, Fact, Interval, KEPT, Sums, Transfer, Usage, in_one_row};
use ledger::{Projection, Snapshot, state_digest};
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use std::collections::{BTreeMap, BTreeSet};
use vocab::fact::{
    AllocationEnded, AllocationPlaced, AllocationRequested, AllocationRequeued, AllocationStarted,
    CordonSet, NodeCapacityChanged, NodeLost, NodeReady, NodeRegistered, PeriodClosed,
    QuotaWaiting, RateSet,
};
use vocab::{
    AdminChange, AllocationNo, AllocationSpec, At, EndCause, Event, EventNo, HOUR_MS, Lsn, Millis,
    Month, NodeCapacity, Operation, PlacementPolicy, Refusal, ResourceKey, ResourceKind, Rule,
    Token,
};

const CAPACITY: [u64; 3] = [10, 7, 0];

fn token(text: &str) -> Token {
    Token::new(text).expect("a token")
}

/// What happened to a run, as the world knows it.
#[derive(Debug, Clone)]
struct Truth {
    allocation: AllocationNo,
    machine: (Token, u64),
    cpu: u64,
    memory: u64,
    placed: i64,
    started: Option<i64>,
    ended: Option<i64>,
    released: Option<i64>,
}

/// The scheduler's picture of a node, which lags behind the ledger.
#[derive(Debug, Clone, Copy)]
struct Seen {
    incarnation: u64,
    ready: bool,
}

/// Writes a ledger that obeys the rules of its writers: the scheduler gives out only what it believes to be free.
#[derive(Default)]
struct World {
    usage: Usage,
    changes: Vec<Change>,
    /// Events of a batch, and where batches end.
    length: u64,
    ends: Vec<usize>,
    /// The latest moment that any event has said.
    clock: i64,
    /// When rates begin that are in the bill.
    cuts: BTreeSet<i64>,
    /// The last month that is closed, and what the bill of it and of all before it was then.
    closed: Option<(Month, Hours)>,
    lsn: u64,
    scheduler_now: i64,
    nodes_now: i64,
    nodes: BTreeMap<Token, Seen>,
    seen: BTreeMap<Token, Seen>,
    unseen: Vec<Event>,
    /// All runs; an allocation that was requeued may have several, one after the other.
    truths: Vec<Truth>,
    /// Requested and not placed, or requeued.
    queued: BTreeMap<AllocationNo, (u64, u64)>,
    requests: u64,
}

impl World {
    fn write(&mut self, now: i64, no: u64, event: &Event) {
        self.lsn += 1;
        let at = At {
            lsn: Lsn(self.lsn),
            index: 0,
            no: EventNo(no),
            now: Millis(now),
        };
        self.clock = self.clock.max(now);
        self.usage
            .project_event(&at, event, &mut self.changes)
            .expect("the world is legal");
        if self.lsn.is_multiple_of(self.length) {
            self.end_batch();
        }
    }

    fn end_batch(&mut self) {
        self.usage.end_batch(&mut self.changes);
        self.ends.push(self.changes.len());
    }

    fn operator(&mut self, change: AdminChange) {
        let operation = Operation {
            tenant: token("_operator"),
            operation_id: None,
            digest: [0; 16],
            reply_to: None,
            trace: None,
            by: None,
        };
        let event: Event = change.applied(operation, 1).into();
        self.write(self.nodes_now, 0, &event);
    }

    fn rate(&mut self, from: i64) {
        let effective_from = Millis(self.nodes_now + from);
        // A rate begins when it is to, but not before it is known.
        let at = effective_from.0.max(self.clock.max(self.nodes_now));
        self.cuts.insert(at);
        self.operator(AdminChange::Rate(RateSet {
            resource: ResourceKey {
                kind: ResourceKind::Cpu,
                model: None,
            },
            micro_per_unit_hour: 1,
            effective_from,
            scope: vocab::RateScope::default(),
            withdrawn: false,
        }));
    }

    fn close(&mut self) {
        let month = match &self.closed {
            Some((month, _)) => month.next(),
            None => Month::FIRST,
        };
        if self.nodes_now < month.end().0 + HOUR_MS {
            return;
        }
        self.clock = self.clock.max(self.nodes_now);
        let mut bill = expected_hours(self);
        bill.retain(|(hour, ..), _| Millis(hour * HOUR_MS) < month.end());
        self.closed = Some((month, bill));
        self.operator(AdminChange::Period(PeriodClosed { month }));
    }

    fn node_fact(&mut self, node: &Token, kind: u64) {
        let before = self.nodes.get(node).copied();
        let incarnation = before.map_or(1, |seen| seen.incarnation);
        let lost = Event::NodeLost(NodeLost {
            node: node.clone(),
            incarnation,
            last_seen: Millis(0),
        });
        let (events, after) = match before {
            Some(seen) if seen.ready && kind % 5 == 1 => {
                let resized = Event::NodeCapacityChanged(NodeCapacityChanged {
                    node: node.clone(),
                    incarnation,
                    change: 1,
                    capacity: NodeCapacity {
                        cpu_milli: kind % 7,
                        memory_bytes: kind % 11 * CAPACITY[1] / 10,
                        ..NodeCapacity::default()
                    },
                });
                (vec![resized], (incarnation, true))
            }
            Some(seen) if seen.ready && kind.is_multiple_of(2) => {
                (vec![lost], (incarnation, false))
            }
            Some(seen) if !seen.ready && kind.is_multiple_of(2) => {
                let node = node.clone();
                let ready = Event::NodeReady(NodeReady { node, incarnation });
                (vec![ready], (incarnation, true))
            }
            _ => {
                let next = before.map_or(1, |seen| seen.incarnation + 1);
                let registered = Event::NodeRegistered(NodeRegistered {
                    node: node.clone(),
                    incarnation: next,
                    boot: next,
                    capacity: NodeCapacity {
                        cpu_milli: CAPACITY[0] + next % 3,
                        memory_bytes: CAPACITY[1],
                        ..NodeCapacity::default()
                    },
                });
                let lost = before.filter(|seen| seen.ready).map(|_| lost);
                (lost.into_iter().chain([registered]).collect(), (next, true))
            }
        };
        let (incarnation, ready) = after;
        self.nodes.insert(node.clone(), Seen { incarnation, ready });
        for event in events {
            self.write(self.nodes_now, 0, &event);
            self.unseen.push(event);
        }
    }

    /// The scheduler reads on: what was on a lost node ends.
    fn observe(&mut self, count: usize) {
        let count = count.min(self.unseen.len());
        for event in self.unseen.drain(..count).collect::<Vec<_>>() {
            let (node, seen) = match event {
                Event::NodeRegistered(NodeRegistered {
                    node, incarnation, ..
                }) => (node, Some((incarnation, true))),
                Event::NodeReady(NodeReady { node, incarnation }) => {
                    (node, Some((incarnation, true)))
                }
                Event::NodeLost(NodeLost {
                    node, incarnation, ..
                }) => (node, Some((incarnation, false))),
                _ => continue,
            };
            let Some((incarnation, ready)) = seen else {
                continue;
            };
            self.seen.insert(node.clone(), Seen { incarnation, ready });
            let on_node = |truth: &Truth| truth.machine.0 == node && truth.released.is_none();
            let over: Vec<usize> = (0..self.truths.len())
                .filter(|run| !ready && on_node(&self.truths[*run]))
                .collect();
            for run in over {
                self.end(run, self.scheduler_now, EndCause::NodeLost, run % 3 > 0);
            }
        }
    }

    fn place(&mut self, node: &Token, cpu: u64, memory: u64) {
        self.requests += 1;
        let allocation = AllocationNo(self.requests);
        let spec = AllocationSpec::plain(token("jobs"), cpu, memory);
        let operation = Operation {
            tenant: token("t1"),
            operation_id: None,
            digest: [0; 16],
            reply_to: None,
            trace: None,
            by: None,
        };
        let requested = Event::AllocationRequested(AllocationRequested { operation, spec });
        self.write(self.nodes_now, allocation.0, &requested);
        self.queued.insert(allocation, (cpu, memory));
        self.place_next(node);
    }

    /// The longest in the queue, if it fits.
    fn place_next(&mut self, node: &Token) {
        let Some(seen) = self.seen.get(node).copied().filter(|seen| seen.ready) else {
            return;
        };
        let Some((allocation, (cpu, memory))) = self.queued.pop_first() else {
            return;
        };
        let held = |amount: fn(&Truth) -> u64| -> u64 {
            self.truths
                .iter()
                .filter(|t| t.machine == (node.clone(), seen.incarnation) && t.released.is_none())
                .map(amount)
                .sum()
        };
        let fits = held(|t| t.cpu) + cpu <= CAPACITY[0] + seen.incarnation % 3
            && held(|t| t.memory) + memory <= CAPACITY[1];
        if !fits {
            self.queued.insert(allocation, (cpu, memory));
            return;
        }
        let placed = Event::AllocationPlaced(AllocationPlaced {
            allocation,
            node: node.clone(),
            incarnation: seen.incarnation,
            gpus: Default::default(),
            zones: 0,
            policy: PlacementPolicy::Default,
            candidates: Default::default(),
        });
        self.write(self.scheduler_now, 0, &placed);
        self.truths.push(Truth {
            allocation,
            machine: (node.clone(), seen.incarnation),
            cpu,
            memory,
            placed: self.scheduler_now,
            started: None,
            ended: None,
            released: None,
        });
    }

    /// The agent's word of some moment between `low` and now.
    fn said(&self, low: i64, choice: u64) -> i64 {
        low + (choice % ((self.scheduler_now - low) as u64 + 1)) as i64
    }

    fn start_or_end(&mut self, choice: u64) {
        let live: Vec<usize> = (0..self.truths.len())
            .filter(|run| self.truths[*run].released.is_none())
            .collect();
        if live.is_empty() {
            return;
        }
        let run = live[choice as usize % live.len()];
        let truth = self.truths[run].clone();
        match truth.started {
            None if !choice.is_multiple_of(5) => {
                let at = self.said(truth.placed, choice);
                let started = Event::AllocationStarted(AllocationStarted {
                    allocation: truth.allocation,
                    at: Millis(at),
                });
                self.write(self.scheduler_now, 0, &started);
                self.truths[run].started = Some(at);
            }
            low => {
                let at = self.said(low.unwrap_or(truth.placed), choice);
                let again = choice.is_multiple_of(3);
                self.end(run, at, EndCause::Failed, again);
            }
        }
    }

    /// The run is over, and with it the allocation, or it waits `again`.
    fn end(&mut self, run: usize, at: i64, cause: EndCause, again: bool) {
        let Truth {
            allocation,
            cpu,
            memory,
            ..
        } = self.truths[run];
        let at_ms = Millis(at);
        let over = if again {
            self.queued.insert(allocation, (cpu, memory));
            Event::AllocationRequeued(AllocationRequeued {
                allocation,
                cause,
                at: at_ms,
                not_before: at_ms,
                exit: None,
            })
        } else {
            Event::AllocationEnded(AllocationEnded {
                allocation,
                cause,
                at: at_ms,
                exit: None,
            })
        };
        self.write(self.scheduler_now, 0, &over);
        let truth = &mut self.truths[run];
        truth.ended = truth.started.map(|_| at);
        truth.released = Some(self.scheduler_now);
    }

    fn step(&mut self, (kind, choice, advance): (u8, u64, i64)) {
        let node = token(["n1", "n2"][choice as usize % 2]);
        match kind {
            0 => self.nodes_now += advance,
            1 => self.scheduler_now += advance,
            2 => self.node_fact(&node, choice / 2),
            3 => self.observe(choice as usize % 3),
            4 | 5 => self.place(&node, choice / 2 % 6, choice / 12 % 4),
            9 => self.place_next(&node),
            10 => self.rate(advance % 1000),
            11 => self.close(),
            12 => self.operator(AdminChange::Cordon(CordonSet {
                node,
                cordoned: choice / 2 % 2 == 0,
                drain: false,
                at_once: 0,
            })),
            _ => self.start_or_end(choice / 2),
        }
    }
}

#[derive(Default)]
struct Moment {
    accounts: BTreeMap<Account, Amounts>,
    /// What the node was last said to have.
    capacity: Option<Amounts>,
}

type Timeline = BTreeMap<(Token, u64), BTreeMap<i64, Moment>>;

fn timeline(changes: &[Change]) -> Timeline {
    let mut timeline = Timeline::new();
    for change in changes {
        match &change.fact {
            Fact::Transfer(transfer) => {
                let moved = &transfer.moved;
                let machine = (moved.node.clone(), moved.incarnation);
                let moments = timeline.entry(machine).or_default();
                let accounts = &mut moments.entry(transfer.at.0).or_default().accounts;
                *accounts.entry(transfer.from).or_default() -= moved.amounts;
                *accounts.entry(transfer.to).or_default() += moved.amounts;
            }
            Fact::Capacity(said) => {
                let machine = (said.node.clone(), said.incarnation);
                let moments = timeline.entry(machine).or_default();
                moments.entry(said.at.0).or_default().capacity = Some(said.amounts);
            }
            _ => {}
        }
    }
    timeline
}

/// What the world says the account had at a moment.
fn expected(world: &World, machine: &(Token, u64), account: Account, at: i64) -> (i128, i128) {
    let mut sum = (0, 0);
    for truth in world.truths.iter().filter(|t| t.machine == *machine) {
        let (placed, started) = (truth.placed, truth.started.unwrap_or(i64::MAX));
        let released = truth.released.unwrap_or(i64::MAX);
        let ended = truth.ended.unwrap_or(released);
        let held = placed <= at && at < released;
        let runs = held && started <= at && at < ended;
        let counts = match account {
            Account::Allocated => runs,
            Account::Reserved => held && !runs,
            _ => false,
        };
        if counts {
            sum.0 += i128::from(truth.cpu);
            sum.1 += i128::from(truth.memory);
        }
    }
    sum
}

fn check_books(world: &World) -> Result<(), TestCaseError> {
    for (machine, moments) in timeline(&world.changes) {
        let mut totals: BTreeMap<Account, Amounts> = BTreeMap::new();
        let mut capacity = Amounts::default();
        for (at, moment) in moments {
            capacity = moment.capacity.unwrap_or(capacity);
            for (account, amounts) in moment.accounts {
                *totals.entry(account).or_default() += amounts;
            }
            let total = |account: Account| totals.get(&account).copied().unwrap_or_default();
            for kind in ResourceKind::ALL {
                let sum: i128 = KEPT.map(|account| total(account).get(kind)).iter().sum();
                prop_assert_eq!(sum, capacity.get(kind));
                prop_assert_eq!(-total(Account::Outside).get(kind), capacity.get(kind));
                for account in KEPT {
                    let rest = total(account).get(kind);
                    prop_assert!(rest >= 0, "{:?} {:?} {} at {}", machine, account, rest, at);
                }
            }
            for account in [Account::Allocated, Account::Reserved] {
                let found = total(account);
                let found = (found.cpu_milli, found.memory_bytes);
                prop_assert_eq!(found, expected(world, &machine, account, at));
            }
        }
    }
    Ok(())
}

/// Unit-milliseconds by hour, by when the newest rate began, and by resource.
type Hours = BTreeMap<(i64, i64, ResourceKind), i128>;

/// Adds what was used from `from` to `to`, piece by piece.
fn add(hours: &mut Hours, cuts: &BTreeSet<i64>, amounts: (u64, u64), (from, to): (i64, i64)) {
    let (cpu, memory) = amounts;
    let full = (from / HOUR_MS + 1..=to / HOUR_MS).map(|hour| hour * HOUR_MS);
    let mut moments: BTreeSet<i64> = full.chain(cuts.iter().copied()).collect();
    moments.extend([from, to]);
    let within: Vec<i64> = moments
        .into_iter()
        .filter(|at| (from..=to).contains(at))
        .collect();
    for piece in within.windows(2) {
        let begun = cuts.iter().filter(|cut| **cut <= piece[0]).max();
        for (kind, amount) in [(ResourceKind::Cpu, cpu), (ResourceKind::Memory, memory)] {
            let key = (piece[0] / HOUR_MS, begun.copied().unwrap_or(0), kind);
            *hours.entry(key).or_default() += i128::from(amount) * i128::from(piece[1] - piece[0]);
        }
    }
}

/// What the world says was used: by what is over, and by what runs up to the last full hour.
fn expected_hours(world: &World) -> Hours {
    let accrued_to = world.clock / HOUR_MS * HOUR_MS;
    let mut hours = Hours::new();
    for truth in &world.truths {
        let over = truth.released.map_or(Some(accrued_to), |_| truth.ended);
        if let (Some(from), Some(to)) = (truth.started, over)
            && from < to
        {
            let amounts = (truth.cpu, truth.memory);
            add(&mut hours, &world.cuts, amounts, (from, to));
        }
    }
    hours.retain(|_, quantity| *quantity != 0);
    hours
}

fn sums(world: &World) -> impl Iterator<Item = &Sums> {
    world
        .changes
        .iter()
        .filter_map(|change| match &change.fact {
            Fact::Sums(sums) => Some(sums.as_ref()),
            _ => None,
        })
}

/// What the bill says, of some months.
fn billed(world: &World, of: impl Fn(Month) -> bool) -> Hours {
    let mut hours = Hours::new();
    for (line, used) in sums(world).flat_map(|sums| &sums.used) {
        if of(line.period) {
            for (kind, quantity) in ResourceKind::ALL.into_iter().zip(used.quantity.0) {
                let key = (line.hour.0, line.since.0, kind);
                *hours.entry(key).or_default() += quantity;
            }
        }
    }
    hours.retain(|_, quantity| *quantity != 0);
    hours
}

/// The runs, and their sums by the hour, are what happened, whatever the batches; and the bill of a closed month is what it
/// was when it was closed.
fn check_bill(world: &World) -> Result<(), TestCaseError> {
    let over = |truth: &&Truth| truth.ended.is_some() && truth.started < truth.ended;
    let runs = |truth: &Truth| {
        let moments = (truth.started, truth.ended, truth.released);
        (truth.allocation.0, truth.placed, moments)
    };
    let mut expected: Vec<_> = world.truths.iter().filter(over).map(runs).collect();
    let intervals = world
        .changes
        .iter()
        .filter_map(|change| match &change.fact {
            Fact::Interval(run) => Some((
                run.allocation.0,
                run.placed_at.0,
                (
                    Some(run.started_at.0),
                    Some(run.ended_at.0),
                    Some(run.released_at.0),
                ),
            )),
            _ => None,
        });
    let mut intervals: Vec<_> = intervals.collect();
    expected.sort_unstable();
    intervals.sort_unstable();
    prop_assert_eq!(intervals, expected);
    prop_assert_eq!(billed(world, |_| true), expected_hours(world));
    if let Some((closed, bill)) = &world.closed {
        prop_assert_eq!(&billed(world, |month| month <= *closed), bill);
    }
    // At the end of a batch, what is said to run does.
    let mut running: BTreeMap<u64, i64> = BTreeMap::new();
    for change in &world.changes {
        if let Fact::Running(run) = &change.fact {
            *running.entry(run.allocation.0).or_default() += if run.under_way { 1 } else { -1 };
        }
    }
    running.retain(|_, runs| *runs != 0);
    let runs = |truth: &&Truth| truth.started.is_some() && truth.released.is_none();
    let expected = world.truths.iter().filter(runs);
    let expected: BTreeMap<u64, i64> = expected.map(|t| (t.allocation.0, 1)).collect();
    prop_assert_eq!(running, expected);
    Ok(())
}

/// By account, hour and resource.
type Integrals = BTreeMap<(Account, i64, ResourceKind), i128>;

/// What the sums of the transfers come to, stretch by stretch.
fn integrals(world: &World) -> Integrals {
    let mut changes: BTreeMap<(Account, i64), ([i128; 3], [i128; 3])> = BTreeMap::new();
    for (shelf, account, booked) in sums(world).flat_map(|sums| &sums.booked) {
        let begin = shelf.since.0.max(shelf.hour.0 * HOUR_MS);
        let (risen, moment) = changes.entry((*account, begin)).or_default();
        for kind in 0..3 {
            risen[kind] += booked.risen.0[kind];
            moment[kind] += booked.moment.0[kind];
        }
    }
    let mut integrals = Integrals::new();
    let first = changes
        .keys()
        .map(|(_, at)| at / HOUR_MS)
        .min()
        .unwrap_or(0);
    let hours = (first..=world.clock / HOUR_MS + 1).map(|hour| hour * HOUR_MS);
    let begins: BTreeSet<i64> = hours.chain(world.cuts.iter().copied()).collect();
    let begins: Vec<i64> = begins
        .into_iter()
        .filter(|at| *at >= first * HOUR_MS)
        .collect();
    for account in KEPT {
        let mut before = [0; 3];
        for slice in begins.windows(2) {
            let (begin, end) = (slice[0], slice[1].min(world.clock));
            if begin >= end {
                continue;
            }
            let hour = begin / HOUR_MS;
            let none = ([0; 3], [0; 3]);
            let (risen, moment) = changes.get(&(account, begin)).unwrap_or(&none);
            for (kind, resource) in ResourceKind::ALL.into_iter().enumerate() {
                let quantity = before[kind] * i128::from(end - begin)
                    + risen[kind] * i128::from(end - hour * HOUR_MS)
                    - moment[kind];
                *integrals.entry((account, hour, resource)).or_default() += quantity;
                before[kind] += risen[kind];
            }
        }
    }
    integrals.retain(|_, quantity| *quantity != 0);
    integrals
}

/// The same, transfer by transfer, each from its moment on.
fn expected_integrals(world: &World) -> Integrals {
    let mut integrals = Integrals::new();
    for transfer in world.changes.iter().filter_map(transfer) {
        for hour in transfer.at.0 / HOUR_MS..=world.clock / HOUR_MS {
            let begin = transfer.at.0.max(hour * HOUR_MS);
            let ms = (world.clock.min((hour + 1) * HOUR_MS) - begin).max(0);
            for kind in ResourceKind::ALL {
                let quantity = transfer.moved.amounts.get(kind) * i128::from(ms);
                *integrals.entry((transfer.from, hour, kind)).or_default() -= quantity;
                *integrals.entry((transfer.to, hour, kind)).or_default() += quantity;
            }
        }
    }
    integrals.retain(|(account, ..), quantity| *quantity != 0 && *account != Account::Outside);
    integrals
}

/// What a run that is whole in its row stands for.
fn taken_apart(run: &Interval) -> [Transfer; 4] {
    let transfer = |from, to, at| Transfer {
        moved: run.moved.clone(),
        from,
        to,
        at,
    };
    [
        transfer(Account::Idle, Account::Reserved, run.placed_at),
        transfer(Account::Reserved, Account::Allocated, run.started_at),
        transfer(Account::Allocated, Account::Reserved, run.ended_at),
        transfer(Account::Reserved, Account::Idle, run.released_at),
    ]
}

/// The rows of a batch stand for the same transfers as without whole runs, and every run that can be whole is.
fn check_rows(batch: &[Change]) -> Result<(), TestCaseError> {
    let transfers: Vec<&Transfer> = batch.iter().filter_map(transfer).collect();
    let mut written = Vec::new();
    for (change, whole) in batch.iter().zip(in_one_row(batch)) {
        match &change.fact {
            Fact::Interval(run) => {
                let life = taken_apart(run);
                // Another run of the allocation may have the same moments: the placement is its last one before the end, and
                // the release is of the end's own event.
                let of_run = |step: &&Transfer| step.moved.allocation == Some(run.allocation);
                let comes = |step: &&Transfer| {
                    step.to == Account::Reserved && step.from != Account::Allocated
                };
                let before = batch.iter().take_while(|other| *other != change);
                let placed = before
                    .filter_map(transfer)
                    .filter(of_run)
                    .filter(comes)
                    .last();
                let of_event = |c: &&Change| (c.lsn, c.index) == (change.lsn, change.index);
                let released = (batch.iter().filter(of_event))
                    .filter_map(transfer)
                    .rfind(of_run);
                let could = life.iter().all(|step| transfers.contains(&step))
                    && placed == Some(&life[0])
                    && released == Some(&life[3]);
                prop_assert_eq!(whole, could, "{:?}", run);
                written.extend(life.into_iter().filter(|_| whole));
            }
            Fact::Transfer(transfer) if !whole => written.push(transfer.clone()),
            _ => {}
        }
    }
    let mut expected: Vec<Transfer> = transfers.into_iter().cloned().collect();
    let order = |t: &Transfer| {
        (
            t.at,
            t.moved.node.clone(),
            t.moved.incarnation,
            t.moved.allocation,
            t.from,
            t.to,
        )
    };
    written.sort_by_key(order);
    expected.sort_by_key(order);
    prop_assert_eq!(written, expected);
    Ok(())
}

fn transfer(change: &Change) -> Option<&Transfer> {
    match &change.fact {
        Fact::Transfer(transfer) => Some(transfer),
        _ => None,
    }
}

fn first_attempts<'c>(changes: impl IntoIterator<Item = &'c Change>) -> BTreeSet<AllocationNo> {
    let mut there = BTreeSet::new();
    for change in changes {
        if let Fact::FirstAttempts(first) = &change.fact {
            if first.all {
                there.clear();
            }
            there.extend(&first.begun);
            there.retain(|no| !first.over.contains(no));
        }
    }
    there
}

/// Of those no run is over that were asked for and have left no node; who goes on from a snapshot is told of all.
fn check_first_attempts(world: &World, mut restored: Usage) -> Result<(), TestCaseError> {
    let released = world.truths.iter().filter(|truth| truth.released.is_some());
    let released: BTreeSet<_> = released.map(|truth| truth.allocation).collect();
    let mut expected: BTreeSet<_> = (1..=world.requests).map(AllocationNo).collect();
    expected.retain(|no| !released.contains(no));
    prop_assert_eq!(&first_attempts(&world.changes), &expected);
    let at = At {
        lsn: Lsn(world.lsn + 1),
        index: 0,
        no: EventNo(0),
        now: Millis(world.scheduler_now),
    };
    let waits = Event::QuotaWaiting(QuotaWaiting {
        allocation: AllocationNo(u64::MAX),
        refusal: Refusal::new(Rule::QuotaExceeded, "cpu"),
    });
    let mut changes = Vec::new();
    let legal = restored.project_event(&at, &waits, &mut changes);
    prop_assert!(legal.is_ok());
    restored.end_batch(&mut changes);
    prop_assert_eq!(first_attempts(&changes), expected);
    Ok(())
}

/// Steps of a history, and after how many events a batch ends.
fn history() -> impl Strategy<Value = (Vec<(u8, u64, i64)>, u64)> {
    let step = (0u8..13, any::<u64>(), 0i64..2 * HOUR_MS);
    (prop::collection::vec(step, 20..400), 1u64..200)
}

fn world(steps: Vec<(u8, u64, i64)>, length: u64) -> World {
    // Some hours before the end of a month.
    let begin = Month::FIRST.end().0 - 20 * HOUR_MS;
    let mut world = World {
        length,
        scheduler_now: begin,
        nodes_now: begin,
        ..World::default()
    };
    for step in steps {
        world.step(step);
    }
    world.end_batch();
    world
}

/// The property below holds, too, if nothing ever runs and no month is ever closed.
#[test]
fn many_worlds_have_runs_and_some_close_a_month() {
    const SAMPLES: usize = 100;
    let strategy = history();
    let mut runner = TestRunner::deterministic();
    let (mut runs, mut closed) = (0, 0);
    for _ in 0..SAMPLES {
        let tree = strategy.new_tree(&mut runner);
        let (steps, length) = tree.expect("the strategy rejects nothing").current();
        let world = world(steps, length);
        runs += usize::from(!expected_hours(&world).is_empty());
        closed += usize::from(world.closed.is_some());
    }
    assert!(
        runs >= 50 && closed >= 5,
        "{runs} have runs, {closed} have closed months"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn everything_adds_up((steps, length) in history()) {
        let world = world(steps, length);
        check_books(&world)?;
        check_bill(&world)?;
        prop_assert_eq!(integrals(&world), expected_integrals(&world));
        let mut from = 0;
        for to in &world.ends {
            check_rows(&world.changes[from..*to])?;
            from = *to;
        }
        // The state goes through a snapshot unchanged.
        let snapshot = Snapshot::of(1, Default::default(), &world.usage);
        let restored: Usage = snapshot.state(1).expect("it has a postcard form");
        prop_assert_eq!(state_digest(&restored), state_digest(&world.usage));
        prop_assert_eq!(&restored, &world.usage);
        check_first_attempts(&world, restored)?;
    }
}
