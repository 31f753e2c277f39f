//! Between the tenants' messages and admission's words: the only folder here that names generated types.

mod admin;
mod outcome;
mod request;

pub use outcome::{EventMessage, OutcomeMessage, outcome, outcomes, tenant_event, tenant_events};

use crate::domain::{Command, Verb};
use ledger::{Digest, DoorRecord};
use prost::Message;
use prost::bytes::Bytes;
use schemas::v1;
use vocab::{Operation, Refusal, Rule, Token};

/// A request's encoded size, at the most.
pub const REQUEST_BYTES_MAX: usize = 65_536;

/// Operations in one message, at the most.
pub const BATCH_MAX: usize = 1000;

/// The requests of a batch as they were written, so that one that breaks a rule is refused by itself.
#[derive(Clone, PartialEq, Message)]
struct RawBatch {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    requests: Vec<Bytes>,
}

/// As much of a request as tells whether it is a batch.
#[derive(Clone, PartialEq, Message)]
struct Envelope {
    #[prost(string, tag = "1")]
    operation_id: String,
    #[prost(message, tag = "12")]
    batch: Option<RawBatch>,
}

/// Total: what cannot be read becomes a command that is refused by name.
pub fn commands(message: &DoorRecord) -> Vec<Command> {
    let payload = &message.payload;
    if message.reserved_header {
        return vec![refused(
            message,
            Refusal::new(Rule::HeaderReserved, "Nats-"),
        )];
    }
    if payload.len() > REQUEST_BYTES_MAX {
        let (limit, actual) = (REQUEST_BYTES_MAX as u64, payload.len() as u64);
        let refusal = Refusal::over(Rule::PayloadTooLarge, "payload", limit, actual);
        return vec![refused(message, refusal)];
    }
    let Some(batch) = batch(payload) else {
        return vec![command(message, payload)];
    };
    match batch {
        Ok(requests) => requests.iter().map(|one| command(message, one)).collect(),
        Err(refusal) => vec![refused(message, refusal)],
    }
}

fn refused(message: &DoorRecord, refusal: Refusal) -> Command {
    Command {
        operation: operation(message, &message.payload),
        verb: Err(refusal),
    }
}

fn operation(message: &DoorRecord, payload: &[u8]) -> Operation {
    Operation {
        tenant: message.sender.clone(),
        operation_id: None,
        digest: Digest::of(payload).short(),
        reply_to: message.reply_to.clone(),
        trace: message.trace,
    }
}

/// The requests of a batch; none when the message is none, or is not readable as one.
fn batch(payload: &Bytes) -> Option<Result<Vec<Bytes>, Refusal>> {
    let envelope = Envelope::decode(payload.clone()).ok()?;
    let size = envelope.encoded_len();
    let requests = envelope.batch?.requests;
    let (limit, actual) = (BATCH_MAX as u64, requests.len() as u64);
    Some(if size != payload.len() {
        Err(Refusal::new(Rule::UnknownField, "batch"))
    } else if !envelope.operation_id.is_empty() {
        Err(Refusal::new(Rule::OperationIdInvalid, "operation_id"))
    } else if requests.is_empty() {
        Err(Refusal::new(Rule::QuantityZero, "requests"))
    } else if actual > limit {
        Err(Refusal::over(
            Rule::TooManyElements,
            "requests",
            limit,
            actual,
        ))
    } else {
        Ok(requests)
    })
}

fn command(message: &DoorRecord, payload: &[u8]) -> Command {
    let mut operation = operation(message, payload);
    let verb = read(payload, &mut operation);
    Command { operation, verb }
}

fn read(payload: &[u8], operation: &mut Operation) -> Result<Verb, Refusal> {
    let request = v1::Request::decode(payload)
        .map_err(|_| Refusal::new(Rule::MalformedMessage, "payload"))?;
    let id = Token::new(&request.operation_id)
        .map_err(|_| Refusal::new(Rule::OperationIdInvalid, "operation_id"))?;
    operation.operation_id = Some(id);
    // Half of what was asked is not what was asked: a message with a field that this version does not know, or written
    // in a way that it would not, is refused as a whole.
    if request.verb.is_some() && request.encoded_len() != payload.len() {
        return Err(Refusal::new(Rule::UnknownField, "request"));
    }
    if let Some(content) = request::content(&request) {
        operation.digest = Digest::of(&content.encode_to_vec()).short();
    }
    let verb = request.verb;
    request::verb(verb.ok_or_else(|| Refusal::new(Rule::UnknownVerb, "verb"))?)
}

#[cfg(test)]
mod tests;
