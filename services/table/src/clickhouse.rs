//! Tables of ClickHouse: the same derive, another server. The rows are written by the client library's own derive.

use crate::{Snapshot, Subject, What};
use serde::Serialize;
use smol_str::SmolStr;
use std::{fmt::Write, marker::PhantomData};
use uuid::Uuid;
use vocab::{Lsn, Millis, Token};

/// A table of ClickHouse.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    pub name: &'static str,
    /// The row struct's doc comment.
    pub comment: &'static str,
    /// In the order of the row's fields.
    pub columns: &'static [Column],
    /// With its arguments.
    pub engine: &'static str,
    /// The primary key, too.
    pub order_by: &'static [&'static str],
    /// What becomes of old rows; empty: they stay.
    pub ttl: &'static str,
    pub settings: &'static str,
}

#[derive(Debug, Clone, Copy)]
pub struct Column {
    pub name: &'static str,
    /// The field's doc comment.
    pub comment: &'static str,
    pub ty: &'static str,
    pub nullable: bool,
    /// Few values, which are kept once.
    pub low_cardinality: bool,
    pub default: Option<&'static str>,
}

/// A row of a table; `#[derive(Table)]` with `clickhouse(…)` makes it one.
pub trait Row {
    const TABLE: &'static Table;
}

/// What a field is as a column, spelt as the server spells it.
pub trait Value {
    const TYPE: &'static str;
    const NULLABLE: bool = false;
}

macro_rules! values {
    ($($ty:ty: $name:literal;)*) => {$(
        impl Value for $ty {
            const TYPE: &'static str = $name;
        }
    )*};
}

values! {
    bool: "Bool";
    i8: "Int8";
    i16: "Int16";
    u8: "UInt8";
    u32: "UInt32";
    u64: "UInt64";
    u128: "UInt128";
    i64: "Int64";
    i128: "Int128";
    String: "String";
    SmolStr: "String";
    &'static str: "String";
    Token: "String";
    Uuid: "UUID";
    Lsn: "UInt64";
    Millis: "DateTime64(3, 'UTC')";
    Seconds: "DateTime('UTC')";
    Day: "Date";
    Texts: "Map(String, String)";
    Sum<i128>: "SimpleAggregateFunction(sum, Int128)";
    Sum<i64>: "SimpleAggregateFunction(sum, Int64)";
    Sum<u64>: "SimpleAggregateFunction(sum, UInt64)";
    Least<Lsn>: "SimpleAggregateFunction(min, UInt64)";
    Greatest<Lsn>: "SimpleAggregateFunction(max, UInt64)";
}

/// A moment in whole Unix seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Seconds(pub u32);

/// Days since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Day(pub u16);

/// Texts by their names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Texts(pub Vec<(Token, Token)>);

/// Rows of one key become one, with the sum of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Sum<N>(pub N);

/// Rows of one key become one, with the least of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Least<N>(pub N);

/// Rows of one key become one, with the greatest of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Greatest<N>(pub N);

impl<V: Value> Value for Option<V> {
    const TYPE: &'static str = V::TYPE;
    const NULLABLE: bool = true;
}

/// Of a column that no row brings: the server fills it by its default.
impl<V: Value> Value for PhantomData<V> {
    const TYPE: &'static str = V::TYPE;
    const NULLABLE: bool = V::NULLABLE;
}

impl Column {
    fn full_type(&self) -> String {
        let ty = match self.nullable {
            true => format!("Nullable({})", self.ty),
            false => self.ty.to_owned(),
        };
        match self.low_cardinality {
            true => format!("LowCardinality({ty})"),
            false => ty,
        }
    }
}

/// A text as ClickHouse's SQL has it, where a backslash escapes.
pub fn quoted(text: &str) -> String {
    crate::quoted(&text.replace('\\', "\\\\"))
}

/// The statements that make the tables, in their order. They can be repeated.
pub fn ddl(tables: &[&Table]) -> String {
    let tables: Vec<_> = tables.iter().map(|table| create(table)).collect();
    tables.join("\n")
}

fn create(table: &Table) -> String {
    let columns: Vec<String> = table.columns.iter().map(column).collect();
    // The server keeps the parentheses around a single column.
    let order_by = match table.order_by {
        [single] => (*single).to_owned(),
        several => format!("({})", several.join(", ")),
    };
    let mut sql = format!(
        "CREATE TABLE IF NOT EXISTS {} (\n    {}\n)\nENGINE = {}\nORDER BY {order_by}",
        table.name,
        columns.join(",\n    "),
        table.engine,
    );
    for (word, text) in [
        ("TTL", table.ttl.to_owned()),
        ("SETTINGS", table.settings.to_owned()),
        ("COMMENT", comment(table.comment)),
    ] {
        if !text.is_empty() {
            // Writing into a String cannot fail.
            let _ = write!(sql, "\n{word} {text}");
        }
    }
    sql + ";\n"
}

fn comment(text: &str) -> String {
    match text.is_empty() {
        true => String::new(),
        false => quoted(text),
    }
}

fn column(column: &Column) -> String {
    let mut sql = format!("{} {}", column.name, column.full_type());
    if let Some(default) = column.default {
        sql.push_str(" DEFAULT ");
        sql.push_str(default);
    }
    if !column.comment.is_empty() {
        sql.push_str(" COMMENT ");
        sql.push_str(&quoted(column.comment));
    }
    sql
}

/// What the server is to say of the tables. Unlike Postgres it keeps types, keys and settings as they are written.
pub fn snapshot(tables: &[&Table]) -> Snapshot {
    let facts = tables.iter().flat_map(|table| facts(table));
    Snapshot(facts.collect())
}

/// The server says what becomes of old rows with the engine.
fn engine(table: &Table) -> String {
    match table.ttl {
        "" => table.engine.to_owned(),
        ttl => format!("{} TTL {ttl}", table.engine),
    }
}

fn facts(table: &Table) -> Vec<(Subject, String)> {
    let fact = |what: What, name: &str, said: String| {
        let subject = Subject {
            table: table.name.to_owned(),
            what,
            name: name.to_owned(),
        };
        (subject, said)
    };
    let mut facts = vec![
        fact(What::Table, "", String::new()),
        fact(What::Engine, "", engine(table)),
        fact(What::OrderBy, "", table.order_by.join(", ")),
        fact(What::Storage, "", table.settings.to_owned()),
    ];
    if !table.comment.is_empty() {
        facts.push(fact(What::Comment, "", table.comment.to_owned()));
    }
    for column in table.columns {
        let name = column.name;
        facts.push(fact(What::Column, name, String::new()));
        facts.push(fact(What::Type, name, column.full_type()));
        if let Some(default) = column.default {
            facts.push(fact(What::Default, name, default.to_owned()));
        }
        if !column.comment.is_empty() {
            facts.push(fact(What::Comment, name, column.comment.to_owned()));
        }
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_quoted() {
        assert_eq!(quoted(r"it's a \n"), r"'it''s a \\n'");
    }
}
