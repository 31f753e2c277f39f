//! Operations that go out in one message.

use crate::Operation;
use bytes::Bytes;
use prost::Message;
use std::collections::HashSet;

/// Operations in a message, at the most: the inbox's bound.
pub(crate) const COUNT_MAX: usize = 1000;
/// Their encoded size, at the most: below the inbox's 64 KiB, with room for what is around them.
const BYTES_MAX: usize = 60 * 1024;
/// An operation's tag and length in its batch, at the most.
const FRAMING: usize = 4;

/// A request with a batch, around requests that are encoded already.
#[derive(Clone, PartialEq, Message)]
struct BatchRequest {
    #[prost(message, tag = "12")]
    batch: Option<RawBatch>,
}

#[derive(Clone, PartialEq, Message)]
struct RawBatch {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    requests: Vec<Bytes>,
}

/// What fits into one message: ids once each, so that an outcome says by its id whose it is; one trace; nothing that may
/// be no request.
#[derive(Default)]
pub(crate) struct Envelope {
    ids: HashSet<String>,
    payloads: Vec<Bytes>,
    traceparent: Option<String>,
    bytes: usize,
    sealed: bool,
    array: Option<String>,
}

impl Envelope {
    pub(crate) fn takes(&self, operation: &Operation) -> bool {
        if self.payloads.is_empty() {
            return true;
        }
        !self.sealed
            && !operation.is_raw()
            && self.payloads.len() < COUNT_MAX
            && self.bytes + operation.payload().len() + FRAMING <= BYTES_MAX
            && self.traceparent.as_deref() == operation.traceparent()
            && !self.ids.contains(operation.id())
    }

    pub(crate) fn push(&mut self, operation: &Operation) {
        let payload = operation.payload();
        self.sealed |= operation.is_raw();
        self.bytes += payload.len() + FRAMING;
        self.payloads.push(payload);
        self.ids.insert(operation.id().to_owned());
        self.traceparent = operation.traceparent().map(str::to_owned);
    }

    /// An array, which goes alone.
    pub(crate) fn of_array(operation: &Operation) -> Self {
        let mut envelope = Self::default();
        envelope.push(operation);
        envelope.sealed = true;
        envelope.array = Some(operation.id().to_owned());
        envelope
    }

    /// The operation id of the array that it is.
    pub(crate) fn array(&self) -> Option<&str> {
        self.array.as_deref()
    }

    pub(crate) fn traceparent(&self) -> Option<&str> {
        self.traceparent.as_deref()
    }

    /// A single operation goes as it is.
    pub(crate) fn payload(mut self) -> Bytes {
        if self.payloads.len() == 1 {
            return self.payloads.remove(0);
        }
        let batch = RawBatch {
            requests: self.payloads,
        };
        BatchRequest { batch: Some(batch) }.encode_to_vec().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::v1::{Cancel, Request, request::Verb};

    fn operation(id: &str, bytes: usize) -> Operation {
        let allocation_id = "x".repeat(bytes);
        Operation::new(id, Verb::Cancel(Cancel { allocation_id }))
    }

    fn envelopes(operations: &[Operation]) -> Vec<Envelope> {
        let mut all: Vec<Envelope> = Vec::new();
        for operation in operations {
            if all.last().is_none_or(|last| !last.takes(operation)) {
                all.push(Envelope::default());
            }
            if let Some(last) = all.last_mut() {
                last.push(operation);
            }
        }
        all
    }

    fn check(operations: &[Operation], expected: &[usize]) {
        let all = envelopes(operations);
        let counts: Vec<usize> = all.iter().map(|envelope| envelope.payloads.len()).collect();
        assert_eq!(counts, expected);
        for envelope in all {
            assert!(envelope.payload().len() <= 65_536);
        }
    }

    #[test]
    fn a_message_is_bounded_and_has_each_id_once() {
        let small = |count: usize| -> Vec<Operation> {
            (0..count).map(|i| operation(&format!("o{i}"), 1)).collect()
        };
        check(&small(1), &[1]);
        check(&small(2001), &[1000, 1000, 1]);
        let large: Vec<Operation> = (0..5)
            .map(|i| operation(&format!("o{i}"), 30_000))
            .collect();
        check(&large, &[2, 2, 1]);
        let [a, b] = [operation("a", 1), operation("b", 1)];
        check(&[a.clone(), b.clone(), a.clone()], &[2, 1]);
        check(&[a.clone(), b.clone().traced(Some("t".into()))], &[1, 1]);
        let raw = Operation::raw("r", b"\xff".to_vec());
        check(&[raw.clone(), a.clone(), b.clone(), raw, a], &[1, 2, 1, 1]);
    }

    #[test]
    fn many_are_a_batch_and_one_is_itself() {
        let [a, b] = [operation("a", 1), operation("b", 2)];
        let mut one = envelopes(std::slice::from_ref(&a));
        assert_eq!(one.remove(0).payload(), a.payload());
        let mut two = envelopes(&[a, b]);
        let request = Request::decode(two.remove(0).payload()).unwrap();
        let Some(Verb::Batch(batch)) = request.verb else {
            panic!("{request:?}");
        };
        let ids: Vec<_> = batch.requests.iter().map(|r| &*r.operation_id).collect();
        assert_eq!((&*request.operation_id, &*ids), ("", &["a", "b"][..]));
    }
}
