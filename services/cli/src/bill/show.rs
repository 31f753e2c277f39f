//! What each tenant owes for a month, up to now if it is not over: one tenant, or to operators all of them.

use super::{in_currency, money, month, quantity, used};
use crate::{
    Failure, amount,
    context::{Context, Whose},
    print::{
        Cell, Column, Output, Page, Sheet, column, counted, exact_number, exactly, named, plain,
    },
};
use clap::Args;
use client::{BillLine, BillQuery, Client};
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
    /// Position of the ledger that all pages include.
    lsn: u64,
}

impl OfMonth {
    /// By the bus, as whoever asks may.
    pub async fn ask(client: &Client, month: Month) -> Result<Self, Failure> {
        let mut query = BillQuery {
            month: month.0,
            ..BillQuery::default()
        };
        let (mut lines, mut lsn) = (Vec::new(), u64::MAX);
        loop {
            let page = client.bill(&query).await?;
            lines.extend(page.lines);
            lsn = lsn.min(page.lsn);
            query.after = page.next;
            if query.after.is_empty() {
                return Ok(Self {
                    lines,
                    month,
                    through: (!page.closed).then_some(Millis(page.through_ms)),
                    currency: page.currency,
                    lsn,
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
        let page = Page::list(lines.records(), self.lsn)
            .with("month", self.month.to_string())
            .with("closed", self.through.is_none())
            .with("through_ms", self.through.map(|through| through.0))
            .with("currency", &*self.currency)
            .with("total_micro", exact_number(sum(&self.lines)))
            .text(format!("{}, {state}", self.month))
            .rows(in_currency(lines, &self.currency));
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

    /// Returns the lines with the sum of each tenant below its own, and the sum of several tenants at the end.
    fn with_sums(&self) -> Sheet {
        let mut rows = Vec::new();
        let tenants = self.lines.chunk_by(|a, b| a.tenant == b.tenant);
        for of_tenant in tenants.clone() {
            rows.extend(of_tenant.iter().map(|line| self.row(line)));
            let tenant = of_tenant.first().map_or("", |line| &line.tenant);
            rows.push(self.sum(tenant, of_tenant));
        }
        Sheet {
            total: (tenants.count() > 1).then(|| self.sum("all", &self.lines)),
            ..Sheet::new(columns(), 4, rows)
        }
    }

    fn sum(&self, whose: &str, lines: &[BillLine]) -> Vec<Cell> {
        let mut cells = vec![plain(whose), plain(""), plain("total")];
        cells.resize(6, plain(""));
        cells.push(self.amount(sum(lines)));
        cells
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

fn sum(lines: &[BillLine]) -> i128 {
    lines.iter().map(|line| i128::from(line.amount_micro)).sum()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::print::Form;

    fn of(tenants: &[&str]) -> OfMonth {
        let line = |(tenant, micro)| BillLine {
            tenant,
            resource: "cpu".to_owned(),
            quantity: "3600000000".to_owned(),
            amount_micro: micro,
            ..BillLine::default()
        };
        let tenants = tenants.iter().map(|tenant| (*tenant).to_owned());
        OfMonth {
            lines: tenants.zip(1_000_000..).map(line).collect(),
            month: Month(202_611),
            through: None,
            currency: "EUR".to_owned(),
            lsn: 7,
        }
    }

    /// Returns the rows with totals.
    fn sums(bill: &OfMonth) -> Vec<String> {
        let text = bill.page().written(Form::Table).unwrap();
        let sums = text.lines().filter(|line| line.contains(" total "));
        let words = sums.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        words.collect()
    }

    #[test]
    fn a_bill_has_its_total() {
        assert_eq!(sums(&of(&["a"])), ["a total 1.000000 EUR"]);
        let several = of(&["a", "a", "b"]);
        let expected = [
            "a total 2.000001 EUR",
            "b total 1.000002 EUR",
            "all total 3.000003 EUR",
        ];
        assert_eq!(sums(&several), expected);
        let json = several.page().written(Form::Json).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["total_micro"], 3_000_003);
        assert_eq!(json["as_of"], 7);
        let csv = of(&["a"]).page().written(Form::Csv).unwrap();
        let names =
            "tenant,team,resource,remark,quantity,micro_per_unit_hour,amount_micro,currency";
        assert_eq!(csv, format!("{names}\na,,cpu,,3600000000,0,1000000,EUR\n"));
        let nothing = of(&[]).page().written(Form::Csv).unwrap();
        assert_eq!(nothing, format!("{names}\n"));
    }
}
