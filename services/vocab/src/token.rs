//! Names that may stand in a subject.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use std::{
    borrow::{Borrow, Cow},
    fmt,
};

/// A name of 1 to 64 characters from `[A-Za-z0-9_-]`. It can stand in a subject, a file name or a URL as it is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire)]
#[serde(try_from = "SmolStr", into = "SmolStr")]
#[wire(text)]
pub struct Token(SmolStr);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a name is 1 to 64 characters from A-Z a-z 0-9 _ -")]
pub struct BadToken;

impl Token {
    pub const LENGTH_MAX: usize = 64;

    pub fn new(text: &str) -> Result<Self, BadToken> {
        Self::check(text)?;
        Ok(Self(text.into()))
    }

    fn check(text: &str) -> Result<(), BadToken> {
        let fits = (1..=Self::LENGTH_MAX).contains(&text.len());
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        (fits && text.bytes().all(plain))
            .then_some(())
            .ok_or(BadToken)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<SmolStr> for Token {
    type Error = BadToken;
    fn try_from(text: SmolStr) -> Result<Self, BadToken> {
        Self::check(&text)?;
        Ok(Self(text))
    }
}

impl From<Token> for SmolStr {
    fn from(token: Token) -> Self {
        token.0
    }
}

impl From<Token> for String {
    fn from(token: Token) -> Self {
        token.0.into()
    }
}

impl Borrow<str> for Token {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &self.0)
    }
}

impl wire::Text for Token {
    fn as_text(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.0)
    }

    fn parse_text(text: &str) -> Option<Self> {
        Self::new(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_short_names_are_tokens() {
        for good in ["a", "A-1_b", &"x".repeat(64)] {
            assert!(Token::new(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "a.b",
            "*",
            ">",
            "a b",
            "nul\0",
            "раураl",
            "é",
            "a\n",
            &"x".repeat(65),
        ] {
            assert_eq!(Token::new(bad), Err(BadToken), "{bad:?}");
        }
    }
}
