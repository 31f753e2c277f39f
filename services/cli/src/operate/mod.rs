//! What operators set.

mod account;
mod nodes;
mod policy;
mod queue;

pub use account::{QuotaCommand, Rate, Tenant};
pub use nodes::{Cordon, Reserve, Uncordon, Unreserve};
pub use policy::{Policy, PriorityClass};
pub use queue::QueueSet;

use clap::Args;
use schemas::v1;
use vocab::PlacementPolicy;

#[derive(Args)]
pub struct Expected {
    /// Refuse if the version is another one.
    #[arg(long)]
    expected_version: Option<u64>,
}

fn told(title: &str, applied: v1::Applied) {
    println!("{title}: version {}", applied.version);
}

/// The contract's number of a policy's name.
fn placement(text: &str) -> Result<i32, String> {
    let policy = PlacementPolicy::parse(&text.replace('-', "_"));
    let number = policy.map(|policy| policy as i32);
    number.ok_or_else(|| {
        format!(
            "{text}: write {}",
            names(PlacementPolicy::ALL.map(PlacementPolicy::name))
        )
    })
}

fn names<const N: usize>(names: [&str; N]) -> String {
    names.map(|name| name.replace('_', "-")).join(", ")
}
