//! A rule has one number, one name and one answer to "can a retry help?", in the contract, in the vocabulary and in
//! docs/bus.md.

use schemas::v1;
use vocab::Rule;

const DOCUMENT: &str = include_str!("../../../../docs/bus.md");

/// Beyond every rule that there will be soon, so that one of the contract's that the vocabulary lacks is found.
const NUMBER_MAX: i32 = 1000;

#[test]
fn the_contract_and_the_vocabulary_have_the_same_rules() {
    let contract: Vec<(i32, String)> = (1..NUMBER_MAX)
        .filter_map(|number| {
            let rule = v1::Rule::try_from(number).ok()?;
            Some((number, rule.as_str_name().to_lowercase()))
        })
        .collect();
    let mut vocabulary: Vec<(i32, String)> = Rule::ALL
        .iter()
        .map(|rule| (rule.number(), rule.name().to_owned()))
        .collect();
    vocabulary.sort();
    assert_eq!(contract, vocabulary);
}

/// The document takes it from the word "Retryable." in the .proto file's comment.
#[test]
fn the_document_says_whether_a_retry_can_help() {
    let wrong: Vec<String> = Rule::ALL
        .iter()
        .filter_map(|rule| {
            let retryable = if rule.retryable() { "yes" } else { "no" };
            let proto = v1::Rule::try_from(rule.number()).ok()?.as_str_name();
            let row = format!("| {} | `{proto}` | {retryable} | ", rule.number());
            (!DOCUMENT.lines().any(|line| line.starts_with(&row))).then_some(row)
        })
        .collect();
    assert!(
        wrong.is_empty(),
        "rows that docs/bus.md must have; say \"Retryable.\" in the comment or not:\n{}",
        wrong.join("\n")
    );
}
