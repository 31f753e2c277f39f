//! Who is who on the bus, and what each may say and hear there: NATS' operator mode. See docs/adr/0033.
//!
//! - `domain/`: pure rules. A cell and its tenants become accounts and users, and these become signed tokens.
//! - [`Creds`] is what a party holds, and [`connect`] how it connects by it.
//! - [`client_config`] says whom a client takes for a server.
//! - [`Directory`] is what the operator of the bus holds: keys, tokens, and the creds that are handed out.

mod creds;
mod directory;
mod domain;
pub mod files;
mod login;
mod trust;

pub use creds::{BadCreds, Creds, CredsError, connect, connect_as_nobody, prove, reconnect_delay};
pub use directory::{Directory, DirectoryError, Plan};
pub use domain::mint::{MintError, NodeSigner, is_user_key, node_user};
pub use domain::party::{
    ANY_CELL, CLAIMS_DELETE, CLAIMS_UPDATE, Guest, SERVICES, TENANT_SUBSCRIPTIONS_MAX,
};
pub use files::FileError;
pub use login::{Login, secret};
pub use trust::{BadAuthority, client_config, trusting};
