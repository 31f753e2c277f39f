//! What a command shows.

use super::{Cell, Column, Form, Look, Output, Sheet, Tone, bytes, sheet};
use crate::Failure;
use serde::Serialize;
use serde_json::{Value, json};

/// All of it as a value for programs, and its parts for people.
pub struct Page {
    value: Value,
    parts: Vec<Part>,
}

/// Position of a list that is of no ledger, or of a service without positions.
pub const NO_POSITION: u64 = 0;

/// Returns the ledger position that answers at all of these positions include.
pub fn earliest(positions: impl IntoIterator<Item = u64>) -> u64 {
    positions.into_iter().min().unwrap_or(NO_POSITION)
}

enum Part {
    Text(String),
    Fields(Fields),
    Sheet(Sheet),
    /// For programs alone, who are told it as it is.
    Rows(Sheet),
    /// For people alone.
    Table(Sheet),
}

/// One thing: a line for each of its fields.
#[derive(Default)]
pub struct Fields(Vec<(Column, Cell)>);

impl Fields {
    pub fn add(mut self, key: &'static str, title: &'static str, cell: Cell) -> Self {
        self.0.push((sheet::column(key, title), cell));
        self
    }

    fn text(&self) -> String {
        let titles = self
            .0
            .iter()
            .map(|(column, _)| column.title.chars().count());
        let width = titles.max().unwrap_or(0) + 2;
        let lines = self
            .0
            .iter()
            .map(|(column, cell)| format!("{:<width$}{}", column.title, cell.text));
        lines.collect::<Vec<_>>().join("\n")
    }

    fn record(&self) -> Value {
        let fields = self.0.iter();
        let fields = fields.map(|(column, cell)| (column.key.to_owned(), cell.value()));
        Value::Object(fields.collect())
    }

    /// As a table of one row.
    fn sheet(&self) -> Sheet {
        let (columns, row) = self.0.iter().cloned().unzip();
        Sheet::new(columns, self.0.len(), vec![row])
    }
}

impl Page {
    pub fn new(value: Value) -> Self {
        let parts = Vec::new();
        Self { value, parts }
    }

    /// A list for programs: `items`, and in `as_of` the ledger position that all of them include.
    pub fn list(items: Value, as_of: u64) -> Self {
        let as_of = Some(as_of).filter(|lsn| *lsn != NO_POSITION);
        Self::new(json!({ "items": items, "as_of": as_of }))
    }

    /// The rows of a table, and nothing else; in words what there is without any.
    pub fn of(sheet: Sheet, as_of: u64, none: &str) -> Self {
        Self::list(sheet.records(), as_of).sheet_or(sheet, none)
    }

