//! Between the agents' messages and the domain's words: the only file here that names generated types.

use crate::domain::{Assignment, Command};
use ledger::{
    DoorRecord,
    wire::{capacity_from_proto, shares_to_proto, spec_to_proto},
};
use prost::Message;
use schemas::v1::{self, node_report};
use vocab::{AllocationId, CellNo, Millis, RunState, Token};

/// Runs in one report.
pub const RUNS_MAX: usize = 1000;
/// Changes in one push: with the longest specs still far below what the bus takes.
pub const CHANGES_MAX: usize = 256;

/// Total: what cannot be read moves the door on and nothing else.
pub fn report(message: &DoorRecord, cell: CellNo) -> Vec<Command> {
    let node = &message.sender;
    let unreadable = || Command::Unreadable { node: node.clone() };
    read(node, &message.payload, cell).unwrap_or_else(|| vec![unreadable()])
}

fn read(node: &Token, payload: &[u8], cell: CellNo) -> Option<Vec<Command>> {
    let message = v1::NodeReport::decode(payload).ok()?;
    let incarnation = message.incarnation;
    let run = |run: &v1::Run| read_run(node, incarnation, run, cell);
    match message.report? {
        node_report::Report::Register(register) => Some(vec![Command::Register {
            node: node.clone(),
            incarnation,
            capacity: Box::new(capacity_from_proto(register.capacity).ok()?),
        }]),
        node_report::Report::Run(one) => Some(vec![run(&one)?]),
        node_report::Report::Runs(many) if many.runs.len() > RUNS_MAX => None,
        // One that cannot be read says nothing about the others.
        node_report::Report::Runs(many) => Some(many.runs.iter().filter_map(run).collect()),
    }
}

fn read_run(node: &Token, incarnation: u64, run: &v1::Run, cell: CellNo) -> Option<Command> {
    Some(Command::Report {
        node: node.clone(),
        incarnation,
        allocation: AllocationId::parse(&run.allocation_id)?.in_cell(cell)?,
        state: match run.phase() {
            v1::RunPhase::Started => RunState::Started,
            v1::RunPhase::FinishedOk => RunState::Finished,
            v1::RunPhase::FailedRun => RunState::Failed,
            v1::RunPhase::Rejected => RunState::Rejected,
            v1::RunPhase::Unspecified => return None,
        },
        at: Millis(run.at_ms),
        revision: run.revision,
    })
}

pub fn heartbeat(node: Token, payload: &[u8]) -> Option<Command> {
    let message = v1::Heartbeat::decode(payload).ok()?;
    Some(Command::Heartbeat {
        node,
        incarnation: message.incarnation,
        revision: message.revision,
    })
}

fn to_proto(assignment: &Assignment, incarnation: u64, cell: CellNo) -> v1::Assignment {
    v1::Assignment {
        revision: assignment.revision,
        allocation_id: assignment.allocation.id(cell).to_string(),
        tenant: assignment.tenant.to_string(),
        spec: Some(v1::AllocationSpec {
            rules: None,
            depends_on: Vec::new(),
            ..spec_to_proto(&assignment.spec)
        }),
        gpus: shares_to_proto(&assignment.gpus),
        placed_ms: assignment.placed.0,
        stop: assignment.stop,
        register_again: false,
        incarnation,
        stop_by_ms: assignment.stop_by.map_or(0, |by| by.0),
        zones: assignment.zones.into(),
        more: Vec::new(),
    }
}

/// One push with all these changes, which are for the same incarnation; nothing when there are none.
pub fn push(assignments: &[Assignment], incarnation: u64, cell: CellNo) -> Option<Vec<u8>> {
    let mut changes = assignments.iter();
    let of_cell = |assignment| to_proto(assignment, incarnation, cell);
    let first = of_cell(changes.next()?);
    let push = v1::Assignment {
        more: changes.map(of_cell).collect(),
        ..first
    };
    Some(push.encode_to_vec())
}

pub fn assignments(
    revision: u64,
    assignments: &[Assignment],
    incarnation: u64,
    cell: CellNo,
) -> Vec<u8> {
    let of_cell = |assignment| to_proto(assignment, incarnation, cell);
    v1::AssignmentList {
        revision,
        assignments: assignments.iter().map(of_cell).collect(),
        incarnation,
    }
    .encode_to_vec()
}

pub fn register_again(incarnation: u64) -> Vec<u8> {
    v1::Assignment {
        register_again: true,
        incarnation,
        ..Default::default()
    }
    .encode_to_vec()
}
