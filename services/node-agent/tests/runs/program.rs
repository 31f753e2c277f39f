//! The program as a shell sees it.

use std::{
    io::{PipeWriter, pipe},
    process::{Command, Output, Stdio},
};

/// Returns a pipe whose reader has ended.
fn unread() -> PipeWriter {
    let (reader, writer) = pipe().expect("a pipe");
    drop(reader);
    writer
}

fn run(words: &[&str], stdout: impl Into<Stdio>, stderr: impl Into<Stdio>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_apportion-node-agent"));
    let command = command.args(words).stdin(Stdio::null());
    let done = command.stdout(stdout).stderr(stderr).spawn();
    let done = done.and_then(std::process::Child::wait_with_output);
    done.expect("the program ends")
}

#[test]
fn a_closed_pipe_changes_no_exit_code() {
    let check = |words: &[&str], code| {
        let usual = run(words, Stdio::piped(), Stdio::piped());
        assert_eq!(usual.status.code(), Some(code), "{words:?} {usual:?}");
        let done = run(words, unread(), Stdio::piped());
        assert_eq!(done.status.code(), Some(code), "{words:?} {done:?}");
        assert_eq!(done.stderr, usual.stderr, "{words:?} {done:?}");
        let done = run(words, unread(), unread());
        assert_eq!(done.status.code(), Some(code), "{words:?}");
    };
    check(&["discover"], 0);
    check(&["discover", "--help"], 0);
    check(&["--help"], 0);
    check(&["discover", "--none"], 2);
    check(&["--config", "/nonexistent/agent.toml", "--check"], 1);
    check(&["shim", "/nonexistent"], 1);
    check(&["stage", "/nonexistent", "1"], 126);
}

#[test]
fn a_full_disk_is_reported() {
    let full = std::fs::File::create("/dev/full").expect("a device");
    let done = run(&["discover"], full, Stdio::piped());
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(
        said.contains("No space left") && !said.contains("panicked"),
        "{said}"
    );
}
