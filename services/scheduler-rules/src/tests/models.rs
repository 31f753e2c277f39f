//! Quota that is counted by the model of the GPUs: where it may be placed, and what follows when a run is over.

use super::*;

fn world() -> World {
    let mut w = World::new();
    for model in ["h100", "t4"] {
        w.node(
            model,
            1,
            NodeCapacity {
                gpu_model: Some(token(model)),
                ..capacity(32, 256, 4)
            },
        );
    }
    w
}

fn devices(count: u16, value: i32) -> AllocationSpec {
    class(gpus(job(1, 1), count, 1000), value)
}

#[test]
fn it_is_placed_on_models_that_it_has_quota_of() {
    for (except, expected) in [("t4", "h100"), ("h100", "t4")] {
        let mut w = world();
        let jobs: Vec<u64> = (0..5).map(|_| w.request("t", devices(1, 0))).collect();
        jobs.iter().for_each(|no| w.grant_but(*no, &[except]));
        w.settle();
        let nodes: Vec<_> = jobs.iter().map(|no| w.node_of(*no)).collect();
        let there = Some(expected.to_owned());
        assert_eq!(nodes[..4], [(); 4].map(|()| there.clone()));
        assert_eq!(
            nodes[4], None,
            "four fit there, and it waits beside a free node"
        );
        let of_any = w.submit("t", 1, devices(4, 0));
        w.settle();
        assert_eq!(w.node_of(of_any[0]).as_deref(), Some(except));
    }
}

fn on(node: &str) -> String {
    format!("1 on {node} 0:1000 1:1000 2:1000 3:1000")
}

#[test]
fn it_asks_again_after_each_run() {
    let mut w = world();
    let no = w.request("t", devices(4, 0));
    w.grant_but(no, &["t4"]);
    check(&mut w, &[no], &[&on("h100")]);
    w.report_by_itself(no, "h100", RunState::Started);
    w.lose("h100");
    check(
        &mut w,
        &[no],
        &["1 started", "1 requeued node_lost", "1 waits quota"],
    );
    check(&mut w, &[no], &[]);
    w.grant_but(no, &["h100"]);
    check(&mut w, &[no], &[&on("t4")]);
    // What nobody limits any more is queued again as it is.
    w.lose("t4");
    check(&mut w, &[no], &["1 requeued node_lost", "1 waits quota"]);
    w.grant(no);
    w.node("t4", 2, NodeCapacity::default());
    w.node("h100", 2, capacity(32, 256, 4));
    check(&mut w, &[no], &[&on("h100")]);
}

#[test]
fn what_is_taken_back_when_it_was_given_up_is_not_given_up_again() {
    let mut w = world();
    let no = w.request("t", devices(4, 0));
    w.grant_but(no, &["t4"]);
    w.settle();
    w.lose("h100");
    check(&mut w, &[no], &["1 requeued node_lost", "1 waits quota"]);
    // Quota had not read that.
    w.reclaim(no, None);
    check(&mut w, &[no], &[]);
}

#[test]
fn who_has_quota_again_in_a_pause_is_told_of_the_pause() {
    let mut w = world();
    let no = w.request(
        "t",
        AllocationSpec {
            restart: vocab::Restart {
                retries: 3,
                never: false,
            },
            ..devices(4, 0)
        },
    );
    w.grant_but(no, &["t4"]);
    w.settle();
    w.report_by_itself(no, "h100", RunState::Failed);
    check(&mut w, &[no], &["1 requeued failed", "1 waits quota"]);
    // Quota's clock may be ahead; the pause is by the one that began it.
    w.now.0 += 600_000;
    w.grant_but(no, &["h100"]);
    w.now.0 -= 600_000;
    check(&mut w, &[no], &["1 waits backoff"]);
    w.now.0 += 600_000;
    w.settle();
    assert_eq!(w.node_of(no).as_deref(), Some("t4"));
}

#[test]
fn who_waits_for_a_place_keeps_its_quota() {
    let mut w = world();
    w.submit("t", 1, devices(4, 3));
    w.submit("t", 1, devices(4, 3));
    w.settle();
    let no = w.request("t", devices(4, 0));
    w.grant_but(no, &["t4"]);
    w.settle();
    assert!(matches!(
        w.state.live()[&AllocationNo(no)].phase,
        Phase::Queued(..)
    ));
}
