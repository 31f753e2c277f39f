//! What commands fail with, and what the command line then ends with.

use crate::print::note;
use analytics::store::StoreError;
use async_nats::ConnectErrorKind;
use client::{ConnectError, Failed, FeedError, NoOutcome, QueryError};
use ledger::BusError;
use ledger_nats::{CopyError, VerifyError};
use std::{error::Error, fmt, io, process::ExitCode};

/// An error, and what whoever reads only the exit code has to know of it. It is no `Error` itself, so that whatever is one
/// becomes it.
#[derive(Debug)]
pub struct Failure {
    class: Class,
    error: Box<dyn Error + Send + Sync>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Whoever read the output has seen enough.
    Unread,
    Other,
    /// The command line or the context is wrong.
    Usage,
    /// Decided, and against.
    Refused,
    /// Perhaps decided: nobody has heard of it.
    Indefinite,
    /// Nothing was done: whoever was to do it was not there, or is not who it should be.
    Unreachable,
    /// What was waited for did not come before the end of the wait.
    Late,
}

/// Of the table of exit codes in `--help` and the README.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  another failure, or a check that found something
  2  wrong usage: the command line, or the context
  3  refused: by a rule, or because it is not there for who asks
  4  indefinite: perhaps it was done; send it again with the same --operation-id
  5  unreachable: nothing was done; try again
  6  not in time: what was waited for did not come before --deadline or --timeout; it goes on
With --follow and --wait ended, the exit code of the run's own command, and 128 and the number for a signal.";

impl Class {
    fn code(self) -> u8 {
        match self {
            Self::Unread => 0,
            Self::Other => 1,
            Self::Usage => 2,
            Self::Refused => 3,
            Self::Indefinite => 4,
            Self::Unreachable => 5,
            Self::Late => 6,
        }
    }

    fn of(error: &(dyn Error + 'static)) -> Self {
        if let Some(failed) = error.downcast_ref() {
            return match failed {
                Failed::Refused(_) => Self::Refused,
                Failed::NoOutcome(none) => Self::of_no_outcome(none),
                Failed::OtherVerb { .. } => Self::Other,
            };
        }
        if let Some(none) = error.downcast_ref() {
            return Self::of_no_outcome(none);
        }
        if let Some(query) = error.downcast_ref() {
            return Self::of_query(query);
        }
        if let Some(feed) = error.downcast_ref() {
            return match feed {
                FeedError::Query(query) => Self::of_query(query),
                FeedError::Subscribe(_) => Self::Unreachable,
                FeedError::NoTenant | FeedError::Decode(_) | FeedError::OutOfOrder { .. } => {
                    Self::Other
                }
            };
        }
        if let Some(connect) = error.downcast_ref() {
            return match connect {
                ConnectError::Connect { source, .. } => Self::of_connection(source),
                ConnectError::Subscribe(_) | ConnectError::Flush(_) => Self::Unreachable,
                ConnectError::Cell(_) | ConnectError::Authority(_) => Self::Usage,
            };
        }
        if let Some(connect) = error.downcast_ref() {
            return Self::of_connection(connect);
        }
        let bus = match (error.downcast_ref(), error.downcast_ref()) {
            (Some(VerifyError::Bus(bus)), _) | (_, Some(CopyError::Bus(bus))) => Some(bus),
            _ => error.downcast_ref(),
        };
        let database = error.downcast_ref().or(match error.downcast_ref() {
            Some(chassis::warm::WarmError::Database(database)) => Some(database),
            _ => None,
        });
        match (bus, database, error.downcast_ref()) {
            (Some(BusError::Unavailable(_)), ..) => Self::Unreachable,
            (_, Some(sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::PoolTimedOut), _) => {
                Self::Unreachable
            }
            (.., Some(StoreError::Unavailable(_) | StoreError::Untrusted(_))) => Self::Unreachable,
            _ if is_unread(error) => Self::Unread,
            _ => Self::Other,
        }
    }

    fn of_no_outcome(none: &NoOutcome) -> Self {
        match none {
            NoOutcome::NotReceived {
                retryable: true, ..
            } => Self::Unreachable,
            NoOutcome::NotReceived { .. } => Self::Refused,
            NoOutcome::Indefinite { .. } => Self::Indefinite,
        }
    }

    fn of_query(query: &QueryError) -> Self {
        match query {
            QueryError::Refused(_) | QueryError::Denied(_) => Self::Refused,
            QueryError::Request(_) | QueryError::Unavailable(_) => Self::Unreachable,
            QueryError::Service(_) | QueryError::Decode(_) | QueryError::Empty => Self::Other,
        }
    }

    fn of_connection(error: &async_nats::ConnectError) -> Self {
        match error.kind() {
            ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
                Self::Refused
            }
            ConnectErrorKind::ServerParse => Self::Usage,
            ConnectErrorKind::Dns
            | ConnectErrorKind::TimedOut
            | ConnectErrorKind::Tls
            | ConnectErrorKind::Io
            | ConnectErrorKind::MaxReconnects => Self::Unreachable,
        }
    }
}

