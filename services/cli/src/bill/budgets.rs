//! A tenant's budgets, as the tenant itself may ask by the bus; to operators those of all tenants.

use super::{currency, in_currencies};
use crate::{
    Failure, amount,
    context::{Context, Whose},
    pages::pages,
    print::{Cell, Column, Output, Page, Sheet, column, counted, moment, named, plain, valued},
};
use clap::Args;
use client::{BudgetQuery, BudgetView, Client, QueryError};
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
        let of_all = context.tenant_of(self.whose.tenant.as_deref()).is_none();
        let client = context.asker(self.whose.tenant.as_deref()).await?;
        let (budgets, lsn) = ask(&client).await?;
        let currency = currency(&client, self.output).await;
        let sheet = sheet(&budgets, of_all, &currency);
        Page::of(sheet, lsn, "no budgets: use has no bound").print(self.output)
    }
}

/// Returns all budgets, and the ledger position that they are of.
pub async fn ask(client: &Client) -> Result<(Vec<BudgetView>, u64), QueryError> {
    pages(async |after, at_lsn| {
        let query = BudgetQuery {
            at_lsn,
            after,
            ..BudgetQuery::default()
        };
        let page = client.budgets(&query).await?;
        Ok((page.budgets, page.next, page.lsn))
    })
    .await
}

/// Budgets with what is spent of them; `of_all`: of more tenants than one.
pub fn sheet(budgets: &[BudgetView], of_all: bool, currency: &str) -> Sheet {
    let tenant = of_all.then(|| column("tenant", "tenant"));
    let mut columns: Vec<Column> = tenant.into_iter().collect();
    let numbers = columns.len() + 6;
    columns.extend([
        column("team", "team"),
        column("namespace", "namespace").rank(7),
        column("of", "of"),
        column("period", "period").rank(6),
        column("ends_ms", "until").rank(8),
        column("exhausted_at_ms", "exhausted").rank(5),
        column("amount", "budget"),
        column("spent", "spent"),
        column("burn_per_hour", "an hour").rank(9),
    ]);
    let whole = |budget: &BudgetView| {
        let tenant = of_all.then(|| plain(&budget.tenant));
        tenant.into_iter().chain(row(budget)).collect()
    };
    let sheet = Sheet::new(columns, numbers, budgets.iter().map(whole).collect());
    let of = budgets.iter().map(|budget| &*budget.of);
    in_currencies(sheet, of.map(|of| currency_of(of, currency)))
}

/// Returns the currency of a budget's amounts; empty if they are no money.
pub fn currency_of<'a>(of: &str, currency: &'a str) -> &'a str {
    match BudgetOf::parse(of) {
        Some(BudgetOf::Money) => currency,
        _ => "",
    }
}

fn row(budget: &BudgetView) -> [Cell; 9] {
    let of = BudgetOf::parse(&budget.of);
    let amount = |amount: u128| match &of {
        Some(of) => counted(amount::spent(of, amount), amount),
        None => counted(amount.to_string(), amount),
    };
    let exhausted = match budget.exhausted_at_ms {
        None => valued("not in this period".to_owned(), serde_json::Value::Null),
        Some(at) => moment(at),
    };
    [
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::print::Form;

    #[test]
    fn whose_a_budget_is_stands_where_there_are_more_tenants_than_one() {
        let budget = BudgetView {
            tenant: "a".to_owned(),
            team: "x".to_owned(),
            of: "money".to_owned(),
            amount: 5_000_000,
            ..BudgetView::default()
        };
        let check = |of_all, expected: &[&str]| {
            let sheet = sheet(std::slice::from_ref(&budget), of_all, "EUR");
            let texts = sheet.rows[0].iter().map(|cell| cell.text.as_str());
            assert_eq!(texts.take(3).collect::<Vec<_>>(), expected);
            assert_eq!(sheet.columns.len(), sheet.rows[0].len());
        };
        check(true, &["a", "x", "-"]);
        check(false, &["x", "-", "money"]);
    }

    #[test]
    fn amounts_of_money_have_their_currency() {
        let budget = |of: &str| BudgetView {
            of: of.to_owned(),
            amount: 5_000_000,
            ..BudgetView::default()
        };
        let sheet = sheet(&[budget("money"), budget("cpu")], false, "EUR");
        let csv = Page::of(sheet, 1, "none").written(Form::Csv).unwrap();
        let last = csv
            .lines()
            .map(|line| line.rsplit(',').next().unwrap_or_default());
        assert_eq!(last.collect::<Vec<_>>(), ["currency", "EUR", ""]);
    }
}
