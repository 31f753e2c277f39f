//! The column `explanations.detail`, and the same in `allocations.facts`: what a fact says beside its reason, as JSON and
//! back.

use super::names;
use crate::project::Fact;
use chassis::warm::OutOfRange;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vocab::{
    AllocationId, AllocationNo, Candidate, CellNo, Filter, GpuShare, LineNo, Millis, Refusal,
    ResourceKind, Token,
};

/// Numbers and names of a fact, under the names that its readers know them by.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Detail {
    Waiting,
    Line {
        head: AllocationId,
        counts: BTreeMap<String, u32>,
        shortfall: BTreeMap<String, u64>,
        share_ppm: u32,
        fair_share_ppm: u32,
    },
    Placed {
        node: Token,
        gpus: Vec<GpuShare>,
        zones: u8,
        policy: String,
        candidates: Vec<Candidate>,
    },
    Nominated {
        node: Token,
    },
    Preempted {
        by: Option<AllocationId>,
        grace_until_ms: i64,
    },
    Requeued {
        at_ms: i64,
        not_before_ms: i64,
    },
    Ended {
        at_ms: i64,
    },
    QuotaWaiting {
        subject: String,
        limit: u64,
        actual: u64,
    },
    QuotaDenied {
        subject: String,
        limit: u64,
        actual: u64,
    },
    QuotaReclaimed {
        by: Option<AllocationId>,
    },
    Reprioritised {
        priority: i32,
    },
}

pub fn detail(cell: CellNo, fact: &Fact) -> Detail {
    match fact {
        Fact::Waiting { .. } => Detail::Waiting,
        Fact::Line {
            head,
            counts,
            shortfall,
            share_ppm,
            fair_share_ppm,
            ..
        } => {
            let counts = counts
                .iter()
                .map(|(filter, n)| (filter.name().to_owned(), *n));
            let shortfall = shortfall
                .iter()
                .map(|(kind, n)| (kind.name().to_owned(), *n));
            Detail::Line {
                // Only what is read for a tenant has a head that is not shown.
                head: head.unwrap_or_default().id(cell),
                counts: counts.collect(),
                shortfall: shortfall.collect(),
                share_ppm: *share_ppm,
                fair_share_ppm: *fair_share_ppm,
            }
        }
        Fact::Placed {
            node,
            gpus,
            zones,
            policy,
            candidates,
        } => Detail::Placed {
            node: node.clone(),
            gpus: gpus.clone(),
            zones: *zones,
            policy: policy.name().to_owned(),
            candidates: candidates.clone(),
        },
        Fact::Nominated { node } => Detail::Nominated { node: node.clone() },
        Fact::Preempted {
            by, grace_until, ..
        } => Detail::Preempted {
            by: by.map(|no| no.id(cell)),
            grace_until_ms: grace_until.0,
        },
        Fact::Requeued { at, not_before, .. } => Detail::Requeued {
            at_ms: at.0,
            not_before_ms: not_before.0,
        },
        Fact::Ended { at, .. } => Detail::Ended { at_ms: at.0 },
        Fact::QuotaWaiting { refusal } => Detail::QuotaWaiting {
            subject: refusal.subject.clone(),
            limit: refusal.limit,
            actual: refusal.actual,
        },
        Fact::QuotaDenied { refusal } => Detail::QuotaDenied {
            subject: refusal.subject.clone(),
            limit: refusal.limit,
            actual: refusal.actual,
        },
        Fact::QuotaReclaimed { by } => Detail::QuotaReclaimed {
            by: by.map(|no| no.id(cell)),
        },
        Fact::Reprioritised { priority } => Detail::Reprioritised {
            priority: *priority,
        },
    }
}

/// The number of an allocation of this cell, as all in the table are.
pub fn number(id: AllocationId) -> AllocationNo {
    let (_, number) = id.0.as_u64_pair();
    AllocationNo(number)
}

pub fn fact(
    detail: Detail,
    reason: Option<&str>,
    line: Option<LineNo>,
) -> Result<Fact, OutOfRange> {
    let reason = || reason.ok_or_else(|| OutOfRange::new("reason", "none"));
    Ok(match detail {
        Detail::Waiting => Fact::Waiting {
            reason: names::waiting_reason(reason()?)?,
            line,
        },
        Detail::Line {
            head,
            counts,
            shortfall,
            share_ppm,
            fair_share_ppm,
        } => {
            let counts = counts
                .iter()
                .map(|(name, n)| Ok((names::filter(name)?, *n)));
            let shortfall = shortfall
                .iter()
                .map(|(name, n)| Ok((names::resource(name)?, *n)));
            let mut counts: Vec<(Filter, u32)> = counts.collect::<Result<_, OutOfRange>>()?;
            counts.sort_unstable();
            let mut shortfall: Vec<(ResourceKind, u64)> =
                shortfall.collect::<Result<_, OutOfRange>>()?;
            shortfall.sort_unstable();
            Fact::Line {
                reason: names::waiting_reason(reason()?)?,
                head: Some(number(head)),
                counts,
                shortfall,
                share_ppm,
                fair_share_ppm,
            }
        }
        Detail::Placed {
            node,
            gpus,
            zones,
            policy,
            candidates,
        } => Fact::Placed {
            node,
            gpus,
            zones,
            policy: names::placement(&policy)?,
            candidates,
        },
        Detail::Nominated { node } => Fact::Nominated { node },
        Detail::Preempted { by, grace_until_ms } => Fact::Preempted {
            cause: names::preemption_cause(reason()?)?,
            by: by.map(number),
            grace_until: Millis(grace_until_ms),
        },
        Detail::Requeued {
            at_ms,
            not_before_ms,
        } => Fact::Requeued {
            cause: names::end_cause(reason()?)?,
            at: Millis(at_ms),
            not_before: Millis(not_before_ms),
        },
        Detail::Ended { at_ms } => Fact::Ended {
            cause: names::end_cause(reason()?)?,
            at: Millis(at_ms),
        },
        Detail::QuotaWaiting {
            subject,
            limit,
            actual,
        } => Fact::QuotaWaiting {
            refusal: Refusal::over(names::rule(reason()?)?, subject, limit, actual),
        },
        Detail::QuotaDenied {
            subject,
            limit,
            actual,
        } => Fact::QuotaDenied {
            refusal: Refusal::over(names::rule(reason()?)?, subject, limit, actual),
        },
        Detail::QuotaReclaimed { by } => Fact::QuotaReclaimed { by: by.map(number) },
        Detail::Reprioritised { priority } => Fact::Reprioritised { priority },
    })
}
