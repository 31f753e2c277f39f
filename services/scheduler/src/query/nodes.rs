//! The nodes: what each has, what is said of it, and what is on it.

use super::{allocation::state, name_prefix};
use crate::{
    project::{Condition, NodeChange, NodeRow, NodeStanding as Standing, What},
    store::{self, OnNode, Used, WantedNodes},
};
use chassis::query::{Asked, Trouble, Verb, page_limit};
use schemas::{
    ToProst as _,
    v1::{
        NodeAmounts, NodeCapacity, NodeChangeView, NodeConditionView, NodeQuery, NodeReply,
        NodeRunView, NodeStanding, NodeView, NodesPage, NodesQuery,
    },
};
use sqlx::PgPool;
use vocab::{Lsn, Requirement, Rule, Token};
use wire::Message;

/// Nodes of a page, or allocations on one, at the most, and where nothing is said of it.
const PAGE_MAX: u32 = 1000;
const PAGE: u32 = 100;
/// Requirements of one query, at the most.
const SELECTOR_MAX: usize = 32;

/// The verb `nodes`.
pub struct NodesQueries {
    pub pool: PgPool,
}

impl Verb for NodesQueries {
    const NAME: &'static str = "nodes";
    const OPERATORS_ONLY: bool = true;
    type Query = NodesQuery;
    type Reply = NodesPage;

    fn position(query: &NodesQuery) -> Lsn {
        Lsn(query.at_lsn)
    }

    async fn answer(&self, asked: Asked<NodesQuery>) -> Result<NodesPage, Trouble> {
        let query = &asked.query;
        if !query.after.is_empty() && Token::new(&query.after).is_err() {
            return Err(Trouble::refused(Rule::SettingInvalid, "after"));
        }
        let page = store::nodes(&self.pool, &wanted(query)?, &query.after).await?;
        let view = |(row, used): &(NodeRow, Used)| {
            let mut view = view(row, *used);
            if let Some(capacity) = &mut view.capacity {
                capacity.topology = None;
            }
            view
        };
        Ok(NodesPage {
            nodes: page.found.iter().map(view).collect(),
            refusal: None,
            next: page.next.map_or_else(String::new, |node| node.to_string()),
            lsn: asked.applied.0,
        })
    }
}

/// The verb `node`.
pub struct NodeQueries {
    pub pool: PgPool,
}

impl Verb for NodeQueries {
    const NAME: &'static str = "node";
    const OPERATORS_ONLY: bool = true;
    type Query = NodeQuery;
    type Reply = NodeReply;

    fn position(query: &NodeQuery) -> Lsn {
        Lsn(query.at_lsn)
    }

    async fn answer(&self, asked: Asked<NodeQuery>) -> Result<NodeReply, Trouble> {
        let limit = page_limit(asked.query.limit, PAGE, PAGE_MAX)?;
        let name = Token::new(&asked.query.node);
        let name = name.map_err(|_| Trouble::refused(Rule::NameInvalid, "node"))?;
        let found = store::node(&self.pool, &name).await?;
        let (row, used) = found.ok_or_else(|| Trouble::refused(Rule::NodeNotFound, "node"))?;
        let runs = store::on_node(&self.pool, &name, limit).await?;
        Ok(NodeReply {
            view: Some(view(&row, used)),
            refusal: None,
            runs: runs.iter().map(|one| run(one, &row)).collect(),
            history: row.history.iter().rev().map(change).collect(),
            lsn: asked.applied.0,
        })
    }
}

