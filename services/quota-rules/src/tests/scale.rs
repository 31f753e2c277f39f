//! A long queue whose head is blocked costs nothing.

use super::{World, words::event};
use vocab::Millis;

fn say(world: &mut World, step: &str) {
    let (no, event) = event(step, Millis(0));
    world.others += 1;
    let no = if no > 0 { no } else { world.others };
    world.observe(no, &event);
}

#[test]
fn a_hundred_thousand_wait_and_nobody_looks_at_them() {
    let mut world = World::new();
    for step in [
        "tenant a wait",
        "limit a cpu 1000000",
        "limit a/x cpu 10",
        "limit a storage 5",
    ] {
        say(&mut world, step);
    }
    say(&mut world, "ask 1 a/x cpu=9");
    for no in 2..=100_001 {
        say(&mut world, &format!("ask {no} a/x/n{} cpu=9", no % 50));
    }
    assert_eq!(world.decide().len(), 100_001);
    assert_eq!(world.state.waiting(), 100_000);
    // Others come and go: a hundred thousand looks at a hundred thousand would take hours.
    for no in 200_000..250_000 {
        say(&mut world, &format!("ask {no} a/x cpu=1 prio=1"));
        assert_eq!(world.decide().len(), 1);
        say(&mut world, &format!("end {no}"));
        assert_eq!(world.decide().len(), 1);
    }
    say(&mut world, "end 1");
    assert_eq!(world.decide().len(), 2);
}
