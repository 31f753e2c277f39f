//! A table: for people, for programs and for the page of a report.

use super::{Look, Tone};
use crate::{Failure, amount};
use serde::{Serialize, Serializer};
use serde_json::{Map, Number, Value};
use std::cmp::Ordering;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};
use vocab::{AllocationId, Millis, ResourceKind, human};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Column {
    /// For programs.
    #[serde(skip)]
    pub key: &'static str,
    pub title: &'static str,
    /// Only people who ask for more see it.
    #[serde(skip)]
    wide: bool,
    /// Order in which columns are left out of a narrow terminal: higher ranks first, and of one rank the rightmost.
    #[serde(skip)]
    rank: u8,
}

pub const fn column(key: &'static str, title: &'static str) -> Column {
    Column {
        key,
        title,
        wide: false,
        rank: 0,
    }
}

pub const fn wide(key: &'static str, title: &'static str) -> Column {
    Column {
        wide: true,
        ..column(key, title)
    }
}

impl Column {
    /// Leaves the column out of a terminal that is too narrow before those of lower ranks.
    pub const fn rank(self, rank: u8) -> Self {
        Self { rank, ..self }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    /// For people, with its unit.
    pub text: String,
    /// For people at a terminal; `None`: the same.
    #[serde(skip)]
    short: Option<String>,
    #[serde(skip)]
    tone: Tone,
    /// For programs; none: the same.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "digits")]
    exact: Option<Value>,
}

/// Writes a number as text: a page reads numbers of JSON as doubles, which lose digits above 2^53.
fn digits<S: Serializer>(exact: &Option<Value>, to: S) -> Result<S::Ok, S::Error> {
    match exact {
        Some(Value::Number(number)) => to.collect_str(number),
        exact => exact.serialize(to),
    }
}

impl Cell {
    fn new(text: String, exact: Option<Value>) -> Self {
        Self {
            text,
            short: None,
            tone: Tone::default(),
            exact,
        }
    }

    pub fn value(&self) -> Value {
        let text = || Value::String(self.text.clone());
        self.exact.clone().unwrap_or_else(text)
    }

    pub fn exact(&self) -> String {
        text(&self.value())
    }

    /// Colours the cell, where a terminal has colours.
    pub fn tone(self, tone: Tone) -> Self {
        Self { tone, ..self }
    }

    /// The text on one line.
    fn shown(&self, at_terminal: bool) -> String {
        let short = self.short.as_ref().filter(|_| at_terminal);
        short.unwrap_or(&self.text).replace('\n', " ")
    }

    /// Returns whether it is no number, so that its text may be cut.
    fn is_words(&self) -> bool {
        matches!(self.exact, None | Some(Value::String(_) | Value::Null))
    }
}

pub fn plain(text: impl ToString) -> Cell {
    Cell::new(text.to_string(), None)
}

/// The ID of an allocation. At a terminal its last digits, which commands take as well.
pub fn allocation(id: &str) -> Cell {
    let number = AllocationId::parse(id).and_then(|_| id.get(19..));
    let digits = number.map(|number| number.replace('-', ""));
    Cell {
        short: digits.map(|it| match it.trim_start_matches('0') {
            "" => "0".to_owned(),
            digits => digits.to_owned(),
        }),
        ..named(id)
    }
}

/// A name; an empty one is absent.
pub fn named(name: &str) -> Cell {
    match name {
        "" => absent("-"),
        name => plain(name),
    }
}

/// Words for people, and nothing for programs.
pub fn absent(text: &str) -> Cell {
    Cell::new(text.to_owned(), Some(Value::Null))
}

/// With another text for programs; an empty one is absent.
pub fn exactly(text: String, exact: impl ToString) -> Cell {
    let exact = match exact.to_string() {
        exact if exact.is_empty() => Some(Value::Null),
        exact if exact == text => None,
        exact => Some(Value::String(exact)),
    };
    Cell::new(text, exact)
}

/// With a number for programs.
pub fn counted(text: String, number: impl ToString) -> Cell {
    Cell::new(text, Some(exact_number(number)))
}

/// A number of JSON. An integer beyond 64 bits is written as a text, so that no digit is lost.
pub fn exact_number(number: impl ToString) -> Value {
    let text = number.to_string();
    let found: Option<Number> = serde_json::from_str(&text).ok();
    let is_whole = |number: &Number| !number.is_f64() || text.contains('.');
    match found.filter(is_whole) {
        Some(number) => Value::Number(number),
        None => Value::String(text),
    }
}

/// With a value of its own kind for programs.
pub fn valued(text: String, exact: impl Into<Value>) -> Cell {
    Cell::new(text, Some(exact.into()))
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
        0 => absent("-"),
        ms => moment(ms),
    }
}

