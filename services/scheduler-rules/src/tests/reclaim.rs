//! Quota that is taken back, wherever its allocation stands.

use super::*;
use vocab::Event;
use vocab::fact::AllocationWaiting;

fn small(cores: u64) -> AllocationSpec {
    class(job(cores, 1), 0)
}

fn awaits_quota(w: &World, no: u64) -> bool {
    let live = &w.state.live()[&AllocationNo(no)];
    matches!(live.phase, Phase::AwaitingQuota(_))
}

#[test]
fn what_runs_is_preempted_and_waits_for_quota() {
    let mut w = World::new();
    w.nodes(&["n"]);
    let jobs = w.submit("t", 1, small(4));
    let other = w.submit("u", 1, small(4));
    w.settle();
    w.reclaim(jobs[0], Some(other[0]));
    check(&mut w, &jobs, &["1 preempted quota", "1 stopping"]);
    // Once is enough.
    w.reclaim(jobs[0], None);
    check(&mut w, &jobs, &[]);
    let before = w.state.clone();
    w.report(jobs[0], "n", RunState::Finished);
    check(&mut w, &jobs, &["1 requeued preempted", "1 waits quota"]);
    assert!(awaits_quota(&w, jobs[0]));
    w.grant(jobs[0]);
    check(&mut w, &jobs, &["1 on n"]);
    // And again.
    w.reclaim(jobs[0], None);
    check(&mut w, &jobs, &["1 preempted quota", "1 stopping"]);
    w.lose("n");
    let expected = [
        "1 requeued node_lost",
        "2 requeued node_lost",
        "1 waits quota",
        "2 waits no_node_ready",
    ];
    check(&mut w, &[jobs[0], other[0]], &expected);
    assert!(awaits_quota(&w, jobs[0]));
    // Whoever does not want to be queued again has ended.
    w.state = before;
    w.cancel(jobs[0]);
    check(&mut w, &jobs, &["cancel WasLive"]);
    w.report(jobs[0], "n", RunState::Finished);
    check(&mut w, &jobs, &["1 ended cancelled"]);
    w.reclaim(jobs[0], None);
    check(&mut w, &jobs, &[]);
}

#[test]
fn who_is_never_queued_again_ends() {
    let mut w = World::new();
    w.nodes(&["n"]);
    let mut spec = small(4);
    spec.restart.never = true;
    let jobs = w.submit("t", 1, spec);
    w.settle();
    w.reclaim(jobs[0], None);
    w.decide();
    w.report(jobs[0], "n", RunState::Finished);
    check(&mut w, &jobs, &["1 ended preempted"]);
}

#[test]
fn what_has_just_ended_is_not_missed() {
    let mut w = World::new();
    w.nodes(&["n"]);
    let mut spec = small(4);
    spec.restart.retries = 1;
    let jobs = w.submit("t", 2, spec);
    w.settle();
    w.reclaim(jobs[0], None);
    w.reclaim(jobs[1], None);
    w.report(jobs[0], "n", RunState::Finished);
    w.report(jobs[1], "n", RunState::Failed);
    let expected = ["1 ended finished", "2 requeued failed", "2 waits quota"];
    check(&mut w, &jobs, &expected);
    assert!(awaits_quota(&w, jobs[1]));
    let pause = w.now;
    w.grant(jobs[1]);
    check(&mut w, &jobs, &["2 waits backoff"]);
    let until = w.state.wake_at().unwrap();
    assert!(until > pause, "its pause goes on");
    w.now = until;
    check(&mut w, &jobs, &["2 waits fair_share", "2 on n"]);
}

