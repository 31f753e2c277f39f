//! What is asked about allocations that are there: cancels of a whole job set, and changes of priority.

use super::*;
use vocab::Event;
use vocab::fact::{JobSetCancelDecided, TenantSet};

fn of_set(job_set: &str, cores: u64) -> AllocationSpec {
    AllocationSpec {
        job_set: token(job_set),
        ..job(cores, 1)
    }
}

fn one(no: u64) -> PriorityTarget {
    PriorityTarget::Allocation(AllocationNo(no))
}

fn set(job_set: &str) -> PriorityTarget {
    PriorityTarget::JobSet(token(job_set))
}

#[test]
fn a_job_set_is_cancelled_wherever_its_allocations_stand() {
    let mut w = World::new();
    w.node("n", 1, capacity(4, 64, 0));
    let mut jobs = w.submit("t", 3, of_set("a", 2));
    jobs.push(w.request("t", of_set("a", 2)));
    w.settle();
    jobs.extend(w.submit("t", 1, of_set("b", 2)));
    jobs.extend(w.submit("u", 1, of_set("a", 2)));
    w.settle();
    w.cancel_job_set("t", "a");
    // What came after the cancel is none of its business.
    jobs.extend(w.submit("t", 1, of_set("a", 2)));
    let expected = [
        "1 stopping",
        "2 stopping",
        "3 ended cancelled",
        "4 ended cancelled",
        "job set cancel of 4",
        "7 waits no_room_now",
    ];
    check(&mut w, &jobs, &expected);
    w.report(jobs[0], "n", RunState::Finished);
    w.report(jobs[1], "n", RunState::Failed);
    let expected = ["1 ended cancelled", "2 ended cancelled", "5 on n", "6 on n"];
    check(&mut w, &jobs, &expected);
    w.cancel_job_set("t", "a");
    w.cancel_job_set("t", "a");
    w.cancel_job_set("t", "none");
    let expected = [
        "7 ended cancelled",
        "job set cancel of 1",
        "job set cancel of 0",
        "job set cancel of 0",
    ];
    check(&mut w, &jobs, &expected);
}

#[test]
fn one_of_a_cancelled_job_set_that_is_being_preempted_does_not_come_back() {
    let mut w = World::new();
    w.nodes(&["n"]);
    let low = w.submit("t", 1, class(of_set("a", 32), 0));
    w.settle();
    let high = w.submit("u", 1, class(of_set("b", 32), 2));
    w.decide();
    w.cancel_job_set("t", "a");
    check(&mut w, &low, &["job set cancel of 1"]);
    w.report(low[0], "n", RunState::Finished);
    check(&mut w, &[low[0], high[0]], &["1 ended cancelled", "2 on n"]);
}

#[test]
fn a_large_job_set_is_cancelled_over_several_frames() {
    const ALL: usize = 100_000;
    let mut w = World::new();
    w.node("n", 1, capacity(4, 64, 0));
    let jobs = w.submit("t", ALL, of_set("a", 1));
    w.settle();
    w.cancel_job_set("t", "a");
    let (mut ended, mut stopping, mut frames) = (0, 0, 0);
    let told = loop {
        // Another process may go on with it.
        w.state = again(&w.state);
        frames += 1;
        let events = w.decide();
        // A run ends in the middle of it.
        if frames == 1 {
            w.report(jobs[0], "n", RunState::Finished);
        }
        for event in &events {
            match event {
                Event::AllocationEnded(_) => ended += 1,
                Event::AllocationStopping(_) => stopping += 1,
                _ => {}
            }
        }
        if let Some(Event::JobSetCancelDecided(JobSetCancelDecided { allocations, .. })) =
            events.last()
        {
            break *allocations;
        }
        assert!(!events.is_empty());
    };
    assert!(frames > 1, "{frames}");
    assert_eq!((stopping, ended), (4, ALL - 3));
    assert_eq!((told, w.state.live().len()), (ALL as u64, 3));
}

#[test]
fn a_large_job_set_is_continued_where_the_frame_before_stopped() {
    const ALL: usize = 20_000;
    let mut w = World::new();
    w.node("n", 1, capacity(4, 64, 0));
    let jobs = w.submit("t", ALL, of_set("a", 1));
    w.settle();
    w.prioritise("t", set("a"), 7);
    let mut changed = 0;
    let told = loop {
        let events = w.decide();
        let is_change = |event: &&Event| matches!(event, Event::AllocationReprioritised(_));
        changed += events.iter().filter(is_change).count();
        let told = events.iter().find_map(|event| match event {
            Event::PriorityDecided(decided) => Some(decided.allocations),
            _ => None,
        });
        if let Some(told) = told {
            break told;
        }
        let next = w.state.pace.walked.map(|(_, next)| next.0);
        assert_eq!(next, Some(jobs[changed]));
    };
    assert_eq!((told, changed), (ALL as u64, ALL));
}

