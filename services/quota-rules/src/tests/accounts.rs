//! Limits at every level, flags, and what cannot ever fit.

use super::{World, check, step_on, words};

#[test]
fn up_to_the_limit_at_every_level() {
    check(
        "limit a cpu 10, limit a/x cpu 6, limit a/x/n cpu 4
         ask 1 a/x/n cpu=4 => 1 reserved
         ask 2 a/x/n cpu=1 => 2 denied quota exceeded: a/x/n cpu (limit 4, actual 5)
         ask 3 a/x/m cpu=3 => 3 denied quota exceeded: a/x cpu (limit 6, actual 7)
         ask 4 a/x/m cpu=2 => 4 reserved
         ask 5 a/x cpu=1 => 5 denied quota exceeded: a/x cpu (limit 6, actual 7)
         ask 6 a/y cpu=5 => 6 denied quota exceeded: a cpu (limit 10, actual 11)
         ask 7 a/y/z cpu=4 => 7 reserved
         ? a cpu => 10/0
         ? a/x cpu => 6/0
         ? a/x/n cpu => 4/0
         start 1 => 
         ? a/x cpu => 2/4
         end 1, ask 8 a cpu=4 => 1 released; 8 reserved
         ? a/x cpu => 2/0",
    );
}

#[test]
fn the_account_nearest_to_it_is_named_and_resources_in_their_order() {
    check(
        "limit a cpu 1, limit a memory 1, limit a pods 9, limit a/x storage 1, limit a/x pods 1
         ask 1 a/x cpu=1 memory=1 storage=1 => 1 reserved
         ask 2 a/x cpu=1 memory=1 storage=1 => 2 denied quota exceeded: a/x storage (limit 1, actual 2)
         ask 3 a/x cpu=1 memory=1 => 3 denied quota exceeded: a/x pods (limit 1, actual 2)
         ask 4 a cpu=1 memory=1 => 4 denied quota exceeded: a cpu (limit 1, actual 2)
         ask 5 a memory=1 => 5 denied quota exceeded: a memory (limit 1, actual 2)
         ask 6 a storage=7 => 6 reserved",
    );
}

#[test]
fn a_tenant_without_a_limit_has_no_cpu_memory_or_gpu_and_all_else() {
    check(
        "ask 1 a cpu=1 => 1 denied quota never fits: a cpu (limit 0, actual 1)
         ask 2 a memory=1 => 2 denied quota never fits: a memory (limit 0, actual 1)
         ask 3 a gpu=1 => 3 denied quota never fits: a gpu (limit 0, actual 1000)
         ask 4 a storage=100 fpga=7 => 4 reserved
         limit a cpu 5
         ask 5 a/x/n cpu=5 => 5 reserved
         limit a cpu none, ask 6 a cpu=1 => 6 denied quota never fits: a cpu (limit 0, actual 1)",
    );
}

#[test]
fn extended_resources_storage_and_pods_are_limited() {
    check(
        "limit a extended:fpga 2, limit a storage 10, limit a/x pods 3
         ask 1 a/x fpga=2 storage=4 => 1 reserved
         ask 2 a/x fpga=1 => 2 denied quota exceeded: a extended:fpga (limit 2, actual 3)
         ask 3 a/x storage=7 => 3 denied quota exceeded: a storage (limit 10, actual 11)
         ask 4 a/x storage=6, ask 5 a/x => 4 reserved; 5 reserved
         ask 6 a/x => 6 denied quota exceeded: a/x pods (limit 3, actual 4)
         ? a storage => 10/0
         ? a/x pods => 3/0",
    );
}

#[test]
fn a_model_limit_that_comes_later_counts_what_may_run_on_it() {
    check(
        "limit a gpu 20000
         ask 1 a gpu=3 => 1 reserved
         limit a gpu:T4 4000
         ask 2 a gpu=2:T4 => 2 denied quota exceeded: a gpu:T4 (limit 4000, actual 5000)
         end 1, ask 3 a gpu=4:T4 => 1 released; 3 reserved",
    );
}

#[test]
fn soft_limits_are_flagged() {
    check(
        "limit a cpu 10 soft=4, limit a/x cpu 8 soft=2
         ask 1 a/x cpu=2 => 1 reserved
         ask 2 a/x cpu=1 => 2 reserved soft
         ask 3 a cpu=1 => 3 reserved
         ask 4 a/y cpu=1 => 4 reserved soft
         ask 5 a/x memory=1 => 5 denied quota never fits: a memory (limit 0, actual 1)",
    );
}

#[test]
fn what_could_never_fit_is_refused_at_once() {
    check(
        "limit a cpu 10, limit a/x cpu 4 burst=6/1000, tenant a wait
         ask 1 a/x cpu=7 => 1 denied quota never fits: a/x cpu (limit 6, actual 7)
         ask 2 a/x cpu=6 => 2 reserved burst
         ask 3 a cpu=11 => 3 denied quota never fits: a cpu (limit 10, actual 11)
         tenant b cohort=c wait, tenant d cohort=c, limit b cpu 4 borrow=3, limit d cpu 8 lend=2
         ask 4 b cpu=7 => 4 denied quota never fits: b cpu (limit 6, actual 7)
         ask 5 b cpu=6 => 5 reserved borrowed",
    );
}

#[test]
fn made_up_names_leave_nothing_behind() {
    check(
        "limit a cpu 4, limit a/x cpu 2
         ? accounts => 2
         ask 1 a/x/made-up cpu=1 up=3 gpu=1:Nonsense => 1 denied quota never fits: a gpu (limit 0, actual 1000)
         ask 2 b/c/d => 2 reserved
         ask 3 a/y/n cpu=1 fpga=1 => 3 reserved
         ? accounts => 7
         ? names => 1
         end 2, end 3 => 2 released; 3 released
         ? accounts => 2
         ? names => 0
         ? live => 0
         limit a/x cpu none, limit a cpu none
         ? accounts => 0
         limit q/r/s cpu none, budget q/r cpu none, tenant q
         ? accounts => 0",
    );
}

#[test]
fn what_waits_again_stays_reserved() {
    check(
        "limit a cpu 4, ask 1 a cpu=4 => 1 reserved
         requeue 1
         ? a cpu => 4/0
         start 1
         ? a cpu => 0/4
         start 1, requeue 1, requeue 1
         ? a cpu => 4/0
         start 1, end 1, end 1 => 1 released
         ? a cpu => 0/0
         end 1",
    );
}

#[test]
fn a_limit_below_use_takes_nothing_away_and_grants_nothing_new() {
    check(
        "limit a cpu 4, ask 1 a cpu=4 => 1 reserved
         limit a cpu 1, ask 2 a cpu=1 => 2 denied quota exceeded: a cpu (limit 1, actual 5)
         end 1, ask 3 a cpu=1 => 1 released; 3 reserved",
    );
}

#[test]
fn facts_that_do_not_fit_are_refused() {
    let asked = "ask 1 a cpu=1";
    for (before, step) in [
        (None, "start 1"),
        (None, "place 1 n"),
        (None, "requeue 1"),
        (Some(asked), "start 1"),
    ] {
        let mut world = World::new();
        before.into_iter().for_each(|it| step_on(&mut world, it));
        let (_, event) = words::event(step, world.now);
        let observed = world.try_observe(9, &event);
        assert!(observed.is_err(), "{before:?}, {step}");
    }
}
