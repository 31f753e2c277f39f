//! The table `resource_quotas`.

use super::{
    keys::{self, Below, Keys},
    parted,
};
use crate::project::{AccountState, Key, Peak};
use chassis::warm::{ROWS_MAX, WarmError, merge};
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

/// A tenant's accounts, or all, behind one of them: each before those below it, by resource.
pub async fn accounts(
    pool: &PgPool,
    tenant: Option<&Token>,
    after: Option<&Key>,
    limit: u32,
) -> Result<Vec<AccountRow>, WarmError> {
    // Apart, as one statement for both would not go by the key.
    let of = match tenant {
        Some(_) => "tenant = $1",
        None => "$1::text IS NULL",
    };
    let query = table::select(Quota::TABLE)
        + &format!(
            " WHERE {of} AND (tenant, team, namespace, resource) > ($2, $3, $4, $5)
            ORDER BY tenant, team, namespace, resource LIMIT $6"
        );
    let mut keys = Keys::default();
    after.iter().for_each(|key| keys.push(key));
    let first = |names: &[&str]| names.first().copied().unwrap_or("").to_owned();
    let rows: Vec<Quota> = sqlx::query_as(&query)
        .bind(tenant.map(Token::as_str))
        .bind(first(&keys.accounts.tenants))
        .bind(first(&keys.accounts.teams))
        .bind(first(&keys.accounts.namespaces))
        .bind(keys.resources.pop().unwrap_or_default())
        .bind(i64::from(limit))
        .fetch_all(pool)
        .await?;
    Ok(rows.into_iter().map(AccountRow::from).collect())
}
