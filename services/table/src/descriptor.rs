//! What a table is, as constants. `#[derive(Table)]` writes them; nobody else does.

/// A table of Postgres.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    pub name: &'static str,
    /// The row struct's doc comment.
    pub comment: &'static str,
    /// In the order of the row's fields.
    pub columns: &'static [Column],
    /// The primary key; none of a table whose rows are only ever inserted, and never found by one.
    pub key: &'static [&'static str],
    pub checks: &'static [Check],
    pub indexes: &'static [Index],
    /// Storage parameters.
    pub with: Option<&'static str>,
}

#[derive(Debug, Clone, Copy)]
pub struct Column {
    pub name: &'static str,
    /// The field's doc comment.
    pub comment: &'static str,
    pub ty: &'static str,
    /// The type of an element where many values are one parameter; another than `ty` is cast.
    pub element: &'static str,
    pub nullable: bool,
    pub default: Option<&'static str>,
    pub check: Option<&'static str>,
    /// What holds for every value of the field's type, unless `check` says more.
    pub check_of_type: fn(&str) -> Option<String>,
    /// A row that is there keeps it.
    pub fixed: bool,
    /// An update adds to the list that is there.
    pub appended: bool,
    /// What a merge makes of it in a row that is there, of `{old}` and `{new}`; none: the new one.
    pub merged: Option<&'static str>,
}

impl Table {
    /// Whether a row that is there may change in this column.
    pub(crate) fn changes(&self, column: &Column) -> bool {
        !column.fixed && !self.key.contains(&column.name)
    }
}

/// A CHECK over several columns.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    pub name: &'static str,
    pub holds: &'static str,
}

#[derive(Debug, Clone, Copy)]
pub struct Index {
    /// What follows the table's name in the index's.
    pub name: &'static str,
    pub unique: bool,
    /// Another method than btree.
    pub using: Option<&'static str>,
    /// Columns and their order.
    pub on: &'static str,
    pub only: Option<&'static str>,
}
