//! What is written is read.

use super::*;
use ledger::{Batch, SinkError};
use quota::project::{BudgetKey, BudgetState, Planned, Reclaimed, TenantRow, WaitingState};
use vocab::{
    AllocationNo, Budget, BudgetOf, HOUR_MS, Lsn, OnExceed, Period, ReclaimFrom, Refusal,
    ResourceKind, Rule, Validity,
};

#[tokio::test]
async fn the_last_change_of_an_account_counts() {
    let scratch = ready("quota_rows").await;
    let pool = scratch.pool();
    let most = full(i64::MAX as u64);
    let (cpu, gpu) = (key("a", "cpu"), key("a", "gpu:T4"));
    let leaf = key("a/x/n", "extended:fpga");
    let changes = [
        put(gpu.clone(), AccountState::default()),
        put(cpu.clone(), most),
        put(gpu.clone(), full(5)),
        put(leaf.clone(), below(2)),
        put(key("b", "cpu"), full(1)),
        put(key("c", "pods"), full(1)),
        Change::Account(key("c", "pods"), None),
    ];
    write(&pool, &changes).await.unwrap();
    let all = async |tenant: Option<&Token>, after: Option<&Key>, limit| {
        let rows = store::accounts(&pool, tenant, after, limit).await.unwrap();
        let rows = rows.into_iter();
        let rows = rows.map(|row| ((row.account, row.resource), row.state));
        rows.collect::<Vec<(Key, AccountState)>>()
    };
    let read = async |text| {
        let account = account(text);
        let mut rows = all(Some(&account.tenant), None, 100).await;
        rows.retain(|((of, _), _)| *of == account);
        rows
    };
    assert_eq!(read("a").await, [(cpu.clone(), most), (gpu, full(5))]);
    assert_eq!(read("a/x/n").await, [(leaf, below(2))]);
    assert_eq!(read("a/x").await, []);
    let names = |rows: &[(Key, AccountState)]| -> Vec<String> {
        let names = rows.iter().map(|((account, _), _)| account.to_string());
        names.collect()
    };
    let found = all(None, None, 100).await;
    assert_eq!(names(&found), ["a", "a", "a/x/n", "b"]);
    let a = token("a");
    assert_eq!(all(Some(&a), None, 100).await, found[..3]);
    // A page goes on behind the one before, whosoever it is.
    for limit in 1..4u32 {
        let (mut pages, mut after): (Vec<_>, Option<Key>) = (Vec::new(), None);
        loop {
            let page = all(None, after.as_ref(), limit).await;
            let Some((last, _)) = page.last() else { break };
            after = Some(last.clone());
            pages.extend(page);
        }
        assert_eq!(pages, found);
    }
    assert_eq!(
        all(Some(&a), Some(&key("a/x/n", "cpu")), 100).await,
        found[2..3]
    );
    assert_eq!(all(Some(&a), Some(&key("b", "cpu")), 100).await, []);

    write(&pool, &[Change::Account(cpu, None)]).await.unwrap();
    assert_eq!(read("a").await.len(), 1);
    scratch.close().await;
}

#[tokio::test]
async fn a_batch_larger_than_a_statement_is_one_transaction() {
    let scratch = ready("quota_large").await;
    let mut sink = store::sink(scratch.pool());
    let resume = sink.resume(LedgerId(1)).await.unwrap();
    let rows = (0..2500).flat_map(|i| {
        let key = key(&format!("t{i}"), "cpu");
        let hour = Box::new(hour(1));
        [put(key.clone(), full(1)), Change::Hour(key, hour)]
    });
    let mut batch = Batch {
        ledger: LedgerId(1),
        after: resume.through,
        to: Lsn(9),
        digest: None,
        changes: rows.collect(),
    };
    // The last one is not to be had, so none is.
    batch.changes.push(put(key("u", "cpu"), full(1 << 63)));
    let refused = sink.apply(&batch).await;
    assert!(
        matches!(refused, Err(SinkError::Unavailable(_))),
        "{refused:?}"
    );
    let pool = scratch.pool();
    assert_eq!(count(&pool, "resource_quotas").await, 0);
    batch.changes.pop();
    sink.apply(&batch).await.unwrap();
    assert_eq!(sink.apply(&batch).await, Err(SinkError::Moved));
    for table in ["resource_quotas", "quota_usage_history"] {
        assert_eq!(count(&pool, table).await, 2500);
    }
    // Another ledger: all is wiped, and built up again.
    assert_eq!(sink.resume(LedgerId(2)).await.unwrap().through, Lsn(0));
    for table in ["resource_quotas", "quota_usage_history"] {
        assert_eq!(count(&pool, table).await, 0);
    }
    (batch.ledger, batch.after) = (LedgerId(2), Lsn(0));
    sink.apply(&batch).await.unwrap();
    assert_eq!(count(&pool, "resource_quotas").await, 2500);
    scratch.close().await;
}

