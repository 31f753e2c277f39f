//! What a tenant may ask of its runs: what they have written. The nodes' agents have it.

use async_nats::Client;
use chassis::query::{Asked, Trouble, Verb};
use prost::Message;
use schemas::{
    subjects::Subjects,
    v1::{LogsQuery, LogsReply, NodeLogsQuery},
};
use std::time::Duration;
use vocab::{AllocationId, CellNo, Lsn, Refusal, Rule, Token};

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
