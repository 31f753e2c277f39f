//! Decisions as tables: what agents say and what stands on the ledger, then what is recorded.

mod again;
mod capacity;
mod conditions;
mod join;
mod lies;
mod own;
mod refused;

use super::*;
use vocab::fact::{
    AllocationPlaced, AllocationPreempted, AllocationRequested, AllocationRequeued,
    AllocationStopping, NodeCapacityChanged, NodeConditionChanged, NodeForgotten, NodeJoined,
    NodeLost, NodeReady, NodeRegistered, NodeSuspected, RunReported,
};
use vocab::{
    AllocationSpec, Dependency, EndCause, Event, EventNo, Level, Lsn, Operation, PlacementPolicy,
    PreemptionCause, RunExit, RunExitReason, RunState,
};

const LEASE: i64 = 10;

struct Table {
    state: Nodes,
    joining: Joining,
    level: Level,
    lease_ms: i64,
    /// How long ago it surely led; none: it has not proved it in this term.
    led_ago: Option<i64>,
    /// The incarnation that each life of an agent was given.
    lives: BTreeMap<(Token, u64), u64>,
    next: u64,
    now: i64,
}

fn token(text: &str) -> Token {
    Token::new(text).unwrap()
}

fn capacity() -> NodeCapacity {
    NodeCapacity {
        cpu_milli: 4000,
        memory_bytes: 1 << 30,
        labels: vec![(token("zone"), token("z1"))],
        ..NodeCapacity::default()
    }
}

fn words(event: &Event) -> String {
    match event {
        Event::NodeRegistered(NodeRegistered { node, boot, .. }) => {
            format!("{node} registered {boot}")
        }
        Event::NodeJoined(NodeJoined { node, key, .. }) => format!("{node} joined {key}"),
        Event::NodeForgotten(NodeForgotten { node }) => format!("{node} forgotten"),
        Event::NodeReady(NodeReady { node, .. }) => format!("{node} ready"),
        Event::NodeLost(NodeLost {
            node, last_seen, ..
        }) => format!("{node} lost, seen {}", last_seen.0),
        Event::NodeSuspected(NodeSuspected {
            node, last_seen, ..
        }) => format!("{node} suspected, seen {}", last_seen.0),
        Event::NodeConditionChanged(NodeConditionChanged {
            node,
            condition,
            holds,
            reason,
        }) => {
            let reason = reason.as_ref().map(|reason| format!(" by {reason}"));
            let turn = if *holds { "has" } else { "has no" };
            format!("{node} {turn} {condition}{}", reason.unwrap_or_default())
        }
        Event::NodeCapacityChanged(NodeCapacityChanged {
            node,
            change,
            capacity,
            ..
        }) => format!("{node} has {} by {change}", capacity.cpu_milli),
        Event::RunReported(RunReported {
            allocation,
            state,
            at,
            exit,
            ..
        }) => {
            let exit = exit.map_or_else(String::new, |exit| {
                let reason = exit.reason.map(|reason| format!(" {reason:?}"));
                format!(" with {}{}", exit.code, reason.unwrap_or_default())
            });
            format!("{} {state:?} at {}{exit}", allocation.0, at.0)
        }
        other => format!("{other:?}"),
    }
}

impl Table {
    fn new() -> Self {
        Self {
            state: Nodes::default(),
            joining: Joining::Open,
            level: Level::KNOWN,
            lease_ms: LEASE,
            led_ago: Some(0),
            lives: BTreeMap::new(),
            next: 1,
            now: 0,
        }
    }

    fn at(&self, no: u64) -> At {
        At {
            lsn: Lsn(0),
            index: 0,
            no: EventNo(no),
            now: Millis(self.now),
        }
    }

    fn observe(&mut self, no: u64, event: Event) {
        let at = self.at(no);
        self.state.observe_event(&at, &event).unwrap();
    }

