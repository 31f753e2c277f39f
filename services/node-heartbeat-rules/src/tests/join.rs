//! Who may join and register, and what becomes of a node that is forgotten.

use super::*;
use proptest::prelude::*;
use vocab::fact::{NodeRegistered, NodeSet};
use vocab::{AdminChange, Event, NodeApproval};

impl Table {
    pub(super) fn required() -> Self {
        Self {
            joining: Joining::Required,
            ..Self::new()
        }
    }

    /// None forgets it; otherwise by the token of this number, which is void from `until` on.
    pub(super) fn set(&mut self, node: &str, version: u64, approved: Option<(u8, i64)>) {
        let approval = approved.map(|(token, until)| NodeApproval {
            capacity: capacity(),
            token: [token; 32],
            until: Millis(until),
        });
        let operation = Operation {
            tenant: token("_operator"),
            operation_id: None,
            digest: [0; 16],
            reply_to: None,
            trace: None,
            by: None,
        };
        let change = AdminChange::Node(NodeSet {
            node: token(node),
            approval: approval.map(Box::new),
        });
        let set = change.applied(operation, version).into();
        self.observe(0, set);
    }
}

fn join(by: u8, key: &str) -> Option<Command> {
    Some(Command::Join(Box::new(Join {
        node: token("n"),
        token: [by; 32],
        key: token(key),
        request: 7,
    })))
}

#[test]
fn a_name_belongs_to_whoever_joins_first_by_its_token() {
    let mut t = Table::required();
    t.check(0, join(1, "A"), &[]);
    assert_eq!(t.effects(), ["7: node not approved: node"]);
    t.set("n", 1, Some((1, 100)));
    t.check(1, join(2, "A"), &[]);
    assert_eq!(t.effects(), ["7: join token invalid: token"]);
    t.check(2, join(1, "A"), &["n joined A"]);
    assert_eq!(t.effects(), ["7: n is A"]);
    // Its answer was lost, or its user is about to end; whenever that is.
    t.check(200, join(1, "A"), &[]);
    assert_eq!(t.effects(), ["7: n is A"]);
    // A token is used once.
    t.check(3, join(1, "B"), &[]);
    assert_eq!(t.effects(), ["7: join token invalid: public_key"]);
}

#[test]
fn a_token_that_is_not_used_in_time_is_void() {
    let mut t = Table::required();
    t.set("n", 1, Some((1, 100)));
    t.check(100, join(1, "A"), &[]);
    assert_eq!(
        t.effects(),
        ["7: join token expired: token (limit 100, actual 100)"]
    );
    t.set("n", 2, Some((2, 101)));
    t.check(100, join(2, "A"), &["n joined A"]);
}

#[test]
fn only_who_has_joined_registers_and_with_what_was_approved() {
    let mut t = Table::required();
    t.check(0, register(1), &[]);
    assert_eq!(t.effects(), ["n: node not approved: node"]);
    t.set("n", 1, Some((1, 100)));
    t.check(0, register(1), &[]);
    assert_eq!(t.effects(), ["n: node not approved: node"]);
    t.check(0, join(1, "A"), &["n joined A"]);
    t.effects();
    let larger = |boot| {
        let mut command = register(boot);
        if let Some(Command::Register { capacity, .. }) = &mut command {
            capacity.cpu_milli += 1;
        }
        command
    };
    let refused = ["n: capacity not approved: cpu_milli (limit 4000, actual 4001)"];
    t.check(0, larger(1), &[]);
    assert_eq!(t.effects(), refused);
    t.check(0, register(1), &["n registered 1"]);
    t.check(1, larger(2), &[]);
    assert_eq!(t.effects(), refused);
    // An open cell lets in whom nobody has approved; but an approval holds.
    let mut t = Table::new();
    t.check(0, larger(1), &["n registered 1"]);
    t.set("n", 1, Some((1, 100)));
    t.check(0, larger(2), &[]);
    assert_eq!(t.effects(), refused);
    t.check(0, register(2), &["n lost, seen 0", "n registered 2"]);
}