    /// Adds to a value for programs.
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.value[key] = value.into();
        self
    }

    /// The fields of one thing, and nothing else.
    pub fn one(fields: Fields) -> Self {
        let value = fields.record();
        Self::new(value).fields(fields)
    }

    /// The fields of one thing for programs, and for people a sentence.
    pub fn said(text: impl Into<String>, fields: Fields) -> Self {
        Self::new(fields.record()).text(text).rows(fields.sheet())
    }

    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.parts.push(Part::Text(text.into()));
        self
    }

    /// For people a value as YAML, below what it is.
    pub fn document(self, title: &str, value: &Value) -> Result<Self, Failure> {
        let text = yaml(value)?;
        let lines = text.lines().map(|line| format!("  {line}"));
        Ok(self.text(title).lines(lines))
    }

    pub fn lines(self, lines: impl IntoIterator<Item = String>) -> Self {
        lines.into_iter().fold(self, Self::text)
    }

    pub fn fields(mut self, fields: Fields) -> Self {
        self.parts.push(Part::Fields(fields));
        self
    }

    pub fn sheet(mut self, sheet: Sheet) -> Self {
        self.parts.push(Part::Sheet(sheet));
        self
    }

    /// A table for programs alone.
    pub fn rows(mut self, sheet: Sheet) -> Self {
        self.parts.push(Part::Rows(sheet));
        self
    }

    /// A table for people alone, with sums among its rows.
    pub fn table(mut self, sheet: Sheet) -> Self {
        self.parts.push(Part::Table(sheet));
        self
    }

    /// For people words instead of a table without rows. Programs get its columns.
    pub fn sheet_or(self, sheet: Sheet, none: &str) -> Self {
        match sheet.rows.is_empty() {
            true => self.sheet(sheet).text(none),
            false => self.sheet(sheet),
        }
    }

    pub fn print(&self, output: Output) -> Result<(), Failure> {
        let form = output.form;
        let text = self.looking(form, Look::here(form))?;
        bytes(text.as_bytes())
    }

    /// Returns the page as it is written without a terminal.
    #[cfg(test)]
    pub fn written(&self, form: Form) -> Result<String, Failure> {
        let wide = form == Form::Wide;
        let look = Look {
            wide,
            ..Look::default()
        };
        self.looking(form, look)
    }

    fn looking(&self, form: Form, look: Look) -> Result<String, Failure> {
        match form {
            Form::Table | Form::Wide => Ok(self.for_people(look)),
            Form::Json => Ok(format!("{:#}\n", self.value)),
            Form::Yaml => yaml(&self.value),
            Form::Csv => self.csv(),
        }
    }

    fn for_people(&self, look: Look) -> String {
        let mut text = String::new();
        let mut hidden: Vec<&str> = Vec::new();
        // A table, and what has fields, stands apart from another one.
        let mut stands_apart = false;
        for part in &self.parts {
            let (part, is_text) = match part {
                Part::Rows(_) => continue,
                Part::Sheet(sheet) | Part::Table(sheet) if sheet.rows.is_empty() => continue,
                Part::Text(text) => (text.clone(), true),
                Part::Fields(fields) => (fields.text(), false),
                Part::Sheet(sheet) | Part::Table(sheet) => {
                    let (table, left_out) = sheet.for_people(look);
                    hidden.extend(left_out);
                    (table, false)
                }
            };
            if stands_apart && !is_text {
                text.push('\n');
            }
            stands_apart = !is_text;
            text.push_str(&part);
            text.push('\n');
        }
        if !hidden.is_empty() {
            let remark = format!("(-o wide also shows {})", hidden.join(", "));
            text += &look.painted(&remark, Tone::Faint);
            text.push('\n');
        }
        text
    }

    /// The tables one after the other, with an empty line between them; without any the value's own fields as one row.
    fn csv(&self) -> Result<String, Failure> {
        let sheets = self.parts.iter().filter_map(|part| match part {
            Part::Text(_) | Part::Table(_) => None,
            Part::Fields(fields) => Some(fields.sheet().csv()),
            Part::Sheet(sheet) | Part::Rows(sheet) => Some(sheet.csv()),
        });
        let sheets = sheets.collect::<Result<Vec<_>, _>>()?;
        match (sheets.is_empty(), &self.value) {
            (true, Value::Object(fields)) => {
                sheet::records(fields.keys(), [fields.values().map(sheet::text).collect()])
            }
            _ => Ok(sheets.join("\n")),
        }
    }
}

fn yaml(value: &impl Serialize) -> Result<String, Failure> {
    Ok(serde_saphyr::to_string(value)?)
}

#[cfg(test)]
mod tests {
    use super::{super::*, *};
    use serde_json::json;

    fn page() -> Page {
        let columns = vec![
            column("node", "node"),
            wide("zone", "zone"),
            column("memory_bytes", "memory"),
        ];
        let row = |node, bytes: u64| {
            let memory = valued(format!("{}.0 GiB", bytes >> 30), bytes);
            vec![plain(node), named(""), memory]
        };
        let sheet = Sheet::new(columns, 2, vec![row("n1", 1 << 30), row("n,2", 16 << 30)]);
        let fields = Fields::default().add("cell", "cell", plain("c1")).add(
            "at_ms",
            "as of",
            valued("1970-01-01T00:00:01Z".to_owned(), 1000),
        );
        let value = json!({"cell": "c1", "at_ms": 1000, "nodes": sheet.records()});
        Page::new(value).fields(fields).sheet(sheet).text("2 nodes")
    }

    fn check(page: &Page, form: Form, expected: &str) {
        assert_eq!(page.written(form).unwrap(), expected, "{form:?}");
    }

    #[test]
    fn people_read_units_and_programs_numbers() {
        let page = page();
        let head = "cell   c1\nas of  1970-01-01T00:00:01Z\n\n";
        let table = "node    memory\nn1     1.0 GiB\nn,2   16.0 GiB\n2 nodes\n";
        check(&page, Form::Table, &format!("{head}{table}"));
        let table = "node  zone    memory\nn1    -      1.0 GiB\nn,2   -     16.0 GiB\n2 nodes\n";
        check(&page, Form::Wide, &format!("{head}{table}"));
        let csv =
            "cell,at_ms\nc1,1000\n\nnode,zone,memory_bytes\nn1,,1073741824\n\"n,2\",,17179869184\n";
        check(&page, Form::Csv, csv);
        let json: Value = serde_json::from_str(&page.written(Form::Json).unwrap()).unwrap();
        assert_eq!(json, page.value);
        let yaml = "at_ms: 1000\ncell: c1\nnodes:\n- memory_bytes: 1073741824\n  node: n1\n  zone: null\n\
                    - memory_bytes: 17179869184\n  node: n,2\n  zone: null\n";
        check(&page, Form::Yaml, yaml);
    }