    fn place(&mut self, no: u64, node: &str, boot: u64) {
        let operation = Operation {
            tenant: token("t"),
            operation_id: None,
            digest: [0; 16],
            reply_to: None,
            trace: None,
            by: None,
        };
        let spec = AllocationSpec::plain(token("default"), 1000, 1);
        self.observe(
            no,
            Event::AllocationRequested(AllocationRequested { operation, spec }),
        );
        self.place_again(no, node, boot);
    }

    fn place_again(&mut self, no: u64, node: &str, boot: u64) {
        let incarnation = self.lives[&(token(node), boot)];
        let placed = Event::AllocationPlaced(AllocationPlaced {
            allocation: AllocationNo(no),
            node: token(node),
            incarnation,
            gpus: Default::default(),
            zones: 0,
            policy: PlacementPolicy::Default,
            candidates: Default::default(),
        });
        self.observe(0, placed);
    }

    fn requeue(&mut self, no: u64) {
        let requeued = Event::AllocationRequeued(AllocationRequeued {
            allocation: AllocationNo(no),
            cause: EndCause::Failed,
            at: Millis(self.now),
            not_before: Millis(self.now),
            exit: None,
        });
        self.observe(0, requeued);
    }

    fn stop(&mut self, no: u64) {
        let allocation = AllocationNo(no);
        self.observe(
            0,
            Event::AllocationStopping(AllocationStopping {
                allocation,
                time_limit: false,
            }),
        );
    }

    fn check(&mut self, now: i64, command: Option<Command>, expected: &[&str]) {
        assert_eq!(self.beat(now, command), expected, "at {now}");
    }

    /// What is decided.
    fn beat(&mut self, now: i64, command: Option<Command>) -> Vec<String> {
        self.now = now;
        let config = Config {
            lease_ms: self.lease_ms,
            joining: self.joining,
        };
        let mut draft = Draft::new(Millis(now), EventNo(self.next)).at_level(self.level);
        draft.led = self.led_ago.map(|ago| Millis(now - ago));
        if let Some(command) = command {
            self.state.handle(command, &config, &mut draft);
        }
        self.state.decide(&config, &mut draft);
        self.next = draft.next_no().0;
        for event in draft.events() {
            if let Event::NodeRegistered(NodeRegistered {
                node,
                boot,
                incarnation,
                ..
            }) = event
            {
                self.lives.insert((node.clone(), *boot), *incarnation);
            }
        }
        assert_eq!(draft.poison(), None);
        draft.events().map(words).collect()
    }

    fn effects(&mut self) -> Vec<String> {
        let words = |effect: Effect| match effect {
            Effect::Assign {
                node, assignment, ..
            } => format!(
                "{node} {} rev {} stop {}",
                assignment.allocation.0, assignment.revision, assignment.stop
            ),
            Effect::RegisterAgain { node, .. } => format!("{node} register again"),
            Effect::RegistrationRefused { node, refusal, .. } => format!("{node}: {refusal}"),
            Effect::MassLoss(Some(it)) => {
                format!(
                    "{} of {} silent, {} more may go",
                    it.silent, it.all, it.left
                )
            }
            Effect::MassLoss(None) => "no mass loss".to_owned(),
            Effect::Joined(it) => format!("{}: {} is {}", it.request, it.node, it.key),
            Effect::JoinRefused { request, refusal } => format!("{request}: {refusal}"),
            Effect::Renewed {
                request,
                boot,
                lease_ms,
                now,
            } => format!("{request}: {boot} holds {lease_ms} from {}", now.0),
            Effect::Synced {
                revision,
                assignments,
                ..
            } => format!("synced rev {revision}: {}", assignments.len()),
        };
        self.state.take_effects().into_iter().map(words).collect()
    }
}

fn register(boot: u64) -> Option<Command> {
    Some(Command::Register {
        node: token("n"),
        boot,
        capacity: Box::new(capacity()),
        change: 0,
    })
}

