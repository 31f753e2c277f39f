//! How commands print: tables for people, exact numbers for programs. Nothing else writes to the standard output.

mod page;
mod sheet;
mod stream;
mod write;

pub use page::{Fields, Page};
pub use sheet::{
    Cell, Column, Sheet, bound, column, exactly, moment, moment_or_never, named, number, plain,
    quantity, valued, wide,
};
pub use stream::Stream;
pub use write::{begin_anew, bytes, draws, line};

pub(crate) use write::{note, say};

use clap::{Args, ValueEnum};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args)]
pub struct Output {
    /// How to print: a table, one with more columns, or all of it with exact numbers.
    #[arg(
        long = "output",
        short = 'o',
        global = true,
        value_name = "FORM",
        value_enum,
        default_value_t
    )]
    form: Form,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Form {
    #[default]
    Table,
    Wide,
    Json,
    Yaml,
    Csv,
}
