//! Who takes the most: nodes, tenants and queues in the order of what is used of them, or by them.

use crate::{
    Failure,
    context::Context,
    explain::percent,
    nodes::{amounts, registered},
    print::{Cell, Output, Page, Sheet, column, earliest, named, number, plain, quantity, valued},
    queues, tenants,
};
use clap::{Args, Subcommand, ValueEnum};
use client::{Client, NodesQuery, TenantsQuery};
use std::cmp::Reverse;
use vocab::ResourceKind;

#[derive(Subcommand)]
pub enum TopCommand {
    /// The fullest nodes first.
    Nodes(Top),
    /// The tenants that hold the most of the cell first.
    Tenants(Top),
    /// The queues that hold the most of the cell first.
    Queues(Top),
}

#[derive(Args)]
pub struct Top {
    /// By their share of this; without it, by the largest of their shares.
    #[arg(long, value_enum)]
    by: Option<By>,
    /// How many at the most.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    Cpu,
    Memory,
    Gpu,
}

/// One of those that are compared.
pub struct Taken {
    name: String,
    /// By kind, as what follows.
    used: [u64; 3],
    of: [u64; 3],
    /// Allocations that take it, and that wait for it; none: nothing waits for one of these.
    allocations: u64,
    waiting: Option<u64>,
}

impl TopCommand {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.operator_until(None).await?;
        let (title, top, (taken, lsn)) = match self {
            Self::Nodes(top) => ("node", top, nodes(&client).await?),
            Self::Tenants(top) => ("tenant", top, of_tenants(&client).await?),
            Self::Queues(top) => ("queue", top, of_queues(&client).await?),
        };
        let sheet = sheet(title, &ranked(taken, top.by, top.limit as usize));
        Page::of(sheet, lsn, &format!("no {title}s")).print(top.output)
    }
}

async fn nodes(client: &Client) -> Result<(Vec<Taken>, u64), Failure> {
    let (nodes, lsn) = registered(client, NodesQuery::default()).await?;
    let taken = nodes.into_iter().map(|node| Taken {
        used: amounts(&node.used),
        of: amounts(&node.allocatable),
        allocations: node.allocations,
        waiting: None,
        name: node.node,
    });
    Ok((taken.collect(), lsn))
}

async fn of_tenants(client: &Client) -> Result<(Vec<Taken>, u64), Failure> {
    let (tenants, capacity, lsn) = tenants::all(client, String::new()).await?;
    let taken = tenants.into_iter().map(|one| Taken {
        used: amounts(&one.held),
        of: capacity,
        allocations: one.placed + one.started + one.stopping,
        waiting: Some(one.requested + one.waiting),
        name: one.tenant,
    });
    Ok((taken.collect(), lsn))
}

async fn of_queues(client: &Client) -> Result<(Vec<Taken>, u64), Failure> {
    // For what the cell has.
    let query = TenantsQuery {
        limit: 1,
        ..TenantsQuery::default()
    };
    let tenants = client.tenants(&query).await?;
    let of = amounts(&tenants.capacity);
    let (queues, lsn) = queues::all(client).await?;
    let taken = queues.into_iter().map(|one| Taken {
        used: [
            one.held_cpu_milli,
            one.held_memory_bytes,
            one.held_gpu_milli,
        ],
        of,
        allocations: one.held,
        waiting: Some(one.waiting.iter().map(|waits| waits.allocations).sum()),
        name: one.queue,
    });
    Ok((taken.collect(), earliest([lsn, tenants.lsn])))
}

/// In millionths; none: of nothing.
fn ppm(used: u64, of: u64) -> Option<u32> {
    let ppm = (u128::from(used) * 1_000_000).checked_div(of.into())?;
    Some(u32::try_from(ppm).unwrap_or(u32::MAX))
}

pub fn share(used: u64, of: u64) -> Cell {
    match ppm(used, of) {
        Some(ppm) => valued(percent(ppm), ppm),
        None => named(""),
    }
}

/// The largest shares first, and of equal ones by name.
fn ranked(mut taken: Vec<Taken>, by: Option<By>, limit: usize) -> Vec<Taken> {
    let kinds = match by {
        None => 0..3,
        Some(by) => by as usize..by as usize + 1,
    };
    let largest = |one: &Taken| {
        let shares = kinds.clone().map(|kind| ppm(one.used[kind], one.of[kind]));
        shares.flatten().max()
    };
    taken.sort_by(|a, b| (Reverse(largest(a)), &a.name).cmp(&(Reverse(largest(b)), &b.name)));
    taken.truncate(limit);
    taken
}

pub fn sheet(title: &'static str, taken: &[Taken]) -> Sheet {
    let row = |one: &Taken| {
        let mut row = vec![plain(&one.name)];
        for (kind, (used, of)) in ResourceKind::ALL
            .into_iter()
            .zip(one.used.into_iter().zip(one.of))
        {
            row.extend([quantity(kind, used), share(used, of)]);
        }
        row.push(number(one.allocations));
        row.extend(one.waiting.map(number));
        row
    };
    let mut columns = vec![
        column(title, title),
        column("cpu_milli", "cpu").rank(7),
        column("cpu_share_ppm", "cpu share"),
        column("memory_bytes", "memory").rank(7),
        column("memory_share_ppm", "memory share"),
        column("gpu_milli", "gpu").rank(7),
        column("gpu_share_ppm", "gpu share"),
        column("allocations", "allocations").rank(6),
    ];
    if taken.first().is_some_and(|one| one.waiting.is_some()) {
        columns.push(column("waiting", "waiting"));
    }
    Sheet::new(columns, 1, taken.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(name: &str, used: [u64; 3], of: [u64; 3]) -> Taken {
        Taken {
            name: name.to_owned(),
            used,
            of,
            allocations: 1,
            waiting: None,
        }
    }

    #[test]
    fn the_largest_share_is_first() {
        let check = |by, limit, expected: &str| {
            let all = vec![
                taken("idle", [0, 0, 0], [10, 10, 10]),
                taken("cpu", [9, 0, 0], [10, 10, 10]),
                taken("gpu", [1, 1, 1000], [10, 10, 1000]),
                taken("lost", [5, 5, 0], [0, 0, 0]),
                taken("also-cpu", [9, 1, 0], [10, 10, 0]),
            ];
            let names: Vec<String> = ranked(all, by, limit)
                .into_iter()
                .map(|it| it.name)
                .collect();
            assert_eq!(names.join(" "), expected, "{by:?}");
        };
        check(None, 9, "gpu also-cpu cpu idle lost");
        check(Some(By::Cpu), 9, "also-cpu cpu gpu idle lost");
        check(Some(By::Memory), 2, "also-cpu gpu");
        check(Some(By::Gpu), 1, "gpu");
    }

    #[test]
    fn shares_are_of_what_there_is() {
        assert_eq!(ppm(1, 0), None);
        assert_eq!(ppm(1, 3), Some(333_333));
        assert_eq!(ppm(u64::MAX, 1), Some(u32::MAX));
        let sheet = sheet("node", &[taken("n", [1000, 1 << 30, 500], [4000, 0, 1000])]);
        let texts: Vec<&str> = sheet.rows[0].iter().map(|it| it.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "n",
                "1.000 cores",
                "25.00 %",
                "1.000 GiB",
                "-",
                "0.500 GPUs",
                "50.00 %",
                "1"
            ]
        );
        assert_eq!(texts.len(), sheet.columns.len());
    }
}
