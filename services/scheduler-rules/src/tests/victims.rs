//! Tables of preemption: the victims, kept room, and rest.

use super::*;

fn cores(count: u64, value: i32) -> AllocationSpec {
    class(job(count, 1), value)
}

/// Replaces the leader by one that starts from a snapshot.
fn restart(w: &mut World) {
    w.state = again(&w.state);
}

#[test]
fn a_sweep_that_does_not_fit_into_one_frame_ends() {
    let mut w = World::new();
    for node in 0..60 {
        w.node(&format!("n{node}"), 1, capacity(32, 256, 0));
    }
    let mut seed = 8u64;
    for queue in 0..10 {
        for _ in 0..200 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
            w.submit(&format!("q{queue}"), 1, cores(1 + (seed >> 33) % 5, 0));
        }
        w.settle();
    }
    let due = |w: &World| w.state.wake_at().is_some_and(|at| at <= w.now);
    let frames = (0..1000).take_while(|_| {
        w.decide();
        due(&w)
    });
    assert!(frames.count() < 1000, "wake-ups stay due");
}

#[test]
fn the_first_change_after_a_restart_is_seen_by_preemption() {
    let mut w = World::new();
    w.node("n", 1, capacity(8, 64, 0));
    let first = w.submit("a", 7, cores(1, 3));
    w.settle();
    let wide = w.submit("a", 1, cores(2, 3));
    w.settle();
    assert_eq!((w.on_nodes(&first), w.on_nodes(&wide)), (7, 0));
    restart(&mut w);
    w.settle();
    let low = w.submit("a", 1, cores(1, 0));
    w.settle();
    assert_eq!(w.on_nodes(&low), 1);
    let high = w.submit("a", 1, cores(1, 3));
    w.settle();
    assert_eq!((w.on_nodes(&high), w.on_nodes(&low)), (1, 0));
}
