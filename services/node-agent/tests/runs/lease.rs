use crate::node::{Node, bounds, key, lines, lives, log, next, shell, until};
use node_agent::{Found, Lease, Moment, Reason};
use std::time::Duration;

const IGNORES: &str = "trap '' TERM; echo $$; while :; do sleep 1000; done";

#[tokio::test]
async fn without_a_lease_nothing_goes_on_also_without_an_agent() {
    let node = Node::new();
    let runs = node.runs();
    let lease = Lease::renewed(Moment::now(), 4000);
    lease.write(runs.dir()).expect("written");
    runs.start(key(1), &shell(IGNORES), &bounds(), &[])
        .expect("started");
    let pid = lines(&runs, key(1), 1).await.remove(0);
    drop(runs);
    until("the run is killed", || !lives(&pid)).await;
    assert!(lease.stop().is_over());
    until("the shim has said so", || {
        node.run_file(key(1), "end.json").exists()
    })
    .await;
    let (runs, found) = node.open();
    let ended = match found.as_slice() {
        [Found::Ended(ended)] => *ended,
        // The shim has said how it ended, and is about to be gone.
        [Found::Running(_)] => next(&runs).await,
        _ => panic!("{found:?}"),
    };
    assert_eq!(ended.end.exit.reason, Reason::Killed);
}

/// Renews a first lease of so many milliseconds and checks that both runs outlive it. Returns false if it was over before it
/// could be renewed.
async fn outlive_the_first(lease_ms: i64) -> bool {
    let node = Node::new();
    let runs = node.runs();
    let first = Lease::renewed(Moment::now(), lease_ms);
    first.write(runs.dir()).expect("written");
    runs.start(
        key(1),
        &shell("echo ready; read line; exit 3"),
        &bounds(),
        &[],
    )
    .expect("started");
    runs.start(
        key(2),
        &shell("echo $$; trap 'exit 4' TERM; while :; do sleep 0.01; done"),
        &bounds(),
        &[],
    )
    .expect("started");
    until("the run has written, or the first lease is over", || {
        log(&runs, key(2)).contains('\n') || first.stop().is_over()
    })
    .await;
    let renewed = Lease::renewed(Moment::now(), 3_600_000);
    renewed.write(runs.dir()).expect("written");
    if first.stop().is_over() {
        runs.stop(key(2), Duration::ZERO).expect("told");
        return false;
    }
    let pid = lines(&runs, key(2), 1).await.remove(0);
    until("the first lease is over", || first.stop().is_over()).await;
    assert!(lives(&pid));
    assert_eq!(next(&runs).await.key, key(1));
    runs.stop(key(2), Duration::from_secs(3600)).expect("told");
    let ended = next(&runs).await;
    assert_eq!((ended.key, ended.end.exit.code), (key(2), 4));
    assert_eq!(log(&runs, key(1)), "ready\n");
    true
}

#[tokio::test]
async fn a_lease_that_is_renewed_goes_on() {
    // A busy machine needs longer to start the runs.
    for lease_ms in [600, 6_000, 60_000] {
        if outlive_the_first(lease_ms).await {
            return;
        }
    }
    panic!("no first lease could be renewed in time");
}

#[tokio::test]
async fn a_run_that_starts_after_the_lease_is_stopped() {
    let node = Node::new();
    let runs = node.runs();
    Lease::renewed(Moment::now(), 0)
        .write(runs.dir())
        .expect("written");
    runs.start(key(1), &shell("exec sleep 1000"), &bounds(), &[])
        .expect("started");
    let exit = next(&runs).await.end.exit;
    assert!(exit.signal == 15 || exit.signal == 9, "{exit:?}");
}
