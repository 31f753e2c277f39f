//! The domain's words in messages that are not on the ledger: requests, outcomes, reports and assignments. An event is written
//! and read by its own type (`wire::Message`).

mod node;
mod refusal;
mod rules;
mod spec;

pub use node::{capacity_from_proto, capacity_to_proto};
pub use refusal::{refusal_to_proto, shares_to_proto};
use rules::rules_to_proto;
pub use spec::spec_to_proto;

use schemas::v1;
use std::fmt;
use vocab::Token;

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

/// A number of the message that is a smaller one in the vocabulary.
fn narrow<T: TryFrom<u32>>(number: u32, field: &'static str) -> Result<T, WireError> {
    number.try_into().map_err(|_| WireError(field))
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
