//! What a node has may change while things run there.

use super::*;

fn resized(boot: u64, change: u64, turn: impl FnOnce(&mut NodeCapacity)) -> Option<Command> {
    let mut capacity = capacity();
    turn(&mut capacity);
    Some(Command::Register {
        node: token("n"),
        boot,
        capacity: Box::new(capacity),
        change,
    })
}

fn cores(cpu_milli: u64) -> impl FnOnce(&mut NodeCapacity) {
    move |capacity| capacity.cpu_milli = cpu_milli
}

#[test]
fn a_change_is_recorded_once_and_what_runs_stays() {
    let mut t = Table::new();
    t.check(0, register(1), &["n registered 1"]);
    t.place(9, "n", 1);
    t.check(1, report(1, 9, RunState::Started, 1), &["9 Started at 1"]);
    t.check(2, resized(1, 1, cores(2000)), &["n has 2000 by 1"]);
    t.check(3, resized(1, 1, cores(2000)), &[]);
    // What comes late, or again, is no news.
    t.check(4, register(1), &[]);
    t.check(5, resized(1, 3, cores(8000)), &["n has 8000 by 3"]);
    t.check(6, resized(1, 2, cores(1000)), &[]);
    t.state = postcard_round_trip(&t.state);
    t.check(7, resized(1, 3, cores(1000)), &[]);
    t.check(8, report(1, 9, RunState::Finished, 8), &["9 Finished at 8"]);
    assert_eq!(t.effects(), Vec::<String>::new());
    // A new life counts anew.
    let began = ["n lost, seen 9", "n registered 2"];
    t.check(9, resized(2, 0, cores(1000)), &began);
    t.check(9, resized(2, 1, cores(500)), &["n has 500 by 1"]);
}

#[test]
fn only_amounts_change_in_a_life() {
    let refused = |expected: &str, turn: fn(&mut NodeCapacity)| {
        let mut t = Table::new();
        let mut first = resized(1, 0, |it| it.extended = vec![(token("fpga"), 2)]);
        if expected.is_empty() {
            first = register(1);
        }
        t.check(0, first, &["n registered 1"]);
        t.check(1, resized(1, 1, turn), &[]);
        assert_eq!(t.effects(), [format!("n: capacity stays: {expected}")]);
        t.check(2, heartbeat(1, 0), &[]);
    };
    refused("extended", |_| {});
    refused("labels", |it| {
        it.labels.clear();
        it.extended = vec![(token("fpga"), 2)];
    });
    refused("gpus", |it| it.gpus = 1);
    refused("taints", |it| {
        it.taints.push(vocab::Taint {
            key: token("k"),
            value: None,
            effect: Default::default(),
        });
    });
    refused("topology", |it| {
        it.topology = Some(Box::new(vocab::Topology {
            zones: vec![vocab::Zone {
                cpu_milli: 4000,
                memory_bytes: 1 << 30,
                gpus: 0,
            }],
            distances: vec![10],
            links: vec![],
        }));
    });
}

#[test]
fn no_change_goes_beyond_what_was_approved_or_before_its_level() {
    let mut t = Table::new();
    t.level = Level(6);
    t.check(0, register(1), &["n registered 1"]);
    t.check(1, resized(1, 1, cores(2000)), &[]);
    assert_eq!(t.effects(), ["n: not supported: change"]);
    t.level = Level::KNOWN;
    t.check(2, resized(1, 2, cores(2000)), &["n has 2000 by 2"]);
    t.check(3, resized(1, 3, |it| it.memory_bytes = u64::MAX), &[]);
    let most = vocab::AllocationSpec::MEMORY_BYTES_MAX;
    let actual = u64::MAX;
    let refused = format!("n: quantity too large: memory_bytes (limit {most}, actual {actual})");
    assert_eq!(t.effects(), [refused]);
    // Once it is lost, nothing of that life counts.
    t.check(30, None, &["n lost, seen 2"]);
    t.check(31, resized(1, 4, cores(3000)), &[]);
}
