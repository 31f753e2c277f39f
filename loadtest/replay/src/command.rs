//! How a command of `loadtest` runs and ends.

use std::{
    fmt::Display,
    io,
    process::{ExitCode, Termination},
};
use tokio::runtime::Builder;

/// Size of a measure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::Args)]
pub struct Size {
    /// Smallest size: takes seconds, checks that the measure works and judges no speed.
    #[arg(long)]
    pub smoke: bool,
}

impl Size {
    /// The value for this size.
    pub fn pick<T>(self, full: T, smallest: T) -> T {
        if self.smoke { smallest } else { full }
    }
}

/// On this thread alone: the machine's others are for the stack.
pub fn block_on<T, E: From<io::Error>>(work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(work);
    // Whatever still runs has nothing more to say.
    runtime.shutdown_background();
    done
}

/// What came of the command, or why nothing did.
pub fn exit<T: Termination, E: Display>(command: &str, done: Result<T, E>) -> ExitCode {
    match done {
        Ok(done) => done.report(),
        Err(error) => {
            chassis::note!("loadtest {command}: {error}");
            ExitCode::FAILURE
        }
    }
}
