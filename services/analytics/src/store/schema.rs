//! The tables and views as they are to be, as they are, and how the first become the second.
//!
//! Tables are made of their rows, and ClickHouse keeps types, keys and settings as they are written. Of a view it keeps the
//! text in one form of its own, in which it also says what is expected.

use super::{
    SampleRow, Store, StoreError, comments,
    rows::{TABLES, of_ledger},
    within,
};
use clickhouse::sql::Identifier;
use std::collections::BTreeMap;
use table::{
    Drift, Snapshot, Subject, What,
    clickhouse::{quoted, snapshot},
    drift,
};

/// Made of the rows; a test compares.
const TABLES_SQL: &str = include_str!("../../../../schemas/clickhouse/0001_tables.sql");
const VIEWS_SQL: [&str; 2] = [
    include_str!("../../../../schemas/clickhouse/0002_views.sql"),
    include_str!("../../../../schemas/clickhouse/0003_reports.sql"),
];

/// What a database holds, by one query.
const CATALOGUE: &str = include_str!("catalogue.sql");

/// Tables and views of versions before, which go with the tables that were beside them.
const FORMER: &[&str] = &["usage_hourly_from_intervals", "node_entries"];

/// How often it is looked again whether all is there: somebody else may be making the same tables.
const ROUNDS: u32 = 5;

/// Statements end with a semicolon at the end of a line.
fn statements(file: &str) -> impl Iterator<Item = &str> {
    file.split(";\n").filter(|statement| {
        let code = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with("--");
        statement.lines().any(code)
    })
}

/// The statement that makes a table of the service. It names each in its first line.
pub(super) fn create_table(name: &str) -> &'static str {
    let head = format!("CREATE TABLE IF NOT EXISTS {name} (");
    statements(TABLES_SQL)
        .find_map(|statement| statement.find(&head).map(|at| &statement[at..]))
        .expect("the file has every table: a test compares")
}

/// One of the views by hand.
#[derive(Debug, PartialEq, Eq)]
struct View<'s> {
    name: &'s str,
    comment: String,
    select: &'s str,
}

impl<'s> View<'s> {
    fn of(statement: &'s str) -> Option<Self> {
        let (_, rest) = statement.split_once("VIEW IF NOT EXISTS ")?;
        let (name, select) = rest.split_once(" AS\n")?;
        let comment = comments::of_view(statement);
        Some(Self {
            name,
            comment,
            select,
        })
    }
}

/// In an order in which each finds those that it reads.
fn view_statements() -> impl Iterator<Item = &'static str> {
    VIEWS_SQL.into_iter().flat_map(statements)
}

fn views() -> Vec<View<'static>> {
    view_statements().filter_map(View::of).collect()
}

impl Store {
    /// Creates missing tables, columns and views, replaces views with the query of another build, and reports all other differences.
    /// If rows lack a value that only the ledger has, all its tables are created again, empty, and the ledger fills them; samples
    /// that lack a value are dropped. It can be repeated, and called by several processes at once.
    pub async fn ensure(&self) -> Result<Vec<Drift>, StoreError> {
        self.create_database().await?;
        for _ in 0..ROUNDS {
            let drifts = self.diff().await?;
            let mends = |drift: &Drift| drift.is_missing() || is_another_view(drift);
            if !drifts.iter().any(mends) {
                return Ok(drifts);
            }
            match self.mend(&drifts).await {
                // Somebody else has dropped them meanwhile, to make them anew.
                Ok(()) | Err(StoreError::Moved) => {}
                Err(error) => return Err(error),
            }
        }
        self.diff().await
    }

    /// How the tables differ from what they are to be. Changes nothing.
    pub async fn diff(&self) -> Result<Vec<Drift>, StoreError> {
        let found = self.found().await?;
        Ok(drift(&self.expected(&found).await?, &found))
    }

    async fn create_database(&self) -> Result<(), StoreError> {
        let create = self.server.query("CREATE DATABASE IF NOT EXISTS ?");
        within(create.bind(Identifier(&self.database)).execute()).await
    }

    async fn mend(&self, drifts: &[Drift]) -> Result<(), StoreError> {
        let missing = |of_samples: bool, what| {
            let mut missing = drifts.iter().filter(|drift| drift.is_missing());
            missing.any(|Drift { subject, .. }| {
                let samples = subject.table == SampleRow::NAME;
                samples == of_samples && subject.what == what
            })
        };
        let of_ledger = |what| missing(false, what);
        if of_ledger(What::Column) || of_ledger(What::Table) && self.hold_rows().await? {
            tracing::warn!("tables or columns are missing: all tables are made anew of the ledger");
            self.drop_all().await?;
        }
        if missing(true, What::Column) {
            self.drop_table(SampleRow::NAME).await?;
        }
        if [What::Table, What::View, What::Column]
            .into_iter()
            .any(|what| of_ledger(what) || missing(true, what))
        {
            for statement in statements(TABLES_SQL).chain(view_statements()) {
                self.execute(statement).await?;
            }
        }
        let replaced = |view: &str| {
            let mut others = drifts.iter().filter(|drift| is_another_view(drift));
            others.any(|drift| drift.subject.table == view)
        };
        for View { name, select, .. } in views() {
            if replaced(name) {
                tracing::info!(view = name, "view replaced");
                let create = format!("CREATE OR REPLACE VIEW {name} AS\n{select}");
                self.execute(&create).await?;
            }
        }
        for statement in mends(drifts) {
            tracing::info!(statement, "tables mended");
            self.execute(&statement).await?;
        }
        Ok(())
    }