#[test]
fn a_forgotten_node_is_lost_and_its_name_may_be_approved_again() {
    let mut t = Table::required();
    t.set("n", 1, Some((1, 100)));
    t.check(0, join(1, "A"), &["n joined A"]);
    t.check(
        0,
        register(u64::MAX),
        &["n registered 18446744073709551615"],
    );
    t.place(7, "n", u64::MAX);
    t.now = 5;
    t.set("n", 2, None);
    t.effects();
    // What it was given may run for as long as its lease goes on, which is not renewed any more.
    t.check(6, heartbeat(u64::MAX, 1), &[]);
    assert_eq!(t.effects(), ["n register again"]);
    t.check(10, None, &[]);
    t.check(11, None, &["n lost, seen 0", "n forgotten"]);
    assert!(!t.state.nodes.contains_key("n"));
    // Placed before the scheduler knew.
    t.place(8, "n", u64::MAX);
    assert!(t.effects().is_empty());
    // Its agent may still speak, and is told.
    t.check(12, heartbeat(u64::MAX, 0), &[]);
    assert_eq!(t.effects(), ["n register again"]);
    t.check(12, register(u64::MAX), &[]);
    t.check(12, report(u64::MAX, 7, RunState::Started, 7), &[]);
    assert_eq!(t.effects(), ["n: node not approved: node"]);
    // The next machine of this name joins when the last one's user of the bus is surely over.
    let over = 5 + IDENTITY_MS;
    t.set("n", 3, Some((2, 2 * over)));
    t.check(over - 1, join(2, "B"), &[]);
    let held = format!(
        "7: node name held: node (limit {over}, actual {})",
        over - 1
    );
    assert_eq!(t.effects(), [held]);
    t.check(over, join(2, "B"), &["n joined B"]);
    // Whatever the last one counted.
    t.check(over, register(1), &["n registered 1"]);
    assert!(t.lives[&(token("n"), 1)] > t.lives[&(token("n"), u64::MAX)]);
}

#[test]
fn a_forgotten_node_stays_out_of_an_open_cell_until_it_is_approved() {
    let refused = ["n: node not approved: node"];
    let mut t = Table::new();
    t.check(0, register(1), &["n registered 1"]);
    t.set("n", 1, None);
    t.check(6, register(2), &[]);
    assert_eq!(t.effects(), refused);
    t.check(11, None, &["n lost, seen 0", "n forgotten"]);
    t.state = postcard_round_trip(&t.state);
    t.check(12, register(2), &[]);
    assert_eq!(t.effects(), refused);
    t.set("n", 2, Some((1, 100)));
    t.check(13, register(2), &["n registered 2"]);
}

#[test]
fn the_agent_of_a_forgotten_node_is_told_for_a_day() {
    const DAY: i64 = 24 * 3_600_000;
    let mut t = Table::new();
    let forgotten = |t: &mut Table, name: &str, now: i64| {
        let registered = format!("{name} registered 1");
        t.check(now - 20, of(name, register(1)), &[&registered]);
        t.now = now - 20;
        t.set(name, 1, None);
        let lost = format!("{name} lost, seen {}", now - 20);
        t.check(now, None, &[&lost, &format!("{name} forgotten")]);
    };
    let told = |t: &mut Table, now| {
        t.check(now, heartbeat(1, 0), &[]);
        !t.effects().is_empty()
    };
    forgotten(&mut t, "n", 100);
    forgotten(&mut t, "k", 200);
    assert!(told(&mut t, 200));
    forgotten(&mut t, "l", 100 + DAY - 1);
    assert!(told(&mut t, 100 + DAY - 1));
    // Older names are dropped when another node is forgotten.
    forgotten(&mut t, "m", 100 + DAY);
    assert!(!told(&mut t, 100 + DAY));
}

#[test]
fn a_name_stays_held_when_another_is_withdrawn() {
    let mut t = Table::required();
    let other = |mut command: Option<Command>| {
        if let Some(Command::Join(asked)) = &mut command {
            asked.node = token("m");
        }
        command
    };
    let until = 9 * IDENTITY_MS;
    t.set("n", 1, Some((1, until)));
    t.set("m", 1, Some((2, until)));
    t.check(0, join(1, "A"), &["n joined A"]);
    t.check(0, other(join(2, "B")), &["m joined B"]);
    t.set("n", 2, None);
    t.now = 1;
    t.set("m", 2, None);
    t.set("n", 3, Some((3, until)));
    t.effects();
    t.check(IDENTITY_MS - 1, join(3, "C"), &[]);
    let actual = IDENTITY_MS - 1;
    let held = format!("7: node name held: node (limit {IDENTITY_MS}, actual {actual})");
    assert_eq!(t.effects(), [held]);
}

#[test]
fn another_capacity_by_the_same_token_leaves_the_identity() {
    let mut t = Table::required();
    t.set("n", 1, Some((1, 100)));
    t.check(0, join(1, "A"), &["n joined A"]);
    t.set("n", 2, Some((1, 100)));
    t.check(0, register(1), &["n registered 1"]);
    t.effects();
    t.check(0, join(1, "A"), &[]);
    assert_eq!(t.effects(), ["7: n is A"]);
    // By another token whoever was there has to join again; what runs goes on.
    t.set("n", 3, Some((2, IDENTITY_MS * 3)));
    t.check(0, join(1, "A"), &[]);
    assert_eq!(t.effects(), ["7: join token invalid: token"]);
    t.check(5, heartbeat(1, 0), &[]);
    t.check(6, register(2), &[]);
    assert_eq!(t.effects(), ["n: node not approved: node"]);
}

