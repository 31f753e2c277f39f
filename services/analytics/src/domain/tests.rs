//! Events in, rows out, as tables.

use super::{Amounts, Change, Fact, Line, Usage, Used};
use ledger::{Projection, Snapshot};
use proptest::{collection::vec, prelude::*};
use vocab::fact::{
    AllocationEnded, AllocationPlaced, AllocationPreempted, AllocationRequested,
    AllocationRequeued, AllocationStarted, AllocationWaiting, BudgetSet, CordonSet,
    NodeCapacityChanged, NodeConditionChanged, NodeForgotten, NodeLost, NodeReady, NodeRegistered,
    NodeSuspected, PeriodClosed, QuotaDenied, QuotaWaiting, RateSet,
};
use vocab::{
    Account, AdminChange, AllocationNo, AllocationSpec, At, Budget, BudgetOf, EndCause, Event,
    EventNo, GpuRequest, HOUR_MS, Lsn, Millis, Month, NodeCapacity, Operation, Period,
    PlacementPolicy, PreemptionCause, Refusal, ResourceKey, Rule, Token, WaitingReason, Writer,
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
        by: None,
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

/// Returns a rule by which quota lets an allocation wait.
fn rule(name: &str) -> Rule {
    let rules = [
        Rule::QuotaExceeded,
        Rule::IncompleteGang,
        Rule::DependencyPending,
    ];
    let mut named = rules.into_iter().filter(|rule| rule.name() == name);
    named.next().expect("a rule of quota")
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
            micro_per_unit_hour: words[2].parse().unwrap_or(0),
            effective_from: moment(words[3]),
            scope: vocab::RateScope::default(),
            withdrawn: words[2] == "none",
        })
        .applied(operation("_operator"), 7)
        .into(),
        "budget" => AdminChange::Budget(BudgetSet {
            account: Account::parse(words[1]).expect("an account"),
            of: BudgetOf::parse(words[2]).expect("what it is of"),
            budget: words.get(3).map(|amount| Budget {
                amount: number(amount),
                period: Period::parse(words[4]).expect("a period"),
            }),
        })
        .applied(operation("_operator"), 4)
        .into(),
        "close" => AdminChange::Period(PeriodClosed {
            month: Month(number(words[1]) as u32),
        })
        .applied(operation("_operator"), 3)
        .into(),
        "cordon" => AdminChange::Cordon(CordonSet {
            node: token(words[1]),
            cordoned: words[2] == "on",
            drain: false,
            at_once: 0,
        })
        .applied(operation("_operator"), 1)
        .into(),
        "wait" => Event::AllocationWaiting(AllocationWaiting {
            allocation: allocation(),
            reason: WaitingReason::NoRoomNow,
            pending_group: None,
        }),
        "quota" => Event::QuotaWaiting(QuotaWaiting {
            allocation: allocation(),
            refusal: Refusal::new(rule(words[2]), "t1"),
        }),
        "preempt" => Event::AllocationPreempted(AllocationPreempted {
            allocation: allocation(),
            cause: PreemptionCause::Priority,
            by: words.get(2).map(|by| AllocationNo(number(by))),
            grace_until: Millis(0),
        }),
        "deny" => Event::QuotaDenied(QuotaDenied {
            allocation: allocation(),
            refusal: Refusal::over(Rule::QuotaExceeded, "t1 gpu", 400, 500),
        }),
        "resize" => {
            let (node, incarnation) = node(words[1]);
            let [cpu_milli, memory_bytes, _] = amounts(words[2]);
            Event::NodeCapacityChanged(NodeCapacityChanged {
                node,
                incarnation,
                change: 1,
                capacity: NodeCapacity {
                    cpu_milli,
                    memory_bytes,
                    ..NodeCapacity::default()
                },
            })
        }
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
        "silent" => {
            let (node, incarnation) = node(words[1]);
            Event::NodeSuspected(NodeSuspected {
                node,
                incarnation,
                last_seen: Millis(0),
            })
        }
        "forget" => Event::NodeForgotten(NodeForgotten {
            node: token(words[1]),
        }),
        "condition" => Event::NodeConditionChanged(NodeConditionChanged {
            node: token(words[1]),
            condition: token(words[2]),
            holds: words[3] == "on",
            reason: words.get(4).map(|reason| token(reason)),
        }),
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
            exit: None,
        }),
        "end" => Event::AllocationEnded(AllocationEnded {
            allocation: allocation(),
            cause: EndCause::Finished,
            at: moment(words[2]),
            exit: None,
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
            i.of.payer.tenant,
            i.moved.node,
            i.moved.incarnation,
            i.moved.site.gpu_model.as_ref().map_or("-", Token::as_str),
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
        Fact::Condition(c) => format!(
            "{} {} {} {} @{}",
            c.node,
            c.condition,
            c.status.name(),
            c.reason,
            c.at.0
        ),
        Fact::Rate(r) => format!(
            "rate {} {} {}>{} v{}",
            r.key.resource,
            r.price.map_or("-".to_owned(), |price| price.to_string()),
            r.effective_from.0,
            r.applied_from.0,
            r.version
        ),
        Fact::Budget(b) => {
            let budget = b.budget.map_or("-".to_owned(), |budget| {
                format!("{} a {}", budget.amount, budget.period.name())
            });
            let (account, of) = (&b.account, b.of.name());
            format!("budget {account} {of} {budget} @{} v{}", b.at.0, b.version)
        }
        Fact::Denial(d) => {
            let whose = d.of.as_ref().map_or("-".to_owned(), |(of, amounts)| {
                format!("{} {}", of.payer.tenant, slashed(amounts))
            });
            format!(
                "denied {} {whose} @{}: {}",
                d.allocation.0, d.at.0, d.refusal
            )
        }
        Fact::Unplaced(u) => format!(
            "unplaced {} {} {} [{},{}) {} {}",
            u.allocation.0,
            u.of.payer.tenant,
            slashed(&u.amounts),
            u.wait.since.0,
            u.ended_at.0,
            u.wait.reason.map_or("-", |reason| reason.name()),
            u.cause.name()
        ),
        Fact::Preemption(p) => format!(
            "preempted {} on {} by {} of {} for {}",
            p.allocation.0,
            p.node.as_ref().map_or("-", Token::as_str),
            p.by.map_or(0, |by| by.0),
            p.by_payer
                .as_ref()
                .map_or("-", |payer| payer.tenant.as_str()),
            p.cause.name()
        ),
        Fact::Running(r) => format!(
            "{} {} since {}",
            if r.under_way { "runs" } else { "ran" },
            r.allocation.0,
            r.started_at.0
        ),
        Fact::Closed(c) => format!("closed {} v{}", c.month, c.version),
        Fact::Sums(sums) => sums.used.iter().map(used).collect::<Vec<_>>().join(", "),
        Fact::FirstAttempts(first) => {
            let numbers = |all: &[AllocationNo]| all.iter().map(|no| no.0).collect::<Vec<_>>();
            let (begun, over) = (numbers(&first.begun), numbers(&first.over));
            format!("first attempts {begun:?} over {over:?} all {}", first.all)
        }
        Fact::Clock(c) => format!("clock {} accrued {}", c.clock.0, c.accrued_to.0),
    }
}

