//! The columns of JSON, as text in and out: the database casts.

use chassis::warm::{OutOfRange, WarmError};
use serde::{Serialize, de::DeserializeOwned};
use std::collections::BTreeMap;
use vocab::Token;

pub fn text<T: Serialize>(value: &T) -> Result<String, WarmError> {
    serde_json::to_string(value).map_err(|error| OutOfRange::new("json", error).into())
}

/// Values by their names, so that a query can ask for one.
pub fn object<V: Serialize>(named: &[(Token, V)]) -> Result<String, WarmError> {
    let by_name: BTreeMap<&str, &V> = named.iter().map(|(name, v)| (name.as_str(), v)).collect();
    text(&by_name)
}

pub fn value<T: DeserializeOwned>(what: &'static str, text: &str) -> Result<T, WarmError> {
    serde_json::from_str(text).map_err(|_| OutOfRange::new(what, text).into())
}

/// In the order of the names, which is not the order in which the database keeps them.
pub fn named<V: DeserializeOwned>(
    what: &'static str,
    text: &str,
) -> Result<Vec<(Token, V)>, WarmError> {
    let by_name: BTreeMap<Token, V> = value(what, text)?;
    Ok(by_name.into_iter().collect())
}
