//! Queries on accounts and allocations.

use super::*;
use vocab::AllocationNo;

/// Returns the queries on an allocation that are true, the resources that it counts on, and its budgets.
pub(super) fn claim(world: &World, no: u64) -> String {
    let (state, no) = (&world.state, AllocationNo(no));
    let answers = [
        ("holds", state.holds(no)),
        ("runs", state.runs(no)),
        ("waits", state.waits(no)),
        ("chooses", state.chooses(no)),
    ];
    let answers = answers.into_iter().filter(|(_, yes)| *yes);
    let mut words: Vec<String> = answers.map(|(name, _)| name.to_owned()).collect();
    words.extend(
        state
            .asks(no)
            .map(|(account, priority)| format!("asks as {account} at {priority}")),
    );
    let mut counted = Vec::new();
    state.each_counted(no, |account, resource| {
        counted.push(format!("{account} {resource}"))
    });
    if !counted.is_empty() {
        words.push(format!("counts on {}", counted.join(", ")));
    }
    let budgets = state.budgets(no);
    words.extend(budgets.map(|(account, of)| format!("budget {account} {}", of.name())));
    words.join("; ")
}

#[test]
fn an_allocation_asks_holds_runs_and_is_gone() {
    check(
        "tenant a wait, limit a cpu 4, limit a gpu 9000, limit a gpu:T4 2000, limit a gpu:V100 2000, budget a cpu 9 day
         ask 1 a/x cpu=3 prio=2 => 1 reserved
         ask 2 a cpu=2 prio=-5 => 2 waits quota exceeded: a cpu (limit 4, actual 5)
         ask 3 a gpu=1:T4:V100 => 3 reserved on [T4,V100] not []
         ask 4 a gpu=1 => 4 reserved on [T4,V100] not []
         ? claim 1 => holds; counts on a/x cpu, a/x pods, a cpu, a pods; budget a cpu
         ? claim 2 => waits; asks as a at -5; counts on a cpu, a pods; budget a cpu
         ? claim 3 => holds; chooses; counts on a gpu, a pods, a gpu:T4, a gpu:V100; budget a cpu
         ? claim 4 => holds; chooses; counts on a gpu, a pods, a gpu:T4, a gpu:V100; budget a cpu
         ? claim 9 =>
         ? waiting => 1
         ? limited a => cpu gpu gpu:T4 gpu:V100
         ? limited a/x =>
         start 1
         ? claim 1 => holds; runs; counts on a/x cpu, a/x pods, a cpu, a pods; budget a cpu
         requeue 1
         ? claim 1 => holds; counts on a/x cpu, a/x pods, a cpu, a pods; budget a cpu
         end 1 => 1 released; 2 reserved
         ? claim 1 =>
         ? waiting => 0",
    );
}

#[test]
fn what_is_planned_are_changes_to_come_and_overrides_that_last() {
    check(
        "limit a cpu 4
         ? planned a cpu => []
         limit a cpu 8 from=100, limit a cpu 2 from=50 until=150, limit a memory 8 from=10
         ? planned a cpu => [2, 3]
         ? planned a memory => [4]
         ? planned b cpu => []
         at 100 => a memory now 8; a cpu now 2
         ? planned a cpu => [3]
         at 150 => a cpu now 8
         ? planned a cpu => []",
    );
}
