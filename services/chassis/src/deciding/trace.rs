//! Spans of sampled requests, taken from what passes by on the ledger: deciding knows nothing of them.

use std::collections::BTreeMap;
use vocab::fact::{AllocationEnded, AllocationRequested};

use ledger::Frame;
use vocab::{AllocationNo, At, Event, Operation};

use crate::clock::Stamp;
use crate::telemetry::{Attribute, Journey, TraceParent};
use opentelemetry::trace::SpanKind;

/// Sampled requests followed at the same time; beyond that the oldest is let go. Only the scheduler's own frames say
/// that one has ended, so elsewhere this is what bounds them.
const FOLLOWED_MAX: usize = 10_000;

/// Follows sampled allocations through one service.
pub struct JourneyTap {
    service: &'static str,
    journey: Journey,
    followed: BTreeMap<AllocationNo, TraceParent>,
}

impl JourneyTap {
    pub fn new(service: &'static str, journey: Journey) -> Self {
        Self {
            service,
            journey,
            followed: BTreeMap::new(),
        }
    }

    /// Learns of sampled requests from admission's frames.
    pub fn received(&mut self, frame: &Frame) {
        if self.journey.enabled() {
            for (at, event) in frame.placed() {
                self.learn(&at, event);
            }
        }
    }

    fn learn(&mut self, at: &At, event: &Event) {
        if let Event::AllocationRequested(AllocationRequested { operation, .. }) = event
            && let Some(parent) = parent(operation)
        {
            if self.followed.len() >= FOLLOWED_MAX {
                self.followed.pop_first();
            }
            self.followed.insert(AllocationNo(at.no.0), parent);
        }
    }

    /// One span for each durable event that a followed request is in, and the end of following with the allocation's.
    pub fn committed(&mut self, start: Stamp, frame: &Frame) {
        if !self.journey.enabled() {
            return;
        }
        let end = Stamp::now();
        for (at, event) in frame.placed() {
            self.learn(&at, event);
            let Some(allocation) = event.allocation(at.no) else {
                continue;
            };
            let Some(parent) = self.followed.get(&allocation) else {
                continue;
            };
            let attributes: [(&'static str, Attribute<'_>); 3] = [
                ("messaging.system", "nats".into()),
                ("apportion.service", self.service.into()),
                ("apportion.event_no", at.no.0.into()),
            ];
            let kind = SpanKind::Consumer;
            self.journey
                .span(event.kind().name(), kind, parent, start, end, &attributes);
        }
        for (_, event) in frame.placed() {
            if let Event::AllocationEnded(AllocationEnded { allocation, .. }) = event {
                self.followed.remove(allocation);
            }
        }
    }
}

fn parent(operation: &Operation) -> Option<TraceParent> {
    let trace = operation.trace?;
    TraceParent::new(trace.trace_id, trace.span_id, trace.flags & 1 == 1)
}
