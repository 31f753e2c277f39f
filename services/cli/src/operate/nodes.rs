//! Nodes that are kept free: of anything new, or for one queue.

use super::{Expected, told};
use crate::{Failure, amount, stack, submit::requirement};
use chassis::stack::Stack;
use clap::Args;
use client::Operation;
use schemas::v1;

/// What runs on the node stays; nothing new comes.
#[derive(Args)]
pub struct Cordon {
    node: String,
    #[command(flatten)]
    expected: Expected,
}

#[derive(Args)]
pub struct Uncordon {
    node: String,
    #[command(flatten)]
    expected: Expected,
}

impl Cordon {
    pub async fn run(self, stack: &Stack) -> Result<(), Failure> {
        set(stack, self.node, true, &self.expected).await
    }
}

impl Uncordon {
    pub async fn run(self, stack: &Stack) -> Result<(), Failure> {
        set(stack, self.node, false, &self.expected).await
    }
}

async fn set(
    stack: &Stack,
    node: String,
    cordoned: bool,
    expected: &Expected,
) -> Result<(), Failure> {
    let title = format!("{} {node}", if cordoned { "cordon" } else { "uncordon" });
    let change = v1::SetCordon {
        node,
        cordoned,
        expected_version: expected.expected_version,
    };
    let operator = stack::operator(stack).await?;
    told(
        &title,
        operator.set_cordon(change, Operation::fresh_id()).await?,
    );
    Ok(())
}

#[derive(Args)]
pub struct Reserve {
    reservation: String,
    /// Whose the nodes are meanwhile.
    #[arg(long)]
    queue: String,
    /// From this moment, as 2026-01-31T08:00:00Z; without it at once.
    #[arg(long, value_parser = amount::moment_ms)]
    from: Option<i64>,
    /// Up to this moment.
    #[arg(long, value_parser = amount::moment_ms)]
    until: i64,
    /// How many whole nodes.
    #[arg(long)]
    nodes: i64,
    /// What the nodes' labels must be like: KEY=V1,V2 KEY!=V1,V2 KEY !KEY; may be repeated, and all must hold.
    #[arg(long = "label", value_name = "SELECTOR", value_parser = requirement)]
    selector: Vec<v1::Requirement>,
    #[command(flatten)]
    expected: Expected,
}

#[derive(Args)]
pub struct Unreserve {
    reservation: String,
    #[command(flatten)]
    expected: Expected,
}

impl Reserve {
    pub async fn run(self, stack: &Stack) -> Result<(), Failure> {
        let wanted = v1::ReservationRequest {
            queue: self.queue,
            from_ms: self.from.unwrap_or(0),
            until_ms: self.until,
            nodes: self.nodes,
            selector: self.selector,
        };
        reserve(stack, self.reservation, Some(wanted), &self.expected).await
    }
}

impl Unreserve {
    pub async fn run(self, stack: &Stack) -> Result<(), Failure> {
        reserve(stack, self.reservation, None, &self.expected).await
    }
}

async fn reserve(
    stack: &Stack,
    reservation: String,
    wanted: Option<v1::ReservationRequest>,
    expected: &Expected,
) -> Result<(), Failure> {
    let title = format!("reservation {reservation}");
    let change = v1::SetReservation {
        reservation,
        wanted,
        expected_version: expected.expected_version,
    };
    let operator = stack::operator(stack).await?;
    let id = Operation::fresh_id();
    told(&title, operator.set_reservation(change, id).await?);
    Ok(())
}
