//! The table `node_approvals`.

use super::names;
use crate::project::ApprovalRow;
use chassis::warm::WarmError;
use sqlx::{PgPool, types::Json};
use std::collections::BTreeMap;
use table::{Row, Table};
use vocab::{Millis, NodeApproval, NodeCapacity, Token};

/// Which nodes may join, as what at the most, and which have.
#[derive(Table)]
#[table(name = "node_approvals", key(node))]
#[table(check(node_approvals_check, "gpu_model IS NULL OR gpus > 0"))]
#[table(check(node_approvals_check1, "(joined_at IS NULL) = (key IS NULL)"))]
pub struct Approval {
    #[table(check = "node ~ '^[A-Za-z0-9_-]{1,64}$'")]
    node: Token,
    #[table(check = "version > 0")]
    version: u64,
    #[table(check = "cpu_milli >= 0")]
    cpu_milli: u64,
    #[table(check = "memory_bytes >= 0")]
    memory_bytes: u64,
    #[table(check = "gpus >= 0")]
    gpus: u16,
    gpu_model: Option<Token>,
    /// By name: {"zone": "z1"}. It may say these of itself, or fewer.
    #[table(check = "jsonb_typeof(labels) = 'object'")]
    labels: Json<BTreeMap<Token, Token>>,
    /// Amounts by name: {"fpga": 2}.
    #[table(check = "jsonb_typeof(extended) = 'object'")]
    extended: Json<BTreeMap<Token, u64>>,
    approved_at: Millis,
    /// From then on nobody joins by the token who has not yet.
    token_until: Millis,
    /// SHA-256 of the token.
    #[table(check = "length(token_digest) = 32")]
    token_digest: [u8; 32],
    /// The public key of the user of the bus that speaks for the node.
    key: Option<Token>,
    joined_at: Option<Millis>,
}

impl From<&ApprovalRow> for Approval {
    fn from(row: &ApprovalRow) -> Self {
        let NodeApproval {
            capacity,
            token,
            until,
        } = &row.approval;
        let (key, joined_at) = row.joined.clone().unzip();
        Self {
            node: row.node.clone(),
            version: row.version,
            cpu_milli: capacity.cpu_milli,
            memory_bytes: capacity.memory_bytes,
            gpus: capacity.gpus,
            gpu_model: capacity.gpu_model.clone(),
            labels: names(&capacity.labels),
            extended: names(&capacity.extended),
            approved_at: row.approved_at,
            token_until: *until,
            token_digest: *token,
            key,
            joined_at,
        }
    }
}

impl From<Approval> for ApprovalRow {
    fn from(row: Approval) -> Self {
        Self {
            node: row.node,
            version: row.version,
            approval: NodeApproval {
                capacity: NodeCapacity {
                    cpu_milli: row.cpu_milli,
                    memory_bytes: row.memory_bytes,
                    gpus: row.gpus,
                    gpu_model: row.gpu_model,
                    labels: row.labels.0.into_iter().collect(),
                    extended: row.extended.0.into_iter().collect(),
                    ..NodeCapacity::default()
                },
                token: row.token_digest,
                until: row.token_until,
            },
            approved_at: row.approved_at,
            joined: row.key.zip(row.joined_at),
        }
    }
}

/// Who may join, and who has, by name: those with a name that begins so, behind one of them.
pub async fn approvals(
    pool: &PgPool,
    prefix: &str,
    after: &str,
    limit: u32,
) -> Result<Vec<ApprovalRow>, WarmError> {
    let query = table::select(Approval::TABLE)
        + " WHERE starts_with(node, $1) AND node > $2 ORDER BY node LIMIT $3";
    let rows: Vec<Approval> = sqlx::query_as(&query)
        .bind(prefix)
        .bind(after)
        .bind(i64::from(limit))
        .fetch_all(pool)
        .await?;
    Ok(rows.into_iter().map(ApprovalRow::from).collect())
}
