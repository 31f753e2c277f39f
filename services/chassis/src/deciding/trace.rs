//! Spans of sampled requests, taken from what passes by on the ledger: deciding knows nothing of them.
//!
//! All spans of a request are one tree. The span of an event hangs below that of the event that its writer has read or written
//! last of the same allocation; ids of such spans follow from the event ([`TraceParent::of_event`]), so each service finds them by
//! itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vocab::fact::{AllocationEnded, AllocationRequested};

use ledger::Frame;
use vocab::{AllocationNo, At, CellNo, Event, Operation, Token, subjects::Subjects};

use crate::clock::Stamp;
use crate::telemetry::{Attribute, Journey, TraceParent};
use opentelemetry::trace::SpanKind;

/// Sampled requests followed at the same time; beyond that the oldest is let go. Only the scheduler's own frames say
/// that one has ended, so elsewhere this is what bounds them.
const FOLLOWED_MAX: usize = 10_000;

/// Follows sampled allocations through one service. Clones follow together.
#[derive(Clone, Debug)]
pub struct JourneyTap {
    service: &'static str,
    /// Where its events go.
    ledger: Arc<str>,
    cell: CellNo,
    journey: Journey,
    followed: Arc<Mutex<BTreeMap<AllocationNo, Followed>>>,
}

#[derive(Debug)]
struct Followed {
    tenant: Token,
    /// The span that the next one hangs below.
    position: TraceParent,
}

impl JourneyTap {
    /// Of the service, which is the writer of the same name if it decides.
    pub fn new(service: &'static str, subjects: &Subjects, cell: CellNo, journey: Journey) -> Self {
        Self {
            service,
            ledger: subjects.ledger(service).into(),
            cell,
            journey,
            followed: Arc::default(),
        }
    }

    /// Learns of sampled requests, and of what became of them.
    pub fn received(&self, frame: &Frame) {
        if !self.journey.enabled() {
            return;
        }
        let mut followed = self.lock();
        for (at, event) in frame.placed() {
            if let Some((request, of)) = sampled(&at, event) {
                if followed.len() >= FOLLOWED_MAX {
                    followed.pop_first();
                }
                followed.insert(request, of);
            }
            if let Some(of) = event.allocation(at.no).and_then(|no| followed.get_mut(&no)) {
                of.position = of.position.of_event(frame.writer.name(), at.no.0);
            }
        }
    }

    /// One span for each durable event that a followed request is in, and the end of following with the allocation's.
    pub fn committed(&self, start: Stamp, frame: &Frame) {
        if !self.journey.enabled() {
            return;
        }
        let end = Stamp::now();
        let mut followed = self.lock();
        for (at, event) in frame.placed() {
            if let Some((request, of)) = sampled(&at, event) {
                followed.insert(request, of);
            }
            let Some(no) = event.allocation(at.no) else {
                continue;
            };
            let Some(of) = followed.get_mut(&no) else {
                continue;
            };
            let position = of.position.of_event(self.service, at.no.0);
            let name = event.kind().name();
            let id = no.id(self.cell).to_string();
            let attributes = [
                ("messaging.system", "nats".into()),
                ("messaging.destination.name", (&*self.ledger).into()),
                ("messaging.operation.name", "append".into()),
                ("messaging.operation.type", "send".into()),
                ("apportion.service", self.service.into()),
                ("apportion.tenant", of.tenant.as_str().into()),
                ("apportion.allocation.id", id.as_str().into()),
                ("apportion.event_no", at.no.0.into()),
            ];
            let place = (&position, &of.position);
            let journey = &self.journey;
            journey.span_at(name, SpanKind::Producer, place, (start, end), &attributes);
            of.position = position;
        }
        for (_, event) in frame.placed() {
            if let Event::AllocationEnded(AllocationEnded { allocation, .. }) = event {
                followed.remove(allocation);
            }
        }
    }

    /// Something was published to `destination` that no event says; what comes of it hangs below.
    pub fn published(&self, name: &'static str, no: AllocationNo, destination: &str, start: Stamp) {
        if !self.journey.enabled() {
            return;
        }
        let mut followed = self.lock();
        let Some(of) = followed.get_mut(&no) else {
            return;
        };
        let id = no.id(self.cell).to_string();
        let attributes: [(&'static str, Attribute<'_>); 7] = [
            ("messaging.system", "nats".into()),
            ("messaging.destination.name", destination.into()),
            ("messaging.operation.name", "publish".into()),
            ("messaging.operation.type", "send".into()),
            ("apportion.service", self.service.into()),
            ("apportion.tenant", of.tenant.as_str().into()),
            ("apportion.allocation.id", id.as_str().into()),
        ];
        let (kind, end) = (SpanKind::Producer, Stamp::now());
        let journey = &self.journey;
        of.position = journey.span(name, kind, &of.position, start, end, &attributes);
    }

    /// An entry is whole before it is in the map.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<AllocationNo, Followed>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The request of an allocation that is sampled.
fn sampled(at: &At, event: &Event) -> Option<(AllocationNo, Followed)> {
    let Event::AllocationRequested(AllocationRequested { operation, .. }) = event else {
        return None;
    };
    let position = parent(operation).filter(TraceParent::sampled)?;
    let tenant = operation.tenant.clone();
    Some((AllocationNo(at.no.0), Followed { tenant, position }))
}

fn parent(operation: &Operation) -> Option<TraceParent> {
    let trace = operation.trace?;
    TraceParent::new(trace.trace_id, trace.span_id, trace.flags & 1 == 1)
}
