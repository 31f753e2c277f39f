//! What each tenant owes for a month, up to now if it is not over: one tenant, or to operators all of them.

use super::{money, month, quantity, used};
use crate::{
    Failure, amount,
    context::{Context, Whose},
    print::{Cell, Column, Output, Page, Sheet, column, counted, exactly, named, plain},
};
use clap::Args;
use client::{BillLine, BillQuery, Client};
use serde_json::json;
use vocab::{Millis, Month};

#[derive(Args)]
pub struct Bill {
    #[command(flatten)]
    whose: Whose,
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
        let client = context.asker(self.whose.tenant.as_deref()).await?;
        OfMonth::ask(&client, month)
            .await?
            .page()
            .print(self.output)
    }
}

/// Lines and sums by tenant.
pub struct OfMonth {
    lines: Vec<BillLine>,
    month: Month,
    /// Up to when what runs is in it; none: it is closed.
    through: Option<Millis>,
    currency: String,
}

impl OfMonth {
    /// By the bus, as whoever asks may.
    pub async fn ask(client: &Client, month: Month) -> Result<Self, Failure> {
        let mut query = BillQuery {
            month: month.0,
            ..BillQuery::default()
        };
        let mut lines = Vec::new();
        loop {
            let page = client.bill(&query).await?;
            lines.extend(page.lines);
            query.after = page.next;
            if query.after.is_empty() {
                return Ok(Self {
                    lines,
                    month,
                    through: (!page.closed).then_some(Millis(page.through_ms)),
                    currency: page.currency,
                });
            }
            query.at_lsn = page.lsn;
        }
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
            "items": lines.records(),
            "as_of": null,
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
            let sum = of_tenant
                .iter()
                .map(|line| i128::from(line.amount_micro))
                .sum();
            let tenant = of_tenant.first().map_or("", |line| &line.tenant);
            let mut total = vec![plain(tenant), plain(""), plain("total")];
            total.resize(6, plain(""));
            total.push(self.amount(sum));
            rows.push(total);
        }
        Sheet::new(columns(), 4, rows)
    }

    fn row(&self, line: &BillLine) -> Vec<Cell> {
        let remark = match (line.correction, line.unrated) {
            (true, _) => "correction",
            (false, true) => "no rate",
            (false, false) => "",
        };
        vec![
            plain(&line.tenant),
            named(&line.team),
            plain(&line.resource),
            exactly(remark.to_owned(), remark),
            used(&line.resource, quantity(&line.quantity)),
            money(line.micro_per_unit_hour.into()),
            self.amount(line.amount_micro.into()),
        ]
    }

    fn amount(&self, micro: i128) -> Cell {
        counted(format!("{} {}", amount::money(micro), self.currency), micro)
    }
}

fn columns() -> Vec<Column> {
    vec![
        column("tenant", "tenant"),
        column("team", "team"),
        column("resource", "resource"),
        column("remark", "").rank(8),
        column("quantity", "used").rank(7),
        column("micro_per_unit_hour", "price").rank(9),
        column("amount_micro", "amount"),
    ]
}
