//! A message on its way to the inbox: its acknowledgement, and what it means when there is none.

use crate::{
    NoOutcome,
    connect::Inner,
    envelope::Envelope,
    replies::{Denial, Slot, Waiters},
};
use async_nats::{
    HeaderMap,
    jetstream::{
        self,
        context::{PublishError, PublishErrorKind},
    },
};
use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use std::{error::Error, future::IntoFuture, sync::Arc};
use vocab::subjects::{HEADER_REPLY, HEADER_TRACEPARENT};

/// The server's code for a stream that did not store a message, such as a full one that discards new ones.
const STREAM_STORE_FAILED: u64 = 10_077;
/// The server's code for a message beyond what the inbox takes.
const MESSAGE_TOO_LARGE: u64 = 10_054;

/// Whether the stream has the message; all of its operations share it.
pub(crate) type Acknowledged = Shared<BoxFuture<'static, Result<(), NoOutcome>>>;

/// A message that was handed to the connection.
#[derive(Clone)]
pub(crate) struct Sent {
    pub(crate) slot: Arc<Slot>,
    pub(crate) acknowledged: Acknowledged,
}

impl Inner {
    /// Hands a message to the connection. Messages reach the inbox in the order of these calls.
    pub(crate) async fn publish(
        &self,
        envelope: Envelope,
        waiters: Waiters,
    ) -> Result<Sent, NoOutcome> {
        let subject = self.inbox.clone();
        let array = envelope.array().map(str::to_owned);
        let slot = self.replies.register(waiters, array);
        let mut headers = HeaderMap::new();
        headers.insert(HEADER_REPLY, slot.token.as_str());
        if let Some(traceparent) = envelope.traceparent() {
            headers.insert(HEADER_TRACEPARENT, traceparent);
        }
        let denial = self.replies.denial.clone();
        let denied = denial.of(&subject);
        let ack = self
            .jetstream
            .publish_with_headers(subject, headers, envelope.payload())
            .await
            .map_err(|error| unacknowledged(&error, &denial))?;
        let acknowledged = async move {
            tokio::select! {
                biased;
                ack = ack.into_future() => {
                    ack.map(drop).map_err(|e| unacknowledged(&e, &denial))
                }
                said = denied => Err(NoOutcome::NotReceived {
                    why: format!("the bus does not let it through: {said}"),
                    retryable: false,
                }),
            }
        };
        Ok(Sent {
            slot: Arc::new(slot),
            acknowledged: acknowledged.boxed().shared(),
        })
    }
}

/// Only what cannot have stored the message is definite; all else may have been stored.
fn unacknowledged(error: &PublishError, denial: &Denial) -> NoOutcome {
    let refused = |retryable| NoOutcome::NotReceived {
        why: error.to_string(),
        retryable,
    };
    let code = error
        .source()
        .and_then(|source| source.downcast_ref::<jetstream::Error>())
        .map(|source| source.error_code().0);
    match error.kind() {
        // Nobody listens on the subject: the stream does not exist, or not yet.
        PublishErrorKind::StreamNotFound => refused(true),
        PublishErrorKind::MaxPayloadExceeded => refused(false),
        _ if code == Some(STREAM_STORE_FAILED) => refused(true),
        _ if code == Some(MESSAGE_TOO_LARGE) => refused(false),
        _ => NoOutcome::Indefinite {
            why: denial.append_to(error.to_string()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_surely_not_stored_is_definite() {
        let denial = Denial::default();
        let of = |kind| unacknowledged(&PublishError::new(kind), &denial);
        assert!(matches!(
            of(PublishErrorKind::StreamNotFound),
            NoOutcome::NotReceived {
                retryable: true,
                ..
            }
        ));
        assert!(matches!(
            of(PublishErrorKind::MaxPayloadExceeded),
            NoOutcome::NotReceived {
                retryable: false,
                ..
            }
        ));
        denial.set("Permissions Violation");
        let NoOutcome::Indefinite { why } = of(PublishErrorKind::TimedOut) else {
            panic!("a lost acknowledgement is indefinite");
        };
        assert!(
            why.ends_with("the server said: Permissions Violation"),
            "{why}"
        );
    }
}
