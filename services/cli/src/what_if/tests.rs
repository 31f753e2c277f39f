//! From the command line to words, on a ledger in memory.

mod flags;

use super::*;
use crate::print::Form;
use clap::{CommandFactory, FromArgMatches, Parser};
use ledger::{
    Digest,
    memory::{Faults, MemoryBus},
};
use prost::Message;
use schemas::v1;
use std::collections::BTreeMap;
use vocab::fact::{AllocationRequested, NodeRegistered, QuotaReserved, SchedulingSet, TenantSet};
use vocab::{AdminChange, AllocationNo, AllocationSpec, Event, NodeCapacity, Operation, Writer};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    what_if: WhatIf,
}

fn parse(line: &str) -> WhatIf {
    let words = ["what-if"].into_iter().chain(line.split_whitespace());
    let matches = crate::plain(Line::command()).try_get_matches_from(words);
    match matches.and_then(|matches| Line::from_arg_matches(&matches)) {
        Ok(line) => line.what_if,
        Err(error) => panic!("{line}: {error}"),
    }
}

fn token(text: &str) -> Token {
    Token::new(text).unwrap()
}

fn read(event: &Event) -> v1::Event {
    let bytes = wire::Message::encode_to_vec(event);
    v1::Event::decode(&bytes[..]).unwrap()
}

/// Writes frames as leaders do, each a second after the one before.
struct Ledger {
    bus: MemoryBus,
    /// Position, digest, frame number and next event number of each writer's last frame.
    heads: BTreeMap<Writer, (Lsn, Vec<u8>, u64, u64)>,
    last: Lsn,
}

impl Ledger {
    fn new() -> Self {
        Self {
            bus: MemoryBus::new(1, Faults::default()),
            heads: BTreeMap::new(),
            last: Lsn(0),
        }
    }

    async fn append(&mut self, writer: Writer, events: &[Event]) {
        let first = (Lsn(0), Vec::new(), 0, 1);
        let (at, digest, frame_no, next) = self.heads.get(&writer).cloned().unwrap_or(first);
        let frame = v1::Frame {
            epoch: 1,
            frame_no: frame_no + 1,
            through_lsn: self.last.0,
            now_ms: self.last.0 as i64 * 1000,
            prev_lsn: at.0,
            prev_digest: digest,
            first_event_no: next,
            events: events.iter().map(read).collect(),
            leader: vec![0; 16],
            ..v1::Frame::default()
        };
        let bytes = frame.encode_to_vec();
        let digest = Digest::of(&bytes).0.to_vec();
        self.last = self
            .bus
            .append(writer, at, Lsn(0), bytes.into())
            .await
            .unwrap();
        let next = next + events.len() as u64;
        self.heads
            .insert(writer, (self.last, digest, frame_no + 1, next));
    }
}

fn operation(tenant: &str) -> Operation {
    Operation {
        tenant: token(tenant),
        operation_id: None,
        digest: [0; 16],
        reply_to: None,
        trace: None,
        by: None,
    }
}

/// Tenant `a` (event 1) with two requests of 20 cores (2 and 3) that are granted; one node of 32 cores.
async fn cell() -> MemoryBus {
    let mut ledger = Ledger::new();
    let tenant = AdminChange::Tenant(TenantSet {
        tenant: token("a"),
        closed: false,
        teams: Vec::new(),
        settings: vocab::TenantSettings::default(),
    })
    .applied(operation("_operator"), 1)
    .into();
    let requested = || {
        Event::AllocationRequested(AllocationRequested {
            operation: operation("a"),
            spec: AllocationSpec::plain(token("jobs"), 20_000, 1 << 30),
        })
    };
    ledger
        .append(Writer::Admission, &[tenant, requested(), requested()])
        .await;
    let node = Event::NodeRegistered(NodeRegistered {
        node: token("n1"),
        incarnation: 1,
        boot: 1,
        capacity: NodeCapacity {
            cpu_milli: 32_000,
            memory_bytes: 64 << 30,
            ..NodeCapacity::default()
        },
    });
    ledger.append(Writer::NodeHeartbeat, &[node]).await;
    let granted = [2, 3].map(|no| {
        Event::QuotaReserved(QuotaReserved {
            flags: vocab::QuotaFlags::default(),
            allocation: AllocationNo(no),
            models: None,
        })
    });
    ledger.append(Writer::Quota, &granted).await;
    ledger.bus
}

#[tokio::test]
async fn a_setting_is_changed_where_it_stood() {
    let policy = |protected_milli| -> Event {
        let policy = vocab::SchedulingPolicy {
            protected_milli,
            backfill: true,
            ..vocab::SchedulingPolicy::default()
        };
        let change = AdminChange::Scheduling(SchedulingSet { policy });
        let version = u64::from(protected_milli);
        change.applied(operation("_operator"), version).into()
    };
    let mut ledger = Ledger::new();
    ledger.append(Writer::Admission, &[policy(1)]).await;
    ledger.append(Writer::Admission, &[policy(2)]).await;
    let check = async |at, line, expected: (bool, i64, u64)| {
        let folded = fold::fold(&ledger.bus, CellNo(3), Some(Lsn(at))).await;
        let (standing, asked) = (folded.unwrap().standing().unwrap(), parse(line).asked);
        match asked.request(&standing, 0).unwrap().unwrap().verb {
            Verb::SetScheduling(set) => {
                let version = set.expected_version.unwrap_or(0);
                assert_eq!(
                    (set.backfill, set.protected_milli, version),
                    expected,
                    "{line}"
                );
            }
            other => panic!("{other:?}"),
        }
    };
    check(1, "policy --aging 5m", (true, 1, 1)).await;
    check(2, "policy --aging 5m", (true, 2, 2)).await;
    check(2, "policy --protected 9m", (true, 9, 2)).await;
    check(2, "policy --replace", (false, 0, 0)).await;
}

