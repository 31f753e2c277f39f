//! Levels, resource types, limits and what is remarkable about them.

use super::*;

#[test]
fn every_level_of_the_path_holds_it() {
    let held = [
        "t cpu [none] 5/0 -",
        "t/a cpu [none] 5/0 -",
        "t/a/n cpu [none] 5/0 -",
    ];
    check(accounts, "ask 1 t/a/n cpu=5, reserved 1", &held);
    check(
        accounts,
        "ask 1 t/a cpu=5, reserved 1, started 1, ask 2 t/b cpu=1, reserved 2",
        &[
            "t cpu [none] 1/5 5@3",
            "t/a cpu [none] 0/5 5@3",
            "t/b cpu [none] 1/0 -",
        ],
    );
}

#[test]
fn accounts_below_without_limits_go_when_they_hold_nothing() {
    let over = "ask 1 t/a/n cpu=5, reserved 1, started 1, ended 1, released 1";
    check(accounts, over, &["t cpu [none] 0/0 5@3"]);
    check(
        accounts,
        &format!("limit t/a cpu 9, {over}"),
        &["t cpu [none] 0/0 5@4", "t/a cpu [9] 0/0 5@4"],
    );
    check(
        accounts,
        &format!("limit t/a cpu 9, {over}, limit t/a cpu none v=2"),
        &["t cpu [none] 0/0 5@4"],
    );
    // Names that come from requests.
    check(
        accounts,
        "ask 1 t gpu=1 model=T4 fpga=3, reserved 1, ended 1, released 1",
        &[],
    );
}

#[test]
fn every_resource_type_is_counted() {
    check(
        accounts,
        "ask 1 t cpu=1 memory=2 gpu=1 model=T4 fpga=3 storage=4, reserved 1",
        &[
            "t cpu [none] 1/0 -",
            "t memory [none] 2/0 -",
            "t gpu [none] 1000/0 -",
            "t gpu:T4 [none] 1000/0 -",
            "t storage [none] 4/0 -",
            "t extended:fpga [none] 3/0 -",
        ],
    );
    let run = run("ask 1 t cpu=1, reserved 1, ask 2 t, reserved 2, started 2");
    let pods = &run.tables.accounts[&(Account::parse("t").unwrap(), QuotaResource::Pods)];
    assert_eq!((pods.reserved, pods.used), (1, 1));
}

#[test]
fn gpus_of_any_model_count_on_every_model() {
    let any = "limit t gpu:T4 9000, ask 1 t gpu=4, reserved 1, started 1";
    let total = "t gpu [none] 0/4000 4000@4";
    check(accounts, any, &[total, "t gpu:T4 [9000] 0/4000 4000@4"]);
    // Also on one whose limit comes later, as long as it has one.
    let later = format!("{any}, limit t gpu:A100 1000");
    let rows = [
        total,
        "t gpu:A100 [1000] 0/4000 4000@5 over@5",
        "t gpu:T4 [9000] 0/4000 4000@4",
    ];
    check(accounts, &later, &rows);
    let gone = format!("{later}, limit t gpu:A100 none");
    check(accounts, &gone, &[total, "t gpu:T4 [9000] 0/4000 4000@4"]);
    // And on one that another request names, as long as that holds.
    let named = format!("{any}, ask 2 t gpu=1 model=V100, reserved 2");
    let rows = [
        "t gpu [none] 1000/4000 4000@4",
        "t gpu:T4 [9000] 0/4000 4000@4",
        "t gpu:V100 [none] 1000/4000 4000@6",
    ];
    check(accounts, &named, &rows);
    let rest = format!("{named}, ended 1, released 1");
    let rows = [
        "t gpu [none] 1000/0 4000@4",
        "t gpu:T4 [9000] 0/0 4000@4",
        "t gpu:V100 [none] 1000/0 4000@6",
    ];
    check(accounts, &rest, &rows);
    let rows = [total, "t gpu:T4 [9000] 0/4000 4000@4"];
    check(accounts, &format!("{named}, ended 2, released 2"), &rows);
}

#[test]
fn on_a_node_gpus_count_on_the_model_of_that_node() {
    let granted = "node n1 T4, limit t gpu:T4 9000, limit t gpu:V100 9000, ask 1 t gpu=4, \
                   reserved 1 T4+V100";
    let rows = [
        "t gpu [none] 4000/0 -",
        "t gpu:T4 [9000] 4000/0 -",
        "t gpu:V100 [9000] 4000/0 -",
    ];
    check(accounts, granted, &rows);
    let placed = format!("{granted}, placed 1 n1, started 1");
    let rows = [
        "t gpu [none] 0/4000 4000@7",
        "t gpu:T4 [9000] 0/4000 4000@7",
        "t gpu:V100 [9000] 0/0 -",
    ];
    check(accounts, &placed, &rows);
    let back = format!("{placed}, requeued 1, off 1, released 1");
    let rows = [
        "t gpu [none] 0/0 4000@7",
        "t gpu:T4 [9000] 0/0 4000@7",
        "t gpu:V100 [9000] 0/0 -",
    ];
    check(accounts, &back, &rows);
}

