//! The table `nodes`.

use super::names;
use crate::project::{NodeRow, NodeState};
use sqlx::types::Json;
use std::collections::BTreeMap;
use table::{Table, Wide};
use vocab::{Millis, NodeCapacity, Taint, Token, Topology};

table::names!(NodeState);

/// The fleet.
#[derive(Table)]
#[table(name = "nodes", key(node))]
#[table(check(nodes_check, "gpu_model IS NULL OR gpus > 0"))]
#[table(index(lost, on "since", where "state = 'lost'"))]
#[table(index(by_model, on "gpu_model", where "gpu_model IS NOT NULL"))]
#[table(index(by_label, using "gin", on "labels jsonb_path_ops"))]
pub struct Node {
    #[table(check = "node ~ '^[A-Za-z0-9_-]{1,64}$'")]
    node: Token,
    /// Given by the cell; grows each time the agent starts anew.
    #[table(check = "incarnation >= 0")]
    incarnation: Wide,
    state: NodeState,
    #[table(check = "cpu_milli >= 0")]
    cpu_milli: u64,
    #[table(check = "memory_bytes >= 0")]
    memory_bytes: u64,
    #[table(check = "gpus >= 0")]
    gpus: u16,
    gpu_model: Option<Token>,
    /// When this capacity was registered.
    registered_at: Millis,
    /// In this state since then.
    since: Millis,
    /// The last sign of life that stands on the ledger: of a ready node the one that made it ready, of a lost or suspected one
    /// the last before that. Heartbeats in between are not on the ledger.
    last_seen: Millis,
    /// By name: {"zone": "z1"}.
    #[table(default = "'{}'", check = "jsonb_typeof(labels) = 'object'")]
    labels: Json<BTreeMap<Token, Token>>,
    /// Its own: [{"key": "maintenance", "value": null, "effect": "NoSchedule"}]
    #[table(default = "'[]'", check = "jsonb_typeof(taints) = 'array'")]
    taints: Json<Vec<Taint>>,
    /// Amounts by name: {"fpga": 2}.
    #[table(default = "'{}'", check = "jsonb_typeof(extended) = 'object'")]
    extended: Json<BTreeMap<Token, u64>>,
    /// Its NUMA zones and device links, as registered; NULL when not known.
    #[table(check = "jsonb_typeof(topology) = 'object'")]
    topology: Option<Json<Box<Topology>>>,
    /// Allocations that it holds at once, at the most; 0: as many as there is room for.
    #[table(default = "0", check = "max_runs >= 0")]
    max_runs: u32,
    /// The life of the node's agent, by the agent's own count; any unsigned 64-bit number.
    #[table(check = "boot >= 0")]
    boot: Wide,
}

impl From<&NodeRow> for Node {
    fn from(row: &NodeRow) -> Self {
        let capacity = &row.capacity;
        Self {
            node: row.node.clone(),
            incarnation: Wide(row.incarnation),
            state: row.state,
            cpu_milli: capacity.cpu_milli,
            memory_bytes: capacity.memory_bytes,
            gpus: capacity.gpus,
            gpu_model: capacity.gpu_model.clone(),
            registered_at: row.registered_at,
            since: row.since,
            last_seen: row.last_seen,
            labels: names(&capacity.labels),
            taints: Json(capacity.taints.clone()),
            extended: names(&capacity.extended),
            topology: capacity.topology.clone().map(Json),
            max_runs: capacity.max_runs,
            boot: Wide(row.boot),
        }
    }
}

impl From<Node> for NodeRow {
    fn from(node: Node) -> Self {
        Self {
            node: node.node,
            incarnation: node.incarnation.0,
            boot: node.boot.0,
            state: node.state,
            capacity: NodeCapacity {
                cpu_milli: node.cpu_milli,
                memory_bytes: node.memory_bytes,
                gpus: node.gpus,
                gpu_model: node.gpu_model,
                labels: node.labels.0.into_iter().collect(),
                taints: node.taints.0,
                extended: node.extended.0.into_iter().collect(),
                topology: node.topology.map(|topology| topology.0),
                max_runs: node.max_runs,
            },
            registered_at: node.registered_at,
            since: node.since,
            last_seen: node.last_seen,
        }
    }
}
