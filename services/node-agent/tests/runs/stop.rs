use crate::node::{Node, bounds, command, key, lines, lives, next, shell};
use node_agent::{Exit, Found, Reason, RunError, Work};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// Hears the signal at whatever moment it comes; a shell that is just starting a program does not.
fn obeying() -> Work {
    let script = "import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print('ready', flush=True)
signal.sigwait([signal.SIGTERM])
sys.exit(3)";
    command(&["python3", "-c", script])
}

/// Stops it once it has said that it is ready.
async fn check(work: Work, graces: &[Duration], expected: (u8, u8, Reason)) {
    let node = Node::new();
    let runs = node.runs();
    runs.start(key(1), &work, &bounds(), &[]).expect("started");
    lines(&runs, key(1), 1).await;
    for grace in graces {
        runs.stop(key(1), *grace).expect("told");
    }
    let (code, signal, reason) = expected;
    let exit = Exit {
        code,
        signal,
        reason,
    };
    assert_eq!(next(&runs).await.end.exit, exit, "{work:?}");
    runs.stop(key(1), HOUR).expect("nothing is left to do");
}

const IGNORES: &str = "trap '' TERM; echo ready; while :; do sleep 1000; done";

#[tokio::test]
async fn a_run_that_obeys_ends_as_it_likes() {
    check(obeying(), &[HOUR], (3, 0, Reason::None)).await;
    check(
        shell("echo ready; exec sleep 1000"),
        &[HOUR],
        (0, 15, Reason::None),
    )
    .await;
    // One that stands still is woken, or it could not obey.
    check(
        shell("echo ready; kill -STOP $$; exit 1"),
        &[HOUR],
        (0, 15, Reason::None),
    )
    .await;
}

#[tokio::test]
async fn a_run_that_does_not_is_killed_after_the_grace() {
    let killed = (0, 9, Reason::Killed);
    check(shell(IGNORES), &[Duration::from_millis(30)], killed).await;
    check(shell(IGNORES), &[Duration::ZERO], killed).await;
    // The second word shortens the grace, and the third does not lengthen it.
    check(
        shell(IGNORES),
        &[HOUR, Duration::from_millis(30), HOUR],
        killed,
    )
    .await;
}

#[tokio::test]
async fn a_grace_ends_without_an_agent() {
    let node = Node::new();
    let runs = node.runs();
    runs.start(key(1), &shell(IGNORES), &bounds(), &[])
        .expect("started");
    lines(&runs, key(1), 1).await;
    runs.stop(key(1), Duration::from_millis(30)).expect("told");
    drop(runs);
    crate::node::until("the shim has said how it ended", || {
        node.run_file(key(1), "end.json").exists()
    })
    .await;
    crate::node::until("the shim is gone", || {
        let (_runs, found) = node.open();
        matches!(found[..], [Found::Ended(ended)] if ended.end.exit.reason == Reason::Killed)
    })
    .await;
}

#[tokio::test]
async fn whoever_has_left_its_session_is_stopped_too() {
    let node = Node::new();
    let runs = node.runs();
    let script = "setsid sh -c 'echo $$; exec sleep 1000' & wait; exit 5";
    runs.start(key(1), &shell(script), &bounds(), &[])
        .expect("started");
    let pid = lines(&runs, key(1), 1).await.remove(0);
    assert!(lives(&pid));
    runs.stop(key(1), HOUR).expect("told");
    next(&runs).await;
    assert!(!lives(&pid));
}

#[tokio::test]
async fn a_run_can_be_stopped_before_it_has_begun() {
    let node = Node::new();
    let runs = node.runs();
    for revision in 0..10 {
        let work = command(&["sleep", "1000"]);
        runs.start(key(revision), &work, &bounds(), &[])
            .expect("started");
        runs.stop(key(revision), HOUR).expect("told");
        let exit = next(&runs).await.end.exit;
        assert_eq!((exit.signal, exit.reason), (15, Reason::None));
    }
    let unknown = runs.stop(key(99), HOUR);
    assert!(matches!(unknown, Err(RunError::NotFound(_))));
}
