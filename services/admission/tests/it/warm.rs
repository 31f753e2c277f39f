//! Admission's tables against a real Postgres.

use admission::{
    operation::{Answer, OutcomeKind},
    project::{AnsweredRow, Change, OperationRow, OperationState, SettingRow, TenantRow},
    query::SettingsQueries,
    store,
};
use chassis::{
    query::{Asked, PAGE_BYTES_MAX, Verb as _},
    warm::{WarmError, WarmState, schema},
};
use ledger::{Batch, LedgerId, Sink, SinkError};
use prost::Message;
use schemas::v1::SettingsQuery;
use sqlx::{Executor, PgPool};
use testkit::{Scratch, check_migration};
use vocab::{
    AdminChange, AllocationNo, CellNo, EventNo, Lsn, Millis, Operation, RateScope, Refusal,
    ResourceKey, Rule, Team, TenantSettings, Token, Verb,
    fact::{RateSet, TenantSet},
    subjects::OPERATOR,
};

const CELL: CellNo = CellNo(3);
const LEDGER: LedgerId = LedgerId(1);

#[test]
fn the_migration_is_made_of_the_rows() {
    check_migration("admission", store::TABLES, store::VIEWS);
}

fn token(text: &str) -> Token {
    Token::new(text).unwrap()
}

const REQUESTED_AT: Millis = Millis(1_700_000_000_001);
const DECIDED_AT: Millis = Millis(1_700_000_000_009);

fn decided(outcome: OutcomeKind) -> OperationState {
    OperationState::Decided {
        at: DECIDED_AT,
        outcome: Box::new(outcome),
    }
}

fn row(no: u64, id: &str, verb: Option<Verb>, state: OperationState) -> OperationRow {
    let about = matches!(verb, Some(Verb::Submit | Verb::Cancel));
    OperationRow {
        no: EventNo(no),
        tenant: token("t"),
        operation_id: Some(token(id)),
        digest: [9; 16],
        verb,
        allocation: about.then_some(AllocationNo(1)),
        by_slots: false,
        requested_at: REQUESTED_AT,
        state,
        by: None,
    }
}

fn refused(rule: Rule, limit: u64, actual: u64) -> OperationState {
    decided(OutcomeKind::Refused(Refusal::over(
        rule, "x", limit, actual,
    )))
}

async fn ready(name: &str) -> Scratch {
    let scratch = Scratch::open(name).await;
    let mut sink = store::sink(scratch.pool(), CELL);
    sink.resume(LEDGER).await.unwrap();
    scratch
}

fn written(row: OperationRow, first: bool) -> Change {
    let row = Box::new(row);
    Change::Operation { row, first }
}

/// A row that may have been written before.
fn changed(row: OperationRow) -> Change {
    written(row, false)
}

/// A submit that was not written before.
fn answered(no: u64, id: &str, answer: Answer) -> Change {
    let row = AnsweredRow {
        no: EventNo(no),
        tenant: token("t"),
        operation_id: Some(token(id)),
        digest: [9; 16],
        requested_at: REQUESTED_AT,
        answered_at: DECIDED_AT,
        answer,
    };
    Change::Answered { row, first: true }
}

fn forgotten(no: u64) -> Change {
    Change::Forgotten {
        through: EventNo(no),
        slots_of: None,
    }
}

/// Applies behind whatever was applied before.
async fn apply(pool: &PgPool, changes: Vec<Change>) -> Result<(), SinkError> {
    let mut sink = store::sink(pool.clone(), CELL);
    let after = sink.resume(LEDGER).await?.through;
    let batch = Batch {
        ledger: LEDGER,
        after,
        to: Lsn(after.0 + 1),
        digest: None,
        changes,
    };
    sink.apply(&batch).await
}

async fn operation(pool: &PgPool, id: &str) -> Option<store::StoredOperation> {
    store::operation(pool, &token("t"), &token(id))
        .await
        .unwrap()
}

