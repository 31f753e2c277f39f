//! A request before it is sent, complete enough to be sent again.

use bytes::Bytes;
use prost::Message;
use schemas::v1::{Request, request::Verb};
use uuid::Uuid;

/// One operation: its id, its content, and the trace it belongs to. Sending it twice is the same operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    id: String,
    payload: Bytes,
    traceparent: Option<String>,
    /// Perhaps no request, so it goes alone.
    raw: bool,
}

impl Operation {
    /// The id is checked by the cell and not here, so that its refusal is seen by whoever sent it.
    pub fn new(id: impl Into<String>, verb: Verb) -> Self {
        let id = id.into();
        let request = Request {
            operation_id: id.clone(),
            verb: Some(verb),
        };
        Self {
            id,
            payload: request.encode_to_vec().into(),
            traceparent: None,
            raw: false,
        }
    }

    /// Bytes that are perhaps no request at all, for tests of the inbox.
    pub fn raw(id: impl Into<String>, payload: impl Into<Bytes>) -> Self {
        Self {
            id: id.into(),
            payload: payload.into(),
            traceparent: None,
            raw: true,
        }
    }

    /// A fresh operation id. Write it down before sending: it is what makes a retry the same operation.
    pub fn fresh_id() -> String {
        Uuid::new_v4().simple().to_string()
    }

    /// Sends the W3C trace context of the caller's span along.
    pub fn traced(mut self, traceparent: Option<String>) -> Self {
        self.traceparent = traceparent;
        self
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn payload(&self) -> Bytes {
        self.payload.clone()
    }

    pub(crate) fn traceparent(&self) -> Option<&str> {
        self.traceparent.as_deref()
    }

    pub(crate) fn is_raw(&self) -> bool {
        self.raw
    }
}
