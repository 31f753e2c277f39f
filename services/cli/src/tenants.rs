//! The tenants, with what each has, as operators may ask by the bus.

use crate::{
    Failure,
    context::Context,
    manifest::did_you_mean,
    nodes::amounts,
    pages::pages,
    print::{Output, Page, Sheet, column, counted, named, number, plain, quantity, wide},
    settings,
    top::share,
};
use clap::Args;
use client::{Client, QueryError, TenantView, TenantsQuery};
use schemas::v1::setting_view::Change;
use std::time::Duration;
use vocab::{ResourceKind, Token};

#[derive(Args)]
pub struct Tenants {
    /// Only those with a name that begins so.
    #[arg(long)]
    name_prefix: Option<String>,
    #[command(flatten)]
    output: Output,
}

const PATIENCE: Duration = Duration::from_secs(2);
/// Tenants of a page, at the most.
const PAGE_MAX: u32 = 1000;

/// Returns the tenants with this prefix, the resources of the cell by kind, and the ledger position that they are of.
pub async fn all(
    client: &Client,
    name_prefix: String,
) -> Result<(Vec<TenantView>, [u64; 3], u64), Failure> {
    let mut capacity = None;
    let ask = async |after, at_lsn| {
        let query = TenantsQuery {
            after,
            limit: PAGE_MAX,
            at_lsn,
            name_prefix: name_prefix.clone(),
        };
        let page = client.tenants(&query).await?;
        capacity = page.capacity;
        Ok::<_, QueryError>((page.tenants, page.next, page.lsn))
    };
    let (found, lsn) = pages(ask).await?;
    Ok((found, amounts(&capacity), lsn))
}

/// Fails for a tenant that nobody has set: there is nothing of it, and an answer without lines would hide a slip of the pen.
pub async fn demand(client: &Client, name: &Token) -> Result<(), Failure> {
    let found = settings::views(client, "tenant", name.as_str()).await;
    // Where that cannot be told, the command's own question is answered or says why not.
    if found.map_or(true, |found| found.iter().any(|it| it.key == name.as_str())) {
        return Ok(());
    }
    // It is of the cell, whoever the client's questions are about.
    let others = all(client, String::new()).await;
    let others = others.map_or_else(|_| Vec::new(), |(tenants, ..)| tenants);
    // Among them are those that have asked for something and were never set.
    let set = others.iter().filter(|it| it.version > 0);
    let meant = did_you_mean(name.as_str(), set.map(|it| it.tenant.as_str()));
    Err(Failure::refused(format!(
        "{name}: there is no such tenant{meant}"
    )))
}

/// Fails for an unknown tenant, about which a database has nothing.
pub async fn check_known(context: &Context, tenant: &str) -> Result<(), Failure> {
    context.asker(Some(tenant)).await.map(drop)
}

/// The teams and namespaces that a tenant has; empty: any may be named. None: the cell does not tell.
pub async fn teams(client: &Client, tenant: &str) -> Option<Vec<String>> {
    // It is told beside something else, which does not wait for it.
    let found = tokio::time::timeout(PATIENCE, settings::views(client, "tenant", tenant));
    let found = found.await.ok()?.ok()?;
    let own = found.into_iter().find(|view| view.key == tenant);
    match own?.change? {
        Change::Tenant(set) => Some(set.teams),
        _ => None,
    }
}

impl Tenants {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.operator_until(None).await?;
        let (tenants, capacity, lsn) = all(&client, self.name_prefix.unwrap_or_default()).await?;
        Page::of(sheet(&tenants, capacity), lsn, "no tenants").print(self.output)
    }
}

pub fn sheet(tenants: &[TenantView], capacity: [u64; 3]) -> Sheet {
    let row = |one: &TenantView| {
        let held = amounts(&one.held);
        let weight = one.weight_milli;
        vec![
            plain(&one.tenant),
            named(&one.queues.join(" ")),
            counted(format!("{}.{:03}", weight / 1000, weight % 1000), weight),
            number(one.requested),
            number(one.waiting),
            number(one.placed),
            number(one.started),
            number(one.stopping),
            quantity(ResourceKind::Cpu, held[0]),
            share(held[0], capacity[0]),
            quantity(ResourceKind::Memory, held[1]),
            share(held[1], capacity[1]),
            quantity(ResourceKind::Gpu, held[2]),
            share(held[2], capacity[2]),
            number(one.version),
        ]
    };
    let columns = vec![
        column("tenant", "tenant"),
        wide("queues", "queues"),
        column("weight_milli", "weight").rank(9),
        wide("requested", "requested"),
        column("waiting", "waiting"),
        wide("placed", "placed"),
        column("started", "started"),
        wide("stopping", "stopping"),
        column("cpu_milli", "cpu"),
        column("cpu_share_ppm", "cpu share").rank(7),
        column("memory_bytes", "memory"),
        column("memory_share_ppm", "memory share").rank(8),
        column("gpu_milli", "gpu"),
        column("gpu_share_ppm", "gpu share").rank(7),
        wide("version", "version"),
    ];
    Sheet::new(columns, 2, tenants.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::NodeAmounts;

    #[test]
    fn each_has_a_row() {
        let one = TenantView {
            tenant: "t".to_owned(),
            weight_milli: 2500,
            started: 4,
            held: Some(NodeAmounts {
                cpu_milli: 1000,
                ..NodeAmounts::default()
            }),
            ..TenantView::default()
        };
        let sheet = sheet(&[one], [4000, 1, 0]);
        let texts: Vec<&str> = sheet.rows[0].iter().map(|it| it.text.as_str()).collect();
        assert_eq!(texts.len(), sheet.columns.len());
        assert_eq!(texts[..3], ["t", "-", "2.500"]);
        assert_eq!(texts[8..10], ["1.000 cores", "25.00 %"]);
        // Of nothing there is no share.
        assert_eq!(texts[13], "-");
    }
}
