//! The table `nodes`, and what is on them.

use super::look::{self, Listed};
use crate::project::{Condition, Cordon, NodeChange, NodeRow, NodeStanding, Registered};
use chassis::warm::{Moment, OutOfRange, WarmError, merge, unsigned};
use sqlx::{PgConnection, PgPool, types::Json};
use std::collections::{BTreeMap, VecDeque};
use table::{Read, Row, Table, Wide};
use vocab::{
    AllocationId, GpuShares, Millis, NodeCapacity, Requirement, ResourceKind, Taint, Token,
};
use wire::Message;

table::names!(NodeStanding);

/// The nodes that are there or were, and those that an operator has said something of.
#[derive(Table)]
#[table(name = "nodes", key(node))]
#[table(check(
    registered_as_a_whole,
    "num_nulls(state, since, last_seen, registered_at, incarnation) IN (0, 5)"
))]
pub struct Node {
    node: Token,
    /// None: it was never registered, or is forgotten.
    state: Option<NodeStanding>,
    /// In this state since then.
    since: Option<Millis>,
    /// The last sign of life that stands on the ledger: of a ready node the one that made it ready, of others the last before
    /// that.
    last_seen: Option<Millis>,
    /// When this capacity was registered.
    registered_at: Option<Millis>,
    /// Given by the cell; grows each time the agent starts anew.
    incarnation: Option<Wide>,
    #[table(default = "0", check = "cpu_milli >= 0")]
    cpu_milli: u64,
    #[table(default = "0", check = "memory_bytes >= 0")]
    memory_bytes: u64,
    /// Thousandths of a GPU, of all its devices together.
    #[table(default = "0", check = "gpu_milli >= 0")]
    gpu_milli: u64,
    gpu_model: Option<Token>,
    /// All that it has: the message `NodeCapacity` of the contract.
    capacity: Vec<u8>,
    /// By an operator: nothing new comes.
    #[table(default = "false")]
    cordoned: bool,
    /// What runs there is told to stop, and placed elsewhere.
    #[table(default = "false")]
    drain: bool,
    /// So many of its allocations are on their way out at once, at the most; 0: all.
    #[table(default = "0", check = "at_once >= 0")]
    at_once: u32,
    /// 0: nobody has set one.
    #[table(default = "0", check = "cordon_version >= 0")]
    cordon_version: u64,
    /// Those that an operator has given to it, beside its own: [{"key": "maintenance", "value": null, "effect": "NoExecute"}]
    #[table(default = "'[]'", check = "jsonb_typeof(taints) = 'array'")]
    taints: Json<Vec<Taint>>,
    /// 0: nobody has set any.
    #[table(default = "0", check = "taints_version >= 0")]
    taints_version: u64,
    /// What holds of it by the word of its agent.
    #[table(default = "'[]'", check = "jsonb_typeof(conditions) = 'array'")]
    conditions: Json<Vec<Condition>>,
    /// The last 20 changes, the oldest first.
    #[table(default = "'[]'", check = "jsonb_typeof(history) = 'array'")]
    history: Json<VecDeque<NodeChange>>,
}

impl From<&NodeRow> for Node {
    fn from(row: &NodeRow) -> Self {
        let registered = row.registered.as_ref();
        let capacity = registered.map(|it| &it.capacity);
        let amount = |kind| capacity.map_or(0, |it| it.amount(kind));
        Self {
            node: row.node.clone(),
            state: row.standing(),
            since: registered.map(|it| it.since),
            last_seen: registered.map(|it| it.last_seen),
            registered_at: registered.map(|it| it.at),
            incarnation: registered.map(|it| Wide(it.incarnation)),
            cpu_milli: amount(ResourceKind::Cpu),
            memory_bytes: amount(ResourceKind::Memory),
            gpu_milli: amount(ResourceKind::Gpu),
            gpu_model: capacity.and_then(|it| it.gpu_model.clone()),
            capacity: capacity.map_or_else(Vec::new, Message::encode_to_vec),
            cordoned: row.cordon.cordoned,
            drain: row.cordon.drain,
            at_once: row.cordon.at_once,
            cordon_version: row.cordon.version,
            taints: Json(row.taints.clone()),
            taints_version: row.taints_version,
            conditions: Json(row.conditions.clone()),
            history: Json(row.history.clone()),
        }
    }
}

