//! A table of a report: for people, for programs and for the page.

use super::super::{named as or_dash, table};
use crate::{Failure, amount};
use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Map, Value, json};
use vocab::Millis;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    Table,
    Json,
    Csv,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Column {
    /// For programs.
    #[serde(skip)]
    pub key: &'static str,
    pub title: &'static str,
}

pub const fn column(key: &'static str, title: &'static str) -> Column {
    Column { key, title }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// For people, with its unit.
    pub text: String,
    /// For programs; none: the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exact: Option<String>,
}

impl Cell {
    pub fn exact(&self) -> &str {
        self.exact.as_deref().unwrap_or(&self.text)
    }
}

pub fn plain(text: impl ToString) -> Cell {
    let (text, exact) = (text.to_string(), None);
    Cell { text, exact }
}

/// A name that may be empty.
pub fn named(name: &str) -> Cell {
    exactly(or_dash(name), name)
}

pub fn exactly(text: String, exact: impl ToString) -> Cell {
    let exact = Some(exact.to_string()).filter(|exact| *exact != text);
    Cell { text, exact }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sheet {
    pub columns: Vec<Column>,
    /// Columns from here on are numbers.
    pub numbers: usize,
    pub rows: Vec<Vec<Cell>>,
    /// The sum of the rows, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<Vec<Cell>>,
}

/// Up to when everything is in a sheet, and what its amounts are millionths of.
#[derive(Debug, Clone)]
pub struct About {
    pub through: Millis,
    pub currency: String,
}

impl Sheet {
    pub fn new(columns: Vec<Column>, numbers: usize, rows: Vec<Vec<Cell>>) -> Self {
        Self {
            columns,
            numbers,
            rows,
            total: None,
        }
    }

    pub fn print(&self, about: &About, output: Output) -> Result<(), Failure> {
        print(&[("lines", self)], about, output)
    }

    fn for_people(&self, about: &About) -> String {
        let through = amount::moment(about.through);
        if self.rows.is_empty() {
            return format!("nothing, up to {through}");
        }
        let head: Vec<&str> = self.columns.iter().map(|column| column.title).collect();
        let texts = |row: &Vec<Cell>| row.iter().map(|cell| cell.text.clone()).collect();
        let rows = self.rows.iter().chain(&self.total).map(texts).collect();
        let has_money = self
            .columns
            .iter()
            .any(|column| column.key.ends_with("_micro"));
        let currency = match has_money {
            true => format!("amounts in {}, ", about.currency),
            false => String::new(),
        };
        let table = table(&head, rows, self.numbers);
        format!("{table}\n{currency}up to {through}")
    }

    /// Quantities and amounts are texts: they may be above what a number of JSON holds exactly.
    fn json(&self) -> Value {
        let line = |row: &Vec<Cell>| {
            let values = self.columns.iter().zip(row);
            let values = values
                .map(|(column, cell)| (column.key.to_owned(), cell.exact().to_owned().into()));
            Value::Object(values.collect::<Map<_, _>>())
        };
        self.rows.iter().map(line).collect()
    }

    fn csv(&self) -> Result<String, Failure> {
        let mut csv = csv::Writer::from_writer(Vec::new());
        csv.write_record(self.columns.iter().map(|column| column.key))?;
        for row in &self.rows {
            csv.write_record(row.iter().map(Cell::exact))?;
        }
        Ok(String::from_utf8(csv.into_inner()?)?)
    }
}

/// Several sheets with their names, one after the other.
pub fn print(
    sheets: &[(&'static str, &Sheet)],
    about: &About,
    output: Output,
) -> Result<(), Failure> {
    match output {
        Output::Table => {
            let texts = sheets.iter().map(|(_, sheet)| sheet.for_people(about));
            println!("{}", texts.collect::<Vec<_>>().join("\n\n"));
        }
        Output::Json => println!("{:#}", json(sheets, about)),
        Output::Csv => {
            let texts: Result<Vec<String>, Failure> =
                sheets.iter().map(|(_, sheet)| sheet.csv()).collect();
            print!("{}", texts?.join("\n"));
        }
    }
    Ok(())
}

fn json(sheets: &[(&'static str, &Sheet)], about: &About) -> Value {
    let mut all = json!({ "through_ms": about.through.0, "currency": about.currency });
    for (name, sheet) in sheets {
        all[*name] = sheet.json();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sheet() -> Sheet {
        let columns = vec![column("team", "team"), column("amount_micro", "amount")];
        let cost = exactly("1.500000 EUR".to_owned(), 1_500_000);
        let rows = vec![
            vec![named(""), cost.clone()],
            vec![named("a,\"b"), cost.clone()],
        ];
        Sheet {
            total: Some(vec![plain("total"), cost]),
            ..Sheet::new(columns, 1, rows)
        }
    }

    fn about() -> About {
        About {
            through: Millis(0),
            currency: "EUR".to_owned(),
        }
    }

    #[test]
    fn people_read_units_and_programs_numbers() {
        let text = sheet().for_people(&about());
        let expected = [
            "team",
            "-",
            "a,\"b",
            "total",
            "amounts in EUR, up to 1970-01-01T00:00:00Z",
        ];
        assert!(
            text.lines()
                .zip(expected)
                .all(|(line, begins)| line.trim_start().starts_with(begins)),
            "{text}"
        );
        assert_eq!(text.matches(" 1.500000 EUR").count(), 3);
        assert_eq!(
            sheet().csv().unwrap(),
            "team,amount_micro\n,1500000\n\"a,\"\"b\",1500000\n"
        );
        let json = json(&[("lines", &sheet())], &about());
        assert_eq!(
            json["lines"][0],
            json!({"team": "", "amount_micro": "1500000"})
        );
        assert_eq!(json["currency"], "EUR");
    }

    #[test]
    fn nothing_is_said_in_words() {
        let empty = Sheet::new(sheet().columns, 1, vec![]);
        assert_eq!(
            empty.for_people(&about()),
            "nothing, up to 1970-01-01T00:00:00Z"
        );
    }
}
