//! The table `quota_budgets`.

use super::{
    keys::{self, Accounts, Below},
    parted,
};
use crate::project::{BudgetKey, BudgetState};
use chassis::warm::{ROWS_MAX, WarmError, merge};
use sqlx::{PgConnection, PgPool};
use std::collections::BTreeMap;
use table::{Row, Table};
use vocab::{Account, Budget, BudgetOf, Millis, Period, Token};

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

    fn into_state(self) -> (Account, BudgetOf, BudgetState) {
        let account = keys::account(self.tenant, self.team, self.namespace);
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
        (account, self.budget_of, state)
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

/// The budgets of a tenant and of what is below it, or of all tenants, behind one of them: each account's before those below
/// it, by what they are of.
pub async fn budgets(
    pool: &PgPool,
    tenant: Option<&Token>,
    after: Option<&BudgetKey>,
    limit: u32,
) -> Result<Vec<(Account, BudgetOf, BudgetState)>, WarmError> {
    // Apart, as one statement for both would not go by the key.
    let of = match tenant {
        Some(_) => "tenant = $1",
        None => "$1::text IS NULL",
    };
    let query = table::select(Spending::TABLE)
        + &format!(
            " WHERE {of} AND (tenant, team, namespace, budget_of) > ($2, $3, $4, $5)
            ORDER BY tenant, team, namespace, budget_of LIMIT $6"
        );
    let mut accounts = Accounts::default();
    after.iter().for_each(|(account, _)| accounts.push(account));
    let first = |names: &[&str]| names.first().copied().unwrap_or("").to_owned();
    let rows: Vec<Spending> = sqlx::query_as(&query)
        .bind(tenant.map(Token::as_str))
        .bind(first(&accounts.tenants))
        .bind(first(&accounts.teams))
        .bind(first(&accounts.namespaces))
        .bind(after.map_or("", |(_, of)| of.name()))
        .bind(i64::from(limit))
        .fetch_all(pool)
        .await?;
    Ok(rows.into_iter().map(Spending::into_state).collect())
}
