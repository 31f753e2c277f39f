//! What holds of every history: decisions come to an end, nothing but the state decides, one does not change another's
//! outcome, and nobody waits for nothing. Small histories, and many: whatever goes wrong goes wrong among few.

use super::{
    World,
    histories::{History, SHAPE, Shape, Step},
    said,
    words::{event, operation, token},
};
use ledger::{Decider, memory::Seeded};
use vocab::fact::{AllocationRequested, LimitsInForce};
use vocab::{AllocationNo, AllocationSpec, Dependency, Event, Gang, GpuRequest};

const SMALL: Shape = Shape {
    tenants: 3,
    limit: 12,
    decisions: 400,
    stride: 4,
    ..SHAPE
};

const HISTORIES: u64 = 20_000;

/// Names the seed of a history in which something does not hold.
pub(super) fn for_all(check: impl Fn(u64) + std::panic::RefUnwindSafe) {
    for seed in 0..HISTORIES {
        let result = std::panic::catch_unwind(|| check(seed));
        assert!(result.is_ok(), "seed {seed}");
    }
}

/// In the histories themselves nobody waits for nothing, whenever it was decided.
pub(super) fn history(seed: u64) -> History {
    let mut history = History::new(seed, SMALL);
    for _ in 0..24 + seed % 24 {
        history.act();
        if history.random.chance(SMALL.decisions) {
            history.decide();
        }
    }
    history.decide();
    history
}

/// With nothing new to read, what is decided at a moment is at most four for each claim, and one for each limit that is due;
/// and time alone gives cause to decide at most eight times for each limit that was set. A process that begins with the
/// snapshot decides no more than the old one, and the same from then on.
#[test]
fn decisions_come_to_an_end_and_nothing_but_the_state_makes_them() {
    for_all(|seed| {
        let mut history = history(seed);
        history.world.at_rest();
        history.follow_with_a_twin();
        let (live, sets) = (history.checker.live(), history.sets);
        let mut wakes = 0;
        while let Some(at) = history.world.state.wake_at() {
            history.world.now = at;
            history.decide();
            wakes += 1;
            assert!(wakes <= 8 * sets, "time alone does not rest");
            let Some(Step::Decided(_, events)) = history.record.last() else {
                panic!("decided, not recorded");
            };
            assert!(
                events.len() <= 4 * live + sets,
                "{} decisions for {live} claims",
                events.len()
            );
        }
        history.world.at_rest();
    });
}

/// What somebody else asks changes nothing, however odd; and what is impossible changes nothing, whoever asks it.
#[test]
fn what_others_ask_and_what_is_impossible_changes_nothing() {
    for_all(|seed| {
        let quiet = history(seed).record;
        let mut noise = Noise {
            world: World::new(),
            random: Seeded::new(!seed),
            own: Vec::new(),
        };
        for step in quiet {
            match step {
                Step::Observed(now, no, event) => {
                    noise.world.now = now;
                    noise.world.observe(no, &event);
                    if let Event::AllocationRequested(_) = *event {
                        noise.make(no);
                    }
                }
                Step::Decided(now, expected) => {
                    noise.world.now = now;
                    let found = noise.decide();
                    let expected: Vec<String> = expected.iter().map(said).collect();
                    assert_eq!(found, expected, "one disturbs another");
                }
            }
        }
    });
}

/// A ledger on which stands more than on another.
struct Noise {
    world: World,
    random: Seeded,
    /// What is asked here only.
    own: Vec<u64>,
}

impl Noise {
    /// After the request of a number, and with those that lie before the next.
    fn make(&mut self, after: u64) {
        for no in after + 1..after + 1 + self.random.below(3) {
            let (tenant, spec) = if self.random.chance(500) {
                let tenant = ["y", "z"][self.random.below(2) as usize];
                (tenant.to_owned(), self.odd(no))
            } else {
                (format!("t{}", self.random.below(3)), self.impossible(no))
            };
            let operation = operation(&token(&tenant));
            self.own.push(no);
            self.world.observe(
                no,
                &Event::AllocationRequested(AllocationRequested { operation, spec }),
            );
        }
        match self.random.below(12) {
            0 => self.step("tenant z wait cohort=zz"),
            1 => self.step("tenant y cohort=zz"),
            2 => self.step("limit z cpu 4"),
            3 => self.step("limit y cpu 8 burst=12/100"),
            4 => self.step("limit z gpu:V100 1000"),
            5 => self.step("limit z gpu 4000"),
            6 => self.step("limit z/x pods 1"),
            _ => {}
        }
    }

    fn step(&mut self, text: &str) {
        let (_, event) = event(text, self.world.now);
        // Numbers that the recorded history does not come to.
        self.world.others += 1;
        let no = self.world.others + (1 << 40);
        self.world.observe(no, &event);
    }

    /// Of a tenant that shares nothing with the others.
    fn odd(&mut self, no: u64) -> AllocationSpec {
        let random = &mut self.random;
        let mut spec = AllocationSpec::plain(token("j"), random.below(6), 0);
        if random.chance(300) {
            spec.gpu = Some(GpuRequest {
                count: 1,
                milli: 1000,
                models: vec![token(["T4", "V100", "mine"][random.below(3) as usize])],
            });
        }
        if random.chance(300) {
            spec.gang = Some(Gang {
                name: token(["g", "h"][random.below(2) as usize]),
                size: 2,
                min: 2,
                uniform_label: None,
            });
        }
        if random.chance(300) {
            spec.depends_on.push(Dependency {
                allocation: AllocationNo(random.below(no)),
                success: true,
            });
        }
        if random.chance(300) {
            spec.team = Some(token("x"));
        }
        spec.priority = random.below(9) as i32;
        spec
    }

    /// More than anybody will ever have, of something that is limited.
    fn impossible(&mut self, no: u64) -> AllocationSpec {
        let random = &mut self.random;
        let mut spec = AllocationSpec::plain(token("j"), 1 << 40, 1);
        spec.priority = random.below(9) as i32;
        if random.chance(300) {
            spec.extended.push((token("mine"), 1));
        }
        if random.chance(300) {
            spec.depends_on.push(Dependency {
                allocation: AllocationNo(random.below(no)),
                success: true,
            });
        } else if random.chance(300) {
            spec.gang = Some(Gang {
                name: token("odd"),
                size: 2,
                min: 2,
                uniform_label: None,
            });
        }
        spec
    }

    /// What is decided on all the others.
    fn decide(&mut self) -> Vec<String> {
        let events = self.world.decide();
        let mut others = Vec::new();
        for event in events {
            let mine = match (&event, event.allocation(vocab::EventNo(0))) {
                (Event::LimitsInForce(LimitsInForce { account, .. }), _) => {
                    ["y", "z"].contains(&account.tenant.as_str())
                }
                (_, Some(no)) => self.own.contains(&no.0),
                (_, None) => false,
            };
            if !mine {
                others.push(said(&event));
            }
        }
        others
    }
}
