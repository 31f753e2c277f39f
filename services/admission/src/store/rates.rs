//! The table `rates`: each rate that operators have set, as the facts have it.

use super::Setting;
use crate::project::SettingRow;
use chassis::warm::WarmError;
use sqlx::PgPool;
use table::{Row, Table};
use vocab::{Lsn, Millis, ResourceKey, Token};
use wire::Message;

/// What was set of each rate, also what holds no more: a bill is made of all of them.
#[derive(Debug, Clone, PartialEq, Eq, Table)]
#[table(name = "rates", key(key, version), fixed)]
pub struct Rate {
    /// Which one, as in `settings`: gpu:A100 tenant=team-a.
    key: String,
    /// Of the change.
    #[table(check = "version > 0")]
    version: u64,
    operation_id: Option<Token>,
    /// The operator, where it is one with a name.
    set_by: Option<Token>,
    set_at: Millis,
    #[table(check = "lsn > 0")]
    lsn: Lsn,
    /// The fact, as the ledger has it: the message `Event` of the contract.
    fact: Vec<u8>,
}

impl From<&SettingRow> for Rate {
    fn from(row: &SettingRow) -> Self {
        Self {
            key: row.key.clone(),
            version: row.version,
            operation_id: row.operation_id.clone(),
            set_by: row.set_by.clone(),
            set_at: row.at,
            lsn: row.lsn,
            fact: row.fact.encode_to_vec(),
        }
    }
}

impl From<Rate> for Setting {
    fn from(row: Rate) -> Self {
        Self {
            setting: "rate".to_owned(),
            key: row.key,
            version: row.version,
            operation_id: row.operation_id,
            set_by: row.set_by,
            set_at: row.set_at,
            lsn: row.lsn,
            fact: row.fact,
        }
    }
}

/// Returns those of a resource, with those of its models, or all, behind the version of a key: by key and version.
pub async fn rates(
    pool: &PgPool,
    resource: Option<&ResourceKey>,
    (after_key, after_version): (&str, i64),
    limit: u32,
) -> Result<Vec<Setting>, WarmError> {
    let query = table::select(Rate::TABLE)
        + " WHERE ($1::text IS NULL OR key = $1 OR starts_with(key, $1 || ' ') OR starts_with(key, $1 || ':'))
                AND (key, version) > ($2, $3)
            ORDER BY key, version LIMIT $4";
    let rows: Vec<Rate> = sqlx::query_as(&query)
        .bind(resource.map(ResourceKey::to_string))
        .bind(after_key)
        .bind(after_version)
        .bind(i64::from(limit))
        .fetch_all(pool)
        .await?;
    Ok(rows.into_iter().map(Setting::from).collect())
}
