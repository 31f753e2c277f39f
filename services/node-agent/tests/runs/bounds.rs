use crate::node::{Node, bounds, command, key, log, next, run, shell};
use node_agent::{Bounds, CpuSet, Means, Reason, StartError, discover};
use std::fs;

#[tokio::test]
async fn a_process_is_held_to_its_bounds() {
    let machine = discover::machine(discover::Reserved::default()).expect("discovered");
    let last: CpuSet = machine.cpus.iter().last().into_iter().collect();
    let script = "grep Cpus_allowed_list /proc/self/status; ulimit -d; nice";
    let own_nice = std::process::Command::new("nice")
        .output()
        .expect("nice is there");
    let own_nice: u8 = String::from_utf8_lossy(&own_nice.stdout)
        .trim()
        .parse()
        .expect("a number");
    let check = async |bounds: Bounds, expected: String| {
        let (_, log) = run(&shell(script), &bounds).await;
        assert_eq!(log, expected, "{bounds:?}");
    };
    let all = &machine.cpus;
    check(
        bounds(),
        format!("Cpus_allowed_list:\t{all}\nunlimited\n{own_nice}\n"),
    )
    .await;
    let held = Bounds {
        memory_bytes: 64 << 20,
        cpus: Some(last.clone()),
        nice: 5,
        ..bounds()
    };
    let nice = (own_nice + 5).min(19);
    check(
        held.clone(),
        format!("Cpus_allowed_list:\t{last}\n65536\n{nice}\n"),
    )
    .await;
    let more = Bounds {
        memory_bytes_limit: 128 << 20,
        ..held
    };
    check(
        more,
        format!("Cpus_allowed_list:\t{last}\n131072\n{nice}\n"),
    )
    .await;
}

#[tokio::test]
async fn a_process_that_fails_at_its_memory_limit_is_out_of_memory() {
    let held = Bounds {
        memory_bytes: 64 << 20,
        ..bounds()
    };
    // `tail` keeps what it has read.
    let keep = |mib: u64| format!("head -c {mib}M /dev/zero | tail -c {mib}M >/dev/null");
    let check = async |script: String, bounds: &Bounds, code, reason| {
        let (ended, _) = run(&shell(&script), bounds).await;
        let end = ended.end;
        let found = (end.exit.code, end.exit.reason);
        assert_eq!(found, (code, reason), "{script}: {:?}", end.usage);
    };
    let (none, out_of_memory) = (Reason::None, Reason::OutOfMemory);
    check(keep(200), &held, 1, out_of_memory).await;
    // Another fault, with little memory, and success with much.
    check(format!("{}; exit 3", keep(16)), &held, 3, none).await;
    check(format!("{}; exit 0", keep(200)), &held, 0, none).await;
    // Without a limit no peak is at one.
    check(format!("{}; exit 3", keep(200)), &bounds(), 3, none).await;
}

#[tokio::test]
async fn bounds_that_cannot_be_held_are_refused() {
    let node = Node::new();
    let runs = node.runs();
    let work = command(&["true"]);
    let no_cpus = Bounds {
        cpus: Some(CpuSet::default()),
        ..bounds()
    };
    let refused = runs.start(key(1), &work, &no_cpus, &[]);
    assert!(matches!(refused, Err(StartError::NoCpus)));
    let too_nice = Bounds {
        nice: 20,
        ..bounds()
    };
    let refused = runs.start(key(1), &work, &too_nice, &[]);
    assert!(matches!(refused, Err(StartError::Nice { nice: 20 })));
    // The machine has no such CPU, which only the kernel knows.
    let elsewhere = Bounds {
        cpus: Some([1023].into_iter().collect()),
        ..bounds()
    };
    runs.start(key(1), &work, &elsewhere, &[]).expect("started");
    assert_eq!(next(&runs).await.end.exit.code, 126);
    assert!(log(&runs, key(1)).contains("cannot take on the limits"));
}

/// The folder stands for one of the kernel's: what is written is seen, and nothing is limited.
#[tokio::test]
async fn a_run_enters_its_cgroup() {
    let mut node = Node::new();
    let cgroups = node.folder.path().join("cgroup");
    let cgroup = cgroups.join(key(1).to_string());
    fs::create_dir_all(&cgroup).expect("made");
    fs::write(cgroup.join("cpu.stat"), "usage_usec 77\n").expect("written");
    fs::write(cgroup.join("memory.peak"), "4096\n").expect("written");
    fs::write(cgroup.join("memory.events"), "oom_kill 1\n").expect("written");
    fs::write(cgroup.join("cgroup.kill"), "").expect("written");
    node.settings.means = Means::CgroupV2(cgroups.clone());
    let runs = node.runs();
    let bounds = Bounds {
        memory_bytes: 1 << 20,
        ..bounds()
    };
    // What outlives its command is killed with the cgroup.
    let work = shell("sleep 1000 & ulimit -d; exit 1");
    runs.start(key(1), &work, &bounds, &[]).expect("started");
    let end = next(&runs).await.end;
    assert_eq!(end.exit.reason, Reason::OutOfMemory);
    assert_eq!((end.usage.cpu_us, end.usage.memory_bytes_peak), (77, 4096));
    assert_eq!(log(&runs, key(1)), "unlimited\n");
    let written = |file: &str| fs::read_to_string(cgroup.join(file)).expect("read");
    assert_eq!(written("cgroup.procs"), "0");
    assert_eq!(written("memory.max"), "1048576");
    assert_eq!(written("cgroup.kill"), "1");
    runs.forget(key(1)).expect("forgotten");
    // A folder in the place of which there cannot be one.
    node.settings.means = Means::CgroupV2(cgroup.join("cpu.stat"));
    drop(runs);
    let refused = node.runs().start(key(1), &work, &bounds, &[]);
    assert!(matches!(refused, Err(StartError::Cgroup(_))));
}
