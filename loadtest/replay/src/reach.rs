//! Connections to a running stack.

use chassis::stack::{Stack, StackError};
use client::{Client, ConnectError, ConnectOptions};
use ledger::BusError;
use ledger_nats::jetstream::JetStreamBus;
use std::{collections::BTreeSet, time::Duration};
use vocab::{Token, subjects::Subjects};

#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    #[error(transparent)]
    Stack(#[from] StackError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("the stack has no tenant")]
    NoTenant,
    #[error("looking at the ledger: {0}")]
    Bus(#[from] BusError),
    #[error("connecting to the bus: {0}")]
    Nats(#[from] async_nats::ConnectError),
}

/// All connections of one run; `patience` is for who does not want to wait long.
pub async fn connect(
    stack: &Stack,
    tenant: &Token,
    count: usize,
    patience: Option<Duration>,
) -> Result<Vec<Client>, ReachError> {
    let creds = stack.creds(&format!("tenant:{tenant}"))?;
    let mut clients = Vec::with_capacity(count);
    for _ in 0..count {
        let (url, cell) = (&stack.nats.url, &stack.cell.name);
        let options = ConnectOptions::tenant(url, cell, tenant.clone())
            .creds(&creds)
            .ca_file(stack.ca_file())
            .batched();
        let options = match patience {
            Some(patience) => options.patience(patience),
            None => options,
        };
        clients.push(Client::connect(options).await?);
    }
    Ok(clients)
}

/// The tenants that a stack was started for, in the order of their names.
pub fn tenants(stack: &Stack) -> Vec<Token> {
    let names = BTreeSet::from_iter(&stack.tenants).into_iter();
    names.filter_map(|name| Token::new(name).ok()).collect()
}

pub async fn operator(stack: &Stack) -> Result<Client, ReachError> {
    let options = ConnectOptions::operator(&stack.nats.url, &stack.cell.name)
        .creds(stack.creds("operator")?)
        .ca_file(stack.ca_file());
    Ok(Client::connect(options).await?)
}

/// A connection as any program could make it.
pub async fn plain(stack: &Stack, key: &str) -> Result<async_nats::Client, ReachError> {
    Ok(stack.bus(key)?.connect(&stack.nats.url).await?)
}

/// A look at the ledger, as the operator has it.
pub async fn ledger(stack: &Stack) -> Result<JetStreamBus, ReachError> {
    let nats = plain(stack, "operator").await?;
    Ok(JetStreamBus::open(nats, Subjects::new(&stack.cell.name)).await?)
}
