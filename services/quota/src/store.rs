//! Warm state of quota: the only file with SQL.

use crate::project::{Account, Limit, Peak, QuotaRow, WarmProjection};
use chassis::warm::{Moment, OutOfRange, PgSink, ROWS_MAX, WarmError, WarmState, bigint, unsigned};
use ledger::Projection;
use sqlx::{PgConnection, PgPool, migrate::Migrator};
use std::collections::BTreeMap;
use vocab::{Millis, ResourceKind, Token};

/// The tables `resource_quotas` and `projection_position`.
#[derive(Debug, Clone, Copy, Default)]
pub struct QuotaTables;

/// Where the projection's changes go.
pub fn sink(pool: PgPool) -> PgSink<QuotaTables> {
    PgSink::new(pool, QuotaTables)
}

impl WarmState for QuotaTables {
    type Change = QuotaRow;

    const NAME: &'static str = WarmProjection::NAME;

    fn migrator() -> &'static Migrator {
        static MIGRATOR: Migrator = sqlx::migrate!("../../schemas/postgres/quota");
        &MIGRATOR
    }

    async fn write(&self, tx: &mut PgConnection, changes: &[QuotaRow]) -> Result<(), WarmError> {
        for rows in collapse(changes).chunks(ROWS_MAX) {
            upsert(tx, rows).await?;
        }
        Ok(())
    }

    async fn wipe(&self, tx: &mut PgConnection) -> Result<(), WarmError> {
        sqlx::query!("TRUNCATE resource_quotas").execute(tx).await?;
        Ok(())
    }
}

/// One row per key, the last: a statement may not touch a row twice.
fn collapse(changes: &[QuotaRow]) -> Vec<&QuotaRow> {
    let mut last = BTreeMap::new();
    for row in changes {
        last.insert((&row.tenant, row.resource), row);
    }
    last.into_values().collect()
}

async fn upsert(tx: &mut PgConnection, rows: &[&QuotaRow]) -> Result<(), WarmError> {
    let count = rows.len();
    let mut tenants = Vec::with_capacity(count);
    let mut resources = Vec::with_capacity(count);
    let mut limits = Vec::with_capacity(count);
    let mut versions = Vec::with_capacity(count);
    let mut reserved = Vec::with_capacity(count);
    let mut used = Vec::with_capacity(count);
    let mut peaks = Vec::with_capacity(count);
    let mut peak_times = Vec::with_capacity(count);
    let mut changed = Vec::with_capacity(count);
    for row in rows {
        let Account { limit, peak, .. } = row.account;
        tenants.push(row.tenant.as_str());
        resources.push(row.resource.name());
        limits.push(limit.map(|l| bigint("hard_limit", l.hard)).transpose()?);
        versions.push(bigint("version", limit.map_or(0, |l| l.version))?);
        reserved.push(bigint("reserved", row.account.reserved)?);
        used.push(bigint("used", row.account.used)?);
        peaks.push(bigint("used_peak", peak.map_or(0, |p| p.used))?);
        peak_times.push(peak.map(|p| Moment::try_from(p.at)).transpose()?);
        changed.push(Moment::try_from(row.changed_at)?);
    }
    sqlx::query!(
        "INSERT INTO resource_quotas
             (tenant, resource, hard_limit, version, reserved, used, used_peak, peak_at, changed_at)
         SELECT * FROM UNNEST($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
                              $7::bigint[], $8::timestamptz[], $9::timestamptz[])
         ON CONFLICT (tenant, resource) DO UPDATE SET
             hard_limit = excluded.hard_limit, version = excluded.version, reserved = excluded.reserved,
             used = excluded.used, used_peak = excluded.used_peak, peak_at = excluded.peak_at,
             changed_at = excluded.changed_at",
        &tenants as _,
        &resources as _,
        &limits as _,
        &versions,
        &reserved,
        &used,
        &peaks,
        &peak_times as _,
        &changed as _,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// A tenant's accounts, by resource type.
pub async fn quota(pool: &PgPool, tenant: &Token) -> Result<Vec<QuotaRow>, WarmError> {
    let records = sqlx::query!(
        r#"SELECT resource, hard_limit, version, reserved, used, used_peak,
                  peak_at AS "peak_at: Moment", changed_at AS "changed_at: Moment"
           FROM resource_quotas WHERE tenant = $1 ORDER BY resource"#,
        tenant.as_str(),
    )
    .fetch_all(pool)
    .await?;
    let rows = records.into_iter().map(|record| {
        let version = unsigned("version", record.version)?;
        let limit = record.hard_limit.map(|hard| {
            let hard = unsigned("hard_limit", hard)?;
            Ok::<_, OutOfRange>(Limit { hard, version })
        });
        let peak_used = unsigned("used_peak", record.used_peak)?;
        Ok(QuotaRow {
            tenant: tenant.clone(),
            resource: ResourceKind::parse(&record.resource)
                .ok_or_else(|| OutOfRange::new("resource", &record.resource))?,
            account: Account {
                limit: limit.transpose()?,
                reserved: unsigned("reserved", record.reserved)?,
                used: unsigned("used", record.used)?,
                peak: record.peak_at.map(|at| Peak {
                    used: peak_used,
                    at: Millis::from(at),
                }),
            },
            changed_at: record.changed_at.into(),
        })
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_change_of_a_key_is_written() {
        let row = |tenant, resource, reserved| QuotaRow {
            tenant: Token::new(tenant).unwrap(),
            resource,
            account: Account {
                reserved,
                ..Account::default()
            },
            changed_at: Millis(0),
        };
        let changes = [
            row("a", ResourceKind::Cpu, 1),
            row("b", ResourceKind::Cpu, 2),
            row("a", ResourceKind::Gpu, 3),
            row("a", ResourceKind::Cpu, 4),
        ];
        let found: Vec<_> = collapse(&changes)
            .iter()
            .map(|row| row.account.reserved)
            .collect();
        assert_eq!(found, [4, 3, 2]);
        assert!(collapse(&[]).is_empty());
    }
}
