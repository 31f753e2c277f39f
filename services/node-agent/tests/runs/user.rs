//! Runs that try to harm their node: its processes, its files, and its disk.

use crate::node::{Node, bounds, key, lines, lives, log, next, shell, until};
use node_agent::{Bounds, NoRunUsers, OpenError, Reason, RunUsers, Runs};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

/// Users that no machine has. Each node of a test has its own, because a lost run ends with all processes of its user.
static NEXT: AtomicU32 = AtomicU32::new(1_900_000_000);

/// A node below a directory that a run has for itself, and one below another that every user may enter.
const PLACES: [&str; 2] = ["/tmp", "/opt"];

/// Returns `None`, and says so, where the tests may not become other users.
fn with_users(count: u32, place: &str) -> Option<Node> {
    let folder = tempfile::tempdir_in(place);
    let mut node = Node::in_folder(folder.or_else(|_| tempfile::tempdir()).expect("a folder"));
    let work_dir = node.folder.path().join("work");
    let open = fs::Permissions::from_mode(0o711);
    fs::set_permissions(node.folder.path(), open).expect("opened");
    node.settings.work_dir = Some(work_dir);
    let first = NEXT.fetch_add(100, Ordering::Relaxed);
    let groups = vec![first - 1];
    node.settings.users = Some(RunUsers {
        first,
        count,
        groups,
    });
    match Runs::open(node.settings.clone()) {
        Ok(_) => Some(node),
        Err(OpenError::Users(
            error @ (NoRunUsers::Capability { .. } | NoRunUsers::NoNamespaces(_)),
        )) => {
            eprintln!("not tested: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn shim_of(node: &Node) -> String {
    let text = fs::read_to_string(node.run_file(key(1), "shim.json")).expect("a shim");
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    json["pid"].to_string()
}

fn state(pid: &str) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

#[tokio::test]
async fn a_shim_that_its_run_has_stopped_is_killed_with_it() {
    let mut node = Node::new();
    node.settings.margin = Duration::from_millis(50);
    let stops = "echo $$; kill -STOP $PPID; exec sleep 1000";
    // Told by the agent that has started it, and by one that has found it.
    for anew in [false, true] {
        let (mut runs, _) = node.open();
        runs.start(key(1), &shell(stops), &bounds(), &[])
            .expect("started");
        until("the shim is known", || {
            node.run_file(key(1), "shim.json").exists()
        })
        .await;
        let shim = shim_of(&node);
        until("the shim stands still", || state(&shim) == Some('T')).await;
        if anew {
            drop(runs);
            runs = node.open().0;
        }
        runs.stop(key(1), Duration::ZERO).expect("told");
        assert_eq!(next(&runs).await.end.exit.reason, Reason::AgentLost);
        assert!(!lives(&shim));
        runs.forget(key(1)).expect("forgotten");
    }
}

#[tokio::test]
async fn a_run_with_its_own_user_reaches_nothing_of_the_node() {
    for place in PLACES {
        if let Some(node) = with_users(4, place) {
            reaches_nothing(&node).await;
        }
    }
}

async fn reaches_nothing(node: &Node) {
    let (runs, _) = node.open();
    let waits = "echo $$; echo secret > /tmp/secret; echo more > more; exec sleep 1000";
    runs.start(key(1), &shell(waits), &bounds(), &[])
        .expect("started");
    let other = lines(&runs, key(1), 1).await.remove(0);
    until("the other run has written", || {
        let more = node
            .settings
            .work_dir
            .as_ref()
            .expect("set")
            .join(key(1).to_string());
        more.join("work/more").exists()
    })
    .await;
    let own = std::process::id();
    let script = format!(
        "try() {{ if \"$@\" 2>/dev/null >&2; then echo \"did $*\"; fi; }}
        try kill -STOP $PPID
        try kill -KILL {own}
        try kill -KILL {other}
        try cat {run}/run.json
        try ls {run}
        try cat {run}/log.0
        try cat /proc/{other}/environ
        try cat /tmp/secret
        try cat {work}/{other_key}/work/more
        try touch {work}/mine
        try cat /etc/shadow
        try mount -t tmpfs none /mnt
        echo \"user $(id -u) $(id -g) $(id -G)\"
        echo \"home $HOME $USER $(pwd)\"
        echo a > /tmp/a && cp /tmp/a /var/tmp/b && cp /tmp/a /dev/shm/c && cat /tmp/b /dev/shm/c
        echo out > /dev/stdout; echo err > /dev/stderr
        cd \"$HOME\" && echo c > d && cat \"$HOME/d\"
        grep -c ^NoNewPrivs:.1 /proc/self/status
        grep '^Max processes' /proc/self/limits | tr -s ' '",
        run = node.settings.dir.join(key(1).to_string()).display(),
        work = node.settings.work_dir.as_ref().expect("set").display(),
        other_key = key(1),
    );
    let some = Bounds {
        processes_max: 321,
        ..bounds()
    };
    runs.start(key(2), &shell(&script), &some, &[])
        .expect("started");
    let ended = next(&runs).await;
    assert_eq!(ended.key, key(2));
    let first = node.settings.users.as_ref().expect("set").first;
    let (user, groups) = (first + 1, first - 1);
    let home = node.settings.work_dir.as_ref().expect("set");
    let home = home.join(key(2).to_string()).join("work");
    let home = home.display();
    let expected = format!(
        "user {user} {user} {user} {groups}\nhome {home} apportion {home}\na\na\nout\nerr\nc\n1\nMax processes 321 321 processes \n"
    );
    assert_eq!(log(&runs, key(2)), expected);
    assert!(lives(&other));
    for leftover in ["/tmp/a", "/tmp/secret", "/var/tmp/b", "/dev/shm/c"] {
        assert!(!PathBuf::from(leftover).exists(), "{leftover}");
    }
    runs.stop(key(1), Duration::from_secs(3600)).expect("told");
    assert_eq!(next(&runs).await.end.exit.signal, 15);
}

#[tokio::test]
async fn a_command_that_its_user_may_not_run_could_not_start() {
    let Some(node) = with_users(4, PLACES[1]) else {
        return;
    };
    let runs = node.open().0;
    let program = node.folder.path().join("program");
    fs::write(&program, "#!/bin/sh\n").expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).expect("closed");
    for (number, (program, code)) in [("/nonexistent", 127), (&*program.to_string_lossy(), 126)]
        .into_iter()
        .enumerate()
    {
        let key = key(number as u64);
        let work = crate::node::command(&[program]);
        runs.start(key, &work, &bounds(), &[]).expect("started");
        let exit = next(&runs).await.end.exit;
        assert_eq!((exit.code, exit.reason), (code, Reason::CouldNotStart));
    }
}

#[tokio::test]
async fn nothing_of_a_user_goes_on_when_its_shim_is_gone() {
    let Some(node) = with_users(2, PLACES[0]) else {
        return;
    };
    let runs = node.open().0;
    // Neither its session nor its environment says whose it is.
    let script = "echo $$; setsid env -i sh -c 'echo $$; exec sleep 1000' & wait";
    runs.start(key(1), &shell(script), &bounds(), &[])
        .expect("started");
    let pids = lines(&runs, key(1), 2).await;
    let shim = shim_of(&node);
    let killed = std::process::Command::new("kill")
        .args(["-KILL", &shim])
        .status();
    assert!(killed.expect("kill is there").success());
    assert_eq!(next(&runs).await.end.exit.reason, Reason::AgentLost);
    for pid in &pids {
        until("the process is gone", || !lives(pid)).await;
    }
}

#[tokio::test]
async fn each_run_has_a_user_and_no_two_the_same() {
    let Some(node) = with_users(2, PLACES[0]) else {
        return;
    };
    let (mut runs, _) = node.open();
    let waits = shell("id -u; exec sleep 1000");
    for revision in [1, 2] {
        runs.start(key(revision), &waits, &bounds(), &[])
            .expect("started");
        lines(&runs, key(revision), 1).await;
        // Also by an agent that has found the others.
        drop(runs);
        runs = node.open().0;
    }
    let third = runs.start(key(3), &waits, &bounds(), &[]);
    let third = third.expect_err("there is no user left").to_string();
    assert!(third.contains("all 2 users"), "{third}");
    let users = [1, 2].map(|revision| log(&runs, key(revision)));
    assert_ne!(users[0], users[1]);
    runs.stop(key(1), Duration::ZERO).expect("told");
    next(&runs).await;
    runs.start(key(3), &waits, &bounds(), &[]).expect("started");
    assert_eq!(lines(&runs, key(3), 1).await, [users[0].trim_end()]);
    for revision in [2, 3] {
        runs.stop(key(revision), Duration::ZERO).expect("told");
        next(&runs).await;
    }
}

/// Ends a run that waits after this script, by its room on the disk.
async fn check(node: &Node, script: &str, bytes_max: u64) {
    let runs = node.open().0;
    let script = format!("{script}\necho ready; exec sleep 1000");
    runs.start(key(1), &shell(&script), &bounds(), &[])
        .expect("started");
    lines(&runs, key(1), 1).await;
    runs.end_excesses(bytes_max * 4, 0).expect("measured");
    runs.end_excesses(0, 0).expect("measured");
    assert!(!node.run_file(key(1), "stop.json").exists());
    runs.end_excesses(bytes_max, 0).expect("measured");
    let exit = next(&runs).await.end.exit;
    assert_eq!(exit.reason, Reason::OutOfDisk, "{script}");
    let scratch = match &node.settings.work_dir {
        Some(work_dir) => work_dir.join(key(1).to_string()),
        None => node.run_file(key(1), "work"),
    };
    until("its files are removed", || !scratch.exists()).await;
    assert_eq!(log(&runs, key(1)), "ready\n");
    runs.forget(key(1)).expect("forgotten");
}

#[tokio::test]
async fn a_run_that_fills_the_disk_is_ended_and_its_files_are_removed() {
    const MIB: u64 = 1 << 20;
    let files = "mkdir a; for i in 1 2 3 4; do head -c 1048576 /dev/zero > a/$i; done";
    let removed = "head -c 4194304 /dev/zero > a; exec 3< a; rm a";
    let node = Node::new();
    check(&node, files, 2 * MIB).await;
    check(&node, removed, 2 * MIB).await;
    if let Some(node) = with_users(2, PLACES[0]) {
        check(&node, files, 2 * MIB).await;
        check(&node, removed, 2 * MIB).await;
        check(&node, "head -c 4194304 /dev/zero > /tmp/a", 2 * MIB).await;
    }
}

#[tokio::test]
async fn what_a_lost_agent_left_in_the_working_directories_is_removed() {
    let mut node = Node::new();
    let work_dir = node.folder.path().join("work");
    node.settings.work_dir = Some(work_dir.clone());
    fs::create_dir_all(work_dir.join(key(7).to_string()).join("work/a/b")).expect("made");
    fs::write(work_dir.join("of-somebody-else"), "").expect("written");
    let (runs, _) = node.open();
    assert!(!work_dir.join(key(7).to_string()).exists());
    assert!(work_dir.join("of-somebody-else").exists());
    let second = Runs::open(node_agent::Settings {
        dir: node.folder.path().join("second"),
        ..node.settings.clone()
    });
    assert!(matches!(second, Err(OpenError::InUse(path)) if path == work_dir));
    drop(runs);
}
