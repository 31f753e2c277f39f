//! Between the tenants' messages and admission's words: the only file here that names generated types.

use crate::{
    domain::{Command, SubmitRequest, Verb},
    feed::{FeedItem, FeedKind, Outcome, OutcomeKind, SubmitState},
};
use ledger::{
    Digest, DoorRecord,
    wire::{cause_number, refusal_to_proto, shares_to_proto, waiting_number},
};
use prost::Message;
use schemas::v1::{self, outcome::Result as Reply, request, submitted, tenant_event};
use vocab::{CellNo, Operation, Refusal, Rule, Token};

/// A request's encoded size, at the most.
pub const REQUEST_BYTES_MAX: usize = 65_536;

/// Total: what cannot be read becomes a command that is refused by name.
pub fn command(message: &DoorRecord) -> Command {
    let mut operation = Operation {
        tenant: message.sender.clone(),
        operation_id: None,
        digest: Digest::of(&message.payload).short(),
        reply_to: message.reply_to.clone(),
        trace: message.trace,
    };
    let verb = read(&message.payload, &mut operation);
    Command { operation, verb }
}

fn read(payload: &[u8], operation: &mut Operation) -> Result<Verb, Refusal> {
    if payload.len() > REQUEST_BYTES_MAX {
        let (limit, actual) = (REQUEST_BYTES_MAX as u64, payload.len() as u64);
        return Err(Refusal::over(
            Rule::PayloadTooLarge,
            "payload",
            limit,
            actual,
        ));
    }
    let request = v1::Request::decode(payload)
        .map_err(|_| Refusal::new(Rule::MalformedMessage, "payload"))?;
    let id = Token::new(&request.operation_id)
        .map_err(|_| Refusal::new(Rule::OperationIdInvalid, "operation_id"))?;
    operation.operation_id = Some(id);
    // Half of what was asked is not what was asked: a message with a field that this version does not know, or written
    // in a way that it would not, is refused as a whole.
    let size = request.encoded_len();
    let verb = request.verb;
    match verb {
        None => Err(Refusal::new(Rule::UnknownVerb, "verb")),
        Some(_) if size != payload.len() => Err(Refusal::new(Rule::UnknownField, "request")),
        Some(verb) => Ok(verb_from_proto(verb)),
    }
}

fn verb_from_proto(verb: request::Verb) -> Verb {
    match verb {
        request::Verb::Submit(m) => Verb::Submit(SubmitRequest {
            job_set: m.job_set,
            name: m.name,
            priority: m.priority,
            cpu_milli: m.cpu_milli,
            memory_bytes: m.memory_bytes,
            gpu_count: m.gpu_count,
            gpu_milli: m.gpu_milli,
            gpu_models: m.gpu_models,
        }),
        request::Verb::Cancel(m) => Verb::Cancel {
            allocation_id: m.allocation_id,
        },
        request::Verb::SetTenant(m) => Verb::SetTenant {
            tenant: m.tenant,
            expected: m.expected_version,
        },
        request::Verb::SetQuota(m) => Verb::SetQuota {
            tenant: m.tenant,
            resource: m.resource,
            limit: m.limit,
            expected: m.expected_version,
        },
        request::Verb::SetRate(m) => Verb::SetRate {
            resource: m.resource,
            micro_per_unit_hour: m.micro_per_unit_hour,
            effective_from_ms: m.effective_from_ms,
            expected: m.expected_version,
        },
    }
}

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
    };
    let at_ms = match &item.kind {
        FeedKind::Started { at } | FeedKind::Ended { at, .. } => at.0,
        _ => 0,
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
