//! Rows into their table.

use super::{ROWS_MAX, WarmError};
use sqlx::PgConnection;
use table::{Arrays, Row, Table};

/// Rows that are not there yet. COPY takes half of the server's time of an `INSERT … UNNEST`, but knows no conflict.
pub async fn insert<R: Row>(
    tx: &mut PgConnection,
    rows: impl IntoIterator<Item = R>,
) -> Result<(), WarmError> {
    insert_into(tx, R::TABLE, rows).await
}

/// The same, into a table of another name with the same columns.
pub async fn insert_into<R: Row>(
    tx: &mut PgConnection,
    table: &Table,
    rows: impl IntoIterator<Item = R>,
) -> Result<(), WarmError> {
    let Some(bytes) = table::copy(rows)? else {
        return Ok(());
    };
    let mut copy = tx.copy_in_raw(&table::copy_statement(table)).await?;
    copy.send(bytes).await?;
    copy.finish().await?;
    Ok(())
}

/// Rows that may be there: of one that is, what is neither its key nor fixed becomes this. No two of them have one key.
pub async fn merge<R: Row>(tx: &mut PgConnection, rows: &[R]) -> Result<(), WarmError> {
    let statement = table::merge_statement(R::TABLE);
    for rows in rows.chunks(ROWS_MAX) {
        let arrays = Arrays::of(rows)?;
        sqlx::query_with(&statement, arrays)
            .execute(&mut *tx)
            .await?;
    }
    Ok(())
}

/// What may change of rows that are all there. No two of them have one key.
pub async fn update<R: Row>(tx: &mut PgConnection, rows: &[R]) -> Result<(), WarmError> {
    let statement = table::update_statement(R::TABLE);
    for rows in rows.chunks(ROWS_MAX) {
        let arrays = Arrays::of_changes(rows)?;
        sqlx::query_with(&statement, arrays)
            .execute(&mut *tx)
            .await?;
    }
    Ok(())
}
