//! One entry of the history as a clause.

use super::{quota, reasons};
use crate::amount;
use scheduler::project::{Entry, Fact};
use vocab::{AllocationNo, CellNo, Millis, PreemptionCause};

/// Where, when and what.
pub fn line(cell: CellNo, entry: &Entry) -> String {
    let (position, at) = (entry.position, amount::moment(entry.at));
    let what = clause(cell, &entry.fact, entry.at);
    format!("{}.{} {at} {what}", position.lsn.0, position.index)
}

/// `now` is the moment of the decision.
pub fn clause(cell: CellNo, fact: &Fact, now: Millis) -> String {
    match fact {
        Fact::Waiting {
            reason,
            line: Some(line),
        } => format!(
            "waits in line {}, because {}",
            line.0,
            reasons::waits(*reason)
        ),
        Fact::Waiting { reason, line: None } => {
            format!("waits, because {}", reasons::waits(*reason))
        }
        Fact::Line { reason, .. } => format!("the line waits, because {}", reasons::waits(*reason)),
        Fact::Placed { node, policy, .. } => {
            format!(
                "placed on {} by the policy {}",
                node.as_str(),
                policy.name()
            )
        }
        Fact::Nominated { node } => format!("node {} is being cleared for it", node.as_str()),
        Fact::Preempted {
            cause,
            by,
            grace_until,
        } => {
            let grace = amount::moment(*grace_until);
            format!(
                "preempted, because {}{}; to be gone by {grace}",
                reasons::preempted(*cause),
                taker(cell, *cause, *by)
            )
        }
        Fact::Requeued {
            cause, not_before, ..
        } => {
            let pause = if *not_before > now {
                format!("; not tried before {}", amount::moment(*not_before))
            } else {
                String::new()
            };
            format!("queued again, because {}{pause}", reasons::ended(*cause))
        }
        Fact::Ended { cause, .. } => format!("ended, because {}", reasons::ended(*cause)),
        Fact::QuotaWaiting { refusal } => format!("waits for quota: {}", quota::short(refusal)),
        Fact::QuotaDenied { refusal } => format!("denied by quota: {}", quota::short(refusal)),
        Fact::QuotaReclaimed { by } => {
            let by = by.map_or(String::new(), |by| format!(", for {}", by.id(cell)));
            format!("its quota is taken back{by}")
        }
        Fact::Reprioritised { priority } => format!("has priority {priority} from here on"),
    }
}

/// Whom it makes room for.
fn taker(cell: CellNo, cause: PreemptionCause, by: Option<AllocationNo>) -> String {
    match (cause, by) {
        (_, Some(by)) => format!(" ({})", by.id(cell)),
        (PreemptionCause::Priority | PreemptionCause::FairShare, None) => {
            " (another tenant's)".into()
        }
        (PreemptionCause::Gang | PreemptionCause::Reservation | PreemptionCause::Quota, None) => {
            String::new()
        }
    }
}
