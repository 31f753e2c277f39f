//! A table's DDL. Every constraint and index has a name that follows from the table's, so that drift can be named.

use crate::descriptor::{Column, Index, Table};
use std::fmt::Write;

/// A text as SQL has it.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The statements that make the tables, in their order.
pub fn ddl(tables: &[&Table]) -> String {
    let tables: Vec<_> = tables.iter().map(|table| create(table)).collect();
    tables.join("\n")
}

fn create(table: &Table) -> String {
    let name = table.name;
    let columns = table.columns.iter().map(column);
    let key = (!table.key.is_empty()).then(|| {
        format!(
            "CONSTRAINT {name}_pkey PRIMARY KEY ({})",
            table.key.join(", ")
        )
    });
    let of_columns = table
        .columns
        .iter()
        .filter_map(|column| check(name, column));
    let checks = table
        .checks
        .iter()
        .map(|check| format!("CONSTRAINT {} CHECK ({})", check.name, check.holds));
    let parts: Vec<String> = columns.chain(key).chain(of_columns).chain(checks).collect();
    let with = table.with.map(|with| format!(" WITH ({with})"));
    let mut sql = format!(
        "CREATE TABLE {name} (\n    {}\n){};\n",
        parts.join(",\n    "),
        with.unwrap_or_default(),
    );
    let mut comment = |what: String, text: &str| {
        if !text.is_empty() {
            // Writing into a String cannot fail.
            let _ = writeln!(sql, "COMMENT ON {what} IS {};", quoted(text));
        }
    };
    comment(format!("TABLE {name}"), table.comment);
    for column in table.columns {
        comment(format!("COLUMN {name}.{}", column.name), column.comment);
    }
    for one in table.indexes {
        sql.push_str(&index(name, one));
    }
    sql
}

fn column(column: &Column) -> String {
    let mut sql = format!("{} {}", column.name, column.ty);
    if !column.nullable {
        sql.push_str(" NOT NULL");
    }
    if let Some(default) = column.default {
        sql.push_str(" DEFAULT ");
        sql.push_str(default);
    }
    sql
}

fn check(table: &str, column: &Column) -> Option<String> {
    let name = column.name;
    let check = column.check.map(str::to_owned);
    let check = check.or_else(|| (column.check_of_type)(name))?;
    Some(format!("CONSTRAINT {table}_{name}_check CHECK ({check})"))
}

fn index(table: &str, index: &Index) -> String {
    let unique = if index.unique { "UNIQUE " } else { "" };
    let using = index.using.map(|using| format!("USING {using} "));
    let only = index.only.map(|only| format!(" WHERE {only}"));
    format!(
        "CREATE {unique}INDEX {table}_{} ON {table} {}({}){};\n",
        index.name,
        using.unwrap_or_default(),
        index.on,
        only.unwrap_or_default(),
    )
}
