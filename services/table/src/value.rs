//! Which column a Rust type is: its type in Postgres, and how a value is written and read. One place for all tables.

use crate::{Moment, Numeric, OutOfRange, RowError};
use serde::{Serialize, de::DeserializeOwned};
use sqlx::{Decode, Postgres, Row as _, Type, postgres::PgRow, types::Json};
use std::fmt;
use uuid::Uuid;
use vocab::{
    AllocationNo, BudgetOf, EndCause, EventNo, LeaseNo, LeaseState, Lsn, Millis, OnExceed,
    PendingGroupNo, Period, PlacementPolicy, PreemptionCause, QosClass, QueueOrder, QuotaResource,
    ReclaimFrom, Rule, Stage, Token, WaitingReason,
};

/// A type of Postgres, by its name and the fixed numbers that it and its arrays have in `pg_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PgType {
    pub name: &'static str,
    pub(crate) oid: u32,
    pub(crate) array: u32,
}

pub mod types {
    //! The types that columns have.

    use super::PgType;

    const fn of(name: &'static str, oid: u32, array: u32) -> PgType {
        PgType { name, oid, array }
    }

    pub const BOOLEAN: PgType = of("boolean", 16, 1000);
    pub const BYTEA: PgType = of("bytea", 17, 1001);
    pub const BIGINT: PgType = of("bigint", 20, 1016);
    pub const INTEGER: PgType = of("integer", 23, 1007);
    pub const TEXT: PgType = of("text", 25, 1009);
    pub const TIMESTAMPTZ: PgType = of("timestamptz", 1184, 1185);
    pub const NUMERIC: PgType = of("numeric", 1700, 1231);
    pub const UUID: PgType = of("uuid", 2950, 2951);
    pub const JSONB: PgType = of("jsonb", 3802, 3807);
    /// Of lists; there are no arrays of arrays.
    pub const INTEGERS: PgType = of("integer[]", 1007, 1007);
    pub const TEXTS: PgType = of("text[]", 1009, 1009);
}

/// What was written of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    Value,
    /// Nothing.
    Null,
}

/// A value of a column.
pub trait Value {
    const TYPE: PgType;
    /// Of the column, where the type alone says too little.
    const COLUMN: &'static str = Self::TYPE.name;
    const NULLABLE: bool = false;
    /// The type of an element of a parameter that holds many values.
    const ELEMENT: PgType = Self::TYPE;

    /// What holds for every value, as SQL about a column.
    fn check(_column: &str) -> Option<String> {
        None
    }

    /// In the server's binary format.
    fn write(&self, column: &'static str, out: &mut Vec<u8>) -> Result<Written, RowError>;

    /// The same as an `ELEMENT`.
    fn write_element(&self, column: &'static str, out: &mut Vec<u8>) -> Result<Written, RowError> {
        self.write(column, out)
    }
}

/// A value that can be read from a row.
pub trait Read: Sized {
    /// What sqlx reads.
    type Stored: for<'r> Decode<'r, Postgres> + Type<Postgres>;

    fn read(stored: Self::Stored, column: &'static str) -> Result<Self, OutOfRange>;
}

/// A column of a row; for the derive.
pub fn read<V: Read>(row: &PgRow, column: &'static str) -> sqlx::Result<V> {
    V::read(row.try_get(column)?, column).map_err(|bad| sqlx::Error::ColumnDecode {
        index: column.to_owned(),
        source: Box::new(bad),
    })
}

impl<V: Value + ?Sized> Value for &V {
    const TYPE: PgType = V::TYPE;
    const COLUMN: &'static str = V::COLUMN;
    const NULLABLE: bool = V::NULLABLE;
    const ELEMENT: PgType = V::ELEMENT;

    fn check(column: &str) -> Option<String> {
        V::check(column)
    }

    fn write(&self, column: &'static str, out: &mut Vec<u8>) -> Result<Written, RowError> {
        V::write(self, column, out)
    }

    fn write_element(&self, column: &'static str, out: &mut Vec<u8>) -> Result<Written, RowError> {
        V::write_element(self, column, out)
    }
}

impl<V: Value> Value for Option<V> {
    const TYPE: PgType = V::TYPE;
    const COLUMN: &'static str = V::COLUMN;
    const NULLABLE: bool = true;
    const ELEMENT: PgType = V::ELEMENT;

