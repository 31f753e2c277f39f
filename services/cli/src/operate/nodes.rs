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
        set("cordon", self.request(), stack).await
    }

    pub fn request(self) -> v1::SetCordon {
        v1::SetCordon {
            node: self.node,
            cordoned: true,
            expected_version: self.expected.expected_version,
        }
    }
}

impl Uncordon {
    pub async fn run(self, stack: &Stack) -> Result<(), Failure> {
        set("uncordon", self.request(), stack).await
    }

    pub fn request(self) -> v1::SetCordon {
        v1::SetCordon {
            node: self.node,
            cordoned: false,
            expected_version: self.expected.expected_version,
        }
    }
}

async fn set(verb: &str, change: v1::SetCordon, stack: &Stack) -> Result<(), Failure> {
    let title = format!("{verb} {}", change.node);
    let operator = stack::operator(stack).await?;
    let id = Operation::fresh_id();
    told(&title, operator.set_cordon(change, id).await?);
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
        reserve(self.request(), stack).await
    }

    pub fn request(self) -> v1::SetReservation {
        v1::SetReservation {
            reservation: self.reservation,
            wanted: Some(v1::ReservationRequest {
                queue: self.queue,
                from_ms: self.from.unwrap_or(0),
                until_ms: self.until,
                nodes: self.nodes,
                selector: self.selector,
            }),
            expected_version: self.expected.expected_version,
        }
    }
}

impl Unreserve {
    pub async fn run(self, stack: &Stack) -> Result<(), Failure> {
        reserve(self.request(), stack).await
    }

    pub fn request(self) -> v1::SetReservation {
        v1::SetReservation {
            reservation: self.reservation,
            wanted: None,
            expected_version: self.expected.expected_version,
        }
    }
}

async fn reserve(change: v1::SetReservation, stack: &Stack) -> Result<(), Failure> {
    let title = format!("reservation {}", change.reservation);
    let operator = stack::operator(stack).await?;
    let id = Operation::fresh_id();
    told(&title, operator.set_reservation(change, id).await?);
    Ok(())
}
