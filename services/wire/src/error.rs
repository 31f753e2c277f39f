//! Why bytes are not a message.

use prost::DecodeError;

pub type Result<T> = std::result::Result<T, WireError>;

/// The bytes are not a message, or it has a value that no writer of this or an earlier version has put there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {fault}")]
pub struct WireError {
    /// `Message.field`, the innermost that is at fault; the message alone where it is not known which field was meant.
    pub field: &'static str,
    pub fault: Fault,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("missing")]
    Missing,
    #[error("unknown value")]
    Invalid,
    /// Protobuf would make one message of the two.
    #[error("a message that is there twice")]
    Repeated,
    #[error("longer than what it is in")]
    Truncated,
    #[error("nested too deep")]
    TooDeep,
    #[error("columns that do not fit each other")]
    Columns,
    #[error(transparent)]
    Malformed(#[from] DecodeError),
}

impl WireError {
    /// Says where it was, unless that is known more closely.
    #[must_use]
    pub fn at(mut self, field: &'static str) -> Self {
        if self.field.is_empty() {
            self.field = field;
        }
        self
    }
}

impl<F: Into<Fault>> From<F> for WireError {
    fn from(fault: F) -> Self {
        Self {
            field: "",
            fault: fault.into(),
        }
    }
}