fn heartbeat(boot: u64, revision: u64) -> Option<Command> {
    Some(Command::Heartbeat {
        node: token("n"),
        boot,
        revision,
        request: None,
        conditions: Conditions::new(),
    })
}

fn report(boot: u64, no: u64, state: RunState, at: i64) -> Option<Command> {
    Some(Command::Report {
        node: token("n"),
        boot,
        report: Report {
            allocation: AllocationNo(no),
            state,
            at: Millis(at),
            revision: 0,
            exit: None,
        },
    })
}

/// Of the run that was assigned with the revision.
fn report_of(of: u64, no: u64, state: RunState, at: i64) -> Option<Command> {
    let mut command = report(1, no, state, at);
    if let Some(Command::Report { report, .. }) = &mut command {
        report.revision = of;
    }
    command
}

#[test]
fn a_machine_is_one_node_at_a_time() {
    let mut t = Table::new();
    let register = |node: &str, boot, hostname: &str| {
        let mut capacity = capacity();
        capacity.labels = vec![(token("hostname"), token(hostname))];
        Some(Command::Register {
            node: token(node),
            boot,
            capacity: Box::new(capacity),
            change: 0,
        })
    };
    t.check(0, register("n", 1, "h"), &["n registered 1"]);
    t.check(1, register("m", 1, "h"), &[]);
    assert_eq!(t.effects(), ["m: hostname taken: n"]);
    t.check(2, register("m", 1, "other"), &["m registered 1"]);
    // Its own name is no clash, in a new life neither.
    t.check(
        3,
        register("m", 2, "other"),
        &["m lost, seen 3", "m registered 2"],
    );
    // A leader that has just folded the ledger knows the same.
    t.state = postcard_round_trip(&t.state);
    t.check(4, register("k", 1, "h"), &[]);
    assert_eq!(t.effects(), ["k: hostname taken: n"]);
    // Once the other is lost, the name is free.
    t.check(30, None, &["m lost, seen 4", "n lost, seen 4"]);
    t.check(31, register("k", 1, "h"), &["k registered 1"]);
}

#[test]
fn a_lease_ends_late_but_never_early() {
    let mut t = Table::new();
    t.check(0, register(1), &["n registered 1"]);
    t.check(5, heartbeat(1, 0), &[]);
    // Half of it has passed, and nobody else was heard.
    assert_eq!(t.state.wake_at(), Some(Millis(11)));
    t.check(11, None, &[]);
    assert_eq!(t.state.wake_at(), Some(Millis(16)));
    t.check(15, None, &[]);
    t.check(16, None, &["n lost, seen 5"]);
    t.check(17, None, &[]);
}

/// `n` and `m` are there, and both beat at 3.
fn two_nodes(level: Level) -> Table {
    let mut t = Table::new();
    t.level = level;
    t.check(0, register(1), &["n registered 1"]);
    t.check(0, of_m(register(1)), &["m registered 1"]);
    t.check(3, heartbeat(1, 0), &[]);
    t.check(3, of_m(heartbeat(1, 0)), &[]);
    t
}

fn of_m(mut command: Option<Command>) -> Option<Command> {
    if let Some(Command::Heartbeat { node, .. } | Command::Register { node, .. }) = &mut command {
        *node = token("m");
    }
    command
}

#[test]
fn a_node_that_is_silent_for_half_its_lease_is_suspected_until_it_is_heard_or_lost() {
    let mut t = two_nodes(Level::KNOWN);
    t.check(6, of_m(heartbeat(1, 0)), &[]);
    t.check(8, None, &[]);
    assert_eq!(t.state.wake_at(), Some(Millis(9)));
    t.check(9, of_m(heartbeat(1, 0)), &["n suspected, seen 3"]);
    t.check(10, heartbeat(1, 0), &["n ready"]);
    t.check(13, of_m(heartbeat(1, 0)), &[]);
    t.check(16, of_m(heartbeat(1, 0)), &["n suspected, seen 10"]);
    t.check(17, register(1), &["n ready"]);
    t.check(19, of_m(heartbeat(1, 0)), &[]);
    t.check(22, of_m(heartbeat(1, 0)), &[]);
    t.check(23, None, &["n suspected, seen 17"]);
    t.check(26, of_m(heartbeat(1, 0)), &[]);
    t.check(27, None, &[]);
    t.check(28, None, &["n lost, seen 17"]);
    t.check(28, heartbeat(1, 0), &[]);
    assert_eq!(t.effects(), ["n register again"]);
}

