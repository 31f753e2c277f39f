use crate::node::{Node, bounds, key, lines, lives, next, shell, until};
use node_agent::{Found, OpenError, Reason, RunError, Runs, Work};
use std::{fs, path::Path, process::Command};

/// Goes on once somebody writes into `go`.
fn waiting(folder: &Path) -> Work {
    Work {
        working_dir: Some(folder.to_owned()),
        ..shell("mkfifo go; echo $$; cat go; exit 5")
    }
}

fn let_go(folder: &Path) {
    fs::write(folder.join("go"), "went on\n").expect("somebody reads");
}

fn shim_of(node: &Node) -> String {
    let text = fs::read_to_string(node.run_file(key(1), "shim.json")).expect("a shim");
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    json["pid"].to_string()
}

fn kill_shim(node: &Node) {
    let pid = shim_of(node);
    let killed = Command::new("kill").args(["-KILL", &pid]).status();
    assert!(killed.expect("kill is there").success());
}

#[tokio::test]
async fn a_run_goes_on_without_its_agent() {
    let node = Node::new();
    let runs = node.runs();
    runs.start(key(1), &waiting(node.folder.path()), &bounds(), &[])
        .expect("started");
    lines(&runs, key(1), 1).await;
    assert!(matches!(
        Runs::open(node.settings.clone()),
        Err(OpenError::InUse(_))
    ));
    drop(runs);

    let (runs, found) = node.open();
    assert!(
        matches!(found[..], [Found::Running(found)] if found == key(1)),
        "{found:?}"
    );
    assert!(matches!(
        runs.forget(key(1)),
        Err(RunError::StillRunning(_))
    ));
    let_go(node.folder.path());
    let ended = next(&runs).await;
    assert_eq!((ended.key, ended.end.exit.code), (key(1), 5));
    assert!(crate::node::log(&runs, key(1)).ends_with("\nwent on\n"));
    runs.forget(key(1)).expect("forgotten");
    assert!(matches!(runs.forget(key(1)), Err(RunError::NotFound(_))));
}

#[tokio::test]
async fn an_end_is_kept_until_it_is_forgotten() {
    let node = Node::new();
    let runs = node.runs();
    runs.start(key(1), &waiting(node.folder.path()), &bounds(), &[])
        .expect("started");
    lines(&runs, key(1), 1).await;
    let shim = shim_of(&node);
    drop(runs);
    let_go(node.folder.path());
    until("the shim is gone", || !lives(&shim)).await;
    for _ in 0..2 {
        let (_runs, found) = node.open();
        assert!(
            matches!(found[..], [Found::Ended(ended)] if ended.end.exit.code == 5),
            "{found:?}"
        );
    }
    let (runs, _) = node.open();
    runs.forget(key(1)).expect("forgotten");
    drop(runs);
    assert!(node.open().1.is_empty());
}

/// A command, one that has left its session, and one that has emptied its environment.
const THREE: &str = "echo $$; setsid sh -c 'echo $$; exec sleep 1000' &
    env -i sh -c 'echo $$; exec sleep 1000' & wait";

#[tokio::test]
async fn nothing_goes_on_without_its_shim() {
    let node = Node::new();
    let runs = node.runs();
    runs.start(key(1), &shell(THREE), &bounds(), &[])
        .expect("started");
    let pids = lines(&runs, key(1), 3).await;
    assert!(pids.iter().all(|pid| lives(pid)));
    kill_shim(&node);
    let ended = next(&runs).await;
    assert_eq!(ended.end.exit.reason, Reason::AgentLost);
    assert!(!ended.end.exit.succeeded());
    for pid in &pids {
        until("the process is gone", || !lives(pid)).await;
    }
}

#[tokio::test]
async fn a_shim_that_died_unseen_is_found_out() {
    let node = Node::new();
    let runs = node.runs();
    runs.start(key(1), &shell(THREE), &bounds(), &[])
        .expect("started");
    let pids = lines(&runs, key(1), 3).await;
    drop(runs);
    let shim = shim_of(&node);
    kill_shim(&node);
    until("the shim is gone", || !lives(&shim)).await;
    // The kernel sees to the command, and nobody to the others yet.
    until("the command is gone", || !lives(&pids[0])).await;
    assert!(lives(&pids[1]) && lives(&pids[2]));
    for _ in 0..2 {
        let (_runs, found) = node.open();
        assert!(
            matches!(found[..], [Found::Ended(ended)] if ended.end.exit.reason == Reason::AgentLost),
            "{found:?}"
        );
    }
    for pid in &pids {
        until("the process is gone", || !lives(pid)).await;
    }
}
