//! What can be wrong with a configuration, and where in the file it is.

use std::ops::Range;
use std::path::PathBuf;

use toml::de::{DeTable, DeValue};

use crate::tls::BadAuthority;

/// A refused configuration. Every case names the file and the key; none repeats a value, since it may be a secret.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file itself cannot be read.
    #[error("{file}: cannot be read")]
    Unreadable {
        /// The configuration file.
        file: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The text is not TOML.
    #[error("{file}:{line}: not TOML: {rule}")]
    Syntax {
        /// The configuration file.
        file: String,
        /// The line, counted from 1.
        line: usize,
        /// What the parser expected.
        rule: String,
    },
    /// A key that nothing reads, so most likely a misspelt one.
    #[error("{file}: unknown key `{key}`, expected {expected}")]
    UnknownKey {
        /// The configuration file.
        file: String,
        /// The key with its table.
        key: String,
        /// The keys that exist at this place.
        expected: String,
    },
    /// A key or table without which no service starts.
    #[error("{file}: missing key `{key}`")]
    MissingKey {
        /// The configuration file.
        file: String,
        /// The key with its table.
        key: String,
    },
    /// A value of the wrong type or out of its range.
    #[error("{file}: `{key}`: {rule}")]
    BadValue {
        /// The configuration file.
        file: String,
        /// The key with its table.
        key: String,
        /// The rule that the value breaks.
        rule: String,
    },
    /// A table that is optional in general but not for this service.
    #[error("{file}: missing table `[{table}]`, the {service} service needs it")]
    MissingTable {
        /// The configuration file.
        file: String,
        /// The table.
        table: &'static str,
        /// The service that asked for it.
        service: &'static str,
    },
    /// The file of an authority cannot be used.
    #[error("{file}: `{key}`: {source}")]
    Authority {
        /// The configuration file.
        file: String,
        /// The key that names the authority's file.
        key: &'static str,
        /// What is wrong with it.
        source: BadAuthority,
    },
    /// A secret's file cannot be read.
    #[error("{file}: `{key}`: cannot read {}", path.display())]
    UnreadableSecret {
        /// The configuration file.
        file: String,
        /// The key that names the secret's file.
        key: &'static str,
        /// The secret's file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

impl ConfigError {
    pub(super) fn syntax(file: &str, text: &str, error: &toml::de::Error) -> ConfigError {
        let offset = error.span().map_or(0, |span| span.start);
        let line = 1 + text
            .bytes()
            .take(offset)
            .filter(|byte| *byte == b'\n')
            .count();
        ConfigError::Syntax {
            file: file.to_owned(),
            line,
            rule: error.message().replace('\n', ", "),
        }
    }

    /// Turns serde's message into a case of ours. The wording belongs to serde 1 and is pinned by the tests; a wording
    /// that is not known becomes the rule of a [`ConfigError::BadValue`].
    pub(super) fn refused(
        file: &str,
        document: &DeTable<'_>,
        error: &toml::de::Error,
    ) -> ConfigError {
        let file = file.to_owned();
        let key = error
            .span()
            .map(|span| key_at(document, &span))
            .unwrap_or_default();
        let message = error.message();
        if let Some(rest) = message.strip_prefix("unknown field ") {
            let (name, expected) = rest
                .split_once(", expected ")
                .unwrap_or((rest, "nothing here"));
            let key = if key.is_empty() {
                name.trim_matches('`').to_owned()
            } else {
                key
            };
            return ConfigError::UnknownKey {
                file,
                key,
                expected: expected.to_owned(),
            };
        }
        if let Some(name) = message.strip_prefix("missing field ") {
            let name = name.trim_matches('`');
            let key = if key.is_empty() {
                name.to_owned()
            } else {
                format!("{key}.{name}")
            };
            return ConfigError::MissingKey { file, key };
        }
        let repeats_the_value = ["invalid type: ", "invalid value: ", "invalid length "];
        let rule = match message.rsplit_once(", expected ") {
            Some((_, expected))
                if repeats_the_value
                    .iter()
                    .any(|start| message.starts_with(start)) =>
            {
                format!("must be {expected}")
            }
            _ => message.to_owned(),
        };
        ConfigError::BadValue { file, key, rule }
    }
}

/// The dotted path of the deepest key whose own text or whose value covers `place`.
fn key_at(table: &DeTable<'_>, place: &Range<usize>) -> String {
    let covers = |span: Range<usize>| span.start <= place.start && place.end <= span.end;
    for (key, value) in table.iter() {
        let deeper = match value.get_ref() {
            DeValue::Table(inner) => key_at(inner, place),
            _ => String::new(),
        };
        if !deeper.is_empty() {
            return format!("{}.{deeper}", key.get_ref());
        }
        if covers(key.span()) || covers(value.span()) {
            return key.get_ref().to_string();
        }
    }
    String::new()
}
