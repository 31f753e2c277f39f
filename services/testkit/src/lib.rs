//! Helpers that the tests of several crates share: servers, schemas, and checks of generated files.

mod made;
mod nats_server;
mod scratch;
mod servers;

pub use made::{check_made, check_migration};
pub use nats_server::NatsServer;
pub use scratch::Scratch;
pub use servers::{Clickhouse, Nats, Postgres, Servers};
