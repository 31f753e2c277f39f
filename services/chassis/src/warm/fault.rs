//! What goes wrong between a projector and Postgres: what passes, and what needs a person.

use super::{Drifted, OutOfRange};
use crate::tls::is_distrust;
use sqlx::postgres::PgDatabaseError;
use std::time::Duration;
use table::RowError;

/// Why warm state was not written. The same batch is tried again in every case: no other one may go first.
#[derive(Debug, thiserror::Error)]
pub enum WarmError {
    /// The database, or the way to it.
    #[error("{}", said(.0))]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Drifted(#[from] Drifted),
    /// A value that the column cannot hold.
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
    /// No answer; it may have been written.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// Another projector has moved the position.
    #[error("position moved")]
    Moved,
}

impl WarmError {
    /// Whether it goes by itself: a server that is away, full, starting or stopping, or another session in the way.
    /// Anything else is an error of the code, the schema or the set-up.
    pub fn passes(&self) -> bool {
        match self {
            Self::TimedOut(_) | Self::Moved => true,
            Self::OutOfRange(_) | Self::Drifted(_) => false,
            Self::Database(error) => passes(error),
        }
    }

    /// Somebody has dropped them, or a process of another build has put a check of its own: they are looked at anew.
    pub(super) fn tables_changed(&self) -> bool {
        const UNDEFINED_TABLE: &str = "42P01";
        const CHECK_VIOLATION: &str = "23514";
        matches!(self.sqlstate(), Some(UNDEFINED_TABLE | CHECK_VIOLATION))
    }

    /// The server's five-character code.
    pub fn sqlstate(&self) -> Option<&str> {
        self.refusal().map(PgDatabaseError::code)
    }

    /// The table that refused a row.
    pub fn table(&self) -> Option<&str> {
        self.refusal().and_then(PgDatabaseError::table)
    }

    /// The constraint that refused a row.
    pub fn constraint(&self) -> Option<&str> {
        self.refusal().and_then(PgDatabaseError::constraint)
    }

    fn refusal(&self) -> Option<&PgDatabaseError> {
        match self {
            Self::Database(error) => error.as_database_error()?.try_downcast_ref(),
            _ => None,
        }
    }
}

impl From<RowError> for WarmError {
    fn from(error: RowError) -> Self {
        match error {
            RowError::OutOfRange(bad) => Self::OutOfRange(bad),
            other => Self::Database(sqlx::Error::Encode(Box::new(other))),
        }
    }
}

/// With the setting by which a server is not believed.
fn said(error: &(dyn std::error::Error + 'static)) -> String {
    match is_distrust(error) {
        true => format!("postgres.ca_file does not vouch for the server: {error}"),
        false => error.to_string(),
    }
}

fn passes(error: &sqlx::Error) -> bool {
    match error {
        error if is_distrust(error) => false,
        sqlx::Error::Io(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => true,
        sqlx::Error::Database(refusal) => refusal.code().is_some_and(|code| state_passes(&code)),
        _ => false,
    }
}

/// By class: connection, invalid transaction state, rollback, resources, object in use, operator, system.
fn state_passes(code: &str) -> bool {
    ["08", "25", "40", "53", "55", "57", "58"]
        .iter()
        .any(|class| code.starts_with(class))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_by_itself_and_what_does_not() {
        let state = |code| state_passes(code);
        for (code, what) in [
            ("08006", "connection failure"),
            ("25P03", "idle in transaction"),
            ("40001", "serialization"),
            ("40P01", "deadlock"),
            ("53100", "disk full"),
            ("53300", "too many connections"),
            ("55P03", "lock not available"),
            ("57P01", "admin shutdown"),
            ("57P03", "cannot connect now"),
            ("58030", "input or output"),
        ] {
            assert!(state(code), "{what}");
        }
        for (code, what) in [
            ("22003", "number out of range"),
            ("23505", "unique"),
            ("23514", "check"),
            ("28P01", "password"),
            ("42703", "no such column"),
        ] {
            assert!(!state(code), "{what}");
        }
        let io = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        assert!(WarmError::from(sqlx::Error::Io(io)).passes());
        assert!(WarmError::from(sqlx::Error::PoolTimedOut).passes());
        assert!(!WarmError::Drifted(Drifted(Vec::new())).passes());
        assert!(!WarmError::from(OutOfRange::new("lsn", u64::MAX)).passes());
    }
}
