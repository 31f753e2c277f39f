//! What resources cost.

use super::{currency, in_currency, money};
use crate::{
    Failure, amount,
    context::Context,
    operate::{Expected, told},
    pages::pages,
    print::{
        Cell, Output, Page, Sheet, column, exactly, moment, named, number, plain, valued, wide,
    },
};
use clap::{Args, Subcommand};
use client::{Client, QueryError, RatesQuery, SetRate, SettingView};
use schemas::v1::setting_view::Change;
use serde_json::Value;

#[derive(Subcommand)]
pub enum RatesCommand {
    /// Say what a resource costs from a moment on.
    Set(Set),
    /// Take a rate back: from a moment on the rates of wider scopes hold, or none. What was used before keeps its price.
    Delete(Delete),
    /// Show the rates that were set: since when they count, when they were set, and by which operation.
    List(List),
}

/// What a rate is for.
#[derive(Args)]
struct Of {
    /// cpu, memory, gpu or gpu:<model>.
    resource: String,
    /// For this tenant's use alone. Of the rates that fit, one for the tenant goes before one for all; then in the same way
    /// one for the priority class, the pool, the cluster, and the GPU model.
    #[arg(long, default_value = "")]
    tenant: String,
    /// For use of this priority class alone.
    #[arg(long, default_value = "")]
    priority_class: String,
    /// For use of nodes with this label pool alone.
    #[arg(long, default_value = "")]
    pool: String,
    /// For use of nodes with this label cluster alone.
    #[arg(long, default_value = "")]
    cluster: String,
}

impl Of {
    /// Returns the change without a price and a moment.
    fn change(self) -> SetRate {
        SetRate {
            resource: self.resource,
            tenant: self.tenant,
            priority_class: self.priority_class,
            pool: self.pool,
            cluster: self.cluster,
            ..SetRate::default()
        }
    }
}

#[derive(Args)]
pub struct Set {
    #[command(flatten)]
    of: Of,
    /// In the currency, per core-hour, GiB-hour or GPU-hour, to the millionth: 3.5.
    #[arg(value_parser = price)]
    price: i64,
    /// First moment of the price: 2026-12-01, 2026-12-01T08:30:00Z, or a time from now as in 2h. Default: as soon as it is accepted,
    /// which only the first rate of a resource and scope can be.
    #[arg(long, value_name = "MOMENT", value_parser = amount::to_come)]
    from: Option<amount::ToCome>,
    /// Price use of the past, too, from the beginning of time on, and so change lines that were billed by a wider rate or at 0: for the
    /// first rate of a resource and scope, while no month is closed.
    #[arg(long, conflicts_with = "from")]
    correct_past: bool,
    #[command(flatten)]
    expected: Expected,
}

#[derive(Args)]
pub struct Delete {
    #[command(flatten)]
    of: Of,
    /// From this moment on: 2026-12-01, 2026-12-01T08:30:00Z, or so long from now as in 2h. Without it as soon as it is accepted.
    /// A price that was to come behind that moment is taken back, too.
    #[arg(long, value_name = "MOMENT", value_parser = amount::to_come)]
    from: Option<amount::ToCome>,
    #[command(flatten)]
    expected: Expected,
}

fn price(text: &str) -> Result<i64, String> {
    amount::micro(text).ok_or_else(|| {
        format!("{text}: write a price as 3.5, with six digits behind the point at most")
    })
}

impl RatesCommand {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Self::Set(set) => set.run(context).await,
            Self::Delete(delete) => delete.run(context).await,
            Self::List(list) => list.run(context).await,
        }
    }
}

impl Set {
    async fn run(self, context: &Context) -> Result<(), Failure> {
        let change = SetRate {
            micro_per_unit_hour: self.price,
            correction: self.correct_past,
            ..self.of.change()
        };
        send(change, self.from, self.expected, context).await
    }
}

impl Delete {
    async fn run(self, context: &Context) -> Result<(), Failure> {
        let change = SetRate {
            withdrawn: true,
            ..self.of.change()
        };
        send(change, self.from, self.expected, context).await
    }
}

async fn send(
    change: SetRate,
    from: Option<amount::ToCome>,
    Expected {
        expected_version,
        sending,
        output,
    }: Expected,
    context: &Context,
) -> Result<(), Failure> {
    let title = format!("rate of {}", change.resource);
    let now_ms = context.clock().now_ms();
    let change = SetRate {
        effective_from_ms: from.map_or(0, |from| from.ms(now_ms)),
        expected_version,
        ..change
    };
    let operator = sending.operator(context).await?;
    let applied = operator.set_rate(change, sending.id()).await?;
    told(&title, &applied, output)
}

#[derive(Args)]
pub struct List {
    /// Only rates of this resource: cpu, memory, gpu (with those of models) or gpu:<model>.
    #[arg(long)]
    resource: Option<String>,
    #[command(flatten)]
    output: Output,
}