impl TryFrom<Node> for NodeRow {
    type Error = OutOfRange;

    fn try_from(node: Node) -> Result<Self, OutOfRange> {
        let all = (
            node.state,
            node.since,
            node.last_seen,
            node.registered_at,
            node.incarnation,
        );
        let registered = match all {
            (Some(standing), Some(since), Some(last_seen), Some(at), Some(incarnation)) => {
                let capacity = NodeCapacity::decode(&node.capacity);
                Some(Registered {
                    incarnation: incarnation.0,
                    standing,
                    since,
                    last_seen,
                    at,
                    capacity: capacity.map_err(|error| OutOfRange::new("capacity", error))?,
                })
            }
            _ => None,
        };
        Ok(Self {
            node: node.node,
            registered,
            cordon: Cordon {
                cordoned: node.cordoned,
                drain: node.drain,
                at_once: node.at_once,
                version: node.cordon_version,
            },
            taints: node.taints.0,
            taints_version: node.taints_version,
            conditions: node.conditions.0,
            history: node.history.0,
        })
    }
}

/// By node, as a batch leaves it; none: it is not kept any more.
pub type Rows<'a> = BTreeMap<&'a Token, Option<&'a NodeRow>>;

pub async fn write(tx: &mut PgConnection, rows: &Rows<'_>) -> Result<(), WarmError> {
    let kept = rows.values().copied().flatten();
    merge(tx, &kept.map(Node::from).collect::<Vec<_>>()).await?;
    let gone = rows.iter().filter(|(_, row)| row.is_none());
    let gone: Vec<&str> = gone.map(|(node, _)| node.as_str()).collect();
    if gone.is_empty() {
        return Ok(());
    }
    sqlx::query!("DELETE FROM nodes WHERE node = ANY ($1)", &gone as _)
        .execute(tx)
        .await?;
    Ok(())
}

/// What allocations hold of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    pub allocations: u64,
    /// Those of them that are on their way out.
    pub stopping: u64,
    /// By kind.
    pub amounts: [u64; 3],
}

/// Which nodes are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WantedNodes {
    pub name_prefix: String,
    pub gpu_model: Option<Token>,
    /// None of them: whatever it is. A node that is not there has none.
    pub standings: Vec<Option<NodeStanding>>,
    /// All must be met.
    pub selector: Vec<Requirement>,
    pub limit: usize,
}

impl WantedNodes {
    fn fit(&self, row: &NodeRow) -> bool {
        let of_none = NodeCapacity::default();
        let capacity = row.registered.as_ref().map_or(&of_none, |it| &it.capacity);
        let all = self.standings.is_empty();
        row.node.as_str().starts_with(&self.name_prefix)
            && (self.gpu_model.is_none() || self.gpu_model == capacity.gpu_model)
            && (all || self.standings.contains(&row.standing()))
            && self.selector.iter().all(|it| it.is_met_by(capacity))
    }

    fn is_picky(&self) -> bool {
        let any = Self {
            limit: self.limit,
            ..Self::default()
        };
        *self != any
    }
}

/// The nodes behind `after` that are asked for, by name, and where to go on.
pub async fn nodes(
    pool: &PgPool,
    wanted: &WantedNodes,
    after: &str,
) -> Result<Listed<(NodeRow, Used), Token>, WarmError> {
    let query = table::select(Node::TABLE) + " WHERE node > $1 ORDER BY node LIMIT $2";
    let most = look::most(wanted.is_picky(), wanted.limit);
    let found: Vec<Node> = sqlx::query_as(&query)
        .bind(after)
        .bind(most as i64)
        .fetch_all(pool)
        .await?;
    let rows = found.into_iter().map(NodeRow::try_from);
    let rows = rows.collect::<Result<Vec<_>, _>>()?;
    let page = look::page(
        rows,
        (wanted.limit, most),
        |row| wanted.fit(row),
        |row| row.node.clone(),
    );
    let names: Vec<&str> = page.found.iter().map(|row| row.node.as_str()).collect();
    let used = used(pool, &names).await?;
    let with_use = page.found.into_iter().map(|row| {
        let used = used.get(row.node.as_str()).copied().unwrap_or_default();
        (row, used)
    });
    Ok(Listed {
        found: with_use.collect(),
        next: page.next,
    })
}

