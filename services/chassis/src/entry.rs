//! The whole of a service's `main`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, FromArgMatches, Parser};
use tokio::runtime::{Builder, Runtime};

use crate::config::Config;
use crate::error::{BootError, one_line};
use crate::service::{Service, check_needs, run_service};
use crate::shutdown::Shutdown;

/// Blocking work that is left when the service has ended is not waited for longer than this.
const RUNTIME_STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// One service of Apportion.
#[derive(Debug, Parser)]
struct Arguments {
    /// The service's configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,

    /// Check the configuration and exit
    #[arg(long)]
    check: bool,

    /// Threads for the runtime; one thread without it, which is what a single decider needs
    #[arg(long, value_name = "N")]
    worker_threads: Option<NonZeroUsize>,
}

/// A service's `main`: `fn main() -> ExitCode { chassis::main::<Quota>() }`. Ends with 0 after a requested stop, 1 with
/// one line on standard error after a failure, 2 on wrong arguments.
pub fn main<S: Service>() -> ExitCode {
    run::<S>(&command::<S>().get_matches())
}

/// The command line of a service, to which a program may add.
pub fn command<S: Service>() -> clap::Command {
    Arguments::command()
        .name(S::NAME)
        .version(env!("CARGO_PKG_VERSION"))
}

/// Runs a service as its command line says, and returns what [`main`] does.
pub fn run<S: Service>(matches: &clap::ArgMatches) -> ExitCode {
    let arguments = match Arguments::from_arg_matches(matches) {
        Ok(arguments) => arguments,
        Err(refusal) => refusal.exit(),
    };
    match start::<S>(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            crate::note!("{}: {}", S::NAME, one_line(&error));
            ExitCode::FAILURE
        }
    }
}

fn start<S: Service>(arguments: &Arguments) -> Result<(), BootError> {
    let config = Config::load(&arguments.config)?;
    check_needs::<S>(&config)?;
    if arguments.check {
        return Ok(());
    }
    let runtime = runtime(arguments.worker_threads).map_err(BootError::Runtime)?;
    let outcome = runtime.block_on(async {
        crate::telemetry::init_logs(&config.log);
        let shutdown = Shutdown::on_signals().map_err(BootError::Signals)?;
        run_service::<S>(config, shutdown).await
    });
    runtime.shutdown_timeout(RUNTIME_STOP_TIMEOUT);
    outcome
}

fn runtime(worker_threads: Option<NonZeroUsize>) -> std::io::Result<Runtime> {
    match worker_threads {
        Some(threads) => Builder::new_multi_thread()
            .worker_threads(threads.get())
            .enable_all()
            .build(),
        None => Builder::new_current_thread().enable_all().build(),
    }
}
