//! What a tenant may ask of its runs: what they have written. The nodes' agents have it. And what operators may ask of who
//! may be a node.

use crate::{project::ApprovalRow, store};
use async_nats::Client;
use chassis::{
    Leading,
    query::{Asked, Trouble, Verb, ask_state, name_prefix, page_limit},
};
use ledger_nats::Questions;
use node_heartbeat_rules::{Nodes, RefusedNode};
use prost::Message;
use schemas::{
    ToProst,
    v1::{self, ApprovalView, ApprovalsPage, ApprovalsQuery, LogsQuery, LogsReply, NodeLogsQuery},
};
use sqlx::PgPool;
use std::time::Duration;
use vocab::{AllocationId, CellNo, Lsn, Refusal, Rule, Token, subjects::Subjects};

/// Approvals of a page, at the most, and where nothing is said of it.
const PAGE_MAX: u32 = 1000;
const PAGE: u32 = 100;
/// What a part of a log has at the most.
const PART_BYTES_MAX: u32 = 65_536;
/// How long an agent may take: below the asker's patience.
const PATIENCE: Duration = Duration::from_secs(3);

/// The verb `logs`. The agent looks whose run it is: this service knows of none that is over.
pub struct LogsQueries {
    pub client: Client,
    pub subjects: Subjects,
    pub cell: CellNo,
}

impl Verb for LogsQueries {
    const NAME: &'static str = "logs";
    type Query = LogsQuery;
    type Reply = LogsReply;

    /// No read model is asked.
    fn position(_: &LogsQuery) -> Lsn {
        Lsn(0)
    }

    async fn answer(&self, asked: Asked<LogsQuery>) -> Result<LogsReply, Trouble> {
        let Asked { tenant, query, .. } = asked;
        let node = Token::new(&query.node);
        let node = node.map_err(|_| Trouble::refused(Rule::NameInvalid, "node"))?;
        let id = AllocationId::parse(&query.allocation_id);
        let id = id.ok_or_else(|| Trouble::refused(Rule::AllocationIdInvalid, "allocation_id"))?;
        if id.in_cell(self.cell).is_none() {
            return Err(Trouble::refused(Rule::AllocationNotFound, "allocation_id"));
        }
        let max_bytes = match query.max_bytes {
            0 => PART_BYTES_MAX,
            asked if asked <= PART_BYTES_MAX => asked,
            asked => {
                let (limit, asked) = (PART_BYTES_MAX.into(), asked.into());
                let refusal = Refusal::over(Rule::QuantityTooLarge, "max_bytes", limit, asked);
                return Err(Trouble::Refused(refusal));
            }
        };
        let query = NodeLogsQuery {
            tenant: tenant.to_string(),
            allocation_id: query.allocation_id,
            offset: query.offset,
            max_bytes,
        };
        let subject = self.subjects.node(node.as_str(), "logs");
        let answer = self.client.request(subject, query.encode_to_vec().into());
        let unavailable = || Trouble::refused(Rule::LogUnavailable, "node");
        let answer = tokio::time::timeout(PATIENCE, answer).await;
        let answer = answer.ok().and_then(Result::ok).ok_or_else(unavailable)?;
        LogsReply::decode(answer.payload).map_err(|_| unavailable())
    }
}

/// The verb `approvals`.
pub struct ApprovalsQueries {
    pub pool: PgPool,
    pub questions: Questions<Nodes>,
    pub leading: Leading,
}

impl Verb for ApprovalsQueries {
    const NAME: &'static str = "approvals";
    const OPERATORS_ONLY: bool = true;
    type Query = ApprovalsQuery;
    type Reply = ApprovalsPage;

    fn position(query: &ApprovalsQuery) -> Lsn {
        Lsn(query.at_lsn)
    }

    async fn answer(&self, asked: Asked<ApprovalsQuery>) -> Result<ApprovalsPage, Trouble> {
        let query = &asked.query;
        let limit = page_limit(query.limit, PAGE, PAGE_MAX)?;
        let prefix = name_prefix(&query.name_prefix)?;
        if !query.after.is_empty() && Token::new(&query.after).is_err() {
            return Err(Trouble::refused(Rule::SettingInvalid, "after"));
        }
        // One more than the page has, to see whether there is one.
        let found = store::approvals(&self.pool, &prefix, &query.after, limit + 1).await?;
        let all = found.len();
        let shown = found.into_iter().take(limit as usize);
        let approvals: Vec<_> = shown.map(approval).collect();
        let last = approvals.last().filter(|_| all > approvals.len());
        let refused = match query.after.is_empty() && self.leading.is_leading() {
            true => Some(self.refused_nodes(prefix).await?),
            false => None,
        };
        Ok(ApprovalsPage {
            next: last.map_or_else(String::new, |one| one.node.clone()),
            approvals,
            refusal: None,
            lsn: asked.applied.0,
            leading: refused.is_some(),
            refused_nodes: refused.unwrap_or_default(),
        })
    }
}

impl ApprovalsQueries {
    /// Returns the refused nodes that this leader remembers.
    async fn refused_nodes(&self, prefix: String) -> Result<Vec<v1::RefusedNode>, Trouble> {
        let asked = ask_state(&self.questions, Lsn(0), move |state, view| {
            let refused = state.refused_nodes(&prefix, view.now);
            refused
                .map(|(node, refused)| refused_node(node, refused))
                .collect()
        });
        let (refused, _): (Vec<_>, Lsn) = asked.await?;
        Ok(refused)
    }
}

fn refused_node(node: &Token, refused: &RefusedNode) -> v1::RefusedNode {
    v1::RefusedNode {
        node: node.to_string(),
        broken: Some(refused.refusal.to_prost()),
        at_ms: refused.at.0,
        reported: refused.reported.as_ref().map(ToProst::to_prost),
        explanation: refused.refusal.explanation(),
        remedy: refused.remedy(node),
    }
}

fn approval(row: ApprovalRow) -> ApprovalView {
    let (key, joined_ms) = match row.joined {
        Some((key, at)) => (key.to_string(), at.0),
        None => (String::new(), 0),
    };
    ApprovalView {
        node: row.node.to_string(),
        version: row.version,
        capacity: Some(row.approval.capacity.to_prost()),
        approved_ms: row.approved_at.0,
        token_until_ms: row.approval.until.0,
        key,
        joined_ms,
    }
}
