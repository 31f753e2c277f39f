//! An explanation in sentences.

use super::{entry, quota, reasons};
use crate::{amount, submit::exited};
use scheduler::{
    project::{ANOTHER_TENANTS, Entry, Said},
    start_estimate::StartEstimate,
    store::{Allocation, Explanation, PlaceInQueue, Standing},
};
use schemas::ToProst as _;
use vocab::{
    AllocationId, CellNo, EndCause, Filter, Lsn, Millis, PreemptionCause, QosClass, Refusal,
    ResourceKind, WaitingReason,
};

/// Scores of a placement that are shown.
const SCORES: usize = 5;

/// `at`: the position that was asked for.
pub fn lines(explanation: &Explanation, at: Option<Lsn>, history: bool) -> Vec<String> {
    let allocation = &explanation.allocation;
    let cell = cell_of(allocation.id);
    let mut out = vec![format!("allocation   {}", allocation.id), asks(allocation)];
    let last = explanation.history.last();
    match (at, last) {
        (None, _) => out.push(stands(explanation)),
        (Some(at), None) => out.push(format!("At lsn {} nothing was decided about it yet.", at.0)),
        (Some(at), Some(last)) => {
            let clause = entry::clause(cell, last);
            let since = amount::moment(last.at);
            out.push(format!("At lsn {}, since {since}: {clause}.", at.0));
        }
    }
    if let (None, Some(refusal)) = (at, &allocation.quota) {
        out.extend(quota::lines(refusal));
    }
    if let (None, Some(cause)) = (at, allocation.last_end_cause) {
        let times = match allocation.attempts {
            1 => "once".to_owned(),
            times => format!("{times} times"),
        };
        let preempted = preempted_for(explanation)
            .filter(|_| matches!(cause, EndCause::Preempted | EndCause::Evicted));
        let why = preempted.map_or_else(|| reasons::ended(cause), reasons::preempted);
        out.push(format!(
            "again        queued again {times}, the last because {why}"
        ));
    }
    if let Some(place) = &explanation.place {
        out.push(place_in_queue(allocation, place));
        out.extend(ahead(place));
        out.extend(place.start.as_ref().map(start));
        out.extend(place.free_from.map(free_from));
    }
    if let Some(group) = &explanation.pending_group {
        out.extend(of_group(cell, allocation.id, group));
    }
    out.extend(of_placement(explanation, at));
    let before = explanation.history.iter();
    let before = before.filter(|entry| history || unrest(entry));
    let mut before: Vec<_> = before
        .map(|one| (one.at, format!("  {}", entry::line(cell, one))))
        .collect();
    // Nothing was decided by it, so it is no entry of its own.
    if let (None, true, Some(started)) = (at, history, allocation.started_at) {
        let moment = amount::moment(started);
        before.push((started, format!("  {moment} started, by its node's report")));
        before.sort_by_key(|(at, _)| *at);
    }
    if !before.is_empty() {
        out.push("history".into());
        out.extend(before.into_iter().map(|(_, line)| line));
    }
    out.push(format!(
        "as of lsn    {}",
        at.unwrap_or(explanation.through).0
    ));
    out
}

pub fn cell_of(id: AllocationId) -> CellNo {
    let (cell, _) = id.0.as_u64_pair();
    CellNo(cell)
}

/// What is worth telling unasked: that it lost a place.
fn unrest(entry: &Entry) -> bool {
    matches!(
        entry.said(),
        Said::AllocationPreempted(_) | Said::AllocationRequeued(_) | Said::QuotaReclaimed(_)
    )
}

fn asks(allocation: &Allocation) -> String {
    let human = amount::human;
    let spec = &allocation.spec;
    let mut text = format!(
        "asks for     {}, {}",
        human(ResourceKind::Cpu, spec.cpu_milli),
        human(ResourceKind::Memory, spec.memory_bytes)
    );
    if let Some(gpu) = &spec.gpu {
        text += &format!(", {} GPUs ({} of 1000 of each)", gpu.count, gpu.milli);
    }
    if spec.qos() == QosClass::BestEffort {
        text = "asks for     nothing, and runs on what is left over".into();
    }
    if let Some(team) = &spec.team {
        let namespace = spec.namespace.as_ref();
        let below = namespace.map_or(String::new(), |name| format!("/{name}"));
        text += &format!(", by {team}{below}");
    }
    text += &format!(
        ", in queue {}, priority {}",
        allocation.queue, spec.priority
    );
    if let Some(class) = &spec.priority_class {
        text += &format!(" ({class})");
    }
    if let Some(gang) = &spec.gang {
        text += &format!(", in gang {}", gang.name);
    }
    text
}