/// It has no allocation, also where it is known that one was asked for.
#[tokio::test]
async fn what_was_refused_at_the_inbox_has_its_verb() {
    let scratch = ready("ops_inbox").await;
    let pool = scratch.pool();
    let verbs = [
        None,
        Some(Verb::Submit),
        Some(Verb::Cancel),
        Some(Verb::SetQuota),
    ];
    for (no, verb) in (1..).zip(verbs) {
        let id = format!("op{no}");
        let row = OperationRow {
            allocation: None,
            ..row(no, &id, verb, refused(Rule::QuantityZero, 0, 0))
        };
        apply(&pool, vec![written(row, true)]).await.unwrap();
        let found = operation(&pool, &id).await.unwrap();
        assert_eq!(found.verb.as_deref(), verb.map(Verb::name));
        assert_eq!(found.allocation, None);
    }
    scratch.close().await;
}

#[tokio::test]
async fn every_outcome_is_read_as_it_was_written() {
    let scratch = ready("ops_states").await;
    let pool = scratch.pool();
    let cases = [
        (Some(Verb::Submit), OperationState::Pending),
        (Some(Verb::Submit), refused(Rule::QuotaExceeded, 8, 9)),
        (Some(Verb::Cancel), OperationState::Pending),
        (
            Some(Verb::Cancel),
            decided(OutcomeKind::Cancelled {
                allocation: AllocationNo(1),
            }),
        ),
        (
            Some(Verb::SetTenant),
            decided(OutcomeKind::Applied { version: 1 }),
        ),
        (
            Some(Verb::SetQuota),
            decided(OutcomeKind::Applied {
                version: i64::MAX as u64,
            }),
        ),
        (
            Some(Verb::SetRate),
            decided(OutcomeKind::Applied { version: 2 }),
        ),
        (
            Some(Verb::SetQueue),
            decided(OutcomeKind::Applied { version: 1 }),
        ),
        (
            Some(Verb::SetPriorityClass),
            decided(OutcomeKind::Applied { version: 1 }),
        ),
        (
            Some(Verb::SetScheduling),
            decided(OutcomeKind::Applied { version: 1 }),
        ),
        (
            Some(Verb::SetCordon),
            decided(OutcomeKind::Applied { version: 1 }),
        ),
        (
            Some(Verb::SetReservation),
            decided(OutcomeKind::Applied { version: 1 }),
        ),
        // What a client may name is no bigint.
        (None, refused(Rule::VersionConflict, 1, u64::MAX)),
    ];
    // Each once as a row that is new, and once as one that may not be.
    let ways = cases
        .into_iter()
        .flat_map(|(verb, state)| [(verb, state.clone(), true), (verb, state, false)]);
    for (no, (verb, state, first)) in (1..).zip(ways) {
        let id = format!("op{no}");
        let row = row(no, &id, verb, state.clone());
        apply(&pool, vec![written(row, first)]).await.unwrap();
        let found = operation(&pool, &id).await.unwrap();
        assert_eq!(found.verb.as_deref(), verb.map(Verb::name));
        assert_eq!(found.requested_at, REQUESTED_AT);
        let about = matches!(verb, Some(Verb::Submit | Verb::Cancel));
        assert_eq!(found.allocation, about.then(|| AllocationNo(1).id(CELL)));
        match state {
            OperationState::Pending => {
                assert_eq!((found.state.as_str(), found.decided_at), ("pending", None));
            }
            OperationState::Decided { at, outcome } => {
                assert_eq!(found.state, outcome.name());
                assert_eq!(found.decided_at, Some(at));
                let (version, refusal) = match *outcome {
                    OutcomeKind::Applied { version } => (Some(version), None),
                    OutcomeKind::Refused(refusal) => (None, Some(refusal)),
                    _ => (None, None),
                };
                assert_eq!(found.version, version);
                let found = found
                    .refusal
                    .map(|r| (r.rule, r.subject, r.limit, r.actual));
                let wanted =
                    refusal.map(|r| (r.rule.name().to_owned(), r.subject, r.limit, r.actual));
                assert_eq!(found, wanted);
            }
        }
    }
    scratch.close().await;
}

