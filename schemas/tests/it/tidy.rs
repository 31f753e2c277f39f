//! Guards the architecture: what may stand where.

#[path = "tidy/links.rs"]
mod links;
#[path = "tidy/modules.rs"]
mod modules;

use std::{
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    // The manifest lies one level below the workspace's root.
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn sources(under: &str, ending: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(under)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if name.ends_with(ending) {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path.to_string_lossy().replace('\\', "/"), text));
            }
        }
    }
    assert!(!found.is_empty(), "nothing under {under}");
    found
}

/// Of loadtest's crates, without their tests' files.
fn loadtest_sources() -> Vec<(String, String)> {
    let crates = [
        "loadtest",
        "loadtest/proof",
        "loadtest/replay",
        "loadtest/bench",
        "loadtest/inputs",
    ];
    let each = crates.map(|path| sources(&format!("{path}/src"), ".rs"));
    each.into_iter().flatten().collect()
}

/// What stands before the tests that close a file.
fn without_tests(text: &str) -> &str {
    text.split_once("\n#[cfg(test)]\nmod tests {")
        .map_or(text, |(code, _)| code)
}

/// Lines of code, without comments.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let comment = |line: &str| line.trim_start().starts_with("//");
    (1..)
        .zip(text.lines())
        .filter(move |(_, line)| !comment(line))
}

/// Whether the line holds the word; one that ends in a letter must end there, too.
fn holds(line: &str, word: &str) -> bool {
    let part_of_a_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let next = line[at + word.len()..].chars().next();
        !(word.ends_with(part_of_a_word) && next.is_some_and(part_of_a_word))
    })
}

fn check(
    files: &[(String, String)],
    applies: impl Fn(&str) -> bool,
    forbidden: &[&str],
    why: &str,
) {
    let (mut read, mut found) = (0, Vec::new());
    for (path, text) in files.iter().filter(|(path, _)| applies(path)) {
        read += 1;
        for (number, line) in code(text) {
            if let Some(word) = forbidden.iter().find(|word| holds(line, word)) {
                found.push(format!("{path}:{number}: `{word}`"));
            }
        }
    }
    assert!(read > 0, "the rule applies to no file: {why}");
    assert!(found.is_empty(), "{why}\n{}", found.join("\n"));
}

#[test]
fn domains_are_pure() {
    let files = sources("services", ".rs");
    let forbidden = [
        "async ",
        ".await",
        "tokio",
        "async_nats",
        "sqlx",
        "clickhouse::",
        "axum",
        "SystemTime",
        "Instant",
        "std::env",
        "std::fs",
        "std::net",
        "println!",
        "tracing::",
        "rand::",
        "schemas::v1",
        "prost",
    ];
    let domain = |path: &str| {
        path.contains("-rules/src/")
            || path.contains("/src/domain/")
            || path.contains("/named-resources/src/")
    };
    check(
        &files,
        domain,
        &forbidden,
        "a domain decides; the shell does the rest:",
    );
    // Tests compare whole numbers with the real ones that they stand for.
    let decides: Vec<_> = files
        .into_iter()
        .map(|(path, text)| (path, without_tests(&text).to_owned()))
        .collect();
    let no_tests = |path: &str| domain(path) && !path.contains("/tests");
    check(
        &decides,
        no_tests,
        &["f32", "f64"],
        "whole numbers are alike everywhere:",
    );
}

#[test]
fn the_vocabulary_is_pure() {
    let files = sources("services/vocab/src", ".rs");
    let forbidden = [
        "async ",
        "tokio",
        "SystemTime",
        "Instant",
        "std::env",
        "std::fs",
        "schemas::",
        "f32",
        "f64",
    ];
    check(&files, |_| true, &forbidden, "words have no effects:");
}

#[test]
fn programs_print_by_functions_that_do_not_panic() {
    let mut files = sources("services", ".rs");
    files.extend(loadtest_sources());
    check(
        &files,
        |path| path.contains("/src/"),
        &["println!", "print!"],
        "a closed pipe is no reason to panic; chassis::output prints:",
    );
}

