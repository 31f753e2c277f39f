//! The table `quota_usage_history`.

use super::keys::{self, Below};
use crate::project::{HourRow, Key};
use chassis::warm::{Moment, WarmError, merge};
use sqlx::{PgConnection, PgPool};
use std::collections::BTreeMap;
use table::{Row, Table};
use vocab::{HOUR_MS, Millis, QuotaResource, Token};

/// What was longer ago than this is forgotten: 400 days of the ledger's clock, so that a month can be put beside the same
/// month of the year before.
pub const RETENTION_MS: i64 = 400 * 24 * HOUR_MS;

/// A batch forgets up to this many times what it brings, so that forgetting catches up and is never long.
const FORGOTTEN_PER_ROW: i64 = 2;

/// What was held in each hour, for trends. An account that held nothing in an hour has no row of it.
#[derive(Table)]
#[table(
    name = "quota_usage_history",
    key(tenant, team, namespace, resource, hour)
)]
#[table(check(namespace_only_with_team, "namespace = '' OR team <> ''"))]
#[table(check(least_not_above_most, "used_min <= used_max"))]
#[table(check(covers_its_hours, "covered_ms BETWEEN 0 AND hours * 3600000::bigint"))]
#[table(check(
    many_hours_only_when_over,
    "hours = 1 OR covered_ms = hours * 3600000::bigint"
))]
#[table(check(many_hours_only_unchanged, "hours = 1 OR used_min = used_max"))]
#[table(check(
    average_between_least_and_most,
    "used_ms BETWEEN used_min::numeric * covered_ms AND used_max::numeric * covered_ms"
))]
// For what is too old.
#[table(index(by_hour, on "hour"))]
pub struct Hour {
    #[table(check = "tenant ~ '^[A-Za-z0-9_-]{1,64}$'")]
    tenant: Token,
    /// '' for the tenant's own account.
    team: Below,
    /// '' for the team's own account, or the tenant's.
    namespace: Below,
    resource: QuotaResource,
    /// In UTC.
    #[table(check = "extract(epoch FROM hour) % 3600 = 0")]
    hour: Millis,
    /// More than one where nothing has changed for as long, and nothing else happened in the cell.
    #[table(check = "hours > 0")]
    hours: u32,
    #[table(check = "used_min >= 0")]
    used_min: u64,
    used_max: u64,
    /// The sum of what was in use, times the milliseconds that it was; over all of the hours.
    #[table(check = "used_ms >= 0 AND scale(used_ms) = 0")]
    used_ms: u128,
    /// The milliseconds that the row speaks of: until an hour is over, those up to its last change.
    covered_ms: u64,
    #[table(check = "reserved_max >= 0")]
    reserved_max: u64,
    /// At the end of what the row speaks of; NULL: there was none.
    #[table(check = "hard >= 0")]
    hard: Option<u64>,
}

impl Hour {
    fn of(((account, resource), _): (&Key, Millis), row: &HourRow) -> Self {
        Self {
            tenant: account.tenant.clone(),
            team: Below(account.team.clone()),
            namespace: Below(account.namespace.clone()),
            resource: resource.clone(),
            hour: row.hour,
            hours: row.hours,
            used_min: row.used_min,
            used_max: row.used_max,
            used_ms: row.used_ms,
            covered_ms: row.covered_ms,
            reserved_max: row.reserved_max,
            hard: row.hard,
        }
    }
}

impl From<Hour> for HourRow {
    fn from(row: Hour) -> Self {
        Self {
            hour: row.hour,
            hours: row.hours,
            used_min: row.used_min,
            used_max: row.used_max,
            used_ms: row.used_ms,
            covered_ms: row.covered_ms,
            reserved_max: row.reserved_max,
            hard: row.hard,
        }
    }
}

pub async fn write(
    tx: &mut PgConnection,
    rows: BTreeMap<(&Key, Millis), &HourRow>,
) -> Result<(), WarmError> {
    let rows: Vec<Hour> = rows
        .into_iter()
        .map(|(key, row)| Hour::of(key, row))
        .collect();
    merge(tx, &rows).await?;
    forget(tx, &rows).await
}

