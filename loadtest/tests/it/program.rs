//! The program as a shell sees it, without any servers.

use std::{
    fs,
    io::{PipeWriter, pipe},
    path::Path,
    process::{Command, Output, Stdio},
};

/// Returns a pipe whose reader has ended.
fn unread() -> PipeWriter {
    let (reader, writer) = pipe().expect("a pipe");
    drop(reader);
    writer
}

fn run(words: &[&str], dir: &Path, stdout: impl Into<Stdio>, stderr: impl Into<Stdio>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loadtest"));
    let command = command.args(words).current_dir(dir).stdin(Stdio::null());
    let done = command.stdout(stdout).stderr(stderr).spawn();
    let done = done.and_then(std::process::Child::wait_with_output);
    done.expect("the program ends")
}

#[test]
fn a_closed_pipe_changes_no_exit_code() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let openb = concat!(env!("CARGO_MANIFEST_DIR"), "/workloads/openb");
    fs::write(dir.join("empty.jsonl"), "").expect("written");
    let check = |words: &[&str], code| {
        let done = run(words, dir, unread(), Stdio::piped());
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(code), "{words:?}: {said}");
        assert_eq!(said.is_empty(), code == 0, "{words:?}: {said}");
        let done = run(words, dir, unread(), unread());
        assert_eq!(done.status.code(), Some(code), "{words:?}");
    };
    check(&["--help"], 0);
    check(&["plan", "--workload", openb], 0);
    check(&["plan", "--workload", "none"], 1);
    check(&["simulate", "--seeds", "1"], 0);
    check(&["history", "--check", "empty.jsonl"], 2);
    check(&["history", "--check", "none"], 2);
    check(&["quota", "--smoke", "--json", "quota.json"], 0);
    let drive = [
        "drive",
        "--stack",
        "none",
        "--workload",
        "none",
        "--report",
        "r",
    ];
    check(&drive, 1);
}
