//! The rules that single values must keep, as functions for serde's `deserialize_with`: a broken rule becomes an error
//! at the value's place in the file, so the reader is told which key it was.

use std::num::NonZeroU64;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error};
use tracing_subscriber::EnvFilter;

use super::Secret;

/// A token goes into subjects, stream names and inbox prefixes as it is.
pub(super) fn token<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if (1..=32).contains(&text.len()) && text.bytes().all(allowed) {
        Ok(text)
    } else {
        Err(D::Error::custom(
            "must be 1 to 32 characters of A-Z a-z 0-9 _ -",
        ))
    }
}

/// Zero is refused because ids without their cell's number could collide with another cell's.
pub(super) fn cell_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    NonZeroU64::deserialize(deserializer).map(NonZeroU64::get)
}

pub(super) fn nats_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    plain_url::<D>(secretive::<D>(deserializer)?, &["nats", "tls"])
}

pub(super) fn http_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    plain_url::<D>(secretive::<D>(deserializer)?, &["http", "https"])
}

pub(super) fn http_url_option<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    http_url(deserializer).map(Some)
}

/// An address and nothing secret: credentials have keys of their own, which do not print.
fn plain_url<'de, D: Deserializer<'de>>(
    text: String,
    schemes: &[&str],
) -> Result<String, D::Error> {
    let expected = || D::Error::custom(format!("must be {}://host:port", schemes.join(":// or ")));
    let url = axum::http::Uri::from_str(&text).map_err(|_| expected())?;
    let authority = url.authority().ok_or_else(expected)?;
    if authority.as_str().contains('@') {
        return Err(D::Error::custom(
            "must not carry credentials, they have keys of their own",
        ));
    }
    match url.scheme_str() {
        Some(scheme) if schemes.contains(&scheme) && !authority.host().is_empty() => Ok(text),
        _ => Err(expected()),
    }
}

/// The URL is kept as a secret because it may carry the password.
pub(super) fn postgres_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
    let url = Secret::deserialize(deserializer)?;
    match sqlx::postgres::PgConnectOptions::from_str(url.reveal()) {
        Ok(_) if url.reveal().starts_with("postgres://") => Ok(url),
        _ => Err(D::Error::custom(
            "must be postgres://user@host:port/database",
        )),
    }
}

/// A schema's name goes into `search_path` unquoted, so only what needs no quotes is let in.
pub(super) fn schema<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    let head = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    let fits = text.len() <= 63
        && text.bytes().next().is_some_and(head)
        && text.bytes().all(|byte| head(byte) || byte.is_ascii_digit());
    if fits {
        Ok(text)
    } else {
        Err(D::Error::custom(
            "must be a lower-case SQL name of at most 63 characters",
        ))
    }
}

pub(super) fn log_filter<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    match EnvFilter::builder().parse(&text) {
        Ok(_) => Ok(text),
        Err(_) => Err(D::Error::custom(
            "must be a level or a list of target=level",
        )),
    }
}

pub(super) fn not_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.is_empty() {
        Err(D::Error::custom("must not be empty"))
    } else {
        Ok(text)
    }
}

/// A string that may turn out to hold a password: serde's own error would repeat it.
fn secretive<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Secret::deserialize(deserializer).map(|secret| secret.reveal().to_owned())
}
