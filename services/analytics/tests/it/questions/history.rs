//! The plan as a ledger, and the tables that are filled from it.

use crate::questions::{
    common::{Database, Journal, LEDGER, operation, token},
    plan::{AWAY, Asked, BEGIN, BUDGETS, CLOSED, END, KNOWN, NAMED, PLACES, PRICES, Plan, Wait},
    samples,
};
use analytics::store::{Beside, Store};
use std::{collections::BTreeMap, error::Error};
use vocab::fact::{
    AllocationEnded, AllocationPlaced, AllocationPreempted, AllocationRequested,
    AllocationRequeued, AllocationStarted, AllocationWaiting, BudgetSet, CordonSet,
    NodeConditionChanged, NodeForgotten, NodeLost, NodeReady, NodeRegistered, PeriodClosed,
    QuotaDenied, RateSet,
};
use vocab::{
    Account, AdminChange, AllocationNo, AllocationSpec, Budget, BudgetOf, Event, Gang, GpuRequest,
    Millis, Month, NodeCapacity, Operation, PlacementPolicy, RateScope, Refusal, ResourceKey, Rule,
    RunExit, Token,
};

/// The moment and the position of each event, and which events were a run's start and end.
pub struct Ledger {
    pub frames: Vec<(i64, u64)>,
    /// By allocation and attempt.
    pub starts: BTreeMap<(u64, u32), u64>,
    pub ends: BTreeMap<(u64, u32), u64>,
}

/// Events with their moments and, of requests, the allocations' numbers.
#[derive(Default)]
struct Script {
    said: Vec<(i64, u64, Event)>,
}

impl Script {
    fn event(&mut self, now: i64, no: u64, event: impl Into<Event>) {
        self.said.push((now, no, event.into()));
    }

    fn setting(&mut self, now: i64, change: AdminChange, version: u64) {
        self.event(now, 0, change.applied(operation("_operator"), version));
    }
}

fn some(text: &str) -> Option<Token> {
    (!text.is_empty()).then(|| token(text))
}

fn spec(asked: &Asked) -> AllocationSpec {
    let gpu = |(count, milli)| GpuRequest {
        count,
        milli,
        models: Vec::new(),
    };
    let gpus = match asked.gpu {
        0 => None,
        milli if milli < 1000 => Some((1, milli as u16)),
        milli => Some(((milli / 1000) as u16, 1000)),
    };
    AllocationSpec {
        gpu: gpus.map(gpu),
        queue: some(asked.queue).filter(|queue| queue.as_str() != asked.tenant),
        priority_class: some(asked.class),
        team: some(asked.team),
        namespace: some(asked.namespace),
        gang: some(&asked.gang).map(|name| Gang {
            name,
            size: 4,
            min: 1,
            uniform_label: None,
        }),
        labels: some(asked.project)
            .map(|project| (token("project"), project))
            .into_iter()
            .collect(),
        ..AllocationSpec::plain(token(asked.job_set), asked.cpu, asked.memory)
    }
}

fn capacity(place: usize) -> NodeCapacity {
    let place = &PLACES[place];
    let labels = [
        ("cluster", place.cluster),
        ("pool", place.pool),
        ("zone", place.zone),
    ];
    NodeCapacity {
        cpu_milli: place.cpu_milli,
        memory_bytes: place.memory_bytes,
        gpus: place.gpus as u16,
        gpu_model: some(place.model),
        labels: labels
            .into_iter()
            .filter_map(|(name, value)| Some((token(name), some(value)?)))
            .collect(),
        ..NodeCapacity::default()
    }
}

fn requested(script: &mut Script, of: &Asked, wait: Wait) {
    if wait.attempt == 1 {
        let operation = Operation {
            operation_id: some(&of.operation),
            ..operation(of.tenant)
        };
        let spec = spec(of);
        script.event(
            wait.queued,
            of.allocation,
            AllocationRequested { operation, spec },
        );
    }
    if let Some(reason) = wait.reason {
        let waiting = AllocationWaiting {
            allocation: AllocationNo(of.allocation),
            reason,
            pending_group: None,
        };
        script.event(wait.queued, 0, waiting);
    }
}

