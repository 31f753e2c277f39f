//! What tenants are told.

use crate::feed::{FeedItem, FeedKind, Outcome};
use crate::operation::{OutcomeKind, SubmitState, Waiting};
use prost::Message;
use schemas::v1::{
    self, outcome::Result as Reply, submitted::State as Stands, tenant_event::Kind as Told,
};
use vocab::{AllocationNo, CellNo, EndCause, GpuShare, LeaseNo, Millis, Token};
use wire::Message as _;

/// The fencing token that a lease is granted with.
const FIRST_FENCING_TOKEN: u64 = 1;

pub fn outcome(outcome: &Outcome, cell: CellNo) -> v1::Outcome {
    v1::Outcome {
        operation_id: text(&outcome.operation_id),
        lsn: outcome.lsn.0,
        result: Some(reply(&outcome.kind, cell)),
    }
}

fn reply(kind: &OutcomeKind, cell: CellNo) -> Reply {
    match kind {
        OutcomeKind::Submitted { allocation, state } => Reply::Submitted(v1::Submitted {
            allocation_id: id(*allocation, cell),
            state: Some(match state {
                SubmitState::Placed { node, gpus } => Stands::Placed(placed(node, gpus)),
                SubmitState::Waiting(why) => Stands::Waiting(waiting(why)),
                SubmitState::Ended { cause, at } => Stands::Ended(ended(*cause, None, *at)),
            }),
        }),
        OutcomeKind::Cancelled { allocation } => Reply::Cancelled(v1::Cancelled {
            allocation_id: id(*allocation, cell),
        }),
        OutcomeKind::JobSetCancelled { allocations } => {
            let allocations = *allocations;
            Reply::JobSetCancelled(v1::JobSetCancelled { allocations })
        }
        OutcomeKind::PrioritySet { allocations } => {
            let allocations = *allocations;
            Reply::PrioritySet(v1::PrioritySet { allocations })
        }
        OutcomeKind::Applied { version } => Reply::Applied(v1::Applied { version: *version }),
        OutcomeKind::ResourceCreated => Reply::ResourceCreated(v1::ResourceCreated { version: 0 }),
        OutcomeKind::Granted { lease, deadline } => Reply::LeaseGranted(v1::LeaseGranted {
            lease_id: lease_id(*lease, cell),
            fencing_token: FIRST_FENCING_TOKEN,
            deadline_slot: *deadline,
        }),
        OutcomeKind::Confirmed => Reply::Confirmed(v1::Confirmed {}),
        OutcomeKind::Released { fencing_token } => Reply::Released(v1::Released {
            fencing_token: *fencing_token,
        }),
        OutcomeKind::Revoked { fencing_token } => Reply::Revoked(v1::Revoked {
            fencing_token: *fencing_token,
        }),
        OutcomeKind::Reclaimed => Reply::Reclaimed(v1::Reclaimed {}),
        OutcomeKind::Refused(refusal) => Reply::Refused(v1::Refused {
            refusal: Some(refusal.to_prost()),
            retryable: refusal.rule.retryable(),
            explanation: refusal.to_string(),
        }),
    }
}

/// One event of the feed.
pub fn tenant_event(item: &FeedItem, cell: CellNo) -> v1::TenantEvent {
    let (kind, at) = told(&item.kind, cell);
    v1::TenantEvent {
        lsn: item.position.lsn.0,
        index: item.position.index,
        now_ms: item.now.0,
        allocation_id: item.allocation.map(|no| id(no, cell)).unwrap_or_default(),
        job_set: item.job_set.to_string(),
        name: text(&item.name),
        kind: Some(kind),
        at_ms: at.map_or(0, |at| at.0),
    }
}

/// What is told, and when a run started or ended, if that is what it says.
fn told(kind: &FeedKind, cell: CellNo) -> (Told, Option<Millis>) {
    match kind {
        FeedKind::Outcome(o) => (Told::Outcome(outcome(o, cell)), None),
        FeedKind::Requested(spec) => {
            let requested = v1::Requested {
                qos: spec.qos() as i32,
                spec: Some(spec.to_prost()),
            };
            (Told::Requested(requested), None)
        }
        FeedKind::PriorityChanged(priority) => {
            let priority = *priority;
            let changed = v1::PriorityChanged { priority };
            (Told::PriorityChanged(changed), None)
        }
        FeedKind::Denied(refusal) => {
            let refusal = Some(refusal.to_prost());
            (Told::Denied(v1::Denied { refusal }), None)
        }
        FeedKind::Placed { node, gpus } => (Told::Placed(placed(node, gpus)), None),
        FeedKind::Waiting(why) => (Told::Waiting(waiting(why)), None),
        FeedKind::Started { at } => (Told::Started(v1::Started {}), Some(*at)),
        FeedKind::Stopping => (Told::Stopping(v1::Stopping {}), None),
        FeedKind::Ended { cause, started, at } => {
            (Told::Ended(ended(*cause, *started, *at)), Some(*at))
        }
        FeedKind::Preempted { cause, grace_until } => {
            let preempted = v1::Preempted {
                cause: cause.number(),
                grace_until_ms: grace_until.0,
            };
            (Told::Preempted(preempted), None)
        }
        FeedKind::Requeued {
            cause,
            at,
            not_before,
        } => {
            let requeued = v1::Requeued {
                cause: cause.number(),
                ended_ms: at.0,
                not_before_ms: not_before.0,
            };
            (Told::Requeued(requeued), Some(*at))
        }
        FeedKind::Expired {
            lease,
            fencing_token,
        } => {
            let expired = v1::Expired {
                lease_id: lease_id(*lease, cell),
                fencing_token: *fencing_token,
            };
            (Told::Expired(expired), None)
        }
    }
}

fn text(token: &Option<Token>) -> String {
    token.as_ref().map(Token::to_string).unwrap_or_default()
}

fn id(allocation: AllocationNo, cell: CellNo) -> String {
    allocation.id(cell).to_string()
}

fn lease_id(lease: LeaseNo, cell: CellNo) -> String {
    lease.id(cell).to_string()
}

fn placed(node: &Token, gpus: &[GpuShare]) -> v1::Placed {
    v1::Placed {
        node: node.to_string(),
        gpus: gpus.iter().map(|share| share.to_prost()).collect(),
    }
}

fn waiting(waiting: &Waiting) -> v1::Waiting {
    let quota = waiting.quota.as_ref();
    v1::Waiting {
        reason: waiting.reason.number(),
        quota: quota.map(|refusal| refusal.to_prost()),
        explanation: quota.map(ToString::to_string).unwrap_or_default(),
    }
}

fn ended(cause: EndCause, started: Option<Millis>, at: Millis) -> v1::Ended {
    v1::Ended {
        cause: cause.number(),
        started_ms: started.map_or(0, |at| at.0),
        ended_ms: at.0,
    }
}

/// An outcome as it goes to who waits for it.
pub type OutcomeMessage = v1::Outcome;
/// An event as it goes to a feed.
pub type EventMessage = v1::TenantEvent;

/// What is sent on a reply subject, encoded.
pub fn outcomes(outcomes: Vec<OutcomeMessage>) -> Vec<u8> {
    v1::Outcomes { outcomes }.encode_to_vec()
}

/// What is sent on a feed's subject, encoded.
pub fn tenant_events(events: Vec<EventMessage>) -> Vec<u8> {
    v1::TenantEvents { events }.encode_to_vec()
}