/// What an operator, agents and others may do about one name, in any order.
#[derive(Debug, Clone)]
enum Step {
    Approve { token: u8, until: i64, cores: u64 },
    Forget,
    Join { token: u8, key: char },
    Register { boot: u64, cores: u64 },
    Pass(i64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..3u8, 0..6i64, 1..4u64).prop_map(|(token, until, cores)| Step::Approve {
            token,
            until: until * IDENTITY_MS / 2,
            cores
        }),
        Just(Step::Forget),
        (0..3u8, prop::char::range('A', 'C')).prop_map(|(token, key)| Step::Join { token, key }),
        (1..9u64, 1..4u64).prop_map(|(boot, cores)| Step::Register { boot, cores }),
        (0..IDENTITY_MS).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 0..40)
}

/// What the rules come to, said another way: by the whole history, and not by what is remembered of it.
#[derive(Debug, Default)]
struct Model {
    /// Token, moment at which it is void, cores.
    approved: Option<(u8, i64, u64)>,
    /// Who has joined by the approval's token.
    key: Option<char>,
    /// By the last change of its approval.
    forgotten: bool,
    /// Each user of the bus that was given, and until when it may live if it was given anew just before the approval went.
    users: Vec<(char, i64)>,
}

impl Model {
    fn withdraw(&mut self, now: i64) {
        self.users
            .extend(self.key.take().map(|key| (key, now + IDENTITY_MS)));
    }

    fn joins(&mut self, token: u8, key: char, now: i64) -> bool {
        let Some((known, until, _)) = self.approved else {
            return false;
        };
        if known != token || self.key.is_some_and(|joined| joined != key) {
            return false;
        }
        let free = self.users.iter().all(|(_, until)| *until <= now);
        if self.key.is_none() && (until <= now || !free) {
            return false;
        }
        self.key = Some(key);
        true
    }

    fn registers(&self, cores: u64, joining: Joining) -> bool {
        let within = self.approved.is_none_or(|(_, _, most)| cores <= most);
        within
            && match joining {
                Joining::Required => self.key.is_some(),
                Joining::Open => !self.forgotten,
            }
    }
}

proptest! {
    /// Nobody has two users of the bus at once that speak for one name, nobody joins but by the token, and nothing registers
    /// beyond what was approved, whatever is done in whichever order.
    #[test]
    fn a_name_has_one_holder_whatever_happens(
        steps in steps(),
        joining in prop_oneof![Just(Joining::Required), Just(Joining::Open)],
    ) {
        let mut t = Table::required();
        let mut model = Model::default();
        let (mut now, mut version, mut last) = (0, 0, 0);
        let config = Config { lease_ms: i64::MAX / 4, joining };
        for step in steps {
            t.now = now;
            let mut command = None;
            let mut expected = true;
            let joins = matches!(step, Step::Join { .. });
            match step {
                Step::Pass(ms) => now += ms,
                Step::Approve { token: by, until, cores } => {
                    version += 1;
                    if model.approved.is_none_or(|(before, _, _)| before != by) {
                        model.withdraw(now);
                    }
                    model.approved = Some((by, until, cores));
                    model.forgotten = false;
                    let approval = NodeApproval {
                        capacity: NodeCapacity { cpu_milli: cores, ..NodeCapacity::default() },
                        token: [by; 32],
                        until: Millis(until),
                    };
                    t.state.approve(&t.at(0), &token("n"), Some(&approval), version);
                }
                Step::Forget => {
                    version += 1;
                    model.withdraw(now);
                    model.approved = None;
                    model.forgotten = true;
                    t.state.approve(&t.at(0), &token("n"), None, version);
                }
                Step::Join { token, key } => {
                    command = join(token, &key.to_string());
                    expected = model.joins(token, key, now);
                }
                Step::Register { boot, cores } => {
                    let capacity = NodeCapacity { cpu_milli: cores, ..NodeCapacity::default() };
                    command = Some(Command::Register { node: token("n"), boot, capacity: Box::new(capacity), change: 0 });
                    expected = model.registers(cores, joining);
                }
            }
            let mut draft = Draft::new(Millis(now), EventNo(t.next));
            if let Some(command) = command {
                t.state.handle(command, &config, &mut draft);
            }
            t.state.decide(&config, &mut draft);
            t.next = draft.next_no().0;
            for event in draft.events() {
                if let Event::NodeRegistered(NodeRegistered { incarnation, .. }) = event {
                    prop_assert!(*incarnation > last, "{} again", incarnation);
                    last = *incarnation;
                    prop_assert!(expected);
                }
            }
            let mut answers = 0;
            for effect in t.state.take_effects() {
                match effect {
                    Effect::Joined { .. } => {
                        answers += 1;
                        prop_assert!(expected);
                    }
                    Effect::JoinRefused { .. } => {
                        answers += 1;
                        prop_assert!(!expected);
                    }
                    Effect::RegistrationRefused { .. } => prop_assert!(!expected),
                    _ => {}
                }
            }
            prop_assert_eq!(answers, usize::from(joins), "each request to join is answered once");
        }
    }
}
