//! What a trial says is what is decided when the same is asked at that moment.

use super::{
    histories::{Run, a_spec, config, left_out, queue_name, setting, step},
    *,
};
use proptest::{prelude::*, test_runner::TestRunner};
use vocab::{AdvanceReservation, Candidate, fact::ReservationSet};

/// What becomes of it in the first round after it was asked for and granted its quota.
#[derive(Debug, PartialEq)]
enum Became {
    Placed(Token, Vec<Candidate>),
    /// So many members of a gang.
    GangPlaced(u32),
    Nominated,
    Waits(WaitingReason),
}

fn asked(
    world: &mut World,
    queue: &str,
    spec: AllocationSpec,
    except: Option<&[&str]>,
) -> (Became, WaitingReason) {
    let size = spec.gang.as_ref().map_or(1, |gang| gang.size);
    let members: Vec<_> = (0..size)
        .map(|_| world.request(queue, spec.clone()))
        .collect();
    for no in &members {
        match except {
            None => world.grant(*no),
            Some(except) => world.grant_but(*no, except),
        }
    }
    let no = AllocationNo(members[0]);
    let events = world.decide();
    let is_placed = |event: &&Event| matches!(event, Event::AllocationPlaced(fact) if members.contains(&fact.allocation.0));
    let placed = events.iter().filter(is_placed).count() as u32;
    let explained = events.iter().find_map(|event| match event {
        Event::PendingGroupExplained(fact) if fact.head == no => Some(fact.reason),
        _ => None,
    });
    let became = events.into_iter().find_map(|event| match event {
        Event::AllocationPlaced(_) if size > 1 && placed > 0 => Some(Became::GangPlaced(placed)),
        Event::AllocationPlaced(fact) if fact.allocation == no => {
            Some(Became::Placed(fact.node, fact.candidates.to_vec()))
        }
        Event::AllocationNominated(fact) if fact.allocation == no => Some(Became::Nominated),
        Event::AllocationWaiting(fact) if fact.allocation == no => Some(Became::Waits(fact.reason)),
        _ => None,
    });
    let became = became.expect("it is decided");
    let reason = match &became {
        Became::Waits(reason) => *reason,
        Became::Placed(..) | Became::GangPlaced(_) | Became::Nominated => WaitingReason::NoRoomNow,
    };
    (became, explained.unwrap_or(reason))
}

/// Now, as the next round of decisions has it.
fn tried(
    world: &World,
    queue: &str,
    spec: &AllocationSpec,
    except: &[&str],
) -> Result<Trial, Refusal> {
    let except: Vec<_> = except.iter().map(|model| token(model)).collect();
    let now = Millis(world.now.0 + 1);
    world.state.try_request(&token(queue), spec, &except, now)
}

fn is_as_decided(trial: &WouldBe, became: &Became, explained: WaitingReason) -> bool {
    match (trial, became) {
        (WouldBe::Placed { node, candidates }, Became::Placed(on, best)) => {
            (node, candidates) == (on, best)
        }
        (WouldBe::GangPlaced { members }, Became::GangPlaced(placed)) => members == placed,
        (WouldBe::Waiting { may_preempt, .. }, Became::Nominated) => *may_preempt,
        (WouldBe::Waiting { may_preempt, .. }, Became::Waits(WaitingReason::PreemptionLimit)) => {
            *may_preempt
        }
        (WouldBe::Waiting { standing, .. } | WouldBe::Never(standing), Became::Waits(_)) => {
            standing.reason == explained
        }
        _ => false,
    }
}

fn gang(size: u32, min: u32) -> Gang {
    Gang {
        name: token("unformed"),
        size,
        min,
        uniform_label: None,
    }
}

