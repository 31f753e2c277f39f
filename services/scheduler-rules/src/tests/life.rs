//! The life of allocations: what stands on the ledger, then what the scheduler adds to it.

use super::*;
use vocab::Event;
use vocab::fact::{
    AllocationEnded, AllocationPlaced, AllocationStarted, AllocationStopping, QuotaDenied,
    RunReported,
};

fn small(cores: u64) -> AllocationSpec {
    job(cores, 1)
}

fn with(priority: i32, spec: AllocationSpec) -> AllocationSpec {
    AllocationSpec { priority, ..spec }
}

#[test]
fn by_priority_then_by_arrival_and_the_large_do_not_block_the_small() {
    let mut w = World::new();
    w.node("n", 1, capacity(4, 64, 0));
    let mut jobs = Vec::new();
    for (priority, cores) in [(0, 2), (5, 8), (5, 3), (5, 1)] {
        jobs.extend(w.submit("t", 1, with(priority, small(cores))));
    }
    let expected = [
        "3 on n",
        "4 on n",
        "1 waits no_room_now",
        "2 waits larger_than_any_node",
    ];
    check(&mut w, &jobs, &expected);
}

#[test]
fn nothing_is_placed_before_quota_has_granted_it() {
    let mut w = World::new();
    w.node("n", 1, capacity(4, 64, 0));
    let first = w.request("t", small(1));
    check(&mut w, &[first], &[]);
    w.grant(first);
    check(&mut w, &[first], &["1 on n"]);
    let second = w.request("t", small(1));
    w.observe(Event::QuotaDenied(QuotaDenied {
        allocation: AllocationNo(second),
        refusal: Refusal::new(Rule::QuotaExceeded, "cpu"),
    }));
    check(&mut w, &[], &[]);
    assert_eq!(w.state.live().len(), 1);
}

#[test]
fn what_ends_makes_room_in_the_same_frame() {
    let mut w = World::new();
    w.node("n", 1, capacity(4, 64, 1));
    let spec = gpus(small(4), 1, 600);
    let jobs = w.submit("t", 2, spec);
    check(&mut w, &jobs, &["1 on n 0:600", "2 waits no_room_now"]);
    w.report(jobs[0], "n", RunState::Started);
    w.report(jobs[0], "n", RunState::Finished);
    let expected = ["1 started", "1 ended finished", "2 on n 0:600"];
    check(&mut w, &jobs, &expected);
}

#[test]
fn a_cancel_finds_its_allocation_wherever_it_stands() {
    let mut w = World::new();
    w.node("n", 1, capacity(4, 64, 0));
    let first = w.request("t", small(1));
    w.cancel(first);
    check(&mut w, &[first], &["1 ended cancelled", "cancel WasLive"]);
    // Quota's answer comes too late to matter.
    w.grant(first);
    check(&mut w, &[], &[]);
    let second = w.submit("t", 1, small(1));
    check(&mut w, &second, &["1 on n"]);
    w.cancel(second[0]);
    w.cancel(second[0]);
    check(
        &mut w,
        &second,
        &["1 stopping", "cancel WasLive", "cancel WasLive"],
    );
    w.report(second[0], "n", RunState::Finished);
    w.cancel(second[0]);
    check(&mut w, &second, &["1 ended cancelled", "cancel HadEnded"]);
}

#[test]
fn a_lost_node_comes_back_empty_and_who_does_not_want_to_go_on_ends() {
    let mut w = World::new();
    w.node("n", 1, capacity(4, 64, 0));
    let mut stubborn = small(3);
    stubborn.restart.never = true;
    let first = w.submit("t", 1, stubborn);
    check(&mut w, &first, &["1 on n"]);
    w.lose("n");
    let jobs = [first[0], w.submit("t", 1, small(3))[0]];
    check(
        &mut w,
        &jobs,
        &["1 ended node_lost", "2 waits no_node_ready"],
    );
    w.report(jobs[0], "n", RunState::Finished);
    check(&mut w, &jobs, &[]);
    w.node("n", 2, capacity(4, 64, 0));
    check(&mut w, &jobs, &["2 on n"]);
    assert_eq!(w.state.nodes()[0].room.cpu_milli(), 1000);
}

