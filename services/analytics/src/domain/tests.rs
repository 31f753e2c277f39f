//! Events in, rows out, as tables.

use super::{Amounts, Change, Fact, Usage};
use ledger::Projection;
use vocab::fact::{
    AllocationEnded, AllocationPlaced, AllocationRequested, AllocationRequeued, AllocationStarted,
    NodeLost, NodeReady, NodeRegistered, QuotaDenied, RateSet,
};
use vocab::{
    AdminChange, AllocationNo, AllocationSpec, At, EndCause, Event, EventNo, GpuRequest, Lsn,
    Millis, NodeCapacity, Operation, PlacementPolicy, Refusal, ResourceKey, Rule, Token, Writer,
};

fn token(text: &str) -> Token {
    Token::new(text).expect("a token")
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}

fn moment(text: &str) -> Millis {
    Millis(text.parse().expect("a moment"))
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

/// `4000/8/500` is 4000 millicores, 8 bytes and 500 thousandths of a GPU.
fn amounts(text: &str) -> [u64; 3] {
    let parts: Vec<u64> = text.split('/').map(number).collect();
    parts.try_into().expect("three amounts")
}

/// `n1.2` is the second incarnation of the node n1.
fn node(text: &str) -> (Token, u64) {
    let (name, incarnation) = text.split_once('.').expect("node.incarnation");
    (token(name), number(incarnation))
}

/// An event, from its verb and its words; the allocation's number is the event's number when it is requested.
fn event(words: &[&str]) -> Event {
    let allocation = || AllocationNo(number(words[1]));
    match words[0] {
        "request" => {
            let [cpu_milli, memory_bytes, gpu_milli] = amounts(words[3]);
            let gpu = (gpu_milli > 0).then(|| GpuRequest {
                count: 1,
                milli: gpu_milli as u16,
                models: vec![],
            });
            Event::AllocationRequested(AllocationRequested {
                operation: operation(words[2]),
                spec: AllocationSpec {
                    gpu,
                    ..AllocationSpec::plain(token("jobs"), cpu_milli, memory_bytes)
                },
            })
        }
        "rate" => AdminChange::Rate(RateSet {
            resource: ResourceKey::parse(words[1]).expect("a resource"),
            micro_per_unit_hour: number(words[2]),
            effective_from: moment(words[3]),
        })
        .applied(operation("_operator"), 7)
        .into(),
        "deny" => Event::QuotaDenied(QuotaDenied {
            allocation: allocation(),
            refusal: Refusal::new(Rule::QuotaExceeded, "gpu"),
        }),
        "register" => {
            let (node, incarnation) = node(words[1]);
            let [cpu_milli, memory_bytes, gpu_milli] = amounts(words[2]);
            let capacity = NodeCapacity {
                cpu_milli,
                memory_bytes,
                gpus: (gpu_milli / 1000) as u16,
                gpu_model: words.get(3).map(|model| token(model)),
                ..NodeCapacity::default()
            };
            Event::NodeRegistered(NodeRegistered {
                node,
                incarnation,
                boot: incarnation,
                capacity,
            })
        }
        "ready" => {
            let (node, incarnation) = node(words[1]);
            Event::NodeReady(NodeReady { node, incarnation })
        }
        "lost" => {
            let (node, incarnation) = node(words[1]);
            Event::NodeLost(NodeLost {
                node,
                incarnation,
                last_seen: Millis(0),
            })
        }
        "place" => {
            let (node, incarnation) = node(words[2]);
            Event::AllocationPlaced(AllocationPlaced {
                allocation: allocation(),
                node,
                incarnation,
                gpus: Default::default(),
                zones: 0,
                policy: PlacementPolicy::Default,
                candidates: Default::default(),
            })
        }
        "start" => Event::AllocationStarted(AllocationStarted {
            allocation: allocation(),
            at: moment(words[2]),
        }),
        "requeue" => Event::AllocationRequeued(AllocationRequeued {
            allocation: allocation(),
            cause: EndCause::NodeLost,
            at: moment(words[2]),
            not_before: Millis(0),
        }),
        "end" => Event::AllocationEnded(AllocationEnded {
            allocation: allocation(),
            cause: EndCause::Finished,
            at: moment(words[2]),
        }),
        other => panic!("no verb {other}"),
    }
}

fn slashed(amounts: &Amounts) -> String {
    let Amounts {
        cpu_milli,
        memory_bytes,
        gpu_milli,
    } = amounts;
    format!("{cpu_milli}/{memory_bytes}/{gpu_milli}")
}

fn line(change: &Change) -> String {
    match &change.fact {
        Fact::Interval(i) => format!(
            "bill {} {} {}.{} {} {} {} [{},{}) {} {}",
            i.allocation.0,
            i.of.tenant,
            i.moved.node,
            i.moved.incarnation,
            i.moved.gpu_model.as_ref().map_or("-", Token::as_str),
            slashed(&i.moved.amounts),
            i.placed_at.0,
            i.started_at.0,
            i.ended_at.0,
            i.released_at.0,
            i.cause.name()
        ),
        Fact::Transfer(t) => format!(
            "{}.{} @{} {}>{} {}",
            t.moved.node,
            t.moved.incarnation,
            t.at.0,
            t.from.name(),
            t.to.name(),
            slashed(&t.moved.amounts)
        ),
        Fact::Capacity(c) => {
            format!(
                "{}.{} @{} has {}",
                c.node,
                c.incarnation,
                c.at.0,
                slashed(&c.amounts)
            )
        }
        Fact::Rate(r) => format!(
            "rate {} {} {} v{}",
            r.resource, r.micro_per_unit_hour, r.effective_from.0, r.version
        ),
    }
}

/// Each line is `clock verb words…`. Gives the rows, or what was illegal.
fn fold(events: &[&str]) -> Result<Vec<String>, String> {
    let mut usage = Usage::default();
    let mut changes = Vec::new();
    for (index, text) in events.iter().enumerate() {
        let words: Vec<&str> = text.split_whitespace().collect();
        let event = event(&words[1..]);
        let no = match (event.writer(), words[1]) {
            (Writer::Admission, "request") => number(words[2]),
            _ => 99,
        };
        let at = At {
            lsn: Lsn(index as u64 + 1),
            index: 0,
            no: EventNo(no),
            now: moment(words[0]),
        };
        usage
            .project_event(&at, &event, &mut changes)
            .map_err(|illegal| illegal.state.to_owned())?;
    }
    Ok(changes.iter().map(line).collect())
}

#[track_caller]
fn check(events: &[&str], rows: &[&str]) {
    assert_eq!(fold(events).expect("legal"), rows);
}

#[track_caller]
fn check_illegal(events: &[&str], state: &str) {
    assert_eq!(fold(events), Err(state.to_owned()));
}

const NODE: &str = "0 register n1.1 8000/64/2000 V100";
const ASK: &str = "1 request 5 t1 3000/8/500";

#[test]
fn a_run_is_reserved_allocated_reserved_and_billed() {
    check(
        &[NODE, ASK, "10 place 5 n1.1", "20 start 5 15", "40 end 5 35"],
        &[
            "n1.1 @0 outside>idle 8000/64/2000",
            "n1.1 @0 has 8000/64/2000",
            "n1.1 @10 idle>reserved 3000/8/500",
            "n1.1 @15 reserved>allocated 3000/8/500",
            "n1.1 @35 allocated>reserved 3000/8/500",
            "bill 5 t1 n1.1 V100 3000/8/500 10 [15,35) 40 finished",
            "n1.1 @40 reserved>idle 3000/8/500",
        ],
    );
}

#[test]
fn every_run_of_an_allocation_is_billed() {
    let rows = fold(&[
        NODE,
        ASK,
        "10 place 5 n1.1",
        "20 start 5 15",
        "40 requeue 5 35",
        "50 place 5 n1.1",
        "60 start 5 55",
        "70 end 5 65",
    ])
    .expect("legal");
    assert_eq!(
        rows[5..],
        [
            "bill 5 t1 n1.1 V100 3000/8/500 10 [15,35) 40 node_lost",
            "n1.1 @40 reserved>idle 3000/8/500",
            "n1.1 @50 idle>reserved 3000/8/500",
            "n1.1 @55 reserved>allocated 3000/8/500",
            "n1.1 @65 allocated>reserved 3000/8/500",
            "bill 5 t1 n1.1 V100 3000/8/500 50 [55,65) 70 finished",
            "n1.1 @70 reserved>idle 3000/8/500",
        ]
    );
}

#[test]
fn what_is_requeued_ends_as_any_run_does() {
    // The same moments and the same transfers as with an end, whether it started or not and whatever the agent's clock.
    for run in [
        &["10 place 5 n1.1"][..],
        &["10 place 5 n1.1", "20 start 5 3"],
        &["10 place 5 n1.1", "20 start 5 20"],
    ] {
        for at in [5, 20, 30, 99] {
            let with = |end: &str| {
                let end = format!("40 {end} 5 {at}");
                let rows = fold(&[&[NODE, ASK], run, &[end.as_str()]].concat());
                let rows = rows.expect("legal").join(", ");
                rows.replace("node_lost", "finished")
            };
            assert_eq!(with("requeue"), with("end"), "{run:?} {at}");
        }
    }
}

#[test]
fn what_never_started_or_took_no_time_is_not_billed() {
    let bills = |events: &[&str]| {
        let rows = fold(events).expect("legal");
        rows.iter().filter(|row| row.starts_with("bill")).count()
    };
    assert_eq!(bills(&[NODE, ASK, "10 end 5 9"]), 0);
    assert_eq!(bills(&[NODE, ASK, "10 place 5 n1.1", "20 end 5 20"]), 0);
    let short = ["10 place 5 n1.1", "20 start 5 15", "20 end 5 15"];
    assert_eq!(bills(&[&[NODE, ASK], &short[..]].concat()), 0);
    let running = ["10 place 5 n1.1", "20 start 5 15"];
    assert_eq!(bills(&[&[NODE, ASK], &running[..]].concat()), 0);
}

#[test]
fn moments_of_other_clocks_are_moved_inside() {
    let bill = |events: &[&str], expected: &str| {
        let rows = fold(&[&[NODE, ASK], events].concat()).expect("legal");
        let found = rows.iter().find(|row| row.starts_with("bill"));
        assert_eq!(
            found.map(String::as_str),
            Some(format!("bill 5 t1 n1.1 V100 3000/8/500 10 {expected} 40 finished").as_str())
        );
    };
    bill(
        &["10 place 5 n1.1", "20 start 5 3", "40 end 5 35"],
        "[10,35)",
    );
    bill(
        &["10 place 5 n1.1", "20 start 5 99", "40 end 5 35"],
        "[20,35)",
    );
    bill(
        &["10 place 5 n1.1", "20 start 5 15", "40 end 5 41"],
        "[15,40)",
    );
}

#[test]
fn a_node_fact_stands_between_the_schedulers_clocks() {
    // The scheduler is at 100 when the node comes at 90 and goes at 300; its next word is at 200.
    let rows = fold(&[
        "0 register n0.1 9000/9/0",
        ASK,
        "100 place 5 n0.1",
        "90 register n1.1 1/0/0",
        "150 lost n1.1",
        "300 ready n1.1",
        "200 start 5 120",
    ]);
    let rows = rows.expect("legal");
    let of_n1: Vec<&String> = rows.iter().filter(|row| row.starts_with("n1")).collect();
    assert_eq!(
        of_n1,
        [
            "n1.1 @100 outside>idle 1/0/0",
            "n1.1 @100 has 1/0/0",
            "n1.1 @150 idle>unavailable 1/0/0",
            "n1.1 @200 unavailable>idle 1/0/0",
        ]
    );
}

#[test]
fn what_is_held_of_a_lost_node_is_unavailable_only_after_its_release() {
    let rows = fold(&[
        NODE,
        ASK,
        "10 place 5 n1.1",
        "20 start 5 15",
        "25 lost n1.1",
        "40 end 5 30",
    ])
    .expect("legal");
    assert_eq!(
        rows[4..],
        [
            "n1.1 @25 idle>unavailable 5000/56/1500",
            "n1.1 @30 allocated>reserved 3000/8/500",
            "bill 5 t1 n1.1 V100 3000/8/500 10 [15,30) 40 finished",
            "n1.1 @40 reserved>unavailable 3000/8/500",
        ]
    );
}

#[test]
fn a_replaced_incarnation_keeps_only_what_is_held_of_it() {
    let rows = fold(&[
        NODE,
        ASK,
        "10 place 5 n1.1",
        "25 lost n1.1",
        "30 register n1.2 1000/1/0",
        "40 end 5 30",
        // The scheduler may have placed before it knew of the new incarnation.
        "41 request 6 t2 100/1/0",
        "42 place 6 n1.1",
        "43 end 6 43",
    ])
    .expect("legal");
    assert_eq!(
        rows[4..],
        [
            "n1.1 @30 unavailable>outside 5000/56/1500",
            "n1.1 @30 has 3000/8/500",
            "n1.2 @30 outside>idle 1000/1/0",
            "n1.2 @30 has 1000/1/0",
            "n1.1 @40 reserved>outside 3000/8/500",
            "n1.1 @40 has 0/0/0",
            "n1.1 @42 outside>reserved 100/1/0",
            "n1.1 @42 has 100/1/0",
            "n1.1 @43 reserved>outside 100/1/0",
            "n1.1 @43 has 0/0/0",
        ]
    );
}

#[test]
fn a_rate_is_a_row() {
    check(
        &["5 rate gpu:V100 2500000 3600000"],
        &["rate gpu:V100 2500000 3600000 v7"],
    );
}

#[test]
fn a_denied_allocation_may_be_ended_in_either_order() {
    check(&[ASK, "2 deny 5", "3 end 5 3"], &[]);
    check(&[ASK, "2 end 5 2", "3 deny 5"], &[]);
}

#[test]
fn a_node_that_was_suspected_and_is_ready_again_was_there_all_the_time() {
    check(
        &[NODE, "1 ready n1.1", "9 end 5 9"],
        &[
            "n1.1 @0 outside>idle 8000/64/2000",
            "n1.1 @0 has 8000/64/2000",
        ],
    );
}

#[test]
fn facts_that_do_not_fit_are_refused() {
    check_illegal(&[NODE, "1 place 5 n1.1"], "not waiting for a place");
    check_illegal(&[ASK, "2 place 5 n1.1"], "no such node");
    check_illegal(&[NODE, ASK, "2 place 5 n1.2"], "no such incarnation");
    check_illegal(
        &[NODE, ASK, "2 start 5 2"],
        "not placed, or started already",
    );
    let placed = [NODE, ASK, "2 place 5 n1.1"];
    let again = [&placed[..], &["3 place 5 n1.1"]].concat();
    check_illegal(&again, "not waiting for a place");
    let twice = [&placed[..], &["3 start 5 3", "4 start 5 4"]].concat();
    check_illegal(&twice, "not placed, or started already");
    check_illegal(&[NODE, "2 requeue 5 2"], "not on a node");
    check_illegal(&[NODE, ASK, "2 requeue 5 2"], "not on a node");
    let requeued = [&placed[..], &["3 requeue 5 3"]].concat();
    let again = [&requeued[..], &["4 requeue 5 4"]].concat();
    check_illegal(&again, "not on a node");
    let started = [&requeued[..], &["4 start 5 4"]].concat();
    check_illegal(&started, "not placed, or started already");
    check_illegal(&[NODE, NODE, ASK, "9 end 5 9"], "not a newer incarnation");
    let other_way = "not the other way in this incarnation";
    check_illegal(&[NODE, "1 lost n1.2", "9 end 5 9"], other_way);
    check_illegal(
        &[NODE, "1 lost n1.1", "2 lost n1.1", "9 end 5 9"],
        other_way,
    );
}
