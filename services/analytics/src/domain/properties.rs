//! Conservation under any interleaving, against a reference that knows what really happened and adds it up the slow way.

use super::{
    Account, Amounts, Booked, Change, Fact, Hour, Interval, Transfer, Usage, booked, in_one_row,
    used,
};
use ledger::{Projection, Snapshot, state_digest};
use proptest::prelude::*;
use std::collections::BTreeMap;
use vocab::fact::{
    AllocationEnded, AllocationPlaced, AllocationRequested, AllocationRequeued, AllocationStarted,
    NodeLost, NodeReady, NodeRegistered,
};
use vocab::{
    AllocationNo, AllocationSpec, At, EndCause, Event, EventNo, HOUR_MS, Lsn, Millis, NodeCapacity,
    Operation, PlacementPolicy, ResourceKind, Token,
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
        self.usage
            .project_event(&at, event, &mut self.changes)
            .expect("the world is legal");
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
            })
        } else {
            Event::AllocationEnded(AllocationEnded {
                allocation,
                cause,
                at: at_ms,
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

const STATES: [Account; 4] = [
    Account::Allocated,
    Account::Reserved,
    Account::Idle,
    Account::Unavailable,
];

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
            Fact::Interval(_) | Fact::Rate(_) => {}
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
                let sum: i128 = STATES.map(|account| total(account).get(kind)).iter().sum();
                prop_assert_eq!(sum, capacity.get(kind));
                prop_assert_eq!(-total(Account::Outside).get(kind), capacity.get(kind));
                for account in STATES {
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

type Hours = BTreeMap<(i64, ResourceKind), i128>;

fn add(hours: &mut Hours, hour: i64, amounts: (u64, u64), ms: i64) {
    let (cpu, memory) = amounts;
    for (kind, amount) in [(ResourceKind::Cpu, cpu), (ResourceKind::Memory, memory)] {
        *hours.entry((hour, kind)).or_default() += i128::from(amount) * i128::from(ms);
    }
}

/// What the world says was used, by the hour.
fn expected_hours(world: &World) -> Hours {
    let mut hours = Hours::new();
    for truth in &world.truths {
        if let (Some(from), Some(to)) = (truth.started, truth.ended) {
            for hour in from / HOUR_MS..=to / HOUR_MS {
                let part = to.min((hour + 1) * HOUR_MS) - from.max(hour * HOUR_MS);
                add(&mut hours, hour, (truth.cpu, truth.memory), part);
            }
        }
    }
    hours.retain(|_, quantity| *quantity != 0);
    hours
}

/// What the sums of the transfers come to, without the starts of what still runs.
fn integrals(world: &World, batches: &[&[Change]]) -> Hours {
    let mut hours: BTreeMap<(i64, ResourceKind), Booked> = BTreeMap::new();
    for ((Hour(hour), key), booked) in batches.iter().flat_map(|batch| booked(batch)) {
        let sum = hours.entry((hour, key.kind)).or_default();
        sum.risen += booked.risen;
        sum.quantity += booked.quantity;
    }
    for truth in world.truths.iter().filter(|t| t.released.is_none()) {
        let Some(started) = truth.started else {
            continue;
        };
        let (hour, mut under_way) = (started / HOUR_MS, Hours::new());
        add(&mut under_way, hour, (truth.cpu, truth.memory), 1);
        for (key, amount) in under_way {
            let sum = hours.entry(key).or_default();
            sum.risen -= amount;
            sum.quantity -= amount * i128::from((hour + 1) * HOUR_MS - started);
        }
    }
    let mut integrals = Hours::new();
    for kind in ResourceKind::ALL {
        let of_kind: Vec<i64> = hours.keys().filter(|k| k.1 == kind).map(|k| k.0).collect();
        let (Some(first), Some(last)) = (of_kind.first(), of_kind.last()) else {
            continue;
        };
        let mut before = 0;
        for hour in *first..=*last {
            let Booked { risen, quantity } = hours.get(&(hour, kind)).copied().unwrap_or_default();
            integrals.insert((hour, kind), before * i128::from(HOUR_MS) + quantity);
            before += risen;
        }
    }
    integrals.retain(|_, quantity| *quantity != 0);
    integrals
}

/// The runs, their sums by the hour and the sums of the transfers are the same, whatever the batches.
fn check_bill(world: &World, batches: &[&[Change]]) -> Result<(), TestCaseError> {
    let over = |truth: &&Truth| truth.ended.is_some() && truth.started < truth.ended;
    let runs = |truth: &Truth| {
        let moments = (truth.started, truth.ended, truth.released);
        (truth.allocation.0, truth.placed, moments)
    };
    let mut expected: Vec<_> = world.truths.iter().filter(over).map(runs).collect();
    let billed = world
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
    let mut billed: Vec<_> = billed.collect();
    expected.sort_unstable();
    billed.sort_unstable();
    prop_assert_eq!(billed, expected);
    let mut by_hour = Hours::new();
    for (line, used) in batches.iter().flat_map(|batch| used(batch)) {
        let quantity = by_hour
            .entry((line.hour.0, line.resource.kind))
            .or_default();
        *quantity += i128::try_from(used.quantity).expect("small");
    }
    let expected = expected_hours(world);
    prop_assert_eq!(&by_hour, &expected);
    prop_assert_eq!(&integrals(world, batches), &expected);
    Ok(())
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
                    .next_back();
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn everything_adds_up(
        steps in prop::collection::vec((0u8..10, any::<u64>(), 0i64..2 * HOUR_MS), 20..400),
        length in 1usize..200,
    ) {
        let mut world = World::default();
        for step in steps {
            world.step(step);
        }
        check_books(&world)?;
        let batches: Vec<&[Change]> = world.changes.chunks(length).collect();
        check_bill(&world, &batches)?;
        for batch in batches {
            check_rows(batch)?;
        }
        // The state goes through a snapshot unchanged.
        let snapshot = Snapshot::of(1, Default::default(), &world.usage);
        let restored: Usage = snapshot.state(1).expect("it has a postcard form");
        prop_assert_eq!(state_digest(&restored), state_digest(&world.usage));
        prop_assert_eq!(restored, world.usage);
    }
}