fn frames(bus: &MemoryBus) -> Vec<(Writer, Vec<u8>)> {
    let records = bus.records().into_iter();
    records
        .map(|record| (record.writer, record.frame.to_vec()))
        .collect()
}

async fn check(line: &str, expected: &[&str]) {
    let bus = cell().await;
    let before = frames(&bus);
    let found = match parse(line).tried(&bus, CellNo(3)).await {
        Ok(page) => page.written(Form::Table).unwrap(),
        Err(error) => format!("{error}\n"),
    };
    let found: Vec<_> = found.lines().collect();
    assert_eq!(found, expected, "{line}");
    assert_eq!(frames(&bus), before);
}

#[tokio::test]
async fn what_would_be_different_is_told_in_words() {
    let head = "as of lsn 3, 1970-01-01T00:00:02Z; nothing was changed";
    let expected = [
        head,
        "       1 placed",
        "nodes in use: 1 of 1 ready -> 2 of 2 ready",
        "",
        "placed:",
        "  00000000-0000-0003-0000-000000000003 in a: waits: no room now -> on new-1",
        "",
        "queues, share and fair share:",
        "  a                      62.50 % ->   62.50 %    100.00 % ->   62.50 %",
    ];
    check("add-nodes 1 --like n1", &expected).await;
    let expected = [
        "as of lsn 2, 1970-01-01T00:00:01Z; nothing was changed",
        "nodes in use: 0 of 1 ready -> 0 of 2 ready",
    ];
    check("add-nodes 1 --like n1 --at 2", &expected).await;
    let expected = [
        head,
        "       1 no longer placed",
        "       1 waiting for another reason",
        "nodes in use: 1 of 1 ready -> 0 of 0 ready",
        "",
        "no longer placed:",
        "  00000000-0000-0003-0000-000000000002 in a: on n1 -> waits: no node ready",
        "",
        "waiting for another reason:",
        "  00000000-0000-0003-0000-000000000003 in a: waits: no room now -> waits: no node ready",
        "",
        "queues, share and fair share:",
        "  a                      62.50 % ->    0.00 %    100.00 % ->    0.00 %",
    ];
    check("remove-node n1", &expected).await;
    check("policy --placement fgd", &[head, "no differences"]).await;
}

#[tokio::test]
async fn of_many_some_are_shown() {
    let row = |number| {
        format!("  request {number}: waits: larger than any node (nodes kept off: 1 by capacity)")
    };
    let mut expected = vec![
        "as of lsn 3, 1970-01-01T00:00:02Z; nothing was changed".to_owned(),
        "      22 extra requests".to_owned(),
        String::new(),
        "extra requests:".to_owned(),
    ];
    expected.extend((1..=20).map(row));
    expected.push("  and 2 more".to_owned());
    let expected: Vec<_> = expected.iter().map(String::as_str).collect();
    let line = "submit --tenant a --cpu 64 --memory 1GiB --count 22";
    check(line, &expected).await;
}

#[tokio::test]
async fn what_cannot_be_tried_is_refused_with_a_reason() {
    for (line, reason) in [
        ("remove-node n9", "there is no node n9"),
        ("add-nodes 2 --like n9", "there is no node n9"),
        ("cordon n9", "there is no node n9"),
        ("cordon n1 --at 9", "the ledger ends at lsn 3, before 9"),
        (
            "submit --tenant x --cpu 1 --memory 1GiB",
            "refused: tenant unknown: tenant: no operator has set this tenant; have the tenant set: apportion tenant NAME",
        ),
        (
            "queue-set a --weight 0",
            "refused: quantity zero: weight_milli: it is 0 or missing; name an amount above 0",
        ),
        (
            "remove-node a.b",
            "a name is 1 to 64 characters from A-Z a-z 0-9 _ -",
        ),
    ] {
        check(line, &[reason]).await;
    }
}

#[tokio::test]
async fn programs_get_the_same() {
    let bus = cell().await;
    let what_if = parse("add-nodes 1 --like n1 -o json");
    let folded = fold::fold(&bus, CellNo(3), None).await.unwrap();
    let changes = what_if.asked.changes(&folded).unwrap();
    let found = what_if::run(folded.state(), folded.now, &changes).unwrap();
    let json = json::differences(&found, CellNo(3), &folded);
    assert_eq!(json["as_of_lsn"], 3);
    let one = &json["allocations"][0];
    assert_eq!(one["kind"], "placed");
    assert_eq!(one["before"]["reason"], "no_room_now");
    assert_eq!(one["after"]["node"], "new-1");
    assert_eq!(json["nodes_after"]["used"], 2);
}
