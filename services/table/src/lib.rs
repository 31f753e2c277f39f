//! A table in one place: `#[derive(Table)]` on the struct of a row gives its description, its DDL and the statements that
//! write it. Pure: whoever sends them is `chassis::warm`. See the README.

mod ddl;
mod descriptor;
mod drift;
mod moment;
mod number;
mod row;
mod value;

pub use ddl::{ddl, quoted};
pub use descriptor::{Check, Column, Index, Table};
pub use drift::{Drift, Snapshot, Subject, What, drift};
pub use moment::{Moment, OutOfRange};
pub use number::Numeric;
pub use row::{
    Arrays, Row, RowError, Values, copy, copy_statement, merge_statement, select, update_statement,
};
pub use sqlx::{Error as ReadError, FromRow, postgres::PgRow};
pub use table_derive::Table;
pub use value::{Item, PgType, Read, Value, Wide, Written, bigint, one_of, read, types, unsigned};