#[test]
fn a_node_that_restarts_at_once_gets_nothing_back_from_its_former_life() {
    let mut w = World::new();
    w.node("n", 1, capacity(4, 64, 0));
    let mut spec = small(3);
    spec.restart.never = true;
    let first = w.submit("t", 1, spec);
    check(&mut w, &first, &["1 on n"]);
    w.lose("n");
    w.node("n", 2, capacity(4, 64, 0));
    let jobs = [first[0], w.submit("t", 1, small(4))[0]];
    check(&mut w, &jobs, &["1 ended node_lost", "2 on n"]);
    assert_eq!(w.state.nodes()[0].room.cpu_milli(), 0);
}

#[test]
fn a_failed_run_is_tried_again_after_a_pause_and_elsewhere() {
    let mut w = World::new();
    w.node("n", 1, capacity(4, 64, 0));
    let mut spec = small(3);
    spec.restart.retries = 2;
    let jobs = w.submit("t", 1, spec);
    check(&mut w, &jobs, &["1 on n"]);
    w.node("m", 1, capacity(64, 640, 0));
    w.report(jobs[0], "n", RunState::Failed);
    check(&mut w, &jobs, &["1 requeued failed"]);
    let pause = w.state.wake_at().unwrap();
    assert_eq!(pause.0 - w.now.0, 1000 - 1);
    w.now = pause;
    // Though `n` is the better fit.
    check(&mut w, &jobs, &["1 waits fair_share", "1 on m"]);
    w.report(jobs[0], "m", RunState::Rejected);
    check(&mut w, &jobs, &["1 requeued rejected_by_node"]);
    let pause = w.state.wake_at().unwrap();
    assert_eq!(pause.0 - w.now.0, 2000 - 1);
    w.now = pause;
    // Both are avoided, and one of them is better than none.
    check(&mut w, &jobs, &["1 waits fair_share", "1 on n"]);
    w.report(jobs[0], "n", RunState::Failed);
    check(&mut w, &jobs, &["1 requeued failed"]);
    w.now = w.state.wake_at().unwrap();
    check(&mut w, &jobs, &["1 waits fair_share", "1 on n"]);
    w.report(jobs[0], "n", RunState::Failed);
    check(&mut w, &jobs, &["1 ended failed"]);
}

#[test]
fn a_run_that_ended_with_its_supervisor_goes_to_no_other_node() {
    for (drained, ended) in [(false, "1 ended failed"), (true, "1 ended evicted")] {
        let mut w = World::new();
        w.node("n", 1, capacity(4, 64, 0));
        w.node("m", 1, capacity(4, 64, 0));
        let mut spec = small(3);
        spec.restart.retries = 5;
        let jobs = w.submit("t", 1, spec);
        check(&mut w, &jobs, &["1 on m"]);
        w.report(jobs[0], "m", RunState::Started);
        w.settle();
        let mut state = RunState::Failed;
        if drained {
            w.admin(super::features::drain("m", true, 0));
            // Told to stop, and its agent has not reported its end.
            w.decide();
            state = RunState::Stopped;
        }
        let exit = RunExit {
            reason: Some(RunExitReason::SupervisorLost),
            ..RunExit::default()
        };
        w.report_exit(jobs[0], "m", state, Some(exit));
        check(&mut w, &jobs, &[ended]);
    }
}

#[test]
fn a_rejected_run_goes_back_to_the_queue_without_a_try_and_avoids_the_last_nodes() {
    let mut w = World::new();
    let mut spec = small(3);
    spec.restart.never = true;
    let names = ["a", "b", "c", "d", "e", "f"];
    for (name, cores) in names.into_iter().zip(4..) {
        w.node(name, 1, capacity(cores, 64, 0));
    }
    let jobs = w.submit("t", 1, spec);
    // The best fit first, then the next: each of the four that were tried last is worse than any other.
    let mut went = Vec::new();
    for _ in 0..7 {
        let placed = w.settle();
        let on = spoken(&placed).into_iter().find_map(|said| {
            let node = said.strip_prefix(&format!("{} on ", jobs[0]))?;
            Some(node.to_owned())
        });
        let node = on.expect("placed");
        w.report(jobs[0], &node, RunState::Rejected);
        went.push(node);
        w.settle();
        w.now = w.state.wake_at().expect("a pause");
    }
    assert_eq!(went, ["a", "b", "c", "d", "e", "a", "b"]);
}

