//! Small histories, written out: what an indefinite call may do, and what a definite one may not.

use super::{
    super::{Answer, Call, Decision, Entry, Fact, History, Seen},
    BOUNDS, token, verdict,
};
use vocab::{ResourceAsk, Rule};

/// Lines of `call <id> <invoked>..<answered> <ask> [=> <lsn> <answer>]`, with nothing behind the dots for a call without
/// an answer and `-` as the position of what was not taken, and of `at <lsn> <slot> <id> <ask> => <answer>`, which is what
/// stands on the ledger, without an ask where the inbox refused.
fn check(script: &str, expected: &str) {
    let mut history = History {
        bounds: BOUNDS,
        calls: Vec::new(),
        reads: Vec::new(),
        ledger: Vec::new(),
    };
    for line in script.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let (said, outcome) = line.split_once(" => ").unwrap_or((line, ""));
        let words: Vec<&str> = said.split_whitespace().collect();
        match words[0] {
            "call" => history.calls.push(call(&words[1..], outcome)),
            _ => history.ledger.push(entry(&words[1..], outcome)),
        }
    }
    assert_eq!(verdict(&history), expected, "{script}");
}

fn call(words: &[&str], outcome: &str) -> Call {
    let (invoked, answered) = words[1].split_once("..").expect("from..to");
    let seen = match (answered.parse(), outcome.split_once(' ')) {
        (Ok(at_ns), Some(("-", rule))) => Seen::Unwritten {
            at_ns,
            rule: Some(rule_of(rule)),
        },
        (Ok(at_ns), Some((lsn, told))) => Seen::Answered {
            at_ns,
            lsn: number(lsn),
            answer: answer(told),
        },
        _ => Seen::Nothing,
    };
    Call {
        client: token("c"),
        tenant: token("t"),
        operation_id: token(words[0]),
        ask: ask(&words[2..]),
        invoked_ns: number(invoked),
        seen,
    }
}

pub fn entry(words: &[&str], outcome: &str) -> Entry {
    let operation_id = token(words[2]);
    let fact = match &words[3..] {
        [] => Fact::Refused {
            operation_id,
            rule: rule_of(outcome),
        },
        asked => Fact::Decided {
            operation_id,
            ask: ask(asked),
            decision: Decision::from(answer(outcome)),
        },
    };
    Entry {
        lsn: number(words[0]),
        index: 0,
        tenant: token("t"),
        slot: number(words[1]),
        fact,
    }
}

pub fn ask(words: &[&str]) -> ResourceAsk {
    match *words {
        ["create", name] => ResourceAsk::Create {
            resource: token(name),
        },
        ["acquire", name, holder, ttl] => ResourceAsk::Acquire {
            resources: vec![token(name)],
            holder: token(holder),
            ttl_slots: number(ttl),
        },
        _ => panic!("not an ask: {words:?}"),
    }
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}

fn answer(text: &str) -> Answer {
    let words: Vec<&str> = text.split_whitespace().collect();
    match *words {
        ["created"] => Answer::Created,
        ["granted", lease, deadline] => Answer::Granted {
            lease: number(lease),
            fencing_token: 1,
            deadline: number(deadline),
        },
        _ => Answer::refused(rule_of(text)),
    }
}

fn rule_of(name: &str) -> Rule {
    let mut all = Rule::ALL.iter().copied();
    all.find(|rule| rule.name() == name).expect("a rule")
}

#[test]
fn an_indefinite_call_may_take_effect_or_not() {
    check("call x 0.. create a", "holds");
    check(
        "call x 0.. create a
         at 5 0 x create a => created",
        "holds",
    );
}

#[test]
fn an_indefinite_call_may_take_effect_late_but_not_before_it_was_invoked() {
    let calls = |first: &str| {
        format!(
            "call x {first}.. create a
             call y 5..6 acquire a h 4 => 1 resource_not_found
             at 1 0 y acquire a h 4 => resource_not_found
             at 2 0 x create a => created"
        )
    };
    check(&calls("0"), "holds");
    check(
        "call x 7.. create a
         call y 5..6 acquire a h 4 => 2 granted 2 4
         at 1 0 x create a => created
         at 2 0 y acquire a h 4 => granted 2 4",
        "real_time",
    );
}

#[test]
fn a_retry_of_an_indefinite_call_gets_what_was_decided_first() {
    check(
        "call x 0.. create a
         call x 10..20 create a => 3 created
         call x 30..40 create a => 3 created
         at 3 0 x create a => created",
        "holds",
    );
    check(
        "call x 0.. create a
         call x 10..20 create a => 3 created
         call x 30..40 create a => 4 already_exists
         at 3 0 x create a => created
         at 4 1 x create a => already_exists",
        "double_execution",
    );
}

#[test]
fn what_was_not_taken_may_be_sent_again() {
    check(
        "call x 0..1 create a => - rate_limited
         call x 10..20 create a => 3 created
         at 3 0 x create a => created",
        "holds",
    );
    check(
        "call x 0..1 create a => - rate_limited
         at 3 0 x create a => created",
        "trace_of_unwritten",
    );
    check(
        "call x 0..1 create a => - rate_limited
         call x 10..20 create a => 3 created
         call y 5..6 create b => 4 created
         at 3 0 x create a => created
         at 4 0 y create b => created",
        "real_time",
    );
}

#[test]
fn other_content_is_a_conflict_with_what_was_under_way() {
    check(
        "call x 0.. create a
         call x 1..2 create b => 1 operation_conflict
         at 1 0 x => operation_conflict
         at 2 0 x create a => created",
        "holds",
    );
    check(
        "call x 9.. create a
         call x 1..2 create b => 1 operation_conflict
         at 1 0 x => operation_conflict
         at 2 0 x create a => created",
        "conflict_with_nothing",
    );
}

#[test]
fn an_operation_is_fresh_after_its_window_and_not_in_it() {
    let twice = |slot| {
        format!(
            "call x 0..1 acquire a h 4 => 1 resource_not_found
             call x 5..6 acquire a h 4 => 2 resource_not_found
             at 1 10 x acquire a h 4 => resource_not_found
             at 2 {slot} x acquire a h 4 => resource_not_found"
        )
    };
    check(&twice(34), "double_execution");
    check(&twice(35), "holds");
}

#[test]
fn a_negative_result_is_kept_too() {
    check(
        "call x 0..1 acquire a h 4 => 1 resource_not_found
         call y 2..3 create a => 2 created
         call x 4..5 acquire a h 4 => 1 resource_not_found
         at 1 0 x acquire a h 4 => resource_not_found
         at 2 0 y create a => created",
        "holds",
    );
}

#[test]
fn concurrent_calls_may_stand_in_either_order() {
    for (x, y, first, second) in [
        ("created", "already_exists", "x", "y"),
        ("already_exists", "created", "y", "x"),
    ] {
        let lsn = |id| if first == id { 1 } else { 2 };
        check(
            &format!(
                "call x 0..9 create a => {} {x}
                 call y 1..8 create a => {} {y}
                 at 1 0 {first} create a => created
                 at 2 0 {second} create a => already_exists",
                lsn("x"),
                lsn("y"),
            ),
            "holds",
        );
    }
}
