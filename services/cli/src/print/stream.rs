//! Rows that come one after the other, some of them much later.

use super::{Cell, Column, Form, Output, Sheet, line};
use crate::Failure;

pub struct Stream {
    form: Form,
    columns: Vec<Column>,
    begun: bool,
}

impl Stream {
    pub fn new(output: Output, columns: Vec<Column>) -> Self {
        Self {
            form: output.form,
            columns,
            begun: false,
        }
    }

    /// A line for people, and for programs an object of JSON on a line, an element of a list of YAML, or a line of CSV.
    pub fn row(&mut self, row: Vec<Cell>) -> Result<(), Failure> {
        let text = self.written(row)?;
        line(format_args!("{}", text.trim_end_matches('\n')))
    }

    fn written(&mut self, row: Vec<Cell>) -> Result<String, Failure> {
        let sheet = Sheet::new(self.columns.clone(), 0, vec![row]);
        let is_first = !std::mem::replace(&mut self.begun, true);
        Ok(match self.form {
            Form::Table | Form::Wide => {
                let texts = sheet.rows[0].iter().map(|cell| cell.text.as_str());
                texts.collect::<Vec<_>>().join(" ")
            }
            Form::Json => sheet.records()[0].to_string(),
            Form::Yaml => serde_saphyr::to_string(&sheet.records())?,
            Form::Csv if is_first => sheet.csv()?,
            Form::Csv => {
                let csv = sheet.csv()?;
                csv.split_once('\n')
                    .map_or(String::new(), |(_, rows)| rows.to_owned())
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::*, *};

    #[test]
    fn rows_are_written_one_by_one() {
        let check = |form, expected: [&str; 2]| {
            let columns = vec![column("at_ms", "at"), column("what", "what")];
            let mut stream = Stream::new(Output { form }, columns);
            let mut row = |at, what| stream.written(vec![moment(at), plain(what)]).unwrap();
            assert_eq!(
                [row(0, "placed"), row(1000, "ended, late")],
                expected,
                "{form:?}"
            );
        };
        let people = [
            "1970-01-01T00:00:00Z placed",
            "1970-01-01T00:00:01Z ended, late",
        ];
        check(Form::Table, people);
        check(Form::Wide, people);
        check(
            Form::Json,
            [
                r#"{"at_ms":0,"what":"placed"}"#,
                r#"{"at_ms":1000,"what":"ended, late"}"#,
            ],
        );
        check(
            Form::Yaml,
            [
                "- at_ms: 0\n  what: placed\n",
                "- at_ms: 1000\n  what: ended, late\n",
            ],
        );
        check(
            Form::Csv,
            ["at_ms,what\n0,placed\n", "1000,\"ended, late\"\n"],
        );
    }
}
