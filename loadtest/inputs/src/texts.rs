//! Names and other texts with one canonical form.

use std::fmt::{Debug, Display};
use vocab::{
    Account, AllocationId, BudgetOf, Level, ModelChoice, Month, Period, QuotaResource, ResourceKey,
    ResourceKind, Team, Token, Writer,
};

/// Parses a name as each type. A parsed value must be written as the same text, or as a text that parses to the same value.
pub fn names(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else {
        return false;
    };
    let exact = [
        exactly(text, |text| Token::new(text).ok()),
        exactly(text, QuotaResource::parse),
        exactly(text, ResourceKey::parse),
        exactly(text, Account::parse),
        exactly(text, Team::parse),
        exactly(text, ModelChoice::parse),
        exactly(text, Month::parse),
        named(text, ResourceKind::parse, |kind| kind.name()),
        named(text, Period::parse, |period| period.name()),
        named(text, Writer::parse, |writer| writer.name()),
        BudgetOf::parse(text).is_some_and(|of| of.name() == text),
    ];
    let again = [
        again(text, AllocationId::parse),
        again(text, |text| text.parse::<Level>().ok()),
        again(text, |text| text.parse::<ledger::Digest>().ok()),
        again(text, |text| text.parse::<node_agent::CpuSet>().ok()),
    ];
    exact.contains(&true) || again.contains(&true)
}

fn exactly<T: Display>(text: &str, read: impl Fn(&str) -> Option<T>) -> bool {
    let Some(value) = read(text) else {
        return false;
    };
    assert_eq!(value.to_string(), text);
    true
}

fn named<T: Copy>(
    text: &str,
    read: impl Fn(&str) -> Option<T>,
    name: impl Fn(T) -> &'static str,
) -> bool {
    let Some(value) = read(text) else {
        return false;
    };
    assert_eq!(name(value), text);
    true
}

fn again<T: Display + PartialEq + Debug>(text: &str, read: impl Fn(&str) -> Option<T>) -> bool {
    let Some(value) = read(text) else {
        return false;
    };
    let written = value.to_string();
    assert_eq!(
        read(&written).as_ref(),
        Some(&value),
        "{text:?}, written {written:?}"
    );
    true
}
