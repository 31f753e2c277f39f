//! How many runs of `true` start and end in a second, and what a shim weighs.
//!
//!     cargo bench --locked -p node-agent

use chassis::Stopwatch;
use node_agent::{Bounds, Means, RunKey, Runs, Settings, Work};
use std::{fs, path::PathBuf, time::Duration};

const RUNS: u64 = 500;
/// How many are under way at a time.
const AT_ONCE: u64 = 8;

fn key(revision: u64) -> RunKey {
    RunKey::new("0190f1c2-7e3a-7000-8000-00000000000a", revision).expect("a key")
}

fn work(words: &[&str]) -> Work {
    Work {
        command: words.iter().map(|word| (*word).to_owned()).collect(),
        ..Work::default()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = Settings {
        dir: folder.path().to_owned(),
        means: Means::ProcessGroup,
        program: PathBuf::from(env!("CARGO_BIN_EXE_apportion-node-agent")),
        exec_plugin: None,
        work_dir: None,
        users: None,
        margin: Settings::MARGIN,
    };
    let bounds = Bounds {
        log_bytes_max: 1 << 20,
        ..Bounds::default()
    };
    let (runs, _) = Runs::open(settings.clone()).expect("opened");
    let whole = Stopwatch::start();
    let mut starting = Duration::ZERO;
    let mut started = 0;
    for ended in 0..RUNS {
        while started < RUNS.min(ended + AT_ONCE) {
            let one = Stopwatch::start();
            let work = work(&["true"]);
            runs.start(key(started), &work, &bounds, &[])
                .expect("started");
            starting += one.elapsed();
            started += 1;
        }
        let ended = runs.next().await;
        assert!(ended.end.exit.succeeded(), "{ended:?}");
        runs.forget(ended.key).expect("forgotten");
    }
    let rate = f64::from(u32::try_from(RUNS).unwrap_or(u32::MAX)) / whole.elapsed().as_secs_f64();
    let each = starting.as_secs_f64() * 1e6 / RUNS as f64;
    println!(
        "{RUNS} runs of true, {AT_ONCE} at once: {rate:.0} a second; start() takes {each:.0} us"
    );

    let script = "echo ready; exec sleep 1000";
    let sleeper = work(&["sh", "-c", script]);
    runs.start(key(RUNS), &sleeper, &bounds, &[])
        .expect("started");
    while runs.log(key(RUNS), 0, 100).expect("a log").bytes.is_empty() {
        tokio::task::yield_now().await;
    }
    let dir = settings.dir.join(key(RUNS).to_string());
    let shim = fs::read_to_string(dir.join("shim.json")).expect("a shim");
    let shim: serde_json::Value = serde_json::from_str(&shim).expect("JSON");
    let status = fs::read_to_string(format!("/proc/{}/status", shim["pid"])).expect("a process");
    for line in status
        .lines()
        .filter(|line| line.starts_with("VmRSS") || line.starts_with("Rss"))
    {
        println!("shim {line}");
    }
    let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", shim["pid"]));
    for line in rollup
        .unwrap_or_default()
        .lines()
        .filter(|line| line.starts_with("Pss:"))
    {
        println!("shim {line}");
    }
    runs.stop(key(RUNS), Duration::ZERO).expect("told");
    runs.next().await;
}
