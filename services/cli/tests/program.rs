//! The program as a shell sees it, without any servers.

use std::{
    fs,
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

#[test]
fn shells_and_the_manual_know_the_commands() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_apportion"));
        let done = command.args(words).current_dir(dir.path()).output();
        let done = done.expect("the program");
        assert_eq!(done.status.code(), Some(0), "{words:?}");
        String::from_utf8(done.stdout).expect("text")
    };
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&["completions", shell]);
        assert!(script.contains("APPORTION_COMPLETE"), "{shell}: {script}");
    }
    run(&["man", "--out", "pages"]);
    let page = fs::read_to_string(dir.path().join("pages/apportion-submit.1")).expect("a page");
    assert!(
        page.contains("operation") && page.starts_with(".ie"),
        "{page}"
    );
    let page = fs::read_to_string(dir.path().join("pages/apportion.1")).expect("a page");
    assert!(page.contains("Exit codes"), "{page}");
}

#[test]
fn a_directory_of_the_bus_stays_as_it_is_where_no_bus_is_reached() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_apportion"));
        let command = command.args(words).current_dir(dir.path()).env_clear();
        let done = command.env("HOME", dir.path()).output();
        let done = done.expect("the program");
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        (done.status.code(), said)
    };
    let files = || {
        let mut found = Vec::new();
        let mut open = vec![dir.path().join("bus")];
        while let Some(path) = open.pop() {
            for entry in fs::read_dir(path).expect("a directory") {
                let path = entry.expect("an entry").path();
                match path.is_dir() {
                    true => open.push(path),
                    false => found.push((fs::read(&path).expect("a file"), path)),
                }
            }
        }
        found.sort();
        // The lock has no content.
        found.retain(|(content, _)| !content.is_empty());
        found
    };
    let made = run(&[
        "bus", "init", "--cell", "c", "--tenant", "a", "--out", "bus",
    ]);
    assert_eq!(made.0, Some(0), "{made:?}");
    let before = files();
    let away = ["--url", "nats://127.0.0.1:1"];
    let check = |words: &[&str], code, says: &str| {
        let words = [&["bus"], words, &["--dir", "bus"]].concat();
        let (ended, said) = run(&words);
        assert_eq!(ended, Some(code), "{words:?}: {said}");
        assert!(said.contains(says), "{words:?}: {said}");
        assert!(files() == before, "{words:?} changed the directory");
    };
    for guest in ["tenant", "operator"] {
        check(&[guest, "add", "new"], 2, "no context");
        check(
            &[&[guest, "add", "new"], &away[..]].concat(),
            5,
            "Connection refused",
        );
    }
    check(&["rotate", "tenant:a"], 2, "no context");
    check(
        &[&["rotate", "tenant:a"], &away[..]].concat(),
        5,
        "Connection refused",
    );
}

#[test]
fn what_cannot_be_meant_is_told_apart_by_the_exit_code() {
    let dir = tempfile::tempdir().expect("a directory");
    let check = |words: &[&str], environment: &[(&str, &str)], code, says: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_apportion"));
        let command = command.args(words).current_dir(dir.path()).env_clear();
        let command = command
            .env("HOME", dir.path())
            .envs(environment.iter().copied());
        let done = command.output().expect("the program");
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.contains(says), "{words:?}: {said}");
    };
    check(&["lst"], &[], 2, "list");
    check(&["list"], &[], 2, "no context");
    check(&["list", "--context", "c"], &[], 2, "there is no context c");
    check(&["list", "--stack", "none.json"], &[], 2, "none.json");
    check(&["submit", "--memory", "16"], &[], 2, "16GiB or 16Gi");
    let url = ("APPORTION_NATS_URL", "nats://127.0.0.1:1");
    check(&["list"], &[url], 2, "the environment names no tenant");
    let tenant = ("APPORTION_TENANT", "t");
    check(&["list"], &[url, tenant], 2, "does not say what lets it in");
    let creds = ("APPORTION_CREDS", "t.creds");
    check(
        &["list"],
        &[url, tenant, creds],
        2,
        "does not say which cell it is",
    );
    let all = [url, tenant, creds, ("APPORTION_CELL", "c")];
    check(&["list"], &all, 5, "connecting to nats://127.0.0.1:1");
    check(
        &["nodes"],
        &all,
        2,
        "acts as tenant t, and this command is for operators",
    );
    check(
        &["node", "list"],
        &all,
        2,
        "acts as tenant t, and this command is for operators",
    );
    check(
        &["rates", "list"],
        &all,
        2,
        "acts as tenant t, and this command is for operators",
    );
    check(&["conservation"], &all, 2, "reads the cell's databases");
    check(
        &["cordon", "n"],
        &all,
        2,
        "acts as tenant t, and this command is for operators",
    );
    check(
        &["context", "set", "c", "--creds", "t.creds"],
        &[],
        2,
        "t.creds",
    );
    check(
        &["context", "set", "c", "--nats-url", "nats://u:p@h"],
        &[],
        2,
        "holds a password",
    );
}

#[test]
fn a_shell_completes_commands_options_and_contexts() {
    let home = tempfile::tempdir().expect("a directory");
    let file = home.path().join(".config/apportion/contexts.toml");
    fs::create_dir_all(file.parent().expect("a directory")).expect("a directory");
    let contexts = "[contexts.prod]\ncell = \"a\"\n[contexts.preview]\ncell = \"b\"\n[contexts.test]\ncell = \"c\"\n";
    fs::write(&file, contexts).expect("the contexts");
    let completed = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_apportion"));
        let command = command.args(["--", "apportion"]).args(words).env_clear();
        let command = command
            .env("HOME", home.path())
            .env("APPORTION_COMPLETE", "fish")
            .current_dir(home.path());
        let done = command.output().expect("the program");
        let text = String::from_utf8(done.stdout).expect("text");
        let names = text
            .lines()
            .map(|line| line.split('\t').next().unwrap_or(line));
        let mut names: Vec<String> = names.map(str::to_owned).collect();
        names.sort();
        (names, String::from_utf8(done.stderr).expect("text"))
    };
    let check = |words: &[&str], expected: &[&str]| {
        let (names, said) = completed(words);
        assert_eq!(
            (names, said.as_str()),
            (expected.iter().map(|it| (*it).to_owned()).collect(), ""),
            "{words:?}"
        );
    };
    check(&["queu"], &["queue", "queue-set", "queues"]);
    check(&["list", "--job"], &["--job-set"]);
    check(&["list", "-o", "y"], &["yaml"]);
    check(&["context", "use", "pr"], &["preview", "prod"]);
    check(&["list", "--context", "te"], &["test"]);
    // The cell is away.
    check(&["get", "train"], &[]);
}