#[test]
fn what_waits_goes_back_to_wait_for_quota() {
    let mut w = World::new();
    let after = |no: u64| AllocationSpec {
        depends_on: vec![vocab::Dependency {
            allocation: AllocationNo(no),
            success: false,
        }],
        ..small(1)
    };
    let first = w.submit("t", 1, small(4))[0];
    let dependent = w.submit("t", 1, after(first))[0];
    let not_granted = w.request("t", small(4));
    let jobs = [first, dependent, not_granted];
    w.settle();
    for no in jobs {
        w.reclaim(no, None);
    }
    w.state = again(&w.state);
    // One that holds none has none to give back.
    let expected = ["1 waits quota", "2 waits quota"];
    check(&mut w, &jobs, &expected);
    w.nodes(&["n"]);
    check(&mut w, &jobs, &[]);
    w.grant(dependent);
    check(&mut w, &jobs, &["2 waits dependency"]);
    w.cancel(first);
    check(
        &mut w,
        &jobs,
        &["1 ended cancelled", "cancel WasLive", "2 on n"],
    );
}

#[test]
fn quota_that_comes_again_before_anything_was_done_is_not_missed() {
    let mut w = World::new();
    let jobs = w.submit("t", 2, small(4));
    w.settle();
    w.reclaim(jobs[0], None);
    w.grant(jobs[0]);
    w.reclaim(jobs[1], None);
    check(&mut w, &jobs, &["2 waits quota"]);
    w.reclaim(jobs[1], None);
    w.grant(jobs[1]);
    w.nodes(&["n"]);
    check(&mut w, &jobs, &["1 on n", "2 on n"]);
}

#[test]
fn a_pause_goes_on_while_it_waits_for_quota() {
    let mut w = World::new();
    w.nodes(&["n"]);
    let mut spec = small(4);
    spec.restart.retries = 1;
    let jobs = w.submit("t", 1, spec);
    w.settle();
    w.report(jobs[0], "n", RunState::Failed);
    check(&mut w, &jobs, &["1 requeued failed"]);
    let until = w.state.wake_at().unwrap();
    w.reclaim(jobs[0], None);
    check(&mut w, &jobs, &["1 waits quota"]);
    assert_eq!(w.state.wake_at(), None);
    w.grant(jobs[0]);
    check(&mut w, &jobs, &["1 waits backoff"]);
    w.now = until;
    check(&mut w, &jobs, &["1 waits fair_share", "1 on n"]);
}

#[test]
fn a_node_that_is_being_cleared_is_for_others_then() {
    let mut w = World::new();
    w.nodes(&["n"]);
    let low = w.submit("u", 1, class(job(32, 1), 0))[0];
    w.settle();
    let high = w.submit("t", 1, class(job(32, 1), 2))[0];
    let jobs = [low, high];
    let expected = [
        "1 preempted priority",
        "1 stopping",
        "2 nominated n",
        "2 waits nominated",
    ];
    check(&mut w, &jobs, &expected);
    w.reclaim(high, None);
    // One that goes for another reason anyway waits for quota as well.
    w.reclaim(low, Some(high));
    check(&mut w, &jobs, &["2 waits quota"]);
    w.report(low, "n", RunState::Finished);
    check(&mut w, &jobs, &["1 requeued preempted", "1 waits quota"]);
    assert!(awaits_quota(&w, low) && awaits_quota(&w, high));
    assert_eq!(w.state.waiting(), 2);
    w.grant(low);
    check(&mut w, &jobs, &["1 on n"]);
}

#[test]
fn it_does_not_count_against_the_limit_on_preemptions() {
    let mut w = World::new();
    w.policy(|policy| policy.preemptions_per_minute = 1);
    w.nodes(&["n"]);
    let jobs = w.submit("t", 2, small(8));
    let gang = w.gang("t", "g", 2, small(8));
    w.settle();
    for no in [jobs[0], gang[0]] {
        w.reclaim(no, None);
    }
    w.settle();
    assert_eq!(w.on_nodes(&[&jobs[..], &gang].concat()), 1);
    w.nodes(&["m"]);
    w.submit("u", 1, class(job(32, 1), 2));
    w.submit("u", 1, class(job(32, 1), 2));
    let said = spoken(&w.settle());
    let one = format!("{} preempted priority", jobs[1]);
    assert!(said.contains(&one), "{said:?}");
}

fn gang_of(w: &mut World, size: u32, min: u32) -> Vec<u64> {
    let gang = Gang {
        name: token("g"),
        size,
        min,
        uniform_label: None,
    };
    w.gang_of("t", gang, small(4))
}

