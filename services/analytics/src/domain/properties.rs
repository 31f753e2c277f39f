//! Conservation under any interleaving, against a reference that knows what really happened and adds it up the slow way.

use super::{Account, Amounts, Change, Fact, Usage};
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
            gpus: vec![],
            zones: 0,
            policy: PlacementPolicy::Default,
            candidates: vec![],
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

type Timeline = BTreeMap<(Token, u64), BTreeMap<i64, BTreeMap<Account, Amounts>>>;

fn timeline(changes: &[Change]) -> Timeline {
    let mut timeline = Timeline::new();
    for change in changes {
        if let Fact::Entry(entry) = &change.fact {
            let machine = (entry.node.clone(), entry.incarnation);
            let moments = timeline.entry(machine).or_default();
            let accounts = moments.entry(entry.at.0).or_default();
            *accounts.entry(entry.account).or_default() += entry.amounts;
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
        for (at, accounts) in moments {
            for (account, amounts) in accounts {
                *totals.entry(account).or_default() += amounts;
            }
            let total = |account: Account| totals.get(&account).copied().unwrap_or_default();
            for kind in ResourceKind::ALL {
                let states = Account::ALL.into_iter().filter(|a| *a != Account::Capacity);
                let sum: i128 = states.map(|account| total(account).get(kind)).sum();
                prop_assert_eq!(sum, total(Account::Capacity).get(kind));
                for account in Account::ALL {
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

fn check_bill(world: &World) -> Result<(), TestCaseError> {
    let over = |truth: &&Truth| truth.ended.is_some() && truth.started < truth.ended;
    let runs: i128 = world
        .truths
        .iter()
        .filter(over)
        .map(|t| i128::from(t.cpu) * i128::from(t.ended.unwrap_or(0) - t.started.unwrap_or(0)))
        .sum();
    let mut billed = 0;
    // What is under way is on the books from its start, without an end.
    let mut booked: i128 = world
        .truths
        .iter()
        .filter(|t| t.released.is_none())
        .map(|t| i128::from(t.cpu) * i128::from(t.started.unwrap_or(0)))
        .sum();
    let mut by_hour = 0;
    for change in &world.changes {
        match &change.fact {
            Fact::Interval(i) => {
                let (from, to) = (i.started_at.0, i.ended_at.0);
                billed += i128::from(i.cpu_milli) * i128::from(to - from);
                for hour in from / HOUR_MS..=to / HOUR_MS {
                    let part = to.min((hour + 1) * HOUR_MS) - from.max(hour * HOUR_MS);
                    by_hour += i128::from(i.cpu_milli) * i128::from(part);
                }
            }
            Fact::Entry(e) if e.account == Account::Allocated => {
                booked -= e.amounts.cpu_milli * i128::from(e.at.0);
            }
            Fact::Entry(_) | Fact::Rate(_) => {}
        }
    }
    prop_assert_eq!(billed, runs);
    prop_assert_eq!(booked, runs);
    prop_assert_eq!(by_hour, runs);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn everything_adds_up(
        steps in prop::collection::vec((0u8..10, any::<u64>(), 0i64..2 * HOUR_MS), 20..400),
    ) {
        let mut world = World::default();
        for step in steps {
            world.step(step);
        }
        check_books(&world)?;
        check_bill(&world)?;
        // The state goes through a snapshot unchanged.
        let snapshot = Snapshot::of(1, Default::default(), &world.usage);
        let restored: Usage = snapshot.state(1).expect("it has a postcard form");
        prop_assert_eq!(state_digest(&restored), state_digest(&world.usage));
        prop_assert_eq!(restored, world.usage);
    }
}
