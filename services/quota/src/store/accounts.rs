//! The table `resource_quotas`, and the view `quota_cohort`.

use super::{
    keys::{self, Keys, LimitColumns, LimitRecord},
    parted,
};
use crate::project::{AccountState, Key, Peak};
use chassis::warm::{Moment, OutOfRange, ROWS_MAX, WarmError, bigint, unsigned};
use sqlx::{PgConnection, PgPool};
use std::collections::BTreeMap;
use vocab::{Account, QuotaResource, Token};

/// One account's part of one resource type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountRow {
    pub account: Account,
    pub resource: QuotaResource,
    pub state: AccountState,
}

/// What the tenants of a cohort have together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CohortRow {
    pub cohort: Token,
    pub resource: QuotaResource,
    pub tenants: u64,
    pub hard: u128,
    pub lendable: u128,
    pub reserved: u128,
    pub used: u128,
    pub borrowed: u128,
}

pub async fn write(
    tx: &mut PgConnection,
    rows: BTreeMap<&Key, Option<&AccountState>>,
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

async fn upsert(tx: &mut PgConnection, rows: &[(&Key, &AccountState)]) -> Result<(), WarmError> {
    let mut keys = Keys::default();
    let mut limits = LimitColumns::default();
    let count = rows.len();
    let mut versions = Vec::with_capacity(count);
    let mut reserved = Vec::with_capacity(count);
    let mut used = Vec::with_capacity(count);
    let mut peaks = Vec::with_capacity(count);
    let mut peak_times = Vec::with_capacity(count);
    let mut soft_since = Vec::with_capacity(count);
    let mut over_since = Vec::with_capacity(count);
    let mut borrowed = Vec::with_capacity(count);
    let mut changed = Vec::with_capacity(count);
    for (key, state) in rows {
        let peak = state.peak;
        keys.push(key);
        limits.push(state.limits)?;
        versions.push(bigint("version", state.version)?);
        reserved.push(bigint("reserved", state.reserved)?);
        used.push(bigint("used", state.used)?);
        peaks.push(bigint("used_peak", peak.map_or(0, |peak| peak.used))?);
        peak_times.push(peak.map(|peak| Moment::try_from(peak.at)).transpose()?);
        soft_since.push(state.soft_since.map(Moment::try_from).transpose()?);
        over_since.push(state.over_since.map(Moment::try_from).transpose()?);
        borrowed.push(bigint("borrowed", state.borrowed)?);
        changed.push(Moment::try_from(state.changed_at)?);
    }
    sqlx::query!(
        "INSERT INTO resource_quotas
             (tenant, team, namespace, resource, hard, soft, burst, burst_ms, borrow, lend, version, reserved, used,
              used_peak, peak_at, soft_since, over_since, borrowed, changed_at)
         SELECT * FROM UNNEST($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[],
                              $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[],
                              $14::bigint[], $15::timestamptz[], $16::timestamptz[], $17::timestamptz[],
                              $18::bigint[], $19::timestamptz[])
         ON CONFLICT (tenant, team, namespace, resource) DO UPDATE SET
             hard = excluded.hard, soft = excluded.soft, burst = excluded.burst, burst_ms = excluded.burst_ms,
             borrow = excluded.borrow, lend = excluded.lend, version = excluded.version,
             reserved = excluded.reserved, used = excluded.used, used_peak = excluded.used_peak,
             peak_at = excluded.peak_at, soft_since = excluded.soft_since, over_since = excluded.over_since,
             borrowed = excluded.borrowed, changed_at = excluded.changed_at",
        &keys.accounts.tenants as _,
        &keys.accounts.teams as _,
        &keys.accounts.namespaces as _,
        &keys.resources,
        &limits.hard as _,
        &limits.soft as _,
        &limits.burst as _,
        &limits.burst_ms,
        &limits.borrow as _,
        &limits.lend as _,
        &versions,
        &reserved,
        &used,
        &peaks,
        &peak_times as _,
        &soft_since as _,
        &over_since as _,
        &borrowed,
        &changed as _,
    )
    .execute(tx)
    .await?;
    Ok(())
}

async fn delete(tx: &mut PgConnection, gone: &[&Key]) -> Result<(), WarmError> {
    let mut keys = Keys::default();
    gone.iter().for_each(|key| keys.push(key));
    sqlx::query!(
        "DELETE FROM resource_quotas AS q
         USING UNNEST($1::text[], $2::text[], $3::text[], $4::text[]) AS gone (tenant, team, namespace, resource)
         WHERE (q.tenant, q.team, q.namespace, q.resource)
               = (gone.tenant, gone.team, gone.namespace, gone.resource)",
        &keys.accounts.tenants as _,
        &keys.accounts.teams as _,
        &keys.accounts.namespaces as _,
        &keys.resources,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// An account's own rows, by resource.
pub async fn account(pool: &PgPool, account: &Account) -> Result<Vec<AccountRow>, WarmError> {
    let team = keys::name(account.team.as_ref());
    let namespace = keys::name(account.namespace.as_ref());
    read(pool, Some(&account.tenant), Some((team, namespace))).await
}

/// All accounts, or a tenant's with those below it: each before those below it.
pub async fn accounts(pool: &PgPool, tenant: Option<&Token>) -> Result<Vec<AccountRow>, WarmError> {
    read(pool, tenant, None).await
}

async fn read(
    pool: &PgPool,
    tenant: Option<&Token>,
    below: Option<(&str, &str)>,
) -> Result<Vec<AccountRow>, WarmError> {
    let records = sqlx::query!(
        r#"SELECT tenant, team, namespace, resource, hard, soft, burst, burst_ms, borrow, lend, version, reserved, used,
                  used_peak, peak_at AS "peak_at: Moment", soft_since AS "soft_since: Moment",
                  over_since AS "over_since: Moment", borrowed, changed_at AS "changed_at: Moment"
           FROM resource_quotas
           WHERE ($1::text IS NULL OR tenant = $1) AND ($2::text IS NULL OR (team, namespace) = ($2, $3))
           ORDER BY tenant, team, namespace, resource"#,
        tenant.map(Token::as_str),
        below.map(|(team, _)| team),
        below.map(|(_, namespace)| namespace),
    )
    .fetch_all(pool)
    .await?;
    let rows = records.into_iter().map(|record| {
        let peak_used = unsigned("used_peak", record.used_peak)?;
        let limits = LimitRecord {
            hard: record.hard,
            soft: record.soft,
            burst: record.burst,
            burst_ms: record.burst_ms,
            borrow: record.borrow,
            lend: record.lend,
        };
        let state = AccountState {
            limits: limits.limits()?,
            version: unsigned("version", record.version)?,
            reserved: unsigned("reserved", record.reserved)?,
            used: unsigned("used", record.used)?,
            peak: record.peak_at.map(|at| Peak {
                used: peak_used,
                at: at.into(),
            }),
            soft_since: record.soft_since.map(Into::into),
            over_since: record.over_since.map(Into::into),
            borrowed: unsigned("borrowed", record.borrowed)?,
            changed_at: record.changed_at.into(),
        };
        Ok(AccountRow {
            account: keys::account(&record.tenant, &record.team, &record.namespace)?,
            resource: keys::resource(&record.resource)?,
            state,
        })
    });
    rows.collect()
}

/// All cohorts, by name and resource.
pub async fn cohorts(pool: &PgPool) -> Result<Vec<CohortRow>, WarmError> {
    let records = sqlx::query!(
        r#"SELECT cohort AS "cohort!", resource AS "resource!", tenants AS "tenants!", hard::text AS "hard!",
                  lendable::text AS "lendable!", reserved::text AS "reserved!", used::text AS "used!",
                  borrowed::text AS "borrowed!"
           FROM quota_cohort ORDER BY cohort, resource"#
    )
    .fetch_all(pool)
    .await?;
    let rows = records.into_iter().map(|record| {
        Ok::<_, OutOfRange>(CohortRow {
            cohort: keys::token("cohort", &record.cohort)?,
            resource: keys::resource(&record.resource)?,
            tenants: unsigned("tenants", record.tenants)?,
            hard: keys::whole("hard", &record.hard)?,
            lendable: keys::whole("lendable", &record.lendable)?,
            reserved: keys::whole("reserved", &record.reserved)?,
            used: keys::whole("used", &record.used)?,
            borrowed: keys::whole("borrowed", &record.borrowed)?,
        })
    });
    Ok(rows.collect::<Result<_, _>>()?)
}
