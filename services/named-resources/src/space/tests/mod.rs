//! Tests read as a table: each line is an ask at a slot, and what came of it, in the kernel and in the model.
//!
//! ```text
//! 3  acquire x ann 5 a b -> until 8        ann is granted x for 5 slots; a and b are its members
//! 4  confirm x ann 1     -> confirmed      with fencing token 1
//! 8  expire x 8          -> noop           the deadline that the caller says
//! 8  show x              -> confirmed ann a b fencing_token 1
//! 8  show a              -> confirmed v2 x
//! ```

mod both;
mod conformance;
mod edges;
mod illegal;
mod properties;
mod world;

use super::*;
use both::Both;
use std::collections::BTreeMap;
use vocab::Token;

/// The bounds of the conformance table.
pub fn small() -> Bounds {
    Bounds {
        resources_max: 4,
        leases_max: 4,
        bundle_max: 3,
        ttl_slots_max: 16,
        history_slots: 4,
        expirations_per_slot_max: 2,
    }
}

/// Runs the lines one after another in one space with small bounds.
pub fn check(lines: &str) {
    check_with(&small(), None, lines);
}

pub fn check_with(bounds: &Bounds, limit: Option<u64>, lines: &str) {
    let mut table = Table {
        both: Both::new(bounds, limit),
        no: LeaseNo(0),
        leases: BTreeMap::new(),
    };
    let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty());
    for line in lines {
        let (said, expected) = line.split_once("->").expect("ask -> answer");
        assert_eq!(table.run(said), expected.trim(), "{line}");
        table.both.restore();
    }
}

/// A snapshot is the same state, and has the same bytes again.
pub fn restored(space: &Space) -> Space {
    let snapshot = ledger::Snapshot::of(1, ledger::Chain::default(), space);
    let restored: Space = snapshot.state(1).expect("it has a serialised form");
    assert_eq!(restored, *space);
    assert!(restored.expirations == space.expirations);
    assert_eq!(restored.live_leases(), space.live_leases());
    let digest = ledger::state_digest(space);
    assert!(ledger::state_digest(&restored) == digest);
    restored
}

pub fn token(name: &str) -> Token {
    Token::new(name).expect("a token")
}

struct Table {
    both: Both,
    /// Each line is an event.
    no: LeaseNo,
    leases: BTreeMap<String, LeaseNo>,
}

impl Table {
    fn run(&mut self, said: &str) -> String {
        self.no.0 += 1;
        let words: Vec<_> = said.split_whitespace().collect();
        let slot = number(words[0]);
        let ask = match words[1..] {
            ["create", resource] => ResourceAsk::Create {
                resource: token(resource),
            },
            ["acquire", name, holder, ttl_slots, ref resources @ ..] => {
                let ask = ResourceAsk::Acquire {
                    resources: resources.iter().map(|name| token(name)).collect(),
                    holder: token(holder),
                    ttl_slots: number(ttl_slots),
                };
                let answer = spoken(&self.both.ask(self.no, &ask, slot));
                if answer.starts_with("until") {
                    self.leases.insert(name.into(), self.no);
                }
                return answer;
            }
            ["confirm", of, holder, fencing_token] => ResourceAsk::Confirm {
                lease: self.named(of),
                holder: token(holder),
                fencing_token: number(fencing_token),
            },
            ["release", of, holder, fencing_token] => ResourceAsk::Release {
                lease: self.named(of),
                holder: token(holder),
                fencing_token: number(fencing_token),
            },
            ["revoke", of] => ResourceAsk::Revoke {
                lease: self.named(of),
            },
            ["reclaim", of] => ResourceAsk::Reclaim {
                lease: self.named(of),
            },
            ["expire", of, deadline] => return self.expire(self.named(of), number(deadline), slot),
            ["show", name] => return self.show(name, slot),
            _ => unreachable!("no such ask: {said}"),
        };
        spoken(&self.both.ask(self.no, &ask, slot))
    }

    /// A name of a lease, or the number of an event.
    fn named(&self, of: &str) -> LeaseNo {
        let named = self.leases.get(of).copied();
        named.unwrap_or_else(|| LeaseNo(number(of)))
    }

    fn expire(&mut self, no: LeaseNo, deadline: Slot, slot: Slot) -> String {
        match self.both.expire(no, deadline, slot) {
            Ok(Some((fencing_token, retire_after))) => {
                format!("expired {fencing_token} until {retire_after}")
            }
            Ok(None) => "noop".into(),
            Err(rule) => rule.name().into(),
        }
    }

    fn show(&self, name: &str, slot: Slot) -> String {
        if let Some(resource) = self.both.resource(&token(name)) {
            let state = format!("{:?} v{}", resource.state, resource.version).to_lowercase();
            let holder = resource.lease.map(|no| {
                let mut named = self.leases.iter().filter(|(_, of)| **of == no);
                format!(" {}", named.next().expect("it has a name").0)
            });
            return state + &holder.unwrap_or_default();
        }
        match self.both.lease(self.named(name), slot) {
            Ok(view) => {
                let members = view.resources.iter().map(Token::as_str);
                let mut words = vec![view.state.name(), view.holder.as_str()];
                words.extend(members);
                format!("{} fencing_token {}", words.join(" "), view.fencing_token)
            }
            Err(rule) => rule.name().into(),
        }
    }
}

/// `end` is the last there is, `end-3` three before it.
fn number(word: &str) -> u64 {
    match word.split_once('-') {
        Some(("end", back)) => u64::MAX - number(back),
        _ if word == "end" => u64::MAX,
        _ => word.parse().expect("a name that was given, or a number"),
    }
}

fn spoken(answer: &ResourceAnswer) -> String {
    match answer {
        ResourceAnswer::Created => "created".into(),
        ResourceAnswer::Granted { deadline } => format!("until {deadline}"),
        ResourceAnswer::Confirmed => "confirmed".into(),
        ResourceAnswer::Released {
            fencing_token,
            retire_after,
        } => format!("released {fencing_token} until {retire_after}"),
        ResourceAnswer::Revoked { fencing_token } => format!("revoked {fencing_token}"),
        ResourceAnswer::Reclaimed { retire_after } => format!("reclaimed until {retire_after}"),
        ResourceAnswer::Refused(refusal) => refusal.rule.name().into(),
    }
}
