//! The table `quota_waiting`.

use super::{
    keys::{self, Below},
    parted,
};
use crate::project::{Reclaimed, WaitingState};
use chassis::warm::{OutOfRange, ROWS_MAX, WarmError, bigint, merge};
use sqlx::{PgConnection, PgPool};
use std::collections::BTreeMap;
use table::{Row, Table};
use vocab::{Account, AllocationNo, Millis, Refusal, Rule, Token};

/// What waits for quota.
#[derive(Table)]
#[table(name = "quota_waiting", key(allocation))]
#[table(check(namespace_only_with_team, "namespace = '' OR team <> ''"))]
#[table(check(
    refusal_whole_or_none,
    "(rule IS NULL) = (subject IS NULL) AND (rule IS NULL) = (limit_value IS NULL)
     AND (rule IS NULL) = (actual IS NULL)"
))]
#[table(check(reclaimed_by_only_when_reclaimed, "reclaimed_by IS NULL OR reclaimed"))]
#[table(index(of_a_tenant, on "tenant, priority DESC, since, allocation"))]
pub struct Waiting {
    /// Its number in the cell.
    #[table(check = "allocation > 0")]
    allocation: AllocationNo,
    #[table(check = "tenant ~ '^[A-Za-z0-9_-]{1,64}$'", fixed)]
    tenant: Token,
    /// '' for the tenant's own account.
    #[table(fixed)]
    team: Below,
    /// '' for the team's own account, or the tenant's.
    #[table(fixed)]
    namespace: Below,
    priority: i32,
    since: Millis,
    /// What it waits for; NULL until that is said of one whose quota was taken back.
    rule: Option<Rule>,
    subject: Option<String>,
    #[table(check = "limit_value >= 0 AND scale(limit_value) = 0")]
    limit_value: Option<u128>,
    #[table(check = "actual >= 0 AND scale(actual) = 0")]
    actual: Option<u128>,
    /// It held quota before, which was taken back.
    reclaimed: bool,
    /// For whose sake; NULL: its account's burst was over.
    #[table(check = "reclaimed_by > 0")]
    reclaimed_by: Option<AllocationNo>,
}

impl Waiting {
    fn of((allocation, state): (AllocationNo, &WaitingState)) -> Self {
        let refusal = state.refusal.as_ref();
        Self {
            allocation,
            tenant: state.account.tenant.clone(),
            team: Below(state.account.team.clone()),
            namespace: Below(state.account.namespace.clone()),
            priority: state.priority,
            since: state.since,
            rule: refusal.map(|refusal| refusal.rule),
            subject: refusal.map(|refusal| refusal.subject.clone()),
            limit_value: refusal.map(|refusal| refusal.limit.into()),
            actual: refusal.map(|refusal| refusal.actual.into()),
            reclaimed: state.reclaimed.is_some(),
            reclaimed_by: state.reclaimed.and_then(|reclaimed| reclaimed.by),
        }
    }
}

impl TryFrom<Waiting> for WaitingRow {
    type Error = OutOfRange;

    fn try_from(row: Waiting) -> Result<Self, OutOfRange> {
        let number =
            |what, value: u128| u64::try_from(value).map_err(|_| OutOfRange::new(what, value));
        let refusal = match (row.rule, row.subject, row.limit_value, row.actual) {
            (Some(rule), Some(subject), Some(limit), Some(actual)) => {
                let (limit, actual) = (number("limit_value", limit)?, number("actual", actual)?);
                Some(Refusal::over(rule, subject, limit, actual))
            }
            _ => None,
        };
        let by = row.reclaimed_by;
        Ok(Self {
            allocation: row.allocation,
            state: WaitingState {
                account: keys::account(row.tenant, row.team, row.namespace),
                priority: row.priority,
                since: row.since,
                refusal,
                reclaimed: row.reclaimed.then_some(Reclaimed { by }),
            },
        })
    }
}

/// An allocation that waits for quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingRow {
    pub allocation: AllocationNo,
    pub state: WaitingState,
}

pub async fn write(
    tx: &mut PgConnection,
    rows: BTreeMap<AllocationNo, Option<&WaitingState>>,
) -> Result<(), WarmError> {
    let (written, gone) = parted(rows);
    let written: Vec<Waiting> = written.into_iter().map(Waiting::of).collect();
    merge(tx, &written).await?;
    for allocations in gone.chunks(ROWS_MAX) {
        delete(tx, allocations).await?;
    }
    Ok(())
}

async fn delete(tx: &mut PgConnection, gone: &[AllocationNo]) -> Result<(), WarmError> {
    let allocations = gone.iter().map(|no| bigint("allocation", no.0));
    let allocations: Vec<_> = allocations.collect::<Result<_, _>>()?;
    sqlx::query!(
        "DELETE FROM quota_waiting WHERE allocation = ANY($1)",
        &allocations
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Those that wait in an account and below it: by priority, then the longest first.
pub async fn waiting(
    pool: &PgPool,
    account: &Account,
    limit: u32,
) -> Result<Vec<WaitingRow>, WarmError> {
    let query = table::select(Waiting::TABLE)
        + " WHERE tenant = $1 AND ($2 = '' OR team = $2) AND ($3 = '' OR namespace = $3)
            ORDER BY priority DESC, since, allocation LIMIT $4";
    let rows: Vec<Waiting> = sqlx::query_as(&query)
        .bind(account.tenant.as_str())
        .bind(keys::name(account.team.as_ref()))
        .bind(keys::name(account.namespace.as_ref()))
        .bind(i64::from(limit))
        .fetch_all(pool)
        .await?;
    rows.into_iter()
        .map(|row| Ok(WaitingRow::try_from(row)?))
        .collect()
}
