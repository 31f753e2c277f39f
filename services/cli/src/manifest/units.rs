//! Values of fields, in units that people write.

use crate::amount;
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};
use std::str::FromStr;
use vocab::{
    Account, BudgetOf, Millis, OnExceed, Period, PlacementPolicy, QueueOrder, QuotaResource,
    ReclaimFrom, Team,
};

/// A value of its own type, read from a text or a number and written as the shortest one.
macro_rules! unit {
    ($(#[$doc:meta])* $name:ident($inner:ty), $read:expr, $write:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(try_from = "Value", into = "Value")]
        pub struct $name(pub $inner);

        impl TryFrom<Value> for $name {
            type Error = String;
            fn try_from(value: Value) -> Result<Self, String> {
                let read: fn(&str) -> Result<$inner, String> = $read;
                read(&text_of(&value)?).map(Self)
            }
        }

        impl From<$name> for Value {
            fn from(of: $name) -> Self {
                let write: fn(&$inner) -> String = $write;
                value_of(write(&of.0))
            }
        }
    };
}

unit!(
    /// In thousandths: cores as 4 or 500m.
    Cores(i64), amount::cpu_milli, |milli| amount::milli_text(*milli)
);
unit!(
    /// Thousandths of devices.
    Devices(i64),
    amount::thousandths,
    |milli| amount::milli_text(*milli)
);
unit!(
    /// Thousandths of anything.
    Part(i64), amount::thousandths, |milli| decimal(*milli)
);
unit!(
    /// Bytes.
    Memory(i64), amount::bytes, |bytes| amount::bytes_text(*bytes)
);
unit!(
    /// Milliseconds.
    Span(i64), amount::duration_ms, |ms| amount::duration_text(*ms)
);
unit!(
    /// Unix milliseconds.
    Moment(i64), amount::moment_ms, |ms| amount::moment_text(Millis(*ms))
);
unit!(
    /// Millionths of the currency.
    Price(i64), price, |micro| amount::micro_text(*micro)
);
unit!(
    /// An amount whose unit another field tells.
    Written(String), |text| Ok(text.to_owned()), String::clone
);
unit!(Whole(i64), whole, i64::to_string);
unit!(Small(i32), whole, i32::to_string);
unit!(Count(u32), whole, u32::to_string);
unit!(Whose(Account), amount::account, Account::to_string);
unit!(OfTeam(Team), amount::team, Team::to_string);
unit!(
    OfResource(QuotaResource),
    amount::resource,
    QuotaResource::to_string
);
unit!(OfBudget(BudgetOf), amount::budget_of, |of| of
    .name()
    .to_owned());

fn whole<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("{text}: write a whole number"))
}

fn price(text: &str) -> Result<i64, String> {
    amount::micro(text).ok_or_else(|| {
        format!("{text}: write money as 3.5, with six digits behind the point at most")
    })
}

/// What a binary fraction holds of any decimal number.
const DIGITS_MAX: usize = 15;

/// A text, or a number as it is written: files keep numbers that JSON would write otherwise as texts.
pub fn text_of(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(format!("{other}: write a text or a number")),
    }
}

/// As a number where a number is the same.
fn value_of(text: String) -> Value {
    if let Some(whole) = text
        .parse::<i64>()
        .ok()
        .filter(|whole| whole.to_string() == text)
    {
        return whole.into();
    }
    let is_decimal = |c: u8| c.is_ascii_digit() || c == b'.';
    let is_exact = text.len() <= DIGITS_MAX && text.bytes().all(is_decimal);
    let number = text.parse().ok().filter(|_: &f64| is_exact);
    let number = number.and_then(Number::from_f64);
    match number.filter(|number| number.to_string() == text) {
        Some(number) => number.into(),
        None => text.into(),
    }
}

/// Thousandths.
fn decimal(milli: i64) -> String {
    amount::micro_text(milli.saturating_mul(1000))
}

/// What has names, and numbers of the contract's.
pub trait Named: Copy + 'static {
    fn all() -> Vec<Self>;
    fn name(self) -> &'static str;
    fn number(self) -> i32;
}

macro_rules! named {
    ($($name:ident),*) => {
        $(impl Named for $name {
            fn all() -> Vec<Self> {
                Self::ALL.to_vec()
            }
            fn name(self) -> &'static str {
                self.name()
            }
            fn number(self) -> i32 {
                self as i32
            }
        })*
    };
}

named!(OnExceed, ReclaimFrom, QueueOrder, PlacementPolicy, Period);

/// A name, with hyphens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String", bound = "T: Named")]
pub struct Word<T: Named>(pub T);

impl<T: Named> Word<T> {
    pub fn number(self) -> i32 {
        self.0.number()
    }

    /// By the contract's number.
    pub fn of(number: i32) -> Result<Self, String> {
        let found = T::all().into_iter().find(|one| one.number() == number);
        let unknown = || format!("{number}: a newer version of this program knows what this is");
        found.map(Self).ok_or_else(unknown)
    }
}

impl<T: Named> TryFrom<String> for Word<T> {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let all = T::all();
        let found = all.iter().find(|one| one.name() == text.replace('-', "_"));
        found.map(|one| Self(*one)).ok_or_else(|| {
            let known: Vec<_> = all.iter().map(|one| one.name().replace('_', "-")).collect();
            format!("{text}: write {}", known.join(", "))
        })
    }
}

impl<T: Named> From<Word<T>> for String {
    fn from(word: Word<T>) -> Self {
        word.0.name().replace('_', "-")
    }
}
