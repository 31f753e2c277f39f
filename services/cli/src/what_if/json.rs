//! Differences for programs: names as in the tables, shares in millionths.

use super::{fold::Folded, text};
use crate::explain::object;
use scheduler_rules::what_if::{
    Difference, Differences, NodesUsed, Preempted, QueueDifference, Requested, Shares, Standing,
};
use serde_json::Value;
use vocab::CellNo;

pub fn differences(found: &Differences, cell: CellNo, folded: &Folded) -> Value {
    let all = found.allocations.iter().map(|one| allocation(one, cell));
    let preempted =
        |all: &[Preempted]| -> Value { all.iter().map(|one| preemption(one, cell)).collect() };
    object([
        ("as_of_lsn", folded.through().0.into()),
        ("at_ms", folded.now.0.into()),
        ("requested", found.requested.iter().map(requested).collect()),
        ("allocations", all.collect()),
        ("preempted", preempted(&found.preempted)),
        ("spared", preempted(&found.spared)),
        ("preemption_limited", found.preemption_limited.into()),
        ("queues", found.queues.iter().map(queue).collect()),
        ("nodes_before", nodes(found.nodes_before)),
        ("nodes_after", nodes(found.nodes_after)),
    ])
}

fn standing(standing: &Standing) -> Value {
    let (state, node, reason) = match standing {
        Standing::AwaitingQuota => ("awaiting_quota", None, None),
        Standing::Waits(reason) => ("waiting", None, Some(reason.name())),
        Standing::On(node) => ("placed", Some(node.as_str()), None),
        Standing::Ended(cause) => ("ended", None, Some(cause.name())),
    };
    object([
        ("state", state.into()),
        ("node", node.into()),
        ("reason", reason.into()),
    ])
}

fn requested(one: &Requested) -> Value {
    let counts = one
        .counts
        .iter()
        .map(|(filter, nodes)| (filter.name(), *nodes));
    object([
        ("standing", standing(&one.standing)),
        ("nodes_kept_off", counts.collect()),
    ])
}

fn allocation(one: &Difference, cell: CellNo) -> Value {
    object([
        ("allocation_id", one.allocation.id(cell).to_string().into()),
        ("queue", one.queue.as_str().into()),
        ("kind", text::name(one.kind()).into()),
        ("before", standing(&one.before)),
        ("after", standing(&one.after)),
    ])
}

fn preemption(one: &Preempted, cell: CellNo) -> Value {
    object([
        ("allocation_id", one.allocation.id(cell).to_string().into()),
        ("queue", one.queue.as_str().into()),
        ("cause", one.cause.name().into()),
        ("by", one.by.map(|by| by.id(cell).to_string()).into()),
        ("by_request", one.by_extra.map(|extra| extra + 1).into()),
    ])
}

fn queue(one: &QueueDifference) -> Value {
    let shares = |shares: Shares| {
        object([
            ("share_ppm", shares.share_ppm.into()),
            ("fair_share_ppm", shares.fair_share_ppm.into()),
        ])
    };
    object([
        ("queue", one.queue.as_str().into()),
        ("before", shares(one.before)),
        ("after", shares(one.after)),
    ])
}

fn nodes(nodes: NodesUsed) -> Value {
    object([("used", nodes.used.into()), ("ready", nodes.ready.into())])
}
