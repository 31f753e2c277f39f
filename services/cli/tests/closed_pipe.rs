//! A reader that has gone ends a command, quietly.

use std::{
    io::{PipeWriter, pipe},
    process::{Command, Stdio},
};

/// A pipe that nobody reads.
fn unread() -> PipeWriter {
    let (reader, writer) = pipe().expect("a pipe");
    drop(reader);
    writer
}

#[test]
fn who_writes_into_a_closed_pipe_ends_quietly() {
    let dir = tempfile::tempdir().expect("a directory");
    let check = |words: &[&str], code| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_apportion"));
        let command = command.args(words).current_dir(dir.path());
        let done = command.stdin(Stdio::null()).stdout(unread()).output();
        let done = done.expect("the program");
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!((done.status.code(), &*said), (Some(code), ""), "{words:?}");
        // Neither does it need anybody who hears its errors.
        let done = command.stdout(unread()).stderr(unread()).status();
        assert_eq!(done.expect("the program").code(), Some(code), "{words:?}");
    };
    check(&["tls", "init", "--dir", "tls"], 0);
    check(&["--help"], 0);
}