    fn check(column: &str) -> Option<String> {
        V::check(column)
    }

    fn write(&self, column: &'static str, out: &mut Vec<u8>) -> Result<Written, RowError> {
        self.as_ref()
            .map_or(Ok(Written::Null), |value| value.write(column, out))
    }

    fn write_element(&self, column: &'static str, out: &mut Vec<u8>) -> Result<Written, RowError> {
        self.as_ref()
            .map_or(Ok(Written::Null), |value| value.write_element(column, out))
    }
}

impl<V: Read> Read for Option<V> {
    type Stored = Option<V::Stored>;

    fn read(stored: Self::Stored, column: &'static str) -> Result<Self, OutOfRange> {
        stored.map(|stored| V::read(stored, column)).transpose()
    }
}

/// Any unsigned number: more than half of them are no `bigint`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wide(pub u64);

/// An unsigned number for a `bigint`.
pub fn bigint(what: &'static str, value: u64) -> Result<i64, OutOfRange> {
    i64::try_from(value).map_err(|_| OutOfRange::new(what, value))
}

/// A `bigint` of a column that holds no negative one.
pub fn unsigned(what: &'static str, value: i64) -> Result<u64, OutOfRange> {
    u64::try_from(value).map_err(|_| OutOfRange::new(what, value))
}

fn big(what: &'static str, value: u64, out: &mut Vec<u8>) -> Result<(), OutOfRange> {
    out.extend_from_slice(&bigint(what, value)?.to_be_bytes());
    Ok(())
}

fn small<N: TryInto<i32> + fmt::Display + Copy>(
    what: &'static str,
    value: N,
    out: &mut Vec<u8>,
) -> Result<(), OutOfRange> {
    let fits = value.try_into();
    let fits = fits.map_err(|_| OutOfRange::new(what, value))?;
    out.extend_from_slice(&fits.to_be_bytes());
    Ok(())
}

fn narrow<N: TryFrom<V>, V: fmt::Display + Copy>(
    what: &'static str,
    value: V,
) -> Result<N, OutOfRange> {
    N::try_from(value).map_err(|_| OutOfRange::new(what, value))
}

/// The type in Rust, that of the column, how it is written, what is read and how.
macro_rules! values {
    ($($ty:ty: $pg:ident, $write:expr, $stored:ty, $read:expr;)*) => {$(
        impl Value for $ty {
            const TYPE: PgType = types::$pg;

            fn write(&self, column: &'static str, out: &mut Vec<u8>) -> Result<Written, RowError> {
                let write: fn(&Self, &'static str, &mut Vec<u8>) -> Result<(), OutOfRange> = $write;
                write(self, column, out)?;
                Ok(Written::Value)
            }
        }

        impl Read for $ty {
            type Stored = $stored;

            fn read(stored: $stored, column: &'static str) -> Result<Self, OutOfRange> {
                let read: fn($stored, &'static str) -> Result<Self, OutOfRange> = $read;
                read(stored, column)
            }
        }
    )*};
}

fn put(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), OutOfRange> {
    out.extend_from_slice(bytes);
    Ok(())
}

values! {
    bool: BOOLEAN, |v, _, out| put(&[u8::from(*v)], out), bool, |found, _| Ok(found);
    i32: INTEGER, |v, _, out| put(&v.to_be_bytes(), out), i32, |found, _| Ok(found);
    i64: BIGINT, |v, _, out| put(&v.to_be_bytes(), out), i64, |found, _| Ok(found);
    u16: INTEGER, |v, what, out| small(what, *v, out), i32, |found, what| narrow(what, found);
    u32: INTEGER, |v, what, out| small(what, *v, out), i32, |found, what| narrow(what, found);
    u64: BIGINT, |v, what, out| big(what, *v, out), i64, |found, what| unsigned(what, found);
    Lsn: BIGINT, |v, what, out| big(what, v.0, out), i64, |found, what| unsigned(what, found).map(Lsn);
    EventNo: BIGINT, |v, what, out| big(what, v.0, out), i64, |found, what| unsigned(what, found).map(EventNo);
    AllocationNo: BIGINT, |v, what, out| big(what, v.0, out), i64, |found, what| unsigned(what, found).map(AllocationNo);
    LeaseNo: BIGINT, |v, what, out| big(what, v.0, out), i64, |found, what| unsigned(what, found).map(LeaseNo);
    PendingGroupNo: BIGINT, |v, what, out| big(what, v.0, out), i64, |found, what| unsigned(what, found).map(PendingGroupNo);
    u128: NUMERIC, |v, _, out| { Numeric(*v).write(out); Ok(()) }, Numeric, |found, _| Ok(found.0);
    String: TEXT, |v, _, out| put(v.as_bytes(), out), String, |found, _| Ok(found);
    Token: TEXT, |v, _, out| put(v.as_str().as_bytes(), out), String,
        |found, what| Token::new(&found).map_err(|_| OutOfRange::new(what, found));
    Uuid: UUID, |v, _, out| put(v.as_bytes(), out), Uuid, |found, _| Ok(found);
    Vec<u8>: BYTEA, |v, _, out| put(v, out), Vec<u8>, |found, _| Ok(found);
    Millis: TIMESTAMPTZ, |v, _, out| put(&Moment::try_from(*v)?.micros().to_be_bytes(), out),
        Moment, |found, _| Ok(found.into());
}

impl Value for str {
    const TYPE: PgType = types::TEXT;

    fn write(&self, _column: &'static str, out: &mut Vec<u8>) -> Result<Written, RowError> {
        out.extend_from_slice(self.as_bytes());
        Ok(Written::Value)
    }
}

impl Value for [u8] {
    const TYPE: PgType = types::BYTEA;

    fn write(&self, _column: &'static str, out: &mut Vec<u8>) -> Result<Written, RowError> {
        out.extend_from_slice(self);
        Ok(Written::Value)
    }
}

impl Value for Wide {
    const TYPE: PgType = types::NUMERIC;
    const COLUMN: &'static str = "numeric(20)";

    fn write(&self, column: &'static str, out: &mut Vec<u8>) -> Result<Written, RowError> {
        u128::from(self.0).write(column, out)
    }
}

impl Read for Wide {
    type Stored = Numeric;

    fn read(Numeric(stored): Numeric, column: &'static str) -> Result<Self, OutOfRange> {
        narrow(column, stored).map(Self)
    }
}

impl<const N: usize> Value for [u8; N] {
    const TYPE: PgType = types::BYTEA;

    fn write(&self, column: &'static str, out: &mut Vec<u8>) -> Result<Written, RowError> {
        self.as_slice().write(column, out)
    }
}

impl<const N: usize> Read for [u8; N] {
    type Stored = Vec<u8>;

    fn read(stored: Vec<u8>, column: &'static str) -> Result<Self, OutOfRange> {
        let length = stored.len();
        let fits = stored.try_into();
        fits.map_err(|_| OutOfRange::new(column, format!("{length} bytes")))
    }
}

/// Version of `jsonb`'s binary format.
const JSONB: u8 = 1;

impl<T: Serialize> Value for Json<T> {
    const TYPE: PgType = types::JSONB;

    fn write(&self, column: &'static str, out: &mut Vec<u8>) -> Result<Written, RowError> {
        out.push(JSONB);
        serde_json::to_writer(&mut *out, &self.0)
            .map_err(|error| OutOfRange::new(column, error))?;
        Ok(Written::Value)
    }
}

impl<T: DeserializeOwned + 'static> Read for Json<T> {
    type Stored = Self;

    fn read(stored: Self, _column: &'static str) -> Result<Self, OutOfRange> {
        Ok(stored)
    }
}

/// An element of a column that is a list.
pub trait Item: Value {
    const LIST: PgType;

    /// Within an array's text.
    fn text(&self) -> String;
}

impl Item for i32 {
    const LIST: PgType = types::INTEGERS;

    fn text(&self) -> String {
        self.to_string()
    }
}

impl Item for &str {
    const LIST: PgType = types::TEXTS;

    fn text(&self) -> String {
        let escaped = self.replace('\\', "\\\\").replace('"', "\\\"");
        format!("\"{escaped}\"")
    }
}

impl Item for Token {
    const LIST: PgType = types::TEXTS;

    fn text(&self) -> String {
        self.as_str().text()
    }
}

impl<I: Item> Value for Vec<I> {
    const TYPE: PgType = I::LIST;
    const ELEMENT: PgType = types::TEXT;

    fn write(&self, column: &'static str, out: &mut Vec<u8>) -> Result<Written, RowError> {
        crate::row::list(I::TYPE, self, out, |item, out| item.write(column, out))?;
        Ok(Written::Value)
    }

    /// As text: there are no arrays of arrays.
    fn write_element(&self, _column: &'static str, out: &mut Vec<u8>) -> Result<Written, RowError> {
        let items: Vec<String> = self.iter().map(Item::text).collect();
        out.extend_from_slice(format!("{{{}}}", items.join(",")).as_bytes());
        Ok(Written::Value)
    }
}

impl Read for Vec<Token> {
    type Stored = Vec<String>;

    fn read(stored: Vec<String>, column: &'static str) -> Result<Self, OutOfRange> {
        let items = stored.into_iter().map(|item| Token::read(item, column));
        items.collect()
    }
}

/// Columns that hold the name of one of an enum's values, which has `ALL` and `name()`.
#[macro_export]
macro_rules! names {
    ($($ty:ty),* $(,)?) => {$(
        impl $crate::Value for $ty {
            const TYPE: $crate::PgType = $crate::types::TEXT;

            fn check(column: &str) -> Option<String> {
                Some($crate::one_of(column, Self::ALL.iter().map(|one| one.name())))
            }

            fn write(
                &self,
                column: &'static str,
                out: &mut Vec<u8>,
            ) -> Result<$crate::Written, $crate::RowError> {
                self.name().write(column, out)
            }
        }

        impl $crate::Read for $ty {
            type Stored = String;

            fn read(stored: String, column: &'static str) -> Result<Self, $crate::OutOfRange> {
                let mut all = Self::ALL.into_iter();
                let one = all.find(|one| one.name() == stored);
                one.ok_or_else(|| $crate::OutOfRange::new(column, stored))
            }
        }
    )*};
}

/// A column with one of these names, as SQL.
pub fn one_of<'n>(column: &str, names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<String> = names.map(crate::quoted).collect();
    format!("{column} IN ({})", names.join(", "))
}

names!(
    EndCause,
    OnExceed,
    Period,
    PlacementPolicy,
    PreemptionCause,
    QosClass,
    QueueOrder,
    ReclaimFrom,
    LeaseState,
    WaitingReason,
);

impl Value for Stage {
    const TYPE: PgType = types::TEXT;

