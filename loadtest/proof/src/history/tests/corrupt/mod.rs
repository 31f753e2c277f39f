//! Spoils histories that hold, each in one way, and says which rule must be found broken.

mod aim;
mod calls;
mod decisions;
mod entries;
mod reads;

use super::{
    super::{Answer, Entry, History, check},
    generate::{Dice, history},
    verdict,
};
use std::collections::BTreeSet;

const SEEDS: u64 = 40;
const STEPS: usize = 900;

/// Spoils it, if it has what there is to spoil.
type Corruption = fn(&mut History, &mut Dice) -> Option<()>;

const TABLE: &[(&str, Corruption, &str)] = &[
    (
        "an answer before its call",
        calls::answer_early,
        "time_backwards",
    ),
    (
        "two entries change places",
        entries::swap_entries,
        "ledger_order",
    ),
    (
        "a repetition is told something else",
        calls::tell_another,
        "two_outcomes",
    ),
    (
        "a duplicate is executed again",
        entries::execute_again,
        "double_execution",
    ),
    (
        "a finished call is executed again, late",
        entries::execute_late,
        "double_execution",
    ),
    (
        "other content under an id is executed",
        entries::reuse_id,
        "id_reused",
    ),
    (
        "other content gets the outcome",
        calls::share_outcome,
        "outcome_of_other_content",
    ),
    (
        "a conflict out of nowhere",
        calls::invent_conflict,
        "conflict_with_nothing",
    ),
    (
        "an acknowledged write is gone",
        entries::lose_write,
        "lost_write",
    ),
    (
        "an answer at another position",
        calls::move_answer,
        "lost_write",
    ),
    (
        "a client is told what is not recorded",
        calls::misreport,
        "answer_not_recorded",
    ),
    ("nobody sent it", calls::forget_calls, "never_invoked"),
    (
        "not taken and yet on the ledger",
        calls::deny_calls,
        "trace_of_unwritten",
    ),
    (
        "a refusal for rate is recorded",
        entries::record_rate,
        "trace_of_unwritten",
    ),
    (
        "decided before what was over",
        entries::reorder,
        "real_time",
    ),
    ("a read of an old state", reads::read_old, "stale_read"),
    (
        "a read before the position it named",
        reads::read_before_named,
        "stale_read",
    ),
    (
        "an old outcome after a new one",
        calls::repeat_old,
        "stale_repeat",
    ),
    (
        "a lease's number again",
        decisions::reuse_number,
        "number_reused",
    ),
    (
        "a fencing token again",
        decisions::reuse_fencing_token,
        "fencing_token_reused",
    ),
    (
        "a resource is granted twice",
        decisions::grant_twice,
        "not_serial",
    ),
    (
        "a confirmation that does nothing",
        decisions::undo_grant,
        "not_serial",
    ),
    ("an early expiry", decisions::expire_early, "wrong_expiry"),
    (
        "an expiry without an end of its history",
        decisions::expire_forever,
        "wrong_expiry",
    ),
    (
        "a read of what never was",
        reads::misread,
        "not_what_was_there",
    ),
];

#[test]
fn each_corruption_is_found_as_what_it_is() {
    let sound: Vec<History> = (0..SEEDS).map(|seed| history(seed, STEPS)).collect();
    for (name, corrupt, expected) in TABLE {
        let mut tried = 0;
        for (seed, history) in (0..).zip(&sound) {
            let mut spoilt = history.clone();
            if corrupt(&mut spoilt, &mut Dice::new(seed)).is_some() {
                tried += 1;
                assert_eq!(verdict(&spoilt), *expected, "{name}, seed {seed}");
            }
        }
        assert!(tried >= 5, "{name} was tried {tried} times");
    }
}

#[test]
fn every_rule_has_a_corruption() {
    let found: BTreeSet<&str> = TABLE.iter().map(|(.., rule)| *rule).collect();
    assert_eq!(found.len(), 19, "{found:?}");
}

#[test]
fn what_a_sequential_server_does_holds() {
    let mut kinds = BTreeSet::new();
    for seed in 0..200 {
        let history = history(seed, STEPS);
        if let Err(violation) = check(&history) {
            panic!("seed {seed}: {violation}");
        }
        let answers = history.ledger.iter().filter_map(Entry::answer);
        kinds.extend(answers.map(|answer| {
            match answer {
                Answer::Refused { rule } => rule.name().to_owned(),
                granted => format!("{granted:?}")
                    .split(' ')
                    .next()
                    .unwrap_or("")
                    .to_owned(),
            }
        }));
    }
    // All answers, and all refusals but those that need tables of another size or slots at the end of time.
    assert!(kinds.len() >= 20, "{kinds:?}");
}
