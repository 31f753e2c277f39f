//! Every view counts the same states, whatever happens to the allocations.

use super::{explain::Cell, *};
use chassis::query::{Asked, Verb};
use ledger::memory::Seeded;
use scheduler::query::{
    AllocationsQueries, JobSetsQueries, QueueQueries, QueuesQueries, TenantsQueries,
};
use schemas::v1::{
    self, AllocationState as State, AllocationsQuery, JobSetsQuery, QueueQuery, QueuesQuery,
    TenantsQuery,
};
use std::collections::BTreeMap;
use vocab::{
    Event, LifeFact, PlacementPolicy, Stage,
    fact::{
        AllocationEnded, AllocationNominated, AllocationPlaced, AllocationPreempted,
        AllocationRequeued, AllocationStarted, AllocationStopping, AllocationWaiting, Inputs as _,
        PendingGroupExplained, QuotaDenied, QuotaReserved, QuotaWaiting,
    },
};

const ALLOCATIONS: usize = 12;
const FACTS: usize = 160;
/// Facts between two comparisons.
const BETWEEN: usize = 20;

/// A fact about the allocation that may follow in some stage.
fn fact(random: &mut Seeded, allocation: AllocationNo) -> Event {
    let reasons = [
        WaitingReason::NoRoomNow,
        WaitingReason::Quota,
        WaitingReason::Dependency,
        WaitingReason::Nominated,
    ];
    let rules = [
        Rule::QuotaExceeded,
        Rule::DependencyPending,
        Rule::IncompleteGang,
    ];
    let pick = random.below(4) as usize;
    let refusal = Refusal::over(rules[pick % rules.len()], "t cpu", 1, 2);
    let node = token("n1");
    // Later than all facts of the history.
    let at = Millis(1_700_001_000_000);
    match random.below(12) {
        0 | 1 => QuotaReserved {
            allocation,
            flags: QuotaFlags::default(),
            models: None,
        }
        .into(),
        2 => QuotaWaiting {
            allocation,
            refusal,
        }
        .into(),
        3 if pick == 0 => QuotaDenied {
            allocation,
            refusal,
        }
        .into(),
        3 | 4 => AllocationWaiting {
            allocation,
            reason: reasons[pick],
            pending_group: (pick == 0).then_some(PendingGroupNo(1)),
        }
        .into(),
        5 => AllocationNominated {
            allocation,
            node,
            incarnation: 1,
        }
        .into(),
        6 => AllocationPlaced {
            allocation,
            node,
            incarnation: 1,
            gpus: Default::default(),
            zones: 0,
            policy: PlacementPolicy::Default,
            candidates: Default::default(),
        }
        .into(),
        7 => AllocationStarted { allocation, at }.into(),
        8 => AllocationPreempted {
            allocation,
            cause: PreemptionCause::Drain,
            by: None,
            grace_until: at,
        }
        .into(),
        9 => AllocationStopping {
            allocation,
            time_limit: false,
        }
        .into(),
        10 => AllocationRequeued {
            allocation,
            cause: EndCause::NodeLost,
            at,
            not_before: Millis(at.0 * pick.min(2) as i64),
            exit: None,
        }
        .into(),
        _ if pick == 0 => AllocationEnded {
            allocation,
            cause: EndCause::Cancelled,
            at,
            exit: None,
        }
        .into(),
        _ => PendingGroupExplained {
            pending_group: PendingGroupNo(1),
            queue: token("shared"),
            reason: reasons[(pick % 2) * 2],
            head: allocation,
            counts: Vec::new(),
            shortfall: Vec::new(),
            share_ppm: 0,
            fair_share_ppm: 0,
        }
        .into(),
    }
}

fn asked<Q>(tenant: &str, query: Q) -> Asked<Q> {
    Asked {
        tenant: token(tenant),
        applied: Lsn(0),
        query,
    }
}

/// Number of waiting allocations by reason, 0 for none.
type Waiting = BTreeMap<i32, u64>;

