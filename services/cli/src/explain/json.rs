//! An explanation for programs: names as in the tables, moments as Unix milliseconds, amounts in the units of the
//! resource types.

use super::text::cell_of;
use scheduler::{
    project::{ANOTHER_TENANTS, Entry, Said},
    start_estimate::StartEstimate,
    store::{Explanation, PlaceInQueue, Standing},
};
use serde_json::Value;
use vocab::{AllocationNo, CellNo, Lsn, Refusal, RunExit, RunExitReason, Token};

pub fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    fields.into_iter().collect()
}

pub fn explanation(explanation: &Explanation, at: Option<Lsn>) -> Value {
    let one = &explanation.allocation;
    let (spec, cell) = (&one.spec, cell_of(one.id));
    let text = |token: Option<&Token>| token.map(Token::as_str).into();
    let entries = explanation
        .history
        .iter()
        .map(|entry| of_entry(cell, entry));
    object([
        ("allocation_id", one.id.to_string().into()),
        ("tenant", one.tenant.clone().into()),
        ("queue", one.queue.clone().into()),
        ("priority", spec.priority.into()),
        ("priority_class", text(spec.priority_class.as_ref())),
        ("gang", text(spec.gang.as_ref().map(|gang| &gang.name))),
        ("team", text(spec.team.as_ref())),
        ("namespace", text(spec.namespace.as_ref())),
        ("qos", spec.qos().name().into()),
        ("state", one.state.clone().into()),
        ("quota", one.quota.as_ref().map(of_refusal).into()),
        (
            "waiting_reason",
            one.waiting_reason.map(|reason| reason.name()).into(),
        ),
        (
            "pending_group",
            one.pending_group.map(|group| group.0).into(),
        ),
        ("nominated_node", one.nominated_node.clone().into()),
        ("node", one.node.clone().into()),
        ("preempted", one.preempted.into()),
        ("attempts", one.attempts.into()),
        (
            "last_end_cause",
            one.last_end_cause.map(|cause| cause.name()).into(),
        ),
        ("end_cause", one.end_cause.map(|cause| cause.name()).into()),
        ("exit", one.exit.map(exit).into()),
        ("requested_at_ms", one.requested_at.0.into()),
        ("placed_at_ms", one.placed_at.map(|at| at.0).into()),
        ("started_at_ms", one.started_at.map(|at| at.0).into()),
        ("ended_at_ms", one.ended_at.map(|at| at.0).into()),
        ("place", explanation.place.as_ref().map(of_place).into()),
        (
            "pending_group_explained",
            explanation
                .pending_group
                .as_ref()
                .map(|group| of_entry(cell, group))
                .into(),
        ),
        ("history", entries.collect()),
        ("as_of_lsn", at.unwrap_or(explanation.through).0.into()),
    ])
}

/// How the command of a run ended.
fn exit(exit: RunExit) -> Value {
    let reason = exit.reason.map(|reason| match reason {
        RunExitReason::OutOfMemory => "out_of_memory",
        RunExitReason::CouldNotStart => "could_not_start",
        RunExitReason::Killed => "killed",
        RunExitReason::SupervisorLost => "supervisor_lost",
        RunExitReason::Draining => "draining",
        RunExitReason::NodeFault => "node_fault",
        RunExitReason::OutOfDisk => "out_of_disk",
    });
    object([
        ("code", exit.code.into()),
        ("signal", exit.signal.into()),
        ("reason", reason.into()),
    ])
}

pub fn of_refusal(refusal: &Refusal) -> Value {
    object([
        ("rule", refusal.rule.name().into()),
        ("subject", refusal.subject.clone().into()),
        ("limit", refusal.limit.into()),
        ("actual", refusal.actual.into()),
    ])
}

