//! What resources cost.

use super::money;
use crate::{
    Failure, amount,
    context::Context,
    operate::{Expected, told},
    print::{Output, Page, Sheet, column, exactly, moment, number, plain, valued},
};
use clap::{Args, Subcommand};
use schemas::v1;

#[derive(Subcommand)]
pub enum RatesCommand {
    /// Say what a resource costs from a moment on.
    Set(Set),
    /// Show all rates, and since when they count.
    List(List),
}

#[derive(Args)]
pub struct Set {
    /// cpu, memory, gpu or gpu:<model>.
    resource: String,
    /// In the currency, per core-hour, GiB-hour or GPU-hour, to the millionth: 3.5.
    #[arg(value_parser = price)]
    price: i64,
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
    /// From this moment on: 2026-12-01, 2026-12-01T08:30:00Z, or so long from now as in 2h. Without it from the beginning of time, which only the
    /// first rate of a resource and scope can be, and only while no month is closed.
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
            Self::List(list) => list.run(context).await,
        }
    }
}

impl Set {
    async fn run(self, context: &Context) -> Result<(), Failure> {
        let title = format!("rate of {}", self.resource);
        let change = v1::SetRate {
            resource: self.resource,
            micro_per_unit_hour: self.price,
            effective_from_ms: self
                .from
                .map_or(0, |from| from.ms(context.clock().now_ms())),
            expected_version: self.expected.expected_version,
            tenant: self.tenant,
            priority_class: self.priority_class,
            pool: self.pool,
            cluster: self.cluster,
        };
        let sending = self.expected.sending;
        let operator = sending.operator(context).await?;
        told(&title, operator.set_rate(change, sending.id()).await?)
    }
}

#[derive(Args)]
pub struct List {
    #[command(flatten)]
    output: Output,
}

impl List {
    async fn run(self, context: &Context) -> Result<(), Failure> {
        let rates = context.usage()?.rates().await?;
        let from = |ms: i64| match ms {
            0 => valued("the beginning".to_owned(), 0),
            ms => moment(ms),
        };
        let scope = |name: &str| match name {
            "" => exactly("all".to_owned(), ""),
            name => plain(name),
        };
        let rows = rates.iter().map(|rate| {
            vec![
                plain(&rate.resource),
                scope(&rate.tenant),
                scope(&rate.priority_class),
                scope(&rate.pool),
                scope(&rate.cluster),
                number(rate.version),
                from(rate.applied_from_ms),
                money(rate.micro_per_unit_hour.into()),
            ]
        });
        let columns = vec![
            column("resource", "resource"),
            column("tenant", "tenant"),
            column("priority_class", "priority class"),
            column("pool", "pool"),
            column("cluster", "cluster"),
            column("version", "version"),
            column("from_ms", "from"),
            column("micro_per_unit_hour", "price per unit and hour"),
        ];
        let sheet = Sheet::new(columns, 7, rows.collect());
        Page::of(sheet, "no rates: what is used costs nothing").print(self.output)
    }
}
