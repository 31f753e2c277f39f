//! Messages from the cell to an agent.

use crate::parts::Parts;
use node_agent::{
    Exit, Lease, Moment, RunKey,
    protocol::{Act, Plan},
};
use prost::Message;
use schemas::v1::{Assignment, AssignmentList, LeaseRenewed, RunPhase};

const BOOT: u64 = 4;

/// Applies messages from the cell, one per part, to the plan of one boot of an agent. True if the agent acts on any of them.
pub fn told(input: &[u8]) -> bool {
    let mut parts = Parts::of(input).peekable();
    let mut plan = match parts.peek() {
        Some((tag, _)) if tag & 0x80 != 0 => Plan::resumed(BOOT, found(), []),
        _ => Plan::new(BOOT),
    };
    let mut acted = false;
    for (tag, part) in parts {
        let acts = match tag & 7 {
            0..=2 => Assignment::decode(part).map(|told| plan.assigned(told)),
            3 | 4 => AssignmentList::decode(part).map(|list| plan.listed(list)),
            5 => LeaseRenewed::decode(part).map(|renewed| {
                lease(&renewed);
                Vec::new()
            }),
            6 => {
                plan.not_listed();
                Ok(Vec::new())
            }
            _ => Ok(ended(&mut plan, tag)),
        };
        for act in acts.unwrap_or_default() {
            acted = true;
            perform(&mut plan, act);
        }
    }
    acted
}

/// Key of a run that the agent found when it started.
fn found() -> Option<RunKey> {
    RunKey::new("00000000-0000-0001-0000-000000000007", 5).ok()
}

fn perform(plan: &mut Plan, act: Act) {
    match act {
        Act::Start { key, assignment } => {
            assert_eq!(node_agent::protocol::key(&assignment), Some(key));
            assert!(
                plan.running().any(|run| run == key),
                "{key} was started but is not a running run"
            );
            drop(plan.begun(key));
        }
        Act::Report(report) => plan.told(report.key),
        Act::Stop { .. } | Act::Sync | Act::RegisterAnew => {}
    }
}

/// Ends the first running run; the tag selects how it ends.
fn ended(plan: &mut Plan, tag: u8) -> Vec<Act> {
    let Some(key) = plan.running().next() else {
        return Vec::new();
    };
    match tag >> 3 & 3 {
        0 => plan.let_go(key),
        1 => plan.returned(key, Exit::default()),
        2 => plan.not_begun(key, RunPhase::FailedRun, None),
        _ => plan.not_begun(key, RunPhase::Rejected, Some(Exit::default())),
    }
}

fn lease(renewed: &LeaseRenewed) {
    let sent = Moment::now();
    let lease = Lease::renewed(sent, renewed.lease_ms).heard_at(sent, renewed.now_ms);
    assert!(lease.kill() >= lease.stop());
    let _ = (lease.beat(), lease.cell_ms(sent));
}
