//! The table `settings`: all that operators have set, as the facts have it.

use crate::project::SettingRow;
use chassis::warm::WarmError;
use sqlx::PgPool;
use table::{Row, Table};
use vocab::{Lsn, Millis, Token};
use wire::Message;

/// What was last set of each thing. What was taken back is there, too: its version counts on.
#[derive(Debug, Clone, PartialEq, Eq, Table)]
#[table(name = "settings", key(setting, key))]
pub struct Setting {
    #[table(
        check = "setting IN ('budget', 'cordon', 'node', 'period', 'priority_class', 'quota', 'queue', 'rate', 'reservation', 'scheduling', 'taints', 'tenant')"
    )]
    pub setting: String,
    /// Which one: team-a/ml gpu.
    pub key: String,
    /// Of the change. The limits of one account and resource share one count, for whichever time they are.
    #[table(check = "version > 0")]
    pub version: u64,
    pub operation_id: Option<Token>,
    /// The operator, where it is one with a name.
    pub set_by: Option<Token>,
    pub set_at: Millis,
    #[table(check = "lsn > 0")]
    pub lsn: Lsn,
    /// The fact, as the ledger has it: the message `Event` of the contract.
    pub fact: Vec<u8>,
}

impl From<&SettingRow> for Setting {
    fn from(row: &SettingRow) -> Self {
        Self {
            setting: row.setting.to_owned(),
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

/// What a tenant may read of the settings: its own, its accounts' limits and budgets, and priority classes.
pub struct Own<'a> {
    pub tenant: &'a Token,
    /// Those that it may use; none: any.
    pub classes: Option<Vec<String>>,
}

/// What was last set of one thing.
pub async fn setting(
    pool: &PgPool,
    setting: &str,
    key: &str,
) -> Result<Option<Setting>, WarmError> {
    let query = table::select(Setting::TABLE) + " WHERE setting = $1 AND key = $2";
    let found = sqlx::query_as(&query).bind(setting).bind(key);
    Ok(found.fetch_optional(pool).await?)
}

/// Those of one name, or of all, whose keys begin so, behind the one that is named: by setting and key.
pub async fn settings(
    pool: &PgPool,
    own: Option<&Own<'_>>,
    setting: Option<&str>,
    key_prefix: &str,
    (after_setting, after_key): (&str, &str),
    limit: u32,
) -> Result<Vec<Setting>, WarmError> {
    let query = table::select(Setting::TABLE)
        + " WHERE ($1::text IS NULL OR setting = $1) AND starts_with(key, $2) AND (setting, key) > ($3, $4)
            AND ($6::text IS NULL
                OR setting IN ('tenant', 'quota', 'budget') AND (key = $6 OR starts_with(key, $6 || ' ') OR starts_with(key, $6 || '/'))
                OR setting = 'priority_class' AND ($7::text[] IS NULL OR key = ANY ($7)))
            ORDER BY setting, key LIMIT $5";
    let rows = sqlx::query_as(&query)
        .bind(setting)
        .bind(key_prefix)
        .bind(after_setting)
        .bind(after_key)
        .bind(i64::from(limit))
        .bind(own.map(|own| own.tenant.as_str()))
        .bind(own.and_then(|own| own.classes.as_ref()))
        .fetch_all(pool)
        .await?;
    Ok(rows)
}
