//! Who asked, and what was refused.

use super::{WireError, optional_token, text, token};
use schemas::v1;
use vocab::{Operation, Refusal, Rule, TraceContext};

pub fn refusal_to_proto(refusal: &Refusal) -> v1::Refusal {
    v1::Refusal {
        rule: refusal.rule.number(),
        subject: refusal.subject.clone(),
        limit: refusal.limit,
        actual: refusal.actual,
    }
}

pub fn refusal_from_proto(refusal: Option<v1::Refusal>) -> Result<Refusal, WireError> {
    let refusal = refusal.ok_or(WireError("refusal"))?;
    Ok(Refusal {
        rule: Rule::from_number(refusal.rule).ok_or(WireError("refusal.rule"))?,
        subject: refusal.subject,
        limit: refusal.limit,
        actual: refusal.actual,
    })
}

fn trace_to_proto(trace: &Option<TraceContext>) -> Vec<u8> {
    trace.as_ref().map_or_else(Vec::new, |t| {
        let mut bytes = Vec::with_capacity(25);
        bytes.extend_from_slice(&t.trace_id);
        bytes.extend_from_slice(&t.span_id);
        bytes.push(t.flags);
        bytes
    })
}

fn trace_from_proto(bytes: &[u8]) -> Result<Option<TraceContext>, WireError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let error = WireError("operation.trace");
    let (trace_id, rest) = bytes.split_first_chunk::<16>().ok_or(error.clone())?;
    let (span_id, rest) = rest.split_first_chunk::<8>().ok_or(error.clone())?;
    let [flags] = rest else { return Err(error) };
    Ok(Some(TraceContext {
        trace_id: *trace_id,
        span_id: *span_id,
        flags: *flags,
    }))
}

pub(super) fn operation_to_proto(operation: &Operation) -> Option<v1::Operation> {
    Some(v1::Operation {
        tenant: operation.tenant.to_string(),
        operation_id: text(&operation.operation_id),
        digest: operation.digest.to_vec(),
        reply_to: text(&operation.reply_to),
        trace: trace_to_proto(&operation.trace),
    })
}

pub(super) fn operation_from_proto(
    operation: Option<v1::Operation>,
) -> Result<Operation, WireError> {
    let operation = operation.ok_or(WireError("operation"))?;
    Ok(Operation {
        tenant: token(&operation.tenant, "operation.tenant")?,
        operation_id: optional_token(&operation.operation_id, "operation.operation_id")?,
        digest: operation
            .digest
            .try_into()
            .map_err(|_| WireError("operation.digest"))?,
        reply_to: optional_token(&operation.reply_to, "operation.reply_to")?,
        trace: trace_from_proto(&operation.trace)?,
    })
}