fn of(name: &str, mut command: Option<Command>) -> Option<Command> {
    if let Some(Command::Heartbeat { node, .. } | Command::Register { node, .. }) = &mut command {
        *node = token(name);
    }
    command
}

#[test]
fn a_node_that_comes_and_goes_is_ready_when_it_has_stayed_for_a_lease() {
    let mut t = two_nodes(Level::KNOWN);
    let mut now = 3;
    // Silent for more than half a lease while the other is heard.
    let falls_silent = |t: &mut Table, now: &mut i64| {
        t.check(*now + 3, of_m(heartbeat(1, 0)), &[]);
        let suspected = format!("n suspected, seen {now}");
        t.check(*now + 6, of_m(heartbeat(1, 0)), &[&suspected]);
        *now += 7;
    };
    for _ in 0..2 {
        falls_silent(&mut t, &mut now);
        t.check(now, heartbeat(1, 0), &["n ready"]);
    }
    falls_silent(&mut t, &mut now);
    for _ in 0..5 {
        t.check(now, heartbeat(1, 0), &[]);
        t.check(now, of_m(heartbeat(1, 0)), &[]);
        now += 2;
    }
    t.check(now, heartbeat(1, 0), &["n ready"]);
}

#[test]
fn many_nodes_that_are_silent_at_once_are_lost_slowly() {
    let names: Vec<String> = (10..50).map(|number| format!("n{number}")).collect();
    let losses = |silent: usize| {
        let mut t = Table::new();
        for name in &names {
            t.check(0, of(name, register(1)), &[&format!("{name} registered 1")]);
        }
        let mut lost = Vec::new();
        for now in 1..=31 {
            let beats = names[silent..].iter().map(|name| of(name, heartbeat(1, 0)));
            let said: Vec<String> = beats.flat_map(|beat| t.beat(now, beat)).collect();
            lost.push(said.iter().filter(|words| words.contains("lost")).count());
        }
        (lost, t.effects())
    };
    // A lease is 10 ms, and over at 11.
    let (few, said) = losses(20);
    assert_eq!(said, Vec::<String>::new());
    assert_eq!((few[9], few[10], few.iter().sum::<usize>()), (0, 20, 20));
    // Two of forty in a lease, then fewer as there are fewer.
    let (many, said) = losses(30);
    let left = ["30 of 40 silent", "28 of 38 silent", "27 of 37 silent"];
    assert_eq!(said, left.map(|silent| format!("{silent}, 0 more may go")));
    let sums = many.chunks(10).map(|lease| lease.iter().sum::<usize>());
    assert_eq!(sums.collect::<Vec<_>>(), [0, 2, 1, 1]);
}

#[test]
fn nobody_is_suspected_when_nobody_is_heard() {
    let mut t = two_nodes(Level::KNOWN);
    t.check(9, None, &[]);
    assert_eq!(t.state.wake_at(), Some(Millis(14)));
    // After the gap, silence counts from when somebody is heard again.
    t.check(10, of_m(heartbeat(1, 0)), &[]);
    t.check(13, of_m(heartbeat(1, 0)), &[]);
    t.check(13, None, &[]);
    t.check(14, None, &["n lost, seen 3"]);
}

