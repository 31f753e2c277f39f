//! What NATS' tokens say, version 2: <https://docs.nats.io/running-a-nats-service/configuration/securing_nats/auth_intro/jwt>.
//! A limit that is not there means 0, so each is written, and -1 is none.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub const VERSION: u8 = 2;
pub const UNLIMITED: i64 = -1;
/// Users whose tokens of up to a moment (Unix s) are void, by public key.
pub type Revocations = BTreeMap<String, i64>;

#[derive(Debug, Clone, Serialize)]
pub struct Claims<B> {
    /// A digest of the rest.
    pub jti: String,
    /// Issued at, Unix s.
    pub iat: i64,
    /// Public key of the issuer.
    pub iss: String,
    pub name: String,
    /// Public key of whom this is about.
    pub sub: String,
    /// Expires at, Unix s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exp: Option<i64>,
    pub nats: Typed<B>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Typed<B> {
    #[serde(flatten)]
    pub body: B,
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub version: u8,
}

#[derive(Debug, Clone, Serialize)]
pub struct Operator {
    pub signing_keys: Vec<String>,
    pub system_account: String,
}

#[derive(Debug, Clone, Serialize)]
pub struct Account {
    pub imports: Vec<Import>,
    pub exports: Vec<Export>,
    pub limits: AccountLimits,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub signing_keys: Vec<Scope>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub revocations: Revocations,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    Service,
    Stream,
}

#[derive(Debug, Clone, Serialize)]
pub struct Import {
    pub name: String,
    pub subject: String,
    pub account: String,
    /// The exporting account's word that this one may.
    pub token: String,
    #[serde(rename = "type")]
    pub way: Way,
}

#[derive(Debug, Clone, Serialize)]
pub struct Export {
    pub name: String,
    pub subject: String,
    #[serde(rename = "type")]
    pub way: Way,
    pub token_req: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_type: Option<&'static str>,
    /// Nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_threshold: Option<i64>,
}

#[derive(Debug, Clone, Serialize)]
pub struct AccountLimits {
    /// Subscriptions of one connection.
    pub subs: i64,
    pub data: i64,
    pub payload: i64,
    pub imports: i64,
    pub exports: i64,
    pub wildcards: bool,
    /// A user proves that it has its key.
    pub disallow_bearer: bool,
    pub conn: i64,
    pub leaf: i64,
    pub mem_storage: i64,
    pub disk_storage: i64,
    pub streams: i64,
    pub consumer: i64,
}

/// A signing key and what its users may, whatever their tokens say.
#[derive(Debug, Clone, Serialize)]
pub struct Scope {
    pub kind: &'static str,
    pub key: String,
    pub role: &'static str,
    pub template: Permissions,
}

#[derive(Debug, Clone, Serialize)]
pub struct Permissions {
    #[serde(rename = "pub")]
    pub publish: Allowed,
    #[serde(rename = "sub")]
    pub subscribe: Allowed,
    #[serde(rename = "resp", skip_serializing_if = "Option::is_none")]
    pub answers: Option<Answers>,
    pub subs: i64,
    pub data: i64,
    pub payload: i64,
}

#[derive(Debug, Clone, Serialize)]
pub struct Allowed {
    pub allow: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Answers {
    pub max: i64,
    /// Nanoseconds.
    pub ttl: i64,
}

/// Of a user without a role.
#[derive(Debug, Clone, Serialize)]
pub struct User {
    #[serde(flatten)]
    pub permissions: Permissions,
}

/// Of a user whose permissions are its role's. The server refuses one that brings its own.
#[derive(Debug, Clone, Serialize)]
pub struct ScopedUser {
    pub issuer_account: String,
}

#[derive(Debug, Clone, Serialize)]
pub struct Activation {
    pub subject: String,
    #[serde(rename = "kind")]
    pub way: Way,
}

/// Which accounts the server is to forget.
#[derive(Debug, Clone, Serialize)]
pub struct Deletion {
    pub accounts: Vec<String>,
}

/// What is read again of an own token.
#[derive(Debug, Clone, Deserialize)]
pub struct Known {
    pub iat: i64,
    /// Whom it is about.
    pub name: String,
    #[serde(default)]
    pub nats: KnownBody,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub struct KnownBody {
    #[serde(default)]
    pub revocations: Revocations,
}
