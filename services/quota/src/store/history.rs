//! The table `quota_usage_history`.

use super::keys::{self, Keys};
use crate::project::{HourRow, Key};
use chassis::warm::{Moment, OutOfRange, ROWS_MAX, WarmError, bigint, unsigned};
use sqlx::{PgConnection, PgPool};
use std::collections::BTreeMap;
use vocab::{Account, HOUR_MS, Millis, QuotaResource};

/// What was longer ago than this is forgotten: 400 days of the ledger's clock, so that a month can be put beside the same
/// month of the year before.
pub const RETENTION_MS: i64 = 400 * 24 * HOUR_MS;

/// A batch forgets up to this many times what it brings, so that forgetting catches up and is never long.
const FORGOTTEN_PER_ROW: i64 = 2;

pub async fn write(
    tx: &mut PgConnection,
    rows: BTreeMap<(&Key, Millis), &HourRow>,
) -> Result<(), WarmError> {
    let rows: Vec<_> = rows.into_iter().map(|((key, _), row)| (key, row)).collect();
    for rows in rows.chunks(ROWS_MAX) {
        upsert(tx, rows).await?;
    }
    forget(tx, &rows).await
}

async fn upsert(tx: &mut PgConnection, rows: &[(&Key, &HourRow)]) -> Result<(), WarmError> {
    let mut keys = Keys::default();
    let count = rows.len();
    let mut begin = Vec::with_capacity(count);
    let mut hours = Vec::with_capacity(count);
    let mut used_min = Vec::with_capacity(count);
    let mut used_max = Vec::with_capacity(count);
    let mut used_ms = Vec::with_capacity(count);
    let mut covered = Vec::with_capacity(count);
    let mut reserved = Vec::with_capacity(count);
    let mut hard = Vec::with_capacity(count);
    for (key, row) in rows {
        keys.push(key);
        begin.push(Moment::try_from(row.hour)?);
        hours.push(i32::try_from(row.hours).map_err(|_| OutOfRange::new("hours", row.hours))?);
        used_min.push(bigint("used_min", row.used_min)?);
        used_max.push(bigint("used_max", row.used_max)?);
        used_ms.push(row.used_ms.to_string());
        covered.push(bigint("covered_ms", row.covered_ms)?);
        reserved.push(bigint("reserved_max", row.reserved_max)?);
        hard.push(row.hard.map(|hard| bigint("hard", hard)).transpose()?);
    }
    sqlx::query!(
        "INSERT INTO quota_usage_history
             (tenant, team, namespace, resource, hour, hours, used_min, used_max, used_ms, covered_ms, reserved_max, hard)
         SELECT * FROM UNNEST($1::text[], $2::text[], $3::text[], $4::text[], $5::timestamptz[], $6::integer[],
                              $7::bigint[], $8::bigint[], $9::text[]::numeric[], $10::bigint[], $11::bigint[],
                              $12::bigint[])
         ON CONFLICT (tenant, team, namespace, resource, hour) DO UPDATE SET
             hours = excluded.hours, used_min = excluded.used_min, used_max = excluded.used_max,
             used_ms = excluded.used_ms, covered_ms = excluded.covered_ms, reserved_max = excluded.reserved_max,
             hard = excluded.hard",
        &keys.accounts.tenants as _,
        &keys.accounts.teams as _,
        &keys.accounts.namespaces as _,
        &keys.resources,
        &begin as _,
        &hours,
        &used_min,
        &used_max,
        &used_ms,
        &covered,
        &reserved,
        &hard as _,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Forgets what is too old beside `rows`. Costs one look at the oldest row as long as nothing is.
async fn forget(tx: &mut PgConnection, rows: &[(&Key, &HourRow)]) -> Result<(), WarmError> {
    let Some(newest) = rows.iter().map(|(_, row)| row.hour).max() else {
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

/// What an account used from a moment on: one row for each hour in which it held something, the oldest first.
pub async fn history(
    pool: &PgPool,
    account: &Account,
    resource: &QuotaResource,
    from: Millis,
) -> Result<Vec<HourRow>, WarmError> {
    let records = sqlx::query!(
        r#"SELECT hour AS "hour: Moment", hours, used_min, used_max, used_ms::text AS "used_ms!", covered_ms,
                  reserved_max, hard
           FROM quota_usage_history
           WHERE (tenant, team, namespace, resource) = ($1, $2, $3, $4)
                 AND hour >= coalesce((SELECT max(hour) FROM quota_usage_history
                                       WHERE (tenant, team, namespace, resource) = ($1, $2, $3, $4) AND hour <= $5),
                                      $5)
           ORDER BY hour"#,
        account.tenant.as_str(),
        keys::name(account.team.as_ref()),
        keys::name(account.namespace.as_ref()),
        resource.to_string(),
        Moment::try_from(from)? as _,
    )
    .fetch_all(pool)
    .await?;
    let mut rows = Vec::with_capacity(records.len());
    for record in records {
        let row = HourRow {
            hour: record.hour.into(),
            hours: u32::try_from(record.hours)
                .map_err(|_| OutOfRange::new("hours", record.hours))?,
            used_min: unsigned("used_min", record.used_min)?,
            used_max: unsigned("used_max", record.used_max)?,
            used_ms: keys::whole("used_ms", &record.used_ms)?,
            covered_ms: unsigned("covered_ms", record.covered_ms)?,
            reserved_max: unsigned("reserved_max", record.reserved_max)?,
            hard: record.hard.map(|hard| unsigned("hard", hard)).transpose()?,
        };
        rows.extend(row.each_hour().filter(|row| row.hour.plus(HOUR_MS) > from));
    }
    Ok(rows)
}