#[test]
fn one_finds_room_on_a_node_that_is_reserved_for_its_queue() {
    let mut w = World::new();
    w.nodes(&["n", "m"]);
    w.admin(AdminChange::Reservation(ReservationSet {
        reservation: token("demo"),
        wanted: Some(AdvanceReservation {
            queue: token("r"),
            from: w.now,
            until: w.now.plus(3_600_000),
            nodes: 1,
            selector: Vec::new(),
        }),
    }));
    w.settle();
    let check = |w: &World, queue: &str, cores: u64, nodes: usize| {
        let spec = job(cores, 1);
        let trial = tried(w, queue, &spec, &[]).unwrap().decided;
        let (became, explained) = asked(&mut w.clone(), queue, spec, None);
        assert!(
            is_as_decided(&trial, &became, explained),
            "{trial:?}, {became:?}"
        );
        let found = match trial {
            WouldBe::Placed { candidates, .. } => candidates.len(),
            _ => 0,
        };
        assert_eq!(found, nodes, "{queue} {cores}");
    };
    check(&w, "a", 1, 1);
    check(&w, "r", 1, 2);
    w.submit("a", 1, job(32, 1));
    w.settle();
    check(&w, "a", 1, 0);
    check(&w, "r", 1, 1);
}

#[test]
fn a_trial_is_what_is_decided() {
    let seen = std::cell::RefCell::new(BTreeMap::<&str, u32>::new());
    let histories = (
        setting(),
        prop::collection::vec(step(), 1..14),
        (0u8..4, 0u8..10, 0u8..4),
        // Two in three are no gang.
        (0u32..9, 0u32..3),
    );
    // Fewer histories would not have each kind.
    let cases = config().cases.max(1000);
    let config = ProptestConfig { cases, ..config() };
    let held = TestRunner::new(config).run(
        &histories,
        |(setting, steps, (queue, spec, value), (size, less))| {
            let mut run = Run::new(&setting, false);
            for step in &steps {
                run.step(step);
            }
            run.settle();
            let (queue, except) = (queue_name(queue), left_out(spec, value));
            let mut spec = class(a_spec(spec), i32::from(value));
            spec.run_time_ms = u64::from(value % 3) * 30_000;
            spec.gang = (1..4)
                .contains(&size)
                .then(|| gang(size, size - less.min(size - 1)));
            let trial = tried(&run.world, &queue, &spec, except.unwrap_or(&[]));
            let trial = match trial {
                Ok(trial) => trial,
                Err(refusal) if refusal.rule == Rule::NotSupported => {
                    prop_assert!(spec.gang.is_some());
                    return Ok(());
                }
                Err(refusal) => panic!("{refusal:?}"),
            };
            let in_gang = spec.gang.as_ref().is_some_and(|gang| gang.size > 1);
            let (became, explained) = asked(&mut run.world, &queue, spec, except);
            prop_assert!(
                is_as_decided(&trial.decided, &became, explained),
                "{trial:?} and {became:?} {explained:?}"
            );
            let kind = match (&trial.decided, &became) {
                (WouldBe::Placed { .. }, _) => "placed",
                (WouldBe::GangPlaced { .. }, _) => "gang placed",
                (_, Became::Nominated) => "nominated",
                (WouldBe::Never(_), _) => "never",
                _ if in_gang => "gang waits",
                _ => "waits",
            };
            *seen.borrow_mut().entry(kind).or_default() += 1;
            Ok(())
        },
    );
    held.unwrap();
    let seen = seen.into_inner();
    assert!(
        seen.len() == 6 && seen.values().all(|times| *times >= cases / 1000),
        "{seen:?} of {cases}"
    );
}

