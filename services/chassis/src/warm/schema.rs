//! The tables as they are to be, as they are, and how the first become the second.
//!
//! What Postgres makes of an expression is not what was written. So the server itself says what is expected: the DDL is run
//! into the session's temporary schema, read from the catalogue, and taken back.

use super::WarmError;
use sqlx::{Connection, Executor, PgConnection, raw_sql};
use std::collections::BTreeSet;
use table::{Drift, Snapshot, Subject, What, drift};

/// Those who make tables of one schema at once do it one after the other; the lock ends with the transaction.
const LOCK: &str =
    "SELECT pg_advisory_xact_lock(hashtext('apportion schema'), hashtext(current_schema()))";

/// Everything that a schema's tables and views are, one fact a row. What backs a constraint is no index of its own.
const CATALOGUE: &str = include_str!("schema/catalogue.sql");

/// Makes what is missing of a schema's tables, and says what else is not as it is to be. Tables that lack a column, or are
/// lacking themselves, are made anew with all the others, empty: the ledger fills them. It can be repeated, and called by
/// several at once.
pub async fn ensure(connection: &mut PgConnection, ddl: &str) -> Result<Vec<Drift>, WarmError> {
    let mut tx = connection.begin().await?;
    tx.execute(LOCK).await?;
    let found = snapshot(&mut tx, "current_schema()").await?;
    if found.0.is_empty() {
        tx.execute(raw_sql(ddl)).await?;
        tx.commit().await?;
        return Ok(Vec::new());
    }
    let expected = expected(&mut tx, ddl).await?;
    let drifts = drift(&expected, &found);
    if drifts.iter().all(|drift| !drift.is_missing()) {
        tx.commit().await?;
        return Ok(drifts);
    }
    if drifts.iter().any(|drift| needs_rows(drift, &found)) {
        tracing::warn!("tables or columns are missing: all tables are made anew of the ledger");
        tx.execute(raw_sql(&drop_all(&expected, &found))).await?;
        tx.execute(raw_sql(ddl)).await?;
    } else {
        let statements = drifts
            .iter()
            .filter_map(|drift| statement(drift, &expected));
        for statement in statements {
            tracing::info!(statement, "tables mended");
            tx.execute(raw_sql(&statement)).await?;
        }
    }
    let found = snapshot(&mut tx, "current_schema()").await?;
    tx.commit().await?;
    Ok(drift(&expected, &found))
}

/// How a schema's tables differ from what they are to be. Changes nothing.
pub async fn diff(connection: &mut PgConnection, ddl: &str) -> Result<Vec<Drift>, WarmError> {
    let mut tx = connection.begin().await?;
    let found = snapshot(&mut tx, "current_schema()").await?;
    let expected = expected(&mut tx, ddl).await?;
    tx.rollback().await?;
    Ok(drift(&expected, &found))
}

async fn expected(tx: &mut PgConnection, ddl: &str) -> Result<Snapshot, WarmError> {
    let mut aside = tx.begin().await?;
    aside
        .execute("SET LOCAL search_path = pg_temp, pg_catalog")
        .await?;
    aside.execute(raw_sql(ddl)).await?;
    let expected = snapshot(&mut aside, "pg_my_temp_schema()").await?;
    aside.rollback().await?;
    Ok(expected)
}

async fn snapshot(tx: &mut PgConnection, schema: &str) -> Result<Snapshot, WarmError> {
    let query = CATALOGUE.replace("$SCHEMA", schema);
    let rows: Vec<(String, String, String, String)> = sqlx::query_as(&query).fetch_all(tx).await?;
    let facts = rows.into_iter().filter_map(|(table, what, name, said)| {
        let what = What::parse(&what)?;
        Some((Subject { table, what, name }, said))
    });
    Ok(Snapshot(facts.collect()))
}

/// Rows that are there do not say what would stand in it, or a table has the name of a view.
fn needs_rows(drift: &Drift, found: &Snapshot) -> bool {
    let table = || Subject {
        what: What::Table,
        ..drift.subject.clone()
    };
    drift.is_missing()
        && match drift.subject.what {
            What::Table | What::Column => true,
            What::View => found.0.contains_key(&table()),
            _ => false,
        }
}

/// Tables and views of the names that are expected, also where a name was of the other kind before; what else somebody has
/// put into the schema stays.
fn drop_all(expected: &Snapshot, found: &Snapshot) -> String {
    let relations = |of: &Snapshot| -> BTreeSet<String> {
        let whole = |subject: &&Subject| matches!(subject.what, What::Table | What::View);
        let of = of.0.keys().filter(whole);
        of.map(|subject| subject.table.clone()).collect()
    };
    let names = relations(expected);
    let named = |what| {
        let of = found.0.keys().filter(|subject| subject.what == what);
        let of = of.filter(|subject| names.contains(&subject.table));
        of.map(|subject| subject.table.as_str()).collect::<Vec<_>>()
    };
    let drop = |what: &str, names: Vec<&str>| match names.is_empty() {
        true => String::new(),
        false => format!("DROP {what} {};", names.join(", ")),
    };
    drop("VIEW", named(What::View)) + &drop("TABLE", named(What::Table))
}

/// What makes a part that is missing; none: it is no part, or not missing.
fn statement(drift: &Drift, expected: &Snapshot) -> Option<String> {
    if !drift.is_missing() {
        return None;
    }
    let Subject { table, what, name } = &drift.subject;
    let is_view = |table: &String| {
        let (what, name) = (What::View, String::new());
        let table = table.clone();
        expected.0.contains_key(&Subject { table, what, name })
    };
    let definition = drift.expected.as_deref()?;
    Some(match what {
        What::PrimaryKey | What::Check | What::Unique | What::ForeignKey => {
            format!("ALTER TABLE {table} ADD CONSTRAINT {name} {definition}")
        }
        What::Index => definition.to_owned(),
        // What is missing as a whole is one difference: its comments come with it.
        What::View => {
            let comments = expected
                .0
                .iter()
                .filter(|(subject, _)| subject.table == *table && subject.what == What::Comment);
            let comments = comments.map(|(Subject { name, .. }, text)| match name.is_empty() {
                true => comment("VIEW", table, text),
                false => comment("COLUMN", &format!("{table}.{name}"), text),
            });
            let comments: String = comments.collect();
            format!("CREATE VIEW {table} AS {definition};{comments}")
        }
        What::Storage => format!("ALTER TABLE {table} SET ({definition})"),
        What::Default => {
            format!("ALTER TABLE {table} ALTER COLUMN {name} SET DEFAULT {definition}")
        }
        What::Comment if name.is_empty() && is_view(table) => comment("VIEW", table, definition),
        What::Comment if name.is_empty() => comment("TABLE", table, definition),
        What::Comment => comment("COLUMN", &format!("{table}.{name}"), definition),
        What::Table | What::Column | What::Type | What::Nullability => return None,
        // Of another server.
        What::Engine | What::OrderBy | What::PartitionBy => return None,
    })
}

fn comment(kind: &str, of: &str, text: &str) -> String {
    format!("COMMENT ON {kind} {of} IS {};", table::quoted(text))
}
