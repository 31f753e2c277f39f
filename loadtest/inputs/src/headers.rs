//! Subjects and headers of bus messages.

use crate::parts::Parts;
use admission::publish::Part;
use async_nats::{HeaderMap, HeaderValue};
use bytes::Bytes;
use chassis::TraceParent;
use ledger::LedgerId;
use ledger_nats::jetstream::inbox_message;
use vocab::subjects::{
    HEADER_DIGEST, HEADER_LEDGER, HEADER_PART, HEADER_POSITION, HEADER_TRACEPARENT, Subjects,
};

/// Reads a message in three parts: its subject after the cell's prefix, its header block, and the headers of a feed message.
/// True if the subject names a sender.
pub fn message(input: &[u8]) -> bool {
    let mut parts = Parts::of(input).map(|(_, part)| part);
    let (subject, block) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    let subjects = Subjects::new("c1");
    let rest = String::from_utf8_lossy(subject);
    let subject = subjects.ingress("x").replace("ingress.x", &rest);
    let payload = Bytes::from_static(b"payload");
    let message = inbox_message(&subjects, 1, &subject, block, &payload);
    feed(parts.next().unwrap_or_default());
    trace(block);
    let is_known = !message.payload.is_empty();
    assert!(is_known || message.reply_to.is_none() && message.trace.is_none());
    if let Some(trace) = message.trace {
        let parent = TraceParent::new(trace.trace_id, trace.span_id, trace.flags & 1 == 1);
        let parent = parent.expect("a carried trace has IDs");
        assert!(parent.sampled(), "an unsampled trace is carried");
        assert_eq!(TraceParent::from_bytes(&parent.to_bytes()), Some(parent));
        let written = format!("NATS/1.0\r\n{HEADER_TRACEPARENT}: {parent}\r\n\r\n");
        let again = inbox_message(&subjects, 1, &subject, written.as_bytes(), &payload);
        let same = again.trace.map(|it| (it.trace_id, it.span_id));
        assert_eq!(same, Some((trace.trace_id, trace.span_id)));
    }
    is_known
}

/// Asserts that a trace is carried exactly if its header is valid by the standard and the trace is sampled.
fn trace(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let line = text.lines().next().unwrap_or_default();
    let (subjects, payload) = (Subjects::new("c1"), Bytes::new());
    let block = format!("NATS/1.0\r\n{HEADER_TRACEPARENT}: {line}\r\n\r\n");
    let message = inbox_message(
        &subjects,
        1,
        &subjects.ingress("t"),
        block.as_bytes(),
        &payload,
    );
    let parent = TraceParent::parse(line.trim()).filter(TraceParent::sampled);
    assert_eq!(
        message.trace.map(|it| it.trace_id),
        parent.map(|it| it.trace_id()),
        "{line:?}"
    );
}

/// Reads the headers of a feed message, one value per line in the order of `names`.
fn feed(text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    let names = [HEADER_LEDGER, HEADER_POSITION, HEADER_PART, HEADER_DIGEST];
    let mut headers = HeaderMap::new();
    for (name, value) in names.into_iter().zip(text.lines()) {
        if let Ok(value) = value.parse::<HeaderValue>() {
            headers.insert(name, value);
        }
    }
    if let Some(part) = Part::read(&headers) {
        let again = part.headers(LedgerId(1));
        let read = Part::read(&again).expect("written headers are readable");
        assert_eq!(read.headers(LedgerId(1)), again);
    }
}
