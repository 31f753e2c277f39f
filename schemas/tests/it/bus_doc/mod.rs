//! `docs/bus.md`: the contract for whoever publishes without reading Rust.
//!
//! It is made of `schemas/bus/introduction.md`, of the subjects, and of the .proto files with their comments. The tests
//! fail when it is not what these say now; `APPORTION_WRITE=1 cargo test -p schemas --test it bus_doc` writes it anew.

mod contract;
mod example;
mod page;
mod subjects;

use contract::Contract;
use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
};
use vocab::subjects::{OPERATOR, QUERIES};

const INTRODUCTION: &str = include_str!("../../../bus/introduction.md");
const SUBJECTS_RS: &str = include_str!("../../../../services/vocab/src/subjects.rs");
const WRITE: &str = "APPORTION_WRITE";

fn document() -> PathBuf {
    // The manifest lies one level below the workspace's root.
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/bus.md")
}

#[test]
fn the_document_says_what_the_contract_says() {
    let made = page::render(&Contract::load(), INTRODUCTION);
    let path = document();
    if env::var_os(WRITE).is_some_and(|value| value == "1") {
        fs::write(&path, &made).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    let line = (1..)
        .zip(made.lines().zip(found.lines()))
        .find(|(_, (made, found))| made != found)
        .map_or("at the end".to_owned(), |(at, (made, found))| {
            format!("line {at}\n  is:      {found}\n  must be: {made}")
        });
    assert!(
        made == found,
        "docs/bus.md is out of date, {line}\n`{WRITE}=1 cargo test -p schemas --test it bus_doc` writes it anew"
    );
}

#[test]
fn every_field_and_value_says_what_it_is() {
    let missing = Contract::load().without_comment();
    assert!(
        missing.is_empty(),
        "{} fields and values of tenants' and agents' messages have no comment in the .proto files; say what they are, \
         with unit and limit:\n{}",
        missing.len(),
        missing.join("\n")
    );
}

/// A message beside tenants' or agents' messages that no subject carries is either dead or on a subject that is not
/// listed.
#[test]
fn every_message_of_a_party_is_on_a_subject() {
    let lost = Contract::load().off_the_bus();
    assert!(
        lost.is_empty(),
        "no subject in subjects.rs beside this test carries, in whole or inside of another: {lost:?}"
    );
}

/// Whoever adds a subject or a stream adds its row.
#[test]
fn every_subject_and_stream_is_listed() {
    let not_names = ["new", "cell", "token"];
    let made: BTreeSet<&str> = SUBJECTS_RS
        .lines()
        .filter_map(|line| line.strip_prefix("    pub fn ")?.split(['(', '<']).next())
        .filter(|name| !not_names.contains(name))
        .collect();
    let subjects = subjects::subjects();
    let streams = subjects::streams();
    for verb in QUERIES.iter().flat_map(|(_, verbs)| *verbs) {
        let queries = ["<tenant>", OPERATOR].map(|whose| subjects::cell().query(whose, verb));
        let listed = subjects.iter().any(|row| queries.contains(&row.subject));
        assert!(
            listed,
            "{verb} is not listed in subjects.rs beside this test"
        );
    }
    let listed: BTreeSet<&str> = subjects
        .iter()
        .map(|row| row.function)
        .chain(streams.iter().map(|row| row.function))
        .collect();
    assert_eq!(
        listed, made,
        "left: listed in subjects.rs beside this test, right: functions of services/vocab/src/subjects.rs"
    );
}

/// A comment or a sentence that spells a subject must spell one that there is.
#[test]
fn no_other_subject_is_spelt() {
    assert!(
        !INTRODUCTION.contains("apportion.v1."),
        "the introduction spells a subject; write its marker, such as {{{{ingress}}}}"
    );
    let known = subjects::markers();
    let document = page::render(&Contract::load(), INTRODUCTION);
    let prefix = "apportion.v1.<cell>.";
    let spelt = document.split('`').filter(|code| code.starts_with(prefix));
    let spelt: Vec<&str> = spelt.collect();
    assert!(!spelt.is_empty(), "the document spells no subject");
    for subject in spelt {
        let quoted = format!("`{subject}`");
        let known = known.iter().any(|(_, text)| *text == quoted);
        assert!(
            known,
            "a comment spells {subject}, which services/vocab/src/subjects.rs does not make"
        );
    }
}

/// The name that GitHub gives a heading.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
    text.chars()
        .filter(kept)
        .collect::<String>()
        .replace(' ', "-")
}

#[test]
fn links_lead_to_headings() {
    let document = page::render(&Contract::load(), INTRODUCTION);
    let mut anchors = BTreeSet::new();
    for heading in document.lines().filter(|line| line.starts_with('#')) {
        assert!(
            anchors.insert(anchor(heading)),
            "{heading} stands there twice"
        );
    }
    let mut links = 0;
    for link in document.split("](#").skip(1) {
        let to = link.split(')').next().unwrap_or_default();
        assert!(anchors.contains(to), "there is no heading {to}");
        links += 1;
    }
    assert!(links > 100, "the document has {links} links to headings");
}