#[test]
fn sql_stands_in_the_stores() {
    let files = sources("services", ".rs");
    let elsewhere = |path: &str| {
        let store = path.ends_with("/store.rs") || path.contains("/store/");
        // The position of a projection is kept by the mechanism that all stores share, and rows are written by statements
        // that are made of them.
        let shared = path.contains("/chassis/src/warm") || path.contains("/services/table/src/");
        !store && !shared && !path.contains("/tests/")
    };
    let forbidden = [
        "sqlx::query",
        "INSERT INTO",
        "SELECT ",
        "UPDATE SET",
        "DELETE FROM",
        "TRUNCATE",
    ];
    check(&files, elsewhere, &forbidden, "SQL stands in store.rs:");
}

#[test]
fn generated_types_stand_in_wire() {
    let files = sources("services", ".rs");
    // A client library, an agent and the answers to queries speak the contract as their job; the rest goes through wire.rs.
    let allowed = [
        "/wire.rs",
        "/src/wire/",
        "/client/",
        "/cli/",
        "/node-agent/src/agent/",
        "/node-agent/src/protocol.rs",
        "/src/query",
        "/tests/",
    ];
    let elsewhere = |path: &str| !allowed.iter().any(|part| path.contains(part));
    check(
        &files,
        elsewhere,
        &["schemas::v1", "v1::"],
        "generated types stand in wire.rs:",
    );
}

#[test]
fn the_clock_is_read_in_one_file() {
    let mut files = sources("services", ".rs");
    files.extend(loadtest_sources());
    let elsewhere = |path: &str| !path.ends_with("/chassis/src/clock.rs");
    let forbidden = ["SystemTime::now", "Instant::now"];
    check(&files, elsewhere, &forbidden, "time is a parameter:");
}

#[test]
fn nothing_is_left_half_done() {
    let mut files = sources("services", ".rs");
    files.extend(sources("loadtest", ".rs"));
    let forbidden = [
        "todo!(",
        "unimplemented!(",
        "dbg!(",
        "#[ignore",
        "allow(dead_code",
        "allow(unused",
    ];
    // A module that several test binaries share is never used whole.
    let applies = |path: &str| !path.contains("/tests/it/common/");
    check(&files, applies, &forbidden, "finish it or take it out:");
}

/// Every subject begins here; whoever spells one elsewhere will forget it when it changes.
#[test]
fn subjects_are_spelt_in_one_file() {
    let mut files = sources("services", ".rs");
    files.extend(loadtest_sources());
    check(
        &files,
        |path| !path.ends_with("/vocab/src/subjects.rs"),
        &["\"apportion.v1"],
        "subjects stand in services/vocab/src/subjects.rs:",
    );
}

/// Whoever reads the threat model finds the test of each claim.
#[test]
fn every_test_that_the_threat_model_names_is_there() {
    let model = fs::read_to_string(root().join("docs/threat-model.md")).unwrap();
    let mut tests = String::new();
    for (under, ending) in [
        ("services", ".rs"),
        ("loadtest", ".rs"),
        ("infra/local/tests", ".py"),
    ] {
        tests.extend(sources(under, ending).into_iter().map(|(_, text)| text));
    }
    let rows = model.lines().filter(|line| line.starts_with("| "));
    let last = rows.filter_map(|row| row.trim_end_matches('|').rsplit('|').next());
    let mut named = 0;
    for cell in last {
        for name in cell.split('`').skip(1).step_by(2) {
            if name.contains(' ') {
                continue;
            }
            let there = ["fn", "def"]
                .iter()
                .any(|word| tests.contains(&format!("{word} {name}(")));
            assert!(there, "no test is called {name}");
            named += 1;
        }
    }
    assert!(named > 40, "{named} tests are named");
}
