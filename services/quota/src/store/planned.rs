//! The table `quota_limits_planned`.

use super::{
    keys::{self, Keys, LimitColumns, LimitRecord},
    parted,
};
use crate::project::{Key, Planned};
use chassis::warm::{Moment, ROWS_MAX, WarmError, bigint, unsigned};
use sqlx::{PgConnection, PgPool};
use std::collections::BTreeMap;
use vocab::{Account, QuotaResource, Validity};

/// A change of limits that is to come, or an override that is not over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedRow {
    pub resource: QuotaResource,
    /// Of the change that planned it.
    pub version: u64,
    pub planned: Planned,
}

type Version<'a> = (&'a Key, u64);

pub async fn write(
    tx: &mut PgConnection,
    rows: BTreeMap<Version<'_>, Option<&Planned>>,
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

async fn upsert(tx: &mut PgConnection, rows: &[(Version<'_>, &Planned)]) -> Result<(), WarmError> {
    let mut keys = Keys::default();
    let mut limits = LimitColumns::default();
    let mut versions = Vec::with_capacity(rows.len());
    let mut from = Vec::with_capacity(rows.len());
    let mut until = Vec::with_capacity(rows.len());
    for ((key, version), planned) in rows {
        keys.push(key);
        limits.push(planned.limits)?;
        versions.push(bigint("version", *version)?);
        from.push(planned.validity.from.map(Moment::try_from).transpose()?);
        until.push(planned.validity.until.map(Moment::try_from).transpose()?);
    }
    sqlx::query!(
        "INSERT INTO quota_limits_planned
             (tenant, team, namespace, resource, version, valid_from, valid_until, hard, soft, burst, burst_ms, borrow,
              lend)
         SELECT * FROM UNNEST($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::timestamptz[],
                              $7::timestamptz[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[],
                              $12::bigint[], $13::bigint[])
         ON CONFLICT (tenant, team, namespace, resource, version) DO NOTHING",
        &keys.accounts.tenants as _,
        &keys.accounts.teams as _,
        &keys.accounts.namespaces as _,
        &keys.resources,
        &versions,
        &from as _,
        &until as _,
        &limits.hard as _,
        &limits.soft as _,
        &limits.burst as _,
        &limits.burst_ms,
        &limits.borrow as _,
        &limits.lend as _,
    )
    .execute(tx)
    .await?;
    Ok(())
}

async fn delete(tx: &mut PgConnection, gone: &[Version<'_>]) -> Result<(), WarmError> {
    let mut keys = Keys::default();
    let mut versions = Vec::with_capacity(gone.len());
    for (key, version) in gone {
        keys.push(key);
        versions.push(bigint("version", *version)?);
    }
    sqlx::query!(
        "DELETE FROM quota_limits_planned AS p
         USING UNNEST($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[])
               AS gone (tenant, team, namespace, resource, version)
         WHERE (p.tenant, p.team, p.namespace, p.resource, p.version)
               = (gone.tenant, gone.team, gone.namespace, gone.resource, gone.version)",
        &keys.accounts.tenants as _,
        &keys.accounts.teams as _,
        &keys.accounts.namespaces as _,
        &keys.resources,
        &versions,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// What is planned for an account, by resource and in the order of the versions.
pub async fn planned(pool: &PgPool, account: &Account) -> Result<Vec<PlannedRow>, WarmError> {
    let records = sqlx::query!(
        r#"SELECT resource, version, valid_from AS "valid_from: Moment", valid_until AS "valid_until: Moment", hard, soft,
                  burst, burst_ms, borrow, lend
           FROM quota_limits_planned WHERE (tenant, team, namespace) = ($1, $2, $3) ORDER BY resource, version"#,
        account.tenant.as_str(),
        keys::name(account.team.as_ref()),
        keys::name(account.namespace.as_ref()),
    )
    .fetch_all(pool)
    .await?;
    let rows = records.into_iter().map(|record| {
        let limits = LimitRecord {
            hard: record.hard,
            soft: record.soft,
            burst: record.burst,
            burst_ms: record.burst_ms,
            borrow: record.borrow,
            lend: record.lend,
        };
        let validity = Validity {
            from: record.valid_from.map(Into::into),
            until: record.valid_until.map(Into::into),
        };
        Ok(PlannedRow {
            resource: keys::resource(&record.resource)?,
            version: unsigned("version", record.version)?,
            planned: Planned {
                limits: limits.limits()?,
                validity,
            },
        })
    });
    rows.collect()
}
