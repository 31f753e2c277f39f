//! Errors that end a run. A missed aim is none.

use super::audit::AuditError;
use crate::kit::report::ReportError;
use chassis::stack::StackError;
use client::{ConnectError, Failed};
use replay::{
    drive::{FaultError, OperatorError},
    fleet::FleetError,
    reach::ReachError,
};
use std::io;
use vocab::BadToken;

#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error(transparent)]
    Stack(#[from] StackError),
    #[error(transparent)]
    Reach(#[from] ReachError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Operator(#[from] OperatorError),
    #[error("the operator's prices: {0}")]
    Prices(#[from] Failed),
    #[error(transparent)]
    Fleet(#[from] FleetError),
    #[error("the agents' thread is gone")]
    AgentsGone,
    #[error("a node's name: {0}")]
    Name(#[from] BadToken),
    #[error(
        "the case {case} needs {wanted} tenants, the stack has {there}; start it with --tenants"
    )]
    TooFewTenants {
        case: &'static str,
        wanted: usize,
        there: usize,
    },
    #[error(
        "{all} nodes are ready, {former} of them of a measure before this one, and this one needs exactly its own {wanted}; \
         start a fresh stack without nodes: up --fresh --tenants"
    )]
    OtherNodes { wanted: u64, all: u64, former: u64 },
    #[error(transparent)]
    Fault(#[from] FaultError),
    #[error("the stack has no scheduler")]
    NoScheduler,
    #[error("the scheduler was not ready {0} s after it was killed")]
    NotBack(u64),
    #[error("the ledger's stream: {0}")]
    Ledger(String),
    #[error(
        "nothing moves: {billed} of {accepted} tasks are on the bill, the slowest read model stands at {applied} of \
         {ledger_end}"
    )]
    Stalled {
        accepted: u64,
        billed: u64,
        ledger_end: u64,
        applied: u64,
    },
    #[error(transparent)]
    Audit(#[from] AuditError),
    #[error(transparent)]
    Report(#[from] ReportError),
    #[error("the figures' files, or a thread: {0}")]
    Io(#[from] io::Error),
    #[error("the figures as JSON: {0}")]
    Json(#[from] serde_json::Error),
}
