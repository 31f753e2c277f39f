//! One entry of the history as a clause.

use super::{quota, reasons, text::cell_of};
use crate::{
    amount,
    print::{Sheet, column, exactly, moment, number, plain},
    submit::exited,
};
use scheduler::{
    project::{Entry, Said},
    store::Explanation,
};
use schemas::ToProst as _;
use vocab::{AllocationNo, CellNo, PreemptionCause};

/// The whole history.
pub fn sheet(explanation: &Explanation) -> Sheet {
    let cell = cell_of(explanation.allocation.id);
    let row = |entry: &Entry| {
        let position = entry.position;
        vec![
            number(position.lsn.0),
            number(position.index),
            moment(entry.at.0),
            plain(entry.kind()),
            exactly(
                clause(cell, entry),
                entry.said().reason().unwrap_or_default(),
            ),
        ]
    };
    let columns = vec![
        column("lsn", "lsn"),
        column("index", "index"),
        column("at_ms", "at"),
        column("kind", "kind"),
        column("reason", "what"),
    ];
    let all = columns.len();
    Sheet::new(columns, all, explanation.history.iter().map(row).collect())
}

/// Where, when and what.
pub fn line(cell: CellNo, entry: &Entry) -> String {
    let (position, at) = (entry.position, amount::moment(entry.at));
    let what = clause(cell, entry);
    format!("{}.{} {at} {what}", position.lsn.0, position.index)
}

pub fn clause(cell: CellNo, entry: &Entry) -> String {
    match entry.said() {
        Said::AllocationWaiting(fact) => {
            let group = fact.pending_group.map_or(String::new(), |group| {
                format!(" in pending group {}", group.0)
            });
            format!("waits{group}, because {}", reasons::waits(fact.reason))
        }
        Said::PendingGroupExplained(fact) => {
            format!(
                "the pending group waits, because {}",
                reasons::waits(fact.reason)
            )
        }
        Said::AllocationPlaced(fact) => {
            let (node, policy) = (fact.node.as_str(), fact.policy.name());
            format!("placed on {node} by the policy {policy}")
        }
        Said::AllocationNominated(fact) => {
            format!("node {} is being cleared for it", fact.node.as_str())
        }
        Said::AllocationPreempted(fact) => {
            let grace = match fact.grace_until > entry.at {
                true => format!("to be gone by {}", amount::moment(fact.grace_until)),
                false => "within the grace of its node's agent".to_owned(),
            };
            let (why, taker) = (
                reasons::preempted(fact.cause),
                taker(cell, fact.cause, fact.by),
            );
            let what = reasons::made_to_go(fact.cause);
            format!("{what}, because {why}{taker}; {grace}")
        }
        Said::AllocationRequeued(fact) => {
            let pause = match fact.not_before > entry.at {
                true => format!("; not tried before {}", amount::moment(fact.not_before)),
                false => String::new(),
            };
            format!(
                "queued again, because {}{}{pause}",
                reasons::ended(fact.cause),
                exited(fact.exit.map(|exit| exit.to_prost()))
            )
        }
        Said::AllocationEnded(fact) => format!(
            "ended, because {}{}",
            reasons::ended(fact.cause),
            exited(fact.exit.map(|exit| exit.to_prost()))
        ),
        Said::QuotaWaiting(fact) => format!("waits for quota: {}", quota::short(&fact.refusal)),
        Said::QuotaDenied(fact) => format!("denied by quota: {}", quota::short(&fact.refusal)),
        Said::QuotaReclaimed(fact) => {
            let by = fact
                .by
                .map_or(String::new(), |by| format!(", for {}", by.id(cell)));
            format!("its quota is taken back{by}")
        }
        Said::AllocationReprioritised(fact) => {
            format!("has priority {} from here on", fact.priority)
        }
    }
}

/// Whom it makes room for.
fn taker(cell: CellNo, cause: PreemptionCause, by: Option<AllocationNo>) -> String {
    match (cause, by) {
        (_, Some(by)) => format!(" ({})", by.id(cell)),
        (PreemptionCause::Priority | PreemptionCause::FairShare, None) => {
            " (another tenant's)".into()
        }
        (
            PreemptionCause::Gang
            | PreemptionCause::Reservation
            | PreemptionCause::Quota
            | PreemptionCause::Drain
            | PreemptionCause::Taint,
            None,
        ) => String::new(),
    }
}
