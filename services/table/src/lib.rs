#![doc = include_str!("../README.md")]

pub mod clickhouse;
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
