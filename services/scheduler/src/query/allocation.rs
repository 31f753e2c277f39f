//! Where an allocation stands.

use crate::store::{self, Allocation};
use chassis::query::{Asked, Trouble, Verb};
use schemas::v1::{self, AllocationQuery, AllocationReply, AllocationState, AllocationView};
use sqlx::PgPool;
use vocab::{AllocationId, Lsn, Millis, Refusal, Rule, WaitingReason};
use wire::Message;

/// The verb `allocation`.
pub struct AllocationQueries {
    pub pool: PgPool,
}

impl Verb for AllocationQueries {
    const NAME: &'static str = "allocation";
    type Query = AllocationQuery;
    type Reply = AllocationReply;

    fn position(query: &AllocationQuery) -> Lsn {
        Lsn(query.at_lsn)
    }

    async fn answer(&self, asked: Asked<AllocationQuery>) -> Result<AllocationReply, Trouble> {
        let id = AllocationId::parse(&asked.query.allocation_id);
        let id = id.ok_or_else(|| Trouble::refused(Rule::AllocationIdInvalid, "allocation_id"))?;
        let found = store::allocation(&self.pool, &asked.tenant, id).await?;
        let found =
            found.ok_or_else(|| Trouble::refused(Rule::AllocationNotFound, "allocation_id"))?;
        let reason = store::waits_for(&self.pool, &found).await?;
        Ok(AllocationReply {
            view: Some(view(&found, reason, asked.applied)),
            refusal: None,
        })
    }
}

fn view(found: &Allocation, reason: Option<WaitingReason>, lsn: Lsn) -> AllocationView {
    let ms = |at: Option<Millis>| at.map_or(0, |at| at.0);
    let state = match found.state.as_str() {
        "requested" => AllocationState::Requested,
        "queued" | "nominated" => AllocationState::Waiting,
        "placed" => AllocationState::Placed,
        "running" => AllocationState::Started,
        "stopping" => AllocationState::Stopping,
        // `denied`, too: it is over for good, and `waiting` says why.
        _ => AllocationState::Ended,
    };
    let over = state == AllocationState::Ended;
    AllocationView {
        allocation_id: found.id.to_string(),
        job_set: found.job_set.clone(),
        name: found.name.clone().unwrap_or_default(),
        state: state.into(),
        node: found.node.clone().unwrap_or_default(),
        gpus: found.gpus.iter().map(|share| share.to_prost()).collect(),
        waiting: waiting(found.quota.as_ref(), reason),
        priority: found.priority,
        started_ms: if over { 0 } else { ms(found.started_at) },
        ended: found.end_cause.map(|cause| v1::Ended {
            cause: cause.number(),
            started_ms: ms(found.started_at),
            ended_ms: ms(found.ended_at),
        }),
        lsn: lsn.0,
    }
}

fn waiting(quota: Option<&Refusal>, reason: Option<WaitingReason>) -> Option<v1::Waiting> {
    match (quota, reason) {
        (Some(refusal), _) => Some(v1::Waiting {
            reason: WaitingReason::Quota.number(),
            quota: Some(refusal.to_prost()),
            explanation: refusal.to_string(),
        }),
        (None, Some(reason)) => Some(v1::Waiting {
            reason: reason.number(),
            ..v1::Waiting::default()
        }),
        (None, None) => None,
    }
}
