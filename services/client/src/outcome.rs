//! The ways in which an operation does not succeed.

use schemas::v1::Refused;

/// Why there is no outcome to an operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoOutcome {
    /// Definite: the inbox did not take the request, so nothing was or will be decided about it.
    #[error("not received: {why}")]
    NotReceived {
        why: String,
        /// Whether the same request may be taken later.
        retryable: bool,
    },
    /// The request may or may not be decided. Send the same operation again.
    #[error("indefinite: {why}; send the same operation again")]
    Indefinite { why: String },
}

impl NoOutcome {
    /// Whether sending the same operation again can lead to an outcome.
    pub fn retryable(&self) -> bool {
        match self {
            Self::NotReceived { retryable, .. } => *retryable,
            Self::Indefinite { .. } => true,
        }
    }
}

/// Why a verb did not succeed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Failed {
    /// Definite: decided, and against.
    #[error("refused: {}", .0.explanation)]
    Refused(Refused),
    #[error(transparent)]
    NoOutcome(#[from] NoOutcome),
    /// The outcome is definite, but of a kind that does not answer the verb: another program used this operation id.
    #[error("operation {operation_id} was answered with the outcome of another verb")]
    OtherVerb { operation_id: String },
}
