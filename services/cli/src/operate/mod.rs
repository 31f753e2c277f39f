//! What operators set.

mod cordon;
mod describe_node;
mod nodes;
mod patch;
mod policy;
mod queue;
mod quota;
mod taint;
mod tenant;

pub use cordon::{Cordon, Drain, OneNode, Uncordon};
pub use describe_node::DescribeNode;
pub use nodes::{NodeCommand, Reserve, Unreserve};
pub use patch::Flags;
pub use policy::{Policy, PriorityClass};
pub use queue::QueueSet;
pub use quota::{QuotaBudget, QuotaSet};
pub use taint::{Taint, taint, taint_text};
pub use tenant::Tenant;

use crate::{
    Failure,
    print::{Fields, Output, Page, Sheet, column, number, plain},
    sending::Sending,
};
use clap::Args;
use schemas::v1;
use vocab::PlacementPolicy;

/// How a setting is changed.
#[derive(Args)]
pub struct Expected {
    /// Refuse if the version is another one.
    #[arg(long)]
    pub expected_version: Option<u64>,
    #[command(flatten)]
    pub sending: Sending,
    #[command(flatten)]
    pub output: Output,
}

/// Says which version a setting has now.
pub fn told(title: &str, applied: &v1::Applied, output: Output) -> Result<(), Failure> {
    let new = if applied.version == 1 { ", new" } else { "" };
    let line = line(title, applied.version) + new;
    Page::said(line, fields(title, applied)).print(output)
}

fn line(title: &str, version: u64) -> String {
    format!("{title}: version {version}")
}

fn fields(title: &str, applied: &v1::Applied) -> Fields {
    Fields::default().add("set", "set", plain(title)).add(
        "version",
        "version",
        number(applied.version),
    )
}

/// What is set, and the versions.
fn set(all: Vec<(String, u64)>) -> Sheet {
    let columns = vec![column("set", "set"), column("version", "version")];
    let rows = all.into_iter();
    let rows = rows.map(|(title, version)| vec![plain(title), number(version)]);
    Sheet::new(columns, 2, rows.collect())
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

/// The contract's number of a name, which people write with hyphens.
fn named(all: &[(&str, i32)], text: &str) -> Result<i32, String> {
    let name = text.replace('-', "_");
    let found = all.iter().find(|(known, _)| *known == name);
    found.map(|(_, number)| *number).ok_or_else(|| {
        let known: Vec<_> = all.iter().map(|(name, _)| name.replace('_', "-")).collect();
        format!("{text}: write {}", known.join(", "))
    })
}
