//! A server that decides one message after the other, as the kernel of named resources does, and clients that see it
//! through a bad network.

mod dice;
mod server;

use super::{
    super::{CallNo, Entry, Found, History, Read, Recorder, Sent},
    BOUNDS, token,
};
pub use dice::Dice;
use named_resources::Space;
use server::Desk;
use std::collections::BTreeMap;
use vocab::{LeaseNo, ResourceAsk, Rule, Token};

const PATIENCE_NS: u64 = 3_000;
const CLIENTS: u64 = 6;
const TENANTS: [&str; 2] = ["team-a", "team-b"];

enum Step {
    Wakes {
        client: u64,
    },
    Arrives {
        call: CallNo,
        sent: Sent,
        limited: bool,
    },
    Reads(Read),
}

struct World {
    slot_ns: u64,
    dice: Dice,
    steps: BTreeMap<(u64, u64), Step>,
    steps_made: u64,
    desks: Vec<Desk>,
    ledger: Vec<Entry>,
    lsn: u64,
    index: u32,
    frame_open: bool,
    event_no: u64,
    recorder: Recorder,
    sent: Vec<Sent>,
    /// What each client has no answer to.
    open: BTreeMap<u64, Sent>,
    ids: u64,
}

/// A history that holds.
pub fn history(seed: u64, steps: usize) -> History {
    let mut world = World::new(seed);
    for client in 0..CLIENTS {
        world.later(client * 10, Step::Wakes { client });
    }
    for _ in 0..steps {
        let Some(((now, _), step)) = world.steps.pop_first() else {
            break;
        };
        world.step(now, step);
    }
    world.recorder.history(BOUNDS, world.ledger)
}

impl World {
    fn new(seed: u64) -> Self {
        let desk = |_| Desk {
            space: Space::default(),
            operations: BTreeMap::new(),
            granted: Vec::new(),
            before: None,
        };
        Self {
            // Short slots let windows end, long ones let deadlines meet.
            slot_ns: if seed % 4 == 3 { 15_000 } else { 2_000 },
            dice: Dice::new(seed),
            steps: BTreeMap::new(),
            steps_made: 0,
            desks: (0..TENANTS.len()).map(desk).collect(),
            ledger: Vec::new(),
            lsn: 0,
            index: 0,
            frame_open: false,
            event_no: 0,
            recorder: Recorder::default(),
            sent: Vec::new(),
            open: BTreeMap::new(),
            ids: 0,
        }
    }

    fn later(&mut self, at: u64, step: Step) {
        self.steps_made += 1;
        self.steps.insert((at, self.steps_made), step);
    }

    fn step(&mut self, now: u64, step: Step) {
        match step {
            Step::Wakes { client } => self.wakes(now, client),
            Step::Arrives {
                call,
                sent,
                limited,
            } => self.arrives(now, call, &sent, limited),
            Step::Reads(read) => self.reads(now, read),
        }
    }

    fn wakes(&mut self, now: u64, client: u64) {
        if self.dice.percent(15) {
            return self.looks(now, client);
        }
        let sent = self.wants(client);
        self.sent.push(sent.clone());
        self.open.insert(client, sent.clone());
        let call = self.recorder.invoked(sent.clone(), now);
        let limited = self.dice.percent(5);
        let copies = [self.dice.percent(90), !limited && self.dice.percent(5)];
        for _ in copies.into_iter().filter(|arrives| *arrives) {
            let late = if self.dice.percent(3) { 8_000 } else { 1_200 };
            let at = now + 1 + self.dice.below(late);
            let sent = sent.clone();
            let arrives = Step::Arrives {
                call,
                sent,
                limited,
            };
            self.later(at, arrives);
        }
        let at = now + 500 + self.dice.below(PATIENCE_NS);
        self.later(at, Step::Wakes { client });
    }