/// How long it may take, in milliseconds; 0: for ever.
pub fn bound(ms: u64) -> Cell {
    match i64::try_from(ms) {
        Ok(0) => absent("-"),
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
    /// The command line names its columns, so that none is left out.
    #[serde(skip)]
    pub is_chosen: bool,
}

/// Columns of a terminal between two of the table.
const GAP: usize = 2;
/// A text is not cut to fewer columns while others can be left out.
const CUT: usize = 16;
/// Sign for the rest of a text that was cut.
const REST: char = '…';

/// Columns of a table as a terminal of a width shows them.
struct Fitted {
    /// Numbers and widths of the columns.
    shown: Vec<(usize, usize)>,
    /// Titles of those that were left out.
    hidden: Vec<&'static str>,
}

impl Sheet {
    pub fn new(columns: Vec<Column>, numbers: usize, rows: Vec<Vec<Cell>>) -> Self {
        Self {
            columns,
            numbers,
            rows,
            total: None,
            is_chosen: false,
        }
    }

    /// Returns the table, and the titles of columns that are left out for want of width.
    pub(super) fn for_people(&self, look: Look) -> (String, Vec<&'static str>) {
        let Fitted { shown, hidden } = self.fitted(look);
        let is_number = |no: usize| no >= self.numbers;
        let titles = shown.iter().map(|(no, width)| {
            let title = cut(self.columns[*no].title, *width);
            (title, *width, is_number(*no), Tone::Title)
        });
        let mut text = line(titles, look);
        for row in self.rows.iter().chain(&self.total) {
            let cells = shown.iter().map(|(no, width)| {
                let cell = &row[*no];
                let text = cut(&cell.shown(look.width.is_some()), *width);
                (text, *width, is_number(*no), cell.tone)
            });
            text.push('\n');
            text += &line(cells, look);
        }
        (text, hidden)
    }

    /// Leaves columns out by rank, the first never, until texts that are cut to `CUT` fit; then gives the texts all the width
    /// that is left. Numbers and moments are not cut.
    fn fitted(&self, look: Look) -> Fitted {
        let at_terminal = look.width.is_some();
        let natural = |no: &usize| {
            let rows = self.rows.iter().chain(&self.total);
            let cells = rows.map(|row| row[*no].shown(at_terminal).width());
            cells.chain([self.columns[*no].title.width()]).max()
        };
        let visible = (0..self.columns.len()).filter(|no| look.wide || !self.columns[*no].wide);
        let mut shown: Vec<(usize, usize)> =
            visible.map(|no| (no, natural(&no).unwrap_or(0))).collect();
        let Some(most) = look.width else {
            let hidden = Vec::new();
            return Fitted { shown, hidden };
        };
        let mut hidden = Vec::new();
        let is_words = |no: usize| {
            let rows = self.rows.iter().chain(&self.total);
            rows.map(|row| &row[no]).all(Cell::is_words)
        };
        let cut_to = |&(no, width): &(usize, usize), to: usize| match is_words(no) {
            true => width.min(to.max(self.columns[no].title.width())),
            false => width,
        };
        let all = |shown: &[(usize, usize)], to: usize| {
            let widths: usize = shown.iter().map(|one| cut_to(one, to)).sum();
            widths + GAP * shown.len().saturating_sub(1)
        };
        while !self.is_chosen && shown.len() > 1 && all(&shown, CUT) > most {
            let ranks = shown.iter().enumerate().skip(1);
            let last = ranks.max_by_key(|(at, (no, _))| (self.columns[*no].rank, *at));
            let (at, _) = last.unwrap_or((shown.len() - 1, &(0, 0)));
            let (no, _) = shown.remove(at);
            hidden.push((no, self.columns[no].title));
        }
        hidden.sort_unstable_by_key(|(no, _)| *no);
        let longest = shown.iter().map(|(_, width)| *width).max().unwrap_or(0);
        let to = (CUT..=longest).rev().find(|to| all(&shown, *to) <= most);
        let to = to.unwrap_or(CUT);
        for one in &mut shown {
            one.1 = cut_to(one, to).min(most);
        }
        let hidden = hidden.into_iter().map(|(_, title)| title).collect();
        Fitted { shown, hidden }
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
        self.is_chosen = true;
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

/// A line of a table: each text with its width, whether it stands at the right, and its tone.
fn line(cells: impl Iterator<Item = (String, usize, bool, Tone)>, look: Look) -> String {
    let mut line = String::new();
    // Of a text at the left, written before the next one.
    let mut spaces = 0;
    for (no, (text, width, is_right, tone)) in cells.enumerate() {
        let free = width.saturating_sub(text.width());
        let before = if no > 0 { GAP } else { 0 };
        let (left, right) = if is_right { (free, 0) } else { (0, free) };
        line += &" ".repeat(spaces + before + left);
        line += &look.painted(&text, tone);
        spaces = right;
    }
    line
}

/// The titles of the columns that are shown.
#[cfg(test)]
pub fn titles(sheet: &Sheet, look: Look) -> Vec<&'static str> {
    let shown = sheet.fitted(look).shown.into_iter();
    shown.map(|(no, _)| sheet.columns[no].title).collect()
}

/// The beginning of a text that takes no more columns than this.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut begin = String::new();
    let mut free = width.saturating_sub(1);
    for c in text.chars() {
        match free.checked_sub(c.width().unwrap_or(0)) {
            Some(left) => free = left,
            None => break,
        }
        begin.push(c);
    }
    begin.push(REST);
    begin
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_gets_all_digits() {
        let check = |cell: Cell, expected: &str| {
            let found = serde_json::to_string(&cell).expect("a cell is JSON");
            assert_eq!(found, expected);
        };
        let bytes = 18_296_251_443_314_689_u64;
        check(
            counted("5 GiBh".to_owned(), bytes),
            r#"{"text":"5 GiBh","exact":"18296251443314689"}"#,
        );
        check(absent("-"), r#"{"text":"-","exact":null}"#);
        check(plain("a"), r#"{"text":"a"}"#);
    }
}
