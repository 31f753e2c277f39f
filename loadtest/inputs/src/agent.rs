//! What an agent is told by the cell.

use crate::parts::Parts;
use node_agent::{
    Exit, Lease, Moment, RunKey,
    protocol::{Act, Plan},
};
use prost::Message;
use schemas::v1::{Assignment, AssignmentList, LeaseRenewed, RunPhase};

const BOOT: u64 = 4;

/// Messages of the cell to one life of an agent, a part each. True if it does anything about them.
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

/// A run that was found when the agent started.
fn found() -> Option<RunKey> {
    RunKey::new("00000000-0000-0001-0000-000000000007", 5).ok()
}

fn perform(plan: &mut Plan, act: Act) {
    match act {
        Act::Start { key, assignment } => {
            assert_eq!(node_agent::protocol::key(&assignment), Some(key));
            assert!(
                plan.running().any(|run| run == key),
                "{key} starts, and does not run"
            );
            drop(plan.begun(key));
        }
        Act::Report(report) => plan.told(report.key),
        Act::Stop { .. } | Act::Sync | Act::RegisterAnew => {}
    }
}

/// The first run ends in one of the ways in which runs end.
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
