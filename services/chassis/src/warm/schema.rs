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

/// Makes what is missing of a schema's tables, replaces checks, comments and views that another build wrote otherwise, and reports
/// what else is not as it is to be. Tables that lack a column, that are lacking themselves, or whose rows break a
/// check, are made anew with all the others, empty: the ledger fills them. It can be repeated, and called by several at once.
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
    let needs_rows = drifts.iter().any(|drift| needs_rows(drift, &found));
    let retyped = |of: &Drift| {
        let mut all = drifts.iter().map(|drift| &drift.subject);
        all.any(|it| it.what == What::Type && it.table == of.subject.table)
    };
    // A check may not go with a type that is a person's to change.
    let drifts_to_mend = drifts.iter().filter(|it| it.is_missing() || !retyped(it));
    let statements = drifts_to_mend.filter_map(|it| statement(it, &expected));
    let statements: Vec<String> = statements.collect();
    if !needs_rows && statements.is_empty() {
        tx.commit().await?;
        return Ok(drifts);
    }
    if needs_rows || !mended(&mut tx, &statements).await? {
        tracing::warn!(
            "tables or columns are missing, or rows break a check: all tables are made anew of the ledger"
        );
        tx.execute(raw_sql(&drop_all(&expected, &found))).await?;
        tx.execute(raw_sql(ddl)).await?;
    }
    let found = snapshot(&mut tx, "current_schema()").await?;
    tx.commit().await?;
    Ok(drift(&expected, &found))
}

/// In SQLSTATE: a view would have other columns than the one that it replaces.
const INVALID_TABLE_DEFINITION: &str = "42P16";

/// Returns false if a row breaks a check, or a view has other columns.
async fn mended(tx: &mut PgConnection, statements: &[String]) -> Result<bool, WarmError> {
    let mut aside = tx.begin().await?;
    for statement in statements {
        tracing::info!(statement, "tables mended");
        match aside.execute(raw_sql(statement)).await {
            Ok(_) => {}
            Err(sqlx::Error::Database(error))
                if error.is_check_violation()
                    || error.code().as_deref() == Some(INVALID_TABLE_DEFINITION) =>
            {
                aside.rollback().await?;
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
    }
    aside.commit().await?;
    Ok(true)
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

/// Returns what the tables of the connection's schema are.
pub async fn found(connection: &mut PgConnection) -> Result<Snapshot, WarmError> {
    snapshot(connection, "current_schema()").await
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

/// Returns the statement that makes a missing part, or replaces a check, a comment or a view, which holds no rows. `None`: it is
/// no part, or a person decides.
fn statement(drift: &Drift, expected: &Snapshot) -> Option<String> {
    let is_replaced = matches!(drift.subject.what, What::Check | What::Comment | What::View);
    if !drift.is_missing() && !is_replaced {
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
        What::Check => format!(
            "ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {name}, ADD CONSTRAINT {name} {definition}"
        ),
        What::PrimaryKey | What::Unique | What::ForeignKey => {
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
            format!("CREATE OR REPLACE VIEW {table} AS {definition};{comments}")
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