/// Forgets what is too old beside `rows`. Costs one look at the oldest row as long as nothing is.
async fn forget(tx: &mut PgConnection, rows: &[Hour]) -> Result<(), WarmError> {
    let Some(newest) = rows.iter().map(|row| row.hour).max() else {
        return Ok(());
    };
    let before = Millis(newest.0.saturating_sub(RETENTION_MS));
    sqlx::query!(
        "DELETE FROM quota_usage_history
         WHERE (tenant, team, namespace, resource, hour) IN
               (SELECT tenant, team, namespace, resource, hour FROM quota_usage_history
                WHERE hour < $1 ORDER BY hour LIMIT $2)",
        Moment::try_from(before)? as _,
        FORGOTTEN_PER_ROW.saturating_mul(rows.len() as i64),
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// What is asked of the history: of an account of a tenant, or of the account of this name of each.
#[derive(Debug, Clone)]
pub struct HistoryOf<'a> {
    pub tenant: Option<&'a Token>,
    pub team: Option<&'a Token>,
    pub namespace: Option<&'a Token>,
    pub resource: &'a QuotaResource,
    /// Hours that end behind it.
    pub from: Millis,
    /// Hours that begin before it; none: all.
    pub until: Option<Millis>,
    /// Behind this tenant's row of this hour.
    pub after: Option<(Token, Millis)>,
    pub limit: u32,
}

/// By one look at the key for each: there are many hours of a tenant.
const TENANTS: &str = "WITH RECURSIVE t AS (
         (SELECT tenant FROM quota_usage_history WHERE tenant >= $7 ORDER BY tenant LIMIT 1)
         UNION ALL
         SELECT (SELECT h.tenant FROM quota_usage_history AS h WHERE h.tenant > t.tenant ORDER BY h.tenant LIMIT 1)
         FROM t WHERE t.tenant IS NOT NULL
     )";

/// A tenant's, each row of an hour in which its account held something, or of several, the oldest first; or each tenant's.
pub async fn history(
    pool: &PgPool,
    of: &HistoryOf<'_>,
) -> Result<Vec<(Token, HourRow)>, WarmError> {
    let tenants = match of.tenant {
        Some(_) => "WITH t AS (SELECT $1::text AS tenant)",
        None => TENANTS,
    };
    let hours = table::select(Hour::TABLE);
    let key = "(tenant, team, namespace, resource) = (t.tenant, $2, $3, $4)";
    // The last row that begins no later than the moment may reach beyond it.
    let query = format!(
        "{tenants} SELECT h.* FROM t CROSS JOIN LATERAL (
             {hours} WHERE {key} AND ($6::timestamptz IS NULL OR hour < $6)
                 AND hour >= coalesce((SELECT max(hour) FROM quota_usage_history WHERE {key} AND hour <= $5), $5)
                 AND hour + hours * interval '1 hour' > $5
         ) AS h
         WHERE ($1::text IS NULL OR h.tenant = $1) AND (h.tenant, h.hour) > ($7, $8)
         ORDER BY h.tenant, h.hour LIMIT $9"
    );
    let (tenant, hour) = match &of.after {
        Some((tenant, hour)) => (tenant.as_str(), *hour),
        None => ("", Millis(0)),
    };
    let rows: Vec<Hour> = sqlx::query_as(&query)
        .bind(of.tenant.map(Token::as_str))
        .bind(keys::name(of.team))
        .bind(keys::name(of.namespace))
        .bind(of.resource.to_string())
        .bind(Moment::try_from(of.from)?)
        .bind(of.until.map(Moment::try_from).transpose()?)
        .bind(tenant)
        .bind(Moment::try_from(hour)?)
        .bind(i64::from(of.limit))
        .fetch_all(pool)
        .await?;
    let rows = rows.into_iter();
    Ok(rows
        .map(|row| (row.tenant.clone(), HourRow::from(row)))
        .collect())
}
