//! What all verbs check in the same way. A refusal names the field and never the value.

use vocab::{Refusal, Rule, Token};

/// The last millisecond of the year 9999, which every reader of the ledger can still write down.
pub const TIME_MS_MAX: u64 = 253_402_300_799_999;

pub fn token(text: &str, field: &str) -> Result<Token, Refusal> {
    Token::new(text).map_err(|_| Refusal::new(Rule::NameInvalid, field))
}

/// Empty means none.
pub fn optional(text: &str, field: &str) -> Result<Option<Token>, Refusal> {
    (!text.is_empty()).then(|| token(text, field)).transpose()
}

/// Names with a leading `_` are the cell's own.
pub fn given_name(text: &str, field: &str) -> Result<Token, Refusal> {
    if text.starts_with('_') {
        return Err(Refusal::new(Rule::NameInvalid, field));
    }
    token(text, field)
}

/// `0..=max`.
pub fn amount(value: i64, max: u64, field: &str) -> Result<u64, Refusal> {
    match u64::try_from(value) {
        Err(_) => Err(Refusal::new(Rule::QuantityNegative, field)),
        Ok(value) if value > max => Err(Refusal::over(Rule::QuantityTooLarge, field, max, value)),
        Ok(value) => Ok(value),
    }
}

/// `1..=max`.
pub fn quantity(value: i64, max: u64, field: &str) -> Result<u64, Refusal> {
    match amount(value, max, field)? {
        0 => Err(Refusal::new(Rule::QuantityZero, field)),
        value => Ok(value),
    }
}

/// As `amount`, for what is a small number in the vocabulary.
pub fn small_amount(value: i64, max: u32, field: &str) -> Result<u32, Refusal> {
    // Not more than `max`, so it fits.
    amount(value, max.into(), field).map(|value| value as u32)
}

/// As `quantity`, for what is a small number in the vocabulary.
pub fn small_quantity(value: i64, max: u32, field: &str) -> Result<u32, Refusal> {
    // Not more than `max`, so it fits.
    quantity(value, max.into(), field).map(|value| value as u32)
}

pub fn bounded<T>(list: &[T], max: usize, field: &str) -> Result<(), Refusal> {
    if list.len() <= max {
        return Ok(());
    }
    let (limit, actual) = (max as u64, list.len() as u64);
    Err(Refusal::over(Rule::TooManyElements, field, limit, actual))
}

/// At most `max` names, in their order, each once however often it was named.
pub fn names<T: AsRef<str>>(texts: &[T], max: usize, field: &str) -> Result<Vec<Token>, Refusal> {
    bounded(texts, max, field)?;
    let names: Result<Vec<_>, _> = texts
        .iter()
        .map(|text| token(text.as_ref(), field))
        .collect();
    names.map(in_order)
}

/// A list whose order and repetitions mean nothing, in its one form.
pub fn in_order<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort();
    list.dedup();
    list
}

/// Pairs by name; a name that stands there twice is refused, as nobody can tell which was meant.
pub fn by_name<K: Ord, V>(mut pairs: Vec<(K, V)>, field: &str) -> Result<Vec<(K, V)>, Refusal> {
    pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
    let once = pairs.is_sorted_by(|(a, _), (b, _)| a < b);
    if once {
        Ok(pairs)
    } else {
        Err(Refusal::new(Rule::NameRepeated, field))
    }
}

/// An optional name as it is written: empty for none.
pub fn written_name(name: Option<&Token>) -> String {
    name.map_or_else(String::new, |name| name.as_str().to_owned())
}

/// An amount as it is written. What was read from one fits.
pub fn written_amount(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}