    fn check(column: &str) -> Option<String> {
        Some(one_of(column, Self::NAMES.into_iter()))
    }

    fn write(&self, column: &'static str, out: &mut Vec<u8>) -> Result<Written, RowError> {
        self.name().write(column, out)
    }
}

impl Value for QuotaResource {
    const TYPE: PgType = types::TEXT;

    fn check(column: &str) -> Option<String> {
        const NAME: &str = "[A-Za-z0-9_-]{1,64}";
        let any = format!("cpu|memory|gpu|gpu:{NAME}|storage|pods|extended:{NAME}|leases");
        Some(format!("{column} ~ '^({any})$'"))
    }

    fn write(&self, column: &'static str, out: &mut Vec<u8>) -> Result<Written, RowError> {
        self.to_string().write(column, out)
    }
}

impl Read for QuotaResource {
    type Stored = String;

    fn read(stored: String, column: &'static str) -> Result<Self, OutOfRange> {
        Self::parse(&stored).ok_or_else(|| OutOfRange::new(column, stored))
    }
}

impl Value for BudgetOf {
    const TYPE: PgType = types::TEXT;

    fn write(&self, column: &'static str, out: &mut Vec<u8>) -> Result<Written, RowError> {
        self.name().write(column, out)
    }
}

impl Read for BudgetOf {
    type Stored = String;

    fn read(stored: String, column: &'static str) -> Result<Self, OutOfRange> {
        Self::parse(&stored).ok_or_else(|| OutOfRange::new(column, stored))
    }
}

/// Without a CHECK: rules are added to the contract, and all of them have names there.
impl Value for Rule {
    const TYPE: PgType = types::TEXT;

    fn write(&self, column: &'static str, out: &mut Vec<u8>) -> Result<Written, RowError> {
        self.name().write(column, out)
    }
}

impl Read for Rule {
    type Stored = String;

    fn read(stored: String, column: &'static str) -> Result<Self, OutOfRange> {
        let mut all = Self::ALL.iter().copied();
        let one = all.find(|rule| rule.name() == stored);
        one.ok_or_else(|| OutOfRange::new(column, stored))
    }
}
