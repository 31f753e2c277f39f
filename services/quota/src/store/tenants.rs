//! The table `quota_tenants`.

use super::keys;
use crate::project::TenantRow;
use chassis::warm::{OutOfRange, WarmError, bigint, unsigned};
use sqlx::{PgConnection, PgPool};
use vocab::{OnExceed, ReclaimFrom, Token};

pub async fn upsert(tx: &mut PgConnection, row: &TenantRow) -> Result<(), WarmError> {
    sqlx::query!(
        "INSERT INTO quota_tenants (tenant, cohort, preemptible, on_exceed, reclaim, version)
         VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (tenant) DO UPDATE SET
             cohort = excluded.cohort, preemptible = excluded.preemptible, on_exceed = excluded.on_exceed,
             reclaim = excluded.reclaim, version = excluded.version",
        row.tenant.as_str(),
        row.cohort.as_ref().map(Token::as_str),
        row.preemptible,
        row.on_exceed.name(),
        row.reclaim.name(),
        bigint("version", row.version)?,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// All tenants, by name.
pub async fn tenants(pool: &PgPool) -> Result<Vec<TenantRow>, WarmError> {
    read(pool, None).await
}

/// How quota treats one tenant; none: it was never set.
pub async fn tenant(pool: &PgPool, tenant: &Token) -> Result<Option<TenantRow>, WarmError> {
    Ok(read(pool, Some(tenant)).await?.pop())
}

async fn read(pool: &PgPool, tenant: Option<&Token>) -> Result<Vec<TenantRow>, WarmError> {
    let records = sqlx::query!(
        "SELECT tenant, cohort, preemptible, on_exceed, reclaim, version FROM quota_tenants
         WHERE ($1::text IS NULL OR tenant = $1) ORDER BY tenant",
        tenant.map(Token::as_str),
    )
    .fetch_all(pool)
    .await?;
    let rows = records.into_iter().map(|record| {
        let on_exceed = OnExceed::ALL.into_iter();
        let reclaim = ReclaimFrom::ALL.into_iter();
        let cohort = record.cohort.as_deref();
        Ok(TenantRow {
            tenant: keys::token("tenant", &record.tenant)?,
            cohort: cohort
                .map(|cohort| keys::token("cohort", cohort))
                .transpose()?,
            preemptible: record.preemptible,
            on_exceed: on_exceed
                .into_iter()
                .find(|one| one.name() == record.on_exceed)
                .ok_or_else(|| OutOfRange::new("on_exceed", &record.on_exceed))?,
            reclaim: reclaim
                .into_iter()
                .find(|one| one.name() == record.reclaim)
                .ok_or_else(|| OutOfRange::new("reclaim", &record.reclaim))?,
            version: unsigned("version", record.version)?,
        })
    });
    rows.collect()
}
