//! The memory that tenants take: each has its own share, and all share the rest.

use super::super::room::{Of, Room};
use super::*;
use ledger::memory::Seeded;

const HISTORIES: u64 = 20_000;
const STEPS: u64 = 60;

/// What each has, and may have of its own.
struct Model {
    held: Vec<u64>,
    own: [u64; 2],
}

impl Model {
    fn beyond(&self, who: usize) -> u64 {
        self.held[who].saturating_sub(self.own[who % 2])
    }

    fn all_beyond(&self) -> u64 {
        (0..self.held.len()).map(|who| self.beyond(who)).sum()
    }

    /// Up to its own share, or no more beyond it than is then left of what all share.
    fn fits(&self, who: usize, bytes: u64, shared_max: u64) -> bool {
        let (mut held, own) = (self.held.clone(), self.own);
        held[who] += bytes;
        let then = Self { held, own };
        let beyond = then.beyond(who);
        beyond == 0 || then.all_beyond() <= shared_max && beyond <= shared_max - then.all_beyond()
    }
}

#[test]
fn room_is_each_tenants_own_up_to_its_share_and_never_more_than_there_is() {
    let (mut refused, mut borrowed) = (0, 0);
    for seed in 0..HISTORIES {
        let mut random = Seeded::new(seed);
        let tenants = 1 + random.below(4) as usize;
        let holders = 2 * tenants;
        // Each tenant twice: for its operations, and for its allocations.
        let holder = |no: usize| {
            let of = [Of::Operations, Of::Allocations][no % 2];
            (of, token(&format!("t{}", no / 2)))
        };
        let shared_max = random.below(5) * OWN / 2;
        let own = [OWN / (1 + random.below(2)), OWN];
        let mut model = Model {
            held: vec![0; holders],
            own,
        };
        let by = |own: [u64; 2]| Shares {
            operations_own_bytes: own[0],
            allocations_own_bytes: own[1],
            ..shares(shared_max)
        };
        // The same history under other names: whose name comes first does not matter.
        let (mut room, mut renamed) = (Room::default(), Room::default());
        room.divide(by(own));
        renamed.divide(by([own[1], own[0]]));
        for step in 0..STEPS {
            let who = random.below(holders as u64) as usize;
            let ((of, name), (other_of, other)) = (holder(who), holder(holders - 1 - who));
            let bytes = random.below(OWN / 2);
            if random.chance(50) {
                // What a process that starts anew makes of it.
                room.divide(by([0, 0]));
                room.divide(by(own));
            }
            if random.chance(250) {
                let bytes = bytes.min(model.held[who]);
                model.held[who] -= bytes;
                room.give(of, &name, bytes);
                renamed.give(other_of, &other, bytes);
                continue;
            }
            let would_be = room.held(of, &name) + bytes;
            let found = room.check(of, &name, would_be);
            let case = format!("seed {seed} step {step}: {would_be} of {shared_max}: {found:?}");
            let as_other = renamed.check(other_of, &other, would_be);
            assert_eq!(found, as_other, "{case}");
            assert_eq!(found.is_ok(), model.fits(who, bytes, shared_max), "{case}");
            let own_share = own[who % 2];
            if let Err(refusal) = found {
                assert!(would_be > own_share, "{case}: kept from its own share");
                assert!(
                    refusal.limit >= own_share && refusal.actual > refusal.limit,
                    "{case}"
                );
                refused += 1;
                continue;
            }
            model.held[who] += bytes;
            room.take(of, &name, bytes);
            renamed.take(other_of, &other, bytes);
            borrowed += u64::from(would_be > own_share);
            let all: u64 = model.held.iter().sum();
            let own_shares = tenants as u64 * (own[0] + own[1]);
            assert!(all <= shared_max + own_shares, "{case}: {all}");
        }
    }
    assert!(
        refused > HISTORIES && borrowed > HISTORIES,
        "{refused} {borrowed}"
    );
}

/// Asks until there is no room, and says how often.
fn fill(t: &mut Table, tenant: &str, time: &str) -> u64 {
    for no in 0.. {
        let told = t.ask(tenant, &format!("{time}-{no}"), 1, Ok(plain()));
        if told == "unrecorded cell_full bytes" {
            return no;
        }
        assert_eq!(told, "requested");
    }
    unreachable!("numbers have no end")
}

#[test]
fn who_fills_what_all_share_keeps_nobody_from_its_own() {
    let mut t = Table::new().roomy();
    t.config.operations_max = u64::MAX;
    t.config.allocations_max = u64::MAX;
    t.config.operation_window_ms = WINDOW;
    t.config.room = shares(0);
    for tenant in ["b", "c"] {
        t.admin(tenant, set_tenant(tenant), "applied 1");
    }
    let alone = fill(&mut t, "a", "first");
    // Twice as much when it may have an own share's worth of what all share, which it leaves to others as well.
    t.config.room = shares(2 * OWN);
    let more = fill(&mut t, "a", "then");
    assert!(more.abs_diff(alone) <= 1, "{more} {alone}");
    // The next may have its own, and half of what is left.
    let others = fill(&mut t, "b", "first");
    assert!(others.abs_diff(alone + alone / 2) <= 2, "{others} {alone}");
    assert!(fill(&mut t, "c", "first") >= alone);
    // Who has no room is answered what is known; operators never wait for any.
    t.check("first-0", 1, plain(), "repeated 4");
    t.set(priority_class("c"), "applied 1");
    // Who has no room for an allocation more may cancel, and then has.
    let full = "unrecorded cell_full bytes";
    t.check("x", 1, plain(), full);
    t.check("y", 1, cancel(&id(4)), "cancel 4");
    t.check("x", 1, plain(), full);
    // As many as it takes to be within what the others leave.
    for no in 4..180 {
        t.ended(no);
    }
    t.check("x", 1, plain(), "requested");
    // Cancels have an end, too, and that is no matter of allocations.
    let mut cancels = 0;
    while t.ask("c", &format!("cancel-{cancels}"), 1, Ok(cancel(&id(1)))) != full {
        cancels += 1;
    }
    assert!(cancels > others, "{cancels}");
    t.now += WINDOW + 1;
    let refused = t.ask("c", "again", 1, Ok(cancel(&id(1))));
    assert!(
        refused.ends_with("allocation_not_found allocation_id"),
        "{refused}"
    );
}
