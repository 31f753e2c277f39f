//! A member's word on its gang.

use super::*;
use ledger::memory::Seeded;
use std::collections::BTreeSet;

#[test]
fn a_gang_is_at_most_as_large_as_it_says() {
    let t = Table::new();
    let gang = |name: &str, size, min| {
        Some(GangRequest {
            name: name.into(),
            size,
            min,
            uniform_label: "".into(),
        })
    };
    for (name, size, min, expected) in [
        ("", 2, 1, "name_invalid gang.name"),
        ("g", 0, 0, "quantity_zero gang.size"),
        ("g", -1, 0, "quantity_negative gang.size"),
        ("g", 1025, 0, "quantity_too_large gang.size"),
        ("g", 2, -1, "quantity_negative gang.min"),
        ("g", 2, 3, "gang_invalid gang.min"),
        ("g", 2, i64::MAX, "quantity_too_large gang.min"),
    ] {
        t.broken(|r| r.gang = gang(name, size, min), expected);
    }
    let uniform = |r: &mut SubmitRequest| {
        r.gang = gang("g", 2, 1);
        r.gang.as_mut().unwrap().uniform_label = "a.b".into();
    };
    t.broken(uniform, "name_invalid gang.uniform_label");
    let found = |size, min| t.spec(|r| r.gang = gang("g", size, min)).unwrap().gang;
    let full = found(1024, 0).unwrap();
    assert_eq!((full.size, full.min), (1024, 1024));
    assert_eq!(found(8, 8), found(8, 0));
}

#[test]
fn all_members_of_a_gang_request_the_same_gang() {
    let mut t = Table::new().roomy();
    t.admin("other", set_tenant("b"), "applied 1");
    let mut asks = |tenant: &str, name: &str, (size, min): (i64, i64), label: &str, expected| {
        let request = SubmitRequest {
            gang: Some(GangRequest {
                name: name.into(),
                size,
                min,
                uniform_label: label.into(),
            }),
            ..submit()
        };
        let operation = t.next.to_string();
        let told = t.ask(tenant, &operation, 1, Ok(Verb::Submit(request)));
        assert_eq!(told, expected, "{name} {size} {min} {label}");
    };
    asks("a", "g", (3, 2), "", "requested");
    asks("a", "g", (2, 2), "", "gang_invalid gang.size");
    asks("a", "g", (4, 2), "", "gang_invalid gang.size");
    asks("a", "g", (3, 0), "", "gang_invalid gang.min");
    asks("a", "g", (3, 1), "", "gang_invalid gang.min");
    asks("a", "g", (3, 2), "zone", "gang_invalid gang.uniform_label");
    asks("a", "g", (3, 2), "", "requested");
    // Another name, or another tenant's, is another gang.
    asks("a", "h", (2, 0), "zone", "requested");
    asks("b", "g", (2, 1), "", "requested");
    // No minimum is the size.
    asks("a", "h", (2, 2), "zone", "requested");
    asks("a", "g", (3, 2), "", "requested");
    // The gang has all its members: the next request of that name begins another gang.
    asks("a", "g", (2, 1), "zone", "requested");
    asks("a", "g", (3, 2), "", "gang_invalid gang.size");
}

/// Allocations by name, each with its gang, of so many, and what it is to start after.
struct Chain {
    t: Table,
    numbers: BTreeMap<&'static str, u64>,
}

impl Chain {
    fn new() -> Self {
        Self {
            t: Table::new().roomy(),
            numbers: BTreeMap::new(),
        }
    }

    #[track_caller]
    fn asks(&mut self, name: &'static str, gang: (&str, i64), on: &[&str], expected: &str) {
        let on: Vec<u64> = on.iter().map(|name| self.numbers[name]).collect();
        let request = SubmitRequest {
            gang: (gang.1 > 0).then(|| GangRequest {
                name: gang.0.into(),
                size: gang.1,
                min: 1,
                uniform_label: "".into(),
            }),
            depends_on: after(&on),
            ..submit()
        };
        let operation = format!("{name}-{}", self.t.next);
        let no = self.t.next;
        let verb = Verb::Submit(request);
        self.t.check(&operation, 1, verb, expected);
        self.numbers.insert(name, no);
    }

    fn over(&mut self, name: &str, cause: EndCause) {
        self.t.ended_by(self.numbers[name], cause);
    }
}

const NONE: (&str, i64) = ("", 0);
const ITSELF: &str = "gang_waits_for_itself depends_on";

#[test]
fn no_member_waits_for_a_fellow() {
    let mut c = Chain::new();
    let g = ("g", 3);
    c.asks("x", NONE, &[], "requested");
    c.asks("1", g, &["x"], "requested");
    c.asks("2", g, &["1"], ITSELF);
    // Nor for one who does.
    c.asks("y", NONE, &["x", "1"], "requested");
    c.asks("z", NONE, &["y"], "requested");
    c.asks("2", g, &["x", "z"], ITSELF);
    c.asks("2", g, &["x"], "requested");
    // Another tenant's gang of that name, or one of another name, is another gang.
    c.asks("h", ("h", 2), &["1"], "requested");
    // A gang waits for all that its members wait for.
    c.asks("i", ("h", 2), &["x"], "requested");
    c.asks("3", g, &["i"], ITSELF);
    c.asks("3", g, &[], "requested");
    // It is complete: the next of its name is the first of another.
    c.asks("4", g, &["1"], "requested");
    c.asks("5", g, &["3"], "requested");
    c.asks("6", g, &["4"], ITSELF);
}