/// What the books come to, the property tests add up.
fn used((line, used): &(Line, Used)) -> String {
    let sums = |sums: [i128; 3]| sums.map(|n| n.to_string()).join("/");
    format!(
        "used {} {} since {} in {} {} {}ms lsn {}-{}",
        line.payer.tenant,
        line.hour.0,
        line.since.0,
        line.period,
        sums(used.quantity.0),
        used.ms.0[0],
        used.first.0,
        used.last.0
    )
}

/// Each line is `clock verb words…`; a `.` ends a batch. Gives the rows, or what was illegal.
fn fold(events: &[&str]) -> Result<Vec<String>, String> {
    let is_condition = |change: &Change| matches!(change.fact, Fact::Condition(_));
    fold_of(events, |change| !is_condition(change))
}

fn fold_of(events: &[&str], which: impl Fn(&Change) -> bool) -> Result<Vec<String>, String> {
    let mut usage = Usage::default();
    let mut changes = Vec::new();
    for (index, text) in events.iter().enumerate() {
        if *text == "." {
            usage.end_batch(&mut changes);
            continue;
        }
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
    let changes = changes.iter().filter(|change| which(change));
    Ok(changes.map(line).collect())
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
fn a_node_that_changes_its_size_brings_in_or_takes_out_the_difference() {
    let rows = fold(&[
        "0 register n1.1 9000/90/0",
        "0 request 5 t1 6000/60/0",
        "10 place 5 n1.1",
        "20 resize n1.1 12000/80/0",
        // Less than what is held: the rest goes with it.
        "30 resize n1.1 5000/10/0",
        "50 end 5 40",
        "60 resize n1.1 7000/10/0",
        "70 lost n1.1",
        "100 request 6 t1 1/1/0",
        "100 place 6 n1.1",
    ]);
    let rows = rows.expect("legal");
    let of_n1: Vec<&String> = rows.iter().filter(|row| row.starts_with("n1")).collect();
    assert_eq!(
        of_n1,
        [
            "n1.1 @0 outside>idle 9000/90/0",
            "n1.1 @0 has 9000/90/0",
            "n1.1 @10 idle>reserved 6000/60/0",
            "n1.1 @20 outside>idle 3000/0/0",
            "n1.1 @20 idle>outside 0/10/0",
            "n1.1 @20 has 12000/80/0",
            "n1.1 @30 idle>outside 6000/20/0",
            "n1.1 @30 has 6000/60/0",
            "n1.1 @50 reserved>idle 6000/60/0",
            "n1.1 @50 idle>outside 1000/50/0",
            "n1.1 @50 has 5000/10/0",
            "n1.1 @60 outside>idle 2000/0/0",
            "n1.1 @60 has 7000/10/0",
            "n1.1 @70 idle>unavailable 7000/10/0",
            "n1.1 @100 unavailable>reserved 1/1/0",
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
        &["rate gpu:V100 2500000 3600000>3600000 v7"],
    );
    // What was folded before it was known keeps its price.
    check(&["9 rate cpu 1 8"], &["rate cpu 1 8>9 v7"]);
    check(&["9 rate cpu 1 0"], &["rate cpu 1 0>0 v7"]);
    check(&["9 rate cpu none 8"], &["rate cpu - 8>9 v7"]);
}

#[test]
fn a_denied_allocation_may_be_ended_in_either_order() {
    let why = "quota exceeded: t1 gpu (limit 400, actual 500)";
    check(
        &[ASK, "2 deny 5", "3 end 5 3"],
        &[&format!("denied 5 t1 3000/8/500 @2: {why}")],
    );
    let unplaced = "unplaced 5 t1 3000/8/500 [1,2) - finished";
    let denied = format!("denied 5 - @3: {why}");
    check(&[ASK, "2 end 5 2", "3 deny 5"], &[unplaced, &denied]);
}

#[test]
fn a_wait_has_the_reason_of_what_quota_waits_for() {
    let of = |rule: &str, reason: &str| {
        let waits = format!("2 quota 5 {rule}");
        let unplaced = format!("unplaced 5 t1 3000/8/500 [1,3) {reason} finished");
        check(&[ASK, &waits, "3 end 5 3"], &[&unplaced]);
    };
    of("dependency_pending", "dependency");
    of("incomplete_gang", "gang_incomplete");
    of("quota_exceeded", "quota");
}

#[test]
fn a_state_before_reasons_is_upgraded_where_none_is_unclear() {
    let folded = |reports: &[&str]| {
        let mut usage = Usage::default();
        for (lsn, report) in (1..).zip(["request 5 t1 3000/8/500"].iter().chain(reports)) {
            let words: Vec<&str> = report.split_whitespace().collect();
            let no = EventNo(if lsn == 1 { 5 } else { 99 });
            let at = At {
                lsn: Lsn(lsn),
                index: 0,
                no,
                now: Millis(lsn as i64),
            };
            let folded = usage.project_event(&at, &event(&words), &mut Vec::new());
            folded.expect("legal");
        }
        let snapshot = Snapshot::of(3, Default::default(), &usage);
        let upgraded = snapshot.upgraded(Usage::STATE_VERSION, Usage::upgrade);
        (usage, upgraded)
    };
    let (usage, upgraded) = folded(&["quota 5 dependency_pending", "wait 5"]);
    assert_eq!(upgraded, Some(usage));
    let (_, upgraded) = folded(&["quota 5 quota_exceeded"]);
    assert_eq!(upgraded, None);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The reason is that of the last report since the allocation was queued, by whichever service, and survives a snapshot.
    #[test]
    fn a_wait_has_its_last_reason(steps in vec((0..5usize, any::<bool>()), 0..12)) {
        const REPORTS: [(&str, &str); 4] = [
            ("quota 5 dependency_pending", "dependency"),
            ("quota 5 incomplete_gang", "gang_incomplete"),
            ("quota 5 quota_exceeded", "quota"),
            ("wait 5", "no_room_now"),
        ];
        let (mut usage, mut changes, mut lsn) = (Usage::default(), Vec::new(), 0);
        let mut send = |usage: &mut Usage, words: &str| {
            lsn += 1;
            let words: Vec<&str> = words.split_whitespace().collect();
            let no = if words[0] == "request" { 5 } else { 99 };
            let at = At { lsn: Lsn(lsn), index: 0, no: EventNo(no), now: Millis(lsn as i64) };
            usage.project_event(&at, &event(&words), &mut changes).expect("legal");
        };
        send(&mut usage, "register n1.1 8000/64/2000");
        send(&mut usage, "request 5 t1 3000/8/500");
        let mut expected = "-";
        for (step, is_restored) in steps {
            match REPORTS.get(step) {
                Some((report, reason)) => {
                    send(&mut usage, report);
                    expected = reason;
                }
                None => {
                    for report in ["place 5 n1.1", "start 5 1", "requeue 5 1"] {
                        send(&mut usage, report);
                    }
                    expected = "-";
                }
            }
            if is_restored {
                let snapshot = Snapshot::of(1, Default::default(), &usage);
                usage = snapshot.state(1).expect("it has a postcard form");
            }
        }
        send(&mut usage, "end 5 1");
        let ends = format!(") {expected} finished");
        let last = changes.iter().map(line).rfind(|line| line.starts_with("unplaced"));
        prop_assert!(last.as_ref().is_some_and(|line| line.ends_with(&ends)), "{:?} {}", last, ends);
    }
}

#[test]
fn a_budget_is_a_row_whenever_it_changes() {
    check(
        &[
            "5 budget t1/ml/dev gpu 8000 week",
            "7 budget t1 money 90 month",
        ],
        &[
            "budget t1/ml/dev gpu 8000 a week @5 v4",
            "budget t1 money 90 a month @7 v4",
        ],
    );
    check(&["9 budget t1 cpu"], &["budget t1 cpu - @9 v4"]);
}

#[test]
fn what_waited_and_never_ran_is_a_row() {
    check(
        &[ASK, "2 wait 5", "9 end 5 9"],
        &["unplaced 5 t1 3000/8/500 [1,9) no_room_now finished"],
    );
}

/// The lines of the bill, and what runs, of some events; hours are written as `h`.
fn billed(events: &[String]) -> Vec<String> {
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    let rows = fold(&events).expect("legal");
    let about = |row: &&str| {
        ["used", "ran", "runs"]
            .iter()
            .any(|verb| row.starts_with(verb))
    };
    let rows = rows.iter().flat_map(|row| row.split(", "));
    rows.filter(about).map(str::to_owned).collect()
}

#[test]
fn what_runs_is_billed_when_an_hour_is_over() {
    let h = HOUR_MS;
    let found = billed(&[
        NODE.to_owned(),
        "1 request 5 t1 1000/8/0".to_owned(),
        "10 place 5 n1.1".to_owned(),
        "20 start 5 15".to_owned(),
        ".".to_owned(),
        format!("{} wait 7", h - 1),
        format!("{} wait 7", h + 5),
        ".".to_owned(),
        format!("{} end 5 {}", h + 9, h + 7),
        ".".to_owned(),
    ]);
    let ms = h - 15;
    assert_eq!(
        found,
        [
            "runs 5 since 15".to_owned(),
            format!(
                "used t1 0 since 0 in 1970-01 {}/{}/0 {ms}ms lsn 7-7",
                1000 * ms,
                8 * ms
            ),
            "ran 5 since 15".to_owned(),
            "used t1 1 since 0 in 1970-01 7000/56/0 7ms lsn 9-9".to_owned(),
        ]
    );
}

#[test]
fn what_was_accrued_beyond_the_end_is_taken_back() {
    let h = HOUR_MS;
    let start = [
        NODE.to_owned(),
        "1 request 5 t1 1000/8/0".to_owned(),
        "10 place 5 n1.1".to_owned(),
        format!("{} start 5 {}", h - 9, h - 10),
        ".".to_owned(),
    ];
    let end = [
        format!("{} wait 7", h + 1),
        ".".to_owned(),
        format!("{} end 5 {}", h + 5, h - 4),
        ".".to_owned(),
    ];
    assert_eq!(
        billed(&[&start[..], &end].concat())[1..],
        [
            "used t1 0 since 0 in 1970-01 10000/80/0 10ms lsn 6-6",
            format!("ran 5 since {}", h - 10).as_str(),
            "used t1 0 since 0 in 1970-01 -4000/-32/0 -4ms lsn 8-8",
        ]
    );
    // A start that becomes known when its hour is over.
    let late = [
        NODE.to_owned(),
        "1 request 5 t1 1000/8/0".to_owned(),
        "10 place 5 n1.1".to_owned(),
        format!("{} start 5 {}", h + 1, h - 3),
        ".".to_owned(),
    ];
    let started = format!("runs 5 since {}", h - 3);
    let accrued = "used t1 0 since 0 in 1970-01 3000/24/0 3ms lsn 4-4";
    assert_eq!(billed(&late), [started.as_str(), accrued]);
}

#[test]
fn use_is_cut_where_a_rate_begins() {
    let found = billed(&[
        NODE.to_owned(),
        "1 request 5 t1 1000/8/0".to_owned(),
        "10 place 5 n1.1".to_owned(),
        "20 start 5 15".to_owned(),
        "21 rate gpu 7 25".to_owned(),
        "30 end 5 30".to_owned(),
        ".".to_owned(),
    ]);
    assert_eq!(
        found,
        [
            "used t1 0 since 0 in 1970-01 10000/80/0 10ms lsn 6-6",
            "used t1 0 since 25 in 1970-01 5000/40/0 5ms lsn 6-6",
        ]
    );
}

#[test]
fn what_becomes_known_after_its_month_was_closed_is_a_correction() {
    let february = Month(197_002).begin().0;
    let found = billed(&[
        NODE.to_owned(),
        "1 request 5 t1 1000/8/0".to_owned(),
        "10 place 5 n1.1".to_owned(),
        format!("{} start 5 {}", february - 5, february - 10),
        ".".to_owned(),
        // The hours before are accrued first.
        format!("{} close 197001", february + HOUR_MS),
        ".".to_owned(),
        format!("{} end 5 {}", february + HOUR_MS + 1, february - 4),
        ".".to_owned(),
    ]);
    let (january, hour) = (february / HOUR_MS - 1, HOUR_MS);
    assert_eq!(
        found,
        [
            format!("runs 5 since {}", february - 10),
            format!("used t1 {january} since 0 in 1970-01 10000/80/0 10ms lsn 6-6"),
            format!(
                "used t1 {} since 0 in 1970-02 {}/{}/0 {hour}ms lsn 6-6",
                january + 1,
                1000 * hour,
                8 * hour
            ),
            format!("ran 5 since {}", february - 10),
            format!("used t1 {january} since 0 in 1970-02 -4000/-32/0 -4ms lsn 8-8"),
            format!(
                "used t1 {} since 0 in 1970-02 -{}/-{}/0 -{hour}ms lsn 8-8",
                january + 1,
                1000 * hour,
                8 * hour
            ),
        ]
    );
}

#[test]
fn what_is_free_of_a_cordoned_node_is_cordoned() {
    let rows = fold(&[
        NODE,
        ASK,
        "5 cordon n1 on",
        "5 cordon n2 on",
        "10 place 5 n1.1",
        "20 end 5 20",
        "25 cordon n1 off",
        "26 cordon n1 off",
        "27 register n2.1 1000/1/0",
        "40 wait 7",
    ])
    .expect("legal");
    assert_eq!(
        rows[2..],
        [
            "n1.1 @5 idle>cordoned 8000/64/2000",
            "n1.1 @10 cordoned>reserved 3000/8/500",
            "n1.1 @20 reserved>cordoned 3000/8/500",
            "n1.1 @25 cordoned>idle 8000/64/2000",
            "n2.1 @27 outside>cordoned 1000/1/0",
            "n2.1 @27 has 1000/1/0",
        ]
    );
}

#[test]
fn a_preemption_names_both_sides() {
    let rows = fold(&[
        NODE,
        ASK,
        "10 place 5 n1.1",
        "11 request 6 t2 8000/8/0",
        "12 preempt 5 6",
        "13 preempt 6",
        "14 preempt 9 5",
    ])
    .expect("legal");
    assert_eq!(
        rows[3..],
        [
            "preempted 5 on n1 by 6 of t2 for priority",
            "preempted 6 on - by 0 of - for priority",
        ]
    );
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

#[test]
fn what_holds_of_a_node_is_said_when_it_changes() {
    let events = [
        NODE,
        "1 condition n1 DiskPressure on full",
        "2 silent n1.1",
        "3 ready n1.1",
        "4 condition n1 DiskPressure off",
        "5 lost n1.1",
        "6 forget n1",
    ];
    let said = fold_of(&events, |change| matches!(change.fact, Fact::Condition(_)));
    assert_eq!(
        said.expect("legal"),
        [
            "n1 Ready true registered @0",
            "n1 DiskPressure true full @1",
            "n1 Ready unknown silent @2",
            "n1 Ready true heard @3",
            "n1 DiskPressure false  @4",
            "n1 Ready false lost @5",
            "n1 Ready false forgotten @6",
        ]
    );
}
