//! From the command line to words, on a ledger in memory.

use super::*;
use clap::Parser;
use ledger::{
    Digest,
    memory::{Faults, MemoryBus},
    wire::event_to_proto,
};
use prost::Message;
use schemas::v1;
use std::collections::BTreeMap;
use vocab::{AdminChange, AllocationNo, AllocationSpec, Event, NodeCapacity, Operation, Writer};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    what_if: WhatIf,
}

fn parse(line: &str) -> WhatIf {
    let words = ["what-if"].into_iter().chain(line.split_whitespace());
    match Line::try_parse_from(words) {
        Ok(line) => line.what_if,
        Err(error) => panic!("{line}: {error}"),
    }
}

fn verb(line: &str) -> Verb {
    parse(line).asked.request().unwrap().unwrap().verb
}

fn token(text: &str) -> Token {
    Token::new(text).unwrap()
}

/// Writes frames as leaders do, each a second after the one before.
struct Ledger {
    bus: MemoryBus,
    /// Position, digest, frame number and next event number of each writer's last frame.
    heads: BTreeMap<Writer, (Lsn, Vec<u8>, u64, u64)>,
    last: Lsn,
}

impl Ledger {
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
            events: events.iter().map(event_to_proto).collect(),
            leader: vec![0; 16],
            ..v1::Frame::default()
        };
        let bytes = frame.encode_to_vec();
        let digest = Digest::of(&bytes).0.to_vec();
        self.last = self.bus.append(writer, at, bytes.into()).await.unwrap();
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
    }
}

/// Tenant `a` (event 1) with two requests of 20 cores (2 and 3) that are granted; one node of 32 cores.
async fn cell() -> MemoryBus {
    let mut ledger = Ledger {
        bus: MemoryBus::new(1, Faults::default()),
        heads: BTreeMap::new(),
        last: Lsn(0),
    };
    let tenant = Event::AdminApplied {
        operation: operation("_operator"),
        change: AdminChange::Tenant { tenant: token("a") },
        version: 1,
    };
    let requested = || Event::AllocationRequested {
        operation: operation("a"),
        spec: AllocationSpec::plain(token("jobs"), 20_000, 1 << 30),
    };
    ledger
        .append(Writer::Admission, &[tenant, requested(), requested()])
        .await;
    let node = Event::NodeRegistered {
        node: token("n1"),
        incarnation: 1,
        capacity: NodeCapacity {
            cpu_milli: 32_000,
            memory_bytes: 64 << 30,
            ..NodeCapacity::default()
        },
    };
    ledger.append(Writer::NodeHeartbeat, &[node]).await;
    let granted = [2, 3].map(|no| Event::QuotaReserved {
        allocation: AllocationNo(no),
    });
    ledger.append(Writer::Quota, &granted).await;
    ledger.bus
}

async fn check(line: &str, expected: &[&str]) {
    let bus = cell().await;
    let before = bus.records();
    let found = match parse(line).tried(&bus, CellNo(3)).await {
        Ok(lines) => lines,
        Err(error) => vec![error.to_string()],
    };
    println!("ROW {line}\n{}", found.join("\n"));
    assert_eq!(bus.records(), before);
}

#[tokio::test]
async fn what_would_be_different_is_told_in_words() {
    check("add-nodes 1 --like n1", &["?"]).await;
    check("add-nodes 1 --like n1 --at 2", &["?"]).await;
    check("submit --tenant a --cpu 64 --memory 1GiB --count 2", &["?"]).await;
    check("remove-node n1", &["?"]).await;
    check("policy --placement fgd", &["?"]).await;
}