/// Rates of one question.
const PAGE_MAX: u32 = 1000;

impl List {
    async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.operator_until(None).await?;
        let (views, lsn) = ask(&client, self.resource.unwrap_or_default()).await?;
        let sheet = sheet(&views, &currency(&client, self.output).await);
        Page::of(sheet, lsn, "no rates: all use is free").print(self.output)
    }
}

/// Returns all rates of a resource, and the ledger position that they are of.
async fn ask(client: &Client, resource: String) -> Result<(Vec<SettingView>, u64), QueryError> {
    pages(async |after, at_lsn| {
        let query = RatesQuery {
            resource: resource.clone(),
            limit: PAGE_MAX,
            after,
            at_lsn,
        };
        let page = client.rates(&query).await?;
        Ok((page.rates, page.next, page.lsn))
    })
    .await
}

/// Each resource and scope by the moment from which on its rates count.
fn sheet(views: &[SettingView], currency: &str) -> Sheet {
    let rates = views.iter().filter_map(|view| match &view.change {
        Some(Change::Rate(rate)) => Some((view, rate)),
        _ => None,
    });
    let mut rates: Vec<_> = rates.collect();
    rates.sort_by_key(|(view, rate)| (&view.key, rate.effective_from_ms, view.version));
    let columns = vec![
        column("resource", "resource"),
        column("tenant", "tenant"),
        column("priority_class", "priority class"),
        column("pool", "pool"),
        column("cluster", "cluster"),
        column("version", "version"),
        column("from_ms", "from"),
        column("set_at_ms", "set at"),
        column("operation_id", "operation"),
        wide("by", "by"),
        column("micro_per_unit_hour", "price per unit and hour"),
    ];
    let rows = rates.into_iter().map(|(view, rate)| row(view, rate));
    in_currency(Sheet::new(columns, 10, rows.collect()), currency)
}

fn row(view: &SettingView, rate: &SetRate) -> Vec<Cell> {
    let scope = |name: &str| match name {
        "" => exactly("all".to_owned(), ""),
        name => plain(name),
    };
    vec![
        plain(&rate.resource),
        scope(&rate.tenant),
        scope(&rate.priority_class),
        scope(&rate.pool),
        scope(&rate.cluster),
        number(view.version),
        match rate.effective_from_ms {
            0 => valued("the beginning".to_owned(), 0),
            ms => moment(ms),
        },
        moment(view.set_at_ms),
        plain(&view.operation_id),
        named(&view.by),
        match rate.withdrawn {
            true => valued("taken back".to_owned(), Value::Null),
            false => money(rate.micro_per_unit_hour.into()),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::print::Form;

    #[test]
    fn rates_of_a_key_stand_in_the_order_in_which_they_count() {
        let of = |key: &str, version, from, tenant: &str, price: Option<i64>| SettingView {
            key: key.to_owned(),
            version,
            set_at_ms: 1000,
            operation_id: format!("op-{version}"),
            change: Some(Change::Rate(SetRate {
                resource: "gpu".to_owned(),
                micro_per_unit_hour: price.unwrap_or(0),
                withdrawn: price.is_none(),
                effective_from_ms: from,
                tenant: tenant.to_owned(),
                ..SetRate::default()
            })),
            ..SettingView::default()
        };
        let view =
            |key: &str, version, from, tenant| of(key, version, from, tenant, Some(1_500_000));
        let views = [
            view("gpu", 1, 0, ""),
            view("gpu", 2, 9000, ""),
            view("gpu", 3, 5000, ""),
            of("gpu", 4, 11_000, "", None),
            view("gpu tenant=a", 1, 2000, "a"),
        ];
        let sheet = sheet(&views, "EUR");
        let texts = |row: &Vec<Cell>| {
            let texts = [1, 5, 6, 7, 8, 9, 10].map(|at| row[at].text.clone());
            texts.join(" ")
        };
        let found: Vec<_> = sheet.rows.iter().map(texts).collect();
        let set = "1970-01-01T00:00:01Z";
        let expected = [
            format!("all 1 the beginning {set} op-1 - 1.500000"),
            format!("all 3 1970-01-01T00:00:05Z {set} op-3 - 1.500000"),
            format!("all 2 1970-01-01T00:00:09Z {set} op-2 - 1.500000"),
            format!("all 4 1970-01-01T00:00:11Z {set} op-4 - taken back"),
            format!("a 1 1970-01-01T00:00:02Z {set} op-1 - 1.500000"),
        ];
        assert_eq!(found, expected);
        let csv = Page::of(sheet, 1, "none").written(Form::Csv).unwrap();
        let mut lines = csv.lines();
        assert!(
            lines
                .next()
                .unwrap()
                .ends_with(",micro_per_unit_hour,currency")
        );
        assert!(lines.all(|line| line.ends_with(",EUR")), "{csv}");
    }
}
