//! What becomes of a run whose shim is gone.

use crate::{
    Damaged, End, Exit, Moment, Reason, RunKey, Usage, cgroup, log, processes, run_dir::RunDir,
};
use chassis::Stamp;
use std::path::Path;

/// How it ended: by its shim's word, or lost. A run that is lost is ended here, as far as it goes on without its shim.
pub(crate) fn conclude(key: RunKey, dir: &RunDir) -> Result<End, Damaged> {
    if let Some(end) = dir.end()? {
        return Ok(end);
    }
    let run = dir.run()?;
    let run = run.ok_or_else(|| Damaged::Name(dir.path().to_owned()))?;
    let user = run.user.map(|user| user.id);
    Ok(end_lost(key, dir, run.cgroup.as_deref(), user))
}

pub(crate) fn end_lost(key: RunKey, dir: &RunDir, cgroup: Option<&Path>, user: Option<u32>) -> End {
    let shim = dir.shim().unwrap_or_else(|error| {
        tracing::warn!(%error, "what a lost shim wrote cannot be read");
        None
    });
    let this_boot = processes::boot_id();
    let pid = shim.as_ref().filter(|shim| shim.boot_id == this_boot);
    if let Some(cgroup) = cgroup {
        cgroup::kill(cgroup);
    }
    let processes = processes::kill_orphans(pid.map(|shim| shim.pid), user, dir.path());
    let counted = cgroup.map(cgroup::counted).unwrap_or_default();
    let log_bytes = log::length(dir.path()).unwrap_or(0);
    tracing::warn!(%key, processes, "a run has lost its shim");
    let end = End {
        exit: Exit {
            reason: Reason::AgentLost,
            ..Exit::default()
        },
        usage: Usage {
            cpu_us: counted.cpu_us.unwrap_or(0),
            memory_bytes_peak: counted.memory_bytes_peak.unwrap_or(0),
            log_bytes,
        },
        started_ms: shim.map_or(0, |shim| shim.started_ms),
        ended_ms: i64::try_from(Stamp::now().unix_ns() / 1_000_000).unwrap_or(i64::MAX),
        ended_at: Some(Moment::now()),
    };
    // Where it cannot be written, it is found to be lost again.
    if let Err(error) = dir.write_end(&end) {
        tracing::warn!(%key, %error, "the end of a lost run cannot be written");
    }
    end
}
