//! What crates are built of. Programs, tests and `-p` of each service turn on the same features of all dependencies, so that none builds again what
//! another has built (docs/adr/0079-build-programs-and-tests-once.md).

use std::{collections::BTreeSet, path::Path, process::Command};

/// Crates with their versions and features, one a line, as `cargo tree` prints them.
fn resolved(words: &[&str]) -> BTreeSet<String> {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--prefix", "none"])
        .args(["--format", "{p} {f}"])
        .args(words)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .output()
        .expect("cargo runs this test");
    assert!(
        tree.status.success(),
        "cargo tree {words:?}: {}",
        String::from_utf8_lossy(&tree.stderr)
    );
    let text = String::from_utf8(tree.stdout).expect("names are UTF-8");
    text.lines()
        .map(|line| line.trim_end_matches(" (*)").replace(" (proc-macro)", ""))
        .collect()
}

#[test]
fn features_are_the_same_in_every_build() {
    let tests = resolved(&["--workspace", "--edges", "normal,build,dev"]);
    let check = |words: &[&str]| {
        let more: Vec<String> = resolved(words).difference(&tests).cloned().collect();
        assert!(
            more.is_empty(),
            "`cargo tree {}` has other features than the whole workspace with its tests; turn the difference on in \
             [workspace.dependencies], or in a crate that all of them need:\n{}",
            words.join(" "),
            more.join("\n")
        );
    };
    check(&["--workspace", "--edges", "normal,build"]);
    // Crates below chassis have fewer dependencies, and so fewer features of those.
    for package in [
        "chassis",
        "admission",
        "quota",
        "scheduler",
        "node-heartbeat",
        "analytics",
        "node-agent",
        "cli",
        "loadtest",
        "proof",
        "replay",
        "bench",
    ] {
        check(&["--package", package, "--edges", "normal,build"]);
    }
}

/// The inner loop: their tests are built in seconds, and cannot do IO (docs/adr/0080-rules-are-crates-without-io.md).
#[test]
fn rules_are_built_of_few_crates_without_io() {
    const CRATES_MAX: usize = 47;
    const IO: [&str; 11] = [
        "async-nats",
        "axum",
        "clickhouse",
        "futures-util",
        "hyper",
        "mio",
        "rustls",
        "socket2",
        "sqlx",
        "tokio",
        "tonic",
    ];
    for package in [
        "admission-rules",
        "quota-rules",
        "scheduler-rules",
        "node-heartbeat-rules",
    ] {
        let words = ["--package", package, "--edges", "normal,build,dev"];
        let tree = resolved(&words);
        let crates: BTreeSet<String> = tree
            .iter()
            .map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" "))
            .collect();
        let of_io = |line: &&String| IO.contains(&line.split(' ').next().unwrap_or_default());
        let found: Vec<&String> = crates.iter().filter(of_io).collect();
        assert!(found.is_empty(), "{package} depends on {found:?}");
        assert!(
            (10..=CRATES_MAX).contains(&crates.len()),
            "{package} is built of {} crates, at most {CRATES_MAX}: {crates:?}",
            crates.len()
        );
    }
}