#[test]
fn a_run_that_has_begun_and_is_returned_has_run() {
    let mut w = World::new();
    w.node("n", 1, capacity(4, 64, 0));
    let mut once = small(1);
    once.restart.never = true;
    let jobs = [w.submit("t", 1, small(1))[0], w.submit("t", 1, once)[0]];
    check(&mut w, &jobs, &["1 on n", "2 on n"]);
    for job in jobs {
        w.report(job, "n", RunState::Started);
        w.report(job, "n", RunState::Rejected);
    }
    let expected = [
        "1 started",
        "1 requeued rejected_by_node",
        "2 started",
        "2 ended rejected_by_node",
    ];
    check(&mut w, &jobs, &expected);
}

#[test]
fn a_dependency_holds_back_until_it_ends_as_it_must() {
    let after = |no: u64, success| AllocationSpec {
        depends_on: vec![vocab::Dependency {
            allocation: AllocationNo(no),
            success,
        }],
        ..small(1)
    };
    let mut w = World::new();
    w.node("n", 1, capacity(4, 64, 0));
    let first = w.submit("t", 1, small(1))[0];
    let success = w.submit("t", 1, after(first, true))[0];
    let any = w.submit("t", 1, after(first, false))[0];
    let jobs = [first, success, any];
    let expected = ["1 on n", "2 waits dependency", "3 waits dependency"];
    check(&mut w, &jobs, &expected);
    w.report(first, "n", RunState::Failed);
    let expected = ["1 ended failed", "3 on n"];
    // Ends are decided before dependencies are: the doomed one goes in the next round at the latest.
    let events = spoken(&w.settle());
    for text in expected {
        let no = if text.starts_with('1') { first } else { any };
        assert!(
            events.contains(&text.replacen(&text[..1], &no.to_string(), 1)),
            "{events:?}"
        );
    }
    assert!(
        events.contains(&format!("{success} ended dependency_failed")),
        "{events:?}"
    );
    let late = w.submit("t", 1, after(first, true));
    let events = spoken(&w.settle());
    assert_eq!(events, [format!("{} ended dependency_failed", late[0])]);
}

#[test]
fn an_event_that_does_not_fit_is_refused_and_changes_nothing() {
    let mut w = World::new();
    w.node("n", 1, capacity(4, 64, 1));
    let jobs = w.submit("t", 1, small(3));
    let waiting = w.submit("t", 1, small(3));
    w.settle();
    let before = w.state.clone();
    let placed = |allocation, node: &str, gpus: Vec<vocab::GpuShare>| {
        Event::AllocationPlaced(AllocationPlaced {
            allocation: AllocationNo(allocation),
            node: token(node),
            incarnation: 1,
            gpus: gpus.into(),
            zones: 0,
            policy: vocab::PlacementPolicy::Default,
            candidates: Default::default(),
        })
    };
    let ended = Event::AllocationEnded(AllocationEnded {
        allocation: AllocationNo(999),
        cause: EndCause::Finished,
        at: Millis(0),
        exit: None,
    });
    let stopping = |allocation| {
        Event::AllocationStopping(AllocationStopping {
            allocation: AllocationNo(allocation),
            time_limit: false,
        })
    };
    let events = [
        placed(jobs[0], "n", Vec::new()),
        placed(999, "n", Vec::new()),
        placed(waiting[0], "m", Vec::new()),
        placed(waiting[0], "n", Vec::new()),
        ended,
        stopping(waiting[0]),
        stopping(999),
    ];
    for event in events {
        let at = At {
            lsn: Lsn(0),
            index: 0,
            no: EventNo(0),
            now: w.now,
        };
        assert!(w.state.evolve_event(&at, &event).is_err(), "{event:?}");
        assert_eq!(w.state, before);
    }
}

#[test]
fn a_state_survives_its_snapshot() {
    let mut w = World::new();
    w.node("n", 1, capacity(4, 64, 1));
    w.submit("t", 1, gpus(small(3), 1, 300));
    w.submit("t", 1, with(7, gpus(small(3), 1, 1000)));
    w.gang("t", "g", 2, small(4));
    w.settle();
    let chain = ledger::Chain::default();
    let snapshot = ledger::Snapshot::of(Scheduler::STATE_VERSION, chain, &w.state);
    let restored: Scheduler = snapshot.state(Scheduler::STATE_VERSION).unwrap();
    assert_eq!(restored, w.state);
    assert_eq!(ledger::state_digest(&restored), snapshot.digest());
}

/// Three members of which two must run.
fn two_of_three(w: &mut World, value: i32) -> Vec<u64> {
    let gang = vocab::Gang {
        name: token("g"),
        size: 3,
        min: 2,
        uniform_label: None,
    };
    w.gang_of("t", gang, class(job(4, 4), value))
}

