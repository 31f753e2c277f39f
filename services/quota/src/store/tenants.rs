//! The table `quota_tenants`.

use crate::project::TenantRow;
use chassis::warm::{WarmError, merge};
use sqlx::{PgConnection, PgPool};
use table::{Row, Table};
use vocab::{OnExceed, ReclaimFrom, Token};

/// How quota treats a tenant.
#[derive(Table)]
#[table(name = "quota_tenants", key(tenant))]
#[table(index(of_a_cohort, on "cohort", where "cohort IS NOT NULL"))]
pub struct Tenant {
    #[table(check = "tenant ~ '^[A-Za-z0-9_-]{1,64}$'")]
    tenant: Token,
    /// NULL: lends and borrows nothing.
    #[table(check = "cohort ~ '^[A-Za-z0-9_-]{1,64}$'")]
    cohort: Option<Token>,
    /// What it borrows may be taken back; otherwise it cannot borrow.
    preemptible: bool,
    on_exceed: OnExceed,
    reclaim: ReclaimFrom,
    #[table(check = "version > 0")]
    version: u64,
}

impl From<&TenantRow> for Tenant {
    fn from(row: &TenantRow) -> Self {
        Self {
            tenant: row.tenant.clone(),
            cohort: row.cohort.clone(),
            preemptible: row.preemptible,
            on_exceed: row.on_exceed,
            reclaim: row.reclaim,
            version: row.version,
        }
    }
}

impl From<Tenant> for TenantRow {
    fn from(row: Tenant) -> Self {
        Self {
            tenant: row.tenant,
            cohort: row.cohort,
            preemptible: row.preemptible,
            on_exceed: row.on_exceed,
            reclaim: row.reclaim,
            version: row.version,
        }
    }
}

pub async fn write(
    tx: &mut PgConnection,
    rows: impl Iterator<Item = &TenantRow>,
) -> Result<(), WarmError> {
    let rows: Vec<Tenant> = rows.map(Tenant::from).collect();
    merge(tx, &rows).await
}

/// How quota treats a tenant, or all, by name. One that was never set is not among them.
pub async fn tenants(pool: &PgPool, tenant: Option<&Token>) -> Result<Vec<TenantRow>, WarmError> {
    let query =
        table::select(Tenant::TABLE) + " WHERE ($1::text IS NULL OR tenant = $1) ORDER BY tenant";
    let rows: Vec<Tenant> = sqlx::query_as(&query)
        .bind(tenant.map(Token::as_str))
        .fetch_all(pool)
        .await?;
    Ok(rows.into_iter().map(TenantRow::from).collect())
}
