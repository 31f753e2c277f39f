//! All five services in one process: the same code, for a laptop.

use crate::Failure;
use admission::AdmissionService;
use analytics::AnalyticsService;
use chassis::{Config, Service, Shutdown, run_service};
use clap::Args;
use node_heartbeat::NodeHeartbeatService;
use quota::QuotaService;
use scheduler::SchedulerService;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct Serve {
    /// Directory with one configuration per service, named <service>.toml.
    #[arg(long)]
    config_dir: PathBuf,
}

impl Serve {
    /// Until a signal, or until one of them gives up: then the others stop too.
    pub async fn run(self) -> Result<(), Failure> {
        let shutdown = Shutdown::on_signals()?;
        let dir = &self.config_dir;
        tokio::try_join!(
            one::<AdmissionService>(dir, &shutdown),
            one::<QuotaService>(dir, &shutdown),
            one::<SchedulerService>(dir, &shutdown),
            one::<NodeHeartbeatService>(dir, &shutdown),
            one::<AnalyticsService>(dir, &shutdown),
        )?;
        Ok(())
    }
}

async fn one<S: Service>(dir: &Path, shutdown: &Shutdown) -> Result<(), Failure> {
    let config: Config<S::Settings> = Config::load(&dir.join(format!("{}.toml", S::NAME)))?;
    Ok(run_service::<S>(config, shutdown.clone()).await?)
}
