//! How commands print: tables for people, exact numbers for programs. Nothing else writes to the standard output.

mod look;
mod page;
mod sheet;
mod stream;
#[cfg(test)]
mod tables;
mod write;

pub use look::{Look, Tone};
pub use page::{Fields, NO_POSITION, Page, earliest};
pub use sheet::{
    Cell, Column, Sheet, absent, allocation, bound, column, counted, exact_number, exactly, moment,
    moment_or_never, named, number, plain, quantity, valued, wide,
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

impl Output {
    /// Returns whether a program reads the output, which then is one document at the end.
    pub fn is_for_programs(self) -> bool {
        !matches!(self.form, Form::Table | Form::Wide)
    }

    /// Returns whether the output has the currency of amounts in a column.
    pub fn has_currency(self) -> bool {
        self.form != Form::Table
    }
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
