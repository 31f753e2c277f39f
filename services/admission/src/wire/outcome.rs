//! What tenants are told, each message from its last field to its first.

use crate::feed::{FeedItem, FeedKind, Outcome};
use crate::operation::{OutcomeKind, SubmitState, Waiting};
use uuid::Uuid;
use vocab::{AllocationNo, CellNo, EndCause, GpuShares, LeaseNo, Millis, Refusal, RunExit, Token};
use wire::{Out as _, Plain, Row, Value as _};

/// The fencing token that a lease is granted with.
const FIRST_FENCING_TOKEN: u64 = 1;

/// `Outcomes.outcomes`, what is sent on a reply subject.
pub const OUTCOMES: u32 = 4;
/// `TenantEvents.events`, what is sent on a feed's subject.
pub const EVENTS: u32 = 1;

/// The body of an `Outcome`.
pub fn outcome(outcome: &Outcome, cell: CellNo, out: &mut Row) {
    reply(&outcome.kind, cell, out);
    field(&outcome.lsn, 2, out);
    field(&outcome.operation_id, 1, out);
}

fn field<T>(value: &T, number: u32, out: &mut Row)
where
    Plain: wire::Codec<T>,
{
    <Plain as wire::Codec<T>>::write_field(value, number, out);
}

fn reply(kind: &OutcomeKind, cell: CellNo, out: &mut Row) {
    match kind {
        OutcomeKind::Submitted { allocation, state } => out.message(10, |out| {
            match state {
                SubmitState::Placed { node, gpus } => {
                    out.message(2, |out| placed(node, gpus, out));
                }
                SubmitState::Waiting(why) => out.message(3, |out| waiting(why, out)),
                SubmitState::Ended { cause, at } => {
                    out.message(4, |out| ended(*cause, None, *at, None, out));
                }
            }
            id(*allocation, cell, 1, out);
        }),
        OutcomeKind::Cancelled { allocation } => {
            out.message(11, |out| id(*allocation, cell, 1, out));
        }
        OutcomeKind::JobSetCancelled { allocations } => number(14, *allocations, out),
        OutcomeKind::PrioritySet { allocations } => number(15, *allocations, out),
        OutcomeKind::Applied { version } => number(12, *version, out),
        OutcomeKind::ResourceCreated => out.message(16, |_| ()),
        OutcomeKind::Granted { lease, deadline } => out.message(17, |out| {
            field(deadline, 3, out);
            field(&FIRST_FENCING_TOKEN, 2, out);
            lease_id(*lease, cell, 1, out);
        }),
        OutcomeKind::Confirmed => out.message(18, |_| ()),
        OutcomeKind::Released { fencing_token } => number(19, *fencing_token, out),
        OutcomeKind::Revoked { fencing_token } => number(20, *fencing_token, out),
        OutcomeKind::Reclaimed => out.message(21, |_| ()),
        OutcomeKind::Passes(spec) => out.message(22, |out| spec.write(1, out)),
        OutcomeKind::Refused(refusal) => out.message(13, |out| {
            explained(refusal, 3, out);
            field(&refusal.rule.retryable(), 2, out);
            refusal.write(1, out);
        }),
    }
}

/// A message whose one field is a number.
fn number(message: u32, value: u64, out: &mut Row) {
    out.message(message, |out| field(&value, 1, out));
}

/// The body of a `TenantEvent`, one of the feed.
pub fn tenant_event(item: &FeedItem, cell: CellNo, out: &mut Row) {
    let at = told(&item.kind, cell, out);
    field(&at, 7, out);
    field(&item.name, 6, out);
    field(&item.job_set, 5, out);
    if let Some(allocation) = item.allocation {
        id(allocation, cell, 4, out);
    }
    field(&item.now, 3, out);
    field(&item.position.index, 2, out);
    field(&item.position.lsn, 1, out);
}

/// What is told, and when a run started or ended, if that is what it says.
fn told(kind: &FeedKind, cell: CellNo, out: &mut Row) -> Millis {
    match kind {
        FeedKind::Outcome(said) => out.message(10, |out| outcome(said, cell, out)),
        FeedKind::Requested { spec, qos } => out.message(19, |out| {
            out.varint(2, *qos as u64);
            out.message(1, |out| spec.write_body(out));
        }),
        FeedKind::PriorityChanged(priority) => out.message(20, |out| field(priority, 1, out)),
        FeedKind::Denied(refusal) => out.message(22, |out| refusal.write(1, out)),
        FeedKind::Placed { node, gpus } => out.message(11, |out| placed(node, gpus, out)),
        FeedKind::Waiting(why) => out.message(12, |out| waiting(why, out)),
        FeedKind::Started { at } => {
            out.message(13, |_| ());
            return *at;
        }
        FeedKind::Stopping { time_limit } => out.message(14, |out| field(time_limit, 1, out)),
        FeedKind::Ended {
            cause,
            started,
            at,
            exit,
        } => {
            out.message(15, |out| ended(*cause, *started, *at, *exit, out));
            return *at;
        }
        FeedKind::Preempted { cause, grace_until } => out.message(16, |out| {
            field(grace_until, 2, out);
            field(cause, 1, out);
        }),
        FeedKind::Requeued {
            cause,
            at,
            not_before,
            exit,
        } => {
            out.message(17, |out| {
                field(exit, 4, out);
                field(not_before, 3, out);
                field(at, 2, out);
                field(cause, 1, out);
            });
            return *at;
        }
        FeedKind::Expired {
            lease,
            fencing_token,
        } => out.message(21, |out| {
            field(fencing_token, 2, out);
            lease_id(*lease, cell, 1, out);
        }),
    }
    Millis(0)
}

fn id(allocation: AllocationNo, cell: CellNo, number: u32, out: &mut Row) {
    uuid(allocation.id(cell).0, number, out);
}

fn lease_id(lease: LeaseNo, cell: CellNo, number: u32, out: &mut Row) {
    uuid(lease.id(cell).0, number, out);
}

fn uuid(id: Uuid, number: u32, out: &mut Row) {
    let mut text = Uuid::encode_buffer();
    out.text(number, id.hyphenated().encode_lower(&mut text).as_bytes());
}

fn placed(node: &Token, gpus: &GpuShares, out: &mut Row) {
    field(gpus, 2, out);
    field(node, 1, out);
}

fn waiting(waiting: &Waiting, out: &mut Row) {
    if let Some(quota) = &waiting.quota {
        explained(quota, 3, out);
        quota.write(2, out);
    }
    field(&waiting.reason, 1, out);
}

fn explained(refusal: &Refusal, number: u32, out: &mut Row) {
    field(&refusal.explanation(), number, out);
}

fn ended(
    cause: EndCause,
    started: Option<Millis>,
    at: Millis,
    exit: Option<RunExit>,
    out: &mut Row,
) {
    field(&exit, 4, out);
    field(&at, 3, out);
    field(&started.unwrap_or(Millis(0)), 2, out);
    field(&cause, 1, out);
}
