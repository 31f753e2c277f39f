//! Between the tenants' messages and admission's words: the only folder here that names generated types.

mod outcome;
mod request;

pub use outcome::{outcome, tenant_event};

use crate::domain::{Command, Verb};
use ledger::{Digest, DoorRecord};
use prost::Message;
use schemas::v1;
use vocab::{Operation, Refusal, Rule, Token};

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
        Some(verb) => Ok(request::verb(verb)),
    }
}

#[cfg(test)]
mod tests;