#[tokio::test]
async fn tenants_of_a_cohort_are_added_up() {
    let scratch = ready("quota_cohorts").await;
    let pool = scratch.pool();
    let tenant = |name, cohort: Option<&str>, version| TenantRow {
        tenant: token(name),
        cohort: cohort.map(token),
        preemptible: version == 1,
        on_exceed: OnExceed::Wait,
        reclaim: ReclaimFrom::LowerPriority,
        version,
    };
    let limited = |lend| AccountState {
        limits: Some(Limits {
            lend,
            ..Limits::hard(8)
        }),
        version: 1,
        reserved: 1,
        used: 2,
        peak: full(2).peak,
        ..AccountState::default()
    };
    let over = AccountState {
        limits: Some(Limits::hard(1 << 53)),
        ..full(1 << 54)
    };
    let changes = [
        Change::Tenant(Box::new(tenant("a", None, 1))),
        Change::Tenant(Box::new(tenant("b", Some("c"), 1))),
        Change::Tenant(Box::new(tenant("d", None, 2))),
        Change::Tenant(Box::new(tenant("a", Some("c"), 2))),
        put(key("a", "cpu"), limited(Some(3))),
        put(key("b", "cpu"), limited(None)),
        put(key("d", "cpu"), limited(None)),
        put(key("a/x", "cpu"), limited(None)),
        put(
            key("b", "gpu"),
            AccountState {
                soft_since: None,
                borrowed: 1 << 53,
                ..over
            },
        ),
    ];
    write(&pool, &changes).await.unwrap();
    let of = async |name: Option<&str>| {
        let name = name.map(token);
        store::tenants(&pool, name.as_ref()).await.unwrap()
    };
    assert_eq!(of(Some("a")).await, [tenant("a", Some("c"), 2)]);
    assert_eq!(of(None).await.len(), 3);
    assert_eq!(of(Some("x")).await, []);
    let sums: Vec<(String, i64, String)> = sqlx::query_as(
        "SELECT resource, tenants, concat_ws(' ', hard, lendable, reserved, used, borrowed)
         FROM quota_cohort WHERE cohort = 'c' ORDER BY resource",
    )
    .fetch_all(&pool)
    .await
    .unwrap();
    let many = 1_u64 << 54;
    let gpu = format!("{0} {0} {1} {1} {0}", many / 2, many);
    assert_eq!(
        sums,
        [
            ("cpu".to_owned(), 2, "16 11 2 4 0".to_owned()),
            ("gpu".to_owned(), 1, gpu),
        ]
    );
    scratch.close().await;
}

#[tokio::test]
async fn plans_are_kept_until_they_are_over() {
    let scratch = ready("quota_plans").await;
    let pool = scratch.pool();
    let planned = |limits, from: Option<i64>, until: Option<i64>| Planned {
        limits,
        validity: Validity {
            from: from.map(Millis),
            until: until.map(Millis),
        },
    };
    let first = planned(full(8).limits, Some(5), None);
    let second = planned(None, None, Some(9));
    let put = |version, row| Change::Planned(key("a/x", "cpu"), version, row);
    let changes = [
        put(1, Some(Box::new(first))),
        put(2, Some(Box::new(second))),
        put(3, Some(Box::new(second))),
        put(3, None),
    ];
    write(&pool, &changes).await.unwrap();
    let of = async |tenant: Option<&str>| {
        let tenant = tenant.map(token);
        store::planned(&pool, tenant.as_ref()).await.unwrap()
    };
    let read = async || of(Some("a")).await;
    let rows = read().await;
    let rows: Vec<_> = rows.iter().map(|row| (row.version, row.planned)).collect();
    assert_eq!(rows, [(1, first), (2, second)]);
    write(&pool, &[put(1, None)]).await.unwrap();
    assert_eq!(read().await.len(), 1);
    assert_eq!(of(None).await, read().await);
    assert_eq!(of(Some("b")).await, []);
    scratch.close().await;
}

