//! A table: for people, for programs and for the page of a report.

use crate::{Failure, amount};
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use serde_json::{Map, Value};
use std::cmp::Ordering;
use vocab::{Millis, ResourceKind, human};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Column {
    /// For programs.
    #[serde(skip)]
    pub key: &'static str,
    pub title: &'static str,
    /// Only people who ask for more see it.
    #[serde(skip)]
    wide: bool,
}

pub const fn column(key: &'static str, title: &'static str) -> Column {
    let wide = false;
    Column { key, title, wide }
}

pub const fn wide(key: &'static str, title: &'static str) -> Column {
    let wide = true;
    Column { key, title, wide }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    /// For people, with its unit.
    pub text: String,
    /// For programs; none: the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    exact: Option<Value>,
}

impl Cell {
    pub(super) fn value(&self) -> Value {
        let text = || Value::String(self.text.clone());
        self.exact.clone().unwrap_or_else(text)
    }

    pub fn exact(&self) -> String {
        text(&self.value())
    }
}

pub fn plain(text: impl ToString) -> Cell {
    let (text, exact) = (text.to_string(), None);
    Cell { text, exact }
}

/// A name that may be empty.
pub fn named(name: &str) -> Cell {
    let text = if name.is_empty() { "-" } else { name };
    exactly(text.to_owned(), name)
}

/// With another text for programs: a number, perhaps above what one of JSON holds exactly.
pub fn exactly(text: String, exact: impl ToString) -> Cell {
    let exact = Some(exact.to_string()).filter(|exact| *exact != text);
    let exact = exact.map(Value::String);
    Cell { text, exact }
}

/// With a value of its own kind for programs.
pub fn valued(text: String, exact: impl Into<Value>) -> Cell {
    let exact = Some(exact.into());
    Cell { text, exact }
}

pub fn number(number: impl Copy + ToString + Into<Value>) -> Cell {
    valued(number.to_string(), number)
}

/// Unix milliseconds.
pub fn moment(ms: i64) -> Cell {
    valued(amount::moment(Millis(ms)), ms)
}

/// Unix milliseconds; 0: never.
pub fn moment_or_never(ms: i64) -> Cell {
    match ms {
        0 => valued("-".to_owned(), Value::Null),
        ms => moment(ms),
    }
}

/// How long it may take, in milliseconds; 0: for ever.
pub fn bound(ms: u64) -> Cell {
    match i64::try_from(ms) {
        Ok(0) => valued("-".to_owned(), Value::Null),
        Ok(ms) => valued(amount::duration_text(ms), ms),
        Err(_) => valued(human::duration(ms.into()), ms),
    }
}

/// An amount in its kind's own unit.
pub fn quantity(kind: ResourceKind, amount: u64) -> Cell {
    valued(amount::human(kind, amount), amount)
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sheet {
    pub columns: Vec<Column>,
    /// Columns from here on are numbers.
    pub numbers: usize,
    pub rows: Vec<Vec<Cell>>,
    /// The sum of the rows, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<Vec<Cell>>,
}

/// Between two columns.
const GAP: u16 = 2;

impl Sheet {
    pub fn new(columns: Vec<Column>, numbers: usize, rows: Vec<Vec<Cell>>) -> Self {
        Self {
            columns,
            numbers,
            rows,
            total: None,
        }
    }

    pub(super) fn for_people(&self, wide: bool) -> String {
        let shown = |of: &Column| wide || !of.wide;
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        let titles = self
            .columns
            .iter()
            .filter(|of| shown(of))
            .map(|of| of.title);
        table.set_header(titles);
        for row in self.rows.iter().chain(&self.total) {
            let cells = self.columns.iter().zip(row).filter(|(of, _)| shown(of));
            table.add_row(cells.map(|(_, cell)| &cell.text));
        }
        let numbers = self.columns[..self.numbers].iter().filter(|of| shown(of));
        let numbers = numbers.count();
        for (no, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, GAP));
            if no >= numbers {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.trim_fmt()
    }

    /// Where a column stands, by its key.
    pub fn column(&self, key: &str) -> Result<usize, String> {
        let found = self.columns.iter().position(|column| column.key == key);
        found.ok_or_else(|| {
            let keys: Vec<_> = self.columns.iter().map(|column| column.key).collect();
            format!("there is no such column; there are {}", keys.join(", "))
        })
    }

    /// These columns, in this order; all as they are where none is named.
    pub fn only(mut self, keys: &[String]) -> Result<Self, String> {
        if keys.is_empty() {
            return Ok(self);
        }
        let chosen = keys.iter().map(|key| self.column(key));
        let chosen = chosen.collect::<Result<Vec<_>, _>>()?;
        let of_row = |row: &Vec<Cell>| chosen.iter().map(|no| row[*no].clone()).collect();
        self.rows = self.rows.iter().map(of_row).collect();
        self.total = self.total.as_ref().map(of_row);
        self.columns = (chosen.iter())
            .map(|no| Column {
                wide: false,
                ..self.columns[*no].clone()
            })
            .collect();
        let texts = chosen.iter().rposition(|no| *no < self.numbers);
        self.numbers = texts.map_or(0, |last| last + 1);
        Ok(self)
    }

    /// The numbers of the rows, in the order of a column: what is not there comes last, whichever way.
    pub fn order_by(&self, key: &str, descending: bool) -> Result<Vec<usize>, String> {
        let column = self.column(key)?;
        let mut rows: Vec<(usize, Value)> = (self.rows.iter())
            .map(|row| row[column].value())
            .enumerate()
            .collect();
        rows.sort_by(|(_, one), (_, other)| {
            is_absent(one)
                .cmp(&is_absent(other))
                .then_with(|| match descending {
                    true => compared(other, one),
                    false => compared(one, other),
                })
        });
        Ok(rows.into_iter().map(|(no, _)| no).collect())
    }

    /// An object for each row.
    pub fn records(&self) -> Value {
        let record = |row: &Vec<Cell>| {
            let values = self.columns.iter().zip(row);
            let values = values.map(|(column, cell)| (column.key.to_owned(), cell.value()));
            Value::Object(values.collect::<Map<_, _>>())
        };
        self.rows.iter().map(record).collect()
    }

    pub(super) fn csv(&self) -> Result<String, Failure> {
        let names = self.columns.iter().map(|column| column.key);
        let rows = self.rows.iter();
        records(names, rows.map(|row| row.iter().map(Cell::exact).collect()))
    }
}

fn is_absent(value: &Value) -> bool {
    value.is_null() || value == ""
}

fn compared(one: &Value, other: &Value) -> Ordering {
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => one.total_cmp(&other),
        _ => text(one).cmp(&text(other)),
    }
}

/// As CSV, below their names.
pub(super) fn records(
    names: impl Iterator<Item = impl AsRef<[u8]>>,
    rows: impl IntoIterator<Item = Vec<String>>,
) -> Result<String, Failure> {
    let mut csv = csv::Writer::from_writer(Vec::new());
    csv.write_record(names)?;
    for row in rows {
        csv.write_record(row)?;
    }
    Ok(String::from_utf8(csv.into_inner()?)?)
}

/// A value in a cell.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
