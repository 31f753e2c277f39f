//! What starts only after others: what became of them is known for as long as anybody may ask for it.

use super::*;
use ledger::memory::Seeded;
use std::collections::BTreeMap;
use vocab::Event;
use vocab::fact::{AllocationEnded, AllocationPlaced, OperationsForgotten, QuotaDenied};

fn after(on: &[(u64, bool)]) -> AllocationSpec {
    let dependency = |(no, success): &(u64, bool)| vocab::Dependency {
        allocation: AllocationNo(*no),
        success: *success,
    };
    AllocationSpec {
        depends_on: on.iter().map(dependency).collect(),
        ..job(1, 1)
    }
}

/// Admission says what it does not know any more.
fn forgets(w: &mut World, ended_through: u64) {
    w.observe(Event::OperationsForgotten(OperationsForgotten {
        through: EventNo(0),
        slots_of: None,
        ended_through: EventNo(ended_through),
        denied_through: EventNo(0),
    }));
}

/// The number of the event that ended it.
fn ended_by(w: &World, no: u64) -> u64 {
    let is = |event: &Event| matches!(event, Event::AllocationEnded(AllocationEnded { allocation, .. }) if allocation.0 == no);
    1 + w.said.iter().position(is).expect("it has ended") as u64
}

#[test]
fn what_became_of_others_is_known_until_admission_forgets_it() {
    let mut w = World::new();
    w.nodes(&["n"]);
    let jobs = w.submit("t", 4, job(1, 1));
    w.settle();
    // The last that was asked ends first.
    for no in [jobs[3], jobs[0]] {
        w.report(no, "n", RunState::Finished);
        w.settle();
    }
    w.report(jobs[1], "n", RunState::Failed);
    w.cancel(jobs[2]);
    w.settle();
    let table = |w: &mut World, rows: &[(u64, bool, &str)]| {
        for (on, success, expected) in rows {
            let dependent = w.submit("t", 1, after(&[(*on, *success)]));
            let events = spoken(&w.settle()).join(", ");
            let expected = expected.replace('1', &dependent[0].to_string());
            assert_eq!(events, expected, "after {on}, success {success}");
            w.state = again(&w.state);
        }
    };
    let (placed, doomed) = ("1 on n", "1 ended dependency_failed");
    let denied = w.request("t", job(1, 1));
    w.observe(Event::QuotaDenied(QuotaDenied {
        allocation: AllocationNo(denied),
        refusal: Refusal::new(Rule::QuotaExceeded, "cpu"),
    }));
    let rows = [
        (jobs[0], true, placed),
        (jobs[3], true, placed),
        (jobs[1], true, doomed),
        (jobs[1], false, placed),
        (jobs[2], true, doomed),
        (jobs[2], false, placed),
        (denied, true, doomed),
        (denied, false, placed),
        // Admission lets in nothing of the kind; if it did, nobody could say that it has finished.
        (1_000_000, true, doomed),
    ];
    table(&mut w, &rows);
    // The oldest end is forgotten first, whatever its number.
    let first = ended_by(&w, jobs[3]);
    forgets(&mut w, first);
    table(&mut w, &[(jobs[3], true, doomed), (jobs[0], true, placed)]);
    let all = ended_by(&w, jobs[0]);
    forgets(&mut w, all);
    table(&mut w, &[(jobs[0], true, doomed), (jobs[0], false, placed)]);
}

#[test]
fn many_failures_of_others_make_none_of_ours_a_success() {
    let mut w = World::new();
    w.nodes(&["n"]);
    let first = w.submit("t", 1, job(1, 1))[0];
    w.settle();
    w.report(first, "n", RunState::Failed);
    w.settle();
    // More than was once remembered of all tenants together.
    for _ in 0..66_000 {
        let no = w.request("other", job(1, 1));
        w.observe(Event::QuotaDenied(QuotaDenied {
            allocation: AllocationNo(no),
            refusal: Refusal::new(Rule::QuotaExceeded, "cpu"),
        }));
    }
    let late = w.submit("t", 1, after(&[(first, true)]))[0];
    let events = spoken(&w.settle());
    assert_eq!(events, [format!("{late} ended dependency_failed")]);
}