#[test]
fn leases_are_counted_until_they_end() {
    let one = "acquire 1 t, answer 5 1 granted";
    check(accounts, "acquire 1 t", &[]);
    check(accounts, "acquire 1 t, answer 5 1 refused", &[]);
    check(accounts, one, &["t leases [none] 0/1 1@2"]);
    for end in [
        "release 2 t 5, answer 6 2 released",
        "reclaim 2 t 5, answer 6 2 reclaimed",
        "expired 5 t",
        // Said again.
        "expired 5 t, release 2 t 5, answer 6 2 released",
    ] {
        let over = ["t leases [none] 0/0 1@2"];
        check(accounts, &format!("{one}, {end}"), &over);
    }
    check(
        accounts,
        &format!("{one}, release 2 t 5, answer 6 2 refused, acquire 3 t, answer 7 3 granted"),
        &["t leases [none] 0/2 2@6"],
    );
}

#[test]
fn limits_flag_what_is_above_them() {
    let held = "limit t cpu 8 soft=5 burst=10, ask 1 t cpu=6, reserved 1";
    check(accounts, held, &["t cpu [8 soft 5 burst 10] 6/0 - soft@3"]);
    // Since the first moment, without a break.
    let more = format!("{held}, ask 2 t cpu=3, reserved 2");
    let above = ["t cpu [8 soft 5 burst 10] 9/0 - soft@3 over@5"];
    check(accounts, &more, &above);
    check(
        accounts,
        &format!("{more}, ended 2, released 2"),
        &["t cpu [8 soft 5 burst 10] 6/0 - soft@3"],
    );
    check(
        accounts,
        &format!("{more}, ended 1, released 1, ask 3 t cpu=6, reserved 3"),
        &["t cpu [8 soft 5 burst 10] 9/0 - soft@9 over@9"],
    );
    // Lowered below what is held, and taken back.
    check(
        accounts,
        &format!("{held}, limit t cpu 4 v=2"),
        &["t cpu [4] 6/0 - over@4"],
    );
    check(
        accounts,
        &format!("{held}, limit t cpu none v=2"),
        &["t cpu [none] 6/0 -"],
    );
}

#[test]
fn what_a_tenant_of_a_cohort_holds_beyond_its_limit_is_borrowed() {
    let held = "limit t cpu 4 borrow=3, ask 1 t/a cpu=9, reserved 1";
    let over = |text: &str| format!("t cpu [4 borrow 3] 9/0 - over@3{text}");
    let expected = |text| [over(text), "t/a cpu [none] 9/0 -".into()];
    let check = |steps: &str, text| {
        let found = accounts(&run(steps));
        assert_eq!(found, expected(text), "{steps}");
    };
    check(held, "");
    check(&format!("{held}, tenant t cohort=c"), " borrowed 3");
    check(&format!("{held}, tenant t cohort=c never"), "");
    check(&format!("{held}, tenant t cohort=c, tenant t v=2"), "");
}

#[test]
fn planned_limits_are_in_force_when_quota_says_so() {
    let plan = "limit t cpu 4, limit t cpu 8 v=2 from=100, limit t cpu 9 v=3 from=50 until=80";
    check(accounts, plan, &["t cpu [4] 0/0 -"]);
    let rows = ["t cpu v2 [8] from@100", "t cpu v3 [9] from@50 until@80"];
    check(planned, plan, &rows);
    // Shown until it is over.
    let begun = format!("{plan}, @49, in-force t cpu 9");
    check(accounts, &begun, &["t cpu [9] 0/0 -"]);
    check(planned, &begun, &rows);
    let ended = format!("{begun}, @79, in-force t cpu 4");
    check(accounts, &ended, &["t cpu [4] 0/0 -"]);
    check(planned, &ended, &rows[..1]);
    let changed = format!("{ended}, @99, in-force t cpu 8");
    check(accounts, &changed, &["t cpu [8] 0/0 -"]);
    check(planned, &changed, &[]);
    // What is set below an override holds when that is over.
    let below = format!("{begun}, limit t cpu 5 v=4");
    check(accounts, &below, &["t cpu [9] 0/0 -"]);
    check(
        accounts,
        "in-force t cpu 8",
        &["illegal: no limits to come"],
    );
}