/// Whether it is of a pipe that is written to. What else breaks is wrapped in an error that says what it is of.
fn is_unread(error: &(dyn Error + 'static)) -> bool {
    let csv = error.downcast_ref().map(csv::Error::kind);
    let io = match csv {
        Some(csv::ErrorKind::Io(io)) => Some(io),
        _ => error.downcast_ref(),
    };
    io.is_some_and(|io: &io::Error| io.kind() == io::ErrorKind::BrokenPipe)
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for Failure {
    fn from(error: E) -> Self {
        let error = error.into();
        let class = Class::of(&*error);
        Self { class, error }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Failure {
    pub fn usage(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let (class, error) = (Class::Usage, error.into());
        Self { class, error }
    }

    pub fn refused(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let (class, error) = (Class::Refused, error.into());
        Self { class, error }
    }

    /// What is wrong with a file. Of several faults the last line counts them.
    pub fn faulty(faults: &[String], so: &str) -> Self {
        match faults {
            [fault] => Self::usage(fault.as_str()),
            all => {
                all.iter().for_each(|fault| note!("{fault}"));
                Self::usage(format!("{} faults: {so}", all.len()))
            }
        }
    }

    pub fn late(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let (class, error) = (Class::Late, error.into());
        Self { class, error }
    }

    pub fn unreachable(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let (class, error) = (Class::Unreachable, error.into());
        Self { class, error }
    }

    /// Whether the same may be there for another try.
    pub fn is_unreachable(&self) -> bool {
        self.class == Class::Unreachable
    }

    /// The same, with what helps whoever reads it.
    pub fn and(self, help: Option<String>) -> Self {
        match help {
            Some(help) => Self {
                error: format!("{self}\n{help}").into(),
                ..self
            },
            None => self,
        }
    }

    /// Something was done before it, so that nobody takes it for a command that did nothing. What is perhaps done stays so, and
    /// whoever has seen enough has.
    pub fn afterwards(self) -> Self {
        let class = match self.class {
            Class::Indefinite | Class::Unread | Class::Late => self.class,
            _ => Class::Other,
        };
        Self { class, ..self }
    }

    /// Says why, if anybody is to know, and what the command line ends with.
    pub fn end(&self) -> ExitCode {
        if self.class != Class::Unread {
            note!("apportion: {self}");
        }
        ExitCode::from(self.class.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::Refused;
    use schemas::v1::Refusal;

    #[test]
    fn whoever_reads_the_exit_code_knows_what_to_do() {
        let check = |failure: Failure, code: u8| {
            assert_eq!(failure.class.code(), code, "{failure}");
            let told = EXIT_CODES
                .lines()
                .any(|line| line.trim_start().starts_with(&format!("{code}  ")));
            assert!(told, "{code}");
        };
        let not_received = |retryable| NoOutcome::NotReceived {
            why: "full".to_owned(),
            retryable,
        };
        let indefinite = || NoOutcome::Indefinite {
            why: "silence".to_owned(),
        };
        let unread = || io::Error::from(io::ErrorKind::BrokenPipe);
        check(unread().into(), 0);
        check(csv::Error::from(unread()).into(), 0);
        check(io::Error::from(io::ErrorKind::StorageFull).into(), 1);
        check("a check found something".into(), 1);
        check(Failure::usage("no context"), 2);
        check(Failed::Refused(Refused::default()).into(), 3);
        check(QueryError::Refused(Refusal::default()).into(), 3);
        check(
            QueryError::Denied("Permissions Violation".to_owned()).into(),
            3,
        );
        check(not_received(false).into(), 3);
        check(indefinite().into(), 4);
        check(Failed::NoOutcome(indefinite()).into(), 4);
        check(not_received(true).into(), 5);
        check(Failed::NoOutcome(not_received(true)).into(), 5);
        check(BusError::Unavailable("away".to_owned()).into(), 5);
        check(
            VerifyError::Bus(BusError::Unavailable("away".to_owned())).into(),
            5,
        );
        check(sqlx::Error::PoolTimedOut.into(), 5);
        check(StoreError::Unavailable("away".to_owned()).into(), 5);
        check(FeedError::NoTenant.into(), 1);
        check(Failure::late("it goes on"), 6);
        check(Failure::unreachable("away"), 5);
        let late = |failure: Failure| failure.afterwards();
        check(late(sqlx::Error::PoolTimedOut.into()), 1);
        check(late(unread().into()), 0);
        check(late(QueryError::Refused(Refusal::default()).into()), 1);
        check(late(indefinite().into()), 4);
    }
}