/// Taking out one dependent looks at no other: 40,000 of them are cancelled with as many look-ups, each in a tree.
#[test]
fn forty_thousand_dependents_are_cancelled() {
    const MANY: usize = 40_000;
    let mut w = World::new();
    w.nodes(&["n"]);
    let first = w.submit("t", 1, job(1, 1))[0];
    let spec = AllocationSpec {
        job_set: token("late"),
        ..after(&[(first, true)])
    };
    w.submit("t", MANY, spec);
    w.settle();
    let waits_for = |w: &World| w.state.dependencies.dependents_of(AllocationNo(first));
    assert_eq!(waits_for(&w), MANY);
    w.cancel_job_set("t", "late");
    let said = w.settle();
    let ended = said
        .iter()
        .filter(|event| matches!(event, Event::AllocationEnded(_)));
    assert_eq!(ended.count(), MANY);
    assert_eq!(waits_for(&w), 0);
    assert_eq!(w.state.live().len(), 1);
    w.report(first, "n", RunState::Finished);
    w.settle();
    assert_eq!(w.state, again(&w.state));
}

/// What is known of an allocation here.
#[derive(Clone, Copy, PartialEq)]
enum Course {
    Live,
    Finished,
    Otherwise,
    Forgotten,
}

/// Random histories beside a model that remembers everything: nothing starts before what it waits for, or after what has
/// failed it, and what is not doomed starts.
#[test]
fn nothing_starts_before_it_may_and_nothing_is_doomed_that_may() {
    let mut doomed = 0;
    for seed in 0..20_000 {
        let mut random = Seeded::new(seed);
        let mut w = World::new();
        w.nodes(&["n"]);
        let mut known: BTreeMap<u64, (Course, Vec<(u64, bool)>)> = BTreeMap::new();
        for _ in 0..10 {
            let numbers: Vec<u64> = known.keys().copied().collect();
            let pick = |random: &mut Seeded| numbers[random.below(numbers.len() as u64) as usize];
            match random.below(10) {
                0..5 => {
                    let mut on = BTreeMap::new();
                    for _ in 0..random.below(3).min(numbers.len() as u64) {
                        let other = pick(&mut random);
                        // What is forgotten is refused at the inbox.
                        if known[&other].0 != Course::Forgotten {
                            on.insert(other, random.chance(500));
                        }
                    }
                    let on: Vec<_> = on.into_iter().collect();
                    let no = w.submit("t", 1, after(&on))[0];
                    known.insert(no, (Course::Live, on));
                }
                5 if !numbers.is_empty() => {
                    w.cancel(pick(&mut random));
                }
                6 => {
                    let through = w.next_own - 1;
                    forgets(&mut w, through);
                    for (course, _) in known.values_mut() {
                        if matches!(course, Course::Finished | Course::Otherwise) {
                            *course = Course::Forgotten;
                        }
                    }
                }
                _ => {
                    let all: Vec<u64> = known.keys().copied().collect();
                    if let Some(no) = w.held(&all).first() {
                        let failed = random.chance(400);
                        let state = [RunState::Finished, RunState::Failed][usize::from(failed)];
                        w.report(*no, "n", state);
                    }
                }
            }
            for event in w.settle() {
                match event {
                    Event::AllocationPlaced(AllocationPlaced { allocation, .. }) => {
                        let (_, on) = &known[&allocation.0];
                        for (other, success) in on {
                            let course = known[other].0;
                            let fine = match course {
                                Course::Live => false,
                                Course::Otherwise => !success,
                                Course::Finished | Course::Forgotten => true,
                            };
                            assert!(fine, "seed {seed}: {} starts after {other}", allocation.0);
                        }
                    }
                    Event::AllocationEnded(AllocationEnded {
                        allocation, cause, ..
                    }) => {
                        if cause == EndCause::DependencyFailed {
                            doomed += 1;
                            let (_, on) = &known[&allocation.0];
                            let failed = on.iter().any(|(other, success)| {
                                *success
                                    && matches!(
                                        known[other].0,
                                        Course::Otherwise | Course::Forgotten
                                    )
                            });
                            assert!(failed, "seed {seed}: {} is doomed", allocation.0);
                        }
                        let course = match cause {
                            EndCause::Finished => Course::Finished,
                            _ => Course::Otherwise,
                        };
                        known.get_mut(&allocation.0).expect("it was asked for").0 = course;
                    }
                    _ => {}
                }
            }
        }
    }
    assert!(doomed > 1000, "{doomed}");
}
