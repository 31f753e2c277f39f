//! A tenant's budgets, as the tenant itself may ask by the bus.

use crate::{
    Failure, amount,
    context::{Context, Whose},
    print::{Cell, Output, Page, Sheet, column, exactly, moment, named, plain, valued},
};
use clap::Args;
use client::BudgetView;
use vocab::BudgetOf;

#[derive(Args)]
pub struct Budgets {
    #[command(flatten)]
    whose: Whose,
    #[command(flatten)]
    output: Output,
}

impl Budgets {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.tenant(self.whose.tenant.as_deref()).await?;
        let budgets = client.budgets(0).await?;
        let sheet = sheet(&budgets);
        Page::of(sheet, "no budgets: nothing bounds what is used up").print(self.output)
    }
}

/// Budgets with what is spent of them.
pub fn sheet(budgets: &[BudgetView]) -> Sheet {
    let columns = vec![
        column("team", "team"),
        column("namespace", "namespace"),
        column("of", "of"),
        column("period", "period"),
        column("ends_ms", "until"),
        column("exhausted_at_ms", "exhausted"),
        column("amount", "budget"),
        column("spent", "spent"),
        column("burn_per_hour", "an hour"),
    ];
    Sheet::new(columns, 6, budgets.iter().map(row).collect())
}

fn row(budget: &BudgetView) -> Vec<Cell> {
    let of = BudgetOf::parse(&budget.of);
    let amount = |amount: u128| match &of {
        Some(of) => exactly(amount::spent(of, amount), amount),
        None => plain(amount),
    };
    let exhausted = match budget.exhausted_at_ms {
        None => valued("not in this period".to_owned(), serde_json::Value::Null),
        Some(at) => moment(at),
    };
    vec![
        named(&budget.team),
        named(&budget.namespace),
        plain(&budget.of),
        plain(crate::submit::words(budget.period())),
        moment(budget.ends_ms),
        exhausted,
        amount(budget.amount.into()),
        amount(budget.spent.parse().unwrap_or_default()),
        amount(budget.burn.parse().unwrap_or_default()),
    ]
}
