//! What tenants are told.

use crate::feed::{FeedItem, FeedKind, Outcome, OutcomeKind, SubmitState};
use ledger::wire::{
    cause_number, preemption_number, refusal_to_proto, shares_to_proto, waiting_number,
};
use prost::Message;
use schemas::v1::{self, outcome::Result as Reply, submitted, tenant_event};
use vocab::{CellNo, Token};

pub fn outcome(outcome: &Outcome, cell: CellNo) -> v1::Outcome {
    let id = |allocation: vocab::AllocationNo| allocation.id(cell).to_string();
    let result = match &outcome.kind {
        OutcomeKind::Submitted { allocation, state } => Reply::Submitted(v1::Submitted {
            allocation_id: id(*allocation),
            state: Some(match state {
                SubmitState::Placed { node, gpus } => submitted::State::Placed(v1::Placed {
                    node: node.to_string(),
                    gpus: shares_to_proto(gpus),
                }),
                SubmitState::Waiting(reason) => submitted::State::Waiting(v1::Waiting {
                    reason: waiting_number(*reason),
                }),
                SubmitState::Ended { cause, at } => submitted::State::Ended(v1::Ended {
                    cause: cause_number(*cause),
                    started_ms: 0,
                    ended_ms: at.0,
                }),
            }),
        }),
        OutcomeKind::Cancelled { allocation } => Reply::Cancelled(v1::Cancelled {
            allocation_id: id(*allocation),
        }),
        OutcomeKind::Applied { version } => Reply::Applied(v1::Applied { version: *version }),
        OutcomeKind::Refused(refusal) => Reply::Refused(v1::Refused {
            refusal: Some(refusal_to_proto(refusal)),
            retryable: refusal.rule.retryable(),
            explanation: refusal.to_string(),
        }),
    };
    v1::Outcome {
        operation_id: outcome
            .operation_id
            .as_ref()
            .map(Token::to_string)
            .unwrap_or_default(),
        lsn: outcome.lsn.0,
        result: Some(result),
    }
}

/// A feed message, encoded.
pub fn tenant_event(item: &FeedItem, cell: CellNo) -> Vec<u8> {
    let kind = match &item.kind {
        FeedKind::Outcome(o) => tenant_event::Kind::Outcome(outcome(o, cell)),
        FeedKind::Placed { node, gpus } => tenant_event::Kind::Placed(v1::Placed {
            node: node.to_string(),
            gpus: shares_to_proto(gpus),
        }),
        FeedKind::Waiting(reason) => tenant_event::Kind::Waiting(v1::Waiting {
            reason: waiting_number(*reason),
        }),
        FeedKind::Started { .. } => tenant_event::Kind::Started(v1::Started {}),
        FeedKind::Stopping => tenant_event::Kind::Stopping(v1::Stopping {}),
        FeedKind::Ended { cause, started, at } => tenant_event::Kind::Ended(v1::Ended {
            cause: cause_number(*cause),
            started_ms: started.map_or(0, |at| at.0),
            ended_ms: at.0,
        }),
        FeedKind::Preempted { cause, grace_until } => {
            tenant_event::Kind::Preempted(v1::Preempted {
                cause: preemption_number(*cause),
                grace_until_ms: grace_until.0,
            })
        }
        FeedKind::Requeued {
            cause,
            at,
            not_before,
        } => tenant_event::Kind::Requeued(v1::Requeued {
            cause: cause_number(*cause),
            ended_ms: at.0,
            not_before_ms: not_before.0,
        }),
    };
    let at_ms = match &item.kind {
        FeedKind::Started { at } | FeedKind::Ended { at, .. } | FeedKind::Requeued { at, .. } => {
            at.0
        }
        FeedKind::Outcome(_)
        | FeedKind::Placed { .. }
        | FeedKind::Waiting(_)
        | FeedKind::Stopping
        | FeedKind::Preempted { .. } => 0,
    };
    v1::TenantEvent {
        lsn: item.position.lsn.0,
        index: item.position.index,
        now_ms: item.now.0,
        allocation_id: item
            .allocation
            .map(|allocation| allocation.id(cell).to_string())
            .unwrap_or_default(),
        job_set: item.job_set.to_string(),
        name: item.name.as_ref().map(Token::to_string).unwrap_or_default(),
        kind: Some(kind),
        at_ms,
    }
    .encode_to_vec()
}
