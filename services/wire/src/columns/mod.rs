//! Many messages of one oneof as columns: all values of one field lie together. `Columns` writes them, `Rows` reads
//! them; the schema's `Columns` says what the bytes mean.

mod list;
mod read;
mod texts;
mod words;
mod write;

pub use read::{Column, Rows};
pub use write::Columns;

/// Numbers of the fields of the schema's `Columns`.
mod of_columns {
    pub const ROWS: u32 = 1;
    pub const LENGTHS: u32 = 2;
    pub const SHARED: u32 = 3;
    pub const WORDS: u32 = 4;
    pub const COLUMNS: u32 = 5;
}

/// Numbers of the fields of the schema's `Column`.
mod of_column {
    pub const FIELD: u32 = 1;
    pub const ROWS: u32 = 2;
    pub const COUNTS: u32 = 3;
    pub const VALUES: u32 = 4;
    pub const DIFFERENCES: u32 = 5;
    pub const WORDS: u32 = 6;
    pub const LENGTHS: u32 = 7;
    pub const SHARED: u32 = 8;
    pub const TEXTS: u32 = 9;
    pub const COLUMNS: u32 = 10;
    pub const DIGITS: u32 = 11;
}

/// A few bytes can stand for many rows, so that their number is bounded and not believed.
const ROWS_MAX: u32 = 1 << 16;
/// The same of the values of the columns of one field of the oneof, all together.
const ELEMENTS_MAX: u32 = 1 << 20;
/// A text begins as the one before it for no more bytes than this, so that a few bytes do not become many texts.
const SHARED_MAX: u64 = 64;
