//! The table `quota_limits_planned`.

use super::{
    keys::{self, Below, Keys},
    parted,
};
use crate::project::{Key, Planned};
use chassis::warm::{ROWS_MAX, WarmError, bigint, merge};
use sqlx::{PgConnection, PgPool};
use std::collections::BTreeMap;
use table::{Row, Table};
use vocab::{Account, Limits, Millis, QuotaResource, Token, Validity};

/// Limits that are to come, and overrides until they are over.
#[derive(Table)]
#[table(
    name = "quota_limits_planned",
    key(tenant, team, namespace, resource, version),
    fixed
)]
#[table(check(namespace_only_with_team, "namespace = '' OR team <> ''"))]
#[table(check(
    planned_for_a_time,
    "valid_from IS NOT NULL OR valid_until IS NOT NULL"
))]
#[table(check(begins_before_it_ends, "valid_from < valid_until"))]
#[table(check(
    limits_only_with_hard,
    "hard IS NOT NULL OR (soft IS NULL AND burst IS NULL AND borrow IS NULL AND lend IS NULL)"
))]
#[table(check(soft_not_above_hard, "soft <= hard"))]
#[table(check(burst_not_below_hard, "burst >= hard"))]
#[table(check(burst_has_its_time, "(burst IS NULL) = (burst_ms = 0)"))]
pub struct Plan {
    #[table(check = "tenant ~ '^[A-Za-z0-9_-]{1,64}$'")]
    tenant: Token,
    /// '' for the tenant's own account.
    team: Below,
    /// '' for the team's own account, or the tenant's.
    namespace: Below,
    resource: QuotaResource,
    /// Of the change that set it.
    #[table(check = "version > 0")]
    version: u64,
    /// NULL: at once.
    valid_from: Option<Millis>,
    /// NULL: for good.
    valid_until: Option<Millis>,
    /// NULL: no limits.
    #[table(check = "hard >= 0")]
    hard: Option<u64>,
    #[table(check = "soft >= 0")]
    soft: Option<u64>,
    burst: Option<u64>,
    #[table(check = "burst_ms >= 0")]
    burst_ms: u64,
    #[table(check = "borrow >= 0")]
    borrow: Option<u64>,
    #[table(check = "lend >= 0")]
    lend: Option<u64>,
}

impl Plan {
    fn of((((account, resource), version), planned): (Version<'_>, &Planned)) -> Self {
        let of = |value: fn(Limits) -> Option<u64>| planned.limits.and_then(value);
        Self {
            tenant: account.tenant.clone(),
            team: Below(account.team.clone()),
            namespace: Below(account.namespace.clone()),
            resource: resource.clone(),
            version,
            valid_from: planned.validity.from,
            valid_until: planned.validity.until,
            hard: of(|limits| Some(limits.hard)),
            soft: of(|limits| limits.soft),
            burst: of(|limits| limits.burst),
            burst_ms: planned.limits.map_or(0, |limits| limits.burst_ms),
            borrow: of(|limits| limits.borrow),
            lend: of(|limits| limits.lend),
        }
    }
}

impl From<Plan> for PlannedRow {
    fn from(row: Plan) -> Self {
        Self {
            account: keys::account(row.tenant, row.team, row.namespace),
            resource: row.resource,
            version: row.version,
            planned: Planned {
                limits: row.hard.map(|hard| Limits {
                    hard,
                    soft: row.soft,
                    burst: row.burst,
                    burst_ms: row.burst_ms,
                    borrow: row.borrow,
                    lend: row.lend,
                }),
                validity: Validity {
                    from: row.valid_from,
                    until: row.valid_until,
                },
            },
        }
    }
}

/// A change of limits that is to come, or an override that is not over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedRow {
    pub account: Account,
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
    let written: Vec<Plan> = written.into_iter().map(Plan::of).collect();
    merge(tx, &written).await?;
    for keys in gone.chunks(ROWS_MAX) {
        delete(tx, keys).await?;
    }
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

/// What is planned for a tenant's accounts, or for all: by account and resource, in the order of the versions.
pub async fn planned(pool: &PgPool, tenant: Option<&Token>) -> Result<Vec<PlannedRow>, WarmError> {
    let query = table::select(Plan::TABLE)
        + " WHERE $1::text IS NULL OR tenant = $1 ORDER BY tenant, team, namespace, resource, version";
    let rows: Vec<Plan> = sqlx::query_as(&query)
        .bind(tenant.map(Token::as_str))
        .fetch_all(pool)
        .await?;
    Ok(rows.into_iter().map(PlannedRow::from).collect())
}