#[test]
fn the_rest_of_a_gang_goes_on_if_it_is_enough() {
    let mut w = World::new();
    w.nodes(&["n"]);
    let gang = gang_of(&mut w, 3, 2);
    w.settle();
    w.reclaim(gang[1], None);
    check(&mut w, &gang, &["2 preempted quota", "2 stopping"]);
    w.report(gang[1], "n", RunState::Finished);
    check(&mut w, &gang, &["2 requeued preempted", "2 waits quota"]);
    w.state = again(&w.state);
    w.grant(gang[1]);
    check(&mut w, &gang, &["2 on n"]);
    // One that stays is too few.
    w.reclaim(gang[0], None);
    w.reclaim(gang[1], None);
    let expected = [
        "1 preempted quota",
        "1 stopping",
        "2 preempted quota",
        "2 stopping",
        "3 preempted gang",
        "3 stopping",
    ];
    check(&mut w, &gang, &expected);
    for no in &gang {
        w.report(*no, "n", RunState::Finished);
    }
    let expected = [
        "1 requeued preempted",
        "2 requeued preempted",
        "3 requeued preempted",
        "1 waits quota",
        "2 waits quota",
        "3 waits gang_incomplete",
    ];
    check(&mut w, &gang, &expected);
    w.grant(gang[0]);
    check(&mut w, &gang, &["1 on n", "3 on n"]);
}

#[test]
fn the_rest_of_a_gang_waits_if_it_is_too_few() {
    let mut w = World::new();
    let gang = gang_of(&mut w, 2, 2);
    let expected = ["1 waits no_node_ready", "2 waits no_node_ready"];
    check(&mut w, &gang, &expected);
    w.reclaim(gang[0], None);
    let expected = ["1 waits quota", "2 waits gang_incomplete"];
    check(&mut w, &gang, &expected);
    w.nodes(&["n"]);
    check(&mut w, &gang, &[]);
    w.grant(gang[0]);
    check(&mut w, &gang, &["1 on n", "2 on n"]);
    // Both are taken back, one after the other has gone.
    w.reclaim(gang[0], None);
    w.decide();
    w.report(gang[0], "n", RunState::Finished);
    w.decide();
    w.reclaim(gang[1], None);
    check(&mut w, &gang, &[]);
    w.report(gang[1], "n", RunState::Finished);
    check(&mut w, &gang, &["2 requeued preempted", "2 waits quota"]);
    assert!(awaits_quota(&w, gang[0]) && awaits_quota(&w, gang[1]));
    w.grant(gang[1]);
    check(&mut w, &gang, &["2 waits gang_incomplete"]);
    w.grant(gang[0]);
    check(&mut w, &gang, &["1 on n", "2 on n"]);
}

#[test]
fn a_gang_that_never_was_complete_waits_for_all() {
    let mut w = World::new();
    w.nodes(&["n"]);
    let gang = Gang {
        name: token("g"),
        size: 3,
        min: 1,
        uniform_label: None,
    };
    let spec = AllocationSpec {
        gang: Some(gang),
        ..small(4)
    };
    let mut gang = w.submit("t", 2, spec.clone());
    w.settle();
    w.reclaim(gang[0], None);
    let expected = ["1 waits quota"];
    check(&mut w, &gang, &expected);
    gang.extend(w.submit("t", 1, spec));
    check(&mut w, &gang, &["3 waits gang_incomplete"]);
    w.grant(gang[0]);
    check(&mut w, &gang, &["1 on n", "2 on n", "3 on n"]);
}

#[test]
fn what_was_not_taken_back_cannot_wait_for_quota() {
    let mut w = World::new();
    let jobs = w.submit("t", 1, small(4));
    w.settle();
    let before = w.state.clone();
    let event = Event::AllocationWaiting(AllocationWaiting {
        allocation: AllocationNo(jobs[0]),
        reason: WaitingReason::Quota,
        pending_group: None,
    });
    let at = At {
        lsn: Lsn(0),
        index: 0,
        no: EventNo(0),
        now: w.now,
    };
    assert!(w.state.evolve_event(&at, &event).is_err());
    assert_eq!(w.state, before);
}
