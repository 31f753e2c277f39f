//! An assignment as what is to be started.

use super::Settings;
use crate::{Bounds, CpuSet, Exit, Reason, StartError, Usage, Work, discover::Machine};
use schemas::v1::{self, RunExitReason, RunPhase};
use std::path::PathBuf;
use vocab::Token;

/// By this an agent that was started anew knows whose a run is.
pub const TENANT: &str = "APPORTION_TENANT";

/// None: it has no command, and holds its place until it is told to stop.
pub fn of(
    assignment: &v1::Assignment,
    machine: &Machine,
    settings: &Settings,
) -> Option<(Work, Bounds)> {
    let spec = assignment.spec.as_ref()?;
    let work = spec.work.as_ref()?;
    let command = std::iter::once(&work.command).chain(&work.args);
    let named = |text: &String| (!text.is_empty()).then(|| text.clone());
    let env = work.env.iter();
    let work = Work {
        command: command.cloned().collect(),
        env: env.map(|it| (it.name.clone(), it.value.clone())).collect(),
        working_dir: named(&work.working_dir).map(PathBuf::from),
        payload: work.payload.clone(),
        image: named(&work.image),
    };
    let bounds = Bounds {
        cpu_milli: spec.cpu_milli,
        memory_bytes: spec.memory_bytes,
        cpu_milli_limit: spec.cpu_milli_limit,
        memory_bytes_limit: spec.memory_bytes_limit,
        cpus: cpus(assignment.zones, machine),
        gpus: assignment.gpus.iter().map(|share| share.device).collect(),
        nice: 0,
        log_bytes_max: settings.log_bytes_max,
        processes_max: settings.processes_max,
    };
    Some((work, bounds))
}

/// Of the zones that it was given; none: it may run on all.
fn cpus(zones: u32, machine: &Machine) -> Option<CpuSet> {
    let given = machine.zones.iter().zip(0..u32::BITS);
    let given = given.filter(|(_, bit)| zones >> bit & 1 == 1);
    let cpus: CpuSet = given.flat_map(|(zone, _)| zone.cpus.iter()).collect();
    (!cpus.is_empty()).then_some(cpus)
}

/// What the run is told of itself.
pub fn environment(assignment: &v1::Assignment, node: &Token, cell: &str) -> Vec<(String, String)> {
    let spec = assignment.spec.as_ref();
    let of_spec = |text: fn(&v1::AllocationSpec) -> &str| spec.map_or("", text).to_owned();
    let gang = spec.and_then(|spec| spec.gang.as_ref());
    let array_index = spec.and_then(|spec| spec.array_index);
    [
        ("APPORTION_ALLOCATION_ID", assignment.allocation_id.clone()),
        (TENANT, assignment.tenant.clone()),
        ("APPORTION_JOB_SET", of_spec(|spec| &spec.job_set)),
        ("APPORTION_NAME", of_spec(|spec| &spec.name)),
        (
            "APPORTION_GANG",
            gang.map(|gang| gang.name.clone()).unwrap_or_default(),
        ),
        (
            "APPORTION_ARRAY_INDEX",
            array_index
                .map(|index| index.to_string())
                .unwrap_or_default(),
        ),
        ("APPORTION_OPERATION_ID", assignment.operation_id.clone()),
        // As OpenTelemetry has it for the environment of a process.
        ("TRACEPARENT", assignment.traceparent.clone()),
        ("APPORTION_NODE", node.to_string()),
        ("APPORTION_CELL", cell.to_owned()),
    ]
    .into_iter()
    .filter(|(_, value)| !value.is_empty())
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

/// Of a run that cannot begin. What is the work's own fault fails everywhere; other nodes may take the rest.
pub fn refused(error: &StartError) -> (RunPhase, Option<Exit>) {
    match error.is_of_the_work() {
        true => {
            let exit = Exit {
                code: 126,
                signal: 0,
                reason: Reason::CouldNotStart,
            };
            (RunPhase::FailedRun, Some(exit))
        }
        false => (RunPhase::Rejected, Some(Exit::not_begun(Reason::NodeFault))),
    }
}

pub fn exit(exit: Exit, usage: Option<Usage>) -> v1::RunExit {
    let reason = match exit.reason {
        Reason::None => RunExitReason::Unspecified,
        Reason::OutOfMemory => RunExitReason::OutOfMemory,
        Reason::CouldNotStart => RunExitReason::CouldNotStart,
        Reason::Killed => RunExitReason::Killed,
        Reason::AgentLost => RunExitReason::SupervisorLost,
        Reason::Draining => RunExitReason::Draining,
        Reason::NodeFault => RunExitReason::NodeFault,
        Reason::OutOfDisk => RunExitReason::OutOfDisk,
    };
    v1::RunExit {
        code: exit.code.into(),
        signal: exit.signal.into(),
        reason: reason.into(),
        usage: usage.map(|usage| v1::RunUsage {
            cpu_us: usage.cpu_us,
            memory_peak_bytes: usage.memory_bytes_peak,
            log_bytes: usage.log_bytes,
        }),
    }
}