/// How it stands now.
fn stands(explanation: &Explanation) -> String {
    let allocation = &explanation.allocation;
    let moment = |at: Option<Millis>| at.map_or("an unknown moment".into(), amount::moment);
    let node = allocation.node.as_deref().unwrap_or("no node");
    match allocation.state.as_str() {
        "awaiting_quota" => match allocation.quota.as_ref().map(Refusal::waiting_reason) {
            None | Some(WaitingReason::Quota) => "It waits for quota.".into(),
            Some(reason) => format!("It waits, because {}.", reasons::waits(reason)),
        },
        "requested" => "Quota has not decided on it yet.".into(),
        "denied" => "Quota denied it.".into(),
        "queued" => waits(explanation),
        "nominated" => format!(
            "Since {} node {} is being cleared for it.",
            moment(explanation.place.as_ref().map(|place| place.since)),
            allocation.nominated_node.as_deref().unwrap_or("-"),
        ),
        "placed" => format!(
            "It is placed on {node} since {} and has not started.",
            moment(allocation.placed_at)
        ),
        "running" => format!("It runs on {node} since {}.", moment(allocation.started_at)),
        "stopping" if allocation.preempted => {
            let cause = preempted_for(explanation);
            let what = cause.map_or("preempted", reasons::made_to_go);
            let why = cause.map(reasons::preempted);
            let why = why.map_or(String::new(), |why| format!(", because {why}"));
            format!("It was {what} and is stopping on {node}{why}.")
        }
        "stopping" => format!("It was cancelled and is stopping on {node}."),
        "ended" => {
            let cause = allocation
                .end_cause
                .map_or("of no known cause", reasons::ended);
            format!(
                "It ended at {}, because {cause}{}.",
                moment(allocation.ended_at),
                exited(allocation.exit.map(|exit| exit.to_prost()))
            )
        }
        other => format!("Its state is {other}."),
    }
}

fn waits(explanation: &Explanation) -> String {
    let since = explanation
        .place
        .as_ref()
        .map(|place| amount::moment(place.since));
    let since = since.map_or(String::new(), |since| format!(" since {since}"));
    let pause = explanation.place.as_ref().map(|place| place.standing);
    if let Some(Standing::Paused(until)) = pause {
        return format!(
            "It pauses{since} and is not tried before {}.",
            amount::moment(until)
        );
    }
    // What was last said of its pending group is newer than what it was told itself.
    let group = explanation.pending_group.as_ref().map(Entry::said);
    let of_group = group.and_then(|said| match said {
        Said::PendingGroupExplained(group) => Some(group.reason),
        _ => None,
    });
    match of_group.or(explanation.allocation.waiting_reason) {
        Some(reason) => format!("It waits{since}, because {}.", reasons::waits(reason)),
        None => format!("It waits{since} and was not tried yet."),
    }
}

fn place_in_queue(allocation: &Allocation, place: &PlaceInQueue) -> String {
    let queue = &allocation.queue;
    let mut text = format!(
        "place        {} of {} in queue {queue}",
        place.position, place.in_queue
    );
    if let (Some(group), Some(position), Some(count)) = (
        allocation.pending_group,
        place.position_in_line,
        place.in_line,
    ) {
        text += &format!(", {position} of {count} in pending group {}", group.0);
    }
    text
}

/// Nothing where nobody is before it.
fn ahead(place: &PlaceInQueue) -> Option<String> {
    let amounts = [
        (ResourceKind::Cpu, place.ahead.cpu_milli),
        (ResourceKind::Memory, place.ahead.memory_bytes),
        (ResourceKind::Gpu, place.ahead.gpu_milli),
    ];
    let amounts = amounts.into_iter().filter(|(_, amount)| *amount > 0);
    let amounts: Vec<_> = amounts
        .map(|(kind, amount)| amount::human(kind, amount))
        .collect();
    (!amounts.is_empty()).then(|| format!("ahead        {}", amounts.join(", ")))
}