#[tokio::test]
async fn budgets_are_read_as_they_were_written() {
    let scratch = ready("quota_budgets").await;
    let pool = scratch.pool();
    let state = |amount, exhausted_at| BudgetState {
        budget: Budget {
            amount,
            period: Period::Day,
        },
        version: 4,
        period: Period::Day.around(HOUR),
        spent: u128::from(u64::MAX) * 3,
        as_of: HOUR.plus(7),
        burn: u128::MAX,
        exhausted_at,
    };
    let key = |of| (account("a/x/n"), of);
    let (money, cpu) = (BudgetOf::Money, BudgetOf::Use(ResourceKind::Cpu));
    let put = |of, row: Option<BudgetState>| Change::Budget(key(of), row.map(Box::new));
    let changes = [
        put(money.clone(), Some(state(1, Some(HOUR)))),
        put(money.clone(), Some(state(2, Some(HOUR.plus(1))))),
        put(cpu.clone(), Some(state(3, Some(HOUR)))),
    ];
    write(&pool, &changes).await.unwrap();
    let (a, b) = (token("a"), token("b"));
    let read_from = async |whose: Option<&Token>, after: Option<&BudgetKey>, limit| {
        let rows = store::budgets(&pool, whose, after, limit).await;
        rows.unwrap()
    };
    let read = async || read_from(Some(&a), None, 9).await;
    let own = account("a/x/n");
    let expected = [
        (own.clone(), cpu.clone(), state(3, Some(HOUR))),
        (own, money, state(2, Some(HOUR.plus(1)))),
    ];
    assert_eq!(read().await, expected);
    write(&pool, &[put(cpu, None)]).await.unwrap();
    assert_eq!(read().await, expected[1..]);

    let mut changes = vec![];
    for text in ["a", "a/x", "a/y", "b"] {
        let key = (account(text), BudgetOf::Money);
        changes.push(Change::Budget(key, Some(Box::new(state(4, Some(HOUR))))));
    }
    write(&pool, &changes).await.unwrap();
    let all = ["a", "a/x", "a/x/n", "a/y", "b"];
    for (whose, expected) in [
        (None, &all[..]),
        (Some(&a), &all[..4]),
        (Some(&b), &all[4..]),
    ] {
        for limit in 1..7 {
            let (mut found, mut after) = (Vec::new(), None);
            loop {
                let rows = read_from(whose, after.as_ref(), limit).await;
                let Some((account, of, _)) = rows.last() else {
                    break;
                };
                after = Some((account.clone(), of.clone()));
                found.extend(rows.into_iter().map(|(account, ..)| account.to_string()));
            }
            assert_eq!(found, expected, "{whose:?} {limit}");
        }
    }
    scratch.close().await;
}

#[tokio::test]
async fn those_that_wait_are_read_by_priority() {
    let scratch = ready("quota_waiting").await;
    let pool = scratch.pool();
    let state = |text, priority, since| WaitingState {
        account: account(text),
        priority,
        since: Millis(since),
        refusal: Some(Refusal::over(Rule::BudgetExhausted, "money", u64::MAX, 7)),
        reclaimed: None,
    };
    let back = WaitingState {
        refusal: None,
        reclaimed: Some(Reclaimed {
            by: Some(AllocationNo(2)),
        }),
        ..state("a/x/n", 0, 3)
    };
    let put =
        |no, row: &WaitingState| Change::Waiting(AllocationNo(no), Some(Box::new(row.clone())));
    let changes = [
        put(1, &state("a", 0, 5)),
        put(2, &state("a/x", 9, 8)),
        put(3, &back),
        put(4, &state("a/y", 0, 1)),
        put(5, &state("b", 0, 1)),
        put(1, &state("a", 0, 4)),
    ];
    write(&pool, &changes).await.unwrap();
    let read = async |text, limit| {
        let rows = store::waiting(&pool, &account(text), limit).await.unwrap();
        let rows = rows.into_iter();
        rows.map(|row| (row.allocation.0, row.state))
            .collect::<Vec<_>>()
    };
    let expected = [
        (2, state("a/x", 9, 8)),
        (4, state("a/y", 0, 1)),
        (3, back),
        (1, state("a", 0, 4)),
    ];
    assert_eq!(read("a", 9).await, expected);
    assert_eq!(read("a", 1).await.len(), 1);
    assert_eq!(read("a/x", 9).await.len(), 2);
    assert_eq!(read("a/x/n", 9).await.len(), 1);
    let gone = [2, 4].map(|no| Change::Waiting(AllocationNo(no), None));
    write(&pool, &gone).await.unwrap();
    assert_eq!(read("a", 9).await.len(), 2);
    scratch.close().await;
}