#[test]
fn a_member_that_waited_alone_goes_back_to_its_gang() {
    let mut w = World::new();
    w.node("n1", 1, capacity(8, 64, 0));
    let gang = two_of_three(&mut w, 0);
    w.settle();
    assert_eq!(w.on_nodes(&gang), 2);
    w.lose("n1");
    w.settle();
    w.node("n2", 1, capacity(4, 64, 0));
    w.settle();
    assert_eq!(w.on_nodes(&gang), 0, "one is fewer than two");
    w.node("n3", 1, capacity(8, 64, 0));
    w.settle();
    assert_eq!(w.on_nodes(&gang), 3);
}

#[test]
fn a_broken_gang_whose_last_member_to_be_stopped_has_ended_is_cleared() {
    let mut w = World::new();
    w.nodes(&["n"]);
    let mut spec = job(1, 1);
    spec.restart.retries = 1;
    let gang = w.gang("t", "g", 3, spec);
    w.settle();
    assert_eq!(w.on_nodes(&gang), 3);
    w.cancel(gang[2]);
    w.decide();
    // One breaks the gang, one ends before it is told to go, and one goes already.
    w.report_by_itself(gang[0], "n", RunState::Failed);
    w.report_by_itself(gang[1], "n", RunState::Finished);
    w.decide();
    assert_eq!(w.held(&gang), [gang[2]]);
}

#[test]
fn a_gang_short_of_nominees_waits_again() {
    let mut w = World::new();
    w.node("n1", 1, capacity(4, 64, 0));
    w.node("n2", 1, capacity(4, 64, 0));
    let low = w.submit("u", 2, class(job(4, 4), 0));
    w.settle();
    let gang = two_of_three(&mut w, 2);
    w.decide();
    let nominated = |w: &World, no: &&u64| {
        matches!(
            w.state.live()[&AllocationNo(**no)].phase,
            Phase::Nominated(_)
        )
    };
    let named: Vec<u64> = gang
        .iter()
        .filter(|no| nominated(&w, no))
        .copied()
        .collect();
    assert_eq!(named.len(), 2);
    w.cancel(named[0]);
    for no in low {
        let node = w.node_of(no).unwrap();
        w.report(no, &node, RunState::Finished);
        w.decide();
        assert_ne!(w.on_nodes(&gang), 1);
    }
    w.settle();
    assert_eq!(w.on_nodes(&gang), 2);
}

#[test]
fn who_found_no_node_to_be_cleared_follows_its_gang() {
    let mut w = World::new();
    w.node("n1", 1, capacity(8, 64, 0));
    w.submit("u", 2, class(job(4, 4), 0));
    w.settle();
    let gang = two_of_three(&mut w, 2);
    w.settle();
    assert_eq!(w.on_nodes(&gang), 2);
    w.node("n2", 1, capacity(4, 64, 0));
    w.settle();
    assert_eq!(w.on_nodes(&gang), 3);
}

/// Agents' clocks are their own: a run is neither before its placement nor after the decision that tells of it.
#[test]
fn a_runs_moments_are_inside_what_the_scheduler_knows() {
    // What the agent says of start and end, from the placement on, and what is recorded; each is decided a millisecond
    // after the placement and the one before.
    for (start, end, recorded) in [
        (0, 1, (0, 1)),
        (-5, -4, (0, 0)),
        (1, 2, (1, 2)),
        (86_400_000, 86_400_001, (1, 2)),
        (1, -3, (1, 1)),
    ] {
        let mut w = World::new();
        w.node("n", 1, capacity(4, 64, 0));
        let no = w.submit("t", 1, small(1))[0];
        w.decide();
        let placed = w.now;
        let mut found = Vec::new();
        for (state, at) in [(RunState::Started, start), (RunState::Finished, end)] {
            w.observe(Event::RunReported(RunReported {
                allocation: AllocationNo(no),
                node: token("n"),
                state,
                at: placed.plus(at),
                exit: None,
            }));
            found.extend(w.decide().iter().filter_map(|event| match event {
                Event::AllocationStarted(AllocationStarted { at, .. })
                | Event::AllocationEnded(AllocationEnded { at, .. }) => Some(at.0 - placed.0),
                _ => None,
            }));
        }
        assert_eq!(found, [recorded.0, recorded.1], "{start} {end}");
    }
}
