use crate::node::{Node, command, key, lives, next};
use node_agent::{Found, Reason, RunError};
use std::fs;

/// What is found of a directory with these files and without a shim.
fn check(name: &str, files: &[(&str, &[u8])], expected: &str) {
    let node = Node::new();
    let dir = node.settings.dir.join(name);
    fs::create_dir_all(&dir).expect("made");
    for (file, bytes) in files {
        fs::write(dir.join(file), bytes).expect("written");
    }
    let (runs, found) = node.open();
    let what = match &found[..] {
        [Found::Ended(ended)] if ended.end.exit.reason == Reason::AgentLost => "lost",
        [Found::Damaged { key: Some(_), .. }] => "damaged",
        [Found::Damaged { key: None, .. }] => "no run",
        [] => "nothing",
        _ => "something else",
    };
    assert_eq!(what, expected, "{name} {files:?} {found:?}");
    if let [Found::Damaged { key: Some(key), .. }] = found[..] {
        runs.forget(key).expect("forgotten");
        assert!(!dir.exists());
    }
}

const RUN: &[u8] = br#"{"key":{"allocation":"0190f1c2-7e3a-7000-8000-00000000000a","revision":1},
    "command":["true"],"env":[],"working_dir":null,"told":[],"cgroup":null,"by_plugin":false,"bounds":{"cpu_milli":0,
    "memory_bytes":0,"cpu_milli_limit":0,"memory_bytes_limit":0,"cpus":null,"gpus":[],"nice":0,"log_bytes_max":0}}"#;

#[tokio::test]
async fn garbage_is_reported_and_nobody_stumbles() {
    let name = key(1).to_string();
    check(&name, &[], "damaged");
    check(&name, &[("run.json", b"")], "damaged");
    check(&name, &[("run.json", b"\xff{")], "damaged");
    check(&name, &[("run.json", RUN), ("end.json", b"{}")], "damaged");
    check(&name, &[("run.json", RUN)], "lost");
    check(&name, &[("run.json", RUN), ("alive", b"")], "damaged");
    check(
        &name,
        &[("run.json", RUN), ("shim.json", b"{\"pid\":")],
        "lost",
    );
    check(
        &name,
        &[("run.json", RUN), ("alive", b"no pipe")],
        "damaged",
    );
    check("notes", &[("a", b"b")], "no run");
    check(&format!(".new-{name}"), &[("run.json", RUN)], "nothing");
    check(&format!(".gone-{name}"), &[("run.json", RUN)], "nothing");
}

#[tokio::test]
async fn a_shim_of_another_boot_is_nobody() {
    let node = Node::new();
    let dir = node.settings.dir.join(key(1).to_string());
    fs::create_dir_all(&dir).expect("made");
    fs::write(dir.join("run.json"), RUN).expect("written");
    // A session without its leader, as a run's is without its shim.
    let script = "sleep 1000 >&- 2>&- & echo $$ $!";
    let output = std::process::Command::new("setsid")
        .args(["sh", "-c", script])
        .output();
    let output = output.expect("setsid is there").stdout;
    let text = String::from_utf8(output).expect("text");
    let (session, member) = text.trim().split_once(' ').expect("two numbers");
    let shim = format!(r#"{{"pid":{session},"boot_id":"another","started_ms":7}}"#);
    fs::write(dir.join("shim.json"), shim).expect("written");
    let (_runs, found) = node.open();
    assert!(
        matches!(found[..], [Found::Ended(ended)] if ended.end.started_ms == 7),
        "{found:?}"
    );
    assert!(lives(member));
    let killed = std::process::Command::new("kill")
        .args(["-KILL", member])
        .status();
    assert!(killed.expect("kill is there").success());
}

#[tokio::test]
async fn an_end_that_cannot_be_read_is_a_loss() {
    let node = Node::new();
    let runs = node.runs();
    // The shim cannot put its file where a folder is.
    let script = format!("mkdir {}", node.run_file(key(1), "end.json").display());
    let work = command(&["/bin/sh", "-c", &script]);
    runs.start(key(1), &work, &crate::node::bounds(), &[])
        .expect("started");
    let ended = next(&runs).await;
    assert_eq!(ended.end.exit.reason, Reason::AgentLost);
    let unknown = runs.log(key(2), 0, 1);
    assert!(matches!(unknown, Err(RunError::NotFound(_))));
}
