//! What the tenants' feeds have to hold, read from the ledger by rules of its own: it shares no code with the feed.

use client::TenantEvent;
use schemas::v1::tenant_event::Kind;
use std::collections::BTreeMap;
use vocab::fact::{
    AllocationEnded, AllocationPlaced, AllocationPreempted, AllocationReprioritised,
    AllocationRequested, AllocationRequeued, AllocationStarted, AllocationStopping,
    AllocationWaiting, CancelRequested, JobSetCancelRequested, OperationRefused, PriorityRequested,
    QuotaWaiting, ResourceAsked,
};
use vocab::{AllocationNo, At, CellNo, Event, Token};

/// One event of a feed, as far as both sides name it alike.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    pub lsn: u64,
    pub index: u32,
    pub what: &'static str,
    pub allocation: String,
}

/// The whole ledger, folded.
#[derive(Debug)]
pub struct Ledger {
    cell: CellNo,
    tenant_of: BTreeMap<AllocationNo, Token>,
    /// By tenant, in order: what is said of allocations.
    lines: BTreeMap<Token, Vec<Line>>,
    /// By tenant and operation id: how often it was taken up.
    operations: BTreeMap<(Token, String), u32>,
    pub events: u64,
}

impl Ledger {
    pub fn new(cell: CellNo) -> Self {
        Self {
            cell,
            tenant_of: BTreeMap::new(),
            lines: BTreeMap::new(),
            operations: BTreeMap::new(),
            events: 0,
        }
    }

    pub fn lines(&self, tenant: &Token) -> &[Line] {
        self.lines.get(tenant).map_or(&[], Vec::as_slice)
    }

    pub fn operations(&self) -> impl Iterator<Item = (&Token, &str, u32)> {
        let all = self.operations.iter();
        all.map(|((tenant, id), count)| (tenant, id.as_str(), *count))
    }

    pub fn times_taken(&self, tenant: &Token, id: &str) -> u32 {
        let key = (tenant.clone(), id.to_owned());
        self.operations.get(&key).copied().unwrap_or(0)
    }

    pub fn see(&mut self, at: &At, event: &Event) {
        self.events += 1;
        match event {
            Event::AllocationRequested(AllocationRequested { operation, .. }) => {
                let allocation = AllocationNo(at.no.0);
                self.tenant_of.insert(allocation, operation.tenant.clone());
                self.take(operation);
                self.tell(at, allocation, "requested");
            }
            Event::CancelRequested(CancelRequested { operation, .. })
            | Event::JobSetCancelRequested(JobSetCancelRequested { operation, .. })
            | Event::PriorityRequested(PriorityRequested { operation, .. })
            | Event::ResourceAsked(ResourceAsked { operation, .. })
            | Event::OperationRefused(OperationRefused { operation, .. }) => self.take(operation),
            Event::QuotaWaiting(QuotaWaiting { allocation, .. })
            | Event::AllocationWaiting(AllocationWaiting { allocation, .. }) => {
                self.tell(at, *allocation, "waiting");
            }
            Event::AllocationPlaced(AllocationPlaced { allocation, .. }) => {
                self.tell(at, *allocation, "placed")
            }
            Event::AllocationStarted(AllocationStarted { allocation, .. }) => {
                self.tell(at, *allocation, "started")
            }
            Event::AllocationStopping(AllocationStopping { allocation, .. }) => {
                self.tell(at, *allocation, "stopping")
            }
            Event::AllocationPreempted(AllocationPreempted { allocation, .. }) => {
                self.tell(at, *allocation, "preempted");
            }
            Event::AllocationRequeued(AllocationRequeued { allocation, .. }) => {
                self.tell(at, *allocation, "requeued")
            }
            Event::AllocationReprioritised(AllocationReprioritised { allocation, .. }) => {
                self.tell(at, *allocation, "reprioritised");
            }
            Event::AllocationEnded(AllocationEnded { allocation, .. }) => {
                self.tell(at, *allocation, "ended")
            }
            // All others are not for tenants, or are told as outcomes only.
            _ => {}
        }
    }

    fn take(&mut self, operation: &vocab::Operation) {
        if let Some(id) = &operation.operation_id {
            let key = (operation.tenant.clone(), id.to_string());
            *self.operations.entry(key).or_default() += 1;
        }
    }

    /// The second one of an event's two positions in the feed; the first one is for outcomes.
    fn tell(&mut self, at: &At, allocation: AllocationNo, what: &'static str) {
        let Some(tenant) = self.tenant_of.get(&allocation) else {
            return;
        };
        self.lines.entry(tenant.clone()).or_default().push(Line {
            lsn: at.lsn.0,
            index: at.index * 2 + 1,
            what,
            allocation: allocation.id(self.cell).to_string(),
        });
    }
}

/// The same of a feed's event; nothing for an outcome, which is compared with what the client has asked.
pub fn line(event: &TenantEvent) -> Option<Line> {
    let what = match event.kind.as_ref()? {
        Kind::Outcome(_) | Kind::Denied(_) | Kind::Expired(_) => return None,
        Kind::Requested(_) => "requested",
        Kind::Waiting(_) => "waiting",
        Kind::Placed(_) => "placed",
        Kind::Started(_) => "started",
        Kind::Stopping(_) => "stopping",
        Kind::Preempted(_) => "preempted",
        Kind::Requeued(_) => "requeued",
        Kind::PriorityChanged(_) => "reprioritised",
        Kind::Ended(_) => "ended",
    };
    Some(Line {
        lsn: event.lsn,
        index: event.index,
        what,
        allocation: event.allocation_id.clone(),
    })
}