#[test]
fn a_preempted_allocation_that_is_queued_again_during_the_cancel_of_its_job_set_is_cancelled() {
    const ALL: usize = 20_000;
    let mut w = World::new();
    w.node("n", 1, capacity(4, 64, 0));
    let low = w.submit("t", 1, class(of_set("a", 4), 0));
    w.settle();
    w.submit("t", ALL, of_set("a", 1));
    w.settle();
    let high = w.submit("u", 1, class(of_set("b", 4), 2));
    w.decide();
    let binding = w.state.live()[&AllocationNo(low[0])].binding();
    assert!(binding.is_some_and(|it| it.stop.is_some()));
    w.cancel_job_set("t", "a");
    w.decide();
    let next = w.state.pace.walked.map(|(_, next)| next.0);
    assert!(next.is_some_and(|next| next > low[0]), "{next:?}");
    w.report(low[0], "n", RunState::Finished);
    let events = w.settle();
    let told = events.iter().find_map(|event| match event {
        Event::JobSetCancelDecided(decided) => Some(decided.allocations),
        _ => None,
    });
    assert_eq!(told, Some(ALL as u64 + 1));
    assert_eq!(w.state.live().len(), 1);
    assert_eq!(w.on_nodes(&high), 1);
}

#[test]
fn members_that_end_in_any_order_are_forgotten() {
    let mut w = World::new();
    let jobs = w.submit("t", 100, of_set("a", 1));
    w.cancel_job_set("t", "none");
    w.settle();
    for no in jobs.iter().skip(1).step_by(2).chain(&jobs[50..60]) {
        w.cancel(*no);
    }
    w.settle();
    w.cancel_job_set("t", "a");
    let told = w.settle();
    let last = told.iter().rev().find_map(words);
    assert_eq!(last.as_deref(), Some("job set cancel of 45"));
    assert_eq!(w.state.live().len(), 0);
}

#[test]
fn a_priority_moves_one_in_its_pending_group() {
    let mut w = World::new();
    let mut jobs = w.submit("t", 3, of_set("a", 2));
    jobs.extend(w.submit("t", 1, class(of_set("a", 2), 1)));
    w.settle();
    w.prioritise("t", one(jobs[2]), 7);
    w.prioritise("t", one(jobs[3]), 7);
    w.prioritise("t", one(999), 7);
    let expected = [
        "3 has priority 7",
        "priority of 1",
        "priority: setting invalid: priority_class",
        "priority: allocation ended: allocation_id",
    ];
    check(&mut w, &jobs, &expected);
    w.node("n", 1, capacity(2, 64, 0));
    check(&mut w, &jobs, &["3 on n"]);
    // That it runs does not matter: it counts when somebody wants its place.
    w.prioritise("t", set("a"), -3);
    let expected = [
        "1 has priority -3",
        "2 has priority -3",
        "3 has priority -3",
        "priority of 3",
    ];
    check(&mut w, &jobs, &expected);
    w.prioritise("t", set("a"), -3);
    check(&mut w, &jobs, &["priority of 3"]);
    w.prioritise("u", set("a"), 1);
    let none = "priority: allocation not found: job_set";
    check(&mut w, &jobs, &[none]);
}

#[test]
fn what_was_asked_before_is_done_before() {
    let mut w = World::new();
    let jobs = w.submit("t", 2, of_set("a", 2));
    w.settle();
    w.prioritise("t", one(jobs[0]), 2);
    w.cancel(jobs[0]);
    w.prioritise("t", one(jobs[0]), 3);
    w.cancel_job_set("t", "a");
    w.prioritise("t", set("a"), 3);
    let expected = [
        "1 has priority 2",
        "priority of 1",
        "1 ended cancelled",
        "cancel WasLive",
        "priority: allocation ended: allocation_id",
        "2 ended cancelled",
        "job set cancel of 1",
        "priority: allocation not found: job_set",
    ];
    check(&mut w, &jobs, &expected);
}

