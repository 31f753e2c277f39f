//! What each tenant owes for a month, up to now if it is not over: all of them for finance, or one as the tenant itself
//! may ask by the bus.

use super::{hours, month, named, table};
use crate::{Failure, amount, stack};
use analytics::store::InvoiceLine;
use chassis::stack::Stack;
use clap::Args;
use vocab::{Millis, Month};

#[derive(Args)]
pub struct Bill {
    /// As this tenant may ask itself.
    #[arg(long)]
    tenant: Option<String>,
    /// 2026-11; without it, this month.
    #[arg(long, value_parser = month)]
    month: Option<Month>,
}

impl Bill {
    pub async fn run(self, stack: &Stack) -> Result<(), Failure> {
        let now = Month::of(Millis(stack.clock().now_ms()));
        let month = self.month.unwrap_or(now);
        match self.tenant {
            Some(tenant) => own(stack, &tenant, month).await,
            None => all(stack, month).await,
        }
    }
}

async fn own(stack: &Stack, tenant: &str, month: Month) -> Result<(), Failure> {
    let client = stack::tenant(stack, tenant).await?;
    let bill = client.bill(month.0, 0).await?;
    let lines = bill.lines.iter().map(|line| InvoiceLine {
        tenant: tenant.to_owned(),
        team: line.team.clone(),
        resource: line.resource.clone(),
        micro_per_unit_hour: line.micro_per_unit_hour,
        has_rate: !line.unrated,
        is_correction: line.correction,
        quantity: line.quantity.parse().unwrap_or_default(),
        amount_micro: line.amount_micro.into(),
    });
    let lines: Vec<InvoiceLine> = lines.collect();
    print(&lines, month, bill.closed, &bill.currency);
    if !bill.closed {
        println!("up to {}", amount::moment(Millis(bill.through_ms)));
    }
    Ok(())
}

async fn all(stack: &Stack, month: Month) -> Result<(), Failure> {
    let store = stack::usage(stack)?;
    let closed = store.is_closed(month).await?;
    let currency = store.currency().await?;
    let lines = store.bill(None, month).await?;
    print(&lines, month, closed, &currency);
    if !closed {
        let through = store.known_through().await?;
        println!("up to {}", amount::moment(through));
    }
    Ok(())
}

/// Lines and sums by tenant.
pub fn print(lines: &[InvoiceLine], month: Month, closed: bool, currency: &str) {
    let state = if closed { "closed" } else { "open" };
    println!("{month}, {state}");
    if lines.is_empty() {
        println!("nothing was used");
        return;
    }
    let mut rows = Vec::new();
    let amount = |micro: i128| format!("{} {currency}", amount::money(micro));
    for of_tenant in lines.chunk_by(|a, b| a.tenant == b.tenant) {
        for line in of_tenant {
            let remark = match (line.is_correction, line.has_rate) {
                (true, _) => "correction",
                (false, false) => "no rate",
                (false, true) => "",
            };
            rows.push(vec![
                line.tenant.clone(),
                named(&line.team),
                line.resource.clone(),
                remark.to_owned(),
                hours(&line.resource, line.quantity),
                amount::money(line.micro_per_unit_hour.into()),
                amount(line.amount_micro),
            ]);
        }
        let sum = of_tenant.iter().map(|line| line.amount_micro).sum();
        let tenant = of_tenant
            .first()
            .map_or_else(String::new, |line| line.tenant.clone());
        let mut total = vec![tenant, String::new(), "total".to_owned()];
        total.resize(6, String::new());
        total.push(amount(sum));
        rows.push(total);
    }
    let head = ["tenant", "team", "resource", "", "used", "price", "amount"];
    println!("{}", table(&head, rows, 4));
}