#[test]
fn silence_counts_from_when_others_are_heard() {
    let mut t = Table::new();
    t.check(0, register(1), &["n registered 1"]);
    t.check(0, of_m(register(1)), &["m registered 1"]);
    t.check(4, of_m(heartbeat(1, 0)), &[]);
    t.check(6, None, &[]);
    assert_eq!(t.state.wake_at(), Some(Millis(10)));
    t.check(8, of_m(heartbeat(1, 0)), &[]);
    t.check(9, None, &[]);
    t.check(10, None, &["n suspected, seen 0"]);
    t.check(11, None, &["n lost, seen 0"]);
}

#[test]
fn a_cell_of_the_first_level_suspects_nobody_until_it_is_raised() {
    let mut t = two_nodes(Level::FIRST);
    t.check(6, of_m(heartbeat(1, 0)), &[]);
    t.check(9, of_m(heartbeat(1, 0)), &[]);
    assert_eq!(t.state.wake_at(), Some(Millis(14)));
    t.level = Level(2);
    // Its lease was granted before.
    t.check(10, of_m(heartbeat(1, 0)), &[]);
    t.check(11, heartbeat(1, 0), &[]);
    t.check(14, of_m(heartbeat(1, 0)), &[]);
    t.check(17, of_m(heartbeat(1, 0)), &["n suspected, seen 11"]);
}

#[test]
fn a_new_leader_does_not_suspect_again_who_is_suspected() {
    let mut t = two_nodes(Level::KNOWN);
    t.check(6, of_m(heartbeat(1, 0)), &[]);
    t.check(9, of_m(heartbeat(1, 0)), &["n suspected, seen 3"]);
    t.state = postcard_round_trip(&t.state);
    t.check(100, None, &[]);
    t.check(103, of_m(heartbeat(1, 0)), &[]);
    t.check(107, of_m(heartbeat(1, 0)), &[]);
    t.check(109, of_m(heartbeat(1, 0)), &[]);
    t.check(111, None, &["n lost, seen 100"]);
}

#[test]
fn a_lost_incarnation_stays_lost_and_a_new_one_is_welcome() {
    let mut t = Table::new();
    t.check(0, register(1), &["n registered 1"]);
    t.check(11, None, &["n lost, seen 0"]);
    t.check(12, heartbeat(1, 0), &[]);
    assert_eq!(t.effects(), ["n register again"]);
    t.check(13, register(1), &[]);
    t.check(14, register(2), &["n registered 2"]);
    // A former life has no say any more.
    t.check(15, heartbeat(1, 0), &[]);
    t.check(15, register(1), &[]);
    assert!(t.effects().is_empty());
}

#[test]
fn an_agent_that_restarts_ends_its_former_life_first() {
    let mut t = Table::new();
    t.check(0, register(1), &["n registered 1"]);
    t.place(7, "n", 1);
    t.check(3, register(2), &["n lost, seen 3", "n registered 2"]);
    t.check(4, report(2, 7, RunState::Started, 4), &[]);
}

#[test]
fn a_new_leader_grants_every_ready_node_a_full_lease() {
    let mut t = Table::new();
    t.check(0, register(1), &["n registered 1"]);
    t.state = postcard_round_trip(&t.state);
    t.check(100, None, &[]);
    t.check(110, None, &[]);
    t.check(111, None, &["n lost, seen 100"]);
}

fn postcard_round_trip(state: &Nodes) -> Nodes {
    let chain = ledger::Chain::default();
    let snapshot = ledger::Snapshot::of(Nodes::STATE_VERSION, chain, state);
    snapshot.state(Nodes::STATE_VERSION).unwrap()
}

#[test]
fn reports_move_a_run_on_once_and_in_bounds() {
    let mut t = Table::new();
    t.check(0, register(1), &["n registered 1"]);
    t.now = 5;
    t.place(7, "n", 1);
    assert_eq!(t.effects(), ["n 7 rev 1 stop false"]);
    // Before the placement and after the inbox's clock are no times of a run.
    t.check(6, report(1, 7, RunState::Started, 2), &["7 Started at 5"]);
    t.check(6, report(1, 7, RunState::Started, 6), &[]);
    t.check(8, report(9, 7, RunState::Finished, 8), &[]);
    t.check(
        8,
        report(1, 7, RunState::Finished, 99),
        &["7 Finished at 8"],
    );
    t.check(8, report(1, 7, RunState::Failed, 8), &[]);
    t.check(8, report(1, 8, RunState::Started, 8), &[]);
}