fn of_place(place: &PlaceInQueue) -> Value {
    let not_before = match place.standing {
        Standing::Paused(until) => Some(until.0),
        Standing::Queued | Standing::Nominated | Standing::AwaitingQuota => None,
    };
    object([
        ("standing", place.standing.name().into()),
        ("since_ms", place.since.0.into()),
        ("not_before_ms", not_before.into()),
        ("position", place.position.into()),
        ("in_queue", place.in_queue.into()),
        ("position_in_line", place.position_in_line.into()),
        ("in_line", place.in_line.into()),
        ("ahead_cpu_milli", place.ahead.cpu_milli.into()),
        ("ahead_memory_bytes", place.ahead.memory_bytes.into()),
        ("ahead_gpu_milli", place.ahead.gpu_milli.into()),
        ("start", place.start.as_ref().map(of_start).into()),
        ("free_from_ms", place.free_from.map(|at| at.0).into()),
    ])
}

fn of_start(start: &StartEstimate) -> Value {
    object([
        ("earliest_ms", start.earliest.0.into()),
        ("latest_ms", start.latest.0.into()),
        ("placements", start.placements.into()),
    ])
}

fn of_entry(cell: CellNo, entry: &Entry) -> Value {
    let (group, queue) = match entry.said() {
        Said::PendingGroupExplained(fact) => {
            (Some(fact.pending_group.0), Some(fact.queue.as_str()))
        }
        Said::AllocationWaiting(fact) => (fact.pending_group.map(|group| group.0), None),
        _ => (None, None),
    };
    object([
        ("lsn", entry.position.lsn.0.into()),
        ("index", entry.position.index.into()),
        ("at_ms", entry.at.0.into()),
        ("kind", entry.kind().into()),
        ("reason", entry.said().reason().into()),
        ("pending_group", group.into()),
        ("queue", queue.into()),
        ("detail", detail(cell, entry.said())),
    ])
}

fn detail(cell: CellNo, said: Said<'_>) -> Value {
    let node = |node: &Token| Value::from(node.as_str());
    let id = |no: AllocationNo| no.id(cell).to_string();
    match said {
        Said::AllocationWaiting(_) => object([]),
        Said::PendingGroupExplained(fact) => {
            let head = Some(fact.head).filter(|head| *head != ANOTHER_TENANTS);
            let counts = fact.counts.iter();
            let counts = counts.map(|(filter, count)| (filter.name(), *count));
            let shortfall = fact.shortfall.iter();
            let shortfall = shortfall.map(|(kind, amount)| (kind.name(), *amount));
            object([
                ("head", head.map(id).into()),
                ("counts", counts.collect()),
                ("shortfall", shortfall.collect()),
                ("share_ppm", fact.share_ppm.into()),
                ("fair_share_ppm", fact.fair_share_ppm.into()),
            ])
        }
        Said::AllocationPlaced(fact) => {
            let gpus = fact.gpus.iter().map(|share| {
                object([
                    ("device", share.device.into()),
                    ("milli", share.milli.into()),
                ])
            });
            let candidates = fact.candidates.iter().map(|candidate| {
                object([
                    ("node", node(&candidate.node)),
                    ("score", candidate.score.into()),
                ])
            });
            object([
                ("node", node(&fact.node)),
                ("gpus", gpus.collect()),
                ("zones", fact.zones.into()),
                ("policy", fact.policy.name().into()),
                ("candidates", candidates.collect()),
            ])
        }
        Said::AllocationNominated(fact) => object([("node", node(&fact.node))]),
        Said::AllocationPreempted(fact) => object([
            ("by", fact.by.map(id).into()),
            ("grace_until_ms", fact.grace_until.0.into()),
        ]),
        Said::AllocationRequeued(fact) => object([
            ("at_ms", fact.at.0.into()),
            ("not_before_ms", fact.not_before.0.into()),
            ("exit", fact.exit.map(exit).into()),
        ]),
        Said::AllocationEnded(fact) => object([
            ("at_ms", fact.at.0.into()),
            ("exit", fact.exit.map(exit).into()),
        ]),
        Said::QuotaWaiting(fact) => of_refusal(&fact.refusal),
        Said::QuotaDenied(fact) => of_refusal(&fact.refusal),
        Said::QuotaReclaimed(fact) => object([("by", fact.by.map(id).into())]),
        Said::AllocationReprioritised(fact) => object([("priority", fact.priority.into())]),
    }
}