fn settings(script: &mut Script) {
    for price in &PRICES {
        let [tenant, priority_class, pool, cluster] = price.scope.map(some);
        let scope = RateScope {
            tenant,
            priority_class,
            pool,
            cluster,
        };
        let change = AdminChange::Rate(RateSet {
            resource: ResourceKey::parse(price.resource).expect("a resource"),
            micro_per_unit_hour: price.micro.unwrap_or(0),
            effective_from: Millis(price.from),
            scope,
            withdrawn: price.micro.is_none(),
        });
        script.setting(price.said, change, price.version);
    }
    for set in &BUDGETS {
        let [tenant, team, namespace] = set.account;
        let change = AdminChange::Budget(BudgetSet {
            account: Account {
                tenant: token(tenant),
                team: some(team),
                namespace: some(namespace),
            },
            of: BudgetOf::parse(set.of).expect("what it is of"),
            budget: (set.budget).map(|(amount, period)| Budget { amount, period }),
        });
        script.setting(set.said, change, set.version);
    }
    let month = Month(202_610);
    script.setting(CLOSED, AdminChange::Period(PeriodClosed { month }), 1);
}

fn nodes(script: &mut Script) {
    let registered = |place: usize, incarnation| NodeRegistered {
        node: token(PLACES[place].name),
        incarnation,
        boot: incarnation,
        capacity: capacity(place),
    };
    for place in 0..PLACES.len() {
        script.event(BEGIN + place as i64, 0, registered(place, 1));
    }
    for (version, away) in (1..).zip(&AWAY) {
        let node = token(away.node);
        if !away.lost {
            for (at, cordoned) in [(away.from, true), (away.until, false)] {
                let node = node.clone();
                let change = AdminChange::Cordon(CordonSet {
                    node,
                    cordoned,
                    drain: false,
                    at_once: 0,
                });
                script.setting(at, change, 2 * version + u64::from(!cordoned));
            }
            continue;
        }
        // No node of this history is replaced twice.
        let incarnation = 1;
        let last_seen = Millis(away.from);
        let lost = NodeLost {
            node: node.clone(),
            incarnation,
            last_seen,
        };
        script.event(away.from, 0, lost);
        let place = PLACES.iter().position(|place| place.name == away.node);
        match away.anew {
            true => {
                let place = place.expect("one of the nodes");
                script.event(away.until, 0, registered(place, incarnation + 1));
            }
            false => script.event(away.until, 0, NodeReady { node, incarnation }),
        }
    }
    // One that was there before this history.
    let node = token("x9");
    script.event(NAMED[0].from, 0, NodeForgotten { node });
    for named in &NAMED {
        let moments = [Some((named.from, true)), named.until.map(|at| (at, false))];
        for (at, holds) in moments.into_iter().flatten() {
            let changed = NodeConditionChanged {
                node: token(named.node),
                condition: token(named.condition),
                holds,
                reason: some(named.reason).filter(|_| holds),
            };
            script.event(at, 0, changed);
        }
    }
}

