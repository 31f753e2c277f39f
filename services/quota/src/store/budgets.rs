//! The table `quota_budgets`.

use super::{
    keys::{self, Accounts},
    parted,
};
use crate::project::BudgetState;
use chassis::warm::{Moment, OutOfRange, ROWS_MAX, WarmError, bigint, unsigned};
use sqlx::{PgConnection, PgPool};
use std::collections::BTreeMap;
use vocab::{Account, Budget, BudgetOf, Period};

type BudgetKey = (Account, BudgetOf);

pub async fn write(
    tx: &mut PgConnection,
    rows: BTreeMap<&BudgetKey, Option<&BudgetState>>,
) -> Result<(), WarmError> {
    let (written, gone) = parted(rows);
    for rows in written.chunks(ROWS_MAX) {
        upsert(tx, rows).await?;
    }
    for keys in gone.chunks(ROWS_MAX) {
        delete(tx, keys).await?;
    }
    Ok(())
}

async fn upsert(
    tx: &mut PgConnection,
    rows: &[(&BudgetKey, &BudgetState)],
) -> Result<(), WarmError> {
    let mut accounts = Accounts::default();
    let count = rows.len();
    let mut of = Vec::with_capacity(count);
    let mut periods = Vec::with_capacity(count);
    let mut amounts = Vec::with_capacity(count);
    let mut versions = Vec::with_capacity(count);
    let mut starts = Vec::with_capacity(count);
    let mut ends = Vec::with_capacity(count);
    let mut spent = Vec::with_capacity(count);
    let mut as_of = Vec::with_capacity(count);
    let mut burn = Vec::with_capacity(count);
    let mut exhausted = Vec::with_capacity(count);
    for ((account, budget_of), state) in rows {
        accounts.push(account);
        of.push(budget_of.name());
        periods.push(state.budget.period.name());
        amounts.push(bigint("amount", state.budget.amount)?);
        versions.push(bigint("version", state.version)?);
        starts.push(Moment::try_from(state.period.0)?);
        ends.push(Moment::try_from(state.period.1)?);
        spent.push(state.spent.to_string());
        as_of.push(Moment::try_from(state.as_of)?);
        burn.push(state.burn.to_string());
        exhausted.push(state.exhausted_at.map(Moment::try_from).transpose()?);
    }
    sqlx::query!(
        "INSERT INTO quota_budgets
             (tenant, team, namespace, budget_of, period, amount, version, period_start, period_end, spent, as_of, burn,
              exhausted_at)
         SELECT * FROM UNNEST($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[],
                              $8::timestamptz[], $9::timestamptz[], $10::text[]::numeric[], $11::timestamptz[],
                              $12::text[]::numeric[], $13::timestamptz[])
         ON CONFLICT (tenant, team, namespace, budget_of) DO UPDATE SET
             period = excluded.period, amount = excluded.amount, version = excluded.version,
             period_start = excluded.period_start, period_end = excluded.period_end, spent = excluded.spent,
             as_of = excluded.as_of, burn = excluded.burn, exhausted_at = excluded.exhausted_at",
        &accounts.tenants as _,
        &accounts.teams as _,
        &accounts.namespaces as _,
        &of as _,
        &periods as _,
        &amounts,
        &versions,
        &starts as _,
        &ends as _,
        &spent,
        &as_of as _,
        &burn,
        &exhausted as _,
    )
    .execute(tx)
    .await?;
    Ok(())
}

async fn delete(tx: &mut PgConnection, gone: &[&BudgetKey]) -> Result<(), WarmError> {
    let mut accounts = Accounts::default();
    let mut of = Vec::with_capacity(gone.len());
    for (account, budget_of) in gone {
        accounts.push(account);
        of.push(budget_of.name());
    }
    sqlx::query!(
        "DELETE FROM quota_budgets AS b
         USING UNNEST($1::text[], $2::text[], $3::text[], $4::text[]) AS gone (tenant, team, namespace, budget_of)
         WHERE (b.tenant, b.team, b.namespace, b.budget_of)
               = (gone.tenant, gone.team, gone.namespace, gone.budget_of)",
        &accounts.tenants as _,
        &accounts.teams as _,
        &accounts.namespaces as _,
        &of as _,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// An account's own budgets, by what they are of.
pub async fn budgets(
    pool: &PgPool,
    account: &Account,
) -> Result<Vec<(BudgetOf, BudgetState)>, WarmError> {
    let records = sqlx::query!(
        r#"SELECT budget_of, period, amount, version, period_start AS "period_start: Moment",
                  period_end AS "period_end: Moment", spent::text AS "spent!", as_of AS "as_of: Moment",
                  burn::text AS "burn!", exhausted_at AS "exhausted_at: Moment"
           FROM quota_budgets WHERE (tenant, team, namespace) = ($1, $2, $3) ORDER BY budget_of"#,
        account.tenant.as_str(),
        keys::name(account.team.as_ref()),
        keys::name(account.namespace.as_ref()),
    )
    .fetch_all(pool)
    .await?;
    let rows = records.into_iter().map(|record| {
        let of = BudgetOf::parse(&record.budget_of)
            .ok_or_else(|| OutOfRange::new("budget_of", &record.budget_of))?;
        let period = Period::parse(&record.period)
            .ok_or_else(|| OutOfRange::new("period", &record.period))?;
        let state = BudgetState {
            budget: Budget {
                amount: unsigned("amount", record.amount)?,
                period,
            },
            version: unsigned("version", record.version)?,
            period: (record.period_start.into(), record.period_end.into()),
            spent: keys::whole("spent", &record.spent)?,
            as_of: record.as_of.into(),
            burn: keys::whole("burn", &record.burn)?,
            exhausted_at: record.exhausted_at.map(Into::into),
        };
        Ok((of, state))
    });
    rows.collect()
}
