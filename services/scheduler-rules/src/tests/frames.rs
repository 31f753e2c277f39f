//! A frame's work is bounded, what it leaves for the next is done there, and nothing is put off twice.

use super::*;
use vocab::Event;

/// A node that is full of what may go, and one who may make it go.
fn crowded() -> World {
    let mut w = World::new();
    w.node("n", 1, capacity(8, 64, 0));
    w.submit("a", 8, class(job(1, 1), 0));
    w.settle();
    w.submit("b", 1, class(job(4, 1), 3));
    w
}

/// A frame whose work is used up before it begins.
fn spent(w: &mut World) -> Vec<Event> {
    w.decide_with(|draft| draft.spend(Draft::WORK_MAX))
}

fn is_preempted(event: &Event) -> bool {
    matches!(event, Event::AllocationPreempted(_))
}

#[test]
fn preemption_is_put_off_by_a_full_frame_and_not_by_the_next() {
    let mut w = crowded();
    let first = spent(&mut w);
    assert!(!first.iter().any(is_preempted), "{first:?}");
    assert_eq!(w.state.wake_at(), Some(w.now));
    let second = spent(&mut w);
    assert_eq!(second.iter().filter(|event| is_preempted(event)).count(), 4);
}

#[test]
fn an_explanation_is_put_off_by_a_full_frame_and_not_by_the_next() {
    let mut w = World::new();
    w.node("n", 1, capacity(8, 64, 0));
    w.submit("a", 1, job(9, 1));
    let told = |events: &[Event]| {
        let waits = |event: &&Event| matches!(event, Event::AllocationWaiting(_));
        events.iter().filter(waits).count()
    };
    assert_eq!(told(&spent(&mut w)), 0);
    assert_eq!(w.state.wake_at(), Some(w.now));
    assert_eq!(told(&spent(&mut w)), 1);
    assert_eq!(w.state.wake_at(), None);
}

#[test]
fn some_are_placed_however_long_it_took_to_see_whose_turn_it_is() {
    let mut w = World::new();
    w.node("n", 1, capacity(8, 64, 0));
    for no in 0..10 {
        w.submit(&format!("q{no}"), 1, job(1, 1));
    }
    let placed = w.decide_with(|draft| draft.spend(Draft::WORK_MAX - 1));
    let placed = placed.iter();
    let placed = placed.filter(|event| matches!(event, Event::AllocationPlaced(_)));
    assert_eq!(placed.count(), 8);
}

#[test]
fn frames_of_many_are_bounded_and_all_are_placed() {
    let mut w = World::new();
    for no in 0..100 {
        w.node(&format!("n{no}"), 1, capacity(100, 1000, 0));
    }
    for no in 0..5 {
        w.submit(&format!("q{no}"), 2000, job(1, 1));
    }
    let mut placed = 0;
    let mut frames = 0;
    while placed < 10_000 {
        let events = w.decide();
        assert!(
            !events.is_empty() && events.len() <= 3000,
            "{}",
            events.len()
        );
        placed += events.len();
        frames += 1;
    }
    assert!(
        placed == 10_000 && frames < 6,
        "{placed} in {frames} frames"
    );
}