fn allocations(script: &mut Script, plan: &Plan) {
    for run in &plan.runs {
        requested(script, &run.of, run.wait);
        let allocation = AllocationNo(run.of.allocation);
        let placed = AllocationPlaced {
            allocation,
            node: token(PLACES[run.place].name),
            incarnation: run.incarnation,
            gpus: Default::default(),
            zones: 0,
            policy: PlacementPolicy::Default,
            candidates: Default::default(),
        };
        script.event(run.placed, 0, placed);
        if let Some((at, told)) = run.started {
            let at = Millis(at);
            script.event(told, 0, AllocationStarted { allocation, at });
        }
        let Some(ended) = run.ended else {
            continue;
        };
        let (cause, at) = (ended.cause, Millis(ended.at));
        let exit = run.measured().map(|usage| RunExit {
            usage: Some(usage),
            ..RunExit::default()
        });
        if ended.again {
            let requeued = AllocationRequeued {
                allocation,
                cause,
                at,
                not_before: at,
                exit,
            };
            script.event(ended.released, 0, requeued);
        } else {
            let ended_event = AllocationEnded {
                allocation,
                cause,
                at,
                exit,
            };
            script.event(ended.released, 0, ended_event);
        }
    }
    for ended in &plan.unplaced {
        requested(script, &ended.of, ended.wait);
        let (cause, at) = (ended.cause, Millis(ended.ended));
        let allocation = AllocationNo(ended.of.allocation);
        script.event(
            ended.ended,
            0,
            AllocationEnded {
                allocation,
                cause,
                at,
                exit: None,
            },
        );
    }
    for denied in &plan.denied {
        let wait = Wait {
            attempt: 1,
            queued: denied.at,
            reason: None,
        };
        requested(script, &denied.of, wait);
        let refusal = Refusal::over(
            Rule::QuotaNeverFits,
            &denied.subject,
            denied.limit,
            denied.of.cpu,
        );
        let allocation = AllocationNo(denied.of.allocation);
        script.event(
            denied.at + 1,
            0,
            QuotaDenied {
                allocation,
                refusal,
            },
        );
    }
    for preempted in &plan.preempted {
        let fact = AllocationPreempted {
            allocation: AllocationNo(preempted.of.allocation),
            cause: preempted.cause,
            by: (preempted.by.as_ref()).map(|by| AllocationNo(by.allocation)),
            grace_until: Millis(preempted.at),
        };
        script.event(preempted.at, 0, fact);
    }
}

/// Writes all that happened in the order of time, and fills the tables batch by batch.
pub async fn fill(plan: &Plan) -> Result<(Database, Store, Ledger), Box<dyn Error>> {
    let (database, store) = Database::store().await?;
    let store = store.beside(Beside::default());
    store.resume(LEDGER).await?;
    let mut script = Script::default();
    settings(&mut script);
    nodes(&mut script);
    allocations(&mut script, plan);
    // What is said of one allocation in one moment stays in its order.
    script.said.sort_by_key(|(now, ..)| *now);
    script.said.retain(|(now, ..)| *now <= END);
    let mut journal = Journal::default();
    let mut tries: BTreeMap<u64, u32> = BTreeMap::new();
    let (mut starts, mut ends) = (BTreeMap::new(), BTreeMap::new());
    for (written, (now, no, event)) in script.said.into_iter().enumerate() {
        journal.write(now, no, event.clone());
        let lsn = journal.events.last().map_or(0, |(at, _)| at.lsn.0);
        let attempt = |tries: &BTreeMap<u64, u32>, no: AllocationNo| {
            (no.0, 1 + tries.get(&no.0).copied().unwrap_or(0))
        };
        match event {
            Event::AllocationStarted(fact) => {
                starts.insert(attempt(&tries, fact.allocation), lsn);
            }
            Event::AllocationEnded(fact) => {
                ends.insert(attempt(&tries, fact.allocation), lsn);
            }
            Event::AllocationRequeued(fact) => {
                ends.insert(attempt(&tries, fact.allocation), lsn);
                *tries.entry(fact.allocation.0).or_default() += 1;
            }
            _ => {}
        }
        if written % 211 == 210 {
            store.apply(&journal.batch()).await?;
        }
    }
    store.apply(&journal.batch()).await?;
    store.says(Millis(KNOWN), "EUR").await?;
    // The history may be so long ago that the server would thin or delete them.
    database
        .execute("ALTER TABLE node_samples REMOVE TTL")
        .await?;
    store.insert_samples(&samples::all()).await?;
    let frames = journal.events.iter().map(|(at, _)| (at.now.0, at.lsn.0));
    let frames = frames.collect();
    Ok((
        database,
        store,
        Ledger {
            frames,
            starts,
            ends,
        },
    ))
}
