//! What agents name as conditions of their nodes, and what of that goes on the ledger. A lease is 40 ms, so a node's conditions
//! change every 10 ms at the most.

use super::*;

fn table(level: Level) -> Table {
    let mut t = Table::new();
    t.lease_ms = 40;
    t.level = level;
    t.check(0, register(1), &["n registered 1"]);
    t
}

/// `DiskPressure=full,GpuXid`: names with reasons or without.
fn beat(boot: u64, named: &str) -> Option<Command> {
    let named = named.split(',').filter(|named| !named.is_empty());
    let mut said = heartbeat(boot, 0);
    if let Some(Command::Heartbeat { conditions, .. }) = &mut said {
        conditions.extend(named.map(|named| match named.split_once('=') {
            Some((name, reason)) => (token(name), Some(token(reason))),
            None => (token(named), None),
        }));
    }
    said
}

#[test]
fn a_condition_is_recorded_when_it_changes() {
    let mut t = table(Level::KNOWN);
    t.check(1, beat(1, ""), &[]);
    let began = ["n has DiskPressure by full", "n has GpuXid"];
    t.check(2, beat(1, "DiskPressure=full,GpuXid"), &began);
    t.check(20, beat(1, "DiskPressure=full,GpuXid"), &[]);
    let changed = ["n has no GpuXid", "n has DiskPressure by fuller"];
    t.check(21, beat(1, "DiskPressure=fuller"), &changed);
    t.check(40, beat(1, ""), &["n has no DiskPressure"]);
}

#[test]
fn an_agent_that_cannot_make_up_its_mind_fills_no_ledger() {
    let mut t = table(Level::KNOWN);
    t.check(5, beat(1, "A"), &["n has A"]);
    t.check(6, beat(1, ""), &[]);
    t.check(14, beat(1, "B"), &[]);
    t.check(15, beat(1, "B"), &["n has no A", "n has B"]);
}

#[test]
fn a_condition_is_of_the_node_and_of_no_life_of_its_agent() {
    let mut t = table(Level::KNOWN);
    t.check(1, beat(1, "A"), &["n has A"]);
    t.check(20, register(2), &["n lost, seen 20", "n registered 2"]);
    t.check(21, beat(1, "B"), &[]);
    t.state = postcard_round_trip(&t.state);
    t.check(22, beat(2, "A"), &[]);
    t.check(23, beat(2, ""), &["n has no A"]);
    t.check(90, None, &["n lost, seen 23"]);
    t.check(91, beat(2, "A"), &[]);
}

#[test]
fn nothing_holds_of_a_node_that_is_forgotten() {
    let mut t = table(Level::KNOWN);
    t.check(1, beat(1, "A,B"), &["n has A", "n has B"]);
    t.state.forget_soon(&token("n"));
    t.check(5, beat(1, ""), &[]);
    let over = ["n lost, seen 1", "n has no A", "n has no B", "n forgotten"];
    t.check(60, None, &over);
}

#[test]
fn a_cell_of_a_level_before_records_none() {
    let mut t = table(Level(5));
    t.check(1, beat(1, "A"), &[]);
    t.level = Level::NODE_RULES;
    t.check(2, beat(1, "A"), &["n has A"]);
}

#[test]
fn a_snapshot_from_before_has_none() {
    let mut t = table(Level::KNOWN);
    let mut before = postcard::to_allocvec(&t.state).unwrap();
    assert_eq!(before.pop(), Some(0));
    t.state = Nodes::upgrade(8, &before).unwrap();
    t.check(1, beat(1, "A"), &["n has A"]);
}