fn wanted(query: &NodesQuery) -> Result<WantedNodes, Trouble> {
    let gpu_model = match query.gpu_model.as_str() {
        "" => None,
        name => {
            let name = Token::new(name);
            Some(name.map_err(|_| Trouble::refused(Rule::NameInvalid, "gpu_model"))?)
        }
    };
    let standing = |state: &i32| match NodeStanding::try_from(*state) {
        Err(_) | Ok(NodeStanding::Unspecified) => {
            Err(Trouble::refused(Rule::SettingInvalid, "states"))
        }
        Ok(NodeStanding::Ready) => Ok(Some(Standing::Ready)),
        Ok(NodeStanding::Suspect) => Ok(Some(Standing::Suspect)),
        Ok(NodeStanding::Lost) => Ok(Some(Standing::Lost)),
        Ok(NodeStanding::Absent) => Ok(None),
    };
    if query.selector.len() > SELECTOR_MAX {
        return Err(Trouble::refused(Rule::PlacementRuleInvalid, "selector"));
    }
    let requirement = |it| {
        let read = Requirement::decode(&prost::Message::encode_to_vec(it));
        read.map_err(|_| Trouble::refused(Rule::PlacementRuleInvalid, "selector"))
    };
    Ok(WantedNodes {
        name_prefix: name_prefix(&query.name_prefix)?,
        gpu_model,
        standings: query
            .states
            .iter()
            .map(standing)
            .collect::<Result<_, _>>()?,
        selector: (query.selector.iter())
            .map(requirement)
            .collect::<Result<_, _>>()?,
        limit: page_limit(query.limit, PAGE, PAGE_MAX)? as usize,
    })
}

/// By kind.
pub(super) fn amounts([cpu_milli, memory_bytes, gpu_milli]: [u64; 3]) -> NodeAmounts {
    NodeAmounts {
        cpu_milli,
        memory_bytes,
        gpu_milli,
    }
}

fn view(row: &NodeRow, used: Used) -> NodeView {
    let registered = row.registered.as_ref();
    let state = match row.standing() {
        Some(Standing::Ready) => NodeStanding::Ready,
        Some(Standing::Suspect) => NodeStanding::Suspect,
        Some(Standing::Lost) => NodeStanding::Lost,
        None => NodeStanding::Absent,
    };
    NodeView {
        node: row.node.to_string(),
        state: state.into(),
        since_ms: registered.map_or(0, |it| it.since.0),
        last_seen_ms: registered.map_or(0, |it| it.last_seen.0),
        registered_ms: registered.map_or(0, |it| it.at.0),
        incarnation: registered.map_or(0, |it| it.incarnation),
        capacity: registered.map(|it| it.capacity.to_prost::<NodeCapacity>()),
        allocatable: Some(amounts(row.allocatable())),
        used: Some(amounts(used.amounts)),
        free: Some(amounts(row.free(used.amounts, used.allocations))),
        allocations: used.allocations,
        stopping: used.stopping,
        takes_new: row.takes_new(used.allocations),
        cordoned: row.cordon.cordoned,
        drain: row.cordon.drain,
        at_once: row.cordon.at_once,
        cordon_version: row.cordon.version,
        taints: row.taints.iter().map(|taint| taint.to_prost()).collect(),
        taints_version: row.taints_version,
        conditions: row.conditions.iter().map(condition).collect(),
    }
}

fn text(name: Option<&Token>) -> String {
    name.map_or_else(String::new, Token::to_string)
}

fn condition(one: &Condition) -> NodeConditionView {
    NodeConditionView {
        condition: one.condition.to_string(),
        reason: text(one.reason.as_ref()),
        since_ms: one.since.0,
    }
}

fn run(one: &OnNode, node: &NodeRow) -> NodeRunView {
    NodeRunView {
        allocation_id: one.id.to_string(),
        tenant: one.tenant.clone(),
        job_set: one.job_set.clone(),
        name: one.name.clone().unwrap_or_default(),
        state: state(&one.state).into(),
        priority: one.priority,
        cpu_milli: one.cpu_milli,
        memory_bytes: one.memory_bytes,
        gpus: one.gpus.iter().map(|share| share.to_prost()).collect(),
        gpu_zones: node.zones_of(one.gpus.iter().map(|share| share.device)),
        placed_ms: one.placed.0,
        started_ms: one.started.map_or(0, |at| at.0),
    }
}

fn change(one: &NodeChange) -> NodeChangeView {
    let (condition, reason) = match &one.what {
        What::ConditionHolds { condition, reason } => (Some(condition), reason.as_ref()),
        What::ConditionOver { condition } => (Some(condition), None),
        _ => (None, None),
    };
    NodeChangeView {
        lsn: one.lsn.0,
        at_ms: one.at.0,
        change: one.what.name().to_owned(),
        condition: text(condition),
        reason: text(reason),
    }
}
