//! Where allocations stand, rebuilt from their tenant's feed alone.

use schemas::v1::{
    AllocationSpec, Ended, Outcome, Placed, Preempted, QosClass, Refusal, Requeued, TenantEvent,
    Waiting, outcome::Result as Decided, tenant_event::Kind,
};
use std::collections::BTreeMap;

/// All allocations that a feed has told of, by their ids.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Allocations(BTreeMap<String, AllocationState>);

/// Where one allocation stands.
#[derive(Debug, Clone, PartialEq)]
pub struct AllocationState {
    pub job_set: String,
    /// Empty: it has none.
    pub name: String,
    /// What it asks for; none when its feed was not read from the beginning.
    pub spec: Option<AllocationSpec>,
    pub qos: QosClass,
    /// What it is now.
    pub priority: i32,
    pub stands: Stands,
    /// Where its run is, or its last one was.
    pub placed: Option<Placed>,
    /// When the run that is not over began, Unix ms.
    pub started_ms: Option<i64>,
    /// It has to make room.
    pub preempted: Option<Preempted>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Stands {
    /// Accepted, and nothing else yet.
    Requested,
    Waiting(Waiting),
    /// A run was over, and it waits again.
    Requeued(Requeued),
    Placed,
    Started,
    Stopping,
    Ended(Ended),
    /// Quota was refused: it has never waited for a node.
    Denied(Refusal),
}

impl Stands {
    /// Nothing will change any more.
    pub fn is_over(&self) -> bool {
        match self {
            Self::Ended(_) | Self::Denied(_) => true,
            Self::Requested
            | Self::Waiting(_)
            | Self::Requeued(_)
            | Self::Placed
            | Self::Started
            | Self::Stopping => false,
        }
    }
}

impl Allocations {
    /// Takes the next event, in the feed's order.
    pub fn take(&mut self, event: &TenantEvent) {
        let (Some(kind), false) = (&event.kind, event.allocation_id.is_empty()) else {
            return;
        };
        let first = || AllocationState {
            job_set: event.job_set.clone(),
            name: event.name.clone(),
            spec: None,
            qos: QosClass::Unspecified,
            priority: 0,
            stands: Stands::Requested,
            placed: None,
            started_ms: None,
            preempted: None,
        };
        let id = event.allocation_id.clone();
        let state = self.0.entry(id).or_insert_with(first);
        state.take(kind, event.at_ms);
    }

    pub fn get(&self, allocation_id: &str) -> Option<&AllocationState> {
        self.0.get(allocation_id)
    }

    /// With their ids, in the ids' order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &AllocationState)> {
        self.0.iter().map(|(id, state)| (id.as_str(), state))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// There are some, and all of them have ended.
    pub fn all_over(&self) -> bool {
        !self.0.is_empty() && self.0.values().all(|state| state.stands.is_over())
    }
}

impl AllocationState {
    fn take(&mut self, kind: &Kind, at_ms: i64) {
        match kind {
            Kind::Requested(requested) => {
                self.qos = requested.qos();
                self.spec = requested.spec.clone();
                self.priority = self.spec.as_ref().map_or(0, |spec| spec.priority);
            }
            Kind::PriorityChanged(changed) => self.priority = changed.priority,
            Kind::Waiting(waiting) => self.stands = Stands::Waiting(waiting.clone()),
            Kind::Placed(placed) => {
                self.placed = Some(placed.clone());
                self.stands = Stands::Placed;
            }
            Kind::Started(_) => {
                self.started_ms = Some(at_ms);
                self.stands = Stands::Started;
            }
            Kind::Stopping(_) => self.stands = Stands::Stopping,
            Kind::Preempted(preempted) => self.preempted = Some(*preempted),
            Kind::Requeued(requeued) => {
                self.run_over();
                self.stands = Stands::Requeued(*requeued);
            }
            Kind::Ended(ended) => {
                self.run_over();
                self.stands = Stands::Ended(*ended);
            }
            Kind::Denied(denied) => self.denied(denied.refusal.as_ref()),
            // What a submit came to, another event says, unless it came to nothing. Other verbs' outcomes say nothing that
            // the allocation's own events do not.
            Kind::Outcome(Outcome {
                result: Some(Decided::Refused(refused)),
                ..
            }) => self.denied(refused.refusal.as_ref()),
            Kind::Outcome(_) | Kind::Expired(_) => {}
        }
    }

    fn run_over(&mut self) {
        self.started_ms = None;
        self.preempted = None;
    }

    fn denied(&mut self, refusal: Option<&Refusal>) {
        self.stands = Stands::Denied(refusal.cloned().unwrap_or_default());
    }
}