#[tokio::test]
async fn an_id_stands_for_one_operation_until_it_is_forgotten() {
    let scratch = ready("ops_once").await;
    let pool = scratch.pool();
    let submit = |no| changed(row(no, "op", Some(Verb::Submit), OperationState::Pending));
    let conflict = changed(OperationRow {
        allocation: None,
        ..row(
            2,
            "op",
            Some(Verb::Submit),
            refused(Rule::OperationConflict, 0, 0),
        )
    });
    apply(&pool, vec![submit(1), conflict]).await.unwrap();
    let found = operation(&pool, "op").await.unwrap();
    assert_eq!((found.no, found.state.as_str()), (EventNo(1), "pending"));

    // A second outcome for the same id would break the promise.
    let again = apply(&pool, vec![submit(3)]).await;
    match again {
        Err(SinkError::Unavailable(why)) => {
            assert!(why.contains("other_operations_one_stands"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    apply(&pool, vec![forgotten(2), submit(3)]).await.unwrap();
    assert_eq!(operation(&pool, "op").await.unwrap().no, EventNo(3));
    assert_eq!(shown(&pool).await, [3]);
    assert_eq!(
        store::operation(&pool, &token("other"), &token("op"))
            .await
            .unwrap(),
        None
    );
    scratch.close().await;
}

/// The numbers of the operations that people see.
async fn shown(pool: &PgPool) -> Vec<i64> {
    sqlx::query_scalar("SELECT event_no FROM operations ORDER BY event_no")
        .fetch_all(pool)
        .await
        .unwrap()
}

/// Rows that are there, shown or not: open operations and others, and the two parts.
async fn stored(pool: &PgPool) -> (i64, i64, i64) {
    sqlx::query_as(
        "SELECT (SELECT count(*) FROM other_operations), (SELECT count(*) FROM answered_submits_1),
                (SELECT count(*) FROM answered_submits_2)",
    )
    .fetch_one(pool)
    .await
    .unwrap()
}

#[tokio::test]
async fn every_answer_is_read_as_it_was_written() {
    let scratch = ready("ops_answers").await;
    let pool = scratch.pool();
    for (no, answer) in (1..).zip(Answer::ALL) {
        apply(&pool, vec![answered(no, answer.name(), answer)])
            .await
            .unwrap();
        let found = operation(&pool, answer.name()).await.unwrap();
        let expected = store::StoredOperation {
            no: EventNo(no),
            verb: Some("submit".to_owned()),
            state: answer.name().to_owned(),
            allocation: Some(AllocationNo(no).id(CELL)),
            version: None,
            refusal: None,
            lease: None,
            fencing_token: None,
            deadline_slot: None,
            allocations: None,
            requested_at: REQUESTED_AT,
            decided_at: Some(DECIDED_AT),
        };
        assert_eq!(found, expected);
    }
    assert_eq!(stored(&pool).await, (0, 3, 0));
    scratch.close().await;
}

#[tokio::test]
async fn a_submit_that_is_answered_later_is_open_until_then() {
    let scratch = ready("ops_later").await;
    let pool = scratch.pool();
    let open = row(1, "op", Some(Verb::Submit), OperationState::Pending);
    apply(&pool, vec![written(open, true)]).await.unwrap();
    assert_eq!(stored(&pool).await, (1, 0, 0));
    assert_eq!(operation(&pool, "op").await.unwrap().state, "pending");
    let Change::Answered { row, .. } = answered(1, "op", Answer::Placed) else {
        unreachable!("as it was made");
    };
    apply(&pool, vec![Change::Answered { row, first: false }])
        .await
        .unwrap();
    assert_eq!(stored(&pool).await, (0, 1, 0));
    assert_eq!(operation(&pool, "op").await.unwrap().state, "placed");
    scratch.close().await;
}

#[tokio::test]
async fn what_is_forgotten_is_shown_no_more_and_leaves_by_the_part() {
    let scratch = ready("ops_parts").await;
    let pool = scratch.pool();
    let placed = |no: u64| answered(no, &format!("op{no}"), Answer::Placed);
    apply(&pool, vec![placed(1), placed(5), placed(9)])
        .await
        .unwrap();
    // The row is there and not shown; new ones go into the other part, which is empty. The id may be used again.
    apply(
        &pool,
        vec![forgotten(5), placed(12), answered(13, "op5", Answer::Ended)],
    )
    .await
    .unwrap();
    assert_eq!(stored(&pool).await, (0, 3, 2));
    assert_eq!(shown(&pool).await, [9, 12, 13]);
    assert_eq!(operation(&pool, "op1").await, None);
    assert_eq!(operation(&pool, "op5").await.unwrap().no, EventNo(13));
    apply(&pool, vec![forgotten(8), placed(15)]).await.unwrap();
    assert_eq!(stored(&pool).await, (0, 3, 3));
    assert_eq!(shown(&pool).await, [9, 12, 13, 15]);

    // Somebody reads it: it is emptied another time.
    let mut reader = pool.begin().await.unwrap();
    sqlx::query("SELECT count(*) FROM answered_submits_1")
        .execute(&mut *reader)
        .await
        .unwrap();
    apply(&pool, vec![forgotten(12), placed(20)]).await.unwrap();
    assert_eq!(stored(&pool).await, (0, 3, 4));
    reader.rollback().await.unwrap();
    apply(&pool, vec![forgotten(13), placed(21)]).await.unwrap();
    assert_eq!(stored(&pool).await, (0, 1, 4));
    assert_eq!(shown(&pool).await, [15, 20, 21]);

    // Another ledger begins with nothing.
    let mut sink = store::sink(pool.clone(), CELL);
    sink.resume(LedgerId(2)).await.unwrap();
    assert_eq!(stored(&pool).await, (0, 0, 0));
    scratch.close().await;
}

#[tokio::test]
async fn an_operation_id_is_found_by_an_index_of_each_table() {
    let scratch = ready("ops_indexes").await;
    let pool = scratch.pool();
    let mut tx = pool.begin().await.unwrap();
    tx.execute("SET LOCAL enable_seqscan = off").await.unwrap();
    let plan: Vec<String> = sqlx::query_scalar(
        "EXPLAIN SELECT state FROM operations WHERE tenant = 't' AND operation_id = 'op' AND stands",
    )
    .fetch_all(&mut *tx)
    .await
    .unwrap();
    let plan = plan.join("\n");
    for index in [
        "other_operations_one_stands",
        "answered_submits_1_by_operation_id",
        "answered_submits_2_by_operation_id",
    ] {
        assert!(plan.contains(index), "{plan}");
    }
    tx.rollback().await.unwrap();
    scratch.close().await;
}

#[tokio::test]
async fn tables_of_an_older_version_give_way() {
    let scratch = Scratch::open("ops_older").await;
    let pool = scratch.pool();
    pool.execute("CREATE TABLE operations (event_no bigint PRIMARY KEY, state text)")
        .await
        .unwrap();
    let mut sink = store::sink(pool.clone(), CELL);
    assert_eq!(sink.resume(LEDGER).await.unwrap().through, Lsn(0));
    apply(&pool, vec![answered(1, "op", Answer::Placed)])
        .await
        .unwrap();
    assert_eq!(shown(&pool).await, [1]);
    let mut connection = pool.acquire().await.unwrap();
    let drifts = schema::diff(&mut connection, store::AdmissionTables::DDL).await;
    assert_eq!(drifts.unwrap(), []);
    drop(connection);
    scratch.close().await;
}

fn tenant(version: u64, at: i64) -> Change {
    Change::Tenant(TenantRow {
        tenant: token("t"),
        version,
        at: Millis(at),
    })
}

#[tokio::test]
async fn a_tenant_keeps_the_time_of_its_first_version() {
    let scratch = ready("ops_tenants").await;
    let pool = scratch.pool();
    apply(&pool, vec![tenant(1, 1000), tenant(2, 2000)])
        .await
        .unwrap();
    apply(&pool, vec![tenant(3, 3000)]).await.unwrap();
    let found: (i64, String, String) = sqlx::query_as(
        "SELECT version, extract(epoch FROM created_at)::bigint::text, extract(epoch FROM changed_at)::bigint::text
         FROM tenants",
    )
    .fetch_one(&pool)
    .await
    .unwrap();
    assert_eq!(found, (3, "1".to_owned(), "3".to_owned()));
    let mut sink = store::sink(pool.clone(), CELL);
    sink.resume(LedgerId(2)).await.unwrap();
    let count: i64 = sqlx::query_scalar("SELECT count(*) FROM tenants")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(count, 0);
    scratch.close().await;
}

#[tokio::test]
async fn a_tenant_is_an_object_that_is_active() {
    let scratch = ready("ops_objects").await;
    let pool = scratch.pool();
    apply(&pool, vec![tenant(1, 1000), tenant(2, 2000)])
        .await
        .unwrap();
    let found: Vec<(String, String, String, String, Option<String>)> = sqlx::query_as(
        "SELECT id, type, state, extract(epoch FROM changed_at)::bigint::text, message FROM object_states",
    )
    .fetch_all(&pool)
    .await
    .unwrap();
    let text = str::to_owned;
    let tenant = (text("t"), text("tenant"), text("active"), text("2"), None);
    assert_eq!(found, [tenant]);
    scratch.close().await;
}

/// Every other one is set by an operator with a name.
fn setting(setting: &'static str, key: &str, version: u64, change: AdminChange) -> Change {
    let operation = Operation {
        tenant: token("t"),
        operation_id: Some(token("op")),
        digest: [0; 16],
        reply_to: None,
        trace: None,
        by: version.is_multiple_of(2).then(|| Box::new(token("alice"))),
    };
    Change::Setting(Box::new(SettingRow {
        setting,
        key: key.to_owned(),
        version,
        operation_id: Some(token("op")),
        set_by: operation.by.as_deref().cloned(),
        at: REQUESTED_AT,
        lsn: Lsn(version),
        fact: change.applied(operation, version).into(),
    }))
}

#[tokio::test]
async fn each_rate_that_was_set_stays() {
    let scratch = ready("rates").await;
    let pool = scratch.pool();
    let set = |key: &str, version: u64, micro_per_unit_hour| {
        let (resource, tenant) = key.split_once(" tenant=").unzip();
        let change = AdminChange::Rate(RateSet {
            resource: ResourceKey::parse(resource.unwrap_or(key)).unwrap(),
            micro_per_unit_hour,
            effective_from: Millis(0),
            scope: RateScope {
                tenant: tenant.map(token),
                ..RateScope::default()
            },
            withdrawn: false,
        });
        setting("rate", key, version, change)
    };
    apply(&pool, vec![set("cpu", 1, 5), set("gpu:T4", 1, 6)])
        .await
        .unwrap();
    let later = vec![
        set("cpu", 2, 7),
        set("cpu", 3, 8),
        set("cpu tenant=t", 1, 9),
        set("gpu", 1, 4),
    ];
    apply(&pool, later).await.unwrap();
    let all = [
        "cpu 1",
        "cpu 2",
        "cpu 3",
        "cpu tenant=t 1",
        "gpu 1",
        "gpu:T4 1",
    ];
    for (resource, expected) in [
        (None, &all[..]),
        (Some("cpu"), &all[..4]),
        (Some("gpu"), &all[4..]),
        (Some("gpu:T4"), &all[5..]),
        (Some("gpu:T"), &[]),
    ] {
        let resource = resource.map(|text| ResourceKey::parse(text).unwrap());
        for limit in 1..8 {
            let (mut found, mut after) = (Vec::new(), (String::new(), 0));
            loop {
                let behind = (after.0.as_str(), after.1);
                let rows = store::rates(&pool, resource.as_ref(), behind, limit).await;
                let rows = rows.unwrap();
                let Some(last) = rows.last() else {
                    break;
                };
                after = (last.key.clone(), last.version as i64);
                found.extend(rows.iter().map(|it| format!("{} {}", it.key, it.version)));
                let is_as_set = |it: &store::Setting| {
                    let by = it.version.is_multiple_of(2).then(|| token("alice"));
                    it.set_at == REQUESTED_AT && !it.fact.is_empty() && it.set_by == by
                };
                assert!(rows.iter().all(is_as_set));
            }
            assert_eq!(found, expected, "{resource:?} {limit}");
        }
    }
    scratch.close().await;
}

#[tokio::test]
async fn a_tenant_reads_its_own_settings_and_the_classes_that_it_may_use() {
    let scratch = ready("ops_own").await;
    let pool = scratch.pool();
    let all = [
        ("tenant", "t"),
        ("tenant", "t2"),
        ("tenant", "a"),
        ("quota", "t cpu"),
        ("quota", "t/ml cpu"),
        ("quota", "t/ml/x cpu from=5"),
        ("quota", "t2 cpu"),
        ("quota", "a/t cpu"),
        ("budget", "t/ml money"),
        ("budget", "a money"),
        ("queue", "t"),
        ("rate", "cpu tenant=t"),
        ("node", "t"),
        ("cordon", "t"),
        ("reservation", "t"),
        ("scheduling", "cell"),
        ("priority_class", "spare"),
        ("priority_class", "urgent"),
        ("priority_class", "t"),
    ];
    // What the facts say is not looked at.
    let change = AdminChange::Rate(RateSet {
        resource: ResourceKey::parse("cpu").unwrap(),
        micro_per_unit_hour: 1,
        effective_from: Millis(0),
        scope: RateScope::default(),
        withdrawn: false,
    });
    let row = |&(name, key): &(&'static str, &str)| setting(name, key, 1, change.clone());
    apply(&pool, all.iter().map(row).collect()).await.unwrap();
    let check = async |own: Option<store::Own<'_>>, setting, prefix, expected: &[(&str, &str)]| {
        let expected: Vec<_> = expected
            .iter()
            .map(|it| format!("{} {}", it.0, it.1))
            .collect();
        for limit in [1, 2, 100] {
            let (mut found, mut after) = (Vec::new(), (String::new(), String::new()));
            loop {
                let behind = (after.0.as_str(), after.1.as_str());
                let rows = store::settings(&pool, own.as_ref(), setting, prefix, behind, limit);
                let rows = rows.await.unwrap();
                let Some(last) = rows.last() else {
                    break;
                };
                after = (last.setting.clone(), last.key.clone());
                found.extend(rows.iter().map(|it| format!("{} {}", it.setting, it.key)));
            }
            assert_eq!(found, expected, "{setting:?} {prefix} {limit}");
        }
    };
    let tenant = token("t");
    let own = |classes: &[&str]| {
        let classes: Vec<_> = classes.iter().map(|class| (*class).to_owned()).collect();
        Some(store::Own {
            tenant: &tenant,
            classes: Some(classes).filter(|classes| !classes.is_empty()),
        })
    };
    let classes = [
        ("priority_class", "spare"),
        ("priority_class", "t"),
        ("priority_class", "urgent"),
    ];
    let quotas = [
        ("quota", "t cpu"),
        ("quota", "t/ml cpu"),
        ("quota", "t/ml/x cpu from=5"),
    ];
    let whole = [
        &[("budget", "t/ml money")][..],
        &classes,
        &quotas,
        &[("tenant", "t")],
    ]
    .concat();
    check(own(&[]), None, "", &whole).await;
    check(own(&["urgent"]), Some("priority_class"), "", &classes[2..]).await;
    check(own(&[]), Some("quota"), "t/", &quotas[1..]).await;
    for (setting, prefix) in [("quota", "a"), ("queue", ""), ("node", "t"), ("rate", "")] {
        check(own(&[]), Some(setting), prefix, &[]).await;
    }
    let mut everything = all;
    everything.sort_unstable();
    check(None, None, "", &everything).await;
    let found = store::setting(&pool, "tenant", "t2").await.unwrap();
    assert_eq!(found.map(|it| it.key).as_deref(), Some("t2"));
    assert_eq!(store::setting(&pool, "tenant", "b").await.unwrap(), None);
    scratch.close().await;
}

#[tokio::test]
async fn a_page_of_settings_has_as_many_as_a_message_has_room_for() {
    let scratch = ready("ops_large").await;
    let pool = scratch.pool();
    // Each takes some 34 KB, and all of them more than two pages.
    let all: Vec<String> = (0..80).map(|no| format!("t{no:02}")).collect();
    let teams = |no: usize| Team::parse(&format!("{no:064}/{no:064}")).unwrap();
    let tenant = |name: &String| {
        let change = AdminChange::Tenant(TenantSet {
            tenant: token(name),
            settings: TenantSettings {
                priority_classes: vec![token("urgent")],
                ..TenantSettings::default()
            },
            closed: false,
            teams: (0..TenantSettings::TEAMS_MAX).map(teams).collect(),
        });
        setting("tenant", name, 1, change)
    };
    apply(&pool, all.iter().map(tenant).collect())
        .await
        .unwrap();
    let verb = SettingsQueries { pool };
    let ask = async |asker: &str, query: SettingsQuery| {
        let asked = Asked {
            tenant: token(asker),
            applied: Lsn(7),
            query,
        };
        verb.answer(asked).await.unwrap()
    };
    let (mut found, mut pages) = (Vec::new(), 0);
    let mut query = SettingsQuery {
        limit: 60,
        ..SettingsQuery::default()
    };
    loop {
        let page = ask(OPERATOR, query.clone()).await;
        assert!(page.encoded_len() <= PAGE_BYTES_MAX + 10_000);
        found.extend(page.settings.into_iter().map(|one| one.key));
        pages += 1;
        if page.next.is_empty() {
            break;
        }
        query.after = page.next;
    }
    assert_eq!(found, all);
    assert_eq!(pages, 3);
    let own = ask("t07", SettingsQuery::default()).await;
    let told: Vec<_> = own.settings.iter().map(|one| one.key.as_str()).collect();
    assert_eq!(told, ["t07"]);
    scratch.close().await;
}

#[tokio::test]
async fn impossible_rows_are_refused() {
    let scratch = ready("ops_checks").await;
    let pool = scratch.pool();
    let operation = |no, id, verb, state| changed(row(no, id, verb, state));
    apply(
        &pool,
        vec![
            operation(1, "a", Some(Verb::Submit), OperationState::Pending),
            operation(2, "b", None, refused(Rule::QuantityZero, 0, 0)),
            operation(
                3,
                "c",
                Some(Verb::SetRate),
                decided(OutcomeKind::Applied { version: 1 }),
            ),
        ],
    )
    .await
    .unwrap();
    let cases = [
        (1, "digest = '\\x00'", "other_operations_digest_check"),
        (1, "state = 'refused'", "decided_when_not_pending"),
        (1, "decided_at = now()", "decided_when_not_pending"),
        (
            1,
            "state = 'cancelled', decided_at = now()",
            "state_fits_verb",
        ),
        // It would be among the answered.
        (
            1,
            "state = 'placed', decided_at = now()",
            "other_operations_state_check",
        ),
        (1, "allocation_id = NULL", "allocation_of_submit_or_cancel"),
        (1, "verb = NULL", "state_fits_verb"),
        (1, "rule = 'x'", "refused_by_a_rule"),
        (2, "rule = NULL", "refused_by_a_rule"),
        (
            2,
            "allocation_id = gen_random_uuid()",
            "verb_known_unless_refused",
        ),
        (2, "rule_actual = -1", "other_operations_rule_actual_check"),
        (3, "verb = 'drop'", "other_operations_verb_check"),
        (3, "state = 'lost'", "other_operations_state_check"),
        (3, "version = NULL", "version_when_applied"),
        (3, "version = 0", "other_operations_version_check"),
    ];
    for (no, change, constraint) in cases {
        let update = format!("UPDATE other_operations SET {change} WHERE event_no = {no}");
        let error = WarmError::from(pool.execute(&*update).await.unwrap_err());
        assert_eq!(error.constraint(), Some(constraint), "{change}");
    }
    scratch.close().await;
}
