//! What a run runs, and how that ended.

use crate::Level;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

wire::pair! {
    /// A variable of a run's environment.
    pub EnvVar { name, value }
}

/// What a run runs. Agents read it; no decision does.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
pub struct Work {
    /// Empty only with an image, whose own program it then is.
    #[wire(1)]
    pub command: String,
    #[wire(2)]
    pub args: Vec<String>,
    /// By name.
    #[wire(3, with = wire::Pairs<EnvVar>)]
    pub env: Vec<(String, String)>,
    /// An absolute path; empty: a directory of the run's own.
    #[wire(4)]
    pub working_dir: String,
    /// Empty: a process of the node.
    #[wire(5)]
    pub image: String,
    /// What the command reads from its standard input.
    #[wire(6)]
    pub payload: Bytes,
}

impl Work {
    /// The label of nodes whose agents run commands. Its value says how: [`Work::BY_PLUGIN`], or as processes.
    pub const NODE_LABEL: &str = "_commands";
    /// By the site's own starter of containers, which images need.
    pub const BY_PLUGIN: &str = "plugin";
    pub const BY_PROCESS: &str = "process";

    /// As a message. A request has room for little more.
    pub const BYTES_MAX: usize = 49_152;
    /// Of the command, the directory and the image each.
    pub const PATH_BYTES_MAX: usize = 4096;
    pub const ARGS_MAX: usize = 1024;
    pub const ENV_MAX: usize = 256;
    pub const PAYLOAD_BYTES_MAX: usize = 32_768;

    /// Bytes of all that it says.
    pub fn bytes(&self) -> usize {
        let args = self.args.iter().map(String::len);
        let env = self.env.iter();
        let env = env.map(|(name, value)| name.len() + value.len());
        let texts = [&self.command, &self.working_dir, &self.image];
        let texts = texts.map(String::len).iter().sum::<usize>();
        texts + args.sum::<usize>() + env.sum::<usize>() + self.payload.len()
    }
}

/// How the command of a run ended, and what it used.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    wire::Wire,
)]
pub struct RunExit {
    /// 0 with a signal.
    #[wire(1)]
    pub code: u8,
    /// 0: none.
    #[wire(2)]
    pub signal: u8,
    #[wire(3)]
    pub reason: Option<RunExitReason>,
    /// None: its agent does not measure it.
    #[wire(4)]
    pub usage: Option<RunUsage>,
}

/// What is known beyond code and signal. Stable numbers, the same as the contract's.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, wire::Wire,
)]
pub enum RunExitReason {
    OutOfMemory = 1,
    CouldNotStart = 2,
    /// It had not stopped when its grace was over.
    Killed = 3,
    /// The process that watches it on the node died or had to be killed, and the command's own end is not known.
    SupervisorLost = 4,
    /// The agent of the node was stopping.
    Draining = 5,
    /// The node could not set it up, for no fault of the work.
    NodeFault = 6,
    /// It used more room on the disk of its node than a run may, or the most of all when that disk was almost full.
    OutOfDisk = 7,
}

impl RunExitReason {
    /// Feature level from which the ledger may have it.
    pub fn since(self) -> Level {
        match self {
            RunExitReason::OutOfDisk => Level::OUT_OF_DISK,
            RunExitReason::OutOfMemory
            | RunExitReason::CouldNotStart
            | RunExitReason::Killed
            | RunExitReason::SupervisorLost
            | RunExitReason::Draining
            | RunExitReason::NodeFault => Level::FIRST,
        }
    }
}

/// What a run used, as its agent has measured it.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    wire::Wire,
)]
pub struct RunUsage {
    /// Of all its processes.
    #[wire(1)]
    pub cpu_us: u64,
    #[wire(2)]
    pub memory_peak_bytes: u64,
    /// Written to standard output and error.
    #[wire(3)]
    pub log_bytes: u64,
}