#[tokio::test]
async fn history_is_read_by_the_hour_and_forgotten_when_it_is_old() {
    let scratch = ready("quota_history").await;
    let pool = scratch.pool();
    let at = |row: HourRow, hours: i64| HourRow {
        hour: HOUR.plus(hours * HOUR_MS),
        ..row
    };
    let put = |row| Change::Hour(key("a", "cpu"), Box::new(row));
    let long = HourRow {
        hours: 3,
        used_min: 2,
        used_max: 2,
        used_ms: 3 * 7_200_000,
        covered_ms: 3 * 3_600_000,
        ..at(hour(2), 2)
    };
    let changes = [put(hour(4)), put(at(hour(5), 1)), put(hour(6)), put(long)];
    write(&pool, &changes).await.unwrap();
    let read = async |from: i64| {
        let from = HOUR.plus(from * HOUR_MS);
        let (account, resource) = key("a", "cpu");
        let of = HistoryOf {
            tenant: Some(&account.tenant),
            ..history_of(&resource, from)
        };
        told(&pool, &of).await
    };
    let of_a = |row| (token("a"), row);
    let all = [hour(6), at(hour(5), 1), long].map(of_a);
    assert_eq!(read(-9).await, all);
    // The last of them reaches beyond.
    for from in [2, 3, 4] {
        assert_eq!(read(from).await, all[2..], "{from}");
    }
    assert_eq!(read(5).await, []);

    let later = store::RETENTION_MS / HOUR_MS + 1;
    write(&pool, &[put(at(hour(1), later))]).await.unwrap();
    assert_eq!(read(-9).await[0], of_a(at(hour(5), 1)));
    scratch.close().await;
}

fn history_of(resource: &QuotaResource, from: Millis) -> HistoryOf<'_> {
    HistoryOf {
        tenant: None,
        team: None,
        namespace: None,
        resource,
        from,
        until: None,
        after: None,
        limit: 100,
    }
}

async fn told(pool: &PgPool, of: &HistoryOf<'_>) -> Vec<(Token, HourRow)> {
    store::history(pool, of).await.unwrap()
}

#[tokio::test]
async fn history_of_all_tenants_is_read_by_pages() {
    let scratch = ready("quota_history_of_all").await;
    let pool = scratch.pool();
    let at = |no: i64| HourRow {
        hour: HOUR.plus(no * HOUR_MS),
        ..hour(4)
    };
    let put = |of: &str, resource: &str, no| Change::Hour(key(of, resource), Box::new(at(no)));
    let changes = [
        put("a", "cpu", 0),
        put("a", "cpu", 1),
        put("a", "gpu", 0),
        put("a/x", "cpu", 0),
        put("b", "gpu", 0),
        put("b/x", "cpu", 2),
        put("c", "cpu", 0),
        put("c", "cpu", 3),
        put("c/x/n", "cpu", 0),
    ];
    write(&pool, &changes).await.unwrap();
    let check = async |of: HistoryOf<'_>, expected: &[(&str, i64)]| {
        let expected = expected.iter().map(|(tenant, no)| (token(tenant), at(*no)));
        let expected: Vec<_> = expected.collect();
        for limit in 1..6 {
            let (mut found, mut after) = (Vec::new(), None);
            loop {
                let of = HistoryOf {
                    after,
                    limit,
                    ..of.clone()
                };
                let page = told(&pool, &of).await;
                assert!(page.len() <= limit as usize);
                after = page.last().map(|(tenant, row)| (tenant.clone(), row.hour));
                found.extend(page);
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(found, expected, "{limit} {of:?}");
        }
    };
    let cpu = QuotaResource::Cpu;
    let from = |no: i64| history_of(&cpu, HOUR.plus(no * HOUR_MS));
    let all = [("a", 0), ("a", 1), ("c", 0), ("c", 3)];
    check(from(0), &all).await;
    check(from(1), &[("a", 1), ("c", 3)]).await;
    let until = HistoryOf {
        until: Some(HOUR.plus(3 * HOUR_MS)),
        ..from(-5)
    };
    check(until, &all[..3]).await;
    let (x, n, b) = (token("x"), token("n"), token("b"));
    let team = HistoryOf {
        team: Some(&x),
        ..from(0)
    };
    check(team.clone(), &[("a", 0), ("b", 2)]).await;
    let of_b = HistoryOf {
        tenant: Some(&b),
        ..team.clone()
    };
    check(of_b, &[("b", 2)]).await;
    let namespace = HistoryOf {
        namespace: Some(&n),
        ..team
    };
    check(namespace, &[("c", 0)]).await;
    // Of another tenant's place one is told nothing either.
    let own = HistoryOf {
        tenant: Some(&b),
        after: Some((token("a"), HOUR)),
        ..from(0)
    };
    assert_eq!(told(&pool, &own).await, []);
    scratch.close().await;
}
