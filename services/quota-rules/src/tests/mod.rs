//! Decisions as tables: what stands on the ledger, then what quota adds to it.

mod accounts;
mod budgets;
mod burst;
mod checker;
mod cohorts;
mod gangs;
mod histories;
mod models;
mod properties;
mod scale;
mod trials;
mod upgrade;
mod validity;
mod views;
mod waiting;
mod words;

use super::{Config, Quota};
use ledger::{Decider, Draft, IllegalEvent, Snapshot};
use vocab::fact::{
    LimitsInForce, QuotaDenied, QuotaReclaimed, QuotaReleased, QuotaReserved, QuotaWaiting,
};
use vocab::{Account, At, Event, EventNo, Lsn, Millis, QuotaFlags, QuotaResource, Token};

/// A state, and what it takes to write on its ledger.
struct World {
    state: Quota,
    now: Millis,
    next: u64,
    /// Numbers of the other writers' events, beyond those of the requests.
    others: u64,
}

impl World {
    fn new() -> Self {
        Self {
            state: Quota::default(),
            now: Millis(0),
            next: 1,
            others: 1 << 32,
        }
    }

    fn observe(&mut self, no: u64, event: &Event) {
        self.try_observe(no, event).unwrap();
    }

    fn try_observe(&mut self, no: u64, event: &Event) -> Result<(), IllegalEvent> {
        let at = At {
            lsn: Lsn(0),
            index: 0,
            no: EventNo(no),
            now: self.now,
        };
        self.state.observe_event(&at, event)
    }

    /// Decides until nothing is left; the first draft is all there is, unless it was full.
    fn decide(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        loop {
            let mut draft = Draft::new(self.now, EventNo(self.next));
            self.state.decide(&Config::default(), &mut draft);
            assert_eq!(draft.poison(), None);
            self.next = draft.next_no().0;
            events.extend(draft.events().cloned());
            if !draft.full() {
                return events;
            }
        }
    }

    /// The state of a process that begins with the snapshot of this one.
    fn restored(&self) -> Quota {
        let snapshot = Snapshot::of(Quota::STATE_VERSION, ledger::Chain::default(), &self.state);
        let restored: Quota = snapshot.state(Quota::STATE_VERSION).unwrap();
        assert!(
            restored == self.state,
            "another state comes out of its snapshot"
        );
        restored
    }

    /// Nothing is left to decide, neither for this state nor for one that looks at everything anew.
    fn at_rest(&mut self) {
        let restored = self.restored();
        let state = std::mem::replace(&mut self.state, restored);
        let left: Vec<String> = self.decide().iter().map(said).collect();
        assert_eq!(left, [""; 0], "a fresh look decides more");
        self.state = state;
        let wake = self.state.wake_at();
        assert!(
            wake.is_none_or(|at| at > self.now),
            "{wake:?} at {:?}",
            self.now
        );
    }
}

/// Each line: steps, and what is decided then; or `? account resource` and what is reserved/used. See `words`.
fn check(table: &str) {
    let mut world = World::new();
    for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (steps, expected) = line.split_once("=>").unwrap_or((line, ""));
        let found = match steps.trim().strip_prefix("? ") {
            Some(question) => answer(&world, question),
            None => {
                for step in steps.split(", ").map(str::trim) {
                    step_on(&mut world, step);
                }
                let events: Vec<String> = world.decide().iter().map(said).collect();
                world.at_rest();
                events.join("; ")
            }
        };
        assert_eq!(found, expected.trim(), "in line: {line}");
    }
}

fn step_on(world: &mut World, step: &str) {
    if let Some(now) = step.strip_prefix("at ") {
        world.now = Millis(now.parse().unwrap());
        return;
    }
    let (no, event) = words::event(step, world.now);
    world.others += 1;
    let no = if no > 0 { no } else { world.others };
    world.observe(no, &event);
}

fn answer(world: &World, question: &str) -> String {
    let words: Vec<&str> = question.split_whitespace().collect();
    match words[..] {
        ["accounts"] => world.state.accounts().to_string(),
        ["names"] => world.state.names().to_string(),
        ["planned", account, resource] => {
            let account = Account::parse(account).unwrap();
            let resource = QuotaResource::parse(resource).unwrap();
            let planned = world.state.planned(&account, &resource).into_iter();
            format!(
                "{:?}",
                planned.map(|no| no.0 - (1 << 32)).collect::<Vec<_>>()
            )
        }
        ["claim", no] => views::claim(world, no.parse().unwrap()),
        ["lent", tenant, no] => trials::lent(world, tenant, no.parse().unwrap()),
        ["limited", account] => {
            let account = Account::parse(account).unwrap();
            let limited = world.state.limited(&account);
            limited
                .map(|it| it.to_string())
                .collect::<Vec<_>>()
                .join(" ")
        }
        ["waiting"] => world.state.waiting().to_string(),
        ["live"] => world.state.live().to_string(),
        ["wake"] => world
            .state
            .wake_at()
            .map_or("never".into(), |at| at.0.to_string()),
        ["forecast", account, of] => {
            let account = Account::parse(account).unwrap();
            let of = vocab::BudgetOf::parse(of).unwrap();
            let f = world.state.forecast(&account, &of, world.now).unwrap();
            let until = f.exhausted_at.map_or("never".into(), |at| at.0.to_string());
            format!(
                "{}/{} by {} until {until}",
                f.spent, f.budget.amount, f.period.1.0
            )
        }
        [account, resource] => {
            let account = Account::parse(account).unwrap();
            let resource = QuotaResource::parse(resource).unwrap();
            let holding = world.state.holding(&account, &resource);
            format!("{}/{}", holding.reserved, holding.used)
        }
        _ => panic!("{question}"),
    }
}

/// An own event as people say it.
fn said(event: &Event) -> String {
    match event {
        Event::QuotaReserved(QuotaReserved {
            allocation,
            flags,
            models,
        }) => {
            let names = [
                (QuotaFlags::SOFT, " soft"),
                (QuotaFlags::BURST, " burst"),
                (QuotaFlags::BORROWED, " borrowed"),
            ];
            let set = names.iter().filter(|(flag, _)| flags.has(*flag));
            let set: String = set.map(|(_, name)| *name).collect();
            let texts = |models: &[Token]| {
                let texts: Vec<&str> = models.iter().map(Token::as_str).collect();
                texts.join(",")
            };
            let models = models.as_ref().map_or(String::new(), |models| {
                format!(
                    " on [{}] not [{}]",
                    texts(&models.counts_on),
                    texts(&models.except)
                )
            });
            format!("{} reserved{set}{models}", allocation.0)
        }
        Event::QuotaDenied(QuotaDenied {
            allocation,
            refusal,
        }) => format!("{} denied {refusal}", allocation.0),
        Event::QuotaWaiting(QuotaWaiting {
            allocation,
            refusal,
        }) => format!("{} waits {refusal}", allocation.0),
        Event::QuotaReclaimed(QuotaReclaimed { allocation, by }) => match by {
            Some(by) => format!("{} reclaimed by {}", allocation.0, by.0),
            None => format!("{} reclaimed", allocation.0),
        },
        Event::QuotaReleased(QuotaReleased { allocation }) => format!("{} released", allocation.0),
        Event::LimitsInForce(LimitsInForce {
            account,
            resource,
            limits,
        }) => match limits {
            Some(limits) => format!("{account} {resource} now {}", limits.hard),
            None => format!("{account} {resource} now none"),
        },
        other => format!("{other:?}"),
    }
}
