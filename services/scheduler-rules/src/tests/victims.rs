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
