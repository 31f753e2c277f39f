//! Why bytes are not a message.

pub type Result<T, E = WireError> = std::result::Result<T, E>;

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
    #[error("varint without an end or above 2^64 - 1")]
    Varint,
    #[error("invalid key: a field's number is 1 to 2^29 - 1, its wire type 0 to 5")]
    Key,
    #[error("unexpected wire type")]
    WireType,
    #[error("end of a group that did not begin")]
    Group,
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
