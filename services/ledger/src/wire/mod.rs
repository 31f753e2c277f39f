//! The one place that converts between the ledger's words and its messages.

mod account;
mod admin;
mod decode;
mod encode;
mod node;
mod operation;
mod resource;
mod rules;
mod spec;

pub(crate) use decode::event_from_bytes;
pub use decode::event_from_proto;
pub use encode::{event_to_proto, shares_to_proto};
pub use node::{capacity_from_proto, capacity_to_proto};
pub use operation::{refusal_from_proto, refusal_to_proto};
use rules::{requirements_from_proto, requirements_to_proto, rules_from_proto, rules_to_proto};
pub use spec::{spec_from_proto, spec_to_proto};

use schemas::v1;
use std::fmt;
use vocab::{EndCause, NumaPolicy, PlacementPolicy, PreemptionCause, QueueOrder};
use vocab::{ResourceKind, Token, WaitingReason};

/// The message has a value that no writer of this or an earlier version has put there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireError(pub &'static str);

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown or missing value: {}", self.0)
    }
}

impl std::error::Error for WireError {}

fn token(text: &str, field: &'static str) -> Result<Token, WireError> {
    Token::new(text).map_err(|_| WireError(field))
}

fn optional_token(text: &str, field: &'static str) -> Result<Option<Token>, WireError> {
    (!text.is_empty()).then(|| token(text, field)).transpose()
}

fn text(token: &Option<Token>) -> String {
    token.as_ref().map(Token::to_string).unwrap_or_default()
}

fn texts(tokens: &[Token]) -> Vec<String> {
    tokens.iter().map(Token::to_string).collect()
}

fn tokens(texts: &[String], field: &'static str) -> Result<Vec<Token>, WireError> {
    texts.iter().map(|text| token(text, field)).collect()
}

/// A number of the message that is a smaller one in the vocabulary.
fn narrow<T: TryFrom<u32>>(number: u32, field: &'static str) -> Result<T, WireError> {
    number.try_into().map_err(|_| WireError(field))
}

fn find<T: Copy>(
    all: &[T],
    number: i32,
    of: fn(T) -> i32,
    field: &'static str,
) -> Result<T, WireError> {
    all.iter()
        .copied()
        .find(|value| of(*value) == number)
        .ok_or(WireError(field))
}

/// The number that stands for the reason in messages.
pub fn waiting_number(reason: WaitingReason) -> i32 {
    reason as i32
}

/// The number that stands for the cause in messages.
pub fn cause_number(cause: EndCause) -> i32 {
    cause as i32
}

/// The number that stands for the cause in messages.
pub fn preemption_number(cause: PreemptionCause) -> i32 {
    cause as i32
}

fn placement_from_number(number: i32) -> Result<PlacementPolicy, WireError> {
    find(&PlacementPolicy::ALL, number, |p| p as i32, "placement")
}

fn order_from_number(number: i32) -> Result<QueueOrder, WireError> {
    find(&QueueOrder::ALL, number, |order| order as i32, "order")
}

fn numa_from_number(number: i32) -> Result<NumaPolicy, WireError> {
    find(&NumaPolicy::ALL, number, |numa| numa as i32, "rules.numa")
}

fn amounts_to_proto(amounts: &[(ResourceKind, u64)]) -> Vec<v1::ResourceAmount> {
    let amount = |(resource, amount): &(ResourceKind, u64)| v1::ResourceAmount {
        resource: resource.name().to_owned(),
        amount: *amount,
    };
    amounts.iter().map(amount).collect()
}

fn amounts_from_proto(
    amounts: &[v1::ResourceAmount],
    field: &'static str,
) -> Result<Vec<(ResourceKind, u64)>, WireError> {
    let amount = |given: &v1::ResourceAmount| {
        let kind = ResourceKind::parse(&given.resource).ok_or(WireError(field))?;
        Ok((kind, given.amount))
    };
    amounts.iter().map(amount).collect()
}

fn extended_to_proto(extended: &[(Token, u64)]) -> Vec<v1::ExtendedAmount> {
    let amount = |(name, amount): &(Token, u64)| v1::ExtendedAmount {
        name: name.to_string(),
        amount: *amount,
    };
    extended.iter().map(amount).collect()
}

fn extended_from_proto(
    extended: &[v1::ExtendedAmount],
    field: &'static str,
) -> Result<Vec<(Token, u64)>, WireError> {
    let amount = |given: &v1::ExtendedAmount| Ok((token(&given.name, field)?, given.amount));
    extended.iter().map(amount).collect()
}