/// One node, and what is held of it; none: nothing is known of it.
pub async fn node(pool: &PgPool, name: &Token) -> Result<Option<(NodeRow, Used)>, WarmError> {
    let query = table::select(Node::TABLE) + " WHERE node = $1";
    let found: Option<Node> = sqlx::query_as(&query)
        .bind(name.as_str())
        .fetch_optional(pool)
        .await?;
    let Some(found) = found else {
        return Ok(None);
    };
    let used = used(pool, &[name.as_str()]).await?;
    let used = used.get(name.as_str()).copied().unwrap_or_default();
    Ok(Some((NodeRow::try_from(found)?, used)))
}

async fn used(pool: &PgPool, nodes: &[&str]) -> Result<BTreeMap<String, Used>, WarmError> {
    let records = sqlx::query!(
        r#"SELECT node AS "node!", sum(allocations)::bigint AS "allocations!",
                  coalesce(sum(allocations) FILTER (WHERE stopping), 0)::bigint AS "stopping!",
                  least(sum(cpu_milli), 9223372036854775807)::bigint AS "cpu_milli!",
                  least(sum(memory_bytes), 9223372036854775807)::bigint AS "memory_bytes!",
                  least(sum(gpu_milli), 9223372036854775807)::bigint AS "gpu_milli!"
           FROM node_counts WHERE node = ANY ($1) GROUP BY node"#,
        nodes as _
    )
    .fetch_all(pool)
    .await?;
    let rows = records.into_iter().map(|record| {
        let used = Used {
            allocations: unsigned("allocations", record.allocations)?,
            stopping: unsigned("stopping", record.stopping)?,
            amounts: [
                unsigned("cpu_milli", record.cpu_milli)?,
                unsigned("memory_bytes", record.memory_bytes)?,
                unsigned("gpu_milli", record.gpu_milli)?,
            ],
        };
        Ok((record.node, used))
    });
    rows.collect()
}

/// What all nodes have together that are not lost, by kind.
pub async fn capacity(pool: &PgPool) -> Result<[u64; 3], WarmError> {
    let sums = sqlx::query!(
        r#"SELECT coalesce(least(sum(cpu_milli), 9223372036854775807), 0)::bigint AS "cpu_milli!",
                  coalesce(least(sum(memory_bytes), 9223372036854775807), 0)::bigint AS "memory_bytes!",
                  coalesce(least(sum(gpu_milli), 9223372036854775807), 0)::bigint AS "gpu_milli!"
           FROM nodes WHERE state IN ('ready', 'suspect')"#
    )
    .fetch_one(pool)
    .await?;
    Ok([
        unsigned("cpu_milli", sums.cpu_milli)?,
        unsigned("memory_bytes", sums.memory_bytes)?,
        unsigned("gpu_milli", sums.gpu_milli)?,
    ])
}

/// An allocation that is on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnNode {
    pub id: AllocationId,
    pub tenant: String,
    pub job_set: String,
    pub name: Option<String>,
    /// placed, running or stopping.
    pub state: String,
    pub priority: i32,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub gpus: GpuShares,
    pub placed: Millis,
    pub started: Option<Millis>,
}

/// The first `limit` of what is on a node, the oldest first.
pub async fn on_node(pool: &PgPool, node: &Token, limit: u32) -> Result<Vec<OnNode>, WarmError> {
    let records = sqlx::query!(
        r#"SELECT allocation_id, tenant, job_set, name, state, priority, cpu_milli, memory_bytes, gpu_devices, gpu_shares,
                  placed_at AS "placed_at!: Moment", started_at AS "started_at: Moment"
           FROM live_allocations WHERE node = $1 ORDER BY placed_at, allocation_id LIMIT $2"#,
        node.as_str(),
        i64::from(limit)
    )
    .fetch_all(pool)
    .await?;
    let rows = records.into_iter().map(|record| {
        Ok(OnNode {
            id: AllocationId(record.allocation_id),
            tenant: record.tenant,
            job_set: record.job_set,
            name: record.name,
            state: record.state,
            priority: record.priority,
            cpu_milli: u64::read(record.cpu_milli, "cpu_milli")?,
            memory_bytes: u64::read(record.memory_bytes, "memory_bytes")?,
            gpus: super::allocations::shares(&record.gpu_devices, &record.gpu_shares)?,
            placed: record.placed_at.into(),
            started: record.started_at.map(Millis::from),
        })
    });
    rows.collect()
}
