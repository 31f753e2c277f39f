use crate::node::{Node, bounds, command, key, log, next, run, shell};
use node_agent::{Bounds, Work};

/// What the command finds, without what it is given in any case.
async fn check(work_env: &[(&str, &str)], gpus: &[u32], expected: &[&str]) {
    let owned = |pairs: &[(&str, &str)]| -> Vec<_> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    };
    let work = Work {
        env: owned(work_env),
        ..command(&["env"])
    };
    let bounds = Bounds {
        gpus: gpus.to_vec(),
        ..bounds()
    };
    let node = Node::new();
    let runs = node.runs();
    let extra = owned(&[("APPORTION_TENANT", "t1")]);
    runs.start(key(1), &work, &bounds, &extra).expect("started");
    assert!(next(&runs).await.end.exit.succeeded());
    let text = log(&runs, key(1));
    let always = ["HOME=", "LANG=", "PATH=", "APPORTION_RUN_DIR="];
    let mut found: Vec<_> = text
        .lines()
        .filter(|line| !always.iter().any(|name| line.starts_with(name)))
        .collect();
    found.sort_unstable();
    assert_eq!(found, expected);
    assert!(
        text.lines().any(|line| line.starts_with("PATH=/")),
        "{text}"
    );
}

#[tokio::test]
async fn a_command_finds_only_what_it_was_given() {
    let none = [
        "APPORTION_TENANT=t1",
        "CUDA_DEVICE_ORDER=PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES=",
    ];
    // Cargo gives tests much that must not be handed down.
    assert!(std::env::var("CARGO_MANIFEST_DIR").is_ok());
    check(&[], &[], &none).await;
    check(
        &[("APPORTION_TENANT", "t2"), ("CUDA_VISIBLE_DEVICES", "0")],
        &[],
        &none,
    )
    .await;
    let two = [
        "A=b c",
        "APPORTION_TENANT=t1",
        "CUDA_DEVICE_ORDER=PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES=1,3",
    ];
    check(&[("A", "b c")], &[1, 3], &two).await;
}

#[tokio::test]
async fn the_path_of_the_work_finds_its_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let there = std::os::unix::fs::symlink("/bin/echo", folder.path().join("only-here"));
    there.expect("linked");
    let work = Work {
        env: vec![("PATH".to_owned(), folder.path().display().to_string())],
        ..command(&["only-here", "found"])
    };
    let (_, log) = run(&work, &bounds()).await;
    assert_eq!(log, "found\n");
}

#[tokio::test]
async fn the_payload_is_what_the_command_reads() {
    let check = async |payload: &[u8]| {
        let node = Node::new();
        let runs = node.runs();
        let work = Work {
            payload: payload.to_vec(),
            ..command(&["cat"])
        };
        runs.start(key(1), &work, &bounds(), &[]).expect("started");
        assert!(next(&runs).await.end.exit.succeeded());
        let part = runs.log(key(1), 0, usize::MAX).expect("a log");
        assert!(part.bytes == payload, "{} bytes", part.bytes.len());
    };
    check(b"").await;
    check(b"a\0b\xff\n").await;
    check(&vec![b'x'; 300_000]).await;
}

#[tokio::test]
async fn a_command_works_where_it_was_told_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().canonicalize().expect("a path");
    let work = Work {
        working_dir: Some(path.clone()),
        ..command(&["pwd"])
    };
    let (_, log) = run(&work, &bounds()).await;
    assert_eq!(log.trim(), path.to_str().expect("text"));
    let (_, log) = run(&command(&["pwd"]), &bounds()).await;
    // One of its own.
    assert!(log.ends_with(".1/work\n"), "{log}");
}

#[tokio::test]
async fn a_command_has_no_open_files_of_the_agent() {
    // As whoever starts the agent may leave one open.
    let file = tempfile::tempfile().expect("a file");
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).expect("handed down");
    // The listing itself opens the folder.
    let (_, log) = run(
        &shell("ls /proc/self/fd | wc -l; grep SigBlk /proc/self/status"),
        &bounds(),
    )
    .await;
    assert_eq!(log, "4\nSigBlk:\t0000000000000000\n");
}
