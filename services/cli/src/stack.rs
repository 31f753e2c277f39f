//! Connections to a running stack.

use crate::Failure;
use chassis::stack::Stack;
use client::{Client, ConnectOptions};
use ledger::jetstream::JetStreamBus;
use schemas::subjects::Subjects;
use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use std::{path::Path, str::FromStr};
use vocab::Token;

pub fn read(path: &Path) -> Result<Stack, Failure> {
    Stack::read(path)
        .map_err(|error| format!("{error}\nIs the stack up? `make up` starts it.").into())
}

pub async fn tenant(stack: &Stack, name: &str) -> Result<Client, Failure> {
    let tenant = Token::new(name)?;
    let creds = stack.creds(&format!("tenant:{name}"))?;
    let options = ConnectOptions::tenant(&stack.nats.url, &stack.cell.name, tenant)
        .creds(creds)
        .ca_file(stack.ca_file());
    Ok(Client::connect(options).await?)
}

pub async fn operator(stack: &Stack) -> Result<Client, Failure> {
    let creds = stack.creds("operator")?;
    let options = ConnectOptions::operator(&stack.nats.url, &stack.cell.name)
        .creds(creds)
        .ca_file(stack.ca_file());
    Ok(Client::connect(options).await?)
}

/// The ledger, as the operator reads it.
pub async fn ledger(stack: &Stack) -> Result<JetStreamBus, Failure> {
    let client = stack.bus("operator")?.connect(&stack.nats.url).await?;
    Ok(JetStreamBus::open(client, Subjects::new(&stack.cell.name)).await?)
}

/// A reader of one service's warm state.
pub async fn warm_state(stack: &Stack, schema: &str) -> Result<PgPool, Failure> {
    let options = PgConnectOptions::from_str(&stack.postgres.url)?;
    let options = options.options([("search_path", schema)]);
    let pool = PgPoolOptions::new().max_connections(1);
    Ok(pool.connect_with(options).await?)
}

pub fn usage(stack: &Stack) -> Result<analytics::store::Store, Failure> {
    let cell = vocab::CellNo(stack.cell.number);
    let database = &stack.clickhouse.database;
    Ok(analytics::store::Store::new(stack.bill()?, database, cell))
}
