//! Rows and the statements that write them. New rows go by COPY, which takes half of the server's time of an `INSERT …
//! UNNEST`, but knows no conflict; others are merged by one parameter per column.

use crate::{
    OutOfRange, PgType, Value, Written,
    descriptor::{Column, Table},
};
use sqlx::{
    Encode, Postgres, Type,
    encode::IsNull,
    error::BoxDynError,
    postgres::{PgArgumentBuffer, PgArguments, PgTypeInfo, types::Oid},
};

/// A row of a table; `#[derive(Table)]` makes it one.
pub trait Row {
    const TABLE: &'static Table;

    /// Each value, in the order of the columns.
    fn write(&self, out: &mut impl Values) -> Result<(), RowError>;
}

impl<R: Row> Row for &R {
    const TABLE: &'static Table = R::TABLE;

    fn write(&self, out: &mut impl Values) -> Result<(), RowError> {
        R::write(self, out)
    }
}

/// Takes the values of rows.
pub trait Values {
    fn value<V: Value>(&mut self, column: &'static str, value: &V) -> Result<(), RowError>;
}

/// Why a row cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum RowError {
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
    /// More bytes than the protocol can count, in one value or in the rows of one statement.
    #[error("more than 2 GiB in a value or a column")]
    TooLarge,
    #[error(transparent)]
    Parameter(BoxDynError),
}

/// Instead of a length.
const NULL: i32 = -1;

/// The length of what `write` writes, and then that.
fn sized(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<Written, RowError>,
) -> Result<Written, RowError> {
    let at = out.len();
    out.extend_from_slice(&NULL.to_be_bytes());
    let begin = out.len();
    let written = write(out)?;
    if let Written::Value = written {
        let length = i32::try_from(out.len() - begin).map_err(|_| RowError::TooLarge)?;
        out[at..begin].copy_from_slice(&length.to_be_bytes());
    }
    Ok(written)
}

/// Bytes of an array before its elements: dimensions, whether there are nulls, the elements' type, length, first index.
const ARRAY_HEAD: usize = 20;

fn array_head(ty: PgType, nulls: bool, length: usize) -> Result<[u8; ARRAY_HEAD], RowError> {
    let length = i32::try_from(length).map_err(|_| RowError::TooLarge)?;
    let words = [
        1_i32.to_be_bytes(),
        i32::from(nulls).to_be_bytes(),
        ty.oid.to_be_bytes(),
        length.to_be_bytes(),
        1_i32.to_be_bytes(),
    ];
    let mut head = [0; ARRAY_HEAD];
    for (four, word) in head.chunks_exact_mut(4).zip(words) {
        four.copy_from_slice(&word);
    }
    Ok(head)
}

/// A list as a value of its own, without nulls.
pub(crate) fn list<T>(
    ty: PgType,
    items: &[T],
    out: &mut Vec<u8>,
    write: impl Fn(&T, &mut Vec<u8>) -> Result<Written, RowError>,
) -> Result<(), RowError> {
    out.extend_from_slice(&array_head(ty, false, items.len())?);
    for item in items {
        sized(out, |out| write(item, out))?;
    }
    Ok(())
}

/// The signature of COPY's binary format, no flags, no extension.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// Instead of a number of values.
const END: i16 = -1;

struct CopyBytes(Vec<u8>);

impl Values for CopyBytes {
    fn value<V: Value>(&mut self, column: &'static str, value: &V) -> Result<(), RowError> {
        sized(&mut self.0, |out| value.write(column, out)).map(drop)
    }
}

/// Rows as the data of [`copy_statement`]; none if there are none.
pub fn copy<R: Row>(rows: impl IntoIterator<Item = R>) -> Result<Option<Vec<u8>>, RowError> {
    // A table has at most 1,600 columns.
    let columns = R::TABLE.columns.len() as i16;
    let mut rows = rows.into_iter().peekable();
    if rows.peek().is_none() {
        return Ok(None);
    }
    let mut bytes = CopyBytes(HEADER.to_vec());
    for row in rows {
        bytes.0.extend_from_slice(&columns.to_be_bytes());
        row.write(&mut bytes)?;
    }
    bytes.0.extend_from_slice(&END.to_be_bytes());
    Ok(Some(bytes.0))
}

fn names<'c>(columns: impl IntoIterator<Item = &'c Column>) -> String {
    listed(columns, |column| column.name.to_owned())
}

fn listed<'c>(
    columns: impl IntoIterator<Item = &'c Column>,
    one: impl Fn(&Column) -> String,
) -> String {
    let columns = columns.into_iter();
    columns.map(one).collect::<Vec<_>>().join(", ")
}

/// The parameters of [`Arrays`].
fn arrays<'c>(columns: impl IntoIterator<Item = &'c Column>) -> String {
    let numbered = (1..).zip(columns);
    let arrays = numbered.map(|(no, column)| format!("${no}::{}[]", column.element));
    arrays.collect::<Vec<_>>().join(", ")
}

/// A column of [`Arrays`] as its type.
fn cast(prefix: &str, column: &Column) -> String {
    match column.ty == column.element {
        true => format!("{prefix}{}", column.name),
        false => format!("{prefix}{}::{}", column.name, column.ty),
    }
}