#[test]
fn one_that_would_wait_has_a_place_in_its_queue_and_a_reason_for_each_node() {
    let mut world = World::new();
    world.node("n1", 1, capacity(8, 64, 0));
    world.node("n2", 1, capacity(2, 64, 0));
    world.submit("q", 1, job(8, 1));
    world.settle();
    world.submit("q", 3, class(job(7, 1), 2));
    world.settle();
    let before = again(&world.state);
    let trial = tried(&world, "q", &class(job(7, 1), 3), &[]).unwrap();
    assert!(world.state == before);
    let standing = Standing {
        reason: WaitingReason::NoRoomNow,
        counts: vec![(vocab::Filter::Capacity, 1), (vocab::Filter::Cpu, 1)],
        shortfall: Some([7000, 0, 0]),
    };
    let waits = |ahead, may_preempt| WouldBe::Waiting {
        standing: standing.clone(),
        room: None,
        ahead,
        in_queue: 3,
        may_preempt,
    };
    assert_eq!(trial.decided, waits(0, true));
    let trial = tried(&world, "q", &class(job(7, 1), 1), &[]).unwrap();
    assert_eq!(trial.decided, waits(3, true));
    let trial = tried(&world, "q", &job(9, 1), &[]).unwrap();
    let never = Standing {
        reason: WaitingReason::LargerThanAnyNode,
        counts: vec![(vocab::Filter::Capacity, 2)],
        shortfall: None,
    };
    assert_eq!(trial.decided, WouldBe::Never(never));
}

#[test]
fn one_that_depends_on_others_is_judged_as_if_they_had_ended() {
    let mut world = World::new();
    world.nodes(&["n"]);
    let other = world.submit("q", 1, job(1, 1))[0];
    world.settle();
    let spec = AllocationSpec {
        depends_on: vec![vocab::Dependency {
            allocation: AllocationNo(other),
            success: true,
        }],
        ..job(1, 1)
    };
    let trial = tried(&world, "q", &spec, &[]).unwrap();
    assert!(trial.awaits_others);
    assert!(matches!(trial.decided, WouldBe::Placed { .. }));
}

#[test]
fn of_a_gang_it_is_said_how_many_members_find_room() {
    let mut world = World::new();
    for node in ["n1", "n2"] {
        world.node(node, 1, capacity(8, 64, 0));
    }
    let check = |(size, min), expected: Result<(bool, u32), Refusal>| {
        let spec = AllocationSpec {
            gang: Some(gang(size, min)),
            ..job(3, 1)
        };
        let trial = tried(&world, "q", &spec, &[]);
        let said = trial.map(|trial| match trial.decided {
            WouldBe::GangPlaced { members } => (true, members),
            WouldBe::Waiting { standing, room, .. } => {
                assert_eq!(standing.reason, WaitingReason::GangNoRoom);
                (false, room.unwrap())
            }
            other => panic!("{other:?}"),
        });
        assert_eq!(said, expected, "{size} {min}");
    };
    check((3, 3), Ok((true, 3)));
    check((6, 4), Ok((true, 4)));
    check((6, 5), Ok((false, 4)));
    let wrong = |size: u32| Refusal::over(Rule::GangInvalid, "gang", 1024, size.into());
    check((0, 0), Err(wrong(0)));
    check((u32::MAX, 1), Err(wrong(u32::MAX)));
    let tried_out = AllocationSpec {
        gang: Some(Gang {
            uniform_label: Some(token("rack")),
            ..gang(2, 2)
        }),
        ..job(1, 1)
    };
    let refused = tried(&world, "q", &tried_out, &[]);
    assert_eq!(refused, Err(Refusal::new(Rule::NotSupported, "gang")));
}

#[test]
fn a_queue_that_is_not_for_the_tenant_is_not_told_of() {
    let mut world = World::new();
    world.nodes(&["n"]);
    world.queue("shared", |queue| queue.tenants = vec![token("a")]);
    world.submit("b", 1, job(1, 1));
    world.settle();
    let check = |tenant, queue, expected: Result<(), Rule>| {
        let spec = AllocationSpec {
            queue: Some(token(queue)),
            ..job(1, 1)
        };
        let trial = tried(&world, tenant, &spec, &[]);
        let told = trial.map(|trial| assert_eq!(trial.queue, token(queue)));
        let expected = expected.map_err(|rule| Refusal::new(rule, "queue"));
        assert_eq!(told, expected, "{tenant} {queue}");
    };
    check("a", "shared", Ok(()));
    check("b", "shared", Err(Rule::QueueForbidden));
    check("b", "b", Ok(()));
    check("a", "b", Err(Rule::QueueUnknown));
    check("a", "nowhere", Err(Rule::QueueUnknown));
}
