//! A guard against getting slower that measures no time: how often the path of a task allocates, how much, and how long
//! its record is. The same tasks give the same figures on every machine, so `expected.txt` holds them, and a change that
//! makes one worse fails until somebody writes it down: `APPORTION_WRITE=1 cargo test -p loadtest --test it guard`.

mod cell;
mod room;
mod table;
mod tasks;

use cell::Cell;
use proof::simulate::Role;
use std::{collections::BTreeMap, env, fs, path::Path};
use table::{Count, PerTask, Table};
use tasks::{PER_ROUND, ROUNDS};
use vocab::Event;

const WRITE: &str = "APPORTION_WRITE";

#[test]
fn a_task_costs_what_is_written_down() {
    let found = measure();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/guard/expected.txt");
    if env::var_os(WRITE).is_some_and(|value| value == "1") {
        fs::write(&path, found.render()).unwrap();
    }
    let expected = PerTask::parse(&fs::read_to_string(&path).unwrap());
    let differences = found.differences(&expected);
    assert!(
        differences.is_empty(),
        "what a task costs is not what tests/it/guard/expected.txt says:\n{}\n`{WRITE}=1 cargo test -p loadtest --test it \
         guard` writes it",
        differences.join("\n")
    );
}

fn measure() -> PerTask {
    let mut cell = Cell::furnished();
    // Not counted: tables and buffers grow to their usual size.
    round(&mut cell, 0, &mut Table::default());
    let mut table = Table::default();
    let warm = cell.frames().len();
    for no in 1..=ROUNDS {
        round(&mut cell, no, &mut table);
    }
    let mut done: BTreeMap<&str, usize> = BTreeMap::new();
    for (writer, bytes, events) in &cell.frames()[warm..] {
        table.add(
            &format!("ledger/{}", writer.name()),
            Count {
                times: events.len() as u64,
                bytes: *bytes as u64,
            },
        );
        for event in events {
            *done.entry(step(event)).or_default() += 1;
        }
    }
    let tasks = ROUNDS * PER_ROUND;
    for step in [
        "requested",
        "reserved",
        "placed",
        "started",
        "ended",
        "released",
    ] {
        assert_eq!(done.get(step), Some(&tasks), "{step} of {tasks}: {done:?}");
    }
    table.per(tasks as u64)
}

/// Some tasks from the inbox to their end, each process by itself.
fn round(cell: &mut Cell, no: usize, table: &mut Table) {
    for message in tasks::submits(no) {
        table.add(
            "admission/inbox",
            cell::count(|| admission::commands(&message, &mut Vec::new())),
        );
        cell.arrives(message);
    }
    table.add("admission/requested", cell.settle(Role::Admission));
    table.add("quota/reserved", cell.settle(Role::Quota));
    table.add("scheduler/placed", cell.settle(Role::Scheduler));
    table.add("node-heartbeat/assigned", cell.settle(Role::Nodes));

    let (runs, messages) = cell.assigned();
    table.add("node-heartbeat/messages", messages);
    cell.pass_ms(10);
    for run in &runs {
        cell.reports(run.started());
    }
    table.add("node-heartbeat/started", cell.settle(Role::Nodes));
    table.add("scheduler/started", cell.settle(Role::Scheduler));
    table.add("quota/used", cell.settle(Role::Quota));

    cell.pass_ms(60_000);
    for run in &runs {
        cell.reports(run.finished());
    }
    table.add("node-heartbeat/ended", cell.settle(Role::Nodes));
    table.add("scheduler/ended", cell.settle(Role::Scheduler));
    table.add("quota/released", cell.settle(Role::Quota));
    table.add("node-heartbeat/forgotten", cell.settle(Role::Nodes));
    table.add("admission/ended", cell.settle(Role::Admission));
    for (name, count) in cell.project() {
        table.add(&format!("projection/{name}"), count);
    }
}

/// What a task has to go through; anything else is none of this test's business.
fn step(event: &Event) -> &'static str {
    match event {
        Event::AllocationRequested(_) => "requested",
        Event::QuotaReserved(_) => "reserved",
        Event::AllocationPlaced(_) => "placed",
        Event::AllocationStarted(_) => "started",
        Event::AllocationEnded(_) => "ended",
        Event::QuotaReleased(_) => "released",
        _ => "else",
    }
}
