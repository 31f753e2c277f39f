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
    print::{Cell, counted},
};
use vocab::{HOUR_MS, Month, ResourceKey, ResourceKind};

/// `2026-11`.
fn month(text: &str) -> Result<Month, String> {
    Month::parse(text).ok_or_else(|| format!("{text}: write a month as 2026-11"))
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

#[cfg(test)]
mod tests {
    use super::*;

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