    pub(super) async fn hold_rows(&self) -> Result<bool, StoreError> {
        let names: Vec<&str> = of_ledger().map(|table| table.name).collect();
        let query = "SELECT toUInt64(ifNull(sum(total_rows), 0)) FROM system.tables WHERE database = ? AND name IN ?";
        let query = self.server.query(query).bind(&self.database).bind(names);
        let rows: u64 = self.fetch_one(query).await?;
        Ok(rows > 0)
    }

    /// The ranges behind the others, as when the tables are emptied. What writes into them goes first.
    async fn drop_all(&self) -> Result<(), StoreError> {
        for name in FORMER {
            self.drop_table(name).await?;
        }
        for View { name, .. } in views() {
            self.execute(&format!("DROP VIEW IF EXISTS {name}")).await?;
        }
        for table in of_ledger().rev() {
            self.drop_table(table.name).await?;
        }
        Ok(())
    }

    async fn drop_table(&self, name: &str) -> Result<(), StoreError> {
        self.execute(&format!("DROP TABLE IF EXISTS {name} SYNC"))
            .await
    }

    /// Which columns a view has follows from its query, and the server says it.
    async fn expected(&self, found: &Snapshot) -> Result<Snapshot, StoreError> {
        let views = views();
        let selects: Vec<&str> = views.iter().map(|view| view.select).collect();
        let format = "SELECT formatQuerySingleLine(arrayJoin(?))";
        let format = self.server.query(format).bind(selects);
        let texts: Vec<String> = self.fetch_all(format).await?;
        let mut expected = snapshot(TABLES);
        for (View { name, comment, .. }, text) in views.into_iter().zip(texts) {
            let mut says = |what, column: &str, said: String| {
                let subject = Subject {
                    table: name.to_owned(),
                    what,
                    name: column.to_owned(),
                };
                expected.0.insert(subject, said);
            };
            says(What::View, "", self.unqualified(&text));
            says(What::Comment, "", comment);
            let parts = found.0.keys().filter(|part| part.table == name);
            for column in parts.filter(|part| part.what == What::Column) {
                says(What::Column, &column.name, String::new());
                if let Some(comment) = comments::of_column(name, &column.name) {
                    says(What::Comment, &column.name, comment.to_owned());
                }
            }
        }
        Ok(expected)
    }

    pub(super) async fn found(&self) -> Result<Snapshot, StoreError> {
        let query = CATALOGUE.replace("$DATABASE", &quoted(&self.database));
        let rows: Vec<(String, String, String, String)> =
            self.fetch_all(self.server.query_raw(&query)).await?;
        let facts = rows.into_iter().filter_map(|(table, what, name, said)| {
            let what = What::parse(&what)?;
            let said = match what {
                What::View => self.unqualified(&said),
                _ => said,
            };
            Some((Subject { table, what, name }, said))
        });
        Ok(Snapshot(facts.collect()))
    }

    /// Without the database, which the server adds to the names of tables.
    fn unqualified(&self, text: &str) -> String {
        let database = &self.database;
        text.replace(&format!("`{database}`."), "")
            .replace(&format!("{database}."), "")
    }
}

/// Returns whether a view has another query. A view holds no rows, so it can be replaced.
fn is_another_view(drift: &Drift) -> bool {
    drift.subject.what == What::View && drift.expected.is_some() && drift.found.is_some()
}

/// What makes the parts that are missing and are not made with their table: defaults, and all comments of a table at once.
fn mends(drifts: &[Drift]) -> Vec<String> {
    let missing = drifts.iter().filter(|drift| drift.is_missing());
    let mut changes: BTreeMap<(&str, bool), Vec<String>> = BTreeMap::new();
    for Drift {
        subject: Subject { table, what, name },
        expected,
        ..
    } in missing
    {
        let definition = expected.as_deref().unwrap_or_default();
        let text = quoted(definition);
        let change = match what {
            What::Default => format!("MODIFY COLUMN {name} DEFAULT {definition}"),
            What::Comment if name.is_empty() => format!("MODIFY COMMENT {text}"),
            What::Comment => format!("COMMENT COLUMN {name} {text}"),
            _ => continue,
        };
        let of = (table.as_str(), *what == What::Comment);
        changes.entry(of).or_default().push(change);
    }
    let alter = |((table, _), changes): (_, Vec<String>)| {
        format!("ALTER TABLE {table} {}", changes.join(", "))
    };
    changes.into_iter().map(alter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_cut_into_statements() {
        let file = "-- a\nCREATE a;\n\n-- b; c\nCREATE 'x;y'\n;\n-- end\n";
        let found: Vec<&str> = statements(file).map(str::trim).collect();
        assert_eq!(found, ["-- a\nCREATE a", "-- b; c\nCREATE 'x;y'"]);
    }

    fn check(statement: &str, expected: Option<(&str, &str)>) {
        let found = View::of(statement);
        let found = found.map(|view| (view.name, view.select));
        assert_eq!(found, expected, "{statement}");
    }

    #[test]
    fn a_view_is_read() {
        check(
            "-- Of a.\nCREATE VIEW IF NOT EXISTS b AS\nSELECT c AS\nd",
            Some(("b", "SELECT c AS\nd")),
        );
        check("CREATE VIEW b AS\nSELECT c", None);
    }

    #[test]
    fn every_statement_of_the_files_is_a_view() {
        assert_eq!(views().len(), view_statements().count());
        assert!(views().len() > 5);
    }
}