fn start(start: &StartEstimate) -> String {
    format!(
        "start        {} to {}, as 9 of 10 of the last {} that waited as long",
        amount::moment(start.earliest),
        amount::moment(start.latest),
        start.placements
    )
}

fn free_from(at: Millis) -> String {
    let at = amount::moment(at);
    format!("room from    {at}, if running allocations end by their run times and time limits")
}

/// Returns the cause of its last preemption, where the history has it.
fn preempted_for(explanation: &Explanation) -> Option<PreemptionCause> {
    let history = explanation.history.iter().rev();
    history.map(Entry::said).find_map(|said| match said {
        Said::AllocationPreempted(fact) => Some(fact.cause),
        _ => None,
    })
}

fn of_group(cell: CellNo, id: AllocationId, entry: &Entry) -> Vec<String> {
    let Said::PendingGroupExplained(group) = entry.said() else {
        return Vec::new();
    };
    let head = match group.head {
        ANOTHER_TENANTS => "another tenant's allocation".into(),
        head if head.id(cell) == id => "it".into(),
        head => head.id(cell).to_string(),
    };
    let mut out = vec![format!(
        "pending group {:<7} of queue {}, explained at {} with {head} at its head: {}",
        group.pending_group.0,
        group.queue.as_str(),
        amount::moment(entry.at),
        reasons::waits(group.reason)
    )];
    out.extend(group.counts.iter().map(nodes));
    if !group.shortfall.is_empty() {
        let missing = group
            .shortfall
            .iter()
            .map(|(kind, amount)| amount::human(*kind, *amount));
        let missing = missing.collect::<Vec<_>>().join(" and ");
        out.push(format!(
            "missing      at least {missing} more free on one node"
        ));
    }
    let (share, fair) = (percent(group.share_ppm), percent(group.fair_share_ppm));
    out.push(format!(
        "share        {share} of the cell; a fair share is {fair}"
    ));
    out
}

fn nodes((filter, count): &(Filter, u32)) -> String {
    let nodes = if *count == 1 { "node" } else { "nodes" };
    format!("  {count:>8} {nodes}: {}", reasons::keeps_off(*filter))
}

pub fn percent(ppm: u32) -> String {
    format!("{}.{:02} %", ppm / 10_000, ppm % 10_000 / 100)
}

/// The placement that still holds, or held last.
fn of_placement(explanation: &Explanation, at: Option<Lsn>) -> Vec<String> {
    let holds = match at {
        None => explanation.allocation.node.is_some(),
        Some(_) => explanation.history.last().is_some_and(|last| {
            matches!(
                last.said(),
                Said::AllocationPlaced(_)
                    | Said::AllocationPreempted(_)
                    | Said::QuotaReclaimed(_)
                    | Said::AllocationReprioritised(_)
            )
        }),
    };
    let mut latest_first = explanation.history.iter().rev();
    let placed = latest_first.find_map(|entry| match entry.said() {
        Said::AllocationPlaced(fact) => Some(fact),
        _ => None,
    });
    let Some(placed) = placed.filter(|_| holds) else {
        return Vec::new();
    };
    let devices = placed
        .gpus
        .iter()
        .map(|share| format!(" gpu{}:{}", share.device, share.milli));
    let mut out = vec![
        format!(
            "node         {}{}",
            placed.node.as_str(),
            devices.collect::<String>()
        ),
        format!("policy       {}", placed.policy.name()),
    ];
    let scores = placed.candidates.iter().take(SCORES);
    let best = placed.candidates.iter().map(|one| one.score).max();
    let scores: Vec<_> = scores
        .map(|one| {
            format!(
                "{} {}",
                one.node.as_str(),
                of_best(one.score, best.unwrap_or(0))
            )
        })
        .collect();
    if !scores.is_empty() {
        out.push(format!(
            "scores       {} of the best score",
            scores.join(", ")
        ));
    }
    out
}

/// Scores of different policies have different units, and only how they compare says something.
fn of_best(score: u32, best: u32) -> String {
    let percent = u64::from(score) * 100;
    format!("{} %", percent.checked_div(best.into()).unwrap_or(100))
}

#[cfg(test)]
mod tests;