    #[test]
    fn without_tables_a_row_has_the_fields_of_the_value() {
        let page = Page::new(json!({"a": 1, "b": [1, 2], "c": null, "d": "x,y"})).text("in words");
        check(&page, Form::Table, "in words\n");
        check(&page, Form::Csv, "a,b,c,d\n1,\"[1,2]\",,\"x,y\"\n");
    }

    #[test]
    fn columns_are_chosen_and_rows_put_in_order() {
        let rows = [("b", Some(2)), ("a", None), ("c", Some(10))].map(|(name, number)| {
            let number = number.map_or_else(|| named(""), |it: i32| super::super::number(it));
            vec![plain(name), named("z1"), number]
        });
        let columns = vec![
            column("node", "node"),
            wide("zone", "zone"),
            column("runs", "runs"),
        ];
        let sheet = Sheet::new(columns, 2, rows.to_vec());
        // What has none comes last, either way, and numbers are no texts.
        assert_eq!(sheet.order_by("runs", false), Ok(vec![0, 2, 1]));
        assert_eq!(sheet.order_by("runs", true), Ok(vec![2, 0, 1]));
        assert_eq!(sheet.order_by("node", false), Ok(vec![1, 0, 2]));
        let chosen = ["runs", "zone", "node"].map(str::to_owned);
        let chosen = sheet.clone().only(&chosen).unwrap();
        let page = Page::of(chosen, NO_POSITION, "");
        let table = "runs  zone  node\n2     z1    b\n-     z1    a\n10    z1    c\n";
        check(&page, Form::Table, table);
        check(&page, Form::Csv, "runs,zone,node\n2,z1,b\n,z1,a\n10,z1,c\n");
        let wrong = sheet.only(&["nodes".to_owned()]).unwrap_err();
        assert_eq!(wrong, "there is no such column; there are node, zone, runs");
    }

    #[test]
    fn a_terminal_has_short_ids_and_what_fits_into_it() {
        let id = "00000000-0000-0001-0000-00000000a035";
        let long = "a-name-as-long-as-names-may-be-which-is-sixty-four-characters-xx";
        let columns = vec![
            column("allocation_id", "allocation"),
            column("name", "name"),
            column("job_set", "job set").rank(2),
            column("state", "state"),
            column("queue", "queue").rank(1),
            column("age_ms", "age"),
        ];
        let row = vec![
            allocation(id),
            plain(long),
            plain("js"),
            plain("waits: no room now").tone(Tone::Waits),
            plain(long),
            valued("3m".to_owned(), 180_000),
        ];
        let page = Page::of(Sheet::new(columns, 5, vec![row]), NO_POSITION, "");
        let look = |width, colours| Look {
            wide: false,
            width: Some(width),
            colours,
        };
        let check = |look, expected: &str| assert_eq!(page.for_people(look), expected);
        let head = "allocation  name                  job set  state               queue                 age\n";
        let row = "a035        a-name-as-long-as-n…  js       waits: no room now  a-name-as-long-as-n…   3m\n";
        check(look(88, false), &format!("{head}{row}"));
        let narrow = "allocation  name                state\na035        a-name-as-long-as…  waits: no room now\n";
        let remark = "(-o wide also shows job set, queue, age)";
        check(look(50, false), &format!("{narrow}{remark}\n"));
        let coloured = page.for_people(look(50, true));
        assert!(
            coloured.contains("\x1b[33mwaits: no room now\x1b[0m\n"),
            "{coloured}"
        );
        assert!(
            coloured.ends_with("\x1b[2m(-o wide also shows job set, queue, age)\x1b[0m\n"),
            "{coloured}"
        );
        let whole = page.written(Form::Table).unwrap();
        assert!(whole.contains(id) && whole.contains(long), "{whole}");
    }

    #[test]
    fn nothing_is_said_in_words() {
        let sheet = Sheet::new(vec![column("node", "node")], 1, vec![]);
        let page = Page::of(sheet.clone(), NO_POSITION, "no nodes");
        check(&page, Form::Table, "no nodes\n");
        check(&page, Form::Csv, "node\n");
        let json = "{\n  \"as_of\": null,\n  \"items\": []\n}\n";
        check(&page, Form::Json, json);
        check(
            &Page::of(sheet, 7, "no nodes").with("next", Value::Null),
            Form::Yaml,
            "as_of: 7\nitems: []\nnext: null\n",
        );
    }

    #[test]
    fn texts_that_look_like_something_else_stay_texts_in_yaml() {
        for text in [
            "yes",
            "null",
            "1.5",
            "1e3",
            "2026-11-03",
            "- a",
            "a: b",
            "#",
            "",
            "0x10",
            "~",
        ] {
            let written = yaml(&json!({ "key": text })).unwrap();
            let value = written.trim_end().strip_prefix("key: ").unwrap();
            let quoted = value.starts_with(['\'', '"']);
            assert!(quoted || text == "2026-11-03", "{written}");
        }
    }
}