#[test]
fn a_gang_stands_where_its_first_member_says() {
    let mut w = World::new();
    let single = w.submit("t", 1, of_set("b", 4));
    let gang = w.gang("t", "g", 2, of_set("a", 2));
    w.settle();
    let jobs = [&gang[..], &single].concat();
    w.prioritise("t", one(gang[0]), 5);
    check(&mut w, &jobs, &["1 has priority 5", "priority of 1"]);
    w.node("n", 1, capacity(4, 64, 0));
    let expected = ["1 on n", "2 on n"];
    check(&mut w, &jobs, &expected);
}

#[test]
fn a_priority_holds_after_a_pause_and_for_who_has_no_quota_yet() {
    let mut w = World::new();
    w.node("n", 1, capacity(4, 64, 0));
    let mut spec = of_set("a", 4);
    spec.restart.retries = 1;
    let mut jobs = w.submit("t", 1, spec);
    w.settle();
    w.report(jobs[0], "n", RunState::Failed);
    check(&mut w, &jobs, &["1 requeued failed"]);
    jobs.extend([
        w.request("t", of_set("a", 4)),
        w.request("t", of_set("b", 4)),
    ]);
    w.prioritise("t", set("a"), 4);
    w.prioritise("t", one(jobs[1]), 9);
    let expected = [
        "1 has priority 4",
        "2 has priority 4",
        "priority of 2",
        "2 has priority 9",
        "priority of 1",
    ];
    check(&mut w, &jobs, &expected);
    w.now = w.state.wake_at().unwrap();
    w.grant(jobs[2]);
    w.grant(jobs[1]);
    check(
        &mut w,
        &jobs,
        &[
            "1 waits fair_share",
            "2 on n",
            "1 waits no_room_now",
            "3 waits no_room_now",
        ],
    );
}

#[test]
fn the_weight_of_a_tenant_is_that_of_its_queue_unless_that_was_set() {
    let weigh = |w: &mut World, tenant: &str, weight_milli| {
        let settings = vocab::TenantSettings {
            weight_milli,
            ..vocab::TenantSettings::default()
        };
        w.admin(AdminChange::Tenant(TenantSet {
            tenant: token(tenant),
            closed: false,
            teams: Vec::new(),
            settings,
        }));
    };
    let held = |before: &[u32], set: Option<u32>, after: &[u32]| {
        let mut w = World::new();
        w.nodes(&["n"]);
        before.iter().for_each(|to| weigh(&mut w, "a", *to));
        if let Some(to) = set {
            w.queue("a", |q| q.weight_milli = to);
        }
        let of = ["a", "b"].map(|tenant| w.submit(tenant, 32, job(1, 1)));
        after.iter().for_each(|to| weigh(&mut w, "a", *to));
        w.settle();
        of.map(|of| w.on_nodes(&of))
    };
    assert_eq!(held(&[], None, &[]), [16, 16]);
    assert_eq!(held(&[3000], None, &[]), [24, 8]);
    assert_eq!(held(&[], None, &[3000]), [24, 8]);
    assert_eq!(held(&[3000], Some(1000), &[]), [16, 16]);
    assert_eq!(held(&[], Some(1000), &[3000]), [16, 16]);
}

#[test]
fn who_asks_for_nothing_runs_wherever_it_may() {
    let mut w = World::new();
    let nothing = || job(0, 0);
    w.policy(|policy| policy.backfill = true);
    w.queue("limited", |q| {
        q.limits = vec![(vocab::ResourceKind::Cpu, 0)]
    });
    let waiting = w.submit("t", 1, nothing());
    w.settle();
    assert_eq!(w.reason(waiting[0]), "no_node_ready");
    w.nodes(&["n"]);
    w.submit("t", 1, job(32, 256));
    w.submit("t", 1, job(32, 256));
    let jobs: Vec<_> = ["t", "limited"]
        .into_iter()
        .flat_map(|tenant| w.submit(tenant, 3, nothing()))
        .collect();
    let gang = w.gang("t", "g", 3, nothing());
    w.settle();
    // The full node is promised to the one that waits, and they leave room for it.
    let all = [waiting, jobs, gang].concat();
    assert_eq!(w.on_nodes(&all), all.len());
    let states = again(&w.state);
    assert_eq!(states, w.state);
    for no in all {
        w.report(no, "n", RunState::Finished);
    }
    w.settle();
    assert_eq!(w.state.live().len(), 2);
}

#[test]
fn who_waits_takes_no_more_memory_than_it_must() {
    // Millions wait. What a job set has to know of each is beside this: 8 bytes, and not more than twice that.
    assert!(std::mem::size_of::<Live>() <= 104);
}
