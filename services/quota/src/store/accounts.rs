//! The table `resource_quotas`, and the view `quota_cohort`.

use super::{
    keys::{self, Below, Keys},
    parted,
};
use crate::project::{AccountState, Key, Peak};
use chassis::warm::{OutOfRange, ROWS_MAX, WarmError, merge, unsigned};
use sqlx::{PgConnection, PgPool};
use std::collections::BTreeMap;
use table::{Row, Table};
use vocab::{Account, Limits, Millis, QuotaResource, Token};

/// Limits and what is taken of them, in the resource's unit: millicores, bytes, thousandths of a GPU.
#[derive(Table)]
#[table(name = "resource_quotas", key(tenant, team, namespace, resource))]
#[table(check(peak_is_the_most, "used_peak >= used"))]
#[table(check(peak_has_its_time, "(used_peak = 0) = (peak_at IS NULL)"))]
#[table(check(namespace_only_with_team, "namespace = '' OR team <> ''"))]
#[table(check(limits_have_a_version, "hard IS NULL OR version > 0"))]
#[table(check(
    limits_only_with_hard,
    "hard IS NOT NULL OR (soft IS NULL AND burst IS NULL AND borrow IS NULL AND lend IS NULL)"
))]
#[table(check(soft_not_above_hard, "soft <= hard"))]
#[table(check(burst_not_below_hard, "burst >= hard"))]
#[table(check(burst_has_its_time, "(burst IS NULL) = (burst_ms = 0)"))]
#[table(check(
    soft_since_while_above,
    "(soft_since IS NOT NULL) = (soft IS NOT NULL AND reserved::numeric + used > soft)"
))]
#[table(check(
    over_since_while_above,
    "(over_since IS NOT NULL) = (hard IS NOT NULL AND reserved::numeric + used > hard)"
))]
#[table(check(
    borrowed_only_beyond_hard,
    "borrowed = 0 OR (team = '' AND hard IS NOT NULL AND borrowed::numeric <= reserved::numeric + used - hard)"
))]
#[table(check(borrowed_within_the_most, "borrowed <= borrow"))]
pub struct Quota {
    #[table(check = "tenant ~ '^[A-Za-z0-9_-]{1,64}$'")]
    tenant: Token,
    /// '' for the tenant's own account.
    team: Below,
    /// '' for the team's own account, or the tenant's.
    namespace: Below,
    resource: QuotaResource,
    /// None until an operator sets one. May be lowered below what is in use, so nothing compares the two.
    #[table(check = "hard >= 0")]
    hard: Option<u64>,
    /// Above this an account is flagged.
    #[table(check = "soft >= 0")]
    soft: Option<u64>,
    /// Up to this for `burst_ms` at a stretch.
    burst: Option<u64>,
    #[table(check = "burst_ms >= 0")]
    burst_ms: u64,
    /// How much of what others of the cohort lend it may take; NULL: all of it.
    #[table(check = "borrow >= 0")]
    borrow: Option<u64>,
    /// How much of `hard` others of the cohort may take; NULL: all of it.
    #[table(check = "lend >= 0")]
    lend: Option<u64>,
    /// Of the limit; 0 while there is none.
    #[table(check = "version >= 0")]
    version: u64,
    /// Granted, not started.
    #[table(check = "reserved >= 0")]
    reserved: u64,
    /// Running.
    #[table(check = "used >= 0")]
    used: u64,
    /// The most that was ever in use, and since when.
    #[table(check = "used_peak >= 0")]
    used_peak: u64,
    peak_at: Option<Millis>,
    /// Above `soft` since then without a break.
    soft_since: Option<Millis>,
    /// The same above `hard`.
    over_since: Option<Millis>,
    /// What a tenant of a cohort holds beyond `hard`, as far as it may borrow.
    #[table(check = "borrowed >= 0")]
    borrowed: u64,
    changed_at: Millis,
}

impl Quota {
    fn of(((account, resource), state): (&Key, &AccountState)) -> Self {
        let of = |value: fn(Limits) -> Option<u64>| state.limits.and_then(value);
        Self {
            tenant: account.tenant.clone(),
            team: Below(account.team.clone()),
            namespace: Below(account.namespace.clone()),
            resource: resource.clone(),
            hard: of(|limits| Some(limits.hard)),
            soft: of(|limits| limits.soft),
            burst: of(|limits| limits.burst),
            burst_ms: state.limits.map_or(0, |limits| limits.burst_ms),
            borrow: of(|limits| limits.borrow),
            lend: of(|limits| limits.lend),
            version: state.version,
            reserved: state.reserved,
            used: state.used,
            used_peak: state.peak.map_or(0, |peak| peak.used),
            peak_at: state.peak.map(|peak| peak.at),
            soft_since: state.soft_since,
            over_since: state.over_since,
            borrowed: state.borrowed,
            changed_at: state.changed_at,
        }
    }
}

impl From<Quota> for AccountRow {
    fn from(row: Quota) -> Self {
        Self {
            account: keys::account(row.tenant, row.team, row.namespace),
            resource: row.resource,
            state: AccountState {
                limits: row.hard.map(|hard| Limits {
                    hard,
                    soft: row.soft,
                    burst: row.burst,
                    burst_ms: row.burst_ms,
                    borrow: row.borrow,
                    lend: row.lend,
                }),
                version: row.version,
                reserved: row.reserved,
                used: row.used,
                peak: row.peak_at.map(|at| Peak {
                    used: row.used_peak,
                    at,
                }),
                soft_since: row.soft_since,
                over_since: row.over_since,
                borrowed: row.borrowed,
                changed_at: row.changed_at,
            },
        }
    }
}

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
    let written: Vec<Quota> = written.into_iter().map(Quota::of).collect();
    merge(tx, &written).await?;
    for keys in gone.chunks(ROWS_MAX) {
        delete(tx, keys).await?;
    }
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
    let query = table::select(Quota::TABLE)
        + " WHERE ($1::text IS NULL OR tenant = $1) AND ($2::text IS NULL OR (team, namespace) = ($2, $3))
            ORDER BY tenant, team, namespace, resource";
    let rows: Vec<Quota> = sqlx::query_as(&query)
        .bind(tenant.map(Token::as_str))
        .bind(below.map(|(team, _)| team))
        .bind(below.map(|(_, namespace)| namespace))
        .fetch_all(pool)
        .await?;
    Ok(rows.into_iter().map(AccountRow::from).collect())
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