#[test]
fn a_preemption_without_a_grace_leaves_the_agent_its_own() {
    let check = |grace_ms: i64, expected: Option<Millis>| {
        let mut t = Table::new();
        t.check(0, register(1), &["n registered 1"]);
        t.now = 5;
        t.place(7, "n", 1);
        t.state.take_effects();
        t.observe(
            0,
            Event::AllocationPreempted(AllocationPreempted {
                allocation: AllocationNo(7),
                cause: PreemptionCause::Drain,
                by: None,
                grace_until: Millis(5 + grace_ms),
            }),
        );
        t.stop(7);
        let effects = t.state.take_effects();
        let [Effect::Assign { assignment, .. }] = &effects[..] else {
            panic!("{effects:?}");
        };
        assert_eq!((assignment.stop, assignment.stop_by), (true, expected));
    };
    check(0, None);
    check(30, Some(Millis(35)));
}

#[test]
fn a_heartbeat_with_an_old_revision_gets_what_it_missed() {
    let mut t = Table::new();
    t.check(0, register(1), &["n registered 1"]);
    t.place(7, "n", 1);
    t.place(8, "n", 1);
    t.stop(7);
    t.effects();
    t.check(1, heartbeat(1, 1), &[]);
    assert_eq!(t.effects(), ["n 7 rev 3 stop true", "n 8 rev 2 stop false"]);
    t.check(1, heartbeat(1, 2), &[]);
    assert_eq!(t.effects(), ["n 7 rev 3 stop true"]);
    t.check(1, heartbeat(1, 3), &[]);
    assert!(t.effects().is_empty());
    let sync = Command::Sync {
        node: token("n"),
        request: 1,
    };
    t.check(1, Some(sync), &[]);
    assert_eq!(t.effects(), ["synced rev 3: 2"]);
}

#[test]
fn an_agent_gets_no_rules_of_placement_and_no_dependencies() {
    let plain = AllocationSpec::plain(token("default"), 1000, 1);
    let rules = Some(Box::default());
    let depends_on = vec![Dependency {
        allocation: AllocationNo(3),
        success: true,
    }];
    let ruled = AllocationSpec {
        rules: rules.clone(),
        ..plain.clone()
    };
    let dependent = AllocationSpec {
        depends_on: depends_on.clone(),
        ..plain.clone()
    };
    let both = AllocationSpec {
        rules,
        depends_on,
        ..plain.clone()
    };
    let mut specs = EncodedSpecs::default();
    let expected = specs.of(&plain);
    for asked in [&plain, &ruled, &dependent, &both] {
        assert!(run::spec(&mut specs, asked) == expected, "{asked:?}");
    }
}

#[test]
fn an_agent_learns_who_asked_for_a_command() {
    let mut t = Table::new();
    t.check(0, register(1), &["n registered 1"]);
    let operation = Operation {
        tenant: token("t"),
        operation_id: Some(token("op-1")),
        digest: [0; 16],
        reply_to: None,
        trace: None,
        by: None,
    };
    let with_work = AllocationSpec {
        work: Some(std::sync::Arc::default()),
        ..AllocationSpec::plain(token("default"), 1000, 1)
    };
    let plain = AllocationSpec::plain(token("default"), 1000, 1);
    for (no, spec) in [(7, with_work), (8, plain)] {
        let operation = operation.clone();
        t.observe(no, AllocationRequested { operation, spec }.into());
        t.place_again(no, "n", 1);
    }
    let origins = |t: &mut Table| {
        let effects = t.state.take_effects().into_iter();
        let assignments = effects.flat_map(|effect| match effect {
            Effect::Assign { assignment, .. } => vec![assignment],
            Effect::Synced { assignments, .. } => assignments,
            other => panic!("{other:?}"),
        });
        let id = |it: Assignment| it.origin?.operation_id;
        let ids: Vec<_> = assignments.map(|it| (it.allocation.0, id(it))).collect();
        ids
    };
    let expected = [(7, Some(token("op-1"))), (8, None)];
    assert_eq!(origins(&mut t), expected);
    t.check(1, heartbeat(1, 0), &[]);
    assert_eq!(origins(&mut t), expected);
    let sync = Command::Sync {
        node: token("n"),
        request: 1,
    };
    t.check(1, Some(sync), &[]);
    assert_eq!(origins(&mut t), expected);
    t.stop(7);
    assert_eq!(origins(&mut t), expected[..1]);
}

