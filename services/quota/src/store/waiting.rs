//! The table `quota_waiting`.

use super::{
    keys::{self, Accounts},
    parted,
};
use crate::project::{Reclaimed, WaitingState};
use chassis::warm::{Moment, OutOfRange, ROWS_MAX, WarmError, bigint, unsigned};
use sqlx::{PgConnection, PgPool};
use std::collections::BTreeMap;
use vocab::{Account, AllocationNo, Refusal, Rule};

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
    for rows in written.chunks(ROWS_MAX) {
        upsert(tx, rows).await?;
    }
    for allocations in gone.chunks(ROWS_MAX) {
        delete(tx, allocations).await?;
    }
    Ok(())
}

async fn upsert(
    tx: &mut PgConnection,
    rows: &[(AllocationNo, &WaitingState)],
) -> Result<(), WarmError> {
    let mut accounts = Accounts::default();
    let count = rows.len();
    let mut allocations = Vec::with_capacity(count);
    let mut priorities = Vec::with_capacity(count);
    let mut since = Vec::with_capacity(count);
    let mut rules = Vec::with_capacity(count);
    let mut subjects = Vec::with_capacity(count);
    let mut limits = Vec::with_capacity(count);
    let mut actuals = Vec::with_capacity(count);
    let mut reclaimed = Vec::with_capacity(count);
    let mut reclaimed_by = Vec::with_capacity(count);
    for (allocation, state) in rows {
        let refusal = state.refusal.as_ref();
        allocations.push(bigint("allocation", allocation.0)?);
        accounts.push(&state.account);
        priorities.push(state.priority);
        since.push(Moment::try_from(state.since)?);
        rules.push(refusal.map(|refusal| refusal.rule.name()));
        subjects.push(refusal.map(|refusal| refusal.subject.as_str()));
        limits.push(refusal.map(|refusal| refusal.limit.to_string()));
        actuals.push(refusal.map(|refusal| refusal.actual.to_string()));
        reclaimed.push(state.reclaimed.is_some());
        let by = state.reclaimed.and_then(|reclaimed| reclaimed.by);
        reclaimed_by.push(by.map(|by| bigint("reclaimed_by", by.0)).transpose()?);
    }
    sqlx::query!(
        "INSERT INTO quota_waiting
             (allocation, tenant, team, namespace, priority, since, rule, subject, limit_value, actual, reclaimed,
              reclaimed_by)
         SELECT * FROM UNNEST($1::bigint[], $2::text[], $3::text[], $4::text[], $5::integer[], $6::timestamptz[],
                              $7::text[], $8::text[], $9::text[]::numeric[], $10::text[]::numeric[], $11::boolean[],
                              $12::bigint[])
         ON CONFLICT (allocation) DO UPDATE SET
             priority = excluded.priority, since = excluded.since, rule = excluded.rule, subject = excluded.subject,
             limit_value = excluded.limit_value, actual = excluded.actual, reclaimed = excluded.reclaimed,
             reclaimed_by = excluded.reclaimed_by",
        &allocations,
        &accounts.tenants as _,
        &accounts.teams as _,
        &accounts.namespaces as _,
        &priorities,
        &since as _,
        &rules as _,
        &subjects as _,
        &limits as _,
        &actuals as _,
        &reclaimed,
        &reclaimed_by as _,
    )
    .execute(tx)
    .await?;
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
    let records = sqlx::query!(
        r#"SELECT allocation, tenant, team, namespace, priority, since AS "since: Moment", rule, subject,
                  limit_value::text AS limit_value, actual::text AS actual, reclaimed, reclaimed_by
           FROM quota_waiting
           WHERE tenant = $1 AND ($2 = '' OR team = $2) AND ($3 = '' OR namespace = $3)
           ORDER BY priority DESC, since, allocation LIMIT $4"#,
        account.tenant.as_str(),
        keys::name(account.team.as_ref()),
        keys::name(account.namespace.as_ref()),
        i64::from(limit),
    )
    .fetch_all(pool)
    .await?;
    let rows = records.into_iter().map(|record| {
        let refusal = match (
            record.rule,
            record.subject,
            record.limit_value,
            record.actual,
        ) {
            (Some(rule), Some(subject), Some(limit), Some(actual)) => {
                Some(refusal(&rule, subject, (&limit, &actual))?)
            }
            _ => None,
        };
        let by = record
            .reclaimed_by
            .map(|by| unsigned("reclaimed_by", by).map(AllocationNo))
            .transpose()?;
        let state = WaitingState {
            account: keys::account(&record.tenant, &record.team, &record.namespace)?,
            priority: record.priority,
            since: record.since.into(),
            refusal,
            reclaimed: record.reclaimed.then_some(Reclaimed { by }),
        };
        Ok(WaitingRow {
            allocation: AllocationNo(unsigned("allocation", record.allocation)?),
            state,
        })
    });
    rows.collect()
}

fn refusal(
    rule: &str,
    subject: String,
    (limit, actual): (&str, &str),
) -> Result<Refusal, OutOfRange> {
    let mut rules = Rule::ALL.iter().copied();
    let known = rules
        .find(|known| known.name() == rule)
        .ok_or_else(|| OutOfRange::new("rule", rule))?;
    let number = |what, text: &str| text.parse().map_err(|_| OutOfRange::new(what, text));
    let (limit, actual) = (number("limit_value", limit)?, number("actual", actual)?);
    Ok(Refusal::over(known, subject, limit, actual))
}