    /// What is open again, or something old, or something old with other content, or something new.
    fn wants(&mut self, client: u64) -> Sent {
        let desk = (client % TENANTS.len() as u64) as usize;
        let me = token(&format!("client-{client}"));
        let ask = self.ask(desk);
        let mine = |sent: &&Sent| sent.tenant.as_str() == TENANTS[desk];
        let old: Vec<Sent> = self.sent.iter().filter(mine).cloned().collect();
        let again = self.open.get(&client).cloned();
        let dice = &mut self.dice;
        let old = dice.pick(&old).cloned().filter(|_| dice.percent(15));
        match (again.filter(|_| dice.percent(70)), old) {
            (Some(sent), _) => sent,
            (None, Some(sent)) if dice.percent(60) => Sent { client: me, ..sent },
            (None, Some(sent)) => Sent {
                client: me,
                ask,
                ..sent
            },
            (None, None) => {
                self.ids += 1;
                Sent {
                    client: me,
                    tenant: token(TENANTS[desk]),
                    operation_id: token(&format!("op-{}", self.ids)),
                    ask,
                }
            }
        }
    }

    fn ask(&mut self, desk: usize) -> ResourceAsk {
        let dice = &mut self.dice;
        let granted = &self.desks[desk].granted;
        let latest = &granted[granted.len().saturating_sub(4)..];
        let unknown = (self.event_no + 3, token("h1"));
        let (number, mut holder) = dice.pick(latest).cloned().unwrap_or(unknown);
        let lease = LeaseNo(number);
        if dice.percent(10) {
            holder = token("h0");
        }
        let fencing_token = 1 + u64::from(dice.percent(10));
        match dice.below(10) {
            0..2 => ResourceAsk::Create {
                resource: name(dice),
            },
            2..5 => ResourceAsk::Acquire {
                resources: names(dice),
                holder: token(["h1", "h2"][dice.below(2) as usize]),
                ttl_slots: dice.pick(&[0, 2, 4, 4, 4, 4, 9, 17]).copied().unwrap_or(1),
            },
            5 | 6 => ResourceAsk::Confirm {
                lease,
                holder,
                fencing_token,
            },
            7 => ResourceAsk::Release {
                lease,
                holder,
                fencing_token,
            },
            8 => ResourceAsk::Revoke { lease },
            _ => ResourceAsk::Reclaim { lease },
        }
    }

    fn arrives(&mut self, now: u64, call: CallNo, sent: &Sent, limited: bool) {
        let back = now + 1 + self.dice.below(800);
        // Now and then a process is down, and what it would have said is lost.
        let heard = self.dice.percent(85) && now / 20_000 % 5 != 4;
        if limited {
            if heard {
                let rule = Some(Rule::RateLimited);
                self.recorder.unwritten(call, back, rule);
            }
            return;
        }
        let (lsn, answer) = self.decides(now / self.slot_ns, sent);
        if heard {
            self.recorder.answered(call, back, lsn, answer);
            self.open.retain(|_, open| open != sent);
        }
    }

    fn looks(&mut self, now: u64, client: u64) {
        let desk = (client % TENANTS.len() as u64) as usize;
        let known = self.dice.pick(&self.desks[desk].granted);
        let lease = known.map_or(3, |(number, _)| *number);
        let read = Read {
            client: token(&format!("client-{client}")),
            tenant: token(TENANTS[desk]),
            lease,
            invoked_ns: now,
            answered_ns: 0,
            named_lsn: None,
            lsn: 0,
            slot: 0,
            found: Found::Refused {
                rule: Rule::LeaseNotFound,
            },
        };
        let at = now + 1 + self.dice.below(1_000);
        self.later(at, Step::Reads(read));
        self.later(at + 1_000, Step::Wakes { client });
    }
}

fn name(dice: &mut Dice) -> Token {
    token(&format!("r{}", dice.below(6)))
}

/// Mostly one, sometimes more than a bundle takes.
fn names(dice: &mut Dice) -> Vec<Token> {
    let many = dice.pick(&[1, 1, 1, 1, 1, 1, 1, 1, 2, 3, 4, 0]).copied();
    (0..many.unwrap_or(1)).map(|_| name(dice)).collect()
}

fn desk_of(tenant: &Token) -> usize {
    usize::from(tenant.as_str() == TENANTS[1])
}