#[test]
fn a_leader_proves_more_often_while_agents_ask_for_their_leases() {
    let mut t = Table::new();
    let config = |t: &Table| Config {
        lease_ms: t.lease_ms,
        joining: t.joining,
    };
    t.lease_ms = 1600;
    assert_eq!(t.state.proves_every(&config(&t)), None, "no nodes");
    t.check(0, register(1), &["n registered 1"]);
    assert_eq!(t.state.proves_every(&config(&t)), Some(800));
    let mut asks = heartbeat(1, 0);
    if let Some(Command::Heartbeat { request, .. }) = &mut asks {
        *request = Some(8);
    }
    t.check(100, asks, &[]);
    assert_eq!(t.state.proves_every(&config(&t)), Some(100));
    // No agent has asked for a whole lease.
    t.check(1600, heartbeat(1, 0), &[]);
    t.check(1700, None, &[]);
    assert_eq!(t.state.proves_every(&config(&t)), Some(100));
    t.check(1701, None, &[]);
    assert_eq!(t.state.proves_every(&config(&t)), Some(800));
    t.check(3201, None, &["n lost, seen 1600"]);
    assert_eq!(t.state.proves_every(&config(&t)), None, "no ready nodes");
}

#[test]
fn a_placement_on_a_lost_incarnation_is_void() {
    let mut t = Table::new();
    t.check(0, register(1), &["n registered 1"]);
    t.check(11, None, &["n lost, seen 0"]);
    t.place(7, "n", 1);
    assert!(t.effects().is_empty());
    t.check(12, register(2), &["n registered 2"]);
    t.place(8, "n", 1);
    assert!(t.effects().is_empty());
    t.check(12, report(2, 8, RunState::Started, 12), &[]);
}

#[test]
fn an_implausible_node_is_not_registered() {
    let mut t = Table::new();
    let unordered = NodeCapacity {
        labels: vec![(token("b"), token("v")), (token("a"), token("v"))],
        ..capacity()
    };
    let command = Command::Register {
        node: token("n"),
        boot: 1,
        capacity: Box::new(unordered),
        change: 0,
    };
    t.check(0, Some(command), &[]);
}

#[test]
fn a_report_that_may_be_ahead_of_the_ledger_as_read_waits() {
    let mut t = Table::new();
    t.check(0, register(1), &["n registered 1"]);
    let behind = |t: &Table, no| {
        let report = report(1, no, RunState::Started, 0);
        t.state.is_behind(&report.unwrap())
    };
    assert!(behind(&t, 7), "never heard of");
    t.place(7, "n", 1);
    assert!(!behind(&t, 7), "runs here");
    assert!(!behind(&t, 6), "ended before");
    assert!(behind(&t, 8), "newer than all");
    t.check(0, report(1, 7, RunState::Failed, 0), &["7 Failed at 0"]);
    assert!(behind(&t, 7), "over, so perhaps placed again");
    t.requeue(7);
    assert!(behind(&t, 7), "queued again");
    t.place_again(7, "n", 1);
    assert!(!behind(&t, 7), "runs here again");
    let elsewhere = Command::Report {
        node: token("m"),
        boot: 1,
        report: Report {
            allocation: AllocationNo(7),
            state: RunState::Started,
            at: Millis(0),
            revision: 1,
            exit: None,
        },
    };
    assert!(t.state.is_behind(&elsewhere), "perhaps there by now");
}

