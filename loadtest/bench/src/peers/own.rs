//! What Apportion itself does on the running stack, and what it writes for a task.

use super::PeersError;
use crate::throughput::{self, Length};
use chassis::stack::Stack;
use replay::command::Size;
use serde::Serialize;
use sqlx::{ConnectOptions, Connection, postgres::PgConnectOptions};
use std::str::FromStr;

#[derive(Debug, Clone, Serialize)]
pub struct Own {
    /// The highest rate that was sustained, from the inbox to the end.
    pub tasks_per_s: f64,
    /// All that went through, at all rates that were tried.
    pub tasks: u64,
    /// Of all writers' frames.
    pub ledger_bytes_per_task: f64,
    /// Of requests and of agents' reports.
    pub inbox_bytes_per_task: f64,
    /// Of a frame, on average.
    pub frame_bytes: f64,
}

/// The batched case, which fills the stack as far as it goes; around the rate that was found before, if there is one.
pub async fn own(stack: &Stack, found: Option<f64>, size: Size) -> Result<Own, PeersError> {
    let length = Length::brief(found, size);
    let measured = Box::pin(throughput::sustained(stack, &length)).await;
    let figures = measured.map_err(Box::new)?;
    // The smallest size judges no rate.
    let tried = || figures.rates.first().filter(|_| size.smoke);
    let highest = figures.highest().or_else(tried);
    let highest = highest.ok_or(PeersError::NoneSustained)?;
    Ok(Own {
        tasks_per_s: highest.offered_per_s,
        tasks: figures.audited.tasks_accepted,
        ledger_bytes_per_task: highest.ledger_bytes_per_task,
        inbox_bytes_per_task: highest.inbox_bytes_per_task,
        frame_bytes: highest.frame_bytes,
    })
}

/// Rows written since the databases began: the difference of two is what was written between.
#[derive(Debug, Clone, Copy)]
pub struct Written {
    warm: i64,
    facts: u64,
}

/// Rows that are written for a task.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Rows {
    /// In Postgres, by all read models; an update is a row.
    pub warm_per_task: f64,
    /// In ClickHouse, of runs and transfers: the hours of a whole batch are a few rows.
    pub facts_per_task: f64,
}

impl Written {
    pub async fn look(stack: &Stack) -> Result<Self, PeersError> {
        let mut postgres = PgConnectOptions::from_str(&stack.postgres.url)?
            .connect()
            .await?;
        let warm = sqlx::query_scalar(
            "SELECT tup_inserted + tup_updated FROM pg_stat_database WHERE datname = current_database()",
        )
        .fetch_one(&mut postgres)
        .await?;
        postgres.close().await?;
        let facts = stack
            .bill()?
            .query("SELECT assumeNotNull((SELECT count() FROM allocation_intervals) + (SELECT count() FROM node_transfers))")
            .fetch_one()
            .await?;
        Ok(Self { warm, facts })
    }

    pub fn since(self, before: Self, tasks: u64) -> Rows {
        let tasks = tasks.max(1) as f64;
        Rows {
            warm_per_task: (self.warm - before.warm) as f64 / tasks,
            facts_per_task: self.facts.saturating_sub(before.facts) as f64 / tasks,
        }
    }
}