fn count(reasons: impl Iterator<Item = i32>) -> Waiting {
    reasons.fold(Waiting::new(), |mut all, reason| {
        *all.entry(reason).or_default() += 1;
        all
    })
}

async fn compare(pool: &PgPool) {
    let allocations = AllocationsQueries { pool: pool.clone() };
    let list = async |state: State| {
        let query = AllocationsQuery {
            states: vec![state.into()],
            ..AllocationsQuery::default()
        };
        allocations.answer(asked("t", query)).await.unwrap()
    };
    let listed = list(State::Waiting).await.allocations;
    let reason = |view: &v1::AllocationView| view.waiting.as_ref().map_or(0, |it| it.reason);
    let waiting = count(listed.iter().map(reason));
    let all = listed.len() as u64;

    let queue = QueueQueries { pool: pool.clone() };
    let queue = queue.answer(asked("t", QueueQuery::default())).await;
    let in_queue = queue.unwrap().waiting;
    assert_eq!(count(in_queue.iter().map(|it| it.reason)), waiting, "queue");

    let queues = QueuesQueries { pool: pool.clone() };
    let queues = queues.answer(asked("_operator", QueuesQuery::default()));
    let queues = queues.await.unwrap().queues;
    let mut in_queues = Waiting::new();
    for one in queues.iter().flat_map(|queue| &queue.waiting) {
        *in_queues.entry(one.reason).or_default() += one.allocations;
    }
    assert_eq!(in_queues, waiting, "queues");

    let job_sets = JobSetsQueries { pool: pool.clone() };
    let job_sets = job_sets.answer(asked("t", JobSetsQuery::default()));
    let job_sets = job_sets.await.unwrap().job_sets;
    let tenants = TenantsQueries { pool: pool.clone() };
    let tenants = tenants.answer(asked("_operator", TenantsQuery::default()));
    let tenants = tenants.await.unwrap().tenants;
    for (state, of_job_set, of_tenant) in [
        (
            State::Requested,
            job_sets.iter().map(|it| it.requested).sum::<u64>(),
            tenants.iter().map(|it| it.requested).sum::<u64>(),
        ),
        (
            State::Waiting,
            job_sets.iter().map(|it| it.waiting).sum(),
            tenants.iter().map(|it| it.waiting).sum(),
        ),
        (
            State::Placed,
            job_sets.iter().map(|it| it.placed).sum(),
            tenants.iter().map(|it| it.placed).sum(),
        ),
        (
            State::Started,
            job_sets.iter().map(|it| it.started).sum(),
            tenants.iter().map(|it| it.started).sum(),
        ),
        (
            State::Stopping,
            job_sets.iter().map(|it| it.stopping).sum(),
            tenants.iter().map(|it| it.stopping).sum(),
        ),
    ] {
        let listed = list(state).await.allocations;
        let told = listed.iter().all(|view| view.state() == state);
        assert!(told, "{state:?} lists {listed:?}");
        let listed = listed.len() as u64;
        assert_eq!((of_job_set, of_tenant), (listed, listed), "{state:?}");
    }
    assert_eq!(waiting.values().sum::<u64>(), all);
}

#[tokio::test]
async fn every_view_counts_the_same_states() {
    let scratch = ready("views").await;
    let (mut cell, pool) = (Cell::new(&scratch).await, scratch.pool());
    let mut random = Seeded::new(43);
    let mut stages = Vec::new();
    for _ in 0..ALLOCATIONS {
        stages.push((cell.only_request("t").await, Stage::Requested));
    }
    let mut facts = 0;
    while facts < FACTS {
        let at = random.below(ALLOCATIONS as u64) as usize;
        let (allocation, stage) = stages[at];
        let event = fact(&mut random, allocation);
        if let Some(fact) = LifeFact::of(&event) {
            match stage.next(fact) {
                Some(next) if !stage.is_over() => stages[at].1 = next,
                _ => continue,
            }
        }
        cell.say(event).await;
        facts += 1;
        if facts % BETWEEN == 0 {
            compare(&pool).await;
        }
    }
}
