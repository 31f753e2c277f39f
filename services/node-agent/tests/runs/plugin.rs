use crate::node::{Node, bounds, key, log, next, shell};
use node_agent::{Bounds, Work};
use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

/// A node whose plug-in is this script.
fn node(script: &str) -> Node {
    let mut node = Node::new();
    let plugin = node.folder.path().join("plug-in");
    fs::write(&plugin, format!("#!/bin/sh\n{script}\n")).expect("written");
    fs::set_permissions(&plugin, fs::Permissions::from_mode(0o755)).expect("allowed");
    node.settings.exec_plugin = Some(plugin);
    node
}

fn work() -> Work {
    Work {
        env: vec![("SECRET".to_owned(), "s".to_owned())],
        working_dir: Some(PathBuf::from("/in/the/container")),
        payload: b"payload".to_vec(),
        image: Some("registry/image:1".to_owned()),
        ..shell("exit 1")
    }
}

#[tokio::test]
async fn a_plugin_is_told_all_and_ends_for_the_run() {
    let node = node("cat; exit 9");
    let runs = node.runs();
    let bounds = Bounds {
        gpus: vec![2],
        memory_bytes: 1,
        ..bounds()
    };
    let extra = [("APPORTION_TENANT".to_owned(), "t1".to_owned())];
    runs.start(key(7), &work(), &bounds, &extra)
        .expect("started");
    assert_eq!(next(&runs).await.end.exit.code, 9);
    let told: serde_json::Value = serde_json::from_str(&log(&runs, key(7))).expect("JSON");
    assert_eq!(told["allocation"], key(7).allocation.to_string());
    assert_eq!(told["revision"], 7);
    assert_eq!(told["image"], "registry/image:1");
    assert_eq!(
        told["command"],
        serde_json::json!(["/bin/sh", "-c", "exit 1"])
    );
    assert_eq!(told["working_dir"], "/in/the/container");
    assert_eq!(told["bounds"]["gpus"], serde_json::json!([2]));
    let payload = told["payload_file"].as_str().expect("a file");
    assert_eq!(fs::read(payload).expect("read"), b"payload");
    let variables = told["env"].as_array().expect("a list");
    let has = |name: &str, value: &str| {
        variables.contains(&serde_json::json!({ "name": name, "value": value }))
    };
    assert!(has("SECRET", "s") && has("APPORTION_TENANT", "t1"));
    assert!(has("CUDA_VISIBLE_DEVICES", "2"));
    assert!(
        !variables.iter().any(|one| one["name"] == "PATH"),
        "{variables:?}"
    );
}

#[tokio::test]
async fn a_plugin_has_nothing_of_the_tenant_in_its_environment() {
    let node = node("env");
    let runs = node.runs();
    runs.start(key(1), &work(), &bounds(), &[])
        .expect("started");
    assert!(next(&runs).await.end.exit.succeeded());
    let env = log(&runs, key(1));
    assert!(env.contains("PATH=") && !env.contains("SECRET"), "{env}");
}
