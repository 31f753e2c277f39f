//! What each tenant owes for a month, up to now if it is not over: all of them for finance, or one as the tenant itself
//! may ask by the bus.

use super::{money, month, used};
use crate::{
    Failure, amount,
    context::Context,
    print::{Cell, Column, Output, Page, Sheet, column, exactly, named, plain},
};
use analytics::store::{InvoiceLine, Store};
use clap::Args;
use serde_json::json;
use vocab::{Millis, Month, Token};

#[derive(Args)]
pub struct Bill {
    /// As this tenant may ask itself, by the bus; without it as the context's, and as finance reads it where that is the
    /// operator's.
    #[arg(long)]
    tenant: Option<String>,
    /// 2026-11; without it, this month.
    #[arg(long, value_parser = month)]
    month: Option<Month>,
    #[command(flatten)]
    output: Output,
}

impl Bill {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let now = Month::of(Millis(context.clock().now_ms()));
        let month = self.month.unwrap_or(now);
        let bill = match context.tenant_of(self.tenant.as_deref()) {
            Some(tenant) => own(context, &tenant, month).await?,
            None => OfMonth::read(&context.usage()?, None, month).await?,
        };
        bill.page().print(self.output)
    }
}

async fn own(context: &Context, tenant: &str, month: Month) -> Result<OfMonth, Failure> {
    let client = context.tenant(Some(tenant)).await?;
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
    Ok(OfMonth {
        lines: lines.collect(),
        month,
        through: (!bill.closed).then_some(Millis(bill.through_ms)),
        currency: bill.currency,
    })
}

/// Lines and sums by tenant.
pub struct OfMonth {
    lines: Vec<InvoiceLine>,
    month: Month,
    /// Up to when what runs is in it; none: it is closed.
    through: Option<Millis>,
    currency: String,
}

impl OfMonth {
    /// Of all tenants, or of one.
    pub async fn read(
        store: &Store,
        tenant: Option<&Token>,
        month: Month,
    ) -> Result<Self, Failure> {
        let known = store.known().await?;
        Ok(Self {
            lines: store.bill(&known, tenant, month).await?,
            month,
            through: (!known.is_closed(month)).then_some(known.through),
            currency: store.currency().await?,
        })
    }

    pub fn page(&self) -> Page {
        let state = if self.through.is_none() {
            "closed"
        } else {
            "open"
        };
        let lines = self.lines_alone();
        let value = json!({
            "month": self.month.to_string(),
            "closed": self.through.is_none(),
            "through_ms": self.through.map(|through| through.0),
            "currency": self.currency,
            "lines": lines.records(),
        });
        let page = Page::new(value)
            .text(format!("{}, {state}", self.month))
            .rows(lines);
        let page = match self.lines.is_empty() {
            true => page.text("nothing was used"),
            false => page.table(self.with_sums()),
        };
        match self.through {
            Some(through) => page.text(format!("up to {}", amount::moment(through))),
            None => page,
        }
    }

    fn lines_alone(&self) -> Sheet {
        Sheet::new(
            columns(),
            4,
            self.lines.iter().map(|line| self.row(line)).collect(),
        )
    }

    /// With the sum of each tenant below its lines.
    fn with_sums(&self) -> Sheet {
        let mut rows = Vec::new();
        for of_tenant in self.lines.chunk_by(|a, b| a.tenant == b.tenant) {
            rows.extend(of_tenant.iter().map(|line| self.row(line)));
            let sum = of_tenant.iter().map(|line| line.amount_micro).sum();
            let tenant = of_tenant.first().map_or("", |line| &line.tenant);
            let mut total = vec![plain(tenant), plain(""), plain("total")];
            total.resize(6, plain(""));
            total.push(self.amount(sum));
            rows.push(total);
        }
        Sheet::new(columns(), 4, rows)
    }

    fn row(&self, line: &InvoiceLine) -> Vec<Cell> {
        let remark = match (line.is_correction, line.has_rate) {
            (true, _) => "correction",
            (false, false) => "no rate",
            (false, true) => "",
        };
        vec![
            plain(&line.tenant),
            named(&line.team),
            plain(&line.resource),
            plain(remark),
            used(&line.resource, line.quantity),
            money(line.micro_per_unit_hour.into()),
            self.amount(line.amount_micro),
        ]
    }

    fn amount(&self, micro: i128) -> Cell {
        exactly(format!("{} {}", amount::money(micro), self.currency), micro)
    }
}

fn columns() -> Vec<Column> {
    vec![
        column("tenant", "tenant"),
        column("team", "team"),
        column("resource", "resource"),
        column("remark", ""),
        column("quantity", "used"),
        column("micro_per_unit_hour", "price"),
        column("amount_micro", "amount"),
    ]
}
