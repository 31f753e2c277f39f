//! A node of its own for each test.

use node_agent::{Bounds, Ended, Found, Means, RunKey, Runs, Settings, Work};
use std::{fs, path::PathBuf, time::Duration};

/// Far beyond what anything here takes; a test that waits for what never comes ends.
const PATIENCE: Duration = Duration::from_secs(120);

pub struct Node {
    pub folder: tempfile::TempDir,
    pub settings: Settings,
}

impl Node {
    pub fn new() -> Node {
        Node::in_folder(tempfile::tempdir().expect("a folder"))
    }

    pub fn in_folder(folder: tempfile::TempDir) -> Node {
        let settings = Settings {
            dir: folder.path().join("runs"),
            means: Means::ProcessGroup,
            program: PathBuf::from(env!("CARGO_BIN_EXE_apportion-node-agent")),
            exec_plugin: None,
            work_dir: None,
            users: None,
            margin: Settings::MARGIN,
        };
        Node { folder, settings }
    }

    pub fn open(&self) -> (Runs, Vec<Found>) {
        Runs::open(self.settings.clone()).expect("opened")
    }

    /// Without what an earlier life has left.
    pub fn runs(&self) -> Runs {
        let (runs, found) = self.open();
        assert!(found.is_empty(), "{found:?}");
        runs
    }

    pub fn run_file(&self, key: RunKey, name: &str) -> PathBuf {
        self.settings.dir.join(key.to_string()).join(name)
    }
}

pub fn key(revision: u64) -> RunKey {
    RunKey::new("0190f1c2-7e3a-7000-8000-00000000000a", revision).expect("a key")
}

pub fn bounds() -> Bounds {
    Bounds {
        log_bytes_max: 1 << 20,
        ..Bounds::default()
    }
}

pub fn command(words: &[&str]) -> Work {
    Work {
        command: words.iter().map(|word| (*word).to_owned()).collect(),
        ..Work::default()
    }
}

pub fn shell(script: &str) -> Work {
    command(&["/bin/sh", "-c", script])
}

pub async fn next(runs: &Runs) -> Ended {
    let next = tokio::time::timeout(PATIENCE, runs.next()).await;
    next.expect("a run ends")
}

/// Waits until it is so.
pub async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let wait = async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, wait).await;
    assert!(waited.is_ok(), "waited in vain until {what}");
}

pub fn log(runs: &Runs, key: RunKey) -> String {
    let part = runs.log(key, 0, usize::MAX).expect("a log");
    String::from_utf8(part.bytes).expect("text")
}

/// Waits until the run has written so many lines, and returns them.
pub async fn lines(runs: &Runs, key: RunKey, count: usize) -> Vec<String> {
    until("the run has written", || {
        log(runs, key).matches('\n').count() >= count
    })
    .await;
    log(runs, key).lines().map(str::to_owned).collect()
}

/// Runs it to its end, and returns that and what it wrote.
pub async fn run(work: &Work, bounds: &Bounds) -> (Ended, String) {
    let node = Node::new();
    let runs = node.runs();
    runs.start(key(1), work, bounds, &[]).expect("started");
    let ended = next(&runs).await;
    assert_eq!(ended.key, key(1));
    (ended, log(&runs, key(1)))
}

/// Whether the process does anything any more.
pub fn lives(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}
