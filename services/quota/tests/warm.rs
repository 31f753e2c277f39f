//! Quota's tables against a real Postgres.

use chassis::warm::{WarmError, WarmState, scratch::Scratch};
use ledger::{Batch, LedgerId, Sink, SinkError};
use quota::{
    project::{Account, Limit, Peak, QuotaRow},
    store::{self, QuotaTables},
};
use sqlx::{Executor, PgPool};
use vocab::{Lsn, Millis, ResourceKind, Token};

fn token(text: &str) -> Token {
    Token::new(text).unwrap()
}

fn row(tenant: &str, resource: ResourceKind, account: Account) -> QuotaRow {
    QuotaRow {
        tenant: token(tenant),
        resource,
        account,
        changed_at: Millis(1_700_000_000_123),
    }
}

fn full(amount: u64) -> Account {
    Account {
        limit: Some(Limit {
            hard: amount,
            version: amount,
        }),
        reserved: amount,
        used: amount,
        peak: Some(Peak {
            used: amount,
            at: Millis(1_700_000_000_001),
        }),
    }
}

async fn write(pool: &PgPool, rows: &[QuotaRow]) -> Result<(), WarmError> {
    let mut tx = pool.begin().await?;
    QuotaTables.write(&mut tx, rows).await?;
    tx.commit().await?;
    Ok(())
}

async fn ready(name: &str) -> Scratch {
    let scratch = Scratch::open(name).await;
    let mut sink = store::sink(scratch.pool());
    sink.resume(LedgerId(1)).await.unwrap();
    scratch
}

#[tokio::test]
async fn what_is_written_is_read_and_the_last_change_counts() {
    let scratch = ready("quota_rows").await;
    let pool = scratch.pool();
    let cpu = row("a", ResourceKind::Cpu, full(i64::MAX as u64));
    let gpu = row("a", ResourceKind::Gpu, Account::default());
    let gpu_later = row("a", ResourceKind::Gpu, full(5));
    let other = row("b", ResourceKind::Cpu, full(1));
    write(&pool, &[gpu, cpu.clone(), gpu_later.clone(), other])
        .await
        .unwrap();
    let found = store::quota(&pool, &token("a")).await.unwrap();
    assert_eq!(found, [cpu, gpu_later.clone()]);

    // Lowered below what is used.
    let mut lowered = gpu_later;
    lowered.account.limit = Some(Limit {
        hard: 1,
        version: 6,
    });
    write(&pool, &[lowered.clone()]).await.unwrap();
    let found = store::quota(&pool, &token("a")).await.unwrap();
    assert_eq!(found[1], lowered);
    assert!(store::quota(&pool, &token("c")).await.unwrap().is_empty());
    scratch.close().await;
}

#[tokio::test]
async fn a_batch_larger_than_a_statement_is_one_transaction() {
    let scratch = ready("quota_large").await;
    let mut sink = store::sink(scratch.pool());
    let resume = sink.resume(LedgerId(1)).await.unwrap();
    let rows = (0..2500).map(|i| row(&format!("t{i}"), ResourceKind::Cpu, full(1)));
    let mut batch = Batch {
        ledger: LedgerId(1),
        after: resume.through,
        to: Lsn(9),
        changes: rows.collect(),
    };
    // The last one is not to be had, so none is.
    batch
        .changes
        .push(row("u", ResourceKind::Cpu, full(1 << 63)));
    let refused = sink.apply(&batch).await;
    assert!(
        matches!(refused, Err(SinkError::Unavailable(_))),
        "{refused:?}"
    );
    let count = async || -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM resource_quotas")
            .fetch_one(&scratch.pool())
            .await
            .unwrap()
    };
    assert_eq!(count().await, 0);
    batch.changes.pop();
    sink.apply(&batch).await.unwrap();
    assert_eq!(sink.apply(&batch).await, Err(SinkError::Moved));
    assert_eq!(count().await, 2500);
    assert_eq!(sink.resume(LedgerId(2)).await.unwrap().through, Lsn(0));
    assert_eq!(count().await, 0);
    scratch.close().await;
}

#[tokio::test]
async fn impossible_rows_are_refused() {
    let scratch = ready("quota_checks").await;
    let pool = scratch.pool();
    let cases = [
        (
            "('t', 'cpu', 1, 1, -1, 0, 0, NULL, now())",
            "resource_quotas_reserved_check",
        ),
        (
            "('t', 'cpu', 1, 1, 0, -1, 0, NULL, now())",
            "resource_quotas_used_check",
        ),
        (
            "('t', 'cpu', -1, 1, 0, 0, 0, NULL, now())",
            "resource_quotas_hard_limit_check",
        ),
        (
            "('t', 'disk', 1, 1, 0, 0, 0, NULL, now())",
            "resource_quotas_resource_check",
        ),
        (
            "('a.b', 'cpu', 1, 1, 0, 0, 0, NULL, now())",
            "resource_quotas_tenant_check",
        ),
        (
            "('t', 'cpu', NULL, 1, 0, 0, 0, NULL, now())",
            "version_counts_limits",
        ),
        (
            "('t', 'cpu', 1, 0, 0, 0, 0, NULL, now())",
            "version_counts_limits",
        ),
        (
            "('t', 'cpu', 1, 1, 0, 2, 1, now(), now())",
            "peak_is_the_most",
        ),
        (
            "('t', 'cpu', 1, 1, 0, 0, 1, NULL, now())",
            "peak_has_its_time",
        ),
    ];
    for (values, constraint) in cases {
        let insert = format!("INSERT INTO resource_quotas VALUES {values}");
        let error = WarmError::from(pool.execute(&*insert).await.unwrap_err());
        assert_eq!(error.constraint(), Some(constraint), "{values}");
    }
    scratch.close().await;
}
