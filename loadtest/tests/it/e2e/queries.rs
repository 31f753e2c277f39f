//! What a tenant asks about its own things: as of a position, and never of another's.

use crate::e2e::{
    agent::Agent,
    suite::{Outcome, Suite, eventually, id, small},
};
use client::{
    Acquire, AllocationStanding, AllocationsQuery, BudgetQuery, Client, CreateResource,
    ExplainQuery, JobSetsQuery, NodeQuery, NodeStanding, NodesQuery, Operation, OperationState,
    Position, PreemptionsQuery, QueryError, QueueQuery, QueuesQuery, QuotaQuery, RefusalsQuery,
    ReservationRequest, ResourceState, SetBudget, SetCordon, SetQueue, SetQuota, SetReservation,
    Submit, TenantEvent, TenantsQuery,
};
use prost::Message;
use schemas::v1::{
    Event, Period, event, outcome::Result as Decided, request::Verb, tenant_event::Kind,
};
use vocab::Rule;

fn refused<T>(asked: Result<T, QueryError>) -> Option<Rule> {
    asked.err().and_then(|error| error.rule())
}

/// Submits and says where the outcome stands on the ledger.
pub async fn submitted(tenant: &Client, operation_id: &str) -> (String, u64) {
    let operation = Operation::new(operation_id, Verb::Submit(small("asked")));
    let outcome = tenant.call(&operation).await.expect("an outcome");
    match outcome.result {
        Some(Decided::Submitted(submitted)) => (submitted.allocation_id, outcome.lsn),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_read_at_a_position_has_seen_what_stands_there() -> Outcome {
    let suite = Suite::start().await;
    let tenant = suite.tenant("tenant-a").await;
    let mut agent: Agent = suite.node("n1").await;
    for i in 0..20 {
        let operation_id = format!("op-{i}");
        let (allocation, lsn) = submitted(&tenant, &operation_id).await;
        let view = tenant.allocation(&allocation, lsn).await?;
        assert!(view.lsn >= lsn);
        assert_eq!(view.allocation_id, allocation);
        assert_eq!(view.state(), AllocationStanding::Placed, "{view:?}");
        assert_eq!(view.node, "n1");
        let view = tenant.operation(&operation_id, lsn).await?;
        assert_eq!(view.state(), OperationState::Decided, "{view:?}");
        let after = Position {
            lsn: lsn - 1,
            index: u32::MAX,
        };
        let page = tenant.page(after, None, 0, lsn).await?;
        let told = page
            .events
            .iter()
            .any(|event| is_outcome(event, &operation_id));
        assert!(told, "{page:?}");
        tenant.cancel(&allocation, id()).await?;
    }
    // What the ledger does not have yet.
    let far = u64::MAX;
    let early = Some(Rule::NotApplied);
    let (allocation, _) = submitted(&tenant, "last").await;
    assert_eq!(refused(tenant.allocation(&allocation, far).await), early);
    assert_eq!(refused(tenant.operation("last", far).await), early);
    let (started, _) = agent.run(&allocation, 1).await;
    assert!(started > 0);
    eventually("the end in the read model", || async {
        let view = tenant.allocation(&allocation, 0).await.ok()?;
        (view.state() == AllocationStanding::Ended && view.ended.is_some()).then_some(())
    })
    .await;
    suite.assert_healthy(&tenant).await;
    suite.close().await;
    Ok(())
}

fn is_outcome(event: &TenantEvent, operation_id: &str) -> bool {
    matches!(&event.kind, Some(Kind::Outcome(outcome)) if outcome.operation_id == operation_id)
}

#[tokio::test]
async fn resources_and_leases_are_seen_by_their_tenant_alone() -> Outcome {
    let suite = Suite::start().await;
    let tenant = suite.tenant("tenant-a").await;
    let other = suite.tenant("tenant-b").await;
    let desk = CreateResource {
        resource: "desk".to_owned(),
        slot: None,
    };
    tenant.create_resource(desk, "create").await?;
    let ask = Operation::new(
        "acquire",
        Verb::Acquire(Acquire {
            resource: "desk".to_owned(),
            holder: "h".to_owned(),
            ttl_slots: 1000,
            slot: None,
        }),
    );
    let outcome = tenant.call(&ask).await?;
    let Some(Decided::LeaseGranted(granted)) = &outcome.result else {
        panic!("{outcome:?}");
    };
    let lease = &granted.lease_id;
    let view = tenant.resource("desk", outcome.lsn).await?;
    assert_eq!(
        (view.state(), &view.lease_id, view.version),
        (ResourceState::Granted, lease, 1)
    );
    let view = tenant.lease(lease, None, outcome.lsn).await?;
    assert_eq!((view.holder.as_str(), view.fencing_token), ("h", 1));
    assert_eq!(view.deadline_slot, granted.deadline_slot);
    assert_eq!(view.resources, ["desk"]);
    // Another tenant's things are not there.
    let found = other.resource("desk", outcome.lsn).await;
    assert_eq!(refused(found), Some(Rule::ResourceNotFound));
    let found = other.lease(lease, None, outcome.lsn).await;
    assert_eq!(refused(found), Some(Rule::LeaseNotFound));
    let (allocation, lsn) = submitted(&tenant, "mine").await;
    let found = other.allocation(&allocation, lsn).await;
    assert_eq!(refused(found), Some(Rule::AllocationNotFound));
    let view = other.operation("mine", lsn).await?;
    assert_eq!(view.state(), OperationState::Unknown);
    assert!(
        other
            .feed_page(Position::default(), None, 0)
            .await?
            .is_empty()
    );
    // What is no name and no id.
    let found = tenant.resource("a.b", 0).await;
    assert_eq!(refused(found), Some(Rule::NameInvalid));
    let found = tenant.allocation("x", 0).await;
    assert_eq!(refused(found), Some(Rule::AllocationIdInvalid));
    let found = tenant.lease("x", None, 0).await;
    assert_eq!(refused(found), Some(Rule::LeaseIdInvalid));
    let found = tenant.operation("a b", 0).await;
    assert_eq!(refused(found), Some(Rule::OperationIdInvalid));
    suite.assert_healthy(&tenant).await;
    suite.close().await;
    Ok(())
}

#[tokio::test]
async fn a_tenant_is_told_why_its_own_waits_and_nobody_elses() -> Outcome {
    let suite = Suite::start().await;
    let tenant = suite.tenant("tenant-a").await;
    let other = suite.tenant("tenant-b").await;
    // No node is there.
    let (allocation, lsn) = submitted(&tenant, "waits").await;
    let query = |as_of_lsn, at_lsn| ExplainQuery {
        allocation_id: allocation.clone(),
        as_of_lsn,
        at_lsn,
    };
    let told = tenant.explain(&query(0, lsn)).await?;
    let view = told.view.as_ref().expect("the tenant's own");
    assert_eq!(view.state(), AllocationStanding::Waiting);
    let place = told.place.as_ref().expect("it waits");
    assert_eq!((place.position, place.in_queue), (1, 1));
    let group = told.pending_group.as_ref().expect("it waits for room");
    let said = Event::decode(&*group.event)?;
    let Some(event::Kind::PendingGroupExplained(said)) = said.kind else {
        panic!("{said:?}");
    };
    assert_eq!(said.pending_group, view.pending_group);
    // The same position says the same later, when it runs.
    let mut agent: Agent = suite.node("n1").await;
    agent.run(&allocation, 1).await;
    let ended = eventually("its end", || async {
        let told = tenant.explain(&query(0, 0)).await.ok()?;
        (told.view.as_ref()?.state() == AllocationStanding::Ended).then_some(told)
    })
    .await;
    assert!(
        ended.place.is_none() && ended.history.len() >= 2,
        "{ended:?}"
    );
    let before = tenant.explain(&query(told.lsn, 0)).await?;
    assert_eq!(before.pending_group, told.pending_group);
    assert_eq!(before.history, told.history);
    // Nobody is told of another's, now or before.
    for query in [query(0, 0), query(lsn, 0), query(0, lsn)] {
        let found = other.explain(&query).await;
        assert_eq!(refused(found), Some(Rule::AllocationNotFound));
    }
    let no_id = ExplainQuery {
        allocation_id: "x".to_owned(),
        ..ExplainQuery::default()
    };
    let found = tenant.explain(&no_id).await;
    assert_eq!(refused(found), Some(Rule::AllocationIdInvalid));
    let found = tenant.explain(&query(u64::MAX, 0)).await;
    assert_eq!(refused(found), Some(Rule::NotApplied));
    suite.assert_healthy(&tenant).await;
    suite.close().await;
    Ok(())
}

#[tokio::test]
async fn a_tenant_lists_its_own_allocations_page_by_page() -> Outcome {
    let suite = Suite::start().await;
    let tenant = suite.tenant("tenant-a").await;
    let other = suite.tenant("tenant-b").await;
    let mut agent: Agent = suite.node("n1").await;
    let (mut ids, mut at_lsn) = (Vec::new(), 0);
    for no in 0..7 {
        let submit = Submit {
            job_set: ["x", "y"][no % 2].to_owned(),
            team: "ml".to_owned(),
            ..small(&format!("task-{no}"))
        };
        let operation = Operation::new(format!("op-{no}"), Verb::Submit(submit));
        let outcome = tenant.call(&operation).await?;
        let Some(Decided::Submitted(submitted)) = outcome.result else {
            panic!("{outcome:?}");
        };
        ids.push(submitted.allocation_id);
        at_lsn = outcome.lsn;
    }
    ids.reverse();
    let page = |after: String| AllocationsQuery {
        limit: 3,
        after,
        at_lsn,
        ..AllocationsQuery::default()
    };
    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let page = tenant.allocations(&page(after)).await?;
        assert!(
            page.allocations.len() <= 3 && page.lsn >= at_lsn,
            "{page:?}"
        );
        found.extend(page.allocations);
        after = page.next;
        if after.is_empty() {
            break;
        }
    }
    let listed: Vec<_> = found.iter().map(|one| &one.allocation_id).collect();
    assert_eq!(listed, ids.iter().collect::<Vec<_>>());
    for one in &found {
        assert_eq!(one.state(), AllocationStanding::Placed, "{one:?}");
        let of = (one.node.as_str(), one.team.as_str(), one.queue.as_str());
        assert_eq!(of, ("n1", "ml", "tenant-a"));
        assert_eq!((one.cpu_milli, one.memory_bytes), (100, 1 << 30));
        assert!(
            one.requested_ms > 0 && one.placed_ms >= one.requested_ms,
            "{one:?}"
        );
    }
    // What is over is listed only where that is asked for.
    agent.run(&ids[0], 1).await;
    let over = AllocationsQuery {
        states: vec![AllocationStanding::Ended.into()],
        job_set: "x".to_owned(),
        team: "ml".to_owned(),
        ..AllocationsQuery::default()
    };
    eventually("the end in the list", || async {
        let page = tenant.allocations(&over).await.ok()?;
        let found = page.allocations.first()?;
        (page.allocations.len() == 1 && found.allocation_id == ids[0]).then_some(())
    })
    .await;
    let live = tenant.allocations(&page(String::new())).await?;
    assert_eq!(live.allocations[0].allocation_id, ids[1]);
    let y = AllocationsQuery {
        job_set: "y".to_owned(),
        name_prefix: "task-".to_owned(),
        ..AllocationsQuery::default()
    };
    assert_eq!(tenant.allocations(&y).await?.allocations.len(), 3);
    // Nobody sees what is another's, whatever it names.
    let tries = [
        AllocationsQuery::default(),
        over.clone(),
        y.clone(),
        page(ids[0].clone()),
        AllocationsQuery {
            node: "n1".to_owned(),
            queue: "tenant-a".to_owned(),
            ..AllocationsQuery::default()
        },
    ];
    for query in &tries {
        let page = other.allocations(query).await?;
        assert!(
            page.allocations.is_empty() && page.next.is_empty(),
            "{query:?}: {page:?}"
        );
    }
    let broken = |change: fn(&mut AllocationsQuery)| {
        let mut query = AllocationsQuery::default();
        change(&mut query);
        query
    };
    for (query, rule) in [
        (
            broken(|it| it.after = "x".to_owned()),
            Rule::AllocationIdInvalid,
        ),
        (broken(|it| it.queue = "a.b".to_owned()), Rule::NameInvalid),
        (broken(|it| it.limit = 1001), Rule::QuantityTooLarge),
        (broken(|it| it.states = vec![0]), Rule::SettingInvalid),
        (broken(|it| it.states = vec![99]), Rule::SettingInvalid),
        (broken(|it| it.since_ms = i64::MIN), Rule::IntervalInvalid),
        (broken(|it| it.at_lsn = u64::MAX), Rule::NotApplied),
    ] {
        assert_eq!(
            refused(tenant.allocations(&query).await),
            Some(rule),
            "{query:?}"
        );
    }
    suite.assert_healthy(&tenant).await;
    suite.close().await;
    Ok(())
}

/// What operators are told of all tenants.
const ALL: [&str; 6] = [
    "quota",
    "refusals",
    "queues",
    "reservations",
    "job_sets",
    "budget",
];

/// What a tenant may ask of lists, as text; each with every way of naming what is another's.
async fn told(asker: &Client, at_lsn: u64) -> Vec<(&'static str, String)> {
    let mut told = Vec::new();
    macro_rules! ask {
        ($what:literal, $asked:expr) => {
            match $asked.await {
                Ok(reply) => told.push(($what, format!("{reply:?}"))),
                // A cursor that is none.
                Err(error) => assert!(error.rule().is_some(), "{} {error}", $what),
            }
        };
    }
    for after in [
        "",
        "tenant-a cpu",
        "tenant-b",
        "tenant-b cpu",
        "tenant-b/hidden gpu",
        "zzz cpu",
    ] {
        let query = QuotaQuery {
            after: after.to_owned(),
            waiting: 200,
            at_lsn,
            ..QuotaQuery::default()
        };
        ask!("quota", asker.quota(&query));
    }
    for after in ["", "1.0", "999999.0", "18446744073709551615.4294967295"] {
        let query = PreemptionsQuery {
            after: after.to_owned(),
            at_lsn,
            ..PreemptionsQuery::default()
        };
        ask!("preemptions", asker.preemptions(&query));
    }
    for after in [0, 1, 7, 1 << 40, i64::MAX.unsigned_abs()] {
        let query = RefusalsQuery {
            after,
            at_lsn,
            ..RefusalsQuery::default()
        };
        ask!("refusals", asker.refusals(&query));
    }
    for after in [
        "",
        "tenant-a shown shared",
        "tenant-b",
        "tenant-b hidden a",
        "a a a",
    ] {
        let query = JobSetsQuery {
            after: after.to_owned(),
            at_lsn,
            ..JobSetsQuery::default()
        };
        ask!("job_sets", asker.job_sets(&query));
    }
    let query = QueueQuery { limit: 0, at_lsn };
    ask!("queue", asker.queue(&query));
    for after in ["", "a", "tenant-b"] {
        let query = QueuesQuery {
            after: after.to_owned(),
            at_lsn,
            ..QueuesQuery::default()
        };
        ask!("queues", asker.queues(&query));
    }
    ask!("reservations", asker.reservations(at_lsn));
    for after in ["", "tenant-b hidden", "tenant-b/hidden money", "a money"] {
        let query = BudgetQuery {
            after: after.to_owned(),
            at_lsn,
            ..BudgetQuery::default()
        };
        ask!("budget", asker.budgets(&query));
    }
    told
}

#[tokio::test]
async fn whoever_asks_is_told_of_its_own_and_operators_of_all() -> Outcome {
    let suite = Suite::start().await;
    let operator = suite.operator().await;
    let now_ms = chassis::Clock::real().now_ms();
    let mut at_lsn = 0;
    for (tenant, word) in [("tenant-a", "shown"), ("tenant-b", "hidden")] {
        let name = |text: &str| text.to_owned();
        let quota = SetQuota {
            tenant: name(tenant),
            team: name(word),
            resource: name("gpu"),
            limit: 3000,
            from_ms: Some(now_ms + 3_600_000),
            ..SetQuota::default()
        };
        operator.set_quota(quota, id()).await?;
        let budget = SetBudget {
            tenant: name(tenant),
            team: name(word),
            of: name("money"),
            amount: Some(1_000_000),
            period: Period::Month.into(),
            ..SetBudget::default()
        };
        operator.set_budget(budget, id()).await?;
        let queue = SetQueue {
            queue: format!("of-{word}"),
            tenants: vec![name(tenant)],
            ..SetQueue::default()
        };
        operator.set_queue(queue, id()).await?;
        let shared = SetQueue {
            queue: name("shared"),
            tenants: vec![name("tenant-a"), name("tenant-b")],
            ..SetQueue::default()
        };
        operator.set_queue(shared, id()).await?;
        let reservation = SetReservation {
            reservation: format!("for-{word}"),
            wanted: Some(ReservationRequest {
                queue: format!("of-{word}"),
                from_ms: now_ms,
                until_ms: now_ms + 3_600_000,
                nodes: 1,
                selector: Vec::new(),
            }),
            ..SetReservation::default()
        };
        operator.set_reservation(reservation, id()).await?;
        let client = suite.tenant(tenant).await;
        // No node is there: it waits, in the queue that both may use.
        let waits = Submit {
            queue: name("shared"),
            job_set: name(word),
            team: name(word),
            ..small(word)
        };
        let operation = Operation::new(format!("op-{word}"), Verb::Submit(waits));
        at_lsn = client.call(&operation).await?.lsn;
        let nothing = Submit {
            cpu_milli: 0,
            ..small(word)
        };
        let operation = Operation::new(format!("refused-{word}"), Verb::Submit(nothing));
        at_lsn = client.call(&operation).await?.lsn.max(at_lsn);
    }
    let (tenant, other) = (
        suite.tenant("tenant-a").await,
        suite.tenant("tenant-b").await,
    );
    for (asker, own, others) in [
        (&tenant, ["tenant-a", "shown"], ["tenant-b", "hidden"]),
        (&other, ["tenant-b", "hidden"], ["tenant-a", "shown"]),
    ] {
        let told = told(asker, at_lsn).await;
        for (what, text) in &told {
            let leaks = others.iter().find(|word| text.contains(**word));
            assert_eq!(leaks, None, "{what}: {text}");
        }
        for what in ALL {
            let mut of = told.iter().filter(|(of, _)| *of == what);
            let says = of.any(|(_, text)| own.iter().any(|word| text.contains(word)));
            assert!(says, "{what} says nothing of its own: {told:?}");
        }
        let queue = asker.queue(&QueueQuery { limit: 0, at_lsn }).await?;
        let waiting: Vec<_> = queue.waiting.iter().map(|it| &it.queue).collect();
        assert_eq!(waiting, ["shared"]);
        // With the other's, which is not named.
        let query = QueuesQuery {
            at_lsn,
            ..QueuesQuery::default()
        };
        let queues = asker.queues(&query).await?;
        let shared = queues.queues.iter().find(|it| it.queue == "shared");
        let waiting = shared.map(|it| it.waiting.iter().map(|of| of.allocations).sum());
        assert_eq!(waiting, Some(2_u64));
    }
    let told = told(&operator, at_lsn).await;
    for what in ALL {
        let mut of = told.iter().filter(|(of, _)| *of == what);
        let says = of.any(|(_, text)| text.contains("shown") && text.contains("hidden"));
        assert!(says, "{what}: {told:?}");
    }
    // Each of the refusals says which rule was broken, by what.
    let zero = RefusalsQuery {
        rule: Rule::QuantityZero as i32,
        ..RefusalsQuery::default()
    };
    let found = tenant.refusals(&zero).await?.refusals;
    let of = |one: &client::RefusalView| one.operation_id.clone();
    assert_eq!(found.iter().map(of).collect::<Vec<_>>(), ["refused-shown"]);
    let broken = found[0].broken.as_ref().expect("it was refused");
    assert_eq!(
        (broken.rule, broken.subject.as_str()),
        (Rule::QuantityZero as i32, "cpu_milli")
    );
    let another = RefusalsQuery {
        rule: Rule::QuotaExceeded as i32,
        ..RefusalsQuery::default()
    };
    assert!(tenant.refusals(&another).await?.refusals.is_empty());
    suite.close().await;
    Ok(())
}

#[tokio::test]
async fn operators_see_nodes_tenants_and_job_sets_as_they_are() -> Outcome {
    let suite = Suite::start().await;
    let (operator, tenant) = (suite.operator().await, suite.tenant("tenant-a").await);
    let mut agent: Agent = suite.node("n1").await;
    let cordon = SetCordon {
        node: "n2".to_owned(),
        cordoned: true,
        ..SetCordon::default()
    };
    operator.set_cordon(cordon, id()).await?;
    let (first, _) = submitted(&tenant, "first").await;
    let (second, at_lsn) = submitted(&tenant, "second").await;

    let query = NodesQuery {
        at_lsn,
        ..NodesQuery::default()
    };
    let nodes = operator.nodes(&query).await?.nodes;
    let [node, absent] = &nodes[..] else {
        panic!("{nodes:?}");
    };
    assert_eq!(
        (node.node.as_str(), node.state()),
        ("n1", NodeStanding::Ready)
    );
    assert_eq!((node.allocations, node.takes_new), (2, true));
    let [has, used, free] = [&node.allocatable, &node.used, &node.free].map(|it| it.unwrap());
    assert_eq!(has.cpu_milli, Agent::capacity().cpu_milli);
    assert_eq!((used.cpu_milli, used.memory_bytes), (200, 2 << 30));
    assert_eq!(free.cpu_milli, has.cpu_milli - 200);
    assert_eq!(
        (absent.node.as_str(), absent.state(), absent.cordoned),
        ("n2", NodeStanding::Absent, true)
    );

    let query = NodeQuery {
        node: "n1".to_owned(),
        at_lsn,
        ..NodeQuery::default()
    };
    let said = operator.node(&query).await?;
    let runs = said
        .runs
        .iter()
        .map(|run| (&run.allocation_id, &run.tenant));
    let expected = [&first, &second].map(|id| (id, &said.runs[0].tenant));
    assert_eq!(runs.collect::<Vec<_>>(), expected);
    assert_eq!(said.runs[0].tenant, "tenant-a");
    let changes = said.history.iter().map(|one| one.change.as_str());
    assert_eq!(changes.collect::<Vec<_>>(), ["registered"]);

    agent.run(&first, 1).await;
    let counts = eventually("the end in the counts", || async {
        let page = tenant.job_sets(&JobSetsQuery::default()).await.ok()?;
        let [one] = &page.job_sets[..] else {
            panic!("{page:?}");
        };
        (one.finished == 1).then_some((one.placed, one.started, one.queue.clone()))
    })
    .await;
    assert_eq!(counts, (1, 0, "tenant-a".to_owned()));
    let page = operator.tenants(&TenantsQuery::default()).await?;
    let own = page.tenants.iter().find(|one| one.tenant == "tenant-a");
    let own = own.expect("it has something");
    assert_eq!((own.placed, own.waiting), (1, 0));
    assert_eq!(own.held.unwrap().cpu_milli, 100);
    assert_eq!(page.capacity.unwrap().cpu_milli, has.cpu_milli);

    // To tenants there are no such questions.
    let unknown = Some(Rule::UnknownVerb);
    assert_eq!(refused(tenant.nodes(&NodesQuery::default()).await), unknown);
    assert_eq!(refused(tenant.node(&query).await), unknown);
    let tenants = tenant.tenants(&TenantsQuery::default()).await;
    assert_eq!(refused(tenants), unknown);
    let nowhere = NodeQuery {
        node: "n3".to_owned(),
        ..NodeQuery::default()
    };
    let found = operator.node(&nowhere).await;
    assert_eq!(refused(found), Some(Rule::NodeNotFound));
    suite.assert_healthy(&tenant).await;
    suite.close().await;
    Ok(())
}

#[tokio::test]
async fn a_page_begins_in_the_middle_of_a_message() -> Outcome {
    let suite = Suite::start().await;
    let tenant = suite.tenant("tenant-a").await;
    let submits = (0..120).map(|i| {
        let submit = Submit {
            job_set: ["x", "y", "z"][i % 3].to_owned(),
            ..small("many")
        };
        (format!("op-{i}"), submit)
    });
    for (operation_id, submitted) in tenant.submit_all(submits).await {
        assert!(submitted.is_ok(), "{operation_id}: {submitted:?}");
    }
    // Requested, answered and waiting, each.
    let all = eventually("all events", || async {
        let page = tenant.feed_page(Position::default(), None, 0).await.ok()?;
        (page.len() == 360).then_some(page)
    })
    .await;
    let stored = suite
        .stored(
            &suite.subjects.event_stream(),
            &suite.subjects.event("tenant-a", "*"),
        )
        .await;
    assert!(stored < 120, "{stored} messages for 360 events");
    for (no, event) in all.iter().enumerate().step_by(7) {
        let after = Position::from(event);
        assert_eq!(tenant.feed_page(after, None, 0).await?, all[no + 1..]);
        let page = tenant.page(after, None, 11, 0).await?;
        let end = all.len().min(no + 12);
        assert_eq!(page.events, all[no + 1..end]);
        assert_eq!(page.more, end < all.len());
        let of_y: Vec<_> = all[no + 1..].iter().filter(|e| e.job_set == "y").collect();
        let page = tenant.feed_page(after, Some("y"), 0).await?;
        assert_eq!(page.iter().collect::<Vec<_>>(), of_y);
    }
    suite.close().await;
    Ok(())
}
