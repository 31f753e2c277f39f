use crate::node::{Node, bounds, command, key, log, next, run, shell};
use node_agent::{Exit, Reason, StartError, Work};
use std::{collections::BTreeSet, fs, path::PathBuf};

async fn check(work: Work, expected: (u8, u8, Reason), said: &str) {
    let (ended, log) = run(&work, &bounds()).await;
    let (code, signal, reason) = expected;
    let exit = Exit {
        code,
        signal,
        reason,
    };
    assert_eq!(ended.end.exit, exit, "{work:?}: {log}");
    assert!(log.contains(said), "{work:?}: {log:?}");
    assert!(ended.end.started_ms > 0 && ended.end.started_ms <= ended.end.ended_ms);
}

#[tokio::test]
async fn a_run_ends_as_its_command_does() {
    check(shell("echo done"), (0, 0, Reason::None), "done\n").await;
    check(shell("exit 7"), (7, 0, Reason::None), "").await;
    check(shell("exit 127"), (127, 0, Reason::None), "").await;
    check(shell("kill -TERM $$"), (0, 15, Reason::None), "").await;
    check(shell("kill -KILL $$"), (0, 9, Reason::None), "").await;
    check(command(&["true"]), (0, 0, Reason::None), "").await;
}

#[tokio::test]
async fn a_command_that_never_was_is_told_from_one_that_failed() {
    let folder = tempfile::tempdir().expect("a folder");
    let plain = folder.path().join("plain");
    fs::write(&plain, "#!/bin/sh\n").expect("written");
    let plain = plain.to_str().expect("text");
    let not_found = (127, 0, Reason::CouldNotStart);
    let not_executable = (126, 0, Reason::CouldNotStart);
    check(
        command(&["/no/such/program"]),
        not_found,
        "cannot run /no/such/program",
    )
    .await;
    check(command(&["no-such-program"]), not_found, "no-such-program").await;
    check(command(&[plain]), not_executable, "ermission denied").await;
    check(command(&["/"]), not_executable, "cannot run /").await;
    let nowhere = Work {
        working_dir: Some(PathBuf::from("/no/such/folder")),
        ..shell("echo here")
    };
    check(nowhere, not_executable, "cannot enter /no/such/folder").await;
}

#[tokio::test]
async fn what_cannot_be_run_anywhere_is_refused() {
    let node = Node::new();
    let runs = node.runs();
    let check = |work: &Work, expected: fn(&StartError) -> bool| {
        let error = runs
            .start(key(1), work, &bounds(), &[])
            .expect_err("refused");
        assert!(expected(&error), "{error}");
        assert!(!node.run_file(key(1), "run.json").exists());
    };
    check(&command(&[]), |e| matches!(e, StartError::NoCommand));
    check(&command(&[""]), |e| matches!(e, StartError::NoCommand));
    check(&command(&["a\0b"]), |e| matches!(e, StartError::NulByte));
    let mut work = command(&["true"]);
    work.env = vec![("A=B".to_owned(), String::new())];
    check(&work, |e| matches!(e, StartError::Variable { .. }));
    let mut work = command(&["true"]);
    work.image = Some("debian".to_owned());
    check(&work, |e| matches!(e, StartError::ImageNeedsPlugin));
}

#[tokio::test]
async fn a_shim_that_is_not_there_leaves_no_run() {
    let mut node = Node::new();
    node.settings.program = PathBuf::from("/no/such/agent");
    let runs = node.runs();
    let error = runs.start(key(1), &command(&["true"]), &bounds(), &[]);
    assert!(matches!(error, Err(StartError::Shim(_))), "{error:?}");
    assert!(runs.log(key(1), 0, 1).is_err());
}

#[tokio::test]
async fn runs_do_not_get_in_each_others_way() {
    let node = Node::new();
    let runs = node.runs();
    runs.start(key(1), &shell("echo one; exit 1"), &bounds(), &[])
        .expect("started");
    runs.start(key(2), &shell("echo two; exit 2"), &bounds(), &[])
        .expect("started");
    let twice = runs.start(key(1), &command(&["true"]), &bounds(), &[]);
    assert!(matches!(twice, Err(StartError::AlreadyThere(_))));
    for _ in 0..2 {
        let ended = next(&runs).await;
        assert_eq!(u64::from(ended.end.exit.code), ended.key.revision);
    }
    assert_eq!(log(&runs, key(1)), "one\n");
    assert_eq!(log(&runs, key(2)), "two\n");
}

#[tokio::test]
async fn of_fifty_runs_all_end() {
    let node = Node::new();
    let runs = node.runs();
    for revision in 0..50 {
        runs.start(key(revision), &command(&["true"]), &bounds(), &[])
            .expect("started");
    }
    let mut ended = BTreeSet::new();
    for _ in 0..50 {
        let one = next(&runs).await;
        assert!(one.end.exit.succeeded(), "{one:?}");
        assert!(ended.insert(one.key), "twice: {one:?}");
        runs.forget(one.key).expect("forgotten");
    }
    drop(runs);
    assert!(node.open().1.is_empty());
}

#[tokio::test]
async fn what_a_run_used_is_counted() {
    let work = shell("i=0; while [ $i -lt 50000 ]; do i=$((i + 1)); done; echo $i");
    let (ended, _) = run(&work, &bounds()).await;
    let usage = ended.end.usage;
    assert!(usage.cpu_us > 0 && usage.memory_bytes_peak > 0, "{usage:?}");
    assert_eq!(usage.log_bytes, 6);
}

#[tokio::test]
async fn nothing_of_a_run_outlives_its_command() {
    let folder = tempfile::tempdir().expect("a folder");
    // It has left its parent and its session, and hears no word.
    let daemon = "echo $$ >pid; trap '' TERM HUP; while :; do sleep 1000; done";
    let work = Work {
        working_dir: Some(folder.path().to_owned()),
        ..shell(&format!(
            "mkfifo pid; (setsid sh -c \"{}\" &); cat pid; exit 4",
            daemon.replace('$', "\\$")
        ))
    };
    let (ended, log) = run(&work, &bounds()).await;
    assert_eq!(
        (ended.end.exit.code, ended.end.exit.reason),
        (4, Reason::None)
    );
    let pid = log.trim();
    assert!(pid.parse::<u32>().is_ok(), "{log:?}");
    assert!(!crate::node::lives(pid));
}

#[tokio::test]
async fn leftovers_that_beget_others_do_not_keep_a_run_from_its_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let work = Work {
        working_dir: Some(folder.path().to_owned()),
        ..shell("mkfifo go; sh -c 'echo >go; while :; do setsid true & done' & cat go; exit 2")
    };
    let (ended, _) = run(&work, &bounds()).await;
    assert_eq!(ended.end.exit.code, 2);
}