#[test]
fn a_heartbeat_that_renews_is_answered() {
    let mut t = Table::new();
    let asks = |boot, number| {
        let mut beat = heartbeat(boot, 0);
        if let Some(Command::Heartbeat { request, .. }) = &mut beat {
            *request = Some(number);
        }
        beat
    };
    t.check(0, asks(1, 7), &[]);
    assert!(t.effects().is_empty(), "nobody knows the node");
    t.check(0, register(1), &["n registered 1"]);
    t.check(3, asks(1, 8), &[]);
    assert_eq!(t.effects(), ["8: 1 holds 10 from 3"]);
    t.check(4, heartbeat(1, 0), &[]);
    assert!(t.effects().is_empty(), "nobody waits");
    t.check(5, asks(2, 9), &[]);
    assert!(t.effects().is_empty(), "another life");
    t.check(15, None, &["n lost, seen 4"]);
    t.check(15, asks(1, 10), &[]);
    assert_eq!(t.effects(), ["n register again"]);
}

#[test]
fn a_lease_is_promised_from_the_last_proof_on_and_without_a_recent_one_not_at_all() {
    let mut t = Table::new();
    t.lease_ms = 1600;
    t.check(0, register(1), &["n registered 1"]);
    let mut promised = |led_ago| {
        t.led_ago = led_ago;
        let mut beat = heartbeat(1, 0);
        if let Some(Command::Heartbeat { request, .. }) = &mut beat {
            *request = Some(8);
        }
        t.check(1000, beat, &[]);
        t.effects()
    };
    assert_eq!(promised(Some(0)), ["8: 1 holds 1600 from 1000"]);
    assert_eq!(promised(Some(200)), ["8: 1 holds 1400 from 1000"]);
    assert!(promised(Some(201)).is_empty(), "too long ago");
    assert!(promised(None).is_empty(), "not in this term");
}

#[test]
fn the_exit_of_a_command_is_recorded() {
    let mut t = Table::new();
    t.check(0, register(1), &["n registered 1"]);
    t.place(7, "n", 1);
    let mut failed = report(1, 7, RunState::Failed, 0);
    if let Some(Command::Report { report, .. }) = &mut failed {
        report.exit = Some(RunExit {
            code: 3,
            ..RunExit::default()
        });
    }
    t.check(0, failed, &["7 Failed at 0 with 3"]);
}

#[test]
fn a_reason_that_the_cell_does_not_know_yet_is_another_one() {
    let check = |level, expected| {
        let mut t = Table::new();
        t.check(0, register(1), &["n registered 1"]);
        t.level = level;
        t.place(7, "n", 1);
        let mut failed = report(1, 7, RunState::Failed, 0);
        if let Some(Command::Report { report, .. }) = &mut failed {
            report.exit = Some(RunExit {
                code: 3,
                reason: Some(RunExitReason::OutOfDisk),
                ..RunExit::default()
            });
        }
        t.check(0, failed, &[expected]);
    };
    check(Level::KNOWN, "7 Failed at 0 with 3 OutOfDisk");
    check(
        Level(Level::OUT_OF_DISK.0 - 1),
        "7 Failed at 0 with 3 Killed",
    );
}

#[test]
fn a_new_life_counts_its_changes_anew() {
    let mut t = Table::new();
    t.check(0, register(1), &["n registered 1"]);
    t.place(7, "n", 1);
    t.check(3, register(2), &["n lost, seen 3", "n registered 2"]);
    t.place(8, "n", 2);
    assert_eq!(
        t.effects(),
        ["n 7 rev 1 stop false", "n 8 rev 1 stop false"]
    );
}
