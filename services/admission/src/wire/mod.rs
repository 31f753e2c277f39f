//! Between the tenants' messages and admission's words. What is asked is read by the words' own types.

mod outcome;

pub use outcome::{EVENTS, OUTCOMES, outcome, tenant_event};

use admission_rules::{ArrayRequest, Command, Verb};
use ledger::{Digest, InboxMessage};
use prost::bytes::Bytes;
use smol_str::SmolStr;
use vocab::{Operation, Refusal, Rule, Slot, Token};
use wire::{Fault, Message, Row, WireError};

/// A request's encoded size, at the most.
pub const REQUEST_BYTES_MAX: usize = 65_536;

/// Operations in one message, at the most.
pub const BATCH_MAX: usize = 1000;

/// The requests of a batch as they were written, so that one that breaks a rule is refused by itself.
#[derive(Clone, PartialEq, prost::Message)]
struct RawBatch {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    requests: Vec<Bytes>,
}

/// As much of a request as tells whether it is a batch.
#[derive(Clone, PartialEq, prost::Message)]
struct Envelope {
    #[prost(string, tag = "1")]
    operation_id: String,
    #[prost(message, tag = "12")]
    batch: Option<RawBatch>,
}

/// A batch inside of a batch has no verb.
#[derive(wire::Wire)]
struct Request {
    #[wire(1)]
    operation_id: SmolStr,
    #[wire(oneof(
        10, 11, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39,
        40, 41
    ))]
    verb: Verb,
}

/// Total: what cannot be read becomes a command that is refused by name.
pub fn commands(message: &InboxMessage, out: &mut Vec<Command>) {
    let payload = &message.payload;
    if message.reserved_header {
        let refusal = Refusal::new(Rule::HeaderReserved, "Nats-");
        return out.push(refused(message, refusal));
    }
    if payload.len() > REQUEST_BYTES_MAX {
        let (limit, actual) = (REQUEST_BYTES_MAX as u64, payload.len() as u64);
        let refusal = Refusal::over(Rule::PayloadTooLarge, "payload", limit, actual);
        return out.push(refused(message, refusal));
    }
    let mut scratch = Vec::new();
    match batch(payload) {
        None => match command(message, payload, &mut scratch) {
            Command {
                operation,
                verb: Ok(Verb::SubmitArray(array)),
            } => elements(&operation, &array, &mut scratch, out),
            command => out.push(command),
        },
        Some(Ok(requests)) => {
            let command = |one: &Bytes| command(message, one, &mut scratch);
            out.extend(requests.iter().map(command));
        }
        Some(Err(refusal)) => out.push(refused(message, refusal)),
    }
}

fn refused(message: &InboxMessage, refusal: Refusal) -> Command {
    Command {
        operation: operation(message, &message.payload),
        verb: Err(refusal),
    }
}

fn operation(message: &InboxMessage, payload: &[u8]) -> Operation {
    Operation {
        tenant: message.sender.clone(),
        operation_id: None,
        digest: Digest::of(payload).short(),
        reply_to: message.reply_to.clone(),
        trace: message.trace,
        by: message.by.clone(),
    }
}

/// The requests of a batch; none when the message is none, or is not readable as one.
fn batch(payload: &Bytes) -> Option<Result<Vec<Bytes>, Refusal>> {
    let envelope = envelope(payload.clone())?;
    envelope.batch.as_ref()?;
    if prost::Message::encoded_len(&envelope) != payload.len() {
        let written = prost::Message::encode_to_vec(&envelope);
        return Some(Err(Refusal::not_as_written(payload, &written)));
    }
    let requests = envelope.batch?.requests;
    let (limit, actual) = (BATCH_MAX as u64, requests.len() as u64);
    Some(if !envelope.operation_id.is_empty() {
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

fn envelope(payload: impl prost::bytes::Buf) -> Option<Envelope> {
    prost::Message::decode(payload).ok()
}

fn command(message: &InboxMessage, payload: &[u8], scratch: &mut Vec<u8>) -> Command {
    let mut operation = operation(message, payload);
    let verb = read(payload, &mut operation, scratch);
    Command { operation, verb }
}

/// The elements of an array, as if each had been sent by itself. One that is none is refused as a whole.
fn elements(
    operation: &Operation,
    array: &ArrayRequest,
    scratch: &mut Vec<u8>,
    out: &mut Vec<Command>,
) {
    let invalid = || Refusal::new(Rule::OperationIdInvalid, "operation_id");
    let id = operation.operation_id.as_ref().ok_or_else(invalid);
    let elements = match id.and_then(|id| array.elements(id)) {
        Ok(elements) => elements,
        Err(refusal) => {
            return out.push(Command {
                operation: operation.clone(),
                verb: Err(refusal),
            });
        }
    };
    out.extend(elements.into_iter().map(|(id, submit)| {
        let request = Request {
            operation_id: id.as_str().into(),
            verb: Verb::Submit(submit),
        };
        encode(&request, scratch);
        Command {
            operation: Operation {
                operation_id: Some(id),
                digest: Digest::of(scratch).short(),
                ..operation.clone()
            },
            verb: Ok(request.verb),
        }
    }));
}

/// `scratch` has room for a request, so that it need not be made for each.
fn read(payload: &[u8], operation: &mut Operation, scratch: &mut Vec<u8>) -> Result<Verb, Refusal> {
    let token = |id: SmolStr| {
        Token::try_from(id).map_err(|_| Refusal::new(Rule::OperationIdInvalid, "operation_id"))
    };
    let mut request = match Request::decode(payload) {
        Ok(request) => request,
        Err(error) => {
            let (rule, subject) = unread(&error);
            // Without a verb it is still an operation.
            if let (Rule::UnknownVerb, Some(envelope)) = (rule, envelope(payload)) {
                operation.operation_id = Some(token(envelope.operation_id.into())?);
            }
            return Err(Refusal::new(rule, subject));
        }
    };
    encode(&request, scratch);
    // Half of what was asked is not what was asked: a message with a field that this version does not know, or written
    // in a way that it would not, is refused as a whole.
    let other = (scratch.len() != payload.len()).then(|| Refusal::not_as_written(payload, scratch));
    // The slot is not part of the content that an operation id stands for.
    let slot = request.slot().and_then(Option::take);
    if slot.is_some() {
        encode(&request, scratch);
    }
    operation.operation_id = Some(token(std::mem::take(&mut request.operation_id))?);
    if let Some(refusal) = other {
        return Err(refusal);
    }
    if slot.is_some() {
        operation.digest = Digest::of(scratch).short();
        if let Some(given) = request.slot() {
            *given = slot;
        }
    }
    Ok(request.verb)
}

impl Request {
    /// Of a request about named resources: the slot that it says it is of.
    fn slot(&mut self) -> Option<&mut Option<Slot>> {
        match &mut self.verb {
            Verb::Resource(asked) => Some(asked.slot()),
            _ => None,
        }
    }
}

fn encode(request: &Request, bytes: &mut Vec<u8>) {
    bytes.clear();
    Row::behind(bytes, |out| request.write_body(out));
}

/// What a request that cannot be read is refused for. What is not there is no broken field, but something that was not asked.
fn unread(error: &WireError) -> (Rule, &'static str) {
    match (&error.fault, error.field) {
        (Fault::Missing, "Request.verb") => (Rule::UnknownVerb, "verb"),
        (Fault::Missing, "SetPriority.target") => (Rule::UnknownVerb, "target"),
        _ => (Rule::MalformedMessage, "payload"),
    }
}

#[cfg(test)]
mod tests;
