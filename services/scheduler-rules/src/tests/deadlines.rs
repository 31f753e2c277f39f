//! Bounds of time: what expires, what is stopped, and what becomes of both.

use super::*;
use vocab::TimeBounds;

const SECOND: u64 = 1000;

fn bounded(ttl_ms: u64, time_limit_ms: u64) -> AllocationSpec {
    AllocationSpec {
        bounds: TimeBounds {
            ttl_ms,
            time_limit_ms,
        },
        ..job(1, 1)
    }
}

fn pass(w: &mut World, ms: u64) {
    w.now = w.now.plus(ms as i64);
}

/// Decides when the state says that it is time, and no sooner. What was decided.
fn wake(w: &mut World) -> Vec<String> {
    let at = w.state.wake_at().expect("something is due");
    w.now = at.plus(-2);
    assert_eq!(spoken(&w.decide()), Vec::<String>::new(), "a moment before");
    spoken(&w.decide())
}

#[test]
fn what_is_not_placed_in_time_expires() {
    let mut w = World::new();
    let ms = 5 * SECOND;
    let asked = w.now;
    let jobs = w.submit("t", 2, bounded(ms, 0));
    let without = w.submit("t", 1, job(1, 1))[0];
    w.settle();
    assert_eq!(w.state.wake_at(), Some(asked.plus(ms as i64)));
    let ended = jobs.iter().map(|no| format!("{no} ended expired"));
    assert_eq!(wake(&mut w), ended.collect::<Vec<_>>());
    assert_eq!(w.state.live().len(), 1);
    w.nodes(&["n"]);
    assert_eq!(spoken(&w.settle()), [format!("{without} on n")]);
}

#[test]
fn one_without_quota_or_before_its_turn_expires_too() {
    let mut w = World::new();
    w.nodes(&["n"]);
    let first = w.submit("t", 1, job(1, 1))[0];
    let waits = AllocationSpec {
        depends_on: vec![vocab::Dependency {
            allocation: AllocationNo(first),
            success: true,
        }],
        ..bounded(SECOND, 0)
    };
    let after = w.submit("t", 1, waits)[0];
    let unreserved = w.request("t", bounded(SECOND, 0));
    w.settle();
    let ended = [after, unreserved].map(|no| format!("{no} ended expired"));
    assert_eq!(wake(&mut w), ended);
    // Quota may have granted it meanwhile: nothing comes of that.
    w.grant(unreserved);
    assert_eq!(spoken(&w.settle()), Vec::<String>::new());
}

#[test]
fn once_placed_it_waits_without_a_bound() {
    let mut w = World::new();
    w.nodes(&["n"]);
    let no = w.submit("t", 1, bounded(SECOND, 0))[0];
    w.settle();
    w.report(no, "n", RunState::Started);
    w.settle();
    w.lose("n");
    assert_eq!(spoken(&w.decide())[0], format!("{no} requeued node_lost"));
    w.settle();
    pass(&mut w, 100 * SECOND);
    assert_eq!(spoken(&w.settle()), Vec::<String>::new());
    w.node("n", 2, capacity(8, 8, 0));
    assert_eq!(spoken(&w.settle()), [format!("{no} on n")]);
}

#[test]
fn what_depends_on_it_is_as_after_a_cancel() {
    let mut w = World::new();
    let no = w.submit("t", 1, bounded(SECOND, 0))[0];
    let after = |success| AllocationSpec {
        depends_on: vec![vocab::Dependency {
            allocation: AllocationNo(no),
            success,
        }],
        ..job(1, 1)
    };
    let success = w.submit("t", 1, after(true))[0];
    let any = w.submit("t", 1, after(false))[0];
    w.settle();
    pass(&mut w, SECOND);
    let events = spoken(&w.settle());
    let expected = [
        format!("{no} ended expired"),
        format!("{any} waits no_node_ready"),
        format!("{success} ended dependency_failed"),
    ];
    assert_eq!(events, expected);
    w.nodes(&["n"]);
    assert_eq!(spoken(&w.settle()), [format!("{any} on n")]);
}

/// One whose run has just started on the node `n`.
fn running(spec: AllocationSpec) -> (World, u64) {
    let mut w = World::new();
    w.nodes(&["n"]);
    let no = w.submit("t", 1, spec)[0];
    w.settle();
    pass(&mut w, 100 * SECOND);
    w.report(no, "n", RunState::Started);
    w.settle();
    (w, no)
}

#[test]
fn a_run_is_stopped_at_its_limit_and_not_queued_again() {
    let (mut w, no) = running(AllocationSpec {
        restart: vocab::Restart {
            retries: 3,
            never: false,
        },
        ..bounded(SECOND, 10 * SECOND)
    });
    let started = w.now;
    assert!(w.state.wake_at() > Some(started.plus(9000)));
    assert_eq!(wake(&mut w), [format!("{no} stopping time_limit")]);
    let end = |how: &mut dyn FnMut(&mut World), expected: &str| {
        let mut w = w.clone();
        w.state = again(&w.state);
        how(&mut w);
        assert_eq!(spoken(&w.settle()), [format!("{no} ended {expected}")]);
        assert_eq!(w.state.wake_at(), None);
    };
    end(&mut |w| w.report(no, "n", RunState::Failed), "time_limit");
    let by_itself = |state| move |w: &mut World| w.report_by_itself(no, "n", state);
    end(&mut by_itself(RunState::Finished), "finished");
    end(&mut by_itself(RunState::Failed), "failed");
    end(&mut |w| w.lose("n"), "node_lost");
    // A cancel finds it stopping already.
    w.cancel(no);
    assert_eq!(spoken(&w.decide()), ["cancel WasLive"]);
    w.report(no, "n", RunState::Finished);
    assert_eq!(spoken(&w.settle()), [format!("{no} ended time_limit")]);
}

#[test]
fn every_run_has_its_own_limit() {
    let (mut w, no) = running(bounded(0, 10 * SECOND));
    pass(&mut w, 9 * SECOND);
    w.lose("n");
    w.node("n", 2, capacity(8, 8, 0));
    let events = spoken(&w.settle());
    assert_eq!(
        events,
        [format!("{no} requeued node_lost"), format!("{no} on n")]
    );
    // What has not started has no limit.
    pass(&mut w, 100 * SECOND);
    assert_eq!(spoken(&w.settle()), Vec::<String>::new());
    w.report(no, "n", RunState::Started);
    w.settle();
    let due = w.state.wake_at().expect("its limit");
    assert!(due > w.now.plus(9000), "counted anew");
    assert_eq!(wake(&mut w), [format!("{no} stopping time_limit")]);
}

#[test]
fn what_stops_already_is_not_told_once_more() {
    let (mut w, no) = running(bounded(0, 10 * SECOND));
    w.cancel(no);
    assert_eq!(
        spoken(&w.decide()),
        [format!("{no} stopping"), "cancel WasLive".into()]
    );
    pass(&mut w, 100 * SECOND);
    assert_eq!(spoken(&w.decide()), Vec::<String>::new());
    w.report(no, "n", RunState::Finished);
    assert_eq!(spoken(&w.settle()), [format!("{no} ended cancelled")]);
}

#[test]
fn a_limit_is_an_estimate_where_nothing_else_is_said() {
    let estimate = |run_time_ms, limit_ms| {
        let spec = AllocationSpec {
            run_time_ms,
            ..bounded(0, limit_ms)
        };
        spec.estimate_ms()
    };
    assert_eq!(
        [(0, 0), (5, 0), (0, 7), (5, 7), (9, 7)].map(|(believed, limit)| estimate(believed, limit)),
        [0, 5, 7, 5, 7]
    );
}