pub fn copy_statement(table: &Table) -> String {
    let Table { name, columns, .. } = table;
    format!(
        "COPY {name} ({}) FROM STDIN (FORMAT binary)",
        names(*columns)
    )
}

/// Reads whole rows; conditions and order follow.
pub fn select(table: &Table) -> String {
    format!("SELECT {} FROM {}", names(table.columns), table.name)
}

/// Writes the rows of [`Arrays::of`]. Of a row that is there, all columns change but its key and those that are fixed. A CHECK
/// also holds of the row that is written, where it meets one that is there.
pub fn merge_statement(table: &Table) -> String {
    let Table {
        name, columns, key, ..
    } = table;
    let all = names(*columns);
    let values = listed(*columns, |column| cast("", column));
    let changes = columns.iter().filter(|column| table.changes(column));
    let changes = listed(
        changes,
        |Column {
             name: of, merged, ..
         }| {
            let value = merged.unwrap_or("{new}");
            let value = value.replace("{old}", &format!("{name}.{of}"));
            let value = value.replace("{new}", &format!("excluded.{of}"));
            format!("{of} = {value}")
        },
    );
    let change = match changes.is_empty() {
        true => "NOTHING".to_owned(),
        false => format!("UPDATE SET {changes}"),
    };
    format!(
        "INSERT INTO {name} ({all}) SELECT {values} FROM UNNEST({}) AS row ({all}) ON CONFLICT ({}) DO {change}",
        arrays(*columns),
        key.join(", "),
    )
}

/// Writes what [`Arrays::of_changes`] has of rows that are all there.
pub fn update_statement(table: &Table) -> String {
    let Table {
        name, columns, key, ..
    } = table;
    let sent = || columns.iter().filter(|column| is_sent(table, column));
    let changes = columns.iter().filter(|column| table.changes(column));
    let changes = listed(changes, |column| {
        let name = column.name;
        match column.appended {
            true => format!("{name} = old.{name} || {}", cast("row.", column)),
            false => format!("{name} = {}", cast("row.", column)),
        }
    });
    let same: Vec<String> = key
        .iter()
        .map(|key| format!("old.{key} = row.{key}"))
        .collect();
    format!(
        "UPDATE {name} AS old SET {changes} FROM UNNEST({}) AS row ({}) WHERE {}",
        arrays(sent()),
        names(sent()),
        same.join(" AND "),
    )
}

/// Whether an update needs the column.
fn is_sent(table: &Table, column: &Column) -> bool {
    table.changes(column) || table.key.contains(&column.name)
}

/// Rows column by column, each column one parameter.
pub struct Arrays {
    table: &'static Table,
    /// Without those that an update leaves alone.
    only_changes: bool,
    columns: Vec<Array>,
    /// Of the row that is being written: how many values were given, and how many taken.
    given: usize,
    taken: usize,
}

struct Array {
    element: PgType,
    nulls: bool,
    /// The head, and the elements.
    bytes: Vec<u8>,
}

impl Arrays {
    /// For [`merge_statement`].
    pub fn of<R: Row>(rows: &[R]) -> Result<PgArguments, RowError> {
        Self::write(rows, false)
    }

    /// For [`update_statement`].
    pub fn of_changes<R: Row>(rows: &[R]) -> Result<PgArguments, RowError> {
        Self::write(rows, true)
    }

    fn write<R: Row>(rows: &[R], only_changes: bool) -> Result<PgArguments, RowError> {
        const { assert!(!R::TABLE.key.is_empty(), "found by its key") };
        let mut arrays = Self {
            table: R::TABLE,
            only_changes,
            columns: Vec::with_capacity(R::TABLE.columns.len()),
            given: 0,
            taken: 0,
        };
        for row in rows {
            (arrays.given, arrays.taken) = (0, 0);
            row.write(&mut arrays)?;
        }
        let mut arguments = PgArguments::default();
        for mut array in arrays.columns {
            let head = array_head(array.element, array.nulls, rows.len())?;
            array.bytes[..ARRAY_HEAD].copy_from_slice(&head);
            sqlx::Arguments::add(&mut arguments, array).map_err(RowError::Parameter)?;
        }
        Ok(arguments)
    }
}

impl Values for Arrays {
    fn value<V: Value>(&mut self, column: &'static str, value: &V) -> Result<(), RowError> {
        // A row gives one value for each column: both are made of its fields.
        let of = &self.table.columns[self.given];
        self.given += 1;
        if self.only_changes && !is_sent(self.table, of) {
            return Ok(());
        }
        if self.taken == self.columns.len() {
            self.columns.push(Array {
                element: V::ELEMENT,
                nulls: false,
                bytes: vec![0; ARRAY_HEAD],
            });
        }
        let array = &mut self.columns[self.taken];
        self.taken += 1;
        let written = sized(&mut array.bytes, |out| value.write_element(column, out))?;
        array.nulls |= written == Written::Null;
        Ok(())
    }
}

impl Type<Postgres> for Array {
    /// Of no value: each says its own.
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(crate::types::TEXTS.oid))
    }
}

impl Encode<'_, Postgres> for Array {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend_from_slice(&self.bytes);
        Ok(IsNull::No)
    }

    fn produces(&self) -> Option<PgTypeInfo> {
        Some(PgTypeInfo::with_oid(Oid(self.element.array)))
    }
}
