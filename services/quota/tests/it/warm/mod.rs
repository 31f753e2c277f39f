//! Quota's tables against a real Postgres.

mod impossible;
mod rows;

use chassis::warm::{WarmError, WarmState};
use ledger::{LedgerId, Sink};
use quota::{
    project::{AccountState, Change, HourRow, Key, Peak},
    store::{self, HistoryOf, QuotaTables},
};
use sqlx::{Executor, PgPool};
use testkit::{Scratch, check_migration};
use vocab::{Account, Limits, Millis, QuotaResource, Token};

/// A full hour: 2023-11-14 22:00 UTC.
const HOUR: Millis = Millis(1_699_999_200_000);

#[test]
fn the_migration_is_made_of_the_rows() {
    check_migration("quota", store::TABLES, store::VIEWS);
}

fn token(text: &str) -> Token {
    Token::new(text).unwrap()
}

fn account(text: &str) -> Account {
    Account::parse(text).unwrap()
}

fn key(account_text: &str, resource: &str) -> Key {
    (
        account(account_text),
        QuotaResource::parse(resource).unwrap(),
    )
}

/// Everything that a row can say.
fn full(amount: u64) -> AccountState {
    AccountState {
        limits: Some(Limits {
            hard: amount / 2,
            soft: Some(amount / 4),
            burst: Some(amount),
            burst_ms: 60_000,
            borrow: Some(amount),
            lend: Some(0),
        }),
        version: 3,
        reserved: amount,
        used: amount,
        peak: Some(Peak {
            used: amount,
            at: HOUR.plus(1),
        }),
        soft_since: Some(HOUR.plus(2)),
        over_since: Some(HOUR.plus(3)),
        borrowed: amount / 2,
        changed_at: HOUR.plus(123),
    }
}

/// The same of an account that cannot borrow.
fn below(amount: u64) -> AccountState {
    AccountState {
        borrowed: 0,
        ..full(amount)
    }
}

fn put(key: Key, state: AccountState) -> Change {
    Change::Account(key, Some(Box::new(state)))
}

fn hour(used: u64) -> HourRow {
    HourRow {
        hour: HOUR,
        hours: 1,
        used_min: 0,
        used_max: used,
        used_ms: u128::from(used) * 1000,
        covered_ms: 3_600_000,
        reserved_max: 7,
        hard: Some(9),
    }
}

async fn write(pool: &PgPool, changes: &[Change]) -> Result<(), WarmError> {
    let mut tx = pool.begin().await?;
    QuotaTables.write(&mut tx, changes).await?;
    tx.commit().await?;
    Ok(())
}

async fn ready(name: &str) -> Scratch {
    let scratch = Scratch::open(name).await;
    let mut sink = store::sink(scratch.pool());
    sink.resume(LedgerId(1)).await.unwrap();
    scratch
}

async fn count(pool: &PgPool, table: &str) -> i64 {
    let count = format!("SELECT count(*) FROM {table}");
    sqlx::query_scalar(&count).fetch_one(pool).await.unwrap()
}