#[tokio::test]
async fn what_cannot_be_tried_is_refused_with_a_reason() {
    for (line, reason) in [
        ("remove-node n9", "there is no node n9"),
        ("add-nodes 2 --like n9", "there is no node n9"),
        ("cordon n9", "there is no node n9"),
        ("cordon n1 --at 9", "the ledger ends at lsn 3, before 9"),
        ("submit --tenant x --cpu 1 --memory 1GiB", "?"),
        ("queue-set a --weight 0", "?"),
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
    let what_if = parse("add-nodes 1 --like n1 --json");
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

#[test]
fn every_flag_of_a_submit_reaches_the_request() {
    let plain = v1::Submit {
        cpu_milli: 1000,
        memory_bytes: 1 << 30,
        ..v1::Submit::default()
    };
    let begin = "submit --tenant t --cpu 1 --memory 1GiB";
    assert_eq!(verb(begin), Verb::Submit(plain.clone()));
    let found = verb(&format!(
        "{begin} --gpus 1 --gpu-milli 500 --gpu-model T4 --extended fpga=2 --queue q --priority 7 \
         --priority-class c --job-set s --name n --after x --after-success y --retries 3 \
         --never-requeue --run-time 10m --gang g --gang-size 8 --gang-min 6 --gang-uniform rack \
         --label zone=z1 --tolerate any --group w --near w:rack --apart v --spread rack:2 \
         --numa single --count 8"
    ));
    let dependency = |allocation_id: &str, success| v1::DependencyRequest {
        allocation_id: allocation_id.into(),
        success,
    };
    let term = |group: &str, domain: &str| v1::GroupTerm {
        group: group.into(),
        domain: domain.into(),
    };
    let expected = v1::Submit {
        gpu_count: 1,
        gpu_milli: 500,
        gpu_models: vec!["T4".into()],
        extended: vec![v1::ExtendedRequest {
            name: "fpga".into(),
            amount: 2,
        }],
        queue: "q".into(),
        priority: 7,
        priority_class: "c".into(),
        job_set: "s".into(),
        name: "n".into(),
        depends_on: vec![dependency("x", false), dependency("y", true)],
        retries: 3,
        never_requeue: true,
        run_time_ms: 600_000,
        gang: Some(v1::GangRequest {
            name: "g".into(),
            size: 8,
            min: 6,
            uniform_label: "rack".into(),
        }),
        rules: Some(v1::PlacementRules {
            selector: vec![submit::requirement("zone=z1").unwrap()],
            tolerations: vec![v1::Toleration::default()],
            group: "w".into(),
            near: vec![term("w", "rack")],
            apart: vec![term("v", "")],
            spread: vec![v1::Spread {
                domain: "rack".into(),
                skew_max: 2,
            }],
            numa: v1::NumaPolicy::Single.into(),
        }),
        ..plain
    };
    assert_eq!(found, Verb::Submit(expected));
}

#[test]
fn every_flag_of_an_operator_reaches_the_request() {
    let queue = verb(
        "queue-set q --parent p --weight 2 --limit cpu=4 --tenant a --order sjf --placement fgd \
         --expected-version 5",
    );
    let expected = v1::SetQueue {
        queue: "q".into(),
        parent: "p".into(),
        weight_milli: Some(2000),
        limits: vec![v1::LimitRequest {
            resource: "cpu".into(),
            amount: 4000,
        }],
        tenants: vec!["a".into()],
        order: 1,
        placement: Some(4),
        expected_version: Some(5),
    };
    assert_eq!(queue, Verb::SetQueue(expected));
    let class = verb("priority-class c -5 --preemptible --preempts --grace 30s --placement spread");
    let expected = v1::SetPriorityClass {
        priority_class: "c".into(),
        value: -5,
        preemptible: true,
        preempts: true,
        grace_ms: 30_000,
        placement: Some(2),
        expected_version: None,
    };
    assert_eq!(class, Verb::SetPriorityClass(expected));
    let policy = verb(
        "policy --placement fgd --half-life 1s --fair-share-preemption false --protected 500m \
         --preemptions-per-minute 7 --aging 2s --backfill --backoff 3s --backoff-max 4s",
    );
    let expected = v1::SetScheduling {
        placement: 4,
        half_life_ms: 1000,
        fair_share_preemption: Some(false),
        protected_milli: 500,
        preemptions_per_minute: Some(7),
        aging_ms: 2000,
        backfill: true,
        backoff_ms: Some(3000),
        backoff_ms_max: Some(4000),
        expected_version: None,
    };
    assert_eq!(policy, Verb::SetScheduling(expected));
}

#[test]
fn nodes_are_cordoned_and_reserved_as_they_are_for_good() {
    for (line, cordoned) in [
        ("cordon n --expected-version 1", true),
        ("uncordon n", false),
    ] {
        let expected = v1::SetCordon {
            node: "n".into(),
            cordoned,
            expected_version: cordoned.then_some(1),
        };
        assert_eq!(verb(line), Verb::SetCordon(expected));
    }
    let wanted = v1::ReservationRequest {
        queue: "q".into(),
        from_ms: 1000,
        until_ms: 2000,
        nodes: 3,
        selector: vec![submit::requirement("!old").unwrap()],
    };
    let reserve = "reserve r --queue q --from 1970-01-01T00:00:01Z --until 1970-01-01T00:00:02Z \
                   --nodes 3 --label !old";
    for (line, wanted) in [(reserve, Some(wanted)), ("unreserve r", None)] {
        let expected = v1::SetReservation {
            reservation: "r".into(),
            wanted,
            expected_version: None,
        };
        assert_eq!(verb(line), Verb::SetReservation(expected));
    }
}
