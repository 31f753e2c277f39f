//! What was used, what it costs, and the months that are billed.

mod budgets;
mod describe;
mod invoice;
mod rates;
mod report;
mod show;
pub mod usage;

pub use budgets::{Budgets, ask as all_budgets, sheet as budgets_sheet};
pub use describe::Describe;
pub use invoice::InvoiceCommand;
pub use rates::RatesCommand;
pub use report::Report;
pub use show::Bill;
pub use usage::Usage;

use crate::{
    amount,
    context::Context,
    print::{Cell, Output, Sheet, counted, named, note, wide},
};
use client::{Client, UsageQuery};
use vocab::{HOUR_MS, Millis, Month, ResourceKey, ResourceKind};

/// `2026-11`.
fn month(text: &str) -> Result<Month, String> {
    Month::parse(text).ok_or_else(|| format!("{text}: write a month as 2026-11"))
}

fn this_month(context: &Context) -> Month {
    Month::of(Millis(context.clock().now_ms()))
}

fn kind(resource: &str) -> Option<ResourceKind> {
    ResourceKey::parse(resource).map(|key| key.kind)
}

/// What a billed unit of it and an hour are called.
fn unit_hours(kind: ResourceKind) -> &'static str {
    match kind {
        ResourceKind::Cpu => "core-hours",
        ResourceKind::Memory => "GiB-hours",
        ResourceKind::Gpu => "GPU-hours",
    }
}

/// Millionths of a billed unit and an hour, rounded towards zero; `quantity` is in unit-milliseconds.
fn micro_hours(kind: ResourceKind, quantity: i128) -> i128 {
    let per_hour = i128::from(kind.per_billed_unit()) * i128::from(HOUR_MS);
    // A rest is below 2^53, so a million times that is far below 2^127.
    quantity / per_hour * 1_000_000 + quantity % per_hour * 1_000_000 / per_hour
}

/// `12.345678 GPU-hours`; rounded down to a millionth, for people.
fn hours(resource: &str, quantity: i128) -> String {
    match kind(resource) {
        None => quantity.to_string(),
        Some(kind) => {
            let amount = amount::money(micro_hours(kind, quantity));
            format!("{amount} {}", unit_hours(kind))
        }
    }
}

/// As the bus writes it.
fn quantity(digits: &str) -> i128 {
    digits.parse().unwrap_or_default()
}

/// A quantity.
fn used(resource: &str, quantity: i128) -> Cell {
    counted(hours(resource, quantity), quantity)
}

/// Millionths of the currency.
fn money(micro: i128) -> Cell {
    counted(amount::money(micro), micro)
}

/// Adds a column with the currency of the sheet's amounts, which CSV has without it.
pub fn in_currency(sheet: Sheet, currency: &str) -> Sheet {
    in_currencies(sheet, std::iter::repeat(currency))
}

/// Adds a column with the currency of each row; empty: the row has no amount of money.
fn in_currencies<'a>(mut sheet: Sheet, currencies: impl IntoIterator<Item = &'a str>) -> Sheet {
    sheet.columns.push(wide("currency", "currency"));
    let rows = sheet.rows.iter_mut().chain(&mut sheet.total);
    for (row, currency) in rows.zip(currencies) {
        row.push(named(currency));
    }
    sheet
}

/// Asks for the currency of the cell, if the output has it. Empty without an answer, as a note states.
pub async fn currency(client: &Client, output: Output) -> String {
    if !output.has_currency() {
        return String::new();
    }
    // A range without an hour.
    let query = UsageQuery {
        from_ms: 1,
        until_ms: 2,
        limit: 1,
        ..UsageQuery::default()
    };
    let answer = client.usage(&query).await.map(|page| page.currency);
    answer.unwrap_or_else(|error| {
        note!("the currency is unknown: {error}");
        String::new()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::print::{Form, NO_POSITION, Page, column, plain};

    #[test]
    fn amounts_of_csv_have_their_currency() {
        let columns = vec![column("tenant", "tenant"), column("amount_micro", "amount")];
        let row = |name: &str, micro| vec![plain(name), money(micro)];
        let mut sheet = Sheet::new(columns, 1, vec![row("a", 5)]);
        sheet.total = Some(row("all", 5));
        let page = Page::of(in_currency(sheet, "EUR"), NO_POSITION, "nothing");
        let check = |form, expected: &str| assert_eq!(page.written(form).unwrap(), expected);
        check(Form::Csv, "tenant,amount_micro,currency\na,5,EUR\n");
        check(
            Form::Table,
            "tenant    amount\na       0.000005\nall     0.000005\n",
        );
    }

    #[test]
    fn hours_are_those_of_the_billed_unit() {
        let check = |resource: &str, quantity: i128, expected: &str| {
            assert_eq!(hours(resource, quantity), expected);
        };
        check("cpu", 1000 * 3_600_000, "1.000000 core-hours");
        check("gpu:A100", 500 * 3_600_000 + 3600, "0.500001 GPU-hours");
        check("memory", -(1 << 29) * 3_600_000, "-0.500000 GiB-hours");
        check("memory", 1 << 20, "0.000000 GiB-hours");
    }

    #[test]
    fn a_month_is_written_as_one() {
        assert_eq!(month("2026-11"), Ok(Month(202_611)));
        assert!(month("2026-13").is_err() && month("202611").is_err());
    }
}
