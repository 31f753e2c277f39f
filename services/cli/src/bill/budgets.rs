//! A tenant's budgets, as the tenant itself may ask by the bus.

use super::{named, table};
use crate::{Failure, amount, stack};
use chassis::stack::Stack;
use clap::Args;
use client::BudgetView;
use vocab::{BudgetOf, Millis};

#[derive(Args)]
pub struct Budgets {
    #[arg(long)]
    tenant: String,
}

impl Budgets {
    pub async fn run(self, stack: &Stack) -> Result<(), Failure> {
        let client = stack::tenant(stack, &self.tenant).await?;
        let budgets = client.budgets(0).await?;
        if budgets.is_empty() {
            println!("no budgets: nothing bounds what is used up");
            return Ok(());
        }
        let head = [
            "team",
            "namespace",
            "of",
            "period",
            "until",
            "exhausted",
            "budget",
            "spent",
            "an hour",
        ];
        println!("{}", table(&head, budgets.iter().map(row).collect(), 6));
        Ok(())
    }
}

fn row(budget: &BudgetView) -> Vec<String> {
    let of = BudgetOf::parse(&budget.of);
    let amount = |amount: u128| match &of {
        Some(of) => amount::spent(of, amount),
        None => amount.to_string(),
    };
    let exhausted = match budget.exhausted_at_ms {
        None => "not in this period".to_owned(),
        Some(at) => amount::moment(Millis(at)),
    };
    vec![
        named(&budget.team),
        named(&budget.namespace),
        budget.of.clone(),
        crate::submit::words(budget.period()),
        amount::moment(Millis(budget.ends_ms)),
        exhausted,
        amount(budget.amount.into()),
        amount(budget.spent.parse().unwrap_or_default()),
        amount(budget.burn.parse().unwrap_or_default()),
    ]
}