#[test]
fn a_gang_that_ran_is_joined_by_no_more() {
    let mut c = Chain::new();
    let g = ("g", 2);
    c.asks("1", g, &[], "requested");
    c.asks("2", g, &[], "requested");
    c.over("1", EndCause::Finished);
    c.asks("3", g, &["2"], "requested");
    c.over("2", EndCause::Failed);
    c.asks("4", g, &["2", "1"], "requested");
    c.asks("5", g, &["3"], "requested");
    // One that was cancelled before it ran leaves a place.
    c.over("5", EndCause::Cancelled);
    c.asks("6", g, &["4"], "requested");
    c.asks("7", g, &["6"], ITSELF);
    c.over("6", EndCause::Cancelled);
    c.asks("7", g, &["6"], "requested");
}

#[test]
fn a_member_waits_for_so_many_at_the_most() {
    let mut c = Chain::new();
    c.t.config.operations_max = 100_000;
    c.t.config.allocations_max = 100_000;
    let g = ("g", 2);
    c.asks("1", g, &[], "requested");
    c.asks("last", NONE, &[], "requested");
    for _ in 1..10_000 {
        c.asks("last", NONE, &["last"], "requested");
    }
    c.asks("2", g, &["last"], "requested");
    c.over("2", EndCause::Cancelled);
    c.asks("last", NONE, &["last"], "requested");
    c.asks("2", g, &["last"], "too_many_elements depends_on");
    // The first of a gang has no fellow to wait for.
    c.asks("first", ("h", 2), &["last"], "requested");
}

/// What each waits for, and who starts together: those of one gang, or one alone.
#[derive(Clone, Default)]
struct Model {
    after: BTreeMap<u64, Vec<u64>>,
    /// With the name of a gang.
    units: Vec<(Option<usize>, Vec<u64>)>,
}

impl Model {
    fn add(&mut self, no: u64, gang: Option<usize>, size: usize, on: Vec<u64>) {
        self.after.insert(no, on);
        let latest = self.units.iter_mut().rfind(|unit| unit.0 == gang);
        match latest {
            Some((Some(_), members)) if members.len() < size => members.push(no),
            _ => self.units.push((gang, vec![no])),
        }
    }

    /// Lets start, and end, whoever can, until nobody is left or nobody can. Members that are missing will come.
    fn all_start(&self) -> bool {
        let mut waiting: Vec<&Vec<u64>> = self.units.iter().map(|unit| &unit.1).collect();
        loop {
            let before = waiting.len();
            let unfinished: BTreeSet<u64> = waiting.iter().copied().flatten().copied().collect();
            waiting.retain(|members| {
                let mut on = members.iter().flat_map(|no| &self.after[no]);
                on.any(|other| unfinished.contains(other))
            });
            if waiting.is_empty() {
                return true;
            }
            if waiting.len() == before {
                return false;
            }
        }
    }
}

#[test]
fn of_random_gangs_those_are_let_in_that_can_start() {
    let mut refused = 0;
    for seed in 0..20_000 {
        let mut random = Seeded::new(seed);
        let mut t = Table::new().roomy();
        let mut model = Model::default();
        for step in 0..12 {
            let name = random.below(5) as usize;
            let gang = (name < 3).then_some(name);
            let size = 2 + name;
            let known: Vec<u64> = model.after.keys().copied().collect();
            let mut on = Vec::new();
            for _ in 0..random.below(3).min(known.len() as u64) {
                on.push(known[random.below(known.len() as u64) as usize]);
            }
            let request = SubmitRequest {
                gang: gang.map(|name| GangRequest {
                    name: format!("g{name}").into(),
                    size: size as i64,
                    ..GangRequest::default()
                }),
                depends_on: after(&on),
                ..submit()
            };
            let no = t.next;
            let verb = Verb::Submit(request);
            let told = t.ask("a", &step.to_string(), 1, Ok(verb));
            let mut with_it = model.clone();
            with_it.add(no, gang, size, on);
            if with_it.all_start() {
                assert_eq!(told, "requested", "seed {seed}: {no}");
                model = with_it;
            } else {
                assert_eq!(told, ITSELF, "seed {seed}: {no}");
                refused += 1;
            }
        }
    }
    assert!(refused > 1000, "{refused}");
}

fn after(numbers: &[u64]) -> Vec<DependencyRequest> {
    let dependency = |no: &u64| DependencyRequest {
        allocation_id: id(*no),
        success: true,
        ..DependencyRequest::default()
    };
    numbers.iter().map(dependency).collect()
}
