//! Reasons as clauses.

use vocab::{EndCause, Filter, PreemptionCause, WaitingReason};

/// "It waits, because …"
pub fn waits(reason: WaitingReason) -> &'static str {
    match reason {
        WaitingReason::NoNodeReady => "no node is ready",
        WaitingReason::NoNodeOfModel => {
            "no node that it may use has a GPU of a model that it allows"
        }
        WaitingReason::LargerThanAnyNode => "it is larger than any node that it may use",
        WaitingReason::NoRoomNow => "no node that it may use has enough free now",
        WaitingReason::NoNodeMatches => "selector, taints and cordons leave no node",
        WaitingReason::FairShare => {
            "allocations of other queues, or of a higher priority, come first"
        }
        WaitingReason::QueueLimit => "its queue, or one above it, holds as much as it may",
        WaitingReason::Backoff => "it pauses before the next try",
        WaitingReason::Dependency => "an allocation that it depends on has not ended",
        WaitingReason::GangIncomplete => "members of its gang are missing",
        WaitingReason::GangNoRoom => "its gang does not fit now",
        WaitingReason::OverLimit => {
            "it, or its gang, asks for more than its queue, or one above it, may ever hold"
        }
        WaitingReason::NoUniformLabel => "no node has the label that its gang wants to be uniform",
        WaitingReason::Nominated => "its node is being cleared for it",
        WaitingReason::Quota => "its quota was taken back, or is asked for again after its run",
        WaitingReason::PreemptionLimit => {
            "others would have to go for it, and as many had to in the last minute as may"
        }
    }
}

/// What is wrong with a node.
pub fn keeps_off(filter: Filter) -> &'static str {
    match filter {
        Filter::NotReady => "not ready",
        Filter::Cordoned => "cordoned",
        Filter::Selector => "labels that the selector does not take",
        Filter::Taint => "a taint that it does not tolerate",
        Filter::GpuModel => "no GPU of a model that it allows",
        Filter::Capacity => "too small even when empty",
        Filter::Reserved => "reserved, or being cleared for others",
        Filter::Cpu => "not enough free cpu",
        Filter::Memory => "not enough free memory",
        Filter::Gpu => "not enough free gpu",
        Filter::Extended => "not enough free of an extended resource",
        Filter::Numa => "no NUMA zones with enough free",
        Filter::Affinity => "not near, or not apart from, the groups that it names",
        Filter::Spread => "would spread its group unevenly",
        Filter::MaxRuns => "holds as many allocations as it may",
        Filter::Backfill => "kept free for the head of the line",
    }
}

/// "It ended: …", "queued again: …"
pub fn ended(cause: EndCause) -> &'static str {
    match cause {
        EndCause::Finished => "it finished",
        EndCause::Failed => "its run failed",
        EndCause::Cancelled => "it was cancelled",
        EndCause::NodeLost => "its node was lost",
        EndCause::RejectedByNode => "its node rejected it",
        EndCause::Preempted => "it was preempted",
        EndCause::DependencyFailed => "an allocation that it depends on did not end as required",
        EndCause::Expired => "it had not been placed within its time to live",
        EndCause::TimeLimit => "its run had reached its time limit",
        EndCause::Evicted => "its node was drained, or got a taint that it does not tolerate",
    }
}

/// What becomes of an allocation that has to go for this cause.
pub fn made_to_go(cause: PreemptionCause) -> &'static str {
    match cause {
        PreemptionCause::Drain | PreemptionCause::Taint => "evicted",
        PreemptionCause::Priority
        | PreemptionCause::FairShare
        | PreemptionCause::Gang
        | PreemptionCause::Reservation
        | PreemptionCause::Quota => "preempted",
    }
}

/// "It has to go, because …"
pub fn preempted(cause: PreemptionCause) -> &'static str {
    match cause {
        PreemptionCause::Priority => "one of higher priority takes its place",
        PreemptionCause::FairShare => "a queue below its fair share takes its place",
        PreemptionCause::Gang => "a member of its gang has to go",
        PreemptionCause::Reservation => "a reservation of its node begins",
        PreemptionCause::Quota => "its quota was taken back",
        PreemptionCause::Drain => "its node is drained",
        PreemptionCause::Taint => "its node has got a taint that it does not tolerate",
    }
}
