//! A text that must not reach a log, an error or a debug print.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error};

/// A password or a URL that carries one. It prints as `Secret(..)`; only [`Secret::reveal`] gives the text away.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes a text into custody.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text, for the one call that has to send it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl<'de> Deserialize<'de> for Secret {
    /// Serde's own type error repeats the value, which here may be a password without its quotes.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
        match String::deserialize(deserializer) {
            Ok(text) if text.is_empty() => Err(D::Error::custom("must not be empty")),
            Ok(text) => Ok(Secret(text)),
            Err(_) => Err(D::Error::custom("must be a string")),
        }
    }
}
