//! The table `quota_budgets`.

use super::{
    keys::{Accounts, Below},
    parted,
};
use crate::project::BudgetState;
use chassis::warm::{ROWS_MAX, WarmError, merge};
use sqlx::{PgConnection, PgPool};
use std::collections::BTreeMap;
use table::{Row, Table};
use vocab::{Account, Budget, BudgetOf, Millis, Period, Token};

type BudgetKey = (Account, BudgetOf);

/// Budgets and how fast they are used up.
#[derive(Table)]
#[table(name = "quota_budgets", key(tenant, team, namespace, budget_of))]
#[table(check(namespace_only_with_team, "namespace = '' OR team <> ''"))]
#[table(check(as_of_in_its_period, "period_start <= as_of AND as_of < period_end"))]
#[table(check(
    exhausted_in_its_period,
    "period_start <= exhausted_at AND exhausted_at < period_end"
))]
#[table(check(
    exhausted_when_spent,
    "spent < amount OR exhausted_at <= as_of IS TRUE"
))]
pub struct Spending {
    #[table(check = "tenant ~ '^[A-Za-z0-9_-]{1,64}$'")]
    tenant: Token,
    /// '' for the tenant's own account.
    team: Below,
    /// '' for the team's own account, or the tenant's.
    namespace: Below,
    /// money in millionths of the currency; the others in the resource's unit times hours.
    #[table(check = "budget_of IN ('money', 'cpu', 'memory', 'gpu')")]
    budget_of: BudgetOf,
    period: Period,
    #[table(check = "amount >= 0")]
    amount: u64,
    #[table(check = "version > 0")]
    version: u64,
    /// The period that `as_of` is in, in UTC.
    period_start: Millis,
    period_end: Millis,
    /// Up to `as_of`, rounded down.
    #[table(check = "spent >= 0 AND scale(spent) = 0")]
    spent: u128,
    as_of: Millis,
    /// What an hour takes of it, by what runs at `as_of`; rounded down.
    #[table(check = "burn >= 0 AND scale(burn) = 0")]
    burn: u128,
    /// When nothing is left of it, or has been since; NULL: it lasts for the period.
    exhausted_at: Option<Millis>,
}

impl Spending {
    fn of(((account, budget_of), state): (&BudgetKey, &BudgetState)) -> Self {
        Self {
            tenant: account.tenant.clone(),
            team: Below(account.team.clone()),
            namespace: Below(account.namespace.clone()),
            budget_of: budget_of.clone(),
            period: state.budget.period,
            amount: state.budget.amount,
            version: state.version,
            period_start: state.period.0,
            period_end: state.period.1,
            spent: state.spent,
            as_of: state.as_of,
            burn: state.burn,
            exhausted_at: state.exhausted_at,
        }
    }

    fn state(self) -> (BudgetOf, BudgetState) {
        let state = BudgetState {
            budget: Budget {
                amount: self.amount,
                period: self.period,
            },
            version: self.version,
            period: (self.period_start, self.period_end),
            spent: self.spent,
            as_of: self.as_of,
            burn: self.burn,
            exhausted_at: self.exhausted_at,
        };
        (self.budget_of, state)
    }
}

pub async fn write(
    tx: &mut PgConnection,
    rows: BTreeMap<&BudgetKey, Option<&BudgetState>>,
) -> Result<(), WarmError> {
    let (written, gone) = parted(rows);
    let written: Vec<Spending> = written.into_iter().map(Spending::of).collect();
    merge(tx, &written).await?;
    for keys in gone.chunks(ROWS_MAX) {
        delete(tx, keys).await?;
    }
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

/// All budgets of a tenant and of what is below it.
pub async fn budgets(
    pool: &PgPool,
    tenant: &Token,
) -> Result<Vec<(Account, BudgetOf, BudgetState)>, WarmError> {
    let query =
        table::select(Spending::TABLE) + " WHERE tenant = $1 ORDER BY team, namespace, budget_of";
    let rows: Vec<Spending> = sqlx::query_as(&query)
        .bind(tenant.as_str())
        .fetch_all(pool)
        .await?;
    let of = |row: Spending| {
        let account = Account {
            tenant: row.tenant.clone(),
            team: row.team.0.clone(),
            namespace: row.namespace.0.clone(),
        };
        let (of, state) = row.state();
        (account, of, state)
    };
    Ok(rows.into_iter().map(of).collect())
}
