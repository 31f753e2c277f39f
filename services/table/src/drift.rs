//! How tables differ from what they are to be. Both sides are what one server says of itself, so that two ways to write an
//! expression are no difference.

use std::{collections::BTreeMap, fmt};

/// What is said of a table. The order is that of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    Table,
    View,
    Engine,
    OrderBy,
    PartitionBy,
    Storage,
    Column,
    Type,
    Nullability,
    Default,
    PrimaryKey,
    Check,
    Unique,
    ForeignKey,
    Index,
    Comment,
}

impl What {
    pub const ALL: [Self; 16] = [
        Self::Table,
        Self::View,
        Self::Engine,
        Self::OrderBy,
        Self::PartitionBy,
        Self::Storage,
        Self::Column,
        Self::Type,
        Self::Nullability,
        Self::Default,
        Self::PrimaryKey,
        Self::Check,
        Self::Unique,
        Self::ForeignKey,
        Self::Index,
        Self::Comment,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::View => "view",
            Self::Engine => "engine",
            Self::OrderBy => "order_by",
            Self::PartitionBy => "partition_by",
            Self::Storage => "storage",
            Self::Column => "column",
            Self::Type => "type",
            Self::Nullability => "nullability",
            Self::Default => "default",
            Self::PrimaryKey => "primary_key",
            Self::Check => "check",
            Self::Unique => "unique",
            Self::ForeignKey => "foreign_key",
            Self::Index => "index",
            Self::Comment => "comment",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|what| what.name() == text)
    }

    /// Of a column: gone with it.
    fn is_of_column(self) -> bool {
        matches!(
            self,
            Self::Type | Self::Nullability | Self::Default | Self::Comment
        )
    }
}

/// What something is said of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    pub table: String,
    pub what: What,
    /// Of the column, constraint or index; empty: the table itself.
    pub name: String,
}

/// Everything that a server says of some tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot(pub BTreeMap<Subject, String>);

/// A difference; not both sides are empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    pub subject: Subject,
    /// None: it is there and should not be.
    pub expected: Option<String>,
    /// None: it is missing.
    pub found: Option<String>,
}

impl Drift {
    pub fn is_missing(&self) -> bool {
        self.found.is_none()
    }

    /// `missing`, `extra` or `different`.
    pub fn kind(&self) -> &'static str {
        match (&self.expected, &self.found) {
            (_, None) => "missing",
            (None, _) => "extra",
            _ => "different",
        }
    }
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Subject { table, what, name } = &self.subject;
        let dot = if name.is_empty() { "" } else { "." };
        write!(f, "{table}{dot}{name}: {} {}", what.name(), self.kind())?;
        for (word, side) in [("expected", &self.expected), ("found", &self.found)] {
            if let Some(text) = side.as_deref().filter(|text| !text.is_empty()) {
                write!(f, ", {word} {text}")?;
            }
        }
        Ok(())
    }
}

/// Every difference, in the order of the tables. Of what is missing or too much as a whole, the parts are not named.
pub fn drift(expected: &Snapshot, found: &Snapshot) -> Vec<Drift> {
    let mut subjects: Vec<&Subject> = expected.0.keys().chain(found.0.keys()).collect();
    subjects.sort();
    subjects.dedup();
    let differs = |subject: &Subject| {
        let (expected, found) = (expected.0.get(subject), found.0.get(subject));
        (expected != found).then(|| Drift {
            subject: subject.clone(),
            expected: expected.cloned(),
            found: found.cloned(),
        })
    };
    let one_sided = |table: &str, what: What, name: &str| {
        let whole = Subject {
            table: table.to_owned(),
            what,
            name: name.to_owned(),
        };
        expected.0.contains_key(&whole) != found.0.contains_key(&whole)
    };
    let part_of_other = |Subject { table, what, name }: &Subject| {
        let of_table = !matches!(what, What::Table | What::View)
            && [What::Table, What::View]
                .iter()
                .any(|whole| one_sided(table, *whole, ""));
        of_table || what.is_of_column() && one_sided(table, What::Column, name)
    };
    subjects
        .into_iter()
        .filter(|subject| !part_of_other(subject))
        .filter_map(differs)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(lines: &[&str]) -> Snapshot {
        let subjects = lines.iter().map(|line| {
            let words: Vec<&str> = line.splitn(4, ' ').collect();
            let subject = Subject {
                table: words[0].into(),
                what: What::parse(words[1]).unwrap(),
                name: words.get(2).copied().unwrap_or_default().into(),
            };
            (subject, words.get(3).copied().unwrap_or_default().into())
        });
        Snapshot(subjects.collect())
    }

    fn check(expected: &[&str], found: &[&str], drifts: &[&str]) {
        let drift = drift(&snapshot(expected), &snapshot(found));
        let lines: Vec<String> = drift.iter().map(Drift::to_string).collect();
        assert_eq!(lines, drifts);
    }

    #[test]
    fn parts_go_with_the_whole() {
        let a = ["a table", "a column x", "a type x text", "a check c x > 0"];
        check(&a, &a, &[]);
        check(&a, &[], &["a: table missing"]);
        check(&[], &a, &["a: table extra"]);
        check(
            &a,
            &a[..1],
            &["a.x: column missing", "a.c: check missing, expected x > 0"],
        );
        check(
            &a[..2],
            &a,
            &[
                "a.x: type extra, found text",
                "a.c: check extra, found x > 0",
            ],
        );
        check(
            &a[..3],
            &["a table", "a column x", "a type x integer"],
            &["a.x: type different, expected text, found integer"],
        );
    }
}
